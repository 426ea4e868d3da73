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

/// The `Retry-After` of an endpoint in seconds: longer than a takeover.
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

/// A queue of the topic `heat`, and the header of its clients.
struct Queue {
    path: String,
    authorization: String,
}

impl Queue {
    fn new(node: &Server) -> Self {
        node.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
        node.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
        let path = format!("{RG}/plant/topics/heat/eventSubscriptions/work");
        let queue =
            json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": 300}});
        node.command(
            "PUT",
            &path,
            &json!({"properties": {"deliveryConfiguration": queue}}),
        );
        let keys = node
            .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
            .json();
        let key = keys["key1"].as_str().expect("a key");
        Self {
            path,
            authorization: format!("SharedAccessKey {key}"),
        }
    }

    fn post(&self, node: &Server, path: &str, content_type: &str, body: &str) -> Value {
        let headers = [
            ("authorization", self.authorization.as_str()),
            ("content-type", content_type),
        ];
        let response = node
            .client()
            .ask("POST", &format!("{HEAT}{path}"), &headers, body.as_bytes())
            .expect("a response");
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    }

    /// Publishes an event, and returns the lock token with which it is received.
    fn publish_and_receive(&self, node: &Server) -> Value {
        let event = json!([
            {"specversion": "1.0", "id": "one", "source": "/oven", "type": "hot", "data": 1}
        ]);
        self.post(
            node,
            ":publish",
            "application/cloudevents-batch+json",
            &event.to_string(),
        );
        let events = self.post(
            node,
            "/eventsubscriptions/work:receive?maxEvents=1&maxWaitTime=60",
            "application/json",
            "",
        );
        events["value"][0]["brokerProperties"]["lockToken"].clone()
    }

    fn settle(&self, node: &Server, verb: &str, token: &Value) -> Value {
        let path = format!("/eventsubscriptions/work:{verb}");
        let body = json!({"lockTokens": [token]}).to_string();
        self.post(node, &path, "application/json", &body)
    }
}

#[test]
fn times_that_an_owner_has_set_are_those_of_the_next_owner() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let first = &cluster.nodes[0];
    let mut waiting = fail_first_attempts(first, &sink);
    let queue = Queue::new(first);
    let token = queue.publish_and_receive(first);
    waiting.push(queue.path.clone());
    fail_with_retry_after(first, &sink);

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
    for verb in ["renewLock", "acknowledge"] {
        let response = queue.settle(node, verb, &token);
        assert_eq!(
            response["succeededLockTokens"],
            json!([token]),
            "{response}"
        );
    }

    assert_retry_after_is_respected(&sink);
}

/// With the schedules of Event Grid, no retry is due before the end of the test. Returns the event
/// subscriptions.
fn fail_first_attempts(node: &Server, sink: &Sink) -> Vec<String> {
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
        sink.set(&format!("/{topic}"), Behavior::Respond(status));
        let key = node.topic_of(
            topic,
            &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
        );
        node.subscribe(topic, "hook", &spec);
        node.publish(topic, &key, &load::body(&["one".to_owned()], "/a"));
        let name = subscription(topic, "hook");
        wait_for("the first attempt to fail", LONG, || {
            explain(node, &name)["state"] == "pending"
        });
        waiting.push(name);
    }
    waiting
}

fn fail_with_retry_after(node: &Server, sink: &Sink) {
    sink.set("/asked", Behavior::RetryAfter(503, ASKED));
    let key = node.topic("asked", "EventGridSchema");
    node.subscribe("asked", "hook", &SubscriptionSpec::new(&sink.url("/asked")));
    node.publish("asked", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("its first attempt to fail", LONG, || {
        explain(node, &subscription("asked", "hook"))["state"] == "pending"
    });
}

fn assert_retry_after_is_respected(sink: &Sink) {
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
