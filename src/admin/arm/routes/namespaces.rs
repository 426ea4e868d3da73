//! Routes of namespaces, their topics and the event subscriptions of these.

use serde_json::{Value, json};

use super::{
    super::{
        namespaces,
        operation::{
            Operation, delete, get, handler, list, patch, patch_with_difference, post, put,
        },
        subscriptions, topics,
    },
    on_subscription, on_topic,
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

pub(super) static NAMESPACES: [Operation; 1] = [list(
    handler!(call => namespaces::list(call.control, call.request, &call.path.azure_scope()?)),
    describe("list", "List namespaces").pages::<Namespace>(),
)];

pub(super) static NAMESPACE: [(&str, &[Operation]); 3] = [
    (
        "",
        &[
            get(
                handler!(call => namespaces::get(call.control, &call.path.namespace()?)),
                describe("get", "Get a namespace")
                    .returns::<Namespace>(200, "The resource, without its keys"),
            ),
            put(
                handler!(call => namespaces::put(call, call.path.namespace()?).await),
                handler!(call => namespaces::difference(call, call.path.namespace()?)),
                describe("put", "Create or replace a namespace")
                    .takes::<Namespace>(false, EXAMPLE)
                    .returns::<Namespace>(201, "The created or changed resource"),
            ),
            patch(
                handler!(call => namespaces::patch(call, &call.path.namespace()?).await),
                describe("patch", "Change a namespace with a JSON merge patch")
                    .takes::<Namespace>(false, EXAMPLE)
                    .returns::<Namespace>(200, "The changed resource"),
            ),
            delete(
                handler!(call => namespaces::delete(call.control, &call.path.namespace()?).await),
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
            handler!(call => namespaces::list_keys(call.control, &call.path.namespace()?)),
            LIST_KEYS,
        )],
    ),
    (
        "/regenerateKey",
        &[post(
            Access::ADMIN,
            handler!(call => namespaces::regenerate_key(call, &call.path.namespace()?).await),
            REGENERATE_KEY,
        )],
    ),
];

pub(super) static NAMESPACE_TOPICS: [Operation; 1] = [list(
    handler!(call => topics::list_in_namespace(call, &call.path.namespace()?)),
    describe("list", "List the topics of a namespace").pages::<NamespaceTopic>(),
)];

pub(super) static NAMESPACE_TOPIC: [Operation; 4] = [
    get(
        on_topic!(c, topic => topics::get(c.control, topic)),
        describe("get", "Get a topic of a namespace")
            .returns::<NamespaceTopic>(200, "The resource, without its keys"),
    ),
    put(
        on_topic!(c, topic => topics::put(c, topic.clone()).await),
        handler!(call => topics::difference(call, call.path.topic()?).await),
        describe("put", "Create or replace a topic of a namespace")
            .takes::<NamespaceTopic>(false, r#"{"properties": {"eventRetentionInDays": 1}}"#)
            .returns::<NamespaceTopic>(201, "The created or changed resource"),
    ),
    patch(
        on_topic!(topics::patch),
        describe(
            "patch",
            "Change a topic of a namespace with a JSON merge patch",
        )
        .takes::<NamespaceTopic>(false, r#"{"properties": {"eventRetentionInDays": 1}}"#)
        .returns::<NamespaceTopic>(200, "The changed resource"),
    ),
    delete(
        on_topic!(c, topic => topics::delete(c.control, topic).await),
        describe(
            "delete",
            "Delete a topic of a namespace and its event subscriptions",
        )
        .returns_nothing(204, "The resource is deleted"),
    ),
];

pub(super) static NAMESPACE_SUBSCRIPTION_LIST: [Operation; 1] = [list(
    on_topic!(c, topic => subscriptions::list(c, topic)),
    describe(
        "list",
        "List the event subscriptions of a topic of a namespace",
    )
    .pages_json(subscription),
)];

pub(super) static NAMESPACE_SUBSCRIPTION: [Operation; 4] = [
    get(
        on_subscription!(c, topic, name => {
            subscriptions::get(c.control, topic, c.path.route.form, name)
        }),
        describe("get", "Get an event subscription of a topic of a namespace").returns_json(
            200,
            "The event subscription, without secrets",
            subscription,
        ),
    )
    .or_portal(),
    put(
        on_subscription!(subscriptions::put),
        on_subscription!(c, topic, name => subscriptions::difference(c, topic, name)),
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
    ),
    patch_with_difference(
        on_subscription!(subscriptions::patch),
        on_subscription!(c, topic, name => subscriptions::patch_difference(c, topic, name)),
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
    .or_portal(),
    delete(
        on_subscription!(c, topic, name => subscriptions::delete(c.control, topic, name).await),
        DELETE_SUBSCRIPTION,
    ),
];
