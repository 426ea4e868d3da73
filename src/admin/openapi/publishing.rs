//! OpenAPI descriptions of the publish endpoint.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{
    draft::{OperationBuilder, SchemaRegistry},
    events::{CloudEvent, CustomEvent, EventGridEvent},
};
use gridhook_publish::{http::VERSION, refusal::AnswerBody};

/// How requests to the data plane of a namespace are authenticated.
pub(super) const IN_NAMESPACE_SCHEMES: [&str; 6] = [
    "keyInAuthorization",
    "key",
    "keyInQuery",
    "token",
    "tokenInAuthorization",
    "publisher",
];

/// Errors of all operations of the data plane.
pub(super) const ASKED: [(u16, &str); 2] =
    [(400, "Invalid API version or body"), (404, "No such topic")];

/// Errors that only a publish returns.
const SENT: [(u16, &str); 8] = [
    (
        401,
        "Missing key or token, or one that is not valid for this topic",
    ),
    (403, "Client address not allowed by the rules of the topic"),
    (408, "Body not received in time, or too slow"),
    (413, "Request or event too large, or too many events"),
    (415, "Content type or content encoding not supported"),
    (
        429,
        "Rate limit of the topic reached; retry after `Retry-After`",
    ),
    (500, "Damaged store"),
    (
        503,
        "Temporarily unavailable; retry after `Retry-After`. The events may be stored",
    ),
];

pub(super) const ANY_VERSION: &str =
    "API version: a date, optionally with a suffix; every version is accepted";

pub(super) fn version_schema(example: &str) -> Value {
    json!({"type": "string", "pattern": VERSION, "example": example})
}

/// `POST` and `OPTIONS` of one of the three paths.
pub(super) fn describe_publish(
    path: &str,
    method: &Method,
    schemas: &mut SchemaRegistry,
) -> OperationBuilder {
    let (word, whose) = match path.split('/').nth(1) {
        Some("topics") => ("Topic", "of a topic"),
        Some("domains") => ("Domain", "of a domain"),
        _ => (
            "Host",
            "of the topic or the domain in the first label of the host name",
        ),
    };
    let error = schemas.reference_to::<AnswerBody<'static>>();
    let version = version_schema("2018-01-01");
    let with_version =
        |draft: OperationBuilder| draft.with_query("api-version", ANY_VERSION, &version);
    let with_parameters = |draft| with_version(draft).with_errors(&ASKED, &error);
    if *method == Method::OPTIONS {
        let id = format!("ask{word}");
        let draft = OperationBuilder::new("publish", &id, &format!("Get the event schema {whose}"));
        return with_parameters(draft)
            .with_empty_response(200, "The header `aeg-input-event-schema` names the schema");
    }
    let draft = OperationBuilder::new(
        "publish",
        &format!("publishTo{word}"),
        &format!("Publish events {whose}, all or none"),
    );
    with_parameters(draft)
        .with_security(&[
            "key",
            "keyInQuery",
            "token",
            "tokenInAuthorization",
            "publisher",
        ])
        .with_bodies(true, bodies_by_schema(schemas))
        .with_empty_response(200, "The events are stored")
        .with_errors(&SENT, &error)
}

/// Errors of operations on namespace topics.
pub(super) const IN_NAMESPACE: [(u16, &str); 2] = [
    (404, "No such namespace, or an ambiguous one"),
    (410, "No such topic"),
];

/// `POST` of one of the two paths of a namespace topic.
pub(super) fn in_namespace(path: &str, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (word, whose) = if path.contains("{namespace}") {
        ("Namespace", "of the namespace")
    } else {
        (
            "OnlyNamespace",
            "of the namespace in the first label of the host name, or of the only namespace",
        )
    };
    let error = schemas.reference_to::<AnswerBody<'static>>();
    let cloud = schemas.reference_to::<CloudEvent>();
    let example = json!({
        "specversion": "1.0", "id": "1", "source": "plant", "type": "heated",
        "data": {"degrees": 80},
    });
    let several = json!({"type": "array", "minItems": 1, "items": cloud});
    OperationBuilder::new(
        "publish",
        &format!("publishTo{word}"),
        &format!("Publish events to a topic {whose}, all or none"),
    )
    .with_query("api-version", ANY_VERSION, &version_schema("2024-06-01"))
    .with_security(&IN_NAMESPACE_SCHEMES)
    .with_bodies(
        true,
        json!({
            "application/cloudevents+json": {"schema": cloud, "example": example},
            "application/cloudevents-batch+json": {"schema": several, "example": [example]},
        }),
    )
    .with_json_response(200, "The events are stored", &json!({"type": "object"}))
    .with_errors(&ASKED, &error)
    .with_errors(&SENT, &error)
    .with_errors(&IN_NAMESPACE, &error)
}

/// A body in each schema; `inputSchema` of the topic determines which one it accepts.
fn bodies_by_schema(schemas: &mut SchemaRegistry) -> Value {
    let event = schemas.reference_to::<EventGridEvent>();
    let cloud = schemas.reference_to::<CloudEvent>();
    let custom = schemas.reference_to::<CustomEvent>();
    let event_example = json!([{
        "id": "1", "topic": "berlin", "subject": "orders/1", "eventType": "order.placed",
        "eventTime": "2040-01-01T00:00:00Z", "data": {"total": 12}, "dataVersion": "1.0",
    }]);
    let cloud_example = json!({
        "specversion": "1.0", "id": "1", "source": "berlin", "type": "order.placed",
        "data": {"total": 12},
    });
    let several = |schema: &Value| json!({"type": "array", "minItems": 1, "items": schema});
    json!({
        "application/json": {
            "schema": {"anyOf": [several(&event), several(&custom), cloud]},
            "examples": {"EventGridSchema": {"value": event_example}, "CloudEventSchemaV1_0": {"value": cloud_example}},
        },
        "application/cloudevents+json": {"schema": cloud, "example": cloud_example},
        "application/cloudevents-batch+json": {"schema": several(&cloud), "example": [cloud_example]},
    })
}
