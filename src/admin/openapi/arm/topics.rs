//! OpenAPI descriptions of topics, domains and topics of domains.

use serde_json::json;

use super::{
    CHANGING, OperationBuilder, READING, Route, SchemaRegistry, delete as deleted, draft, error,
    list as listed, of_event, paged, paging, put as replaced,
};
use gridhook_api::{
    provider::EventType,
    status::TopicStatusView,
    topic::{
        DomainTopicBody, DomainTopicView, EventTypeBody, EventTypeView, RegenerateKeyBody,
        SharedAccessKeys, TopicBody, TopicView,
    },
    trace::TraceView,
};

/// `topic` or `domain`.
fn noun(route: &Route) -> &'static str {
    if route.tag == "domains" {
        "domain"
    } else {
        "topic"
    }
}

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    paged(
        draft(route, "list", &format!("List {}", route.resource)),
        schemas.of::<TopicView>(),
    )
}

pub(crate) fn get(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<TopicView>();
    draft(route, "get", &format!("Get a {}", noun(route))).answer(
        200,
        "The resource, without its keys",
        &view,
    )
}

pub(crate) fn put(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (schemas.of::<TopicBody>(), schemas.of::<TopicView>());
    replaced(
        draft(
            route,
            "put",
            &format!("Create or replace a {}", noun(route)),
        ),
        schemas,
    )
    .body(
        false,
        &body,
        json!({"location": "local", "tags": {"team": "shop"}}),
    )
    .answer(201, "The created or changed resource", &view)
}

pub(crate) fn patch(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (schemas.of::<TopicBody>(), schemas.of::<TopicView>());
    draft(
        route,
        "patch",
        &format!("Change a {} with a JSON merge patch", noun(route)),
    )
    .body(
        false,
        &body,
        json!({"location": "local", "tags": {"team": "shop"}}),
    )
    .answer(201, "The changed resource", &view)
    .errors(&CHANGING, &error())
}

pub(crate) fn delete(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    deleted(
        route,
        &format!(
            "Delete a {}, its events and its event subscriptions",
            noun(route)
        ),
    )
}

pub(crate) fn list_keys(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let keys = schemas.of::<SharedAccessKeys>();
    draft(route, "listKeys", "List the access keys").answer(200, "Both access keys", &keys)
}

pub(crate) fn regenerate_key(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, keys) = (
        schemas.of::<RegenerateKeyBody>(),
        schemas.of::<SharedAccessKeys>(),
    );
    draft(route, "regenerateKey", "Replace one of the access keys")
        .body(true, &body, json!({"keyName": "key1"}))
        .answer(200, "Both access keys", &keys)
        .errors(&CHANGING, &error())
}

pub(crate) fn status(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Get the figures of a topic, its log, and the event subscription that lags most";
    draft(route, "status", summary)
        .answer(
            200,
            "The status of the topic",
            &schemas.of::<TopicStatusView>(),
        )
        .errors(&READING, &error())
}

pub(crate) fn trace(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Trace an event through all event subscriptions, by id or sequence number";
    of_event(paging(draft(route, "trace", summary)))
        .answer(200, "The history of the event", &schemas.of::<TraceView>())
        .errors(&READING, &error())
}

pub(crate) fn event_types(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    listed(
        draft(
            route,
            "eventTypes",
            "List the event types that a topic declares",
        ),
        schemas.of::<EventType>(),
    )
}

pub(crate) fn list_event_types(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the event types of a topic with their schemas and examples";
    listed(
        draft(route, "listEventTypes", summary),
        schemas.of::<EventTypeView>(),
    )
}

pub(crate) fn get_event_type(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<EventTypeView>();
    draft(route, "getEventType", "Get an event type of a topic").answer(
        200,
        "The event type",
        &view,
    )
}

pub(crate) fn put_event_type(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (schemas.of::<EventTypeBody>(), schemas.of::<EventTypeView>());
    let version =
        json!({"schema": {"type": "object", "required": ["total"]}, "examples": [{"total": 5}]});
    let example =
        json!({"properties": {"description": "An order was placed", "versions": {"1": version}}});
    replaced(
        draft(
            route,
            "putEventType",
            "Create or replace an event type of a topic",
        ),
        schemas,
    )
    .body(true, &body, example)
    .answer(201, "The created or changed event type", &view)
}

pub(crate) fn delete_event_type(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "deleteEventType", "Delete an event type of a topic")
        .done(204, "The event type does not exist any more")
        .errors(&CHANGING, &error())
}

pub(crate) fn private_endpoint_connections(
    route: &Route,
    _: &mut SchemaRegistry,
) -> OperationBuilder {
    let summary = "List private endpoint connections (always empty)";
    listed(
        draft(route, "privateEndpointConnections", summary),
        json!({"type": "object"}),
    )
}

pub(crate) fn list_domain_topics(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    paged(
        draft(route, "list", "List the topics of a domain"),
        schemas.of::<DomainTopicView>(),
    )
}

pub(crate) fn get_domain_topic(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<DomainTopicView>();
    draft(route, "get", "Get a topic of a domain").answer(200, "The domain topic", &view)
}

pub(crate) fn put_domain_topic(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, view) = (
        schemas.of::<DomainTopicBody>(),
        schemas.of::<DomainTopicView>(),
    );
    replaced(draft(route, "put", "Create a topic of a domain"), schemas)
        .body(false, &body, json!({}))
        .answer(201, "The created or existing domain topic", &view)
}

pub(crate) fn delete_domain_topic(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    deleted(
        route,
        "Delete a topic of a domain and its event subscriptions",
    )
}
