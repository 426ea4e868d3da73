//! An idle server lets the processor sleep.

use std::{thread, time::Duration};

use super::LONG;
use crate::support::{
    load, process,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};
use gridhook::clock::Clock;

/// How often the threads of an idle server may wake in a second, all together. It wakes twice, and
/// one more timer of a second would be too much.
const WAKES: f64 = 2.8;

/// How long they are watched.
const WINDOW: Duration = Duration::from_secs(5);

#[test]
fn a_server_that_has_delivered_seldom_wakes() {
    let sink = Sink::start();
    let settings = [
        ("SERVER__WORKERS", "2"),
        ("DELIVERY__IDLE_CONNECTION_TIMEOUT", "1s"),
    ];
    let server = Server::start(&settings);
    let key = server.topic("orders", "EventGridSchema");
    let spec = SubscriptionSpec::new(&sink.url("/billing"));
    server.subscribe("orders", "billing", &spec);
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    wait_for("the delivery", LONG, || sink.taken("/billing") == 1);
    let mut rates = Vec::new();
    // The actors end, and the connections close.
    wait_for("threads that sleep", LONG, || {
        let rate = wakes_per_second(server.id());
        rates.push(rate);
        println!("{rates:?}");
        rate <= WAKES
    });
}

/// Counted and not timed: a busy machine delays wakes, and does not add any.
fn wakes_per_second(server: u32) -> f64 {
    let clock = Clock::system();
    let began = clock.now();
    let before = process::waits(server);
    thread::sleep(WINDOW);
    let after = process::waits(server);
    let wakes: u64 = after
        .iter()
        .map(|(thread, count)| count - before.get(thread).unwrap_or(&0))
        .sum();
    wakes as f64 / clock.now().since(began).as_secs_f64()
}
