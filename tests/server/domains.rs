//! Domains: each event goes to the subscriptions of its topic and to those of the whole domain,
//! whatever happens.

use std::{collections::BTreeSet, time::Duration};

use gridhook::clock::Clock;
use serde_json::{Value, json};

use super::{LONG, many};
use crate::support::{
    http::Client,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

const DOMAIN: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/domains/shop";

/// Nobody subscribes to the last one.
const TOPICS: [&str; 3] = ["north", "South", "nobody"];

/// The event subscriptions and their domain topics. Each has its own path of the sink.
const SUBSCRIPTIONS: [(&str, Option<&str>); 4] = [
    ("/eventSubscriptions/all-of-it", None),
    ("/topics/north/eventSubscriptions/hook", Some("north")),
    (
        "/topics/NORTH/providers/Microsoft.EventGrid/eventSubscriptions/batched",
        Some("north"),
    ),
    ("/topics/south/eventSubscriptions/hook", Some("South")),
];

fn make(server: &Server, properties: &Value) -> String {
    server.command("PUT", DOMAIN, &json!({"properties": properties}));
    let keys = server
        .command("POST", &format!("{DOMAIN}/listKeys"), &Value::Null)
        .json();
    keys["key1"].as_str().expect("a key").to_owned()
}

fn subscribe_all(server: &Server, sink: &Sink) {
    for (place, _) in SUBSCRIPTIONS {
        let spec = SubscriptionSpec::new(&sink.url(place));
        let spec = if place.contains("batched") {
            spec.batch(20)
        } else {
            spec
        };
        server.command(
            "PUT",
            &format!("{DOMAIN}{place}"),
            &json!({"properties": spec.properties()}),
        );
    }
}

/// Publishes `count` events for each topic, in one request, with ids that begin with `name`.
fn publish(server: &Server, key: &str, name: &str, count: usize) {
    let events = (0..count).flat_map(|number| TOPICS.map(|topic| (number, topic))).map(|(number, topic)| {
        json!({"id": format!("{name}-{topic}-{number}"), "topic": topic, "subject": "/s", "eventType": "T",
            "eventTime": "2026-11-20T17:18:13Z", "dataVersion": "1", "data": {}})
    });
    let body = Value::from_iter(events).to_string();
    let response = Client::new(server.address()).ask(
        "POST",
        "/domains/shop/api/events",
        &[("aeg-sas-key", key)],
        body.as_bytes(),
    );
    let response = response.expect("a publisher is answered");
    assert_eq!(response.status, 200, "{}", response.text());
}

/// The events for a subscription of `topic`, or of the whole domain.
fn expected(names: &[&str], topic: Option<&str>, count: usize) -> BTreeSet<String> {
    let topics = TOPICS
        .into_iter()
        .filter(|one| topic.is_none_or(|topic| topic == *one));
    let all = topics.flat_map(|topic| names.iter().map(move |name| (topic, name)));
    all.flat_map(|(topic, name)| (0..count).map(move |number| format!("{name}-{topic}-{number}")))
        .collect()
}

fn taken(sink: &Sink, place: &str) -> BTreeSet<String> {
    sink.look(place, |ledger| {
        let taken = ledger
            .iter()
            .filter(|(_, arrivals)| arrivals.iter().any(|arrival| arrival.is_taken()));
        taken.map(|(id, _)| id.clone()).collect()
    })
}

fn wait_until_all_arrived(server: &Server, sink: &Sink, names: &[&str], count: usize) {
    for (place, topic) in SUBSCRIPTIONS {
        let expected = expected(names, topic, count);
        wait_for(place, LONG, || taken(sink, place).len() >= expected.len());
        assert_eq!(taken(sink, place), expected, "{place}");
        let of = |counter: &str| {
            let status = server
                .command("GET", &format!("{DOMAIN}{place}/status"), &Value::Null)
                .json();
            (status["counters"][counter].as_u64(), status.to_string())
        };
        wait_for("counters", LONG, || {
            of("delivered").0 == Some(expected.len() as u64)
        });
        wait_for("everything to be passed", LONG, || {
            of("passed").0 == Some((names.len() * count * TOPICS.len()) as u64)
        });
        let (filtered, status) = of("filtered");
        let others = names.len() * count * TOPICS.len() - expected.len();
        assert_eq!(filtered, Some(others as u64), "{place}: {status}");
    }
}

#[test]
fn events_arrive_where_their_topic_is_asked_for_across_a_kill() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = make(&server, &json!({}));
    subscribe_all(&server, &sink);
    let count = many(50, 1000);
    publish(&server, &key, "live", count);
    wait_until_all_arrived(&server, &sink, &["live"], count);
    // Pending at the kill, and not yet read at the kill.
    for (place, _) in SUBSCRIPTIONS {
        if place.contains("south") {
            server.command("POST", &format!("{DOMAIN}{place}/hold"), &Value::Null);
        } else {
            sink.set(place, Behavior::Respond(503));
        }
    }
    publish(&server, &key, "killed", count);
    wait_for("an attempt", LONG, || {
        sink.look(SUBSCRIPTIONS[1].0, |ledger| {
            ledger.contains_key("killed-north-0")
        })
    });
    server.kill_9();
    server.assert_sound();
    server.restart();
    for (place, _) in SUBSCRIPTIONS {
        sink.set(place, Behavior::Respond(200));
        if place.contains("south") {
            server.command("POST", &format!("{DOMAIN}{place}/resume"), &Value::Null);
        }
    }
    wait_until_all_arrived(&server, &sink, &["live", "killed"], count);
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_deleted_domain_drops_its_pending_deliveries_and_begins_anew() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = make(&server, &json!({}));
    subscribe_all(&server, &sink);
    for (place, _) in SUBSCRIPTIONS {
        sink.set(place, Behavior::Respond(503));
    }
    publish(&server, &key, "old", 10);
    wait_for("an attempt", LONG, || {
        SUBSCRIPTIONS
            .iter()
            .all(|(place, _)| !sink.ledger(place).is_empty())
    });
    server.command("DELETE", &format!("{DOMAIN}/topics/north"), &Value::Null);
    let gone = server.admin(
        "GET",
        &format!("{DOMAIN}/topics/north/eventSubscriptions/hook"),
        &Value::Null,
    );
    assert_eq!(gone.status, 404, "{}", gone.text());
    server.command("DELETE", DOMAIN, &Value::Null);
    server.kill_9();
    server.assert_sound();
    server.restart();
    assert_eq!(server.admin("GET", DOMAIN, &Value::Null).status, 404);
    let key = make(&server, &json!({}));
    subscribe_all(&server, &sink);
    for (place, _) in SUBSCRIPTIONS {
        sink.set(place, Behavior::Respond(200));
    }
    publish(&server, &key, "new", 10);
    wait_until_all_arrived(&server, &sink, &["new"], 10);
}

