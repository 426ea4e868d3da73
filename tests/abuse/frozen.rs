//! A server that is stopped for a while under load (SIGSTOP), as by a debugger or on an overloaded
//! host.

use std::{thread, time::Duration};

use serde_json::Value;

use super::LONG;
use crate::{
    server::{assert_arrived, many, wait_until_settled},
    support::{
        load::{Load, Rate},
        server::{Server, SubscriptionSpec, wait_for},
        sink::{Behavior, Sink},
    },
};

/// In one request.
const BATCH: u32 = 10;

/// Requests at once.
const CONCURRENCY: usize = 16;

/// An outcome that came so long before the stop is on disk.
const DURABLE: Duration = Duration::from_millis(300);

#[test]
fn a_server_that_stood_still_goes_on_and_loses_nothing() {
    // All requests in flight have timed out when the server continues.
    let concurrency = CONCURRENCY.to_string();
    let settings = [
        ("DELIVERY__RESPONSE_TIMEOUT", "2s"),
        ("DELIVERY__LATE_TIMEOUT", "2s"),
        ("DELIVERY__CONCURRENCY", concurrency.as_str()),
    ];
    let still = Duration::from_secs(many(4, 60) as u64);
    let mut server = Server::start(&settings);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    for name in ["hook", "pending"] {
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))).batch(BATCH),
        );
    }
    sink.set("/hook", Behavior::Slow(Duration::from_millis(30), 200));
    sink.set("/pending", Behavior::Respond(503));
    let pause = Duration::from_millis(10);
    let load = Load::start(
        server.address(),
        &Rate {
            topic: "orders".to_owned(),
            key,
            publishers: 3,
            events_per_request: 10,
            pause,
        },
    );
    wait_for("publishers to be served", LONG, || {
        load.acknowledged() > 500
    });

    let from = sink.now();
    server.signal("STOP");
    // Read what the server had sent by then.
    thread::sleep(Duration::from_millis(500));
    let seen = || {
        (
            load.acknowledged(),
            sink.look("/hook", |ledger| {
                ledger.values().map(Vec::len).sum::<usize>()
            }),
        )
    };
    let before = seen();
    thread::sleep(still);
    assert_eq!(seen(), before, "it stood still");
    server.signal("CONT");

    wait_for("publishers to be served again", LONG, || {
        load.acknowledged() > before.0 + 500
    });
    let clock = server.command("GET", "/clock", &Value::Null).json();
    let ahead = clock["wallClockAheadSeconds"].as_f64().expect("a number");
    assert!(
        clock["expiryPaused"] == false && ahead.abs() < 1.0,
        "{clock}"
    );
    sink.set("/pending", Behavior::Respond(200));
    let acknowledged = load.stop();
    for name in ["hook", "pending"] {
        wait_until_settled(&server, "orders", name);
        let repeated = assert_arrived(&sink, &format!("/{name}"), &acknowledged);
        println!(
            "{name}: {} acknowledged, {still:?} still, {} repeated",
            acknowledged.len(),
            repeated.len()
        );
        assert!(
            repeated.len() <= CONCURRENCY * BATCH as usize,
            "{} repeated",
            repeated.len()
        );
        let old = repeated
            .iter()
            .filter(|answered| **answered < from.before(DURABLE))
            .count();
        assert_eq!(old, 0, "an event was repeated that was not in flight");
        let matched = server.counter("orders", name, "matched");
        assert_eq!(
            server.counter("orders", name, "delivered"),
            matched,
            "{name}"
        );
    }
    server.terminate();
    server.assert_sound();
}
