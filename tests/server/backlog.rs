//! A backlog is on the disk, not in memory.

use std::{thread, time::Duration};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    http::Client,
    load,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

/// Publishes events with these numbers, in requests of 1,000.
fn publish(server: &Server, key: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    let mut client = Client::new(server.address());
    let ids: Vec<String> = numbers.map(|number| number.to_string()).collect();
    for ids in ids.chunks(1000) {
        let response = client.ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", key)],
            &load::body(ids, "/a"),
        );
        let response = response.expect("a publisher is answered");
        assert_eq!(response.status, 200, "{}", response.text());
    }
    ids
}

#[test]
fn a_backlog_needs_little_memory_and_no_time_at_a_restart() {
    // The last 8 MiB of the log are not measured.
    let mut server = Server::start(&[("TOPIC__RECENT_EVENTS_BYTES", "8 MiB")]);
    let sink = Sink::start();
    // The duration of a start on this machine.
    server.kill_9();
    let empty = server.restart();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(100),
    );
    sink.set("/hook", Behavior::Dead);
    let count = many(200_000, 2_000_000);
    let mut ids = publish(&server, &key, 0..10_000);
    wait_for("the suspension", LONG, || {
        server.status("orders", "hook")["health"]["state"] == "suspended"
    });
    let before = server.resident();
    ids.extend(publish(&server, &key, 10_000..count));
    let grown = server.resident().saturating_sub(before);
    let backlog = server.status("orders", "hook")["backlog"]
        .as_u64()
        .expect("a number");
    println!(
        "{count} events: backlog {backlog}, memory grew by {} MiB from {} MiB",
        grown >> 20,
        before >> 20
    );
    assert!(
        backlog > count as u64 * 9 / 10,
        "hardly an event was tried: backlog {backlog}"
    );
    assert!(grown < 100 << 20, "memory grew by {grown} bytes");

    server.kill_9();
    let ready = server.restart();
    println!("ready after {ready:?}, without events after {empty:?}");
    assert!(
        ready < 4 * empty + Duration::from_secs(2),
        "ready after {ready:?}, without events after {empty:?}"
    );
    sink.set("/hook", Behavior::Respond(200));
    let from = sink.now();
    wait_for("all events", 10 * LONG, || sink.taken("/hook") == count);
    println!(
        "arrived after {:?}, memory {} MiB",
        sink.now().since(from),
        server.resident() >> 20
    );
    wait_until_settled(&server, "orders", "hook");
    assert!(
        assert_arrived(&sink, "/hook", &ids).is_empty(),
        "nothing arrived twice"
    );
    assert_eq!(server.counter("orders", "hook", "delivered"), count as u64);
}

#[test]
fn a_server_whose_endpoint_hangs_waits_without_spinning() {
    let _rows = crate::spec::shows(&[
        "S004-103: The event pump goes on running in the background on other threads while the \
         event function runs.",
    ]);
    for batch in [1, 7] {
        let server = Server::start(&[("DELIVERY__CONCURRENCY", "4")]);
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new(&sink.url("/hook")).batch(batch),
        );
        // Never ten failures in a row, nor every second one.
        sink.set(
            "/hook",
            Behavior::Statuses([503, 200, 200].repeat(100).into()),
        );
        publish(&server, &key, 0..500);
        wait_for("failures", LONG, || sink.taken("/hook") > 50);
        sink.set("/hook", Behavior::Hang);
        publish(&server, &key, 500..2000);
        wait_for("every place to be taken", LONG, || {
            let status = server.status("orders", "hook");
            status["inFlight"] == status["endpoint"]["concurrency"]
        });
        // Longer than the waits: everything that failed is due, and there is no place for it.
        thread::sleep(Duration::from_millis(500));
        let before = server.processor();
        thread::sleep(Duration::from_secs(1));
        let spent = server.processor() - before;
        println!("{spent:?} of processor time in a second, batches of {batch}");
        let status = server.status("orders", "hook");
        // As many as it has places for after its failures.
        assert_eq!(
            status["inFlight"], status["endpoint"]["concurrency"],
            "{status}"
        );
        assert!(
            (1..=4).contains(&status["inFlight"].as_u64().expect("a number")),
            "{status}"
        );
        assert!(
            spent < Duration::from_millis(200),
            "{spent:?} of processor time in a second: {status}"
        );
    }
}

#[test]
fn a_held_subscription_waits_for_its_operator_across_a_restart() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
    );
    publish(&server, &key, 0..10);
    wait_for("the first events", LONG, || sink.taken("/hook") == 10);
    server.post_verb("orders", "hook", "hold");
    assert_eq!(server.status("orders", "hook")["heldBy"], "operator");
    publish(&server, &key, 10..500);
    server.kill_9();
    server.restart();
    publish(&server, &key, 500..1000);
    thread::sleep(Duration::from_millis(300));
    let status = server.status("orders", "hook");
    assert_eq!(
        (&status["heldBy"], &status["backlog"]),
        (&"operator".into(), &990.into()),
        "{status}"
    );
    assert_eq!(sink.taken("/hook"), 10, "nothing is sent while it is held");
    server.post_verb("orders", "hook", "resume");
    wait_for("the rest", LONG, || sink.taken("/hook") == 1000);
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(server.counter("orders", "hook", "delivered"), 1000);
}
