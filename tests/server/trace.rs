//! `trace` shows the whole history of an event after filters were changed and processes killed.

use std::collections::BTreeMap;

use expect_test::expect;
use serde_json::{Value, json};

use super::{LONG, many};
use crate::support::{
    load,
    server::{Server, SubscriptionSpec, operator, wait_for},
    sink::{Behavior, Sink},
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn publish(server: &Server, key: &str, ids: &[&str], subject: &str) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    server.publish("orders", key, &load::body(&ids, subject));
}

fn trace(server: &Server, query: &str) -> Value {
    server
        .command("GET", &format!("{TOPIC}/trace?{query}"), &Value::Null)
        .json()
}

/// Waits until a subscription has passed `count` events, and each of them has ended.
fn wait_until_passed(server: &Server, name: &str, events: u64) {
    wait_for(&format!("{name} to pass {events}"), LONG, || {
        let status = server.status("orders", name);
        let counters = &status["counters"];
        counters["passed"] == events && counters["pending"] == 0 && status["inFlight"] == 0
    });
}

/// The delivery histories of the only event with this id, by subscription.
fn histories(server: &Server, id: &str) -> BTreeMap<String, Value> {
    let output = trace(server, &format!("id={id}"));
    let events = output["events"].as_array().expect("a list");
    assert_eq!(events.len(), 1, "{output}");
    let histories = events[0]["subscriptions"].as_array().expect("a list");
    histories
        .iter()
        .map(|history| {
            (
                history["subscription"].as_str().expect("a name").to_owned(),
                history.clone(),
            )
        })
        .collect()
}

fn steps(history: &Value) -> Vec<&str> {
    let lines = history["lines"].as_array().expect("a list");
    lines
        .iter()
        .map(|line| line["step"].as_str().expect("a word"))
        .collect()
}

/// Times, durations and names of files differ from run to run.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let words = line.split(' ').map(|word| {
            let bare = word.trim_end_matches([',', ';']);
            let is_time = bare.len() > 20 && bare.ends_with('Z') && bare.contains('T');
            match (is_time, bare.ends_with(".json")) {
                (true, _) => word.replace(bare, "TIME"),
                (_, true) => {
                    let folders: Vec<&str> = bare.split('/').take(2).collect();
                    word.replace(bare, &format!("{}/…", folders.join("/")))
                }
                _ => word.to_owned(),
            }
        });
        let mut words: Vec<String> = words.collect();
        for at in 1..words.len().saturating_sub(1) {
            if words[at - 1] == "after" && words[at + 1].starts_with("ms") {
                "…".clone_into(&mut words[at]);
            }
        }
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

#[test]
fn the_story_of_an_event_reads_like_this() {
    let mut server = Server::start(&[
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "100"),
        ("JOURNAL__RETENTION", "1h"),
    ]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    subscribe_with_each_outcome(&server, &sink);
    publish(&server, &key, &["first"], "/a");
    wait_for_outcomes(&server);
    change_subscriptions(&server, &sink);
    server.kill_9();
    server.restart();

    assert_the_trace_is_printed(&server);

    assert_an_event_is_found_by_id(&server);
    assert_the_ledger_is_filtered(&server);
    server.terminate();
    server.assert_sound();
}

/// Event subscriptions whose requests end in different ways.
fn subscribe_with_each_outcome(server: &Server, sink: &Sink) {
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    server.subscribe(
        "orders",
        "dead-letters",
        &SubscriptionSpec::new(&sink.url("/dead-letters"))
            .attempts(2)
            .dead_letters("dead"),
    );
    server.subscribe(
        "orders",
        "gone",
        &SubscriptionSpec::new(&sink.url("/gone")).attempts(1),
    );
    server.subscribe(
        "orders",
        "narrow",
        &SubscriptionSpec::new(&sink.url("/narrow")).prefix("/b"),
    );
    server.subscribe(
        "orders",
        "short",
        &SubscriptionSpec::new(&sink.url("/short")),
    );
    let busy = (503, "{\"error\": \"busy\u{1b}[31m, come back\"}");
    sink.set("/hook", Behavior::StatusesAndBodies([busy, busy].into()));
    sink.set("/dead-letters", Behavior::Respond(500));
    sink.set("/gone", Behavior::Dead);
}

fn wait_for_outcomes(server: &Server) {
    for name in ["hook", "dead-letters", "gone", "narrow", "short"] {
        wait_until_passed(server, name, 1);
    }
    wait_for("the file", LONG, || {
        steps(&histories(server, "first")["dead-letters"]).contains(&"written")
    });
}

/// Replaces the filter that stopped the event, deletes an event subscription and creates another.
fn change_subscriptions(server: &Server, sink: &Sink) {
    server.subscribe(
        "orders",
        "narrow",
        &SubscriptionSpec::new(&sink.url("/narrow")).prefix("/a"),
    );
    server.unsubscribe("orders", "short");
    server.subscribe(
        "orders",
        "later",
        &SubscriptionSpec::new(&sink.url("/later")),
    );
}

