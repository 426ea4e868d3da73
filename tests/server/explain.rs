//! `gridhook explain` on the real server.

use std::{collections::VecDeque, time::Duration};

use serde_json::{Value, json};

use super::{
    LONG,
    pull::{Consumer, RG, publish as publish_pulled, start},
    wait_until_settled,
};
use crate::support::{
    load,
    server::{Server, SubscriptionSpec, operator, wait_for},
    sink::{Behavior, Sink},
};

fn explain(server: &Server, query: &str) -> Value {
    let subscription = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders/eventSubscriptions";
    server
        .admin(
            "GET",
            &format!("{subscription}/hook/explain?{query}"),
            &Value::Null,
        )
        .json()
}

fn publish(server: &Server, key: &str, ids: &[&str], subject: &str) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    server.publish("orders", key, &load::body(&ids, subject));
}

#[test]
fn an_event_is_found_by_its_id_and_by_its_sequence_wherever_it_is() {
    let server = Server::start(&[
        ("DELIVERY__CONCURRENCY", "1"),
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1"),
    ]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook"))
            .prefix("/a")
            .attempts(20)
            .dead_letters("dead"),
    );

    sink.set("/hook", Behavior::Slow(Duration::from_millis(500), 503));
    publish(&server, &key, &["first"], "/a");
    wait_for("a request", LONG, || {
        explain(&server, "id=first")["state"] == "inFlight"
    });
    publish(&server, &key, &["other"], "/b");
    publish(&server, &key, &["second"], "/a");
    let flying = explain(&server, "sequence=1");
    assert_eq!(
        (&flying["id"], &flying["attempt"], &flying["state"]),
        (&json!("first"), &json!(1), &json!("inFlight"))
    );

    wait_for("a failure", LONG, || {
        explain(&server, "id=first")["state"] == "pending"
    });
    server.post_verb("orders", "hook", "hold");
    wait_for("all to have landed", LONG, || {
        server.status("orders", "hook")["inFlight"] == 0
    });
    let pending = explain(&server, "id=first");
    assert_eq!(
        (&pending["state"], &pending["lastStatus"]),
        (&json!("pending"), &json!(503)),
        "{pending}"
    );
    let obstacles = pending["obstacles"].as_array().expect("a list");
    assert!(
        obstacles.contains(&json!({"kind": "held", "by": "operator"})),
        "{pending}"
    );
    let made = pending["attempts"].as_u64().expect("a count");
    let foretold = &pending["forecast"]["attempts"];
    assert_eq!(foretold[0]["number"], made + 1);
    assert_eq!(foretold.as_array().expect("a list").len() as u64, 20 - made);
    assert_eq!(
        pending["forecast"]["end"]["reason"],
        "MaxDeliveryAttemptsExceeded"
    );
    assert_eq!(explain(&server, "id=other")["state"], "filtered");

    let status = server.status("orders", "hook");
    assert_eq!(status["counters"]["pending"], status["counters"]["matched"]);
    publish(&server, &key, &["third"], "/a");
    let waiting = explain(&server, "id=third");
    assert_eq!(
        (&waiting["state"], &waiting["sequence"]),
        (&json!("backlog"), &json!(4)),
        "{waiting}"
    );
    wait_for("a second to pass", LONG, || {
        server.status("orders", "hook")["oldestUnreadAgeSeconds"].as_u64() >= Some(1)
    });
    let published: Vec<Value> = (2..=4)
        .map(|seq| explain(&server, &format!("sequence={seq}"))["published"].clone())
        .collect();
    assert!(
        published.contains(&server.status("orders", "hook")["oldestUnread"]),
        "{published:?}"
    );

    sink.set("/hook", Behavior::Statuses(VecDeque::from([400])));
    server.post_verb("orders", "hook", "resume");
    let count = |wanted: &str| {
        (1..=5)
            .filter(|seq| explain(&server, &format!("sequence={seq}"))["state"] == wanted)
            .count()
    };
    wait_for("the dead letter", LONG, || count("deadLetterWaiting") == 1);
    wait_until_settled(&server, "orders", "hook");
    wait_for("its file", LONG, || count("completed") == 3);
    assert_eq!((count("filtered"), count("notPublished")), (1, 1));
    assert_eq!(server.status("orders", "hook")["oldestUnread"], Value::Null);
    let nobody = explain(&server, "id=nobody");
    assert_eq!(
        (&nobody["state"], &nobody["searched"]["logBeforeSequence"]),
        (&json!("notFound"), &json!(5)),
        "{nobody}"
    );
}

#[test]
fn a_pulled_event_is_shown_with_its_client_and_lock_or_without_a_client() {
    let (server, shown) = start(&[("LIMITS__IDLE_TIMEOUT", "1m")], &[("pull", 300, 10)]);
    let topic = format!("{RG}/plant/topics/heat");
    let response = |id: &str| {
        let receipt = server
            .admin(
                "GET",
                &format!("{topic}/eventSubscriptions/pull/explain?id={id}"),
                &Value::Null,
            )
            .json();
        let text = operator(&server, &["explain", &topic, "pull", id]).expect("output");
        (receipt, text)
    };
    publish_pulled(&server, &shown, 0..3);
    let (fresh, text) = response("2");
    assert_eq!(
        (&fresh["state"], &fresh["deliveryMode"]),
        (&json!("backlog"), &json!("Queue")),
        "{fresh}"
    );
    assert_eq!(
        fresh["obstacles"],
        json!([{"kind": "noReceiver"}]),
        "{fresh}"
    );
    assert!(text.contains("blocked: no client is receiving"), "{text}");
    assert!(
        text.contains(
            "if no client settles it:\n    dead-lettered or dropped for TimeToLiveExceeded at "
        ),
        "{text}"
    );

    let mut client = Consumer::new(&server, &shown, "pull");
    let got = client.receive(3);
    let (locked, text) = response("0");
    assert_eq!(
        (&locked["state"], &locked["deliveryCount"]),
        (&json!("locked"), &json!(1)),
        "{locked}"
    );
    assert_eq!(locked["obstacles"], json!([]), "{locked}");
    assert!(
        text.contains("locked by a client that received it at ")
            && text.contains("delivery 1; the lock ends at "),
        "{text}"
    );
    let traced = operator(&server, &["trace", "0", "--topic", &topic]).expect("output");
    assert!(
        traced.contains("pending, locked by a client until "),
        "{traced}"
    );

    client.settle("release?releaseDelayInSeconds=3600", &[&got[1].token]);
    let (released, text) = response("1");
    assert_eq!(
        (&released["state"], &released["lastOutcome"]),
        (&json!("released"), &json!("Aborted")),
        "{released}"
    );
    assert!(
        text.contains("released with a delay: not available before "),
        "{text}"
    );
    client.settle("release", &[&got[2].token]);
    let (available, text) = response("2");
    assert_eq!(
        (&available["state"], &available["obstacles"][0]["kind"]),
        (&json!("available"), &json!("noReceiver"))
    );
    assert!(
        text.contains("available to clients since ")
            && text.contains("received 1 time, the last at "),
        "{text}"
    );
    client.settle("acknowledge", &[&got[0].token]);
    assert_eq!(response("0").0["state"], "completed");
}
