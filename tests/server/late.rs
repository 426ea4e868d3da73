//! An endpoint that responds after the response timeout: events that it accepted are not sent
//! again.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::Gate,
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// The response timeout of these servers.
const WAIT: (&str, &str) = ("DELIVERY__RESPONSE_TIMEOUT", "300ms");

/// How long after the timeout a success still counts.
const LATE: (&str, &str) = ("DELIVERY__LATE_TIMEOUT", "2m");

/// The topic of these tests.
const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

/// Far from being suspended.
const PATIENT: (&str, &str) = ("DELIVERY__SUSPEND_AFTER_FAILURES", "1000");

/// A topic whose events are not tried again before ten seconds have passed.
fn patient_topic(server: &Server) -> String {
    let key = server.topic("orders", "EventGridSchema");
    let edition = json!({"properties": {"inputSchema": "EventGridSchema", "edition": "current"}});
    server.command("PUT", TOPIC, &edition);
    key
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn a_success_after_the_response_timeout_takes_the_events_out_of_the_retry_queue() {
    let _rows = crate::spec::shows(&[
        "S000-036, S002-020, S003-056: If the endpoint responds within 3 minutes, Event Grid \
         tries, on a best-effort basis, to remove the event from the retry queue.",
    ]);
    let mut server = Server::start(&[WAIT, LATE, PATIENT]);
    let sink = Sink::start();
    let key = patient_topic(&server);
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(5),
    );
    let gate = Gate::default();
    sink.set("/hook", Behavior::Gated(gate.clone(), 200));
    server.publish("orders", &key, &load::body(&ids(20), "/a"));
    wait_for("all requests to time out", LONG, || {
        let status = server.status("orders", "hook");
        status["lateRequests"].as_u64() >= Some(1)
            && status["inFlight"] == 0
            && status["backlog"] == 0
    });
    gate.open();
    wait_until_settled(&server, "orders", "hook");
    let status = server.status("orders", "hook");
    let counters = &status["counters"];
    assert_eq!(counters["delivered"], 20, "{status}");
    assert_eq!(counters["late"], counters["requestsFailed"], "{status}");
    assert_eq!(
        (&counters["requests"], &status["lateRequests"]),
        (&counters["requestsFailed"], &json!(0))
    );
    assert_eq!(
        status["health"]["failures"], counters["requests"],
        "a late success does not heal"
    );
    sink.look("/hook", |ledger| {
        assert!(
            ledger.values().all(|arrivals| arrivals.len() == 1),
            "nothing is repeated"
        )
    });
    server.terminate();
    server.assert_sound();
}

