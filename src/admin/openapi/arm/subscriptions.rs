//! OpenAPI descriptions of event subscriptions.

use serde_json::{Value, json};

use super::{
    CHANGING, OperationBuilder, READING, Route, SchemaRegistry, delete as deleted, draft, error,
    list as listed, of_event, paged, paging, put as replaced,
};
use crate::metrics::MetricsView;
use gridhook_api::{
    explain::{ExplainView, NotFoundView},
    filter_test::FilterTestReport,
    ledger::LedgerPageView,
    replay::{DryRun, ReplayBody, ReplayView},
    retry::{RetriedView, RetryNowBody},
    status::{SubscriptionStatusView, UnblockBody},
    subscription::{
        AttributeMappingBody, EventSubscription, FilterBody, FullUrl, SubscriptionProperties,
        TransformSchema,
    },
    transform_test::TransformTestReport,
};

type SubscriptionView = EventSubscription<SubscriptionProperties>;

pub(crate) fn list_all(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary =
        "List event subscriptions by subscription, resource group, location or topic type";
    paged(
        draft(route, "list", summary),
        schemas.of::<SubscriptionView>(),
    )
}

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the event subscriptions of a topic, a domain or a domain topic";
    paged(
        draft(route, "list", summary),
        schemas.of::<SubscriptionView>(),
    )
}

pub(crate) fn get(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<SubscriptionView>();
    draft(route, "get", "Get an event subscription").answer(
        200,
        "The event subscription, without secrets",
        &view,
    )
}

pub(crate) fn put(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let subscription = schemas.of::<SubscriptionView>();
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/orders"}});
    let what = "The created or changed event subscription; `provisioningState` says whether it is \
        in force";
    replaced(
        draft(route, "put", "Create or replace an event subscription"),
        schemas,
    )
    .body(
        true,
        &subscription,
        json!({"properties": {"destination": destination}}),
    )
    .answer(201, what, &subscription)
}

pub(crate) fn patch(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<SubscriptionProperties>();
    draft(
        route,
        "patch",
        "Change the properties of an event subscription with a JSON merge patch",
    )
    .body(false, &body, json!({"labels": ["shop"]}))
    .answer(
        201,
        "The changed resource",
        &schemas.of::<SubscriptionView>(),
    )
    .errors(&CHANGING, &error())
}

pub(crate) fn delete(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    deleted(
        route,
        "Delete an event subscription and its pending deliveries",
    )
}

pub(crate) fn full_url(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let url = schemas.of::<FullUrl>();
    draft(route, "getFullUrl", "Get the endpoint URL with its query").answer(
        200,
        "The endpoint URL",
        &url,
    )
}

pub(crate) fn delivery_attributes(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the delivery properties with their secrets";
    listed(
        draft(route, "getDeliveryAttributes", summary),
        schemas.of::<AttributeMappingBody>(),
    )
}

pub(crate) fn test_filter(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let filter = schemas.of::<FilterBody>();
    let body = test_body(
        "filter",
        json!({"description": "Filter to test instead of the stored one", "allOf": [filter]}),
    );
    draft(
        route,
        "testFilter",
        "Test which events match a filter, and why others do not",
    )
    .body(true, &body, json!({"last": 100}))
    .answer(
        200,
        "The result for each event",
        &schemas.of::<FilterTestReport>(),
    )
    .errors(&READING, &error())
}

pub(crate) fn test_transform(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let transform = schemas.of::<TransformSchema>();
    let transform = json!({"description": "Transformation to test instead of the stored one", "allOf": [transform]});
    draft(
        route,
        "testTransform",
        "Test what a transformation makes of events",
    )
    .body(
        true,
        &test_body("transform", transform),
        json!({"last": 10, "transform": {"body": "data"}}),
    )
    .answer(
        200,
        "The result for each event",
        &schemas.of::<TransformTestReport>(),
    )
    .errors(&READING, &error())
}

/// The body of a test with a draft at `key`.
fn test_body(key: &str, draft: Value) -> Value {
    let asked = json!({
        "description": "Draft and events to test; without these keys, the body is the events",
        "type": "object",
        "properties": {
            key: draft,
            "events": {"description": "One event, or a list of events, in the input schema of the \
                topic"},
            "last": {"description": "Number of stored events to test, newest first", "type": "integer", "minimum": 1, "maximum": 1000},
        },
    });
    json!({"anyOf": [asked, {"type": "array", "items": {"type": "object"}}]})
}

pub(crate) fn status(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(
        route,
        "status",
        "Get the health, the counters and the backlog of an event subscription",
    )
    .answer(
        200,
        "The status of the event subscription",
        &schemas.of::<SubscriptionStatusView>(),
    )
    .errors(&READING, &error())
}

