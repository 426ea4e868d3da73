//! AMQP 0-9-1: RabbitMQ.

use std::process::Command;

use lapin::types::AMQPValue;
use serde_json::{Value, json};

use super::{LONG, Service, conform, outcomes, start_server};
use crate::{
    server::end_waits,
    support::{
        load, needs,
        port::ReservedPort,
        rabbitmq::{MESSAGE_BYTES_MAX, Message, PASSWORD, PROGRAM, RabbitMq},
        server::{SCOPE, Server, SubscriptionSpec, operator, wait_for},
    },
};

struct Queues(RabbitMq);

impl Service for Queues {
    const KIND: &'static str = "Amqp";
    const SECRET: &'static str = PASSWORD;
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = MESSAGE_BYTES_MAX;
    const EVENTS_MAX: u64 = 500;

    fn resume(&mut self) {
        self.0.resume();
    }

    fn stop(&mut self) {
        self.0.kill();
    }

    fn create(&mut self, name: &str) {
        self.0.create(name);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", self.0.url()),
            ("USERNAME", "gridhook".to_owned()),
            ("PASSWORD", PASSWORD.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": "service", "routingKey": name})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let messages = self.0.messages(name).into_iter();
        messages
            .map(|(_, body)| serde_json::from_slice(&body).expect("JSON"))
            .collect()
    }
}

fn has_rabbitmq() -> bool {
    needs::can_run("rabbitmq", Command::new("test").args(["-x", PROGRAM]))
}

#[test]
fn an_amqp_queue_keeps_what_every_destination_promises() {
    if has_rabbitmq() {
        conform(Queues(RabbitMq::new()));
    }
}

#[test]
fn a_broker_that_accepts_connections_and_says_nothing_is_tried_again() {
    let port = ReservedPort::new();
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        (
            "DELIVERY__RESOURCES__SERVICE__URL",
            &format!("amqp://{}", port.address),
        ),
        ("DELIVERY__RESPONSE_TIMEOUT", "300ms"),
        ("DELIVERY__RECONNECT_INTERVAL", "50ms"),
        ("DELIVERY__SUSPEND_AFTER_FAILURES", "1"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({"resourceId": "service", "routingKey": "orders"});
    let destination = json!({"destination": {"endpointType": "Amqp", "properties": properties}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("the suspension", LONG, || {
        server.status("orders", "queue")["health"]["state"] == "suspended"
    });
    let listener = port.listen();
    listener
        .set_nonblocking(true)
        .expect("a socket takes its option");
    let mut accepted = Vec::new();
    wait_for("five connections", LONG, || {
        accepted.extend(listener.accept());
        accepted.len() >= 5
    });
}

#[test]
fn amqp_messages_are_persistent_and_one_that_no_queue_takes_is_sent_again_until_a_queue_does() {
    if !has_rabbitmq() {
        return;
    }
    let mut queues = Queues(RabbitMq::new());
    queues.resume();
    queues.create("orders");
    let server = start_server(&queues);
    let key = server.topic("orders", "EventGridSchema");
    let spec = |exchange: &str, routing_key: &str| {
        let mappings = json!([{"name": "tenant", "type": "Static", "properties": {"value": "blue", "isSecret": false}}]);
        let properties = json!({"resourceId": "service", "exchange": exchange, "routingKey": routing_key,
            "deliveryAttributeMappings": mappings});
        let destination =
            json!({"destination": {"endpointType": "Amqp", "properties": properties}});
        SubscriptionSpec::new("").also(&json!({}), &destination)
    };
    for (exchange, routing_key) in [("", "missing"), ("missing", "orders")] {
        let response = server.put_subscription("orders", "missing", &spec(exchange, routing_key));
        assert!(
            response.status == 400 && response.text().contains("NOT_FOUND"),
            "{}",
            response.text()
        );
    }
    server.subscribe("orders", "queue", &spec("", "orders"));
    // An exchange of every broker, to which no queue is bound.
    server.subscribe("orders", "lost", &spec("amq.direct", "orders"));
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/load"));
    let mut messages: Vec<Message> = Vec::new();
    wait_for("the message", LONG, || {
        messages.extend(queues.0.messages("orders"));
        !messages.is_empty()
    });
    let (properties, _) = &messages[0];
    assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
    let headers = properties.headers().as_ref().expect("headers").inner();
    assert!(
        headers
            .get("tenant")
            .is_some_and(|value| *value == AMQPValue::LongString("blue".into())),
        "{headers:?}"
    );
    assert!(
        properties
            .message_id()
            .as_ref()
            .is_some_and(|id| id.as_str().starts_with("msg_")),
        "{properties:?}"
    );

    wait_for("the attempt", LONG, || {
        outcomes(&server, "lost").contains("503 Busy")
    });
    let counters = &server.status("orders", "lost")["counters"];
    assert_eq!(
        [&counters["deadLettered"], &counters["dropped"]],
        [0, 0],
        "{counters}"
    );
    queues.create("late");
    queues.0.bind("late", "amq.direct", "orders");
    end_waits(&server, "orders", "lost");
    wait_for("the message that waited for a queue", LONG, || {
        !queues.0.messages("late").is_empty()
    });
}

#[test]
fn an_event_waits_for_a_login_that_the_broker_accepts() {
    if !has_rabbitmq() {
        return;
    }
    let mut queues = Queues(RabbitMq::new());
    queues.resume();
    queues.create("orders");
    let url = queues.0.url();
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("DELIVERY__RESOURCES__SERVICE__URL", &url),
        ("DELIVERY__RESOURCES__SERVICE__USERNAME", "gridhook"),
        ("DELIVERY__RESOURCES__SERVICE__PASSWORD", "wrong"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let properties = json!({"resourceId": "service", "routingKey": "orders"});
    let destination = json!({"destination": {"endpointType": "Amqp", "properties": properties}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    let ids: Vec<String> = (0..10).map(|id| id.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    wait_for("the attempt", LONG, || {
        server.counter("orders", "queue", "pending") == 10
    });
    let read_ledger = || operator(&server, &["ledger", &format!("{SCOPE}/orders"), "queue"]);
    wait_for("its lines", LONG, || read_ledger().is_ok());
    let ledger = read_ledger().expect("a ledger");
    assert!(
        ledger.contains("CredentialRefused") && ledger.contains("delivery.resources.service"),
        "{ledger}"
    );
}
