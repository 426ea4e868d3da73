//! Kafka, and event hubs, which speak its protocol: a real broker in KRaft mode.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use gridhook::clock::Clock;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{LONG, Service, conform, outcomes, start_server};
use crate::{
    server::{end_waits, wait_until_settled},
    support::{
        certificates::Authority,
        http_service::HttpService,
        kafka::{Kafka, MESSAGE_BYTES_MAX, PASSWORD},
        load::{self, Load, Rate},
        needs,
        server::{Server, SubscriptionSpec, wait_for},
        tcp_proxy::{Cut, Direction, TcpProxy},
    },
};

const PARTITIONS: i32 = 3;

struct Cluster {
    kafka: Kafka,
    /// The next offset of each partition.
    read: BTreeMap<(String, i32), i64>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            kafka: Kafka::new(),
            read: BTreeMap::new(),
        }
    }
}

impl Service for Cluster {
    const KIND: &'static str = "Kafka";
    const SECRET: &'static str = PASSWORD;
    const IS_DURABLE: bool = true;
    const TOO_LARGE: usize = MESSAGE_BYTES_MAX;
    const EVENTS_MAX: u64 = 500;

    fn resume(&mut self) {
        self.kafka.resume();
    }

    fn stop(&mut self) {
        self.kafka.kill();
    }

