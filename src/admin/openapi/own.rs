//! OpenAPI descriptions of the routes that are not Azure Resource Manager's.

use serde_json::{Value, json};

#[cfg(feature = "simulate")]
use gridhook_api::editions::SimulateBody;
#[cfg(feature = "simulate")]
use gridhook_simulate::SimulationReport;

use super::draft::{OperationBuilder, SchemaRegistry, error};
use crate::metadata::{CloudEndpoints, EarlyCloudEndpoints};
use gridhook_api::{
    audit::AuditPageView,
    chaos::{
        ActiveFaults, ChaosReport, ClockBody, KillBody, PoisonBody, ResponsesBody, StallBody,
        WritesBody,
    },
    clock::ClockView,
    cluster::{ClusterView, DrainBody, ForgetBody, MoveBody, OwnershipView},
    dead_letters::NewestDeadLettersView,
    editions::EditionsReport,
    health::{Liveness, Readiness},
    history::HistoryReport,
    jobs::JobsReport,
    search::SearchReport,
    server::ServerReport,
    session::Session,
    store::{BackupBody, ProgressLine},
    supervision::SupervisionReport,
    tail::TailLine,
    token::{TokenBody, TokenList, TokenView},
    top::TopReport,
};

/// Errors of fault injection.
const CHAOS: [(u16, &str); 6] = [
    (400, "Invalid body, or no target for the fault"),
    (404, "No such topic or event subscription"),
    (408, "Body not received in time"),
    (409, "Too many active faults"),
    (413, "Body too large"),
    (503, "Store temporarily unwritable"),
];

/// Errors of operations on the store.
const STORE: [(u16, &str); 4] = [
    (400, "Invalid folder"),
    (409, "Another check or backup is running"),
    (413, "Body too large"),
    (503, "Closed store"),
];

/// Errors of lists that read the store.
const TOP: [(u16, &str); 4] = [
    (400, "Invalid query"),
    (404, "No such topic"),
    (500, "Damaged store"),
    (503, "Store temporarily unreadable"),
];

/// Errors of streams.
const STREAM: [(u16, &str); 3] = [
    (400, "Invalid query"),
    (404, "No such topic"),
    (503, "Too many clients, or the server is stopping"),
];

/// Errors of the history.
const HISTORY: [(u16, &str); 2] = [
    (400, "Invalid query"),
    (
        404,
        "No such topic or event subscription, or dashboard disabled",
    ),
];

/// Errors of simulations.
#[cfg(feature = "simulate")]
const SIMULATE: [(u16, &str); 4] = [
    (
        400,
        "Invalid plan, or one that is too large or computes for too long",
    ),
    (408, "Body not received in time"),
    (413, "Body too large"),
    (503, "Too much is being computed, or the server is stopping"),
];

/// Errors of sessions.
const SESSION: [(u16, &str); 2] = [
    (400, "Not possible with this token"),
    (404, "Dashboard disabled"),
];

/// Errors of changes of tokens.
const TOKEN: [(u16, &str); 6] = [
    (400, "Invalid token"),
    (404, "No such token"),
    (409, "The name is taken, or there are too many tokens"),
    (408, "Body not received in time"),
    (413, "Body too large"),
    (503, "Store temporarily unwritable"),
];

/// Errors of a validation.
const VALIDATION: [(u16, &str); 6] = [
    (400, "Invalid request rate"),
    (404, "No such pending validation"),
    (409, "Validation request not answered yet"),
    (410, "Validation expired"),
    (500, "Unknown whether the validation was stored"),
    (503, "Store temporarily unwritable"),
];

pub(crate) fn healthz(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("health", "healthz", "Check that the process is alive").answer(
        200,
        "The process is alive",
        &schemas.of::<Liveness>(),
    )
}

pub(crate) fn readyz(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let readiness = schemas.of::<Readiness>();
    OperationBuilder::new("health", "readyz", "Check that events are accepted")
        .answer(200, "Events are accepted", &readiness)
        .answer(503, "Events are not accepted, with the causes", &readiness)
}

pub(crate) fn openapi(_: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("description", "openapi", "Get this OpenAPI document").answer(
        200,
        "The OpenAPI 3.1 document",
        &json!({"type": "object"}),
    )
}

