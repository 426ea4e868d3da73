//! The paths beside ARM's, described.

use actix_web::http::Method;
use serde_json::json;

use super::draft::{OperationBuilder, SchemaRegistry};
use crate::{
    admin::{GridhookPath, error::ErrorResponse},
    api::{
        chaos::{self, ClockBody, KillBody, PoisonBody, ResponsesBody, StallBody, WritesBody},
        clock,
        health::{Liveness, Readiness},
        session,
        store::{BackupBody, ProgressLine},
        supervision, tail, top,
    },
};

/// Responses of fault injection.
const CHAOS: [(u16, &str); 8] = [
    (400, "Invalid body, or no target for the fault"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (404, "No such topic or event subscription"),
    (408, "Body not received in time"),
    (409, "Too many active faults"),
    (413, "Body too large"),
    (503, "Store temporarily unwritable"),
];

/// Responses of operations on the store.
const STORE: [(u16, &str); 6] = [
    (400, "Invalid folder"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (409, "Another check or backup is running"),
    (413, "Body too large"),
    (503, "Closed store"),
];

/// Responses of supervision.
const SUPERVISION: [(u16, &str); 4] = [
    (400, "Invalid query"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (404, "No such topic"),
];

/// Responses of sessions.
const SESSION: [(u16, &str); 4] = [
    (400, "Not possible with this token"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (404, "Dashboard disabled"),
];

/// Responses of metrics.
const TOP: [(u16, &str); 5] = [
    (400, "Invalid query"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (500, "Damaged store"),
    (503, "Store temporarily unreadable"),
];

/// Responses of streams.
const TAIL: [(u16, &str); 5] = [
    (400, "Invalid query"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (404, "No such topic"),
    (503, "Too many clients, or the server is stopping"),
];

/// What can be said to an endpoint that gives its word.
const WORD: [(u16, &str); 6] = [
    (400, "Invalid request rate"),
    (404, "No such pending validation"),
    (409, "Validation request not answered yet"),
    (410, "Validation expired"),
    (500, "Unknown whether the validation was stored"),
    (503, "Store temporarily unwritable"),
];

/// One of the paths, asked with one of its methods.
pub(super) fn describe(path: GridhookPath, method: &Method, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let draft = |tag: &str, id: &str, summary: &str| {
        OperationBuilder::new(tag, &format!("{id}{}", if *method == Method::HEAD { "Head" } else { "" }), summary)
    };
    let error = schemas.of::<ErrorResponse<'static>>();
    // A question by HEAD is answered without the body.
    let told = |draft: OperationBuilder, status: u16, what: &str, schema: &serde_json::Value| match *method {
        Method::HEAD => draft.done(status, what),
        _ => draft.answer(status, what, schema),
    };
    let draft = match path {
        GridhookPath::Healthz => {
            let alive = schemas.of::<Liveness>();
            told(draft("health", "healthz", "Check that the process is alive"), 200, "The process is alive", &alive)
        }
        GridhookPath::Readyz => {
            let (readiness, asked) =
                (schemas.of::<Readiness>(), draft("health", "readyz", "Check that events are accepted"));
            let ready = told(asked, 200, "Events are accepted", &readiness);
            told(ready, 503, "Events are not accepted, with the causes", &readiness)
        }
        GridhookPath::Document => {
            let asked = draft("description", "openapi", "Get this OpenAPI document");
            told(asked, 200, "The OpenAPI 3.1 document", &json!({"type": "object"}))
        }
        GridhookPath::Validate => validate(method, &error),
        GridhookPath::CheckStore => {
            let asked = draft("store", "checkStore", "Check every record of the store");
            lines(asked, schemas, &error)
        }
        GridhookPath::BackUpStore => {
            let body = schemas.of::<BackupBody>();
            let asked = draft("store", "backUpStore", "Back up the store and check the copy");
            lines(asked.body(true, &body, json!({"folder": "/srv/backups/monday"})), schemas, &error)
        }
        GridhookPath::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            let contents = json!({
                "text/plain": text,
                "application/openmetrics-text": text,
            });
            draft("metrics", "metrics", "Get the metrics of the server, as Prometheus text or OpenMetrics")
                .secured(&["admin"])
                .contents(200, "The metrics of the server", contents)
                .errors(&CHAOS[1..3], &error)
        }
        GridhookPath::Supervision => {
            let view = schemas.of::<supervision::SupervisionReport>();
            draft("supervision", "supervision", "Get the failures and restarts of actors")
                .secured(&["admin"])
                .query("top", "Maximum actors listed by name: 1 to 1,000", &json!({"type": "integer"}))
                .query("topic", "Name of the topic to restrict the report to", &json!({"type": "string"}))
                .answer(200, "The actors with the most failures, and the totals", &view)
                .errors(&SUPERVISION, &error)
        }
        GridhookPath::Clock => {
            let view = schemas.of::<clock::ClockView>();
            let draft = match *method {
                Method::POST => draft(
                    "clock",
                    "confirmClock",
                    "Confirm that the system clock is right, so that events expire again",
                ),
                _ => draft("clock", "clock", "Get the time by which events age, and the system clock"),
            };
            draft.secured(&["admin"]).answer(200, "The current times", &view).errors(&CHAOS[1..3], &error)
        }
        GridhookPath::Top => draft("supervision", "top", "List the figures of all event subscriptions")
            .secured(&["admin"])
            .query("top", "Maximum event subscriptions: 1 to 500", &json!({"type": "integer"}))
            .query(
                "by",
                "Figure to sort by, highest first",
                &json!({"enum": ["activity", "health", "backlog", "pending", "failures", "inFlight"]}),
            )
            .answer(200, "The event subscriptions and their figures", &schemas.of::<top::TopReport>())
            .errors(&TOP, &error),
        GridhookPath::Session => {
            let view = schemas.of::<session::Session>();
            let draft = match *method {
                Method::POST => draft("dashboard", "startSession", "Exchange a token for a session of the dashboard")
                    .answer(200, "The session", &view),
                Method::DELETE => {
                    draft("dashboard", "endSession", "End the session").done(204, "The session has ended")
                }
                _ => draft("dashboard", "session", "Get the caller and the session").answer(200, "The caller", &view),
            };
            draft.secured(&["admin"]).errors(&SESSION, &error)
        }
        GridhookPath::Tail => tail_of(schemas, &error),
        GridhookPath::Chaos => {
            let view = schemas.of::<chaos::ChaosReport>();
            let draft = match *method {
                Method::DELETE => draft("chaos", "endChaos", "End all injected faults"),
                _ => draft("chaos", "chaos", "List the injected faults and what they did"),
            };
            draft.secured(&["admin"]).answer(200, "The active faults", &view).errors(&CHAOS[1..3], &error)
        }
        GridhookPath::Kill => {
            let (body, example) =
                (schemas.of::<KillBody>(), json!({"actor": "topic", "topic": "orders", "by": "stop"}));
            act("kill", "Kill an actor").body(true, &body, example).answer(200, "The killed actor", &body)
        }
        GridhookPath::Poison => {
            let example = json!({"topic": "orders", "subscription": "billing", "eventId": "1", "times": 1});
            let body = schemas.of::<PoisonBody>();
            let asked = act("poison", "Make an event kill every actor that processes it");
            asked.body(true, &body, example).answer(200, "The injected fault", &body)
        }
        GridhookPath::Stall => {
            let (body, example) = (schemas.of::<StallBody>(), json!({"actor": "journal", "duration": "500ms"}));
            let asked = act("stall", "Stall an actor or the journal");
            duration_body(asked.body(true, &body, example), schemas)
        }
        GridhookPath::Writes => {
            let (body, example) = (schemas.of::<WritesBody>(), json!({"fail": 3, "duration": "10s"}));
            let asked = act("failWrites", "Fail the next writes of the journal");
            duration_body(asked.body(true, &body, example), schemas)
        }
        GridhookPath::Responses => {
            let example = json!({"fault": "drop", "rate": 0.05, "duration": "30s"});
            let asked = act("disturbResponses", "Drop, delay or corrupt responses of endpoints");
            duration_body(asked.body(true, &schemas.of::<ResponsesBody>(), example), schemas)
        }
        GridhookPath::ChaosClock => {
            let (body, example) = (schemas.of::<ClockBody>(), json!({"step": "-1h", "duration": "10s"}));
            let asked = act("stepClock", "Step the wall clock for a while");
            duration_body(asked.body(true, &body, example), schemas)
        }
    };
    if path.is_act() { draft.errors(&CHAOS, &error) } else { draft }
}

fn tail_of(schemas: &mut SchemaRegistry, error: &serde_json::Value) -> OperationBuilder {
    let (flag, text) = (json!({"type": "boolean"}), json!({"type": "string"}));
    let content = json!({"application/x-ndjson": {"schema": schemas.of::<tail::TailLine>()}});
    OperationBuilder::new("supervision", "tail", "Stream events and outcomes as they happen")
        .secured(&["admin"])
        .query("events", "Whether to include events", &flag)
        .query("outcomes", "Whether to include outcomes", &flag)
        .query("data", "Whether to include the data of events", &flag)
        .query("topic", "Resource id of the only topic, domain or domain topic", &text)
        .query("subscription", "Name of the event subscriptions whose outcomes are included", &text)
        .query("type", "Type of the included events", &text)
        .query("outcome", "Kind of the included outcomes", &text)
        .query("status", "HTTP status of the included attempts", &json!({"type": "integer"}))
        .contents(200, "Endless lines of JSON; an empty line is a keep-alive", content)
        .errors(&TAIL, error)
}

/// What is done on purpose.
fn act(id: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new("chaos", id, &format!("{summary} (with `chaos.enabled`)")).secured(&["admin"])
}

/// It goes on for a while.
fn duration_body(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft.answer(200, "The active fault", &schemas.of::<chaos::ActiveFaults>())
}

/// Told line by line while it happens.
fn lines(draft: OperationBuilder, schemas: &mut SchemaRegistry, error: &serde_json::Value) -> OperationBuilder {
    let line = schemas.of::<ProgressLine>();
    let content = json!({"application/x-ndjson": {"schema": line}});
    let what = "Lines of JSON: progress, then a report, the backup, or an error";
    draft.secured(&["admin"]).contents(200, what, content).errors(&STORE, error)
}

fn validate(method: &Method, error: &serde_json::Value) -> OperationBuilder {
    let text = json!({"type": "string"});
    let draft = OperationBuilder::new(
        "validation",
        if *method == Method::POST { "validateByPost" } else { "validate" },
        "Confirm the validation of an endpoint, by the address from its validation request",
    );
    let draft = ["id", "t", "apiVersion", "token"]
        .into_iter()
        .fold(draft, |draft, name| draft.query(name, "Value from the validation address", &text));
    draft
        .header("WebHook-Allowed-Rate", "Requests a minute that the endpoint accepts, or `*`")
        .text(200, "The endpoint is validated")
        .errors(&WORD, error)
}