    fn create(&mut self, name: &str) {
        self.kafka.create(name, PARTITIONS);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("URL", format!("kafka://{}", self.kafka.address())),
            (
                "RESOURCE_IDS",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/n"
                    .to_owned(),
            ),
            ("USERNAME", "gridhook".to_owned()),
            ("PASSWORD", PASSWORD.to_owned()),
        ]
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
                records
                    .into_iter()
                    .map(|record| serde_json::from_slice::<Value>(&value(record)).expect("JSON")),
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

/// The ids of the records of a partition, in order.
fn ids(kafka: &Kafka, partition: i32) -> Vec<String> {
    let id = |record: rskafka::record::Record| {
        let event: Value = serde_json::from_slice(&record.value.expect("a value")).expect("JSON");
        event["id"].as_str().expect("an id").to_owned()
    };
    kafka
        .records("orders", partition, 0)
        .0
        .into_iter()
        .map(id)
        .collect()
}

#[test]
fn records_whose_answer_was_lost_are_there_once() {
    if !needs::java() {
        return;
    }
    let proxy = TcpProxy::start(&[]);
    let mut cluster = Cluster {
        kafka: Kafka::behind(proxy.address()),
        read: BTreeMap::new(),
    };
    proxy.turn_to(&[cluster.kafka.address()]);
    cluster.resume();
    cluster.kafka.create("orders", 1);
    let server = start_server(&cluster);
    let key = server.topic("orders", "EventGridSchema");
    let destination = json!({"destination": {"endpointType": "Kafka", "properties": cluster.properties("orders")}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    let delivered = |count: u64| {
        wait_for("the answer", LONG, || {
            server.counter("orders", "queue", "delivered") == count
        });
    };
    server.publish("orders", &key, &load::body(&["before".to_owned()], "/load"));
    delivered(1);
    for (count, id) in [(2, "first"), (3, "second")] {
        let connections = proxy.connections();
        proxy.cut(Cut::One(Direction::ToClient));
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/load"));
        wait_for("the answer of the broker", LONG, || proxy.is_holding());
        proxy.break_held();
        // Not before: the response could pass after all.
        wait_for("another connection", LONG, || {
            proxy.connections() > connections
        });
        proxy.cut(Cut::Nothing);
        delivered(count);
    }
    server.publish("orders", &key, &load::body(&["behind".to_owned()], "/load"));
    delivered(4);
    assert_eq!(
        ids(&cluster.kafka, 0),
        ["before", "first", "second", "behind"]
    );
    assert_eq!(server.counter("orders", "queue", "requestsFailed"), 0);
}

#[test]
fn a_broker_that_is_killed_in_the_middle_of_deliveries_has_each_event_once() {
    if !needs::java() {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.resume();
    cluster.create("orders");
    let url = format!("kafka://{}", cluster.kafka.address());
    let server = Server::start(&[
        ("DELIVERY__RESOURCES__SERVICE__URL", &url),
        ("DELIVERY__RESOURCES__SERVICE__USERNAME", "gridhook"),
        ("DELIVERY__RESOURCES__SERVICE__PASSWORD", PASSWORD),
        // Longer than the broker needs for its start: until then a request whose response was lost
        // is repeated.
        ("DELIVERY__RESPONSE_TIMEOUT", "230s"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let destination = json!({"destination": {"endpointType": "Kafka", "properties": cluster.properties("orders")}});
    server.subscribe(
        "orders",
        "queue",
        &SubscriptionSpec::new("").also(&json!({}), &destination),
    );
    let pause = Duration::from_millis(5);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 20,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for _ in 0..2 {
        let before = server.counter("orders", "queue", "delivered");
        wait_for("deliveries", LONG, || {
            server.counter("orders", "queue", "delivered") > before + 500
        });
        cluster.kafka.kill();
        cluster.resume();
    }
    let acknowledged = load.stop();
    end_waits(&server, "orders", "queue");
    wait_until_settled(&server, "orders", "queue");
    let found: Vec<String> = (0..PARTITIONS)
        .flat_map(|partition| ids(&cluster.kafka, partition))
        .collect();
    let distinct: BTreeSet<&String> = found.iter().collect();
    assert!(
        acknowledged.iter().all(|id| distinct.contains(id)),
        "{} of {}",
        distinct.len(),
        acknowledged.len()
    );
    assert_eq!(
        found.len(),
        distinct.len(),
        "records are there more than once"
    );
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
        (
            "hub",
            "EventHub",
            json!({"resourceId": hub, "deliveryAttributeMappings": mappings}),
        ),
        (
            "binary",
            "Kafka",
            json!({"resourceId": "service", "topicName": "binary", "contentMode": "Binary",
                "deliveryAttributeMappings": mappings}),
        ),
    ] {
        let destination = json!({"destination": {"endpointType": kind, "properties": properties}});
        let spec = SubscriptionSpec::new("")
            .also(&json!({}), &destination)
            .schema("CloudEventSchemaV1_0");
        server.subscribe("orders", name, &spec);
    }
    // A topic that does not exist is found when the subscription is created.
    let missing = json!({"destination": {"endpointType": "Kafka",
        "properties": {"resourceId": "service", "topicName": "missing"}}});
    let response = server.put_subscription(
        "orders",
        "missing",
        &SubscriptionSpec::new("").also(&json!({}), &missing),
    );
    assert!(
        response.status == 400 && response.text().contains("the topic missing does not exist"),
        "{}",
        response.text()
    );

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
            let hash: i64 = if subject == "foobar" {
                -790_332_482
            } else {
                -985_981_536
            };
            assert_eq!(
                i64::from(partition),
                (hash & 0x7fff_ffff) % i64::from(PARTITIONS),
                "{subject}"
            );
            let header = |name: &str| {
                record
                    .headers
                    .get(name)
                    .map(|value| String::from_utf8_lossy(value).into_owned())
            };
            assert_eq!(header("tenant").as_deref(), Some("blue"));
            let value: Value =
                serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
            if topic == "structured" {
                assert_eq!(
                    header("content-type").as_deref(),
                    Some("application/cloudevents+json; charset=utf-8")
                );
                assert_eq!(value["subject"], subject);
            } else {
                assert_eq!(header("ce_subject"), Some(subject));
                assert_eq!(header("ce_specversion").as_deref(), Some("1.0"));
                assert!(
                    value["id"].is_string() && value["specversion"].is_null(),
                    "{value} is the data"
                );
            }
        }
    }
}

#[test]
fn a_broker_with_tls_is_trusted_by_its_certificate_and_demands_the_password() {
    if !needs::java() {
        return;
    }
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let mut kafka = Kafka::secure(&authority);
    kafka.resume();
    kafka.create("orders", 1);
    let roots = folder.path().join("ca.pem");
    std::fs::write(&roots, authority.pem()).expect("written");
    let url = format!("kafkas://{}", kafka.address());
    let destination = json!({"destination": {"endpointType": "Kafka",
        "properties": {"resourceId": "service", "topicName": "orders"}}});
    let spec = SubscriptionSpec::new("").also(&json!({}), &destination);
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
    wait_for("the event", LONG, || {
        trusting.counter("orders", "kafka", "delivered") == 1
    });
    assert_eq!(kafka.records("orders", 0, 0).0.len(), 1);

    // A client without the authority or the password sends nothing.
    let other = folder.path().join("other.pem");
    std::fs::write(&other, Authority::new().pem()).expect("written");
    let wrong = "another-password-that-nobody-sees";
    for (roots, password) in [(&other, PASSWORD), (&roots, wrong)] {
        let server = start(roots.to_str().expect("UTF-8"), password);
        server.topic("orders", "EventGridSchema");
        let refused = server.put_subscription("orders", "kafka", &spec);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(
            !refused.text().contains(password) && !server.logs().contains(password),
            "{}",
            refused.text()
        );
    }
    assert_eq!(kafka.records("orders", 0, 0).0.len(), 1);
}

/// Seconds for which a token is valid. It is replaced after four fifths of them.
const TOKEN_SECONDS: u64 = 40;

/// An access token that the broker takes until `expires`, in seconds since 1970.
fn unsigned(expires: u64) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.",
        part(&json!({"alg": "none"})),
        part(&json!({"sub": "gridhook", "exp": expires}))
    )
}

#[test]
fn connections_are_made_anew_with_each_access_token_before_the_broker_closes_the_old_ones() {
    if !needs::java() {
        return;
    }
    let mut cluster = Cluster::new();
    cluster.resume();
    cluster.create("orders");
    let now = || Clock::system().now().0 / 1_000_000;
    let fetched: Arc<Mutex<Vec<u64>>> = Arc::default();
    let times = Arc::clone(&fetched);
    // The broker refuses the first token.
    let mut issuer = HttpService::new(Arc::new(move |_, _| {
        let mut times = times.lock();
        let expires = if times.is_empty() {
            now() - 60
        } else {
            now() + TOKEN_SECONDS
        };
        times.push(now());
        let body = json!({"token_type": "Bearer", "expires_in": TOKEN_SECONDS, "access_token": unsigned(expires)});
        (
            200,
            "content-type: application/json\r\n",
            body.to_string().into_bytes(),
        )
    }));
    issuer.resume();
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s3cret").expect("written");
    let server = Server::start(&[
        (
            "DELIVERY__IDENTITY_TOKEN_URL",
            &format!("http://{}/token", issuer.address()),
        ),
        ("DELIVERY__IDENTITY_CLIENT_ID", "gridhook"),
        (
            "DELIVERY__IDENTITY_SECRET_FILE",
            secret.to_str().expect("UTF-8"),
        ),
        (
            "DELIVERY__RESOURCES__SERVICE__URL",
            &format!("kafka://{}", cluster.kafka.address()),
        ),
        (
            "DELIVERY__RESOURCES__SERVICE__TOKEN_AUDIENCE",
            "https://eventhubs.azure.net",
        ),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let destination = json!({"destination": {"endpointType": "Kafka", "properties": cluster.properties("orders")}});
    let spec = SubscriptionSpec::new("").also(&json!({}), &destination);
    let refused = server.put_subscription("orders", "queue", &spec);
    assert!(
        refused.status == 400 && refused.text().contains("cannot be reached"),
        "{}",
        refused.text()
    );
    server.subscribe("orders", "queue", &spec);

    let pause = Duration::from_millis(25);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 1,
        events_per_request: 1,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    let first = fetched.lock()[1];
    wait_for("the end of the first good token", LONG, || {
        now() > first + TOKEN_SECONDS + 1
    });
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "queue");
    let found: BTreeSet<String> = cluster
        .receive("orders")
        .iter()
        .map(|event| event["id"].as_str().expect("an id").to_owned())
        .collect();
    assert!(
        acknowledged.iter().all(|id| found.contains(id)),
        "{} of {}",
        found.len(),
        acknowledged.len()
    );
    let fetched = fetched.lock().clone();
    assert!(
        fetched.len() >= 3 && fetched[2] < first + TOKEN_SECONDS,
        "{fetched:?}"
    );
    let ledger = outcomes(&server, "queue");
    assert!(!ledger.contains(": 401 "), "{ledger}");
    assert!(!server.logs().contains(&unsigned(first + TOKEN_SECONDS)));
}