pub(crate) fn metrics(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"schema": {"type": "string"}});
    let contents = json!({
        "application/json": {"schema": schemas.of::<MetricsView>()},
        "text/plain": text,
        "application/openmetrics-text": text,
    });
    draft(
        route,
        "metrics",
        "Get the metrics of an event subscription, as JSON, Prometheus text or OpenMetrics",
    )
    .contents(200, "The metrics of the event subscription", contents)
    .errors(&READING, &error())
}

pub(crate) fn explain(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let not_found = json!({"anyOf": [error(), schemas.of::<NotFoundView>()]});
    let summary = "Explain why an event waits and when it is tried next, by id or sequence number";
    of_event(draft(route, "explain", summary))
        .answer(
            200,
            "The state of the event and its obstacles",
            &schemas.of::<ExplainView>(),
        )
        .errors(&READING, &error())
        .answer(
            404,
            "No such resource, or no such event in the searched part of the log",
            &not_found,
        )
}

pub(crate) fn ledger(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let time = json!({"type": "string", "format": "date-time"});
    paging(draft(
        route,
        "ledger",
        "List the ledger of outcomes in order of time",
    ))
    .query(
        "from",
        "Earliest time of a line; default: an hour before `to`, with `order=newest` the first line",
        &time,
    )
    .query(
        "order",
        "Which lines come first; default `oldest`",
        &json!({"enum": ["oldest", "newest"]}),
    )
    .query("to", "Time before which lines end; default: now", &time)
    .query(
        "outcome",
        "Step of the lines, outcome of an attempt, or reason for which an event was given up",
        &json!({"type": "string"}),
    )
    .answer(
        200,
        "A page of lines, with the token of the next page",
        &schemas.of::<LedgerPageView>(),
    )
    .errors(&READING, &error())
}

pub(crate) fn list_replays(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List running and recently ended replays";
    listed(
        draft(route, "listReplays", summary),
        schemas.of::<ReplayView>(),
    )
    .errors(&READING, &error())
}

pub(crate) fn start_replay(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<ReplayBody>();
    draft(
        route,
        "startReplay",
        "Replay stored events, or count them with `dryRun`",
    )
    .body(
        false,
        &body,
        json!({"from": "2026-01-01T00:00:00Z", "dryRun": true}),
    )
    .answer(200, "The count of a dry run", &schemas.of::<DryRun>())
    .answer(201, "The replay that began", &schemas.of::<ReplayView>())
    .errors(&CHANGING, &error())
}

pub(crate) fn get_replay(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(
        route,
        "getReplay",
        "Get the progress and the outcomes of a replay",
    )
    .answer(200, "The replay", &schemas.of::<ReplayView>())
    .errors(&READING, &error())
}

pub(crate) fn pause_replay(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    replay_command(
        draft(
            route,
            "pauseReplay",
            "Pause a replay; attempts in flight finish",
        ),
        schemas,
    )
}

pub(crate) fn resume_replay(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    replay_command(
        draft(route, "resumeReplay", "Resume a paused replay"),
        schemas,
    )
}

pub(crate) fn cancel_replay(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    replay_command(
        draft(
            route,
            "cancelReplay",
            "Cancel a replay; delivered events stay delivered",
        ),
        schemas,
    )
}

fn replay_command(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft
        .answer(200, "The changed replay", &schemas.of::<ReplayView>())
        .errors(&CHANGING, &error())
}

pub(crate) fn hold(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    command(
        draft(
            route,
            "hold",
            "Hold delivery until `resume`; attempts in flight finish",
        ),
        schemas,
    )
}

pub(crate) fn resume(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    command(
        draft(route, "resume", "Resume delivery after `hold`"),
        schemas,
    )
}

pub(crate) fn probe(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    command(
        draft(
            route,
            "probe",
            "Probe a suspended endpoint now; 409 if it is not suspended",
        ),
        schemas,
    )
}

pub(crate) fn release(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    command(
        draft(
            route,
            "release",
            "Release a suspended endpoint as healthy; 409 if it is healthy",
        ),
        schemas,
    )
}

pub(crate) fn unblock(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<UnblockBody>();
    let what = "Decide about the events that block their order key; 409 if none does";
    command(
        draft(route, "unblock", what).body(false, &body, json!({"key": "orders/1"})),
        schemas,
    )
}

pub(crate) fn retry(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<RetryNowBody>();
    let summary = "Retry pending deliveries now, all of them a part at a time; 409 if the event \
        subscription is held";
    draft(route, "retry", summary)
        .body(true, &body, json!({"all": true}))
        .answer(
            200,
            "The number of retries that are brought forward; `next` is the start of the rest",
            &schemas.of::<RetriedView>(),
        )
        .errors(&CHANGING, &error())
}

fn command(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft
        .answer(
            200,
            "The changed status",
            &schemas.of::<SubscriptionStatusView>(),
        )
        .errors(&CHANGING, &error())
}
