//! Topics of namespaces of the same server: one subscription delivers to them, clients pull from
//! another.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{LONG, outcomes};
use crate::{
    server::wait_until_settled,
    support::{
        load::{self, Load, Rate},
        server::{Server, SubscriptionSpec, wait_for},
    },
};

const NAMESPACES: &str =
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces";

/// A subscription that delivers to the topic `name` of the namespace `plant`.
fn spec(name: &str, schema: &str) -> SubscriptionSpec {
    let properties = json!({"resourceId": format!("{NAMESPACES}/plant/topics/{name}")});
    let destination =
        json!({"destination": {"endpointType": "NamespaceTopic", "properties": properties}});
    SubscriptionSpec::new("")
        .also(&json!({}), &destination)
        .schema(schema)
}

/// A server with the topic `orders`, and the topic `heat` of the namespace `plant` whose events
/// clients pull. Returns the keys of both.
fn start() -> (Server, String, String) {
    let server = Server::start(&[]);
    server.command(
        "PUT",
        &format!("{NAMESPACES}/plant"),
        &json!({"location": "local"}),
    );
    server.command(
        "PUT",
        &format!("{NAMESPACES}/plant/topics/heat"),
        &json!({}),
    );
    let queue =
        json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue", "queue": {}}}});
    server.command(
        "PUT",
        &format!("{NAMESPACES}/plant/topics/heat/eventSubscriptions/pulled"),
        &queue,
    );
    let keys = server
        .command(
            "POST",
            &format!("{NAMESPACES}/plant/listKeys"),
            &Value::Null,
        )
        .json();
    let key = server.topic("orders", "EventGridSchema");
    (
        server,
        key,
        keys["key1"].as_str().expect("a key").to_owned(),
    )
}

/// Receives and acknowledges what there is. Returns the ids.
fn pull(server: &Server, key: &str) -> Vec<String> {
    let path = "/namespaces/plant/topics/heat/eventsubscriptions/pulled";
    let headers = [
        ("authorization", &*format!("SharedAccessKey {key}")),
        ("content-type", "application/json"),
    ];
    let ask = |verb: &str, body: &str| {
        let path = format!("{path}:{verb}?api-version=2024-06-01&maxEvents=100&maxWaitTime=10");
        let response = server
            .client()
            .ask("POST", &path, &headers, body.as_bytes())
            .expect("a response");
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    let received = ask("receive", "");
    let details = received["value"].as_array().expect("a list");
    let tokens: Vec<&Value> = details
        .iter()
        .map(|detail| &detail["brokerProperties"]["lockToken"])
        .collect();
    if !tokens.is_empty() {
        ask("acknowledge", &json!({"lockTokens": tokens}).to_string());
    }
    details
        .iter()
        .map(|detail| detail["event"]["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn events_delivered_to_a_namespace_topic_are_pulled_from_it() {
    let (mut server, key, pull_key) = start();
    server.subscribe("orders", "forward", &spec("heat", "CloudEventSchemaV1_0"));
    let pause = Duration::from_millis(25);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 1,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for _ in 0..3 {
        let from = load.acknowledged();
        wait_for("events to be acknowledged", LONG, || {
            load.acknowledged() >= from + 50
        });
        server.kill_9();
        server.restart();
        load.turn_to(server.address());
    }
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "forward");
    let mut arrived = BTreeSet::new();
    wait_for("all acknowledged events", LONG, || {
        arrived.extend(pull(&server, &pull_key));
        acknowledged.iter().all(|id| arrived.contains(id))
    });
    server.kill_9();
    server.assert_sound();
}

#[test]
fn a_topic_that_cannot_take_the_events_is_refused() {
    let (server, key, _) = start();
    for (name, schema, says) in [
        (
            "cold",
            "CloudEventSchemaV1_0",
            "cannot be reached: there is no topic",
        ),
        ("heat", "EventGridSchema", "takes CloudEvents only"),
    ] {
        let response = server.put_subscription("orders", "wrong", &spec(name, schema));
        let status = response.status;
        let text = response.text();
        assert!(status == 400 && text.contains(says), "{status} {text}");
    }
    // Events cannot go round from namespace to namespace.
    let push = json!({"deliveryMode": "Push", "push": {"destination": spec("heat", "").properties()["destination"]}});
    let body = json!({"properties": {"deliveryConfiguration": push}});
    let path = format!("{NAMESPACES}/plant/topics/heat/eventSubscriptions/round");
    let response = server.admin("PUT", &path, &body);
    assert!(
        response.status == 400 && response.text().contains("NamespaceTopic"),
        "{}",
        response.text()
    );

    // A topic that was deleted later is not found.
    server.subscribe("orders", "forward", &spec("heat", "CloudEventSchemaV1_0"));
    server.command(
        "DELETE",
        &format!("{NAMESPACES}/plant/topics/heat"),
        &Value::Null,
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/load"));
    wait_for("the attempt", LONG, || {
        outcomes(&server, "forward").contains("404 NotFound")
    });
}
