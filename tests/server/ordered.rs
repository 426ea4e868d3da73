//! Order by key: the events of a key arrive one after the other, whatever fails and however often the server is killed.

use std::{collections::VecDeque, thread, time::Duration};

use gridhook::event::Timestamp;
use serde_json::json;

use super::{many, wait_until_settled};
use crate::support::{
    load,
    server::{Server, SubscriptionSpec},
    sink::{Behavior, Sink},
};

const KEYS: usize = 12;

/// Of each key the pairs of events that arrived for the first time in the wrong order.
fn disorder(sink: &Sink, path: &str, published: usize) -> usize {
    sink.look(path, |ledger| {
        let first = |key: usize, number: usize| -> Timestamp {
            let arrivals = ledger.get(&format!("{key}-{number}")).expect("it arrived");
            arrivals.iter().map(|arrival| arrival.at).min().expect("it arrived")
        };
        let of_key =
            |key: usize| (1..published).filter(move |number| first(key, *number) < first(key, number - 1)).count();
        (0..KEYS).map(of_key).sum()
    })
}

#[test]
fn events_of_a_key_arrive_in_order_though_requests_fail_and_the_server_is_killed() {
    let (mut server, sink) = (Server::start(&[]), Sink::start());
    let key = server.topic("orders", "EventGridSchema");
    let ordered = json!({"ordering": {"key": "subject"}});
    server.subscribe("orders", "alone", &SubscriptionSpec::of(&sink.url("/alone")).also(&json!({}), &ordered));
    server.subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::of(&sink.url("/batched")).batch(5).also(&json!({}), &ordered),
    );
    server.subscribe("orders", "unordered", &SubscriptionSpec::of(&sink.url("/unordered")));
    let mut dice = fastrand::Rng::with_seed(19);
    let mut published = 0;
    for _ in 0..many(6, 60) {
        for path in ["/alone", "/batched", "/unordered"] {
            let statuses: VecDeque<u16> = (0..60).map(|_| if dice.u8(..4) == 0 { 503 } else { 200 }).collect();
            sink.set(path, Behavior::Statuses(statuses));
        }
        for _ in 0..10 {
            for subject in 0..KEYS {
                server.publish("orders", &key, &load::body(&[format!("{subject}-{published}")], &subject.to_string()));
            }
            published += 1;
        }
        thread::sleep(Duration::from_millis(dice.u64(1..50)));
        server.kill_9();
        server.assert_sound();
        server.restart();
    }
    for path in ["/alone", "/batched", "/unordered"] {
        sink.set(path, Behavior::Answer(200));
    }
    for (subscription, path) in [("alone", "/alone"), ("batched", "/batched"), ("unordered", "/unordered")] {
        wait_until_settled(&server, "orders", subscription);
        let wrong = disorder(&sink, path, published);
        println!("{path}: {wrong} of {} events arrived before an earlier one of their key", published * KEYS);
        assert_eq!(wrong > 0, path == "/unordered", "{path}: {wrong}");
    }
    let order = &server.status("orders", "alone")["order"];
    assert_eq!(
        (&order["blockedKeys"], &order["heldBackEvents"], &order["orderedEvents"]),
        (&json!(0), &json!(0), &json!(0))
    );
    server.terminate();
    server.assert_sound();
}
