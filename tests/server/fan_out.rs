//! A hundred thousand mixed events of each schema, to two subscriptions with different filters.

use std::collections::HashMap;

use gridhook::event::Schema;

use super::{LONG, many, wait_until_settled};
use crate::support::{
    events::{Generated, events},
    http::Client,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Sink, hash},
};

const TYPES: [&str; 3] = [
    "Orders.Order.Placed",
    "Microsoft.Storage.BlobCreated",
    "Sensors.Alarm.Raised",
];

const PREFIX: &str = "/blobs/";

/// About the number of bytes of a request.
const REQUEST_BYTES: usize = 700_000;

/// The expected events of each path: the id, and the hash of `data`.
type Expected = HashMap<String, HashMap<String, u64>>;

#[test]
fn a_hundred_thousand_events_arrive_exactly_where_they_match() {
    let _rows = crate::spec::shows(&[
        "S000-003, S002-002, S003-002: Event Grid delivers each message at least once for each \
         matching subscription.",
        "S000-058: Output batching can be turned on separately in each subscription.",
        "S000-068, S003-019: Batched delivery is configured per event subscription.",
    ]);
    let server = Server::start(&[]);
    let sink = Sink::start();
    let mut expected = Expected::new();
    let count = many(100_000, 1_000_000) / 2;
    for (topic, name, schema) in [
        ("grid", "EventGridSchema", Schema::EventGrid),
        ("cloud", "CloudEventSchemaV1_0", Schema::CloudEvents),
    ] {
        let key = server.topic(topic, name);
        let url = |subscription| sink.url(&path(topic, subscription));
        server.subscribe(
            topic,
            "by-type",
            &SubscriptionSpec::new(&url("by-type")).types(&TYPES),
        );
        server.subscribe(
            topic,
            "by-subject",
            &SubscriptionSpec::new(&url("by-subject"))
                .prefix(PREFIX)
                .batch(100),
        );
        publish_all(
            &server,
            topic,
            &key,
            events(schema, 7).take(count),
            &mut expected,
        );
    }
    for topic in ["grid", "cloud"] {
        for subscription in ["by-type", "by-subject"] {
            let path = path(topic, subscription);
            let expected = &expected[&path];
            wait_for(&path, 10 * LONG, || sink.taken(&path) >= expected.len());
            wait_until_settled(&server, topic, subscription);
            assert_exact(&sink, &path, expected);
            let counter = |name| server.counter(topic, subscription, name);
            assert_eq!(counter("delivered"), expected.len() as u64, "{path}");
            assert_eq!(
                counter("filtered"),
                (count - expected.len()) as u64,
                "{path}"
            );
            assert_eq!(counter("requestsFailed"), 0, "{path}");
        }
        let largest = |subscription| {
            let path = path(topic, subscription);
            sink.look(&path, |ledger| {
                ledger.values().flatten().map(|arrival| arrival.batch).max()
            })
            .unwrap_or_default()
        };
        assert_eq!(
            largest("by-type"),
            1,
            "{topic}: each subscription has its own setting"
        );
        let batched = largest("by-subject");
        assert!(
            (2..=100).contains(&batched),
            "{topic}: batches of up to {batched}"
        );
    }
}

fn path(topic: &str, subscription: &str) -> String {
    format!("/{topic}/{subscription}")
}

fn publish_all(
    server: &Server,
    topic: &str,
    key: &str,
    events: impl Iterator<Item = Generated>,
    expected: &mut Expected,
) {
    let mut client = Client::new(server.address());
    let headers = [
        ("aeg-sas-key", key),
        ("content-type", "application/cloudevents-batch+json"),
    ];
    let mut post = |body: String| {
        let response = client.ask(
            "POST",
            &events_path(topic),
            &headers,
            format!("[{body}]").as_bytes(),
        );
        let response = response.expect("a publisher is answered");
        assert_eq!(response.status, 200, "{}", response.text());
    };
    let mut body = String::new();
    for event in events {
        for (subscription, matches) in [
            ("by-type", TYPES.contains(&event.event_type.as_str())),
            ("by-subject", event.subject.starts_with(PREFIX)),
        ] {
            let expected = expected.entry(path(topic, subscription)).or_default();
            if matches {
                expected.insert(event.id.clone(), hash(&event.data));
            }
        }
        if !body.is_empty() {
            body.push(',');
        }
        body += &event.json;
        if body.len() > REQUEST_BYTES {
            post(std::mem::take(&mut body));
        }
    }
    post(body);
}

fn assert_exact(sink: &Sink, path: &str, expected: &HashMap<String, u64>) {
    sink.look(path, |ledger| {
        for (id, arrivals) in ledger {
            let data: Vec<u64> = arrivals.iter().map(|arrival| arrival.data).collect();
            assert_eq!(
                Some(data.as_slice()),
                expected.get(id).map(std::slice::from_ref),
                "{path}: event {id}"
            );
        }
        assert_eq!(ledger.len(), expected.len(), "{path}");
    });
}
