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
    sink.set("/dead-letters", Behavior::Answer(500));
    sink.set("/gone", Behavior::Dead);
    publish(&server, &key, &["first"], "/a");
    for name in ["hook", "dead-letters", "gone", "narrow", "short"] {
        wait_until_passed(&server, name, 1);
    }
    wait_for("the file", LONG, || {
        steps(&histories(&server, "first")["dead-letters"]).contains(&"written")
    });
    // What stopped the event is not in force any more, and one of those who had it is gone.
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
    server.kill_9();
    server.restart();

    let text = operator(&server, &["trace", "first", "--topic", TOPIC]).expect("it is found");
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

    let found = operator(
        &server,
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
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["value"][0]["events"][0]["id"], "first");
    let nobody =
        operator(&server, &["trace", "nobody", "--topic", TOPIC]).expect_err("it is not there");
    assert_eq!(
        nobody,
        "gridhook: event 'nobody' was not found: orders stores the events 1 to 1. Delivered events \
         are stored for journal.retention; the history of older ones may be found with --topic and \
         --sequence"
    );
    let failed = operator(
        &server,
        &["ledger", TOPIC, "dead-letters", "--outcome", "deferred"],
    )
    .expect("it answers");
    expect![[r#"
        TIME  sequence 1: attempt 1: 500 GenericError after … ms; next attempt at TIME or later
    "#]]
    .assert_eq(&masked(&failed));
    let refused = operator(
        &server,
        &["ledger", TOPIC, "dead-letters", "--outcome", "bad"],
    )
    .expect_err("there is none");
    assert!(
        refused.contains("outcome is \"bad\"; did you mean BadRequest?"),
        "{refused}"
    );
    server.terminate();
    server.assert_sound();
}

/// Who subscribes to what, at a time.
struct Model {
    prefix: &'static str,
    version: u64,
}

#[test]
fn every_event_has_the_story_of_the_model_through_changes_and_kills() {
    let mut server = Server::start(&[
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1000"),
        ("JOURNAL__RETENTION", "1h"),
    ]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let mut jitter = fastrand::Rng::with_seed(11);
    let prefixes = ["", "/a", "/b", "/a/1"];
    let mut models: BTreeMap<&str, Model> = BTreeMap::new();
    for (name, attempts) in [("one", 30), ("two", 2), ("three", 30)] {
        let path = format!("/{name}");
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new(&sink.url(&path))
                .prefix("/b")
                .attempts(attempts),
        );
        models.insert(
            name,
            Model {
                prefix: "/b",
                version: 1,
            },
        );
    }
    // By id and subscription: which version stopped it, or none.
    let mut truth: BTreeMap<(String, &str), Option<u64>> = BTreeMap::new();
    let mut published = 0;
    for round in 0..many(8, 60) {
        for (name, model) in &mut models {
            if jitter.bool() {
                let prefix = prefixes[jitter.usize(..prefixes.len())];
                let attempts = if *name == "two" { 2 } else { 30 };
                let spec = SubscriptionSpec::new(&sink.url(&format!("/{name}")))
                    .prefix(prefix)
                    .attempts(attempts);
                server.subscribe("orders", name, &spec);
                *model = Model {
                    prefix,
                    version: model.version + 1,
                };
            }
            sink.set(
                &format!("/{name}"),
                Behavior::Statuses([503, 200, 500, 200, 200].into()),
            );
        }
        // The last two match every prefix: a subscription that delivers writes down at once what it
        // has filtered out.
        for batch in 0..6 {
            let (subject, events) = match batch {
                4 => ("/a/1", 1),
                5 => ("/b/1", 1),
                _ => (
                    ["/a/1", "/a/2", "/b/1", "/c"][jitter.usize(..4)],
                    jitter.usize(1..30),
                ),
            };
            // In the midst of it, and while what the filter stopped is in no record yet.
            if batch == 4 && round % 3 == 1 {
                server.kill_9();
                server.restart();
            }
            let ids: Vec<String> = (0..events)
                .map(|at| format!("{round}-{batch}-{at}"))
                .collect();
            publish(
                &server,
                &key,
                &ids.iter().map(String::as_str).collect::<Vec<_>>(),
                subject,
            );
            published += ids.len() as u64;
            for id in ids {
                for (name, model) in &models {
                    let stopped = !subject.starts_with(model.prefix);
                    truth.insert((id.clone(), *name), stopped.then_some(model.version));
                }
            }
        }
        for name in models.keys() {
            wait_until_passed(&server, name, published);
        }
    }
    server.kill_9();
    server.restart();
    for name in models.keys() {
        wait_until_passed(&server, name, published);
    }
    let ids: Vec<String> = truth.keys().map(|(id, _)| id.clone()).collect();
    let mut reported = 0;
    for id in ids.into_iter().step_by(5) {
        let histories = histories(&server, &id);
        for name in models.keys() {
            let history = &histories[*name];
            let arrivals = sink
                .look(&format!("/{name}"), |ledger| ledger.get(&id).cloned())
                .unwrap_or_default();
            let known = format!("{id} for {name}, {} arrivals: {history}", arrivals.len());
            match truth[&(id.clone(), *name)] {
                Some(version) => {
                    assert!(arrivals.is_empty(), "{known}");
                    assert_eq!(
                        (steps(history), &history["result"]),
                        (vec!["filtered"], &json!("filtered")),
                        "{known}"
                    );
                    let filter = &history["lines"][0]["filter"];
                    assert_eq!(
                        (&filter["version"], &filter["stoppedBy"]),
                        (&json!(version), &json!("subjectBeginsWith")),
                        "{known}"
                    );
                    let text = history["text"].as_str().expect("a sentence");
                    assert_eq!(
                        text,
                        format!("filtered by subjectBeginsWith of version {version}")
                    );
                }
                None => {
                    let taken = arrivals.iter().any(|arrival| arrival.is_taken());
                    assert_eq!(
                        &history["result"],
                        if taken { "delivered" } else { "dropped" },
                        "{known}"
                    );
                    let words = steps(history);
                    assert!(!words.contains(&"filtered"), "{known}");
                    // A kill may repeat a request, or forget how it ended: its line is then that of
                    // the repetition.
                    let attempts = words
                        .iter()
                        .filter(|word| !matches!(**word, "dropped" | "late"))
                        .count();
                    assert!((1..=arrivals.len()).contains(&attempts), "{known}");
                }
            }
            reported += 1;
        }
    }
    assert!(reported > 200, "{reported} histories");
    server.terminate();
    server.assert_sound();
}
