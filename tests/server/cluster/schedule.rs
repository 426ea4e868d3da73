//! Times that one owner has set are those of the next one: retries, suspensions, `Retry-After`, the
//! end of an event's time to live, locks.

use std::time::Duration;

use serde_json::{Value, json};

use super::Cluster;
use crate::{
    server::{LONG, pull::RG},
    support::{
        load,
        nats::has_nats,
        server::{Server, SubscriptionSpec, subscription, wait_for},
        sink::{Behavior, Sink},
    },
};

/// What an endpoint asks for: longer than a takeover takes.
const ASKED: u32 = 10;

/// How late an attempt may be on a machine that stands still for a moment.
const LATE: Duration = Duration::from_secs(20);

const HEAT: &str = "/namespaces/plant/topics/heat";

/// Why the first event of an event subscription waits, and until when. All times are absolute, but
/// for the time of the response.
fn explain(node: &Server, subscription: &str) -> Value {
    let mut shown = node
        .command(
            "GET",
            &format!("{subscription}/explain?sequence=1"),
            &Value::Null,
        )
        .json();
    shown.as_object_mut().expect("an object").remove("now");
    shown
}

#[test]
fn times_that_an_owner_has_set_are_those_of_the_next_owner() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let first = &cluster.nodes[0];
    // The schedules of Event Grid: nothing is due before the end of the test.
    let mut waiting = Vec::new();
    for (topic, status, spec) in [
        ("retried", 408, SubscriptionSpec::new(&sink.url("/retried"))),
        (
            "suspended",
            404,
            SubscriptionSpec::new(&sink.url("/suspended")),
        ),
        (
            "ended",
            410,
            SubscriptionSpec::new(&sink.url("/ended")).also(
                &json!({}),
                &json!({"retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": 5}}),
            ),
        ),
    ] {
        sink.set(&format!("/{topic}"), Behavior::Answer(status));
        let key = first.topic_of(
            topic,
            &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
        );
        first.subscribe(topic, "hook", &spec);
        first.publish(topic, &key, &load::body(&["one".to_owned()], "/a"));
        let name = subscription(topic, "hook");
        wait_for("the first attempt to fail", LONG, || {
            explain(first, &name)["state"] == "pending"
        });
        waiting.push(name);
    }
    // A client that pulls.
    first.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    first.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
    let queue = json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": 300}});
    let work = format!("{RG}/plant/topics/heat/eventSubscriptions/work");
    first.command(
        "PUT",
        &work,
        &json!({"properties": {"deliveryConfiguration": queue}}),
    );
    let keys = first
        .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
        .json();
    let shown = format!("SharedAccessKey {}", keys["key1"].as_str().expect("a key"));
    let ask = |node: &Server, path: &str, kind: &str, body: &Value| {
        let headers = [("authorization", shown.as_str()), ("content-type", kind)];
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = node
            .client()
            .ask("POST", &format!("{HEAT}{path}"), &headers, body.as_bytes())
            .expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let event =
        json!([{"specversion": "1.0", "id": "one", "source": "/oven", "type": "hot", "data": 1}]);
    ask(
        first,
        ":publish",
        "application/cloudevents-batch+json",
        &event,
    );
    let of_queue = |verb: &str| format!("/eventsubscriptions/work:{verb}");
    let received = ask(
        first,
        &of_queue("receive?maxEvents=1&maxWaitTime=60"),
        "application/json",
        &Value::Null,
    );
    let token = received["value"][0]["brokerProperties"]["lockToken"].clone();
    waiting.push(work);
    // One that is waited for here.
    sink.set("/asked", Behavior::RetryAfter(503, ASKED));
    let key = first.topic("asked", "EventGridSchema");
    first.subscribe("asked", "hook", &SubscriptionSpec::new(&sink.url("/asked")));
    first.publish("asked", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("its first attempt to fail", LONG, || {
        explain(first, &subscription("asked", "hook"))["state"] == "pending"
    });

    let shown_by = |node: &Server| {
        waiting
            .iter()
            .map(|name| explain(node, name))
            .collect::<Vec<_>>()
    };
    let before = shown_by(first);
    let mut owner = 0;
    for _ in 0..2 {
        cluster.nodes[owner].kill_9();
        let next = cluster.owner_but(Some(owner));
        for (before, after) in before.iter().zip(shown_by(&cluster.nodes[next])) {
            assert_eq!(*before, after);
        }
        cluster.join(owner);
        owner = next;
    }
    println!("{before:#?}");
    let node = &cluster.nodes[owner];
    let settled = ask(
        node,
        &of_queue("renewLock"),
        "application/json",
        &json!({"lockTokens": [token]}),
    );
    assert_eq!(settled["succeededLockTokens"], json!([token]), "{settled}");
    let settled = ask(
        node,
        &of_queue("acknowledge"),
        "application/json",
        &json!({"lockTokens": [token]}),
    );
    assert_eq!(settled["succeededLockTokens"], json!([token]), "{settled}");

    wait_for("the attempt that was asked for", LONG, || {
        sink.taken("/asked") == 1
    });
    let arrivals = sink.ledger("/asked").remove("one").expect("it arrived");
    let waited = arrivals[1].at.since(arrivals[0].answered);
    let asked = Duration::from_secs(ASKED.into());
    assert!(
        arrivals.len() == 2 && waited >= asked && waited <= asked + LATE,
        "{waited:?}: {arrivals:?}"
    );
}
