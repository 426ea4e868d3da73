//! OpenAPI descriptions of the operations on the events of a topic.

use serde_json::json;

use super::{OperationBuilder, READING, Route, SchemaRegistry, draft, error};
use crate::events::TOP_MAX;
use gridhook_api::events::EventList;

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    draft(
        route,
        "events",
        "List the stored events of a topic, newest first",
    )
    .query(
        "top",
        "Maximum events in a page",
        &json!({"type": "integer", "minimum": 1, "maximum": TOP_MAX}),
    )
    .query(
        "before",
        "Sequence number before which the page ends, or `before` of the last page",
        &text,
    )
    .query("type", "Type of the listed events", &text)
    .query("subject", "Text in the subject of the listed events", &text)
    .query("id", "Id of the listed events", &text)
    .answer(200, "The page of events", &schemas.of::<EventList>())
    .errors(&READING, &error())
}

pub(crate) fn get(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let schema = json!({"schema": {"type": "object"}});
    let contents = json!({"application/json": schema, "application/cloudevents+json": schema});
    draft(
        route,
        "event",
        "Get a stored event, byte for byte; of a spread topic, that of the named shard",
    )
    .contents(200, "The event in the input schema of the topic", contents)
    .errors(&READING, &error())
}

pub(crate) fn publish(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let event = json!({"type": "object"});
    let body = json!({"anyOf": [event, {"type": "array", "items": event}]});
    let example = json!([{
        "id": "1", "eventType": "Test", "subject": "/test", "eventTime": "2040-01-01T00:00:00Z",
        "dataVersion": "1", "data": {"test": true},
    }]);
    let errors = [
        (400, "Event not accepted"),
        (429, "Too many events"),
        (503, "Backlog full, or store temporarily unwritable"),
    ];
    draft(
        route,
        "publish",
        "Publish events with the token of an operator, in the input schema of the topic",
    )
    .body(true, &body, example)
    .done(200, "The events are stored")
    .errors(&errors, &error())
}
