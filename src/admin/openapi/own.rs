//! The paths beside ARM's, described.

use actix_web::http::Method;
use serde_json::json;

use super::draft::{Draft, Schemas};
use crate::admin::{
    OwnPath,
    chaos::{ClockBody, KillBody, PoisonBody, ResponsesBody, StallBody, WritesBody, desk},
    clock,
    error::Envelope,
    health::{Alive, Readiness},
    store::{BackupBody, Line},
    supervision, tail, top,
};

/// What can be said to whoever breaks something on purpose.
const CHAOS: [(u16, &str); 7] = [
    (400, "The body is not what is allowed, or nobody is there to whom it could be done."),
    (401, "The admin token is missing, or another."),
    (404, "There is no such topic or event subscription."),
    (408, "The body did not come in time."),
    (409, "As many faults are on as there may be."),
    (413, "The body is too large."),
    (503, "The store takes no changes now."),
];

/// What can be said to whoever asks for the store.
const STORE: [(u16, &str); 5] = [
    (400, "The folder is not what is allowed."),
    (401, "The admin token is missing, or another."),
    (409, "A check or a backup is on its way."),
    (413, "The body is too large."),
    (503, "The store is closed."),
];

/// What can be said to whoever asks for the lives of actors.
const SUPERVISION: [(u16, &str); 3] = [
    (400, "The query is not what is allowed."),
    (401, "The admin token is missing, or another."),
    (404, "There is no such topic."),
];

/// What can be said to whoever asks for figures.
const TOP: [(u16, &str); 4] = [
    (400, "The query is not what is allowed."),
    (401, "The admin token is missing, or another."),
    (500, "The store is damaged."),
    (503, "The store cannot be read now."),
];

/// What can be said to whoever listens.
const TAIL: [(u16, &str); 4] = [
    (400, "The query is not what is allowed."),
    (401, "The admin token is missing, or another."),
    (404, "There is no such topic."),
    (503, "As many listen as may, or the server stops."),
];

/// What can be said to an endpoint that gives its word.
const WORD: [(u16, &str); 6] = [
    (400, "The endpoint asks for what is not allowed."),
    (404, "Nobody waits for this word."),
    (409, "The endpoint has not answered its validation request yet."),
    (410, "The time for it has passed."),
    (500, "It is not known whether the word was kept."),
    (503, "The store takes no changes now."),
];

/// One of the paths, asked with one of its methods.
pub(super) fn describe(path: OwnPath, method: &Method, schemas: &mut Schemas) -> Draft {
    let draft = |tag: &str, id: &str, summary: &str| {
        Draft::new(tag, &format!("{id}{}", if *method == Method::HEAD { "Head" } else { "" }), summary)
    };
    let error = schemas.of::<Envelope<'static>>();
    // A question by HEAD is answered without the body.
    let told = |draft: Draft, status: u16, what: &str, schema: &serde_json::Value| match *method {
        Method::HEAD => draft.done(status, what),
        _ => draft.answer(status, what, schema),
    };
    let draft = match path {
        OwnPath::Healthz => {
            let alive = schemas.of::<Alive>();
            told(draft("health", "healthz", "Whether the process lives."), 200, "It does.", &alive)
        }
        OwnPath::Readyz => {
            let (readiness, asked) =
                (schemas.of::<Readiness>(), draft("health", "readyz", "Whether events are taken; if not, why."));
            let ready = told(asked, 200, "They are.", &readiness);
            told(ready, 503, "They are not.", &readiness)
        }
        OwnPath::Document => {
            let asked = draft("description", "openapi", "This description.");
            told(asked, 200, "OpenAPI 3.1.", &json!({"type": "object"}))
        }
        OwnPath::Validate => validate(method, &error),
        OwnPath::CheckStore => {
            let asked = draft("store", "checkStore", "The store is looked at, record by record, as it is now.");
            lines(asked, schemas, &error)
        }
        OwnPath::BackUpStore => {
            let body = schemas.of::<BackupBody>();
            let asked = draft("store", "backUpStore", "The store is copied as it is now, and the copy is looked at.");
            lines(asked.body(true, &body, json!({"folder": "/srv/backups/monday"})), schemas, &error)
        }
        OwnPath::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            let contents = json!({
                "text/plain": text,
                "application/openmetrics-text": text,
            });
            draft(
                "metrics",
                "metrics",
                "Figures of all of the server: Prometheus' text, or OpenMetrics if that is asked for.",
            )
            .secured(&["admin"])
            .contents(200, "They.", contents)
            .errors(&[(401, "The token is missing, or another.")], &error)
        }
        OwnPath::Supervision => {
            let view = schemas.of::<supervision::Report>();
            draft("supervision", "supervision", "Which actors died, why, and how soon they were at work again.")
                .secured(&["admin"])
                .query("top", "How many actors are told by name: 1 to 1,000.", &json!({"type": "integer"}))
                .query("topic", "Only this topic's.", &json!({"type": "string"}))
                .answer(200, "Those that died most often, and all together.", &view)
                .errors(&SUPERVISION, &error)
        }
        OwnPath::Clock => {
            let view = schemas.of::<clock::View>();
            let draft = match *method {
                Method::POST => draft(
                    "clock",
                    "confirmClock",
                    "Confirms that the clock of the machine is right: events expire by it again.",
                ),
                _ => draft("clock", "clock", "The time by which events age, and the clock of the machine."),
            };
            draft.secured(&["admin"]).answer(200, "The time now.", &view).errors(&CHAOS[1..2], &error)
        }
        OwnPath::Top => draft("supervision", "top", "The figures of all event subscriptions, the most telling first.")
            .secured(&["admin"])
            .query("top", "How many are told: 1 to 500.", &json!({"type": "integer"}))
            .query(
                "by",
                "Which come first.",
                &json!({"enum": ["activity", "sickness", "backlog", "owed", "failures", "inFlight"]}),
            )
            .answer(200, "So they are.", &schemas.of::<top::Report>())
            .errors(&TOP, &error),
        OwnPath::Tail => tail_of(schemas, &error),
        OwnPath::Chaos => {
            let view = schemas.of::<desk::Report>();
            let draft = match *method {
                Method::DELETE => draft("chaos", "endChaos", "Ends everything that is broken on purpose."),
                _ => draft("chaos", "chaos", "What is broken on purpose, until when, and how often what was done."),
            };
            draft.secured(&["admin"]).answer(200, "How it is now.", &view).errors(&CHAOS[1..2], &error)
        }
        OwnPath::Kill => {
            let (body, example) =
                (schemas.of::<KillBody>(), json!({"actor": "topic", "topic": "orders", "by": "stop"}));
            act("kill", "Kills an actor.").body(true, &body, example).answer(200, "It is told to die.", &body)
        }
        OwnPath::Poison => {
            let example = json!({"topic": "orders", "subscription": "billing", "eventId": "1", "times": 1});
            let body = schemas.of::<PoisonBody>();
            let asked = act("poison", "Makes an event kill whoever takes it in hand.");
            asked.body(true, &body, example).answer(200, "It will.", &body)
        }
        OwnPath::Stall => {
            let (body, example) = (schemas.of::<StallBody>(), json!({"actor": "journal", "duration": "500ms"}));
            let asked = act("stall", "An actor, or the journal, does nothing for a while.");
            begun(asked.body(true, &body, example), schemas)
        }
        OwnPath::Writes => {
            let (body, example) = (schemas.of::<WritesBody>(), json!({"fail": 3, "duration": "10s"}));
            let asked = act("failWrites", "The journal's next writes fail, as on a full disk.");
            begun(asked.body(true, &body, example), schemas)
        }
        OwnPath::Responses => {
            let example = json!({"fault": "drop", "rate": 0.05, "duration": "30s"});
            let asked = act("disturbResponses", "Responses of endpoints are dropped, delayed or corrupted.");
            begun(asked.body(true, &schemas.of::<ResponsesBody>(), example), schemas)
        }
        OwnPath::ChaosClock => {
            let (body, example) = (schemas.of::<ClockBody>(), json!({"step": "-1h", "duration": "10s"}));
            let asked = act("stepClock", "The wall clock is set wrong for a while.");
            begun(asked.body(true, &body, example), schemas)
        }
    };
    if path.is_act() { draft.errors(&CHAOS, &error) } else { draft }
}

