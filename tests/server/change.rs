//! Subscriptions that are created, changed and deleted under load.

use std::{collections::HashSet, thread, time::Duration};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

#[test]
fn a_subscription_that_is_deleted_and_made_anew_gets_new_events_only() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let publish = |id: String| server.publish("orders", &key, &load::body(&[id], "/a"));
    sink.set("/hook", Behavior::Respond(503));
    for round in 0..many(10, 200) {
        server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
        sink.set("/hook", Behavior::Respond(503));
        publish(format!("old-{round}"));
        wait_for("an attempt", LONG, || {
            sink.ledger("/hook").contains_key(&format!("old-{round}"))
        });
        server.unsubscribe("orders", "hook");
        // Nobody asks for it.
        publish(format!("nobody-{round}"));
        sink.set("/hook", Behavior::Respond(200));
        server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
        publish(format!("new-{round}"));
        wait_for("the new event", LONG, || {
            sink.look("/hook", |ledger| {
                ledger
                    .get(&format!("new-{round}"))
                    .is_some_and(|arrivals| arrivals.iter().any(|one| one.is_taken()))
            })
        });
        wait_until_settled(&server, "orders", "hook");
        assert_eq!(
            server.counter("orders", "hook", "matched"),
            1,
            "the new one has counters of its own"
        );
        server.unsubscribe("orders", "hook");
    }
    // Longer than any wait of the edition: what was pending for the deleted ones would have been
    // tried again.
    thread::sleep(Duration::from_millis(1200));
    let taken: Vec<String> = sink.look("/hook", |ledger| {
        let taken = ledger
            .iter()
            .filter(|(_, arrivals)| arrivals.iter().any(|arrival| arrival.is_taken()));
        taken.map(|(id, _)| id.clone()).collect()
    });
    assert!(taken.iter().all(|id| id.starts_with("new-")), "{taken:?}");
}

#[test]
fn a_subscription_that_is_made_under_load_gets_everything_after_it() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let pause = Duration::from_millis(2);
    let rate = Rate {
        topic: "orders".to_owned(),
        key: key.clone(),
        publishers: 3,
        events_per_request: 1,
        pause,
    };
    for round in 0..many(20, 300) {
        let name = format!("hook-{round}");
        let path = format!("/{name}");
        let load = Load::start(server.address(), &rate);
        wait_for("a load", LONG, || load.acknowledged() > 10);
        server.subscribe(
            "orders",
            &name,
            &SubscriptionSpec::new(&sink.url(&path)).batch(100),
        );
        let before = load.acknowledged();
        wait_for("more load", LONG, || load.acknowledged() > before + 10);
        let acknowledged = load.stop();
        // The next response to each publisher may already be on its way. An event that is sent
        // after it must arrive, although no event follows it.
        let mut on_its_way = HashSet::new();
        let after = acknowledged[before..]
            .iter()
            .filter(|id| !on_its_way.insert(id.split('-').next()));
        let after: Vec<String> = after.cloned().collect();
        wait_for("what came after", LONG, || {
            sink.look(&path, |ledger| {
                after.iter().all(|id| ledger.contains_key(id))
            })
        });
        wait_until_settled(&server, "orders", &name);
        assert_eq!(
            server.counter("orders", &name, "matched"),
            sink.taken(&path) as u64
        );
        server.unsubscribe("orders", &name);
    }
}

#[test]
fn a_change_of_filter_or_endpoint_under_load_loses_nothing() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let spec = |number: usize| {
        let path = if number.is_multiple_of(2) {
            "/even"
        } else {
            "/odd"
        };
        // Every filter lets all events of the load through.
        let spec = SubscriptionSpec::new(&sink.url(path)).batch(1 + number as u32 % 7);
        if number.is_multiple_of(3) {
            spec.types(&[load::TYPE, "Other"])
        } else {
            spec.prefix("/lo")
        }
    };
    server.subscribe("orders", "hook", &spec(0));
    for path in ["/even", "/odd"] {
        sink.set(path, Behavior::Slow(Duration::from_millis(5), 200));
    }
    let pause = Duration::from_millis(10);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for change in 1..many(30, 600) {
        thread::sleep(Duration::from_millis(50));
        server.subscribe("orders", "hook", &spec(change));
    }
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "hook");
    let even = sink.ledger("/even");
    let odd = sink.ledger("/odd");
    let taken = |id: &String| {
        let arrivals = even.get(id).into_iter().chain(odd.get(id)).flatten();
        arrivals.filter(|arrival| arrival.is_taken()).count()
    };
    let wrong: Vec<_> = acknowledged
        .iter()
        .map(|id| (id, taken(id)))
        .filter(|(_, count)| *count != 1)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} did not arrive once: {wrong:.10?}",
        wrong.len(),
        acknowledged.len()
    );
    assert!(
        !even.is_empty() && !odd.is_empty(),
        "both endpoints were served"
    );
    assert_arrived(&sink, "/even", &[]);
}
