//! Filters and delivery properties on a whole server: what is delivered, with which headers, and
//! where a secret is not.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, respond},
    server::{Server, SubscriptionSpec, subscription, wait_for},
};

/// An endpoint that follows a script is asked nothing before.
const UNASKED: (&str, &str) = ("DELIVERY__VALIDATE", "false");

fn event(id: usize, system: &Value, total: usize) -> Value {
    json!({"id": id.to_string(), "eventType": "Made", "subject": "/a", "eventTime": "2026-11-20T12:00:00Z",
        "dataVersion": "1", "data": {"system": system, "total": total}})
}

/// All text below a folder, but for the store's: records have their secrets.
fn texts(folder: &Path, found: &mut String) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            texts(&path, found);
        } else {
            found.push_str(&String::from_utf8_lossy(
                &fs::read(&path).unwrap_or_default(),
            ));
        }
    }
}

#[test]
fn matching_events_arrive_grouped_by_their_headers_and_the_secret_is_nowhere_else() {
    let _rows = crate::spec::shows(&[
        "S000-217: An event subscription can be given HTTP headers that are included in the \
         delivered events.",
        "S000-220: Custom delivery headers can be set for events delivered to webhooks.",
    ]);
    let server = Server::start(&[("LOG__FILTER", "debug"), UNASKED]);
    // The first two requests fail, so that the groups are seen to stay together.
    let mut script = vec![respond(503, "", "no"); 2];
    script.push(respond(200, "", ""));
    let endpoint = Endpoint::start(script);
    let refusing = Endpoint::start(vec![respond(400, "", "never")]);
    let key = server.topic("orders", "EventGridSchema");
    let mappings = json!({"deliveryAttributeMappings": [
        {"name": "Authorization", "type": "Static", "properties": {"value": "Bearer swordfish", "isSecret": true}},
        {"name": "Channel", "type": "Dynamic", "properties": {"sourceField": "data.system"}}]});
    let filter = json!({"filter": {"enableAdvancedFilteringOnArrays": true, "advancedFilters": [
        {"operatorType": "NumberGreaterThan", "key": "data.total", "value": 9}]}});
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url())
            .batch(10)
            .also(&mappings, &filter),
    );
    let lost = SubscriptionSpec::new(&refusing.url())
        .batch(10)
        .dead_letters("letters")
        .also(&mappings, &filter);
    server.subscribe("orders", "lost", &lost);
    // Every third event is too small; of the others the systems take turns, and one breaks no
    // header.
    let systems = [
        json!("red"),
        json!("blue"),
        json!("a\r\nEvil: yes"),
        json!(7),
    ];
    let events: Vec<Value> = (0..24)
        .map(|id| event(id, &systems[id % 4], if id % 3 == 0 { 9 } else { 10 + id }))
        .collect();
    server.publish("orders", &key, json!(events).to_string().as_bytes());
    wait_for("what matches", LONG, || {
        server.counter("orders", "hook", "delivered") == 16
    });
    wait_for("what is lost", LONG, || {
        server.counter("orders", "lost", "deadLettered") == 16
    });
    wait_until_settled(&server, "orders", "hook");
    assert_eq!(server.counter("orders", "hook", "filtered"), 8);
    let mut by_channel: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for request in endpoint.requests().iter().skip(2) {
        assert_eq!(request.header("authorization"), Some("Bearer swordfish"));
        assert_eq!(request.header("evil"), None);
        let channel = request.header("channel").map(str::to_owned);
        let body: Vec<Value> = serde_json::from_slice(&request.body).expect("an array");
        for event in &body {
            let expected = match &event["data"]["system"] {
                Value::String(text) if text.contains('\r') => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            assert_eq!(channel, expected, "{event}");
        }
        *by_channel.entry(channel).or_default() += 1;
    }
    assert_eq!(
        by_channel.keys().flatten().collect::<Vec<_>>(),
        ["7", "blue", "red"]
    );
    assert!(
        by_channel.values().all(|requests| *requests == 1),
        "four events of a group share a request: {by_channel:?}"
    );
    wait_for("a file of dead letters", LONG, || {
        let mut letters = String::new();
        texts(&server.data_dir().join("dead-letters"), &mut letters);
        letters.contains("UndeliverableDueToHttpBadRequest")
    });
    let mut everywhere = server.logs();
    texts(&server.data_dir().join("dead-letters"), &mut everywhere);
    for name in ["hook", "lost"] {
        everywhere += &server.status("orders", name).to_string();
        everywhere += &server
            .command("GET", &subscription("orders", name), &Value::Null)
            .text();
    }
    let refused = json!({"destination": {"properties": {"deliveryAttributeMappings": [
        {"name": "Host", "type": "Static", "properties": {"value": "swordfish"}}]}}});
    let refused = server.admin("PATCH", &subscription("orders", "hook"), &refused);
    assert_eq!(refused.status, 400);
    everywhere += &refused.text();
    assert!(
        everywhere.contains("Channel") && !everywhere.contains("swordfish"),
        "the secret was shown"
    );
    let response = server.command(
        "POST",
        &format!("{}/getDeliveryAttributes", subscription("orders", "hook")),
        &Value::Null,
    );
    assert!(
        response.text().contains("swordfish"),
        "but to who asks for it"
    );
}

#[test]
fn a_filter_can_be_tried_on_the_newest_events_of_the_log() {
    let server = Server::start(&[UNASKED]);
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url()).types(&["None"]),
    );
    server.publish(
        "orders",
        &key,
        json!([event(1, &json!("x"), 1), event(2, &json!("x"), 2)])
            .to_string()
            .as_bytes(),
    );
    server.publish(
        "orders",
        &key,
        json!([event(3, &json!("x"), 3)]).to_string().as_bytes(),
    );
    let verb = format!("{}/testFilter", subscription("orders", "hook"));
    let own = server.command("POST", &verb, &json!({"last": 2})).json();
    assert_eq!(
        (&own["tested"], &own["matched"]),
        (&json!(2), &json!(0)),
        "{own}"
    );
    assert_eq!(own["results"][0]["id"], "2");
    let filter = json!({"advancedFilters": [{"operatorType": "NumberInRange", "key": "data.total", "values": [[2, 3]]}]});
    let thought = server
        .command("POST", &verb, &json!({"last": 100, "filter": filter}))
        .json();
    assert_eq!(
        (&thought["tested"], &thought["matched"]),
        (&json!(3), &json!(2)),
        "{thought}"
    );
}

#[test]
fn the_defaults_of_batching_come_from_the_settings_of_the_server() {
    let _rows = crate::spec::shows(&[
        "S000-080: The default values of the batching settings are configurable and can be \
         overridden.",
    ]);
    let server = Server::start(&[
        UNASKED,
        ("DELIVERY__BATCH_EVENTS", "20"),
        ("DELIVERY__BATCH_KILOBYTES", "128"),
    ]);
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    server.topic("orders", "EventGridSchema");
    for (name, webhook, expected) in [
        ("neither", json!({}), (1, 128)),
        ("size", json!({"preferredBatchSizeInKilobytes": 5}), (20, 5)),
        ("count", json!({"maxEventsPerBatch": 5}), (5, 128)),
    ] {
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new(&endpoint.url()).also(&webhook, &json!({})),
        );
        let reported = server.get_subscription("orders", name).json();
        let reported = &reported["properties"]["destination"]["properties"];
        let (events, kilobytes) = expected;
        assert_eq!(reported["maxEventsPerBatch"], events, "{name}");
        assert_eq!(
            reported["preferredBatchSizeInKilobytes"], kilobytes,
            "{name}"
        );
    }
}
