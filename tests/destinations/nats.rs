//! NATS JetStream: NATS' own server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{LONG, Service, conform, outcomes, start_server};
use crate::{
    server::end_waits,
    support::{
        load,
        nats::{MESSAGE_BYTES_MAX, Nats, PASSWORD, has_nats},
        server::{Server, SubscriptionSpec, wait_for},
    },
};

struct Streams {
    nats: Nats,
    /// The last sequence that was read of each stream.
    read: BTreeMap<String, u64>,
}

impl Streams {
    fn new() -> Self {
        Self {
            nats: Nats::new(),
            read: BTreeMap::new(),
        }
    }
}

impl Service for Streams {
    const KIND: &'static str = "Nats";
    const SECRET: &'static str = PASSWORD;
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = MESSAGE_BYTES_MAX;
    const EVENTS_MAX: u64 = 500;

    fn resume(&mut self) {
        self.nats.resume();
    }

    fn stop(&mut self) {
        self.nats.kill();
    }

    fn create(&mut self, name: &str) {
        self.nats.create(name);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", self.nats.url()),
            ("USERNAME", "gridhook".to_owned()),
            ("PASSWORD", PASSWORD.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": "service", "subject": name})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let read = self.read.entry(name.to_owned()).or_default();
        let (messages, last) = self.nats.messages(name, *read);
        *read = last;
        messages
            .into_iter()
            .map(|(_, body)| serde_json::from_slice(&body).expect("JSON"))
            .collect()
    }
}

#[test]
fn a_nats_stream_keeps_what_every_destination_promises() {
    if has_nats() {
        conform(Streams::new());
    }
}

#[test]
fn properties_become_headers_of_nats_messages_and_each_subscription_has_its_ids() {
    if !has_nats() {
        return;
    }
    let mut streams = Streams::new();
    streams.resume();
    streams.create("orders");
    let server = start_server(&streams);
    let key = server.topic("orders", "EventGridSchema");
    let mappings =
        json!([{"name": "tenant", "type": "Dynamic", "properties": {"sourceField": "subject"}}]);
    let properties = json!({"resourceId": "service", "subject": "orders", "deliveryAttributeMappings": mappings});
    let destination = json!({"destination": {"endpointType": "Nats", "properties": properties}});
    for name in ["first", "second"] {
        let spec = SubscriptionSpec::new("")
            .also(&json!({}), &destination)
            .schema("CloudEventSchemaV1_0");
        server.subscribe("orders", name, &spec);
    }
    let missing = json!({"destination": {"endpointType": "Nats",
        "properties": {"resourceId": "service", "subject": "missing"}}});
    let response = server.put_subscription(
        "orders",
        "missing",
        &SubscriptionSpec::new("").also(&json!({}), &missing),
    );
    assert!(
        response.status == 400 && response.text().contains("no stream takes the subject"),
        "{}",
        response.text()
    );

    // The stream drops messages with an id that it has: both are there, so their ids differ.
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/blue"));
    let mut messages = Vec::new();
    wait_for("both messages", LONG, || {
        messages = streams.nats.messages("orders", 0).0;
        messages.len() == 2
    });
    for (headers, body) in messages {
        let header = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
        assert_eq!(header("tenant").as_deref(), Some("/blue"));
        assert_eq!(
            header("content-type").as_deref(),
            Some("application/cloudevents+json; charset=utf-8")
        );
        assert!(
            header("Nats-Msg-Id").is_some_and(|id| id.starts_with("msg_")),
            "{headers:?}"
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&body).expect("JSON")["specversion"],
            "1.0"
        );
    }
}

#[test]
fn an_event_whose_subject_no_stream_takes_is_sent_again_until_one_does() {
    if !has_nats() {
        return;
    }
    let mut streams = Streams::new();
    streams.resume();
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("DELIVERY__RESOURCES__SERVICE__URL", &streams.nats.url()),
        ("DELIVERY__RESOURCES__SERVICE__USERNAME", "gridhook"),
        ("DELIVERY__RESOURCES__SERVICE__PASSWORD", PASSWORD),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let destination =
        json!({"destination": {"endpointType": "Nats", "properties": streams.properties("late")}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    wait_for("the attempt", LONG, || {
        outcomes(&server, "queue").contains("503 Busy")
    });
    streams.create("late");
    end_waits(&server, "orders", "queue");
    wait_for("the message", LONG, || {
        !streams.nats.messages("late", 0).0.is_empty()
    });
    assert_eq!(server.counter("orders", "queue", "dropped"), 0);
}
