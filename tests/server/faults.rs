//! Each fault of chaos on the real server: it happens, nothing is lost, and the policy holds.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    edition::{JITTER, STEPS},
    endpoint::Gate,
    http::Client,
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

struct ServerWithTwoSubscriptions {
    server: Server,
    sink: Sink,
    key: String,
}

impl ServerWithTwoSubscriptions {
    /// One topic, two subscriptions, an endpoint that takes everything.
    fn start(settings: &[(&str, &str)]) -> Self {
        let settings = [&[("CHAOS__ENABLED", "true")], settings].concat();
        let server = Server::start(&settings);
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        for name in ["victim", "sibling"] {
            server.subscribe(
                "orders",
                name,
                &SubscriptionSpec::new(&sink.url(&format!("/{name}"))).batch(5),
            );
        }
        Self { server, sink, key }
    }

    fn load(&self, publishers: usize, events_per_request: usize) -> Load {
        let topic = "orders".to_owned();
        let key = self.key.clone();
        let pause = Duration::from_millis(10);
        let load = Load::start(
            self.server.address(),
            &Rate {
                topic,
                key,
                publishers,
                events_per_request,
                pause,
            },
        );
        wait_for("deliveries", LONG, || {
            self.sink.taken("/victim") > 20 && self.sink.taken("/sibling") > 20
        });
        load
    }

    fn chaos(&self, what: &str, body: &Value) -> Value {
        self.server
            .command("POST", &format!("/chaos/{what}"), body)
            .json()
    }

    /// How often something was done.
    fn acts(&self, name: &str) -> u64 {
        let report = self.server.command("GET", "/chaos", &Value::Null).json();
        report["injected"]
            .pointer(&format!("/{name}"))
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("{name}: {report}"))
    }

    fn wait_until_over(&self) {
        let on = || self.server.command("GET", "/chaos", &Value::Null).json()["active"].clone();
        wait_for("everything to end", LONG, || on() == json!([]));
    }

    fn counter(&self, subscription: &str, counter: &str) -> u64 {
        self.server.counter("orders", subscription, counter)
    }

    /// Everything has arrived at both; says how many events were taken again at the victim. At the
    /// sibling none were.
    fn settle(&self, acknowledged: &[String]) -> usize {
        for name in ["victim", "sibling"] {
            wait_until_settled(&self.server, "orders", name);
            assert_eq!(
                self.counter(name, "delivered"),
                self.counter(name, "matched"),
                "{name}"
            );
        }
        assert!(!acknowledged.is_empty(), "something was acknowledged");
        assert_eq!(
            assert_arrived(&self.sink, "/sibling", acknowledged).len(),
            0,
            "at the sibling"
        );
        assert_arrived(&self.sink, "/victim", acknowledged).len()
    }

    fn end(mut self) {
        self.server.terminate();
        self.server.assert_sound();
    }
}

#[test]
fn two_thousand_events_a_second_survive_a_random_death_every_twenty_milliseconds() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let load = scene.load(4, 10);
    let kills = many(250, 3_000);
    let started = scene.sink.now();
    for kill in 1..=kills {
        let by = if kill % 2 == 0 { "panic" } else { "stop" };
        // A message that arrives between two incarnations reaches the next one.
        scene.server.admin(
            "POST",
            "/chaos/kill",
            &json!({"actor": "random", "topic": "orders", "by": by}),
        );
        let next =
            started.after(Duration::from_millis(20) * u32::try_from(kill).expect("a number"));
        thread::sleep(next.since(scene.sink.now()));
    }
    let took = scene.sink.now().since(started);
    let acknowledged = load.stop();
    assert_eq!(
        scene.settle(&acknowledged),
        0,
        "a killed actor repeats nothing"
    );
    let report = scene
        .server
        .command("GET", "/supervision?topic=orders", &Value::Null)
        .json();
    let millis = |name: &str| report["recovery"][name].as_f64().expect("a time");
    let killed = scene.acts("subscriptionsKilled") + scene.acts("topicsKilled");
    println!(
        "{} events in {took:?}, {killed} killed, restarts p50 {} ms, p99 {} ms, longest {} ms",
        acknowledged.len(),
        millis("p50"),
        millis("p99"),
        millis("longest")
    );
    assert!(killed as usize > kills / 2, "{killed} were killed");
    // The time includes other work of the machine: a few milliseconds if there is little. A restart
    // that waits for a timer is more, and half of them wait for nothing on any machine.
    assert!(millis("p50") < 500.0 && millis("p99") < 5_000.0, "{report}");
    assert_eq!(
        report["ends"]["panicked"], 0,
        "all of them were asked for: {report}"
    );
    scene.end();
}