pub(crate) fn cloud_endpoints(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (cloud, early) = (
        schemas.of::<CloudEndpoints>(),
        schemas.of::<EarlyCloudEndpoints>(),
    );
    OperationBuilder::new(
        "description",
        "cloudEndpoints",
        "Get the addresses of this cloud, as Azure's clients expect them",
    )
    .query(
        "api-version",
        "API version: since 2022-09-01 a single cloud, since 2019-05-01 a list, before that fewer \
         addresses",
        &json!({"type": "string"}),
    )
    .answer(
        200,
        "The addresses",
        &json!({"anyOf": [cloud, {"type": "array", "items": cloud}, early]}),
    )
}

pub(crate) fn validate(_: &mut SchemaRegistry) -> OperationBuilder {
    validation("validate")
}

pub(crate) fn validate_by_post(_: &mut SchemaRegistry) -> OperationBuilder {
    validation("validateByPost")
}

fn validation(id: &str) -> OperationBuilder {
    let summary =
        "Confirm the validation of an endpoint, by the address from its validation request";
    let text = json!({"type": "string"});
    let draft = ["id", "t", "apiVersion", "token"].into_iter().fold(
        OperationBuilder::new("validation", id, summary),
        |draft, name| draft.query(name, "Value from the validation address", &text),
    );
    draft
        .header(
            "WebHook-Allowed-Rate",
            "Requests a minute that the endpoint accepts, or `*`",
        )
        .text(200, "The endpoint is validated")
        .errors(&VALIDATION, &error())
}

pub(crate) fn metrics(_: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"schema": {"type": "string"}});
    let summary = "Get the metrics of the server, as Prometheus text or OpenMetrics";
    OperationBuilder::new("metrics", "metrics", summary).contents(
        200,
        "The metrics of the server",
        json!({"text/plain": text, "application/openmetrics-text": text}),
    )
}

pub(crate) fn top(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let orders = json!({"enum": ["activity", "health", "backlog", "pending", "failures", "inFlight", "deadLetters", "responseTime", "name"]});
    let states = json!({"enum": ["healthy", "unhealthy", "failing", "suspended", "probing", "held", "waiting", "slow", "idle"]});
    let (number, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    OperationBuilder::new(
        "supervision",
        "top",
        "List the figures of all event subscriptions",
    )
    .query("top", "Maximum event subscriptions: 1 to 500", &number)
    .query(
        "skip",
        "Event subscriptions before the first listed one: 0 to 1,000,000",
        &number,
    )
    .query(
        "by",
        "Figure to sort by, highest first; names are ascending",
        &orders,
    )
    .query(
        "search",
        "Text in the name or the endpoint of the listed event subscriptions",
        &text,
    )
    .query(
        "topic",
        "Resource id of the only topic, domain or domain topic",
        &text,
    )
    .query("health", "State of the listed event subscriptions", &states)
    .query(
        "window",
        "Recorded window of rates and shares; default 1m",
        &json!({"enum": ["1m", "1h", "24h"]}),
    )
    .answer(
        200,
        "The event subscriptions and their figures",
        &schemas.of::<TopReport>(),
    )
    .errors(&TOP, &error())
}

pub(crate) fn history(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    OperationBuilder::new(
        "supervision",
        "history",
        "Get the course of the figures of the server or a part of it",
    )
    .query(
        "range",
        "Period until now; default 10m",
        &json!({"enum": ["10m", "3h", "24h"]}),
    )
    .query(
        "topic",
        "Resource id of the topic or the domain; default the whole server",
        &text,
    )
    .query(
        "subscription",
        "Name of the event subscription of this topic",
        &text,
    )
    .answer(
        200,
        "The figures, one value for each step of time",
        &schemas.of::<HistoryReport>(),
    )
    .errors(&HISTORY, &error())
}

pub(crate) fn tail(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (flag, text) = (json!({"type": "boolean"}), json!({"type": "string"}));
    let content = json!({"application/x-ndjson": {"schema": schemas.of::<TailLine>()}});
    OperationBuilder::new(
        "supervision",
        "tail",
        "Stream events and outcomes as they happen",
    )
    .query("events", "Whether to include events", &flag)
    .query("outcomes", "Whether to include outcomes", &flag)
    .query("data", "Whether to include the data of events", &flag)
    .query(
        "topic",
        "Resource id of the only topic, domain or domain topic",
        &text,
    )
    .query(
        "subscription",
        "Name of the event subscriptions whose outcomes are included",
        &text,
    )
    .query("type", "Type of the included events", &text)
    .query(
        "outcome",
        "Step of the included outcomes, outcome of an attempt, or reason for which an event \
         was given up",
        &text,
    )
    .query(
        "status",
        "HTTP status of the included attempts",
        &json!({"type": "integer"}),
    )
    .contents(
        200,
        "Endless lines of JSON; an empty line is a keep-alive",
        content,
    )
    .errors(&STREAM, &error())
}

pub(crate) fn supervision(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "supervision",
        "supervision",
        "Get the failures and restarts of actors",
    )
    .query(
        "top",
        "Maximum actors listed by name: 1 to 1,000",
        &json!({"type": "integer"}),
    )
    .query(
        "topic",
        "Name of the topic to restrict the report to",
        &json!({"type": "string"}),
    )
    .answer(
        200,
        "The actors with the most failures, and the totals",
        &schemas.of::<SupervisionReport>(),
    )
    .errors(&STREAM[..2], &error())
}

