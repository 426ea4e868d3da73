//! Namespaces and their topics, described.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{CHANGING, Draft, Route, Schemas, deleted, draft, topic_verb};
use crate::admin::{
    arm::path::{NamespaceVerb, TopicVerb},
    model::namespace::{self, topic},
};

pub(super) fn describe(
    route: &Route,
    verb: NamespaceVerb,
    method: &Method,
    schemas: &mut Schemas,
    error: &Value,
) -> Draft {
    let (body, view) = (schemas.of::<namespace::Body>(), schemas.of::<namespace::View>());
    let example = json!({"location": "local", "sku": {"name": "Standard", "capacity": 1}});
    match (verb, method) {
        (NamespaceVerb::ListKeys, _) => topic_verb(route, TopicVerb::ListKeys, schemas, error),
        (NamespaceVerb::RegenerateKey, _) => topic_verb(route, TopicVerb::RegenerateKey, schemas, error),
        (NamespaceVerb::Itself, &Method::GET) => {
            draft(route, "get", "A namespace.").answer(200, "It, without its keys.", &view)
        }
        (NamespaceVerb::Itself, &Method::PUT) => draft(route, "put", "Makes a namespace, or sets it anew.")
            .body(false, &body, example)
            .answer(201, "It is made, or changed.", &view)
            .errors(&CHANGING, error),
        (NamespaceVerb::Itself, &Method::PATCH) => {
            draft(route, "patch", "Changes some of a namespace: a JSON merge patch.")
                .body(false, &body, example)
                .answer(200, "It is changed.", &view)
                .errors(&CHANGING, error)
        }
        (NamespaceVerb::Itself, _) => {
            deleted(draft(route, "delete", "Deletes a namespace, its topics and their subscriptions."), error)
        }
    }
}

/// A topic of a namespace itself.
pub(super) fn topic(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let (body, view) = (schemas.of::<topic::Body>(), schemas.of::<topic::View>());
    let example = json!({"properties": {"eventRetentionInDays": 1}});
    match *method {
        Method::GET => draft(route, "get", "A topic of a namespace.").answer(200, "It, without its keys.", &view),
        Method::PUT => draft(route, "put", "Makes a topic of a namespace, or sets it anew.")
            .body(false, &body, example)
            .answer(201, "It is made, or changed.", &view)
            .errors(&CHANGING, error),
        Method::PATCH => draft(route, "patch", "Changes some of a topic of a namespace: a JSON merge patch.")
            .body(false, &body, example)
            .answer(200, "It is changed.", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", "Deletes a topic of a namespace and its subscriptions."), error),
    }
}
