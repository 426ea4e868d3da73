//! Kafka, and event hubs, which speak its protocol: a real broker in KRaft mode.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{LONG, Service, conform, start_server};
use crate::support::{
    certificates::Authority,
    kafka::{Kafka, MESSAGE_BYTES_MAX, PASSWORD},
    load, needs,
    server::{Server, SubscriptionSpec, wait_for},
};

const PARTITIONS: i32 = 3;

struct Cluster {
    kafka: Kafka,
    /// The next offset of each partition.
    read: BTreeMap<(String, i32), i64>,
}

impl Cluster {
    fn new() -> Self {
        Self { kafka: Kafka::new(), read: BTreeMap::new() }
    }
}

impl Service for Cluster {
    const KIND: &'static str = "Kafka";
    const SECRET: &'static str = PASSWORD;
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = MESSAGE_BYTES_MAX;

    fn resume(&mut self) {
        self.kafka.resume();
    }

    fn stop(&mut self) {
        self.kafka.kill();
    }

    fn create(&mut self, name: &str) {
        self.kafka.create(name, PARTITIONS);
    }

    fn settings(&self) -> Vec<(String, String)> {
        [
            ("URL", format!("kafka://{}", self.kafka.address())),
            ("RESOURCE_IDS", "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/n".to_owned()),
            ("USERNAME", "gridhook".to_owned()),
            ("PASSWORD", PASSWORD.to_owned()),
        ]
        .map(|(key, value)| (format!("DELIVERY__RESOURCES__SERVICE__{key}"), value))
        .to_vec()
    }

    fn properties(&self, name: &str) -> Value {
        json!({"resourceId": "service", "topicName": name})
    }

    fn receive(&mut self, name: &str) -> Vec<Value> {
        let mut events = Vec::new();
        for partition in 0..PARTITIONS {
            let next = self.read.entry((name.to_owned(), partition)).or_default();
            let (records, end) = self.kafka.records(name, partition, *next);
            *next = end;
            let value = |record: rskafka::record::Record| record.value.expect("a value");
            events.extend(
                records.into_iter().map(|record| serde_json::from_slice::<Value>(&value(record)).expect("JSON")),
            );
        }
        events
    }
}

#[test]
fn a_kafka_topic_keeps_what_every_destination_promises() {
    if needs::java() {
        conform(Cluster::new());
    }
}