pub(crate) fn newest_dead_letters(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    let summary = "List the events of all event subscriptions that became dead letters";
    OperationBuilder::new("deadLetters", "newestDeadLetters", summary)
        .query(
            "top",
            "Maximum lines: 1 to 500; default 100",
            &json!({"type": "integer"}),
        )
        .query("continue", "Value of `continue` in the last page", &text)
        .query("reason", "`deadLetterReason`, compared without case", &text)
        .query(
            "topic",
            "Resource id of a topic, a domain or a domain topic",
            &text,
        )
        .query(
            "search",
            "Part of the name of the event subscription, compared without case",
            &text,
        )
        .answer(
            200,
            "Lines of the ledgers, newest first",
            &schemas.of::<NewestDeadLettersView>(),
        )
        .errors(&TOP, &error())
}

pub(crate) fn search(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "supervision",
        "search",
        "Find the events with an id in all topics",
    )
    .query("id", "Id of the event", &json!({"type": "string"}))
    .answer(
        200,
        "The events, and the topics that were not searched to their end",
        &schemas.of::<SearchReport>(),
    )
    .errors(&[TOP[0], TOP[3]], &error())
}

pub(crate) fn jobs(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "supervision",
        "jobs",
        "List the replays and redrives that have not ended",
    )
    .query(
        "top",
        "Maximum jobs: 1 to 1,000",
        &json!({"type": "integer"}),
    )
    .answer(
        200,
        "The jobs of all event subscriptions, newest first",
        &schemas.of::<JobsReport>(),
    )
    .errors(&STREAM[..1], &error())
}

pub(crate) fn server(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "supervision",
        "server",
        "Get version, listeners, process and changed settings",
    )
    .answer(200, "Facts of the server", &schemas.of::<ServerReport>())
    .errors(&STORE[3..], &error())
}

pub(crate) fn editions(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "policy",
        "editions",
        "List the editions of the delivery policy and their retry schedules",
    )
    .answer(200, "The editions by name", &schemas.of::<EditionsReport>())
}

#[cfg(feature = "simulate")]
pub(crate) fn simulate(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let example = json!({"models": ["outage:5h"], "subscriptions": 10, "days": 1});
    OperationBuilder::new(
        "policy",
        "simulate",
        "Simulate an edition of the delivery policy in virtual time",
    )
    .body(false, &schemas.of::<SimulateBody>(), example)
    .answer(
        200,
        "What became of the events, for each endpoint model",
        &schemas.of::<SimulationReport>(),
    )
    .errors(&SIMULATE, &error())
}

pub(crate) fn clock(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Get the time by which events age, and the system clock";
    OperationBuilder::new("clock", "clock", summary).answer(
        200,
        "The current times",
        &schemas.of::<ClockView>(),
    )
}