#[test]
fn a_subscription_that_expires_while_the_server_is_down_sends_nothing_more() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    let clock = Clock::system();
    let expires = clock.now().after(Duration::from_secs(2));
    let path = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders/eventSubscriptions";
    let mut properties = SubscriptionSpec::new(&sink.url("/brief")).properties();
    properties["expirationTimeUtc"] = expires.to_string().into();
    server.command(
        "PUT",
        &format!("{path}/brief"),
        &json!({"properties": properties}),
    );
    server.subscribe(
        "orders",
        "lasting",
        &SubscriptionSpec::new(&sink.url("/lasting")),
    );
    sink.set("/brief", Behavior::Respond(503));
    sink.set("/lasting", Behavior::Respond(503));
    server.publish(
        "orders",
        &key,
        &crate::support::load::body(&["pending".to_owned()], "/s"),
    );
    wait_for("an attempt", LONG, || !sink.ledger("/brief").is_empty());
    server.kill_9();
    let tried = sink.look("/brief", |ledger| ledger["pending"].len());
    wait_for("its time", LONG, || clock.now() > expires);
    sink.set("/lasting", Behavior::Respond(200));
    server.restart();
    assert_eq!(
        server
            .admin("GET", &format!("{path}/brief"), &Value::Null)
            .status,
        404
    );
    wait_for("the other one", LONG, || sink.taken("/lasting") == 1);
    assert_eq!(
        sink.look("/brief", |ledger| ledger["pending"].len()),
        tried,
        "nothing was sent any more"
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_subscription_expires_while_the_server_runs() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    make(&server, &json!({}));
    let mut properties = SubscriptionSpec::new(&sink.url("/brief")).properties();
    properties["expirationTimeUtc"] = Clock::system()
        .now()
        .after(Duration::from_millis(500))
        .to_string()
        .into();
    let path = format!("{DOMAIN}/topics/north/eventSubscriptions/brief");
    server.command("PUT", &path, &json!({"properties": properties}));
    wait_for("its end", LONG, || {
        server.admin("GET", &path, &Value::Null).status == 404
    });
    assert_eq!(
        server
            .admin("GET", &format!("{DOMAIN}/topics/north"), &Value::Null)
            .status,
        404,
        "and its topic's"
    );
}