#[test]
fn while_writes_stall_publishers_wait_and_then_everything_goes_on() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let load = scene.load(2, 5);
    let stall = Duration::from_millis(700);
    // Before the stall begins: whatever the machine does meanwhile, the response comes after its
    // end.
    let started = scene.sink.now();
    scene.chaos("stall", &json!({"actor": "journal", "duration": "700ms"}));
    let published = scene.server.client().ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", &scene.key)],
        &load::body(&["patient".to_owned()], "/load"),
    );
    let waited = scene.sink.now().since(started);
    assert_eq!(published.expect("a publisher is answered").status, 200);
    assert!(
        waited > stall.mul_f64(0.9),
        "the publisher was answered after {waited:?}"
    );
    scene.wait_until_over();
    let mut acknowledged = load.stop();
    acknowledged.push("patient".to_owned());
    assert_eq!(scene.settle(&acknowledged), 0);
    assert!(scene.acts("writesStalled") >= 1);
    scene.end();
}

#[test]
fn when_writes_fail_publishers_get_503_and_the_server_recovers() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let load = scene.load(2, 5);
    let on = scene.chaos("writes", &json!({"fail": 4, "duration": "30s"}));
    assert_eq!(on["fault"], "failWrites");
    let mut refused = Vec::new();
    let mut publisher = Client::new(scene.server.address());
    wait_for("a publisher to be refused", LONG, || {
        let id = format!("refused-{}", refused.len());
        let body = load::body(std::slice::from_ref(&id), "/load");
        let response = publisher.ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", &scene.key)],
            &body,
        );
        let response = response.expect("a publisher is answered");
        match response.status {
            503 => {
                assert!(
                    response.header("retry-after").is_some(),
                    "it says when to retry"
                );
                refused.push(id);
            }
            // The writes of the load may have met with the faults instead.
            status => assert_eq!(status, 200, "{}", response.text()),
        }
        !refused.is_empty() || scene.acts("writesFailed") == 4
    });
    wait_for("all four to fail", LONG, || scene.acts("writesFailed") == 4);
    let ready = || {
        scene
            .server
            .client()
            .ask("GET", "/readyz", &[], b"")
            .expect("a response")
            .status
    };
    wait_for("the server to be ready", LONG, || ready() == 200);
    assert!(
        scene.server.logs().contains("the disk is full"),
        "it is logged as a full disk"
    );
    let acknowledged = load.stop();
    assert_eq!(scene.settle(&acknowledged), 0);
    let arrived = scene.sink.ledger("/sibling");
    assert!(
        refused.iter().all(|id| !arrived.contains_key(id)),
        "what was refused was not written"
    );
    assert_eq!(scene.acts("writesFailed"), 4, "no more than asked for");
    scene.end();
}

#[test]
fn an_actor_that_stalls_delays_no_other_and_goes_on_when_the_fault_ends() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let load = scene.load(2, 5);
    scene.chaos(
        "stall",
        &json!({"actor": "subscription", "topic": "orders", "subscription": "victim", "duration": "1m"}),
    );
    // Requests in flight still arrive.
    let still = || {
        let victim = scene.sink.taken("/victim");
        let sibling = scene.sink.taken("/sibling");
        wait_for("the sibling to go on", LONG, || {
            scene.sink.taken("/sibling") > sibling + 100
        });
        scene.sink.taken("/victim") == victim
    };
    wait_for(
        "the victim to stand still while the sibling goes on",
        LONG,
        still,
    );
    let victim = scene.sink.taken("/victim");
    scene.server.command("DELETE", "/chaos", &Value::Null);
    wait_for("the victim to go on", LONG, || {
        scene.sink.taken("/victim") > victim + 100
    });
    let acknowledged = load.stop();
    assert_eq!(scene.settle(&acknowledged), 0);
    assert_eq!(scene.acts("actorsStalled"), 1);
    assert_eq!(
        scene.server.status("orders", "victim")["actor"]["restarts"],
        0,
        "it did not die of it"
    );
    scene.end();
}

