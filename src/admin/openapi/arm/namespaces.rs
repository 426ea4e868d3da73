//! OpenAPI descriptions of namespaces, their topics and the event subscriptions of these.

use serde_json::{Value, json};

use super::{
    CHANGING, OperationBuilder, Route, SchemaRegistry, delete as deleted, draft, error, paged,
    put as replaced,
};
use gridhook_api::{
    namespace::{NamespaceBody, NamespaceTopicBody, NamespaceTopicView, NamespaceView},
    subscription::{EventSubscription, namespace::NamespaceSubscriptionProperties},
};

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    paged(
        draft(route, "list", "List namespaces"),
        schemas.of::<NamespaceView>(),
    )
}

pub(crate) fn get(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<NamespaceView>();
    draft(route, "get", "Get a namespace").answer(200, "The resource, without its keys", &view)
}

pub(crate) fn put(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (schemas.of::<NamespaceBody>(), schemas.of::<NamespaceView>());
    replaced(
        draft(route, "put", "Create or replace a namespace"),
        schemas,
    )
    .body(
        false,
        &body,
        json!({"location": "local", "sku": {"name": "Standard", "capacity": 1}}),
    )
    .answer(201, "The created or changed resource", &view)
}

pub(crate) fn patch(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (schemas.of::<NamespaceBody>(), schemas.of::<NamespaceView>());
    draft(route, "patch", "Change a namespace with a JSON merge patch")
        .body(
            false,
            &body,
            json!({"location": "local", "sku": {"name": "Standard", "capacity": 1}}),
        )
        .answer(200, "The changed resource", &view)
        .errors(&CHANGING, &error())
}

pub(crate) fn delete(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    deleted(
        route,
        "Delete a namespace, its topics and their event subscriptions",
    )
}

pub(crate) fn list_topics(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    paged(
        draft(route, "list", "List the topics of a namespace"),
        schemas.of::<NamespaceTopicView>(),
    )
}

pub(crate) fn get_topic(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<NamespaceTopicView>();
    draft(route, "get", "Get a topic of a namespace").answer(
        200,
        "The resource, without its keys",
        &view,
    )
}

pub(crate) fn put_topic(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (
        schemas.of::<NamespaceTopicBody>(),
        schemas.of::<NamespaceTopicView>(),
    );
    replaced(
        draft(route, "put", "Create or replace a topic of a namespace"),
        schemas,
    )
    .body(
        false,
        &body,
        json!({"properties": {"eventRetentionInDays": 1}}),
    )
    .answer(201, "The created or changed resource", &view)
}

pub(crate) fn patch_topic(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (
        schemas.of::<NamespaceTopicBody>(),
        schemas.of::<NamespaceTopicView>(),
    );
    draft(
        route,
        "patch",
        "Change a topic of a namespace with a JSON merge patch",
    )
    .body(
        false,
        &body,
        json!({"properties": {"eventRetentionInDays": 1}}),
    )
    .answer(200, "The changed resource", &view)
    .errors(&CHANGING, &error())
}

pub(crate) fn delete_topic(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    deleted(
        route,
        "Delete a topic of a namespace and its event subscriptions",
    )
}

/// A reference to the schema of an event subscription of a namespace topic.
fn subscription(schemas: &mut SchemaRegistry) -> Value {
    schemas.of::<NamespaceSubscriptionProperties>();
    schemas.named::<EventSubscription<NamespaceSubscriptionProperties>>("NamespaceSubscription")
}

pub(crate) fn list_subscriptions(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the event subscriptions of a topic of a namespace";
    paged(draft(route, "list", summary), subscription(schemas))
}

pub(crate) fn get_subscription(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (summary, view) = (
        "Get an event subscription of a topic of a namespace",
        subscription(schemas),
    );
    draft(route, "get", summary).answer(200, "The event subscription, without secrets", &view)
}

pub(crate) fn put_subscription(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let subscription = subscription(schemas);
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/heat"}});
    let push = json!({"deliveryMode": "Push", "push": {"destination": destination}});
    replaced(
        draft(route, "put", "Create or replace an event subscription"),
        schemas,
    )
    .body(
        true,
        &subscription,
        json!({"properties": {"deliveryConfiguration": push}}),
    )
    .answer(
        201,
        "The created or changed event subscription, in force",
        &subscription,
    )
}

pub(crate) fn patch_subscription(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    // A merge patch has no required properties.
    let properties = json!({"description": "Properties to change", "type": "object"});
    let body = json!({"type": "object", "properties": {"properties": properties}});
    draft(
        route,
        "patch",
        "Change an event subscription with a JSON merge patch",
    )
    .body(
        false,
        &body,
        json!({"properties": {"expirationTimeUtc": "2040-01-01T00:00:00Z"}}),
    )
    .answer(200, "The changed resource", &subscription(schemas))
    .errors(&CHANGING, &error())
}
