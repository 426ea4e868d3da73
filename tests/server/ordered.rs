//! Order by key: the events of a key arrive one after the other, whatever fails and however often
//! the server is killed.

use std::{collections::VecDeque, thread, time::Duration};

use gridhook::event::Timestamp;
use serde_json::json;

use super::{LONG, many, wait_until_settled};
use crate::support::{
    load,
    server::{self, Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

const KEYS: usize = 12;

/// Of each key the pairs of events that arrived, or were taken, for the first time in the wrong
/// order.
fn disorder(sink: &Sink, path: &str, published: usize) -> usize {
    sink.look(path, |ledger| {
        let first = |key: usize, number: usize, taken: bool| -> Timestamp {
            let arrivals = ledger.get(&format!("{key}-{number}")).expect("it arrived");
            let counted = arrivals
                .iter()
                .filter(|arrival| !taken || arrival.is_taken());
            counted.map(|arrival| arrival.at).min().expect("it arrived")
        };
        let is_early =
            |key, number, taken| first(key, number, taken) < first(key, number - 1, taken);
        let pairs = (0..KEYS).flat_map(|key| (1..published).map(move |number| (key, number)));
        pairs
            .filter(|(key, number)| {
                [false, true]
                    .iter()
                    .any(|taken| is_early(*key, *number, *taken))
            })
            .count()
    })
}

#[test]
fn events_of_a_key_arrive_in_order_though_requests_fail_and_the_server_is_killed() {
    let _rows = crate::spec::shows(&[
        "S004-101: By default the function that processes events is called sequentially for a \
         given partition.",
    ]);
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let ordered = json!({"ordering": {"key": "subject"}});
    server.subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::new(&sink.url("/alone")).also(&json!({}), &ordered),
    );
    server.subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched"))
            .batch(5)
            .also(&json!({}), &ordered),
    );
    // Events that fail wait so long that later ones of their key pass them on any machine.
    let slow = json!({"retryPolicy": {"schedule": ["3s"]}});
    server.subscribe(
        "orders",
        "unordered",
        &SubscriptionSpec::new(&sink.url("/unordered")).also(&json!({}), &slow),
    );
    let mut dice = fastrand::Rng::with_seed(19);
    let mut published = 0;
    for _ in 0..many(6, 60) {
        for path in ["/alone", "/batched", "/unordered"] {
            let statuses: VecDeque<u16> = (0..60)
                .map(|_| if dice.u8(..4) == 0 { 503 } else { 200 })
                .collect();
            sink.set(path, Behavior::Statuses(statuses));
        }
        for _ in 0..10 {
            for subject in 0..KEYS {
                server.publish(
                    "orders",
                    &key,
                    &load::body(&[format!("{subject}-{published}")], &subject.to_string()),
                );
            }
            published += 1;
        }
        thread::sleep(Duration::from_millis(dice.u64(1..50)));
        server.kill_9();
        server.assert_sound();
        server.restart();
    }
    for path in ["/alone", "/batched", "/unordered"] {
        sink.set(path, Behavior::Respond(200));
    }
    for (subscription, path) in [
        ("alone", "/alone"),
        ("batched", "/batched"),
        ("unordered", "/unordered"),
    ] {
        wait_until_settled(&server, "orders", subscription);
        let wrong = disorder(&sink, path, published);
        println!(
            "{path}: {wrong} of {} events arrived before an earlier one of their key",
            published * KEYS
        );
        assert_eq!(wrong > 0, path == "/unordered", "{path}: {wrong}");
    }
    let order = &server.status("orders", "alone")["order"];
    assert_eq!(
        (
            &order["holdingKeys"],
            &order["heldBackEvents"],
            &order["orderedEvents"]
        ),
        (&json!(0), &json!(0), &json!(0))
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn an_event_that_is_given_up_blocks_its_key_until_an_operator_decides_also_after_kills() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let ordered = json!({"ordering": {"key": "subject", "onFailure": "block"}});
    let spec = SubscriptionSpec::new(&sink.url("/hook"))
        .dead_letters("letters")
        .also(&json!({}), &ordered);
    let path = subscription("orders", "hook");
    let topic = path.split("/eventSubscriptions/").next().expect("a topic");
    server.subscribe("orders", "hook", &spec);
    let publish = |server: &Server, ids: &[&str]| {
        for id in ids {
            server.publish("orders", &key, &load::body(&[(*id).to_owned()], &id[..1]));
        }
    };
    let arrived = |id: &str| sink.look("/hook", |ledger| ledger.contains_key(id));
    let order = |server: &Server| server.status("orders", "hook")["order"].clone();
    let is_blocked = |server: &Server| order(server)["blockedKeys"] == 1;
    let says = |server: &Server, arguments: &[&str]| {
        server::operator(server, arguments)
            .unwrap_or_else(|refusal| panic!("{arguments:?}: {refusal}"))
    };
    sink.set("/hook", Behavior::Respond(400));
    publish(&server, &["a1"]);
    wait_for("the key to be blocked", LONG, || is_blocked(&server));
    sink.set("/hook", Behavior::Respond(200));
    publish(&server, &["a2", "b1", "a3", "b2"]);
    for _ in 0..many(2, 20) {
        wait_for("the other key to go on", LONG, || arrived("b2"));
        server.kill_9();
        server.assert_sound();
        server.restart();
        wait_for("the key to be blocked again", LONG, || {
            is_blocked(&server) && order(&server)["heldBackEvents"] == 2
        });
    }
    assert!(!arrived("a2") && !arrived("a3"));
    assert_eq!(server.counter("orders", "hook", "deadLettered"), 0);
    assert_eq!(order(&server)["firstBlockingSequence"], 1);
    let explained = says(&server, &["explain", topic, "hook", "1", "--sequence"]);
    assert!(
        explained.contains("blocks its order key after BadRequest"),
        "{explained}"
    );
    let metrics = server.admin("GET", "/metrics", &json!(null)).text();
    assert!(
        metrics.contains("gridhook_subscription_blocked_keys{") && metrics.contains("\"} 1"),
        "{metrics}"
    );

    let refusal = server::operator(&server, &["subscriptions", "unblock", topic, "hook", "b"])
        .expect_err("b goes on");
    assert!(refusal.contains("no event blocks this key"), "{refusal}");
    says(&server, &["subscriptions", "unblock", topic, "hook", "a"]);
    wait_until_settled(&server, "orders", "hook");
    assert!(arrived("a2") && arrived("a3"));
    assert_eq!(
        server.counter("orders", "hook", "deadLettered"),
        1,
        "the event that blocked"
    );
    assert_eq!(order(&server)["blockedKeys"], 0);

    // With another attempt instead, nothing is given up.
    sink.set("/hook", Behavior::Respond(400));
    publish(&server, &["c1"]);
    wait_for("the key to be blocked", LONG, || is_blocked(&server));
    publish(&server, &["c2"]);
    // The decision is on disk before the response, also if its attempt has no outcome.
    sink.set("/hook", Behavior::Hang);
    says(
        &server,
        &[
            "subscriptions",
            "unblock",
            topic,
            "hook",
            "--all",
            "--retry",
        ],
    );
    server.kill_9();
    server.assert_sound();
    sink.set("/hook", Behavior::Respond(200));
    server.restart();
    wait_until_settled(&server, "orders", "hook");
    assert!(arrived("c2"));
    assert_eq!(server.counter("orders", "hook", "deadLettered"), 1);
    let audited = says(&server, &["audit", "--search", "/unblock"]);
    assert!(audited.contains("retry"), "{audited}");
    server.terminate();
    server.assert_sound();
}