#[test]
fn responses_that_are_lost_or_damaged_are_tried_again_and_one_that_is_late_is_not() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let load = scene.load(2, 5);
    for (fault, name) in [
        ("drop", "responsesDropped"),
        ("corrupt", "responsesCorrupted"),
    ] {
        let failed = scene.counter("victim", "requestsFailed");
        let body = json!({"fault": fault, "rate": 0.2, "topic": "orders", "subscription": "victim", "duration": "30s"});
        scene.chaos("responses", &body);
        wait_for(fault, LONG, || {
            scene.acts(&format!("{name}/responses")) >= 5
        });
        scene.server.command("DELETE", "/chaos", &Value::Null);
        wait_for("failures", LONG, || {
            scene.counter("victim", "requestsFailed") >= failed + 5
        });
    }
    let mut body = json!({"fault": "delay", "rate": 1, "delay": "100ms", "topic": "orders", "subscription": "victim"});
    body["duration"] = "1m".into();
    scene.chaos("responses", &body);
    wait_for("late responses", LONG, || {
        scene.acts("responsesDelayed/responses") >= 5
    });
    scene.server.command("DELETE", "/chaos", &Value::Null);
    scene.wait_until_over();
    let acknowledged = load.stop();
    let repeated = scene.settle(&acknowledged) as u64;
    let allowed = scene.acts("responsesDropped/events") + scene.acts("responsesCorrupted/events");
    println!("{repeated} repeated, {allowed} allowed");
    assert!(
        repeated > 0 && repeated <= allowed,
        "{repeated} were repeated, allowed are {allowed}"
    );
    assert_eq!(scene.counter("sibling", "requestsFailed"), 0);
    scene.end();
}

#[test]
fn a_response_that_comes_after_the_wait_settles_its_events_when_it_comes() {
    let scene = ServerWithTwoSubscriptions::start(&[
        ("DELIVERY__RESPONSE_TIMEOUT", "300ms"),
        ("DELIVERY__LATE_TIMEOUT", "30s"),
    ]);
    // The first retry of the current edition is 10 s away: the late response is there before, also
    // on a busy machine.
    scene.server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
    );
    let mut body = json!({"fault": "delay", "rate": 1, "delay": "310ms", "topic": "orders", "subscription": "victim"});
    body["duration"] = "1m".into();
    scene.chaos("responses", &body);
    let ids = ["late".to_owned()];
    scene
        .server
        .publish("orders", &scene.key, &load::body(&ids, "/load"));
    // After the wait it is queued for a retry; the late response takes it out before that.
    wait_for("the late word", LONG, || {
        scene.counter("victim", "late") == 1
    });
    assert_eq!(scene.settle(&ids), 0, "it is not sent again");
    assert_eq!(
        scene.counter("victim", "requestsFailed"),
        1,
        "the wait was over"
    );
    scene.end();
}

#[test]
fn a_wall_clock_that_is_set_makes_no_event_expire_and_no_retry_come_early_or_late() {
    for step in ["1h", "-1h"] {
        let scene = ServerWithTwoSubscriptions::start(&[]);
        let spec = SubscriptionSpec::new(&scene.sink.url("/victim")).also(
            &json!({}),
            &json!({"retryPolicy": {"eventTimeToLiveInMinutes": 1}}),
        );
        scene.server.subscribe("orders", "victim", &spec);
        scene
            .sink
            .set("/victim", Behavior::Statuses([503, 503, 503].into()));
        scene.chaos("clock", &json!({"step": step, "duration": "1m"}));
        let ids = ["e".to_owned()];
        scene
            .server
            .publish("orders", &scene.key, &load::body(&ids, "/load"));
        wait_for("the delivery", LONG, || scene.sink.taken("/victim") == 1);
        assert_eq!(scene.settle(&ids), 0);
        let arrivals = scene
            .sink
            .ledger("/victim")
            .remove("e")
            .expect("it arrived");
        let waits: Vec<Duration> = arrivals
            .windows(2)
            .map(|pair| pair[1].at.since(pair[0].answered))
            .collect();
        println!("{step}: {waits:?}");
        assert_eq!(waits.len(), STEPS.len());
        for (wait, least) in waits.iter().zip(STEPS) {
            // The clock follows by a twentieth; what comes on top of jitter is the machine's.
            assert!(
                *wait >= least.mul_f64(0.95),
                "{step}: {wait:?} instead of {least:?}"
            );
            let most = least.mul_f64((1.0 + JITTER) / 0.95) + Duration::from_secs(20);
            assert!(*wait <= most, "{step}: {wait:?} instead of {least:?}");
        }
        assert_eq!(scene.counter("victim", "dropped"), 0);
        wait_for("a word of it", LONG, || {
            scene.server.logs().contains("the wall clock was set")
        });
        scene.server.command("DELETE", "/chaos", &Value::Null);
        assert_eq!(scene.acts("clockSteps"), 1);
        scene.end();
    }
}

