//! The publishers' endpoint, described.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{
    draft::{Draft, Schemas},
    events::{CloudEvent, CustomEvent, EventGridEvent},
};
use crate::publish::{http::VERSION, refusal::AnswerBody};

/// What can be said to whoever asks, with or without events.
pub(super) const ASKED: [(u16, &str); 2] =
    [(400, "The version of the API, or what was sent, is not what is allowed."), (404, "There is no such topic.")];

/// What can be said to whoever publishes, besides.
const SENT: [(u16, &str); 8] = [
    (401, "The key or the token is missing, or not good for this topic."),
    (403, "The topic's rules do not let this address in."),
    (408, "The body did not come in time, or too slowly."),
    (413, "The request, an event in it, or their number is too large."),
    (415, "CloudEvents do not come in this content type; or the body is compressed."),
    (429, "The topic's rate is used up until `Retry-After`."),
    (500, "The store is damaged."),
    (503, "Nothing can be taken until `Retry-After`; the events of the request may be stored."),
];

/// What is said of `api-version`.
pub(super) const ANY_VERSION: &str =
    "A day, perhaps with a word behind it. May be left out; no version differs from another.";

/// An `api-version`.
pub(super) fn version(example: &str) -> Value {
    json!({"type": "string", "pattern": VERSION, "example": example})
}

/// `POST` and `OPTIONS` of one of the three paths.
pub(super) fn describe(path: &str, method: &Method, schemas: &mut Schemas) -> Draft {
    let (word, whose) = match path.split('/').nth(1) {
        Some("topics") => ("Topic", "of a topic"),
        Some("domains") => ("Domain", "of a domain"),
        _ => ("Host", "of the topic or the domain that the first label of the host names"),
    };
    let error = schemas.of::<AnswerBody<'static>>();
    let version = version("2018-01-01");
    let asked = |draft: Draft| draft.query("api-version", ANY_VERSION, &version).errors(&ASKED, &error);
    if *method == Method::OPTIONS {
        let id = format!("ask{word}");
        let draft = Draft::new("publish", &id, &format!("Which schema the events {whose} have."));
        return asked(draft).done(200, "It takes events in the schema that the header `aeg-input-event-schema` names.");
    }
    let draft = Draft::new("publish", &format!("publishTo{word}"), &format!("Publishes events {whose}, all or none."));
    asked(draft)
        .secured(&["key", "keyInQuery", "token", "tokenInAuthorization", "publisher"])
        .bodies(true, bodies(schemas))
        .done(200, "The events are stored.")
        .errors(&SENT, &error)
}

/// What can be said to whoever wants something of a topic of a namespace.
pub(super) const IN_NAMESPACE: [(u16, &str); 2] =
    [(404, "There is no such namespace, or it is not clear which one is meant."), (410, "There is no such topic.")];

/// `POST` of one of the two paths of a topic of a namespace.
pub(super) fn in_namespace(path: &str, schemas: &mut Schemas) -> Draft {
    let (word, whose) = match path.contains("{namespace}") {
        true => ("Namespace", "of the namespace"),
        false => ("OnlyNamespace", "of the namespace that the first label of the host names, or of the only one"),
    };
    let (error, cloud) = (schemas.of::<AnswerBody<'static>>(), schemas.of::<CloudEvent>());
    let example =
        json!({"specversion": "1.0", "id": "1", "source": "plant", "type": "heated", "data": {"degrees": 80}});
    let several = json!({"type": "array", "minItems": 1, "items": cloud});
    Draft::new("publish", &format!("publishTo{word}"), &format!("Publishes to a topic {whose}, all or none."))
        .query("api-version", ANY_VERSION, &version("2024-06-01"))
        .secured(&["keyInAuthorization", "key", "keyInQuery", "token", "tokenInAuthorization", "publisher"])
        .bodies(
            true,
            json!({
                "application/cloudevents+json": {"schema": cloud, "example": example},
                "application/cloudevents-batch+json": {"schema": several, "example": [example]},
            }),
        )
        .answer(200, "The events are stored.", &json!({"type": "object"}))
        .errors(&ASKED, &error)
        .errors(&SENT, &error)
        .errors(&IN_NAMESPACE, &error)
}

/// A body in each schema; which one a topic takes is said by its `inputSchema`.
fn bodies(schemas: &mut Schemas) -> Value {
    let (event, cloud, custom) =
        (schemas.of::<EventGridEvent>(), schemas.of::<CloudEvent>(), schemas.of::<CustomEvent>());
    let event_example = json!([{
        "id": "1", "topic": "berlin", "subject": "orders/1", "eventType": "order.placed",
        "eventTime": "2040-01-01T00:00:00Z", "data": {"total": 12}, "dataVersion": "1.0",
    }]);
    let cloud_example =
        json!({"specversion": "1.0", "id": "1", "source": "berlin", "type": "order.placed", "data": {"total": 12}});
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