fn tail_of(schemas: &mut Schemas, error: &serde_json::Value) -> Draft {
    let (flag, text) = (json!({"type": "boolean"}), json!({"type": "string"}));
    let content = json!({"application/x-ndjson": {"schema": schemas.of::<tail::TailLine>()}});
    Draft::new("supervision", "tail", "Events as they are published, and what becomes of them, as it happens.")
        .secured(&["admin"])
        .query("events", "Whether events are told.", &flag)
        .query("outcomes", "Whether outcomes are told.", &flag)
        .query("data", "Whether the events themselves are told.", &flag)
        .query("topic", "The resource id of a topic, a domain or a domain's topic: only of that.", &text)
        .query("subscription", "Outcomes of the event subscriptions of this name only.", &text)
        .query("type", "Events of this type only.", &text)
        .query("outcome", "Such outcomes only.", &text)
        .query("status", "Attempts that ended with this status only.", &json!({"type": "integer"}))
        .contents(200, "Lines of JSON, without an end; empty ones say that nothing happens.", content)
        .errors(&TAIL, error)
}

/// What is done on purpose.
fn act(id: &str, summary: &str) -> Draft {
    Draft::new("chaos", id, &format!("{summary} Only where the settings allow it.")).secured(&["admin"])
}

/// It goes on for a while.
fn begun(draft: Draft, schemas: &mut Schemas) -> Draft {
    draft.answer(200, "It goes on from now.", &schemas.of::<desk::On>())
}

/// Told line by line while it happens.
fn lines(draft: Draft, schemas: &mut Schemas, error: &serde_json::Value) -> Draft {
    let line = schemas.of::<Line>();
    let content = json!({"application/x-ndjson": {"schema": line}});
    let what = "Lines of JSON: progress, and at last a report, the backup that was made, or an error.";
    draft.secured(&["admin"]).contents(200, what, content).errors(&STORE, error)
}

fn validate(method: &Method, error: &serde_json::Value) -> Draft {
    let text = json!({"type": "string"});
    let draft = Draft::new(
        "validation",
        if *method == Method::POST { "validateByPost" } else { "validate" },
        "An endpoint agrees to be called: the address that its validation request has, called by hand.",
    );
    let draft = ["id", "t", "apiVersion", "token"]
        .into_iter()
        .fold(draft, |draft, name| draft.query(name, "As it stands in the address.", &text));
    draft
        .header("WebHook-Allowed-Rate", "How many requests a minute the endpoint takes, or `*`.")
        .text(200, "The endpoint is called from now on.")
        .errors(&WORD, error)
}