pub(crate) fn confirm_clock(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Confirm that the system clock is right, so that events expire again";
    OperationBuilder::new("clock", "confirmClock", summary).answer(
        200,
        "The current times",
        &schemas.of::<ClockView>(),
    )
}

/// Errors of operations on a cluster.
const CLUSTER: [(u16, &str); 5] = [
    (400, "Invalid body"),
    (404, "No such node or shard, or no node of a cluster"),
    (408, "Body not received in time"),
    (
        409,
        "The node gives everything up or is alive, or the records cannot be written",
    ),
    (413, "Body too large"),
];

pub(crate) fn cluster_status(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "cluster",
        "clusterStatus",
        "List the nodes of the cluster, as the node that answers sees them",
    )
    .answer(200, "The nodes", &schemas.of::<ClusterView>())
    .errors(&CLUSTER[1..2], &error())
}

pub(crate) fn ownership(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "cluster",
        "clusterOwnership",
        "List the ownership records of the shards",
    )
    .answer(200, "The records", &schemas.of::<OwnershipView>())
    .errors(&CLUSTER[1..2], &error())
}

pub(crate) fn move_shard(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary =
        "Ask the owner of a shard to finish what is in flight and give the shard up to a node";
    OperationBuilder::new("cluster", "moveShard", summary)
        .body(
            true,
            &schemas.of::<MoveBody>(),
            json!({"shard": 0, "node": "b"}),
        )
        .answer(
            202,
            "The records, with the request",
            &schemas.of::<OwnershipView>(),
        )
        .errors(&CLUSTER, &error())
}

pub(crate) fn drain_node(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Ask a node to give up what it owns and take nothing, or end that";
    OperationBuilder::new("cluster", "drainNode", summary)
        .body(
            true,
            &schemas.of::<DrainBody>(),
            json!({"node": "b", "drain": true}),
        )
        .answer(202, "The nodes", &schemas.of::<ClusterView>())
        .errors(&CLUSTER, &error())
}

pub(crate) fn forget_node(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Remove the record of a node that is gone for good, so that the stream keeps \
        nothing for it";
    OperationBuilder::new("cluster", "forgetNode", summary)
        .body(true, &schemas.of::<ForgetBody>(), json!({"node": "b"}))
        .answer(200, "The nodes that are left", &schemas.of::<ClusterView>())
        .errors(&CLUSTER, &error())
}

pub(crate) fn session(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("dashboard", "session", "Get the caller and the session")
        .answer(200, "The caller", &schemas.of::<Session>())
        .errors(&SESSION, &error())
}

pub(crate) fn start_session(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "dashboard",
        "startSession",
        "Exchange a token for a session of the dashboard",
    )
    .answer(200, "The session", &schemas.of::<Session>())
    .errors(&SESSION, &error())
}

pub(crate) fn end_session(_: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("dashboard", "endSession", "End the session")
        .done(204, "The session has ended")
        .errors(&SESSION, &error())
}

pub(crate) fn audit(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    let summary = "List the operations that needed more than the role read, refused ones too";
    OperationBuilder::new("audit", "audit", summary)
        .query(
            "top",
            "Maximum operations: 1 to 1,000; default 100",
            &json!({"type": "integer"}),
        )
        .query("continue", "Value of `continue` in the last page", &text)
        .query("operator", "Name of the only operator", &text)
        .query(
            "search",
            "Part of the method and path, or of the id of the request, compared without case",
            &text,
        )
        .query(
            "refused",
            "Whether to list refused operations only",
            &json!({"type": "boolean"}),
        )
        .answer(
            200,
            "The operations, newest first",
            &schemas.of::<AuditPageView>(),
        )
        .errors(&TOP, &error())
}

pub(crate) fn tokens(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("tokens", "tokens", "List the named tokens").answer(
        200,
        "The tokens, without their secrets",
        &schemas.of::<TokenList>(),
    )
}

