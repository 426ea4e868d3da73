//! Parts killed on purpose under load: each restarts by itself, nothing is lost, no other part is
//! affected.

use std::{thread, time::Duration};

use gridhook::event::Timestamp;
use serde_json::json;

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Arrival, Behavior, Sink},
};

/// A sibling that is undisturbed never waits for its next event while a topic of its own receives
/// so many. At the full rate of the load they take 0.7 s; on a busy machine they take longer, and
/// so may the sibling.
const GAP: usize = 350;

/// A subscription of another topic, on the same server and endpoint: the measure of what the
/// machine can do.
const MEASURE: &str = "/measure";

struct ServerUnderLoad {
    server: Server,
    sink: Sink,
    load: Load,
    measure: Load,
}

impl ServerUnderLoad {
    /// Two subscriptions under load, with an endpoint slow enough that there is always something in
    /// flight.
    fn start() -> Self {
        let server = Server::start(&[("CHAOS__ENABLED", "true")]);
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        for name in ["victim", "sibling"] {
            server.subscribe(
                "orders",
                name,
                &SubscriptionSpec::new(&sink.url(&format!("/{name}"))).batch(5),
            );
            sink.set(
                &format!("/{name}"),
                Behavior::Slow(Duration::from_millis(20), 200),
            );
        }
        let other = server.topic("measure", "EventGridSchema");
        server.subscribe(
            "measure",
            "measure",
            &SubscriptionSpec::new(&sink.url(MEASURE)).batch(5),
        );
        sink.set(MEASURE, Behavior::Slow(Duration::from_millis(20), 200));
        let pause = Duration::from_millis(10);
        let rate = Rate {
            topic: "orders".to_owned(),
            key,
            publishers: 2,
            events_per_request: 5,
            pause,
        };
        let load = Load::start(server.address(), &rate);
        let measure = Load::start(
            server.address(),
            &Rate {
                topic: "measure".to_owned(),
                key: other,
                publishers: 1,
                ..rate.clone()
            },
        );
        let paths = ["/victim", "/sibling", MEASURE];
        wait_for("deliveries", LONG, || {
            paths.iter().all(|path| sink.taken(path) > 50)
        });
        Self {
            server,
            sink,
            load,
            measure,
        }
    }

    fn kill(&self, actor: &str, by: &str) {
        let mut body = json!({"actor": actor, "topic": "orders", "by": by});
        if actor != "topic" {
            body["subscription"] = "victim".into();
        }
        // It may be between two incarnations.
        wait_for("somebody to kill", LONG, || {
            self.server.admin("POST", "/chaos/kill", &body).status == 200
        });
    }

    /// Waits until the victim delivers again.
    fn wait_for_deliveries(&self) {
        let before = self.sink.taken("/victim");
        wait_for("the victim to deliver again", LONG, || {
            self.sink.taken("/victim") > before + 20
        });
    }

    /// Ends the load; both have everything, `repeated` times more than once.
    fn finish(self, repeated_max: usize) -> (Server, Sink) {
        let Self {
            server,
            sink,
            load,
            measure,
        } = self;
        let acknowledged = load.stop();
        measure.stop();
        for (name, most) in [("victim", repeated_max), ("sibling", 0)] {
            wait_until_settled(&server, "orders", name);
            let repeated = assert_arrived(&sink, &format!("/{name}"), &acknowledged).len();
            println!(
                "{name}: {} acknowledged, {repeated} repeated",
                acknowledged.len()
            );
            assert!(
                repeated <= most,
                "{name}: {repeated} events were repeated, expected {most}"
            );
            assert_eq!(
                server.counter("orders", name, "delivered"),
                server.counter("orders", name, "matched")
            );
        }
        (server, sink)
    }
}

/// The server ends, and has on disk what its rules say.
fn end(mut server: Server) {
    server.terminate();
    server.assert_sound();
}

/// The times of all arrivals.
fn arrivals(sink: &Sink, path: &str) -> Vec<Timestamp> {
    let mut times: Vec<_> = sink.look(path, |ledger| {
        ledger
            .values()
            .flatten()
            .map(|arrival| arrival.at)
            .collect()
    });
    times.sort_unstable();
    times
}

