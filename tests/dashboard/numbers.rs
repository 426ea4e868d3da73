//! The figures, conditions and lists as the API has them for the dashboard, the commands and the
//! metrics.

use std::{io::Read as _, time::Duration};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::support::{
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// Enough for a slow machine.
const LONG: Duration = Duration::from_secs(60);

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn get(server: &Server, path: &str) -> Value {
    server.command("GET", path, &Value::Null).json()
}

fn publish(server: &Server, ids: impl IntoIterator<Item = u64>) {
    let event = |id: u64| {
        json!({"id": id.to_string(), "eventType": "Made", "subject": "/a", "dataVersion": "1",
            "eventTime": "2026-11-22T12:00:00Z", "data": {}})
    };
    let events: Vec<Value> = ids.into_iter().map(event).collect();
    server.command("POST", &format!("{TOPIC}/publish"), &events.into());
}

/// A server with an event subscription whose dead letters are kept, and whose endpoint responds
/// with this status.
fn server_with(sink: &Sink, status: u16) -> Server {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    server.topic("orders", "EventGridSchema");
    sink.set("/legacy", Behavior::Respond(status));
    let spec = SubscriptionSpec::new(&sink.url("/legacy"))
        .dead_letters_at(&json!({"resourceId": "/r", "blobContainerName": "letters"}));
    server.subscribe("orders", "legacy", &spec);
    server
}

#[test]
fn an_endpoint_that_refuses_every_event_is_failing_for_every_reader_until_it_is_corrected() {
    let sink = Sink::start();
    let server = server_with(&sink, 400);
    publish(&server, 1..=4);
    wait_for("the dead letters", LONG, || {
        server.counter("orders", "legacy", "deadLettered") == 4
    });
    let status = get(
        &server,
        &format!("{}/status", subscription("orders", "legacy")),
    );
    assert_eq!(
        (
            &status["health"]["state"],
            &status["condition"]["state"],
            &status["condition"]["successShare"]
        ),
        (&json!("healthy"), &json!("failing"), &json!(0.0)),
        "{status}"
    );
    let top = get(&server, "/top?by=health&health=failing");
    assert_eq!(
        (&top["matching"], &top["conditions"]["failing"]),
        (&json!(1), &json!(1)),
        "{top}"
    );
    assert_eq!(top["top"][0]["condition"]["state"], "failing");
    assert!(
        top["top"][0]["responseP99Milliseconds"].as_f64() > Some(0.0),
        "{top}"
    );
    let metrics = server.admin("GET", "/metrics", &Value::Null).text();
    assert!(
        metrics.contains("gridhook_event_subscriptions{condition=\"failing\"} 1"),
        "{metrics}"
    );

    sink.set("/legacy", Behavior::Respond(200));
    publish(&server, 5..=64);
    wait_for("the deliveries", LONG, || {
        server.counter("orders", "legacy", "delivered") == 60
    });
    assert_eq!(get(&server, "/top?health=healthy")["matching"], 1);
}

#[test]
fn attempts_are_listed_from_the_newest_to_the_oldest_in_pages() {
    let sink = Sink::start();
    let server = server_with(&sink, 200);
    for id in 1..=30 {
        publish(&server, [id]);
        wait_for("the delivery", LONG, || {
            server.counter("orders", "legacy", "delivered") == id
        });
    }
    let path = format!(
        "{}/ledger?outcome=delivered",
        subscription("orders", "legacy")
    );
    let mut expected = Vec::new();
    wait_for("the lines", LONG, || {
        let oldest = get(&server, &format!("{path}&top=1000"))["lines"]
            .as_array()
            .expect("lines")
            .clone();
        expected = oldest
            .iter()
            .rev()
            .filter_map(|line| line["firstSequence"].as_u64())
            .collect();
        expected.len() == 30
    });
    assert_eq!((expected.len(), expected.first()), (30, Some(&30)));
    let mut all = Vec::new();
    let mut after = String::new();
    for _ in 0..20 {
        let page = get(&server, &format!("{path}&order=newest&top=7{after}"));
        all.extend(
            page["lines"]
                .as_array()
                .expect("lines")
                .iter()
                .filter_map(|line| line["firstSequence"].as_u64()),
        );
        let Some(next) = page["continue"].as_str() else {
            break;
        };
        after = format!("&continue={next}");
    }
    assert_eq!(all, expected);
    for query in ["order=up", "order=newest&continue=00"] {
        assert_eq!(
            server
                .admin("GET", &format!("{path}&{query}"), &Value::Null)
                .status,
            400,
            "{query}"
        );
    }
}

#[test]
fn a_redrive_has_the_total_that_was_counted() {
    let sink = Sink::start();
    let server = server_with(&sink, 400);
    publish(&server, 1..=5);
    wait_for("the dead letters", LONG, || {
        server.counter("orders", "legacy", "deadLettered") == 5
    });
    let path = subscription("orders", "legacy");
    let count = server.command(
        "POST",
        &format!("{path}/deadLetters/redrive"),
        &json!({"all": true, "dryRun": true}),
    );
    assert_eq!(count.json()["deadLetters"], 5);
    // So slow that it does not end.
    let body = json!({"all": true, "total": 5, "rate": 0.001});
    let job = server
        .command("POST", &format!("{path}/deadLetters/redrive"), &body)
        .json()["job"]
        .clone();
    let total = |report: &Value| report["progress"]["total"].clone();
    assert_eq!(total(&get(&server, &format!("{path}/replays/{job}"))), 5);
    assert_eq!(
        total(&get(&server, &format!("{path}/replays"))["value"][0]),
        5
    );
    assert_eq!(total(&get(&server, "/jobs")["jobs"][0]), 5);
}

#[test]
fn a_held_event_subscription_has_the_events_that_are_published_in_its_course() {
    let sink = Sink::start();
    let server = server_with(&sink, 200);
    let path = subscription("orders", "legacy");
    let course = || {
        get(
            &server,
            &format!("/history?topic={TOPIC}&subscription=legacy"),
        )
    };
    let sum = |column: &str| -> u64 {
        let report = course();
        report[column]
            .as_array()
            .expect("steps")
            .iter()
            .filter_map(Value::as_u64)
            .sum()
    };
    publish(&server, 1..=2);
    wait_for("its course", LONG, || course()["recorded"] == true);
    let before = sum("published");
    server.command("POST", &format!("{path}/hold"), &Value::Null);
    publish(&server, 10..=16);
    wait_for("the events in its course", LONG, || {
        sum("published") == before + 7
    });
    assert_eq!(get(&server, &format!("{path}/status"))["backlog"], 7);
}

#[test]
fn a_report_is_compressed_and_not_sent_again_until_it_changes() {
    let sink = Sink::start();
    let server = server_with(&sink, 200);
    for number in 0..20 {
        server.subscribe(
            "orders",
            &format!("other-{number}"),
            &SubscriptionSpec::new(&sink.url("/other")),
        );
    }
    let token = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let authorization = format!("Bearer {}", token.trim());
    let ask = |path: &str, more: &[(&str, &str)]| {
        let headers: Vec<(&str, &str)> = [("authorization", &*authorization)]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        server.request_without_token("GET", path, &headers)
    };
    let path = "/top?by=name";
    let plain = ask(path, &[]);
    let small = ask(path, &[("accept-encoding", "gzip")]);
    assert_eq!(
        (
            plain.header("content-encoding"),
            small.header("content-encoding")
        ),
        (None, Some("gzip"))
    );
    let mut text = String::new();
    GzDecoder::new(small.body.as_slice())
        .read_to_string(&mut text)
        .expect("gzip");
    assert!(
        text.contains("other-19") && small.body.len() * 4 < plain.body.len(),
        "{} bytes",
        small.body.len()
    );
    let tag = |path: &str| ask(path, &[]).header("etag").expect("a tag").to_owned();
    // The windows grow until they are full, so their lengths are left out.
    let list = format!("{TOPIC}/eventSubscriptions");
    let before = tag(&list);
    let known = ask(&list, &[("if-none-match", &before)]);
    assert_eq!((known.status, known.body.len()), (304, 0));
    server.subscribe(
        "orders",
        "one-more",
        &SubscriptionSpec::new(&sink.url("/other")),
    );
    assert_eq!(ask(&list, &[("if-none-match", &before)]).status, 200);
    assert_ne!(tag(&list), before);
    // The time of the report is no change.
    let jobs = tag("/jobs");
    assert_eq!(ask("/jobs", &[("if-none-match", &jobs)]).status, 304);
    // A resource has its own tag, which If-Match may name.
    let resource = ask(
        &subscription("orders", "legacy"),
        &[("accept-encoding", "gzip")],
    );
    assert!(
        resource
            .header("etag")
            .is_some_and(|tag| !tag.starts_with("W/")),
        "{:?}",
        resource.header("etag")
    );
    assert_eq!(resource.header("content-encoding"), None);
}

#[test]
fn an_event_is_found_by_its_id_without_its_topic() {
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("JOURNAL__RETENTION", "1h"),
    ]);
    for topic in ["orders", "payments"] {
        server.topic(topic, "EventGridSchema");
    }
    publish(&server, [7]);
    publish(&server, [8, 7]);
    let search = |id: &str| get(&server, &format!("/search?id={id}"));
    let event = |sequence: u64| json!({"topic": TOPIC, "sequence": sequence});
    assert_eq!(
        search("7"),
        json!({"events": [event(1), event(3)], "unsearched": []})
    );
    assert_eq!(search("none"), json!({"events": [], "unsearched": []}));
    for path in ["/search", "/search?id=", "/search?topic=orders"] {
        assert_eq!(
            server.admin("GET", path, &Value::Null).status,
            400,
            "{path}"
        );
    }
    assert_eq!(
        server
            .request_without_token("GET", "/search?id=7", &[])
            .status,
        401
    );
}
