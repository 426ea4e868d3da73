//! Routes of namespaces, their topics and the event subscriptions of these.

use serde_json::{Value, json};

use super::{
    super::{
        namespaces,
        operation::{ArmOperation, PathOperations, delete, get, handler, list, patch, post, put},
        subscriptions, topics,
    },
    subscriptions::DELETE_SUBSCRIPTION,
    topics::{LIST_KEYS, REGENERATE_KEY},
};
use crate::{
    auth::Access,
    openapi::{SchemaRegistry, describe},
};
use gridhook_api::{
    namespace::{Namespace, NamespaceTopic},
    subscription::{EventSubscription, namespace::NamespaceSubscriptionProperties},
};

/// The example of a body of a namespace.
const EXAMPLE: &str = r#"{"location": "local", "sku": {"name": "Standard", "capacity": 1}}"#;

/// A reference to the schema of an event subscription of a namespace topic.
fn subscription(schemas: &mut SchemaRegistry) -> Value {
    schemas.reference_to::<NamespaceSubscriptionProperties>();
    schemas.named::<EventSubscription<NamespaceSubscriptionProperties>>("NamespaceSubscription")
}

/// A merge patch has no required properties.
fn subscription_patch(_: &mut SchemaRegistry) -> Value {
    let properties = json!({"description": "Properties to change", "type": "object"});
    json!({"type": "object", "properties": {"properties": properties}})
}

pub(super) static NAMESPACES: [ArmOperation; 1] = [list(
    handler!(namespaces::list),
    describe("list", "List namespaces").pages::<Namespace>(),
)];

pub(super) static NAMESPACE: PathOperations<3> = [
    (
        "",
        &[
            get(
                handler!(namespaces::get),
                describe("get", "Get a namespace")
                    .returns::<Namespace>(200, "The resource, without its keys"),
            ),
            put(
                handler!(namespaces::put),
                describe("put", "Create or replace a namespace")
                    .takes::<Namespace>(false, EXAMPLE)
                    .returns::<Namespace>(201, "The created or changed resource"),
            )
            .with_difference(handler!(namespaces::difference)),
            patch(
                handler!(namespaces::patch),
                describe("patch", "Change a namespace with a JSON merge patch")
                    .takes::<Namespace>(false, EXAMPLE)
                    .returns::<Namespace>(200, "The changed resource"),
            ),
            delete(
                handler!(namespaces::delete),
                describe(
                    "delete",
                    "Delete a namespace, its topics and their event subscriptions",
                )
                .returns_nothing(204, "The resource is deleted"),
            ),
        ],
    ),
    (
        "/listKeys",
        &[post(
            Access::ADMIN,
            handler!(namespaces::list_keys),
            LIST_KEYS,
        )],
    ),
    (
        "/regenerateKey",
        &[post(
            Access::ADMIN,
            handler!(namespaces::regenerate_key),
            REGENERATE_KEY,
        )],
    ),
];

pub(super) static NAMESPACE_TOPICS: [ArmOperation; 1] = [list(
    handler!(topics::list_in_namespace),
    describe("list", "List the topics of a namespace").pages::<NamespaceTopic>(),
)];

pub(super) static NAMESPACE_TOPIC: [ArmOperation; 4] = [
    get(
        handler!(topics::get),
        describe("get", "Get a topic of a namespace")
            .returns::<NamespaceTopic>(200, "The resource, without its keys"),
    ),
    put(
        handler!(topics::put),
        describe("put", "Create or replace a topic of a namespace")
            .takes::<NamespaceTopic>(false, r#"{"properties": {"eventRetentionInDays": 1}}"#)
            .returns::<NamespaceTopic>(201, "The created or changed resource"),
    )
    .with_difference(handler!(topics::difference)),
    patch(
        handler!(topics::patch),
        describe(
            "patch",
            "Change a topic of a namespace with a JSON merge patch",
        )
        .takes::<NamespaceTopic>(false, r#"{"properties": {"eventRetentionInDays": 1}}"#)
        .returns::<NamespaceTopic>(200, "The changed resource"),
    ),
    delete(
        handler!(topics::delete),
        describe(
            "delete",
            "Delete a topic of a namespace and its event subscriptions",
        )
        .returns_nothing(204, "The resource is deleted"),
    ),
];

pub(super) static NAMESPACE_SUBSCRIPTION_LIST: [ArmOperation; 1] = [list(
    handler!(subscriptions::list),
    describe(
        "list",
        "List the event subscriptions of a topic of a namespace",
    )
    .pages_json(subscription),
)];

pub(super) static NAMESPACE_SUBSCRIPTION: [ArmOperation; 4] = [
    get(
        handler!(subscriptions::get),
        describe("get", "Get an event subscription of a topic of a namespace").returns_json(
            200,
            "The event subscription, without secrets",
            subscription,
        ),
    )
    .or_portal(),
    put(
        handler!(subscriptions::put),
        describe("put", "Create or replace an event subscription")
            .takes_json(
                true,
                subscription,
                r#"{"properties": {"deliveryConfiguration": {"deliveryMode": "Push", "push":
                    {"destination": {"endpointType": "WebHook",
                        "properties": {"endpointUrl": "http://127.0.0.1:9/heat"}}}}}}"#,
            )
            .returns_json(
                201,
                "The created or changed event subscription, in force",
                subscription,
            ),
    )
    .with_difference(handler!(subscriptions::difference)),
    patch(
        handler!(subscriptions::patch),
        describe(
            "patch",
            "Change an event subscription with a JSON merge patch",
        )
        .takes_json(
            false,
            subscription_patch,
            r#"{"properties": {"expirationTimeUtc": "2040-01-01T00:00:00Z"}}"#,
        )
        .returns_json(200, "The changed resource", subscription),
    )
    .with_difference(handler!(subscriptions::patch_difference))
    .or_portal(),
    delete(handler!(subscriptions::delete), DELETE_SUBSCRIPTION),
];