pub(crate) fn create_token(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let example = json!({"name": "shop", "roles": ["publish"], "scopes": ["topics/orders"]});
    OperationBuilder::new(
        "tokens",
        "createToken",
        "Create a named token, which is shown in this response only",
    )
    .body(true, &schemas.of::<TokenBody>(), example)
    .answer(201, "The token", &schemas.of::<TokenView>())
    .errors(
        &[TOKEN[0], TOKEN[2], TOKEN[3], TOKEN[4], TOKEN[5]],
        &error(),
    )
}

pub(crate) fn revoke_token(_: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "tokens",
        "revokeToken",
        "Revoke a named token and end its streams and sessions",
    )
    .done(204, "The token is revoked")
    .errors(&[TOKEN[1], TOKEN[5]], &error())
}

pub(crate) fn check_store(schemas: &mut SchemaRegistry) -> OperationBuilder {
    job(
        OperationBuilder::new("store", "checkStore", "Check every record of the store"),
        schemas,
    )
}

pub(crate) fn back_up_store(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<BackupBody>();
    let draft = OperationBuilder::new(
        "store",
        "backUpStore",
        "Back up the store and check the copy",
    );
    job(
        draft.body(true, &body, json!({"folder": "/srv/backups/monday"})),
        schemas,
    )
}

/// Adds the response of a job on the store, which is sent line by line.
fn job(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let content = json!({"application/x-ndjson": {"schema": schemas.of::<ProgressLine>()}});
    let what = "Lines of JSON: progress, then a report, the backup, or an error";
    draft.contents(200, what, content).errors(&STORE, &error())
}

pub(crate) fn chaos(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new(
        "chaos",
        "chaos",
        "List the injected faults and what they did",
    )
    .answer(200, "The active faults", &schemas.of::<ChaosReport>())
}

pub(crate) fn end_chaos(schemas: &mut SchemaRegistry) -> OperationBuilder {
    OperationBuilder::new("chaos", "endChaos", "End all injected faults").answer(
        200,
        "The active faults",
        &schemas.of::<ChaosReport>(),
    )
}

pub(crate) fn kill(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, example) = (
        schemas.of::<KillBody>(),
        json!({"actor": "topic", "topic": "orders", "by": "stop"}),
    );
    fault("kill", "Kill an actor", &body, example, schemas).answer(200, "The killed actor", &body)
}

pub(crate) fn poison(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let example = json!({"topic": "orders", "subscription": "billing", "eventId": "1", "times": 1});
    let body = schemas.of::<PoisonBody>();
    fault(
        "poison",
        "Make an event kill every actor that processes it",
        &body,
        example,
        schemas,
    )
    .answer(200, "The injected fault", &body)
}

pub(crate) fn stall(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, example) = (
        schemas.of::<StallBody>(),
        json!({"actor": "journal", "duration": "500ms"}),
    );
    fault(
        "stall",
        "Stall an actor or the journal",
        &body,
        example,
        schemas,
    )
}

pub(crate) fn fail_writes(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, example) = (
        schemas.of::<WritesBody>(),
        json!({"fail": 3, "duration": "10s"}),
    );
    fault(
        "failWrites",
        "Fail the next writes of the journal",
        &body,
        example,
        schemas,
    )
}

pub(crate) fn disturb_responses(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, example) = (
        schemas.of::<ResponsesBody>(),
        json!({"fault": "drop", "rate": 0.05, "duration": "30s"}),
    );
    fault(
        "disturbResponses",
        "Drop, delay or corrupt responses of endpoints",
        &body,
        example,
        schemas,
    )
}

pub(crate) fn step_clock(schemas: &mut SchemaRegistry) -> OperationBuilder {
    let (body, example) = (
        schemas.of::<ClockBody>(),
        json!({"step": "-1h", "duration": "10s"}),
    );
    fault(
        "stepClock",
        "Step the wall clock for a while",
        &body,
        example,
        schemas,
    )
}

/// The injection of a fault, with a body and its example.
fn fault(
    id: &str,
    summary: &str,
    body: &Value,
    example: Value,
    schemas: &mut SchemaRegistry,
) -> OperationBuilder {
    OperationBuilder::new("chaos", id, &format!("{summary} (with `chaos.enabled`)"))
        .body(true, body, example)
        .answer(200, "The active fault", &schemas.of::<ActiveFaults>())
        .errors(&CHAOS, &error())
}
