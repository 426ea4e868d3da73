//! Queues and topics of Service Bus. Microsoft's own server is not available: a scripted endpoint
//! checks the signature and the documented form of the REST interface, and responds as documented.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use gridhook::clock::Clock;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{LONG, Service, conform, start_server};
use crate::support::{
    http::header,
    http_service::HttpService,
    load,
    server::{SubscriptionSpec, wait_for},
};

const KEY: &str = "bus-key-that-nobody-sees";
const POLICY: &str = "Send Policy";

/// The largest request.
const REQUEST_BYTES_MAX: usize = 256 * 1024;

type Entities = Arc<Mutex<BTreeMap<String, Vec<Value>>>>;

/// A namespace.
struct Bus {
    service: HttpService,
    entities: Entities,
}

impl Bus {
    fn new() -> Self {
        let entities = Entities::default();
        let shared = Arc::clone(&entities);
        let service = HttpService::new(Arc::new(move |head, body| {
            match receive(head, body, &mut shared.lock()) {
                Ok(()) => (201, "", Vec::new()),
                Err((status, text)) => (
                    status,
                    "",
                    format!("<Error><Code>{status}</Code><Detail>{text}</Detail></Error>")
                        .into_bytes(),
                ),
            }
        }));
        Self { service, entities }
    }

    fn take(&self, name: &str) -> Vec<Value> {
        std::mem::take(self.entities.lock().get_mut(name).expect("an entity"))
    }
}

/// Adds the messages of a request to their entity.
fn receive(
    head: &str,
    body: &[u8],
    entities: &mut BTreeMap<String, Vec<Value>>,
) -> Result<(), (u16, String)> {
    let refuse = |status, text: &str| Err((status, text.to_owned()));
    let entity = head
        .strip_prefix("POST /")
        .and_then(|rest| rest.split_once("/messages HTTP/1.1\r\n"));
    let Some((entity, _)) = entity else {
        return refuse(400, head);
    };
    let host = header(head, "host").unwrap_or_default();
    check_signature(
        header(head, "authorization").unwrap_or_default(),
        &format!("http://{host}/{entity}"),
    )?;
    if header(head, "content-type") != Some("application/vnd.microsoft.servicebus.json") {
        return refuse(400, "the content type is not that of a batch");
    }
    if body.len() > REQUEST_BYTES_MAX {
        return refuse(403, "The request size exceeds the limit");
    }
    let Some(kept) = entities.get_mut(entity) else {
        return refuse(410, "no such entity");
    };
    let Ok(messages) = serde_json::from_slice::<Vec<Value>>(body) else {
        return refuse(400, "no batch");
    };
    let sessions: Vec<_> = messages
        .iter()
        .map(|message| message["BrokerProperties"]["SessionId"].as_str())
        .collect();
    if sessions.windows(2).any(|pair| pair[0] != pair[1]) {
        return refuse(400, "all messages of a batch must have the same session");
    }
    kept.extend(messages);
    Ok(())
}

/// `sr`, `sig`, `se` and `skn` as the documentation of shared access signatures defines them.
fn check_signature(authorization: &str, resource: &str) -> Result<(), (u16, String)> {
    let refuse = |text: &str| Err((401, format!("{text}: {authorization} for {resource}")));
    let Some(token) = authorization.strip_prefix("SharedAccessSignature ") else {
        return refuse("no signature");
    };
    let part = |name: &str| {
        let found = token
            .split('&')
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    };
    let plain = |name: &str| {
        percent_decode_str(&part(name))
            .decode_utf8_lossy()
            .into_owned()
    };
    if !resource.to_ascii_lowercase().starts_with(&plain("sr")) || plain("sr").is_empty() {
        return refuse("another resource");
    }
    if plain("skn") != POLICY {
        return refuse("another policy");
    }
    let now = Clock::system()
        .now()
        .since(gridhook::event::Timestamp::default())
        .as_secs();
    if part("se").parse::<u64>().map_or(true, |until| until <= now) {
        return refuse("expired");
    }
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY.as_bytes());
    let signature = ring::hmac::sign(&key, format!("{}\n{}", part("sr"), part("se")).as_bytes());
    if plain("sig") != BASE64_STANDARD.encode(signature) {
        return refuse("a wrong signature");
    }
    Ok(())
}