/// The sibling did not wait for the victim.
fn assert_steady(sink: &Sink) {
    let measure = arrivals(sink, MEASURE);
    let passed = |at: &Timestamp| measure.partition_point(|other| other < at);
    let gap = arrivals(sink, "/sibling")
        .windows(2)
        .map(|pair| passed(&pair[1]) - passed(&pair[0]))
        .max();
    println!(
        "the sibling waited while {gap:?} of {} events arrived elsewhere",
        measure.len()
    );
    assert!(
        gap.is_some_and(|gap| gap < GAP),
        "the sibling waited while {gap:?} events arrived elsewhere"
    );
}

#[test]
fn a_killed_subscription_actor_comes_back_and_repeats_nothing() {
    let scene = ServerUnderLoad::start();
    let kills = many(10, 500);
    for kill in 0..kills {
        scene.kill("subscription", if kill % 2 == 0 { "panic" } else { "stop" });
        scene.wait_for_deliveries();
    }
    let (server, sink) = scene.finish(0);
    let restarts = server.status("orders", "victim")["actor"]["restarts"].as_u64();
    assert_eq!(restarts, Some(kills as u64));
    assert_eq!(server.status("orders", "sibling")["actor"]["restarts"], 0);
    assert_steady(&sink);
    end(server);
}

#[test]
fn a_killed_topic_actor_comes_back_with_its_subscriptions_and_repeats_nothing() {
    let scene = ServerUnderLoad::start();
    for kill in 0..many(10, 500) {
        scene.kill("topic", if kill % 2 == 0 { "panic" } else { "stop" });
        scene.wait_for_deliveries();
    }
    let (server, sink) = scene.finish(0);
    assert_steady(&sink);
    end(server);
}

#[test]
fn a_killed_delivery_task_is_tried_again_and_disturbs_no_other() {
    let scene = ServerUnderLoad::start();
    let kills = many(10, 500);
    for kill in 0..kills {
        scene.kill("delivery", if kill % 2 == 0 { "panic" } else { "stop" });
        scene.wait_for_deliveries();
    }
    let (server, sink) = scene.finish(kills * 5);
    assert_eq!(server.status("orders", "victim")["actor"]["restarts"], 0);
    assert!(
        server.counter("orders", "victim", "requestsFailed") >= 1,
        "a killed request has failed"
    );
    assert_steady(&sink);
    end(server);
}

#[test]
fn an_event_that_kills_again_and_again_is_quarantined_and_the_others_flow() {
    let scene = ServerUnderLoad::start();
    let poison =
        json!({"topic": "orders", "subscription": "victim", "eventId": "poison", "times": 100});
    scene.server.command("POST", "/chaos/poison", &poison);
    let keys = scene.server.command(
        "POST",
        "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders/listKeys",
        &serde_json::Value::Null,
    );
    let key = keys.json()["key1"].as_str().expect("a key").to_owned();
    scene
        .server
        .publish("orders", &key, &load::body(&["poison".to_owned()], "/load"));
    wait_for("the event to be given up", LONG, || {
        scene.server.counter("orders", "victim", "dropped") == 1
    });
    scene.wait_for_deliveries();
    let ServerUnderLoad {
        server,
        sink,
        load,
        measure,
    } = scene;
    let acknowledged = load.stop();
    measure.stop();
    for name in ["victim", "sibling"] {
        wait_until_settled(&server, "orders", name);
        let repeated = assert_arrived(&sink, &format!("/{name}"), &acknowledged);
        assert!(repeated.is_empty(), "{name}: {} repeated", repeated.len());
    }
    assert!(!sink.ledger("/victim").contains_key("poison"));
    assert_eq!(
        sink.ledger("/sibling")["poison"]
            .iter()
            .filter(|arrival| Arrival::is_taken(arrival))
            .count(),
        1
    );
    assert_eq!(server.status("orders", "victim")["actor"]["restarts"], 3);
    assert_steady(&sink);
    end(server);
}

#[test]
fn a_subscription_that_is_killed_while_its_endpoint_fails_repeats_nothing_that_was_taken() {
    let scene = ServerUnderLoad::start();
    for kill in 0..many(12, 300) {
        scene.sink.set(
            "/victim",
            match kill % 3 {
                0 => Behavior::Respond(503),
                1 => Behavior::Slow(Duration::from_millis(50), 200),
                _ => Behavior::Respond(200),
            },
        );
        thread::sleep(Duration::from_millis(120));
        scene.kill("subscription", "panic");
    }
    scene.sink.set("/victim", Behavior::Respond(200));
    scene.wait_for_deliveries();
    let (server, _sink) = scene.finish(0);
    end(server);
}
