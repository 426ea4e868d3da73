//! `kill -9` at any moment: what was acknowledged arrives, and only what was in flight, or whose
//! outcome waited to be written, arrives twice.

use std::{thread, time::Duration};

use gridhook::event::Timestamp;

use super::{LONG, assert_arrived, end_waits, many, wait_until_settled};
use crate::support::{
    load::{Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// In one request.
const BATCH: u32 = 10;

/// A response this long before a kill must be durable: a group waits 10 or 40 ms for company, and
/// one or two syncs come behind, on a machine that does other things too.
const DURABLE: Duration = Duration::from_millis(500);

/// A slow endpoint responds within this time to the requests that it has at a kill.
const IN_HAND: Duration = Duration::from_millis(90);

/// Requests at once.
const CONCURRENCY: usize = 16;

#[test]
fn every_acknowledged_event_survives_twenty_kills_under_load() {
    let _rows = crate::spec::shows(&[
        "S000-001: Event Grid provides durable delivery.",
        "S002-001, S003-001: Events are delivered durably.",
    ]);
    let concurrency = CONCURRENCY.to_string();
    let mut server = Server::start(&[("DELIVERY__CONCURRENCY", concurrency.as_str())]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::new(&sink.url("/alone")),
    );
    server.subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched")).batch(BATCH),
    );
    let pause = Duration::from_millis(15);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 10,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    let mut jitter = fastrand::Rng::with_seed(20);
    let mut kills = Vec::new();
    for kill in 0..many(20, 200) {
        for path in ["/alone", "/batched"] {
            sink.set(
                path,
                match (kill + usize::from(path == "/alone")) % 3 {
                    0 => Behavior::Respond(200),
                    1 => Behavior::Respond(503),
                    _ => Behavior::Slow(Duration::from_millis(30), 200),
                },
            );
        }
        thread::sleep(Duration::from_millis(jitter.u64(300..1100)));
        let from = sink.now();
        server.kill_9();
        kills.push((from, sink.now()));
        if kill % 5 == 0 {
            server.assert_sound();
        }
        server.restart();
        load.turn_to(server.address());
    }
    for path in ["/alone", "/batched"] {
        sink.set(path, Behavior::Respond(200));
    }
    let acknowledged = load.stop();
    for (subscription, path, batch) in [("alone", "/alone", 1), ("batched", "/batched", BATCH)] {
        end_waits(&server, "orders", subscription);
        wait_until_settled(&server, "orders", subscription);
        let repeated = assert_arrived(&sink, path, &acknowledged);
        let bound = in_flight(&sink, path, &kills);
        println!(
            "{path}: {} acknowledged, {} kills, {} repeated, of {bound} out or just back, in \
             batches of {batch}; the oldest of them was back {:?} before the kill",
            acknowledged.len(),
            kills.len(),
            repeated.len(),
            repeated
                .iter()
                .map(|at| age(*at, &kills))
                .max()
                .unwrap_or_default()
        );
        assert_repeats_are_bounded(&repeated, bound, batch, &kills);
        let pending = server.counter("orders", subscription, "pending");
        let matched = server.counter("orders", subscription, "matched");
        assert_eq!(
            (pending, server.counter("orders", subscription, "delivered")),
            (0, matched),
            "{path}"
        );
    }
    assert!(
        acknowledged.len() > 20 * 50,
        "there was a load: {}",
        acknowledged.len()
    );
    server.kill_9();
    server.assert_sound();
}

fn assert_repeats_are_bounded(
    repeated: &[Timestamp],
    bound: usize,
    batch: u32,
    kills: &[(Timestamp, Timestamp)],
) {
    for at in repeated {
        assert!(
            is_in_flight(*at, kills),
            "an event was repeated though its answer was durable: {at} {kills:?}"
        );
    }
    assert!(
        repeated.len() <= bound,
        "{} repeated, {bound} in flight",
        repeated.len()
    );
    // The requests in flight, and as many again whose outcomes are not yet on disk.
    let places = kills.len() * CONCURRENCY * batch as usize;
    assert!(
        repeated.len() <= 2 * places,
        "{} repeated, {places} places",
        repeated.len()
    );
}

#[test]
fn every_acknowledged_event_of_each_shard_survives_kills_under_load() {
    let _rows = crate::spec::shows(&[
        "S004-006: An event processor receives events from several partitions at the same time.",
        "S004-010: The partitioned consumer pattern supports end-to-end parallelism.",
        "S004-028: The processor is designed to process the events of all partitions of an event \
         hub.",
        "S004-070: Each call to the function that processes events delivers from one specific \
         partition.",
        "S004-104: Events of different partitions can be processed concurrently.",
    ]);
    let mut server = Server::start(&[("JOURNAL__SHARDS", "4")]);
    let sink = Sink::start();
    let topics = ["one", "two", "three", "four", "five"];
    let loads = topics.map(|topic| {
        let key = server.topic(topic, "EventGridSchema");
        server.subscribe(
            topic,
            "hook",
            &SubscriptionSpec::new(&sink.url(&format!("/{topic}"))).batch(BATCH),
        );
        let pause = Duration::from_millis(15);
        let rate = Rate {
            topic: topic.to_owned(),
            key,
            publishers: 1,
            events_per_request: 5,
            pause,
        };
        Load::start(server.address(), &rate)
    });
    for kill in 0..many(4, 100) {
        for (at, topic) in topics.iter().enumerate() {
            let behavior = if (kill + at).is_multiple_of(2) {
                Behavior::Respond(200)
            } else {
                Behavior::Respond(503)
            };
            sink.set(&format!("/{topic}"), behavior);
        }
        let before = loads.each_ref().map(Load::acknowledged);
        wait_for("all publishers to be served", LONG, || {
            loads
                .iter()
                .zip(before)
                .all(|(load, before)| load.acknowledged() > before + 20)
        });
        server.kill_9();
        if kill % 3 == 0 {
            server.assert_sound();
        }
        server.restart();
        loads.iter().for_each(|load| load.turn_to(server.address()));
    }
    // All at once: an endpoint that refuses meanwhile would be left alone for minutes.
    topics
        .iter()
        .for_each(|topic| sink.set(&format!("/{topic}"), Behavior::Respond(200)));
    for (topic, acknowledged) in topics.iter().zip(loads.map(Load::stop)) {
        end_waits(&server, topic, "hook");
        wait_until_settled(&server, topic, "hook");
        assert_arrived(&sink, &format!("/{topic}"), &acknowledged);
    }
    server.terminate();
    server.assert_sound();
}

/// Whether a response at that time may not have been durable at one of the kills.
fn is_in_flight(answered: Timestamp, kills: &[(Timestamp, Timestamp)]) -> bool {
    age(answered, kills) <= DURABLE
}

/// How long before the next kill a response came; the maximum if no kill followed.
fn age(answered: Timestamp, kills: &[(Timestamp, Timestamp)]) -> Duration {
    let next = kills.iter().find(|(_, to)| to.after(IN_HAND) >= answered);
    next.map_or(Duration::MAX, |(from, _)| from.since(answered))
}

/// The number of events at the endpoint for which this may be the case.
fn in_flight(sink: &Sink, path: &str, kills: &[(Timestamp, Timestamp)]) -> usize {
    sink.look(path, |ledger| {
        ledger
            .values()
            .flatten()
            .filter(|arrival| arrival.is_taken() && is_in_flight(arrival.answered, kills))
            .count()
    })
}

#[test]
fn events_published_while_the_endpoint_was_down_survive_kills_and_arrive_once() {
    let _rows = crate::spec::shows(&[
        "S004-102: Further events and calls from the same partition queue up in the background \
         while the event function runs.",
    ]);
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(BATCH),
    );
    sink.set("/hook", Behavior::Dead);
    let pause = Duration::from_millis(10);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 20,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for _ in 0..5 {
        let before = load.acknowledged();
        wait_for("publishers to be served", LONG, || {
            load.acknowledged() > before + 200
        });
        server.kill_9();
        server.assert_sound();
        server.restart();
        load.turn_to(server.address());
    }
    let acknowledged = load.stop();
    assert_eq!(sink.taken("/hook"), 0);
    sink.set("/hook", Behavior::Respond(200));
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    assert!(
        repeated.is_empty(),
        "{} events were repeated though nothing was in flight",
        repeated.len()
    );
    server.terminate();
    server.assert_sound();
}
