//! An endpoint that refused connections receives fresh events within seconds of its return,
//! whatever backlog it has.

use std::{thread, time::Duration};

use serde_json::json;

use super::{LONG, many};
use crate::support::{
    load,
    port::ReservedPort,
    server::{Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

/// How long after its return the first fresh event is at the endpoint, with so many others that
/// wait for it, where it is down for `down` after the server was killed and started again.
fn first_fresh(
    server: &mut Server,
    key: &str,
    number: usize,
    events: usize,
    down: Duration,
) -> Duration {
    let (port, name) = (ReservedPort::new(), format!("hook-{number}"));
    server.subscribe(
        "orders",
        &name,
        &SubscriptionSpec::of(&format!("http://{}/hook", port.address)),
    );
    for part in 0..events / 500 {
        let ids: Vec<String> = (0..500)
            .map(|event| format!("old-{number}-{part}-{event}"))
            .collect();
        server.publish("orders", key, &load::body(&ids, "/a"));
    }
    wait_for("the endpoint to be suspended", LONG, || {
        server.status("orders", &name)["health"]
            .to_string()
            .to_lowercase()
            .contains("suspended")
    });
    server.kill_9();
    server.restart();
    thread::sleep(down);
    let sink = Sink::on(port);
    let back = sink.now();
    let fresh = format!("fresh-{number}");
    server.publish(
        "orders",
        key,
        &load::body(std::slice::from_ref(&fresh), "/a"),
    );
    wait_for("the fresh event", LONG, || {
        sink.look("/hook", |ledger| ledger.contains_key(&fresh))
    });
    let took = sink.look("/hook", |ledger| ledger[&fresh][0].at.since(back));
    let before = sink.look("/hook", |ledger| ledger.len());
    println!(
        "{events} events wait, {down:.1?} down: the first fresh event came {took:.2?} after the \
         return; {before} in all by then"
    );
    // Once is enough to show that all arrive.
    if down.is_zero() {
        wait_for("all of them", 5 * LONG, || sink.taken("/hook") >= events);
    }
    server.unsubscribe("orders", &name);
    took
}

#[test]
fn an_endpoint_that_is_back_has_fresh_events_within_seconds_after_a_kill_too() {
    let mut server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("PUBLISH__EVENTS_PER_SECOND", "0"),
    ]);
    let key = server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
    );
    let events = many(5_000, 100_000);
    let downs = [
        Duration::ZERO,
        Duration::from_millis(1500),
        Duration::from_secs(4),
    ];
    let took: Vec<Duration> = downs
        .iter()
        .enumerate()
        .map(|(number, down)| first_fresh(&mut server, &key, number, events, *down))
        .collect();
    // Two seconds, and what a busy machine adds. A probe at its usual time, and a backlog in front,
    // take longer than a minute.
    assert!(
        took.iter().all(|took| *took < Duration::from_secs(20)),
        "{took:?}"
    );
}
