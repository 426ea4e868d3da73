//! Namespaces and their topics, described.

use actix_web::http::Method;
use serde_json::{Value, json};

use super::{CHANGING, Draft, Route, Schemas, deleted, draft, topic_verb, what_if};
use crate::admin::{
    arm::path::{NamespaceVerb, TopicVerb},
    model::{
        namespace::{self, topic},
        subscription::{self, namespace as namespaced},
    },
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
        (NamespaceVerb::Itself, &Method::PUT) => {
            what_if(draft(route, "put", "Makes a namespace, or sets it anew."), schemas)
                .body(false, &body, example)
                .answer(201, "It is made, or changed.", &view)
                .errors(&CHANGING, error)
        }
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
        Method::PUT => what_if(draft(route, "put", "Makes a topic of a namespace, or sets it anew."), schemas)
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

/// An event subscription of a topic of a namespace, as it is told.
pub(super) fn subscription_view(schemas: &mut Schemas) -> Value {
    let properties = schemas.of::<namespaced::Properties>();
    let told = json!({
        "description": "As they can be set, with `endpointBaseUrl` instead of `endpointUrl`, and `provisioningState`.",
        "anyOf": [properties, {"type": "object"}],
    });
    schemas.made::<subscription::View>("NamespaceSubscription", |schema| schema["properties"]["properties"] = told)
}

/// It, itself.
pub(super) fn subscription(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let (body, view) = (schemas.of::<namespaced::Body>(), subscription_view(schemas));
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/heat"}});
    let push = json!({"deliveryMode": "Push", "push": {"destination": destination}});
    match *method {
        Method::GET => draft(route, "get", "An event subscription of a topic of a namespace.").answer(
            200,
            "It, without what may be secret.",
            &view,
        ),
        Method::PUT => what_if(draft(route, "put", "Makes an event subscription, or sets it anew."), schemas)
            .body(true, &body, json!({"properties": {"deliveryConfiguration": push}}))
            .answer(201, "It is made, or changed, and in force.", &view)
            .errors(&CHANGING, error),
        Method::PATCH => {
            // Of a merge patch nothing is required.
            let patch = json!({"type": "object", "properties": {"properties": {"type": "object"}}});
            draft(route, "patch", "Changes some of an event subscription: a JSON merge patch.")
                .body(false, &patch, json!({"properties": {"expirationTimeUtc": "2040-01-01T00:00:00Z"}}))
                .answer(200, "It is changed.", &view)
                .errors(&CHANGING, error)
        }
        _ => deleted(draft(route, "delete", "Deletes an event subscription, and what it owes."), error),
    }
}