#[test]
fn a_quarantined_event_ends_no_actor_when_it_is_read_again_from_the_log() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    // A first event stays open, so that the cursor does not pass the one that kills.
    let gate = Gate::default();
    scene
        .sink
        .set("/victim", Behavior::Gated(gate.clone(), 200));
    scene.chaos(
        "poison",
        &json!({"topic": "orders", "subscription": "victim", "eventId": "poison", "times": 100}),
    );
    let ids = ["slow".to_owned()];
    scene
        .server
        .publish("orders", &scene.key, &load::body(&ids, "/load"));
    wait_for("the first to leave", LONG, || {
        scene.server.status("orders", "victim")["inFlight"] == 1
    });
    scene.server.publish(
        "orders",
        &scene.key,
        &load::body(&["poison".to_owned()], "/load"),
    );
    wait_for("the event to be given up", LONG, || {
        scene.counter("victim", "dropped") == 1
    });
    // With its actor the topic loses its newest events from memory: what the cursor has not passed
    // is read from the log.
    for _ in 0..5 {
        let recoveries =
            || scene.server.topic_status("orders")["actor"]["recovery"]["count"].as_u64();
        let before = recoveries();
        scene.chaos(
            "kill",
            &json!({"actor": "topic", "topic": "orders", "by": "stop"}),
        );
        wait_for("the topic to be at work again", LONG, || {
            recoveries() > before
        });
    }
    gate.open();
    wait_until_settled(&scene.server, "orders", "victim");
    assert_eq!(assert_arrived(&scene.sink, "/victim", &ids).len(), 0);
    assert_eq!(
        (
            scene.counter("victim", "delivered"),
            scene.counter("victim", "dropped")
        ),
        (1, 1)
    );
    let victim = scene.server.status("orders", "victim");
    assert_eq!(victim["actor"]["ends"]["panicked"], 3, "{victim}");
    scene.end();
}

#[test]
fn panics_and_quarantined_events_are_reported_by_name() {
    let scene = ServerWithTwoSubscriptions::start(&[]);
    let poison =
        json!({"topic": "orders", "subscription": "victim", "eventId": "poison", "times": 100});
    scene.chaos("poison", &poison);
    scene.server.publish(
        "orders",
        &scene.key,
        &load::body(&["poison".to_owned()], "/load"),
    );
    wait_for("the event to be given up", LONG, || {
        scene.counter("victim", "dropped") == 1
    });
    scene.chaos("kill", &json!({"actor": "deadLetter", "by": "panic"}));
    scene.chaos(
        "kill",
        &json!({"actor": "topic", "topic": "orders", "by": "stop"}),
    );
    let report = || {
        scene
            .server
            .command("GET", "/supervision", &Value::Null)
            .json()
    };
    wait_for("all to be at work again", LONG, || {
        let report = report();
        // Of its three deaths in a row the subscription recovered once.
        report["ends"]["killed"] == 2 && report["recovery"]["count"].as_u64() >= Some(3)
    });
    let report = report();
    assert_eq!(
        (
            report["ends"]["panicked"].as_u64(),
            report["quarantined"].as_u64()
        ),
        (Some(3), Some(1)),
        "{report}"
    );
    let first = &report["mostRestarted"][0];
    assert_eq!(
        (first["kind"].as_str(), first["subscription"].as_str()),
        (Some("subscription"), Some("victim")),
        "{report}"
    );
    assert_eq!(
        first["quarantined"]["newest"][0]["id"], "poison",
        "{report}"
    );
    let victim = scene.server.status("orders", "victim");
    assert_eq!(victim["actor"]["quarantined"]["count"], 1, "{victim}");
    let topic = scene.server.topic_status("orders");
    assert_eq!(topic["actor"]["lastCause"], "killed on purpose", "{topic}");
    let bounded = scene
        .server
        .command("GET", "/supervision?top=1", &Value::Null)
        .json();
    assert_eq!(bounded["mostRestarted"].as_array().map(Vec::len), Some(1));

    let response = std::process::Command::new(env!("CARGO_BIN_EXE_gridhook"))
        .args([
            "supervision",
            "--server",
            &format!("http://{}", scene.server.address()),
            "--token-file",
        ])
        .arg(scene.server.data_dir().join("admin-token"))
        .output()
        .expect("the binary starts");
    let response = String::from_utf8_lossy(&response.stdout).into_owned();
    assert!(
        response.contains("orders/victim") && response.contains("dead letters"),
        "{response}"
    );
    scene.end();
}
