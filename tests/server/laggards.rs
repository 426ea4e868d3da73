//! Many subscriptions that are behind after a crash: they read in turns, and memory stays bounded.

use std::{sync::Arc, time::Duration};

use gridhook::{
    clock::Clock, control::registry::ChangeBasis, event::Schema, policy::filter::Filter,
    record::subscription::SubscriptionRecord,
};
use serde_json::json;

use super::{LONG, in_store, many};
use crate::support::{
    load,
    port::ReservedPort,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Subscriptions; as many as are made in some seconds.
const SUBSCRIPTIONS: usize = 200;

/// Each reads half a MiB of the log at a time where nothing bounds that: 100 MiB for all of them.
const ENOUGH: u64 = 60 << 20;

/// Few events are kept in memory, so that they are read from the log.
const SETTINGS: [(&str, &str); 5] = [
    ("DELIVERY__CONCURRENCY", "1"),
    ("LIMITS__READ_BYTES", "8 MiB"),
    ("TOPIC__RECENT_EVENTS_BYTES", "1 MiB"),
    ("PUBLISH__EVENTS_PER_SECOND", "0"),
    ("PUBLISH__BYTES_PER_SECOND", "0"),
];

#[test]
fn many_that_are_behind_after_a_crash_share_what_may_be_read() {
    let sink = Sink::start();
    let mut server = Server::start(&SETTINGS);
    let key = server.topic("orders", "EventGridSchema");
    let path = |number: usize| format!("/hook/{number}");
    for number in 0..SUBSCRIPTIONS {
        server.subscribe(
            "orders",
            &format!("hook-{number}"),
            &SubscriptionSpec::new(&sink.url(&path(number))),
        );
        sink.set(&path(number), Behavior::Hang);
        server.post_verb("orders", &format!("hook-{number}"), "hold");
    }
    let pad = "/".repeat(2_000);
    for request in 0..20 {
        let ids: Vec<String> = (0..100)
            .map(|number| format!("{request}-{number}"))
            .collect();
        server.publish("orders", &key, &load::body(&ids, &pad));
    }
    for number in 0..SUBSCRIPTIONS {
        server.post_verb("orders", &format!("hook-{number}"), "resume");
    }
    server.kill_9();
    server.restart();
    wait_for("a request of each", LONG, || {
        (0..SUBSCRIPTIONS).all(|number| !sink.heads(&path(number)).is_empty())
    });
    let before = server.resident();
    std::thread::sleep(Duration::from_millis(50));
    println!(
        "{SUBSCRIPTIONS} that are behind: {} MiB, {} MiB at most",
        before >> 20,
        server.most_resident() >> 20
    );
    assert!(
        server.most_resident() < ENOUGH + (100 << 20),
        "{} MiB",
        server.most_resident() >> 20
    );
}

#[test]
fn thousands_that_are_behind_after_a_crash_read_within_the_common_budget() {
    let laggards = many(1_000, 10_000);
    let mut server = Server::start(&SETTINGS);
    let key = server.topic_of(
        "orders",
        &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
    );
    server.terminate();
    // No listener is there, so that they need no connection each.
    let nobody = ReservedPort::new();
    let endpoint = format!("http://{}/", nobody.address);
    in_store(&server, Clock::system(), async |registry, _| {
        let puts = (0..laggards).map(|number| {
            let registry = Arc::clone(&registry);
            let record = record(&format!("hook-{number}"), &endpoint);
            async move {
                registry
                    .put_subscription("orders", record, ChangeBasis::Any)
                    .await
                    .expect("it is put")
            }
        });
        futures_util::future::join_all(puts).await;
    });
    server.restart();
    let idle = server.resident();
    let pad = "/".repeat(2_000);
    for request in 0..20 {
        let ids: Vec<String> = (0..100)
            .map(|number| format!("{request}-{number}"))
            .collect();
        server.publish("orders", &key, &load::body(&ids, &pad));
    }
    server.kill_9();
    server.restart();
    // One in fifty stands for all: they have their turns in a row.
    for number in (0..laggards).step_by(50) {
        let name = format!("hook-{number}");
        wait_for(&name, LONG, || {
            server.status("orders", &name)["counters"]["requestsFailed"].as_u64() > Some(0)
        });
    }
    let most = server.most_resident();
    println!(
        "{laggards} that are behind: {} MiB while idle, {} MiB at most",
        idle >> 20,
        most >> 20
    );
    // Each that read half a MiB without a common bound: 500 MiB of a thousand.
    let bound = idle + (200 << 20) + laggards as u64 * (32 << 10);
    assert!(
        most < bound,
        "{} MiB, {} MiB while idle",
        most >> 20,
        idle >> 20
    );
}

fn record(name: &str, endpoint: &str) -> SubscriptionRecord {
    let json = json!({
        "number": 0, "version": 0, "name": name,
        "webhook": {"endpoint_url": endpoint, "max_events_per_batch": 1, "preferred_batch_size_in_kilobytes": 64},
        "filter": serde_json::to_value(Filter::default()).expect("a record"),
        "delivery_schema": serde_json::to_value(Schema::EventGrid).expect("a record"),
        "retry": {"max_delivery_attempts": 30, "event_time_to_live_in_minutes": 1440},
        "dead_letter": null, "labels": [],
    });
    serde_json::from_value(json).expect("a record")
}
