//! Routes of event subscriptions.

use serde_json::{Value, json};

use super::{
    super::{
        operation::{ArmOperation, PathOperations, delete, get, handler, list, patch, post, put},
        subscriptions,
    },
    topics::ONE_EVENT,
};
use crate::{
    auth::Access,
    delivery_request, explain,
    merge::SpreadMerge,
    metrics,
    openapi::{
        Description, Query, QueryType::NumberFrom, READING, SchemaRegistry, any_text, describe,
        error_reference,
    },
    operate, test_filter,
};
use gridhook_api::{
    delivery_request::DeliveryRequestView,
    explain::{EventNotFound, ExplainView},
    filter_test::FilterTestReport,
    status::SubscriptionStatusView,
    subscription::{
        DeliveryAttributeMapping, EventFilter, EventSubscription, FullUrl, SubscriptionProperties,
        TransformSchema,
    },
    transform_test::TransformTestReport,
};

type SubscriptionView = EventSubscription<SubscriptionProperties>;

/// Parameters of the events of a request.
const DELIVERED_EVENTS: &[Query] = &[
    Query("from", NumberFrom(1), "Sequence number of the first event"),
    Query(
        "to",
        NumberFrom(1),
        "Sequence number of the last event; by default that of the first",
    ),
    Query(
        "attempt",
        NumberFrom(1),
        "Number of the attempt; by default the first",
    ),
];

fn event_not_found(schemas: &mut SchemaRegistry) -> Value {
    json!({"anyOf": [error_reference(), schemas.reference_to::<EventNotFound>()]})
}

fn filter_test(schemas: &mut SchemaRegistry) -> Value {
    let filter = schemas.reference_to::<EventFilter>();
    let description = "Filter to test instead of the stored one";
    test_body(
        "filter",
        json!({"description": description, "allOf": [filter]}),
    )
}

fn transform_test(schemas: &mut SchemaRegistry) -> Value {
    let transform = schemas.reference_to::<TransformSchema>();
    let description = "Transformation to test instead of the stored one";
    test_body(
        "transform",
        json!({"description": description, "allOf": [transform]}),
    )
}

fn test_body(key: &str, draft: Value) -> Value {
    let events = "One event, or a list of events, in the input schema of the topic";
    let last = "Number of stored events to test, newest first";
    let asked = json!({
        "description": "Draft and events to test; without these keys, the body is the events",
        "type": "object",
        "properties": {
            key: draft,
            "events": {"description": events},
            "last": {"description": last, "type": "integer", "minimum": 1, "maximum": 1000},
        },
    });
    json!({"anyOf": [asked, {"type": "array", "items": {"type": "object"}}]})
}

/// The test of a filter, of an event subscription or of none.
pub(super) const TEST_FILTER: Description = describe(
    "testFilter",
    "Test which events match a filter, and why others do not",
)
.takes_json(true, filter_test, r#"{"last": 100}"#)
.returns::<FilterTestReport>(200, "The result for each event")
.fails(READING);

pub(super) static ALL_SUBSCRIPTIONS: [ArmOperation; 1] = [list(
    handler!(subscriptions::list_all),
    describe(
        "list",
        "List event subscriptions by subscription, resource group, location or topic type",
    )
    .pages::<SubscriptionView>(),
)];

pub(super) static SUBSCRIPTION_LIST: [ArmOperation; 1] = [list(
    handler!(subscriptions::list),
    describe(
        "list",
        "List the event subscriptions of a topic, a domain or a domain topic",
    )
    .pages::<SubscriptionView>(),
)];

pub(super) static SUBSCRIPTION: [ArmOperation; 4] = [
    get(
        handler!(subscriptions::get),
        describe("get", "Get an event subscription")
            .returns::<SubscriptionView>(200, "The event subscription, without secrets"),
    )
    .or_portal(),
    put(
        handler!(subscriptions::put),
        describe("put", "Create or replace an event subscription")
            .takes::<SubscriptionView>(
                true,
                r#"{"properties": {"destination": {"endpointType": "WebHook",
                    "properties": {"endpointUrl": "http://127.0.0.1:9/orders"}}}}"#,
            )
            .returns::<SubscriptionView>(
                201,
                "The created or changed event subscription; `provisioningState` says whether it \
                 is in force",
            ),
    )
    .with_difference(handler!(subscriptions::difference)),
    patch(
        handler!(subscriptions::patch),
        describe(
            "patch",
            "Change the properties of an event subscription with a JSON merge patch",
        )
        .takes::<SubscriptionProperties>(false, r#"{"labels": ["shop"]}"#)
        .returns::<SubscriptionView>(201, "The changed resource"),
    )
    .with_difference(handler!(subscriptions::patch_difference))
    .or_portal(),
    delete(handler!(subscriptions::delete), DELETE_SUBSCRIPTION),
];