#[test]
fn the_response_timeout_of_a_subscription_replaces_that_of_the_server() {
    let mut server = Server::start(&[("DELIVERY__LATE_TIMEOUT", "0s"), PATIENT]);
    let sink = Sink::start();
    let key = patient_topic(&server);
    // Far longer and far shorter than the timeouts, so that a slow machine changes nothing.
    sink.set("/short", Behavior::Slow(Duration::from_secs(6), 200));
    sink.set("/long", Behavior::Slow(Duration::from_secs(2), 200));
    let limited = |path: &str, seconds: u32| {
        SubscriptionSpec::new(&sink.url(path)).webhook("responseTimeoutInSeconds", json!(seconds))
    };
    server.subscribe("orders", "short", &limited("/short", 1));
    server.subscribe("orders", "long", &limited("/long", 230));
    server.publish("orders", &key, &load::body(&ids(3), "/a"));
    wait_for("a success", LONG, || {
        server.counter("orders", "long", "delivered") == 3
    });
    wait_for("timeouts", LONG, || {
        server.counter("orders", "short", "requestsFailed") >= 3
    });
    assert_eq!(server.counter("orders", "long", "requestsFailed"), 0);
    assert_eq!(server.counter("orders", "short", "delivered"), 0);
    let metrics = server.admin("GET", "/metrics", &Value::Null).text();
    let is_timeout = |line: &str| {
        line.contains("subscription=\"short\"") && line.contains("outcome=\"TimedOut\"")
    };
    assert!(metrics.lines().any(is_timeout), "{metrics}");
    // The change applies to the next attempt, also after a restart.
    let change = json!({"destination": {"properties": {"responseTimeoutInSeconds": 60, "maxRequestsPerSecond": 7}}});
    assert_eq!(server.patch("orders", "short", &change).status, 201);
    server.kill_9();
    server.restart();
    let endpoint = &server.status("orders", "short")["endpoint"];
    assert_eq!(
        (
            &endpoint["responseTimeoutInSeconds"],
            &endpoint["maxRequestsPerSecond"]
        ),
        (&json!(60), &json!(7))
    );
    wait_until_settled(&server, "orders", "short");
    assert_eq!(server.counter("orders", "short", "delivered"), 3);
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_killed_actor_leaves_its_lingering_requests_to_the_next_incarnation() {
    let mut server = Server::start(&[WAIT, LATE, PATIENT, ("CHAOS__ENABLED", "true")]);
    let sink = Sink::start();
    let key = patient_topic(&server);
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    let gate = Gate::default();
    sink.set("/hook", Behavior::Gated(gate.clone(), 200));
    server.publish("orders", &key, &load::body(&ids(10), "/a"));
    wait_for("timeouts", LONG, || {
        server.status("orders", "hook")["lateRequests"] == 10
    });
    for actor in ["subscription", "topic"] {
        let mut body = json!({"actor": actor, "topic": "orders", "by": "panic"});
        if actor == "subscription" {
            body["subscription"] = "hook".into();
        }
        wait_for("somebody to kill", LONG, || {
            server.admin("POST", "/chaos/kill", &body).status == 200
        });
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        server.status("orders", "hook")["lateRequests"],
        10,
        "they live on"
    );
    gate.open();
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(server.counter("orders", "hook", "delivered"), 10);
    assert_eq!(server.counter("orders", "hook", "late"), 10);
    sink.look("/hook", |ledger| {
        assert!(
            ledger.values().all(|arrivals| arrivals.len() == 1),
            "nothing is repeated"
        )
    });
    server.terminate();
    server.assert_sound();
}

#[test]
fn late_responses_are_bounded_take_no_request_slot_and_delay_no_stop() {
    let mut server = Server::start(&[WAIT, LATE, PATIENT]);
    let sink = Sink::start();
    let key = patient_topic(&server);
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    // More are accepted than time out, because the endpoint would be suspended otherwise.
    server.publish("orders", &key, &load::body(&ids(100), "/a"));
    wait_for("all to be taken", LONG, || {
        server.counter("orders", "hook", "delivered") == 100
    });
    sink.set("/hook", Behavior::Hang);
    server.publish("orders", &key, &load::body(&ids(70), "/a"));
    wait_for("all to be tried", LONG, || {
        let status = server.status("orders", "hook");
        let tried = status["counters"]["requestsFailed"].as_u64() >= Some(70);
        assert!(status["lateRequests"].as_u64() <= Some(64), "{status}");
        tried && status["inFlight"] == 0
    });
    assert_eq!(server.status("orders", "hook")["lateRequests"], 64);
    // They would be waited for until `late_timeout`, and requests in flight for 30 s.
    assert!(
        server.terminate() < Duration::from_secs(15),
        "nobody waits for them"
    );
    server.assert_sound();
}

#[test]
fn a_deleted_subscription_takes_its_lingering_requests_along() {
    // The connection of the farewell is idle, and shall not be taken for a lingering one.
    let brief = ("DELIVERY__IDLE_CONNECTION_TIMEOUT", "1s");
    let server = Server::start(&[WAIT, LATE, PATIENT, brief]);
    let sink = Sink::start();
    let key = patient_topic(&server);
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Hang);
    server.publish("orders", &key, &load::body(&ids(1), "/a"));
    wait_for("a timeout", LONG, || {
        server.status("orders", "hook")["lateRequests"].as_u64() >= Some(1)
    });
    assert!(sink.connections() >= 1);
    server.unsubscribe("orders", "hook");
    wait_for("its connections to be closed", LONG, || {
        sink.connections() == 0
    });
}