fn assert_the_trace_is_printed(server: &Server) {
    let text = operator(server, &["trace", "first", "--topic", TOPIC]).expect("it is found");
    expect![[r#"
        event first in orders, sequence 1
        TIME  published, type Load.Event, subject /a

        hook: delivered at attempt 3, TIME
          TIME  attempt 1: 503 Busy after … ms; next attempt at TIME or later
            response: {"error": "busy\u{1b}[31m, come back"}
          TIME  attempt 2: 503 Busy after … ms; next attempt at TIME or later
            response: {"error": "busy\u{1b}[31m, come back"}
          TIME  attempt 3: 200 Delivered after … ms

        dead-letters: given up: MaxDeliveryAttemptsExceeded; dead letter in dead/DEAD-LETTERS/…
          TIME  attempt 1: 500 GenericError after … ms; next attempt at TIME or later
          TIME  attempt 2: 500 GenericError after … ms
          TIME  given up: MaxDeliveryAttemptsExceeded; dead-lettered
          TIME  dead letter written: dead/DEAD-LETTERS/…

        gone: dropped: MaxDeliveryAttemptsExceeded; there is no dead-letter destination
          TIME  attempt 1: SocketError after … ms
            reason: the connection was closed without a response
          TIME  given up: MaxDeliveryAttemptsExceeded; dropped

        narrow: filtered by subjectBeginsWith of version 1
          TIME  filtered out by version 1 of the filter: subjectBeginsWith: the subject begins otherwise: "/a"

        short (deleted): delivered at attempt 1, TIME
          TIME  attempt 1: 200 Delivered after … ms

        later: published before the event subscription was created
    "#]]
    .assert_eq(&masked(&text));
}

fn assert_an_event_is_found_by_id(server: &Server) {
    let output = operator(
        server,
        &[
            "trace",
            "first",
            "--subscription-id",
            "s",
            "--output",
            "json",
        ],
    )
    .expect("it is found");
    let output: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(output["value"][0]["events"][0]["id"], "first");
    let error =
        operator(server, &["trace", "nobody", "--topic", TOPIC]).expect_err("it is not there");
    assert_eq!(
        error,
        "gridhook: event 'nobody' was not found: orders stores the events 1 to 1. Delivered events \
         are stored for journal.retention; the history of older ones may be found with --topic and \
         --sequence"
    );
}

fn assert_the_ledger_is_filtered(server: &Server) {
    let lines = operator(
        server,
        &["ledger", TOPIC, "dead-letters", "--outcome", "deferred"],
    )
    .expect("it answers");
    expect![[r#"
        TIME  sequence 1: attempt 1: 500 GenericError after … ms; next attempt at TIME or later
    "#]]
    .assert_eq(&masked(&lines));
    let error = operator(
        server,
        &["ledger", TOPIC, "dead-letters", "--outcome", "bad"],
    )
    .expect_err("there is none");
    assert!(
        error.contains("outcome is \"bad\"; did you mean BadRequest?"),
        "{error}"
    );
}

/// The event subscriptions of the model, and how many attempts each has.
const SUBSCRIPTIONS: [(&str, u32); 3] = [("one", 30), ("two", 2), ("three", 30)];

/// The filter of an event subscription at a time.
struct Filter {
    prefix: &'static str,
    version: u64,
}

/// What the histories of the published events must say.
struct Model {
    filters: BTreeMap<&'static str, Filter>,
    /// By event and event subscription: the version of the filter that stopped the event, or none.
    stopped_by: BTreeMap<(String, &'static str), Option<u64>>,
    published: u64,
}

/// A server and its model.
struct ModelRun {
    server: Server,
    sink: Sink,
    key: String,
    rng: fastrand::Rng,
    model: Model,
}

#[test]
fn every_event_has_the_story_of_the_model_through_changes_and_kills() {
    let mut run = ModelRun::start();
    for round in 0..many(8, 60) {
        run.change_filters();
        run.publish_batches(round);
        run.wait_until_all_passed();
    }
    run.server.kill_9();
    run.server.restart();
    run.wait_until_all_passed();
    let ids: Vec<String> = run
        .model
        .stopped_by
        .keys()
        .map(|(id, _)| id.clone())
        .collect();
    let mut count = 0;
    for id in ids.into_iter().step_by(5) {
        let histories = histories(&run.server, &id);
        for (name, _) in SUBSCRIPTIONS {
            run.assert_history_is_of_the_model(&id, name, &histories[name]);
            count += 1;
        }
    }
    assert!(count > 200, "{count} histories");
    run.server.terminate();
    run.server.assert_sound();
}

impl ModelRun {
    fn start() -> Self {
        let server = Server::start(&[
            ("DELIVERY__SUSPEND_AFTER_FAILURES", "1000"),
            ("JOURNAL__RETENTION", "1h"),
        ]);
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        let model = Model {
            filters: BTreeMap::new(),
            stopped_by: BTreeMap::new(),
            published: 0,
        };
        let mut run = Self {
            server,
            sink,
            key,
            rng: fastrand::Rng::with_seed(11),
            model,
        };
        for (name, attempts) in SUBSCRIPTIONS {
            run.set_filter(name, attempts, "/b");
        }
        run
    }

    /// Creates the event subscription, or replaces its filter.
    fn set_filter(&mut self, name: &'static str, attempts: u32, prefix: &'static str) {
        let spec = SubscriptionSpec::new(&self.sink.url(&format!("/{name}")))
            .prefix(prefix)
            .attempts(attempts);
        self.server.subscribe("orders", name, &spec);
        let version = self
            .model
            .filters
            .get(name)
            .map_or(1, |filter| filter.version + 1);
        self.model.filters.insert(name, Filter { prefix, version });
    }

    /// Changes some of the filters, and lets endpoints fail again.
    fn change_filters(&mut self) {
        let prefixes = ["", "/a", "/b", "/a/1"];
        for (name, attempts) in SUBSCRIPTIONS {
            if self.rng.bool() {
                let prefix = prefixes[self.rng.usize(..prefixes.len())];
                self.set_filter(name, attempts, prefix);
            }
            let statuses = Behavior::Statuses([503, 200, 500, 200, 200].into());
            self.sink.set(&format!("/{name}"), statuses);
        }
    }

    /// Publishes six batches. The last two match every prefix: a subscription that delivers
    /// records at once what it has filtered out.
    fn publish_batches(&mut self, round: usize) {
        for batch in 0..6 {
            let (subject, count) = match batch {
                4 => ("/a/1", 1),
                5 => ("/b/1", 1),
                _ => (
                    ["/a/1", "/a/2", "/b/1", "/c"][self.rng.usize(..4)],
                    self.rng.usize(1..30),
                ),
            };
            // Kill the server while no record has the events that the filter stopped.
            if batch == 4 && round % 3 == 1 {
                self.server.kill_9();
                self.server.restart();
            }
            let ids: Vec<String> = (0..count)
                .map(|number| format!("{round}-{batch}-{number}"))
                .collect();
            self.publish_events(ids, subject);
        }
    }

    fn publish_events(&mut self, ids: Vec<String>, subject: &str) {
        self.server
            .publish("orders", &self.key, &load::body(&ids, subject));
        self.model.published += ids.len() as u64;
        for id in ids {
            for (name, filter) in &self.model.filters {
                let is_stopped = !subject.starts_with(filter.prefix);
                self.model
                    .stopped_by
                    .insert((id.clone(), *name), is_stopped.then_some(filter.version));
            }
        }
    }

    fn wait_until_all_passed(&self) {
        for (name, _) in SUBSCRIPTIONS {
            wait_until_passed(&self.server, name, self.model.published);
        }
    }

    fn assert_history_is_of_the_model(&self, id: &str, name: &'static str, history: &Value) {
        let arrivals = self
            .sink
            .look(&format!("/{name}"), |ledger| ledger.get(id).cloned())
            .unwrap_or_default();
        let context = format!("{id} for {name}, {} arrivals: {history}", arrivals.len());
        if let Some(version) = self.model.stopped_by[&(id.to_owned(), name)] {
            assert!(arrivals.is_empty(), "{context}");
            assert_is_filtered(history, version, &context);
            return;
        }
        let is_delivered = arrivals.iter().any(|arrival| arrival.is_taken());
        assert_eq!(
            &history["result"],
            if is_delivered { "delivered" } else { "dropped" },
            "{context}"
        );
        let steps = steps(history);
        assert!(!steps.contains(&"filtered"), "{context}");
        // A kill may repeat a request, or lose its outcome: its line is then that of the
        // repetition.
        let attempts = steps
            .iter()
            .filter(|step| !matches!(**step, "dropped" | "late"))
            .count();
        assert!((1..=arrivals.len()).contains(&attempts), "{context}");
    }
}

fn assert_is_filtered(history: &Value, version: u64, context: &str) {
    assert_eq!(
        (steps(history), &history["result"]),
        (vec!["filtered"], &json!("filtered")),
        "{context}"
    );
    let filter = &history["lines"][0]["filter"];
    assert_eq!(
        (&filter["version"], &filter["stoppedBy"]),
        (&json!(version), &json!("subjectBeginsWith")),
        "{context}"
    );
    let text = history["text"].as_str().expect("a sentence");
    assert_eq!(
        text,
        format!("filtered by subjectBeginsWith of version {version}")
    );
}
