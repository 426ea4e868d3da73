//! A topic with a full backlog: it waits for its slowest subscription, and no other topic does.

use super::{LONG, wait_until_settled};
use crate::support::{
    http::{Client, Response},
    load,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

fn publish(server: &Server, topic: &str, key: &str, number: usize) -> Response {
    let body = load::body(&[number.to_string()], &"/".repeat(4000));
    let response = Client::new(server.address()).ask(
        "POST",
        &events_path(topic),
        &[("aeg-sas-key", key)],
        &body,
    );
    response.expect("a publisher is answered")
}

/// Publishes until the topic is full: the accepted events, and the refusal.
fn fill(server: &Server, key: &str, from: usize) -> (usize, Response) {
    for number in from..from + 1000 {
        let response = publish(server, "orders", key, number);
        if response.status != 200 {
            return (number, response);
        }
    }
    panic!("a thousand events were taken");
}

#[test]
fn at_its_bound_a_topic_refuses_while_its_neighbour_takes_and_heals_when_its_laggard_reads_on() {
    let mut server = Server::start(&[("JOURNAL__BACKLOG_MAX", "256 KiB")]);
    let sink = Sink::start();
    let orders = server.topic("orders", "EventGridSchema");
    let bills = server.topic("bills", "EventGridSchema");
    server.subscribe(
        "orders",
        "quick",
        &SubscriptionSpec::new(&sink.url("/quick")),
    );
    server.subscribe("orders", "slow", &SubscriptionSpec::new(&sink.url("/slow")));
    server.post_verb("orders", "slow", "hold");
    let (taken, refused) = fill(&server, &orders, 0);
    let message = refused.text();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("10")),
        "{message}"
    );
    assert!(message.contains("backlog is at its limit"), "{message}");
    // The outcomes of the fast endpoint are written a moment later.
    wait_for("the slow one to be named", LONG, || {
        publish(&server, "orders", &orders, taken)
            .text()
            .contains("'slow'")
    });
    assert!(
        (40..80).contains(&taken),
        "{taken} events of some 4 KiB were taken"
    );
    assert_eq!(
        publish(&server, "bills", &bills, 0).status,
        200,
        "its neighbour takes events"
    );
    let status = server.topic_status("orders");
    assert_eq!(
        (&status["full"], &status["largestBacklog"]["subscription"]),
        (&true.into(), &"slow".into()),
        "{status}"
    );
    assert_eq!(server.topic_status("bills")["full"], false);
    let ready = Client::new(server.address())
        .ask("GET", "/readyz", &[], b"")
        .expect("it answers");
    assert_eq!(
        ready.status,
        200,
        "one topic is full, the server is not: {}",
        ready.text()
    );

    server.kill_9();
    server.restart();
    assert_eq!(
        publish(&server, "orders", &orders, taken).status,
        503,
        "a restart makes no room"
    );
    server.post_verb("orders", "slow", "resume");
    wait_for("room", LONG, || {
        publish(&server, "orders", &orders, taken).status == 200
    });
    wait_for("all events", LONG, || {
        sink.taken("/slow") > taken && sink.taken("/quick") > taken
    });
    wait_until_settled(&server, "orders", "slow");
    assert_eq!(server.topic_status("orders")["full"], false);
    server.terminate();
    server.assert_sound();
}

#[test]
fn where_the_operator_says_so_the_oldest_unread_events_go_instead() {
    let settings = [
        ("JOURNAL__BACKLOG_MAX", "256 KiB"),
        ("JOURNAL__BACKLOG_FULL", "expire"),
    ];
    let mut server = Server::start(&settings);
    let sink = Sink::start();
    let orders = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
    );
    sink.set("/hook", Behavior::Respond(503));
    publish(&server, "orders", &orders, 0);
    wait_for("the first attempt", LONG, || {
        server.counter("orders", "hook", "requests") > 0
    });
    server.post_verb("orders", "hook", "hold");
    for number in 1..=300 {
        // A publisher that is quicker than the oldest can go is refused for a moment.
        wait_for("room", LONG, || {
            publish(&server, "orders", &orders, number).status == 200
        });
    }
    wait_for("the oldest to go", LONG, || {
        server.counter("orders", "hook", "dropped") > 200
    });
    sink.set("/hook", Behavior::Respond(200));
    server.post_verb("orders", "hook", "resume");
    wait_for("the rest", LONG, || {
        let counters = &server.status("orders", "hook")["counters"];
        let counter = |name: &str| counters[name].as_u64().expect("a number");
        counter("passed") == 301
            && counter("delivered") + counter("dropped") + counter("pending") == 301
    });
    assert!(
        server.counter("orders", "hook", "delivered") >= 30,
        "the youngest are delivered"
    );
    server.terminate();
    server.assert_sound();
}