#[test]
fn properties_become_keys_and_headers_of_records() {
    if !needs::java() {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.resume();
    for topic in ["structured", "binary"] {
        cluster.create(topic);
    }
    let server = start_server(&cluster);
    let key = server.topic("orders", "EventGridSchema");
    let mappings = json!([
        {"name": "PartitionKey", "type": "Dynamic", "properties": {"sourceField": "subject"}},
        {"name": "tenant", "type": "Static", "properties": {"value": "blue", "isSecret": false}},
    ]);
    let hub = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/n/eventhubs/structured";
    for (name, kind, properties) in [
        ("hub", "EventHub", json!({"resourceId": hub, "deliveryAttributeMappings": mappings})),
        (
            "binary",
            "Kafka",
            json!({"resourceId": "service", "topicName": "binary", "contentMode": "Binary",
                "deliveryAttributeMappings": mappings}),
        ),
    ] {
        let destination = json!({"destination": {"endpointType": kind, "properties": properties}});
        let spec = SubscriptionSpec::of("").also(&json!({}), &destination).schema("CloudEventSchemaV1_0");
        server.subscribe("orders", name, &spec);
    }
    // A topic that does not exist is found when the subscription is created.
    let missing = json!({"destination": {"endpointType": "Kafka",
        "properties": {"resourceId": "service", "topicName": "missing"}}});
    let answer = server.ask_for("orders", "missing", &SubscriptionSpec::of("").also(&json!({}), &missing));
    assert!(answer.status == 400 && answer.text().contains("the topic missing does not exist"), "{}", answer.text());

    // The partitions that Kafka's own clients choose among three for these keys, by murmur2.
    let subjects = ["foobar", "a-little-bit-long-string"];
    for (id, subject) in subjects.iter().enumerate() {
        server.publish("orders", &key, &load::body(&[id.to_string()], subject));
    }
    for topic in ["structured", "binary"] {
        let mut found = BTreeMap::new();
        wait_for("the records", LONG, || {
            for partition in 0..PARTITIONS {
                let (records, _) = cluster.kafka.records(topic, partition, 0);
                for record in records {
                    let key = String::from_utf8(record.key.clone().expect("a key")).expect("text");
                    found.insert(key, (partition, record));
                }
            }
            found.len() == subjects.len()
        });
        for (subject, (partition, record)) in found {
            // murmur2("foobar") = -790332482, murmur2("a-little-bit-long-string") = -985981536
            let hash: i64 = if subject == "foobar" { -790_332_482 } else { -985_981_536 };
            assert_eq!(i64::from(partition), (hash & 0x7fff_ffff) % i64::from(PARTITIONS), "{subject}");
            let header = |name: &str| record.headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
            assert_eq!(header("tenant").as_deref(), Some("blue"));
            let value: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
            if topic == "structured" {
                assert_eq!(header("content-type").as_deref(), Some("application/cloudevents+json; charset=utf-8"));
                assert_eq!(value["subject"], subject);
            } else {
                assert_eq!(header("ce_subject"), Some(subject));
                assert_eq!(header("ce_specversion").as_deref(), Some("1.0"));
                assert!(value["id"].is_string() && value["specversion"].is_null(), "{value} is the data");
            }
        }
    }
}

#[test]
fn a_broker_with_tls_is_trusted_by_its_certificate_and_demands_the_password() {
    if !needs::java() {
        return;
    }
    let (authority, folder) = (Authority::new(), tempfile::tempdir().expect("a folder"));
    let mut kafka = Kafka::secure(&authority);
    kafka.resume();
    kafka.create("orders", 1);
    let roots = folder.path().join("ca.pem");
    std::fs::write(&roots, authority.pem()).expect("written");
    let url = format!("kafkas://{}", kafka.address());
    let destination = json!({"destination": {"endpointType": "Kafka",
        "properties": {"resourceId": "service", "topicName": "orders"}}});
    let spec = SubscriptionSpec::of("").also(&json!({}), &destination);
    let start = |roots: &str, password: &str| {
        Server::start(&[
            ("DELIVERY__RESOURCES__SERVICE__URL", &url),
            ("DELIVERY__RESOURCES__SERVICE__USERNAME", "gridhook"),
            ("DELIVERY__RESOURCES__SERVICE__PASSWORD", password),
            ("DELIVERY__TLS_ROOTS", roots),
        ])
    };
    let trusting = start(roots.to_str().expect("UTF-8"), PASSWORD);
    let key = trusting.topic("orders", "EventGridSchema");
    trusting.subscribe("orders", "kafka", &spec);
    trusting.publish("orders", &key, &load::body(&["a".to_owned()], "/a"));
    wait_for("the event", LONG, || trusting.counter("orders", "kafka", "delivered") == 1);
    assert_eq!(kafka.records("orders", 0, 0).0.len(), 1);

    // Who does not know the authority, or the password, sends nothing.
    let other = folder.path().join("other.pem");
    std::fs::write(&other, Authority::new().pem()).expect("written");
    let wrong = "another-password-that-nobody-sees";
    for (roots, password) in [(&other, PASSWORD), (&roots, wrong)] {
        let server = start(roots.to_str().expect("UTF-8"), password);
        server.topic("orders", "EventGridSchema");
        let refused = server.ask_for("orders", "kafka", &spec);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(!refused.text().contains(password) && !server.logs().contains(password), "{}", refused.text());
    }
    assert_eq!(kafka.records("orders", 0, 0).0.len(), 1);
}