impl Service for Bus {
    const KIND: &'static str = "ServiceBusQueue";
    const SECRET: &'static str = KEY;
    const ELSEWHERE: &'static str = "elsewhere/queues/orders";
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = REQUEST_BYTES_MAX;
    const EVENTS_MAX: u64 = 100;

    fn resume(&mut self) {
        self.service.resume();
    }

    fn stop(&mut self) {
        self.service.stop();
    }

    fn create(&mut self, name: &str) {
        self.entities.lock().insert(name.to_owned(), Vec::new());
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", format!("http://{}", self.service.address())),
            (
                "RESOURCE_IDS",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/n"
                    .to_owned(),
            ),
            ("ACCESS_KEY_NAME", POLICY.to_owned()),
            ("ACCESS_KEY", KEY.to_owned()),
        ]
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/n";
        json!({"resourceId": format!("{id}/queues/{name}")})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let body = |message: Value| {
            serde_json::from_str(message["Body"].as_str().expect("a body")).expect("JSON")
        };
        self.take(name).into_iter().map(body).collect()
    }
}

#[test]
fn a_service_bus_queue_keeps_what_every_destination_promises() {
    conform(Bus::new());
}

#[test]
fn delivery_properties_become_broker_properties_of_a_service_bus_topic() {
    let mut bus = Bus::new();
    bus.resume();
    bus.create("orders");
    let server = start_server(&bus);
    let key = server.topic("orders", "EventGridSchema");
    let mappings = json!([
        {"name": "sessionid", "type": "Dynamic", "properties": {"sourceField": "subject"}},
        {"name": "ScheduledEnqueueTimeUtc", "type": "Static",
            "properties": {"value": "2026-11-20T17:18:13Z", "isSecret": false}},
        {"name": "TimeToLive", "type": "Static", "properties": {"value": "60", "isSecret": false}},
        {"name": "tenant", "type": "Static", "properties": {"value": "blue", "isSecret": true}},
    ]);
    let properties =
        json!({"resourceId": "service/topics/orders", "deliveryAttributeMappings": mappings});
    let destination =
        json!({"destination": {"endpointType": "ServiceBusTopic", "properties": properties}});
    let spec = SubscriptionSpec::new("")
        .also(&json!({}), &destination)
        .schema("CloudEventSchemaV1_0");
    server.subscribe("orders", "topic", &spec);
    let sessions = ["/a", "/b"];
    for session in sessions {
        let ids: Vec<String> = (0..20).map(|number| format!("{number}{session}")).collect();
        server.publish("orders", &key, &load::body(&ids, session));
    }
    let mut messages = Vec::new();
    wait_for("the messages", LONG, || {
        messages.extend(bus.take("orders"));
        messages.len() == 40
    });
    for message in messages {
        let broker = &message["BrokerProperties"];
        let event = message["Body"].as_str().expect("a body");
        let event: Value = serde_json::from_str(event).expect("JSON");
        assert_eq!(broker["SessionId"], event["subject"]);
        assert_eq!(
            broker["ScheduledEnqueueTimeUtc"],
            "Fri, 20 Nov 2026 17:18:13 GMT"
        );
        assert_eq!(broker["TimeToLive"], 60.0);
        assert_eq!(
            broker["ContentType"],
            "application/cloudevents+json; charset=utf-8"
        );
        assert!(
            broker["MessageId"]
                .as_str()
                .is_some_and(|id| id.starts_with("msg_")),
            "{message}"
        );
        assert_eq!(message["UserProperties"]["tenant"], "blue");
    }
    // A queue is no topic.
    let wrong = json!({"destination": {"endpointType": "ServiceBusTopic",
        "properties": {"resourceId": "service/queues/orders"}}});
    let response = server.put_subscription(
        "orders",
        "wrong",
        &SubscriptionSpec::new("").also(&json!({}), &wrong),
    );
    assert!(
        response.status == 400 && response.text().contains("/topics/NAME"),
        "{}",
        response.text()
    );
}
