//! Many subscriptions that are behind after a crash: they read in turns, and memory stays bounded.

use std::time::Duration;

use super::LONG;
use crate::support::{
    load,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Subscriptions; as many as are made in some seconds.
const SUBSCRIPTIONS: usize = 200;

/// Each reads half a MiB of the log at a time where nothing bounds that: 100 MiB for all of them.
const ENOUGH: u64 = 60 << 20;

#[test]
fn many_that_are_behind_after_a_crash_share_what_may_be_read() {
    let sink = Sink::start();
    let settings = [
        ("DELIVERY__CONCURRENCY", "1"),
        ("LIMITS__READ_BYTES", "8 MiB"),
        ("TOPIC__RECENT_EVENTS_BYTES", "1 MiB"),
        ("PUBLISH__EVENTS_PER_SECOND", "0"),
        ("PUBLISH__BYTES_PER_SECOND", "0"),
    ];
    let mut server = Server::start(&settings);
    let key = server.topic("orders", "EventGridSchema");
    let path = |number: usize| format!("/hook/{number}");
    for number in 0..SUBSCRIPTIONS {
        server.subscribe("orders", &format!("hook-{number}"), &SubscriptionSpec::of(&sink.url(&path(number))));
        sink.set(&path(number), Behavior::Hang);
        server.operate("orders", &format!("hook-{number}"), "hold");
    }
    let pad = "/".repeat(2_000);
    for request in 0..20 {
        let ids: Vec<String> = (0..100).map(|number| format!("{request}-{number}")).collect();
        server.publish("orders", &key, &load::body(&ids, &pad));
    }
    for number in 0..SUBSCRIPTIONS {
        server.operate("orders", &format!("hook-{number}"), "resume");
    }
    server.kill_9();
    server.restart();
    wait_for("a request of each", LONG, || (0..SUBSCRIPTIONS).all(|number| !sink.heads(&path(number)).is_empty()));
    let before = server.resident();
    std::thread::sleep(Duration::from_millis(50));
    println!("{SUBSCRIPTIONS} that are behind: {} MiB, {} MiB at most", before >> 20, server.most_resident() >> 20);
    assert!(server.most_resident() < ENOUGH + (100 << 20), "{} MiB", server.most_resident() >> 20);
}
