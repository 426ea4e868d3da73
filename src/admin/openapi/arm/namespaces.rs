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
            draft(route, "get", "Get a namespace").answer(200, "The resource, without its keys", &view)
        }
        (NamespaceVerb::Itself, &Method::PUT) => what_if(draft(route, "put", "Create or replace a namespace"), schemas)
            .body(false, &body, example)
            .answer(201, "The created or changed resource", &view)
            .errors(&CHANGING, error),
        (NamespaceVerb::Itself, &Method::PATCH) => draft(route, "patch", "Change a namespace with a JSON merge patch")
            .body(false, &body, example)
            .answer(200, "The changed resource", &view)
            .errors(&CHANGING, error),
        (NamespaceVerb::Itself, _) => {
            deleted(draft(route, "delete", "Delete a namespace, its topics and their event subscriptions"), error)
        }
    }
}

/// A topic of a namespace itself.
pub(super) fn topic(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let (body, view) = (schemas.of::<topic::Body>(), schemas.of::<topic::View>());
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

/// An event subscription of a topic of a namespace, as it is told.
pub(super) fn subscription_view(schemas: &mut Schemas) -> Value {
    let properties = schemas.of::<namespaced::Properties>();
    let told = json!({
        "description": "Properties as they are set, with `endpointBaseUrl` instead of `endpointUrl`, and `provisioningState`",
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
