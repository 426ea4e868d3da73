//! OpenAPI descriptions of namespaces and their topics.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{CHANGING, OperationBuilder, Route, SchemaRegistry, deleted, draft, topic_verb, what_if};
use crate::admin::{
    arm::path::{NamespaceAction, TopicAction},
    model::{
        namespace::{self, topic},
        subscription::{self, namespace as namespaced},
    },
};

pub(super) fn describe(
    route: &Route,
    verb: NamespaceAction,
    method: &Method,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    let (body, view) = (schemas.of::<namespace::NamespaceBody>(), schemas.of::<namespace::NamespaceView>());
    let example = json!({"location": "local", "sku": {"name": "Standard", "capacity": 1}});
    match (verb, method) {
        (NamespaceAction::ListKeys, _) => topic_verb(route, TopicAction::ListKeys, schemas, error),
        (NamespaceAction::RegenerateKey, _) => topic_verb(route, TopicAction::RegenerateKey, schemas, error),
        (NamespaceAction::Itself, &Method::GET) => {
            draft(route, "get", "Get a namespace").answer(200, "The resource, without its keys", &view)
        }
        (NamespaceAction::Itself, &Method::PUT) => {
            what_if(draft(route, "put", "Create or replace a namespace"), schemas)
                .body(false, &body, example)
                .answer(201, "The created or changed resource", &view)
                .errors(&CHANGING, error)
        }
        (NamespaceAction::Itself, &Method::PATCH) => {
            draft(route, "patch", "Change a namespace with a JSON merge patch")
                .body(false, &body, example)
                .answer(200, "The changed resource", &view)
                .errors(&CHANGING, error)
        }
        (NamespaceAction::Itself, _) => {
            deleted(draft(route, "delete", "Delete a namespace, its topics and their event subscriptions"), error)
        }
    }
}

/// GET, PUT, PATCH and DELETE of a namespace topic.
pub(super) fn topic(route: &Route, method: &Method, schemas: &mut SchemaRegistry, error: &Value) -> OperationBuilder {
    let (body, view) = (schemas.of::<topic::NamespaceTopicBody>(), schemas.of::<topic::NamespaceTopicView>());
    let example = json!({"properties": {"eventRetentionInDays": 1}});
    match *method {
        Method::GET => {
            draft(route, "get", "Get a topic of a namespace").answer(200, "The resource, without its keys", &view)
        }
        Method::PUT => what_if(draft(route, "put", "Create or replace a topic of a namespace"), schemas)
            .body(false, &body, example)
            .answer(201, "The created or changed resource", &view)
            .errors(&CHANGING, error),
        Method::PATCH => draft(route, "patch", "Change a topic of a namespace with a JSON merge patch")
            .body(false, &body, example)
            .answer(200, "The changed resource", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", "Delete a topic of a namespace and its event subscriptions"), error),
    }
}

/// The view of an event subscription of a namespace topic.
pub(super) fn subscription_view(schemas: &mut SchemaRegistry) -> Value {
    let properties = schemas.of::<namespaced::NamespaceSubscriptionProperties>();
    let told = json!({
        "description": "Properties as they are set, with `endpointBaseUrl` instead of `endpointUrl`, and `provisioningState`",
        "anyOf": [properties, {"type": "object"}],
    });
    schemas.made::<subscription::SubscriptionView>("NamespaceSubscription", |schema| {
        schema["properties"]["properties"] = told
    })
}

/// GET, PUT, PATCH and DELETE of an event subscription of a namespace topic.
pub(super) fn subscription(
    route: &Route,
    method: &Method,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    let (body, view) = (schemas.of::<namespaced::NamespaceSubscriptionBody>(), subscription_view(schemas));
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/heat"}});
    let push = json!({"deliveryMode": "Push", "push": {"destination": destination}});
    match *method {
        Method::GET => draft(route, "get", "Get an event subscription of a topic of a namespace").answer(
            200,
            "The event subscription, without secrets",
            &view,
        ),
        Method::PUT => what_if(draft(route, "put", "Create or replace an event subscription"), schemas)
            .body(true, &body, json!({"properties": {"deliveryConfiguration": push}}))
            .answer(201, "The created or changed event subscription, in force", &view)
            .errors(&CHANGING, error),
        Method::PATCH => {
            // Of a merge patch nothing is required.
            let patch = json!({"type": "object", "properties": {"properties": {"description": "Properties to change", "type": "object"}}});
            draft(route, "patch", "Change an event subscription with a JSON merge patch")
                .body(false, &patch, json!({"properties": {"expirationTimeUtc": "2040-01-01T00:00:00Z"}}))
                .answer(200, "The changed resource", &view)
                .errors(&CHANGING, error)
        }
        _ => deleted(draft(route, "delete", "Delete an event subscription and its pending deliveries"), error),
    }
}
