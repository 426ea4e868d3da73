//! Computations for callers with a scoped token. A publisher of another topic is served meanwhile.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use serde_json::{Value, json};

use super::print;
use crate::{
    server::tokens::{EVENT, RG, ask, token},
    support::{
        needs::many,
        server::{Server, SubscriptionSpec, events_path, subscription},
        sink::Sink,
    },
};

/// Without bounds one transformation took 3.9 GB.
const MEMORY_MAX: u64 = 256 * 1024 * 1024;

/// Attackers at a time.
const ATTACKERS: usize = 3;

/// An attack, and the statuses that it may get.
struct Attack {
    name: &'static str,
    method: &'static str,
    path: String,
    body: String,
    statuses: &'static [u16],
}

fn schema(name: &'static str, schema: &Value, is_preview: bool) -> Attack {
    let versions = json!({"1": {"schema": schema, "examples": ["aaaaaaaaaaaaaaaaaaaa"]}});
    let query = if is_preview { "?whatIf=true" } else { "" };
    Attack {
        name,
        method: "PUT",
        path: format!("{RG}/topics/orders/eventTypes/Order.Placed{query}"),
        body: json!({"properties": {"versions": versions}}).to_string(),
        statuses: &[400],
    }
}

/// The computations that a scoped administrator can request.
fn computations() -> Vec<Attack> {
    let nested = (0..26).fold(
        json!({}),
        |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
    );
    let items = json!({"items": {"allOf": vec![json!({"type": "integer"}); 9000]}});
    let long = "x".repeat(5_000);
    let event = |id: usize| json!({"id": id.to_string(), "subject": "/a", "eventType": "T", "eventTime": "2026-11-20T12:00:00Z", "data": long, "dataVersion": "1"});
    let events: Vec<Value> = (0..40).map(event).collect();
    let copies = json!({"body": format!("[{}]", vec!["@"; 190].join(","))});
    let needles: Vec<String> = (0..25).map(|number| format!("{number}-never")).collect();
    let contains = json!({"operatorType": "StringContains", "key": "data", "values": needles});
    let filter = json!({"advancedFilters": vec![contains; 25]});
    let post = |name: &'static str, verb: &str, body: &Value, statuses: &'static [u16]| Attack {
        name,
        method: "POST",
        path: format!("{}/{verb}", subscription("orders", "sub")),
        body: body.to_string(),
        statuses,
    };
    vec![
        schema("a schema that evaluates its parts again", &nested, false),
        schema("the same in a preview", &nested, true),
        schema(
            "a pattern with many positions",
            &json!({"pattern": "[ab]{700}[cd]|[ab]{701}[de]"}),
            false,
        ),
        schema("a long list of schemas for each item", &items, false),
        // 200: each event has its error, on a fast machine within the time. 503: others have the
        // memory.
        post(
            "large results",
            "testTransform",
            &json!({"events": events, "transform": copies}),
            &[200, 400, 503],
        ),
        post(
            "large results of stored events",
            "testTransform",
            &json!({"last": 1000, "transform": copies}),
            &[200, 400, 503],
        ),
        post(
            "many strings in many events",
            "testFilter",
            &json!({"events": events, "filter": filter}),
            &[200, 400, 503],
        ),
        Attack {
            name: "an event that does not exist",
            method: "GET",
            path: format!("{RG}/topics/orders/trace?id=none"),
            body: String::new(),
            statuses: &[200],
        },
    ]
}

/// Publishes to `bills` until `ended`; counts the requests.
fn publish_beside(server: &Server, key: &str, ended: &AtomicBool) -> usize {
    let mut client = server.client();
    let mut published = 0;
    while !ended.load(Ordering::Relaxed) || published == 0 {
        let headers = [("aeg-sas-key", key), ("content-type", "application/json")];
        let response = client
            .ask("POST", &events_path("bills"), &headers, EVENT.as_bytes())
            .expect("a response");
        assert_eq!(
            response.status,
            200,
            "the publisher of another topic: {}",
            response.text()
        );
        published += 1;
    }
    published
}

#[test]
fn what_callers_let_the_server_compute_is_bounded_and_delays_no_publisher_for_long() {
    let server = Server::start(&[("LIMITS__COMPUTE_TIME", "500ms")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let key_beside = server.topic("bills", "EventGridSchema");
    server.subscribe("orders", "sub", &SubscriptionSpec::new(&sink.url("/")));
    let long = EVENT.replace("{}", &format!("\"{}\"", "x".repeat(50_000)));
    for _ in 0..40 {
        server.publish("orders", &key, long.as_bytes());
    }
    let admin = token(
        &server,
        &["team", "--role", "admin", "--scope", "topics/orders"],
    );
    let attacks = computations();
    let before = server.resident();
    let ended = AtomicBool::new(false);
    let made = AtomicUsize::new(0);
    let attack = |first: usize| {
        for number in 0..many(1, 50) * attacks.len() {
            let Attack {
                name,
                method,
                path,
                body,
                statuses,
            } = &attacks[(first + number) % attacks.len()];
            let response = ask(&server, &admin, method, path, body);
            assert!(
                statuses.contains(&response.status),
                "{name}: {} {}",
                response.status,
                response.text()
            );
            made.fetch_add(1, Ordering::Relaxed);
        }
    };
    let published = thread::scope(|scope| {
        let beside = scope.spawn(|| publish_beside(&server, &key_beside, &ended));
        // Each begins with another one.
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|first| scope.spawn(move || attack(first)))
            .collect();
        let results: Vec<_> = attackers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        ended.store(true, Ordering::Relaxed);
        let published = beside.join().expect("the publisher is served");
        results
            .into_iter()
            .for_each(|result| result.expect("each attack is refused or served"));
        published
    });
    let grown = server.most_resident().saturating_sub(before);
    let rows = [
        ["attacks".to_owned(), made.into_inner().to_string()],
        [
            "requests of another publisher".to_owned(),
            published.to_string(),
        ],
        ["memory".to_owned(), format!("{} MiB", grown >> 20)],
    ];
    print("computing", &rows);
    assert!(grown < MEMORY_MAX, "{} MiB", grown >> 20);
    assert_eq!(server.command("GET", "/healthz", &Value::Null).status, 200);
}