pub(super) const DELETE_SUBSCRIPTION: Description = describe(
    "delete",
    "Delete an event subscription and its pending deliveries",
)
.returns_nothing(204, "The resource is deleted");

pub(super) static SUBSCRIPTION_ACTIONS: PathOperations<8> = [
    (
        "/getFullUrl",
        &[post(
            Access::ADMIN,
            handler!(subscriptions::full_url),
            describe("getFullUrl", "Get the endpoint URL with its query")
                .returns::<FullUrl>(200, "The endpoint URL"),
        )],
    ),
    (
        "/getDeliveryAttributes",
        &[post(
            Access::ADMIN,
            handler!(subscriptions::delivery_attributes),
            describe(
                "getDeliveryAttributes",
                "List the delivery properties with their secrets",
            )
            .lists::<DeliveryAttributeMapping>(),
        )],
    ),
    (
        "/testFilter",
        &[post(
            Access::READ,
            handler!(test_filter::test_filter),
            TEST_FILTER,
        )
        .in_parts(SpreadMerge::Tests)
        .or_portal()],
    ),
    (
        "/testTransform",
        &[post(
            Access::READ,
            handler!(test_filter::test_transform),
            describe(
                "testTransform",
                "Test what a transformation makes of events",
            )
            .takes_json(
                true,
                transform_test,
                r#"{"last": 10, "transform": {"body": "data"}}"#,
            )
            .returns::<TransformTestReport>(200, "The result for each event")
            .fails(READING),
        )
        .in_parts(SpreadMerge::Tests)
        .or_portal()],
    ),
    (
        "/request",
        &[get(
            handler!(delivery_request::show_request),
            describe(
                "request",
                "Get the request that delivers events of the log, with its body and without secrets",
            )
            .with(DELIVERED_EVENTS)
            .returns::<DeliveryRequestView>(200, "The request, as the event subscription is now")
            .fails(READING),
        )
        .served_by_named_shard()
        .or_portal()],
    ),
    (
        "/status",
        &[get(
            handler!(operate::status),
            describe(
                "status",
                "Get the health, the counters and the backlog of an event subscription",
            )
            .returns::<SubscriptionStatusView>(200, "The status of the event subscription")
            .fails(READING),
        )
        .in_parts(SpreadMerge::Figures)
        .or_portal()],
    ),
    (
        "/metrics",
        &[get(
            handler!(metrics::get_subscription_metrics),
            describe(
                "metrics",
                "Get the metrics of an event subscription, as Prometheus text or OpenMetrics",
            )
            .returns_types(
                "The metrics of the event subscription",
                &[
                    ("text/plain", any_text),
                    ("application/openmetrics-text", any_text),
                ],
            )
            .fails(READING),
        )
        .in_parts(SpreadMerge::Figures)],
    ),
    (
        "/explain",
        &[get(
            handler!(explain::explain),
            describe(
                "explain",
                "Explain why an event waits and when it is tried next, by id or sequence number",
            )
            .with(ONE_EVENT)
            .returns::<ExplainView>(200, "The state of the event and its obstacles")
            .returns_json(
                404,
                "No such resource, or no such event in the searched part of the log",
                event_not_found,
            )
            .fails(READING),
        )
        .served_where_found()],
    ),
];
