//! Destinations other than webhooks: what it costs to deliver what is stored, against the client of
//! the service alone. The events are published while the event subscription is held, and the server
//! is idle again before the measurement begins. So the row has what delivery costs: reading and
//! decoding the log, the filter, the requests, and the synced records of their outcomes. It has
//! neither publishing nor what the store does later: flushes, compactions and trimming.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    harness::{
        Bench,
        floor::Floor,
        load::{Amount, Shape, closed},
        row::Row,
        stage::Stage,
        time::now,
    },
    support::{
        azurite::{ACCOUNT, Azurite, KEY, create_queue},
        kafka::{Kafka, PASSWORD},
        needs, process,
    },
};

/// Seldom enough that the question costs the server nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of polls until everything has arrived.
const POLLS_MAX: u32 = 12_000;

/// Pauses in a row in which a server without work uses no processor time.
const QUIET_PAUSES: u32 = 8;

/// Requests to a queue at a time.
const QUEUE_REQUESTS: usize = 16;

/// A destination that is measured, and its floor.
struct Service {
    kind: &'static str,
    settings: Vec<(&'static str, String)>,
    properties: Value,
    floor: Floor,
    /// The number of events of a run.
    events: u64,
    row: Row,
}

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    [kafka(bench), queue(bench)].into_iter().flatten().collect()
}

fn kafka(bench: &Bench) -> Option<Row> {
    if !needs::java() {
        return None;
    }
    let mut kafka = Kafka::usual();
    kafka.resume();
    kafka.create("orders", 1);
    let address = kafka.address().to_string();
    Some(measure(
        bench,
        Service {
            kind: "Kafka",
            settings: vec![
                ("URL", format!("kafka://{address}")),
                ("USERNAME", "gridhook".to_owned()),
                ("PASSWORD", PASSWORD.to_owned()),
            ],
            properties: json!({"resourceId": "service", "topicName": "orders"}),
            floor: Floor::kafka(bench.again, &address, "orders"),
            events: bench.scale.fanned * 300,
            row: row(
                "20",
                "backlog to Kafka, 500 events a request: CPU an event",
                "rskafka alone, the same records",
            ),
        },
    ))
}

fn queue(bench: &Bench) -> Option<Row> {
    if !needs::node() {
        return None;
    }
    let mut azurite = Azurite::new("queue");
    azurite.resume();
    create_queue(azurite.address(), "orders");
    let base = format!("http://{}/{ACCOUNT}", azurite.address());
    Some(measure(
        bench,
        Service {
            kind: "StorageQueue",
            settings: vec![("URL", base.clone()), ("ACCESS_KEY", KEY.to_owned())],
            properties: json!({"resourceId": "service", "queueName": "orders"}),
            floor: Floor::queue(bench.again, &base, "orders", QUEUE_REQUESTS),
            events: bench.scale.fanned * 4,
            row: row(
                "21",
                "backlog to a storage queue, one event a request: CPU",
                "awc and HMAC alone",
            ),
        },
    ))
}

fn row(number: &'static str, what: &'static str, floor_is: &'static str) -> Row {
    Row::from_processor_time(number, what, floor_is, (2.0, 1.5), (Vec::new(), Vec::new()))
}

fn measure(bench: &Bench, service: Service) -> Row {
    let Service {
        kind,
        settings,
        properties,
        mut floor,
        events,
        row,
    } = service;
    let settings: Vec<(String, String)> = settings
        .into_iter()
        .map(|(key, value)| (format!("DELIVERY__RESOURCES__SERVICE__{key}"), value))
        .collect();
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let stage = Stage::with(&settings);
    let target = stage.topic("orders", "current");
    let destination = json!({"destination": {"endpointType": kind, "properties": properties}});
    stage.subscribe("orders", "backlog", "", |spec| {
        spec.also(&json!({}), &destination)
    });
    let server = &stage.server;
    let delivered = || server.counter("orders", "backlog", "delivered");
    let mut rates = Vec::new();
    let mut pair = |events: u64| {
        server.post_verb("orders", "backlog", "hold");
        let shape = Shape {
            events: 20,
            ..Shape::ONE
        };
        let sent = closed(
            std::slice::from_ref(&target),
            shape,
            4,
            Amount::Requests(events.div_ceil(20)),
        )
        .events;
        let goal = delivered() + sent;
        wait_until_idle(server.id());
        let before = process::processor(server.id());
        let began = now();
        server.post_verb("orders", "backlog", "resume");
        let arrived = (0..POLLS_MAX).any(|_| {
            thread::sleep(PAUSE);
            delivered() >= goal
        });
        assert!(arrived, "{}", server.status("orders", "backlog"));
        let figure = process::processor(server.id()) - before;
        rates.push(sent as f64 * 1e9 / (now() - began) as f64);
        // The client's turn comes second: where it speaks Kafka, it repeats a request of the
        // server.
        let before = process::processor(floor.id());
        floor.call(events);
        let floor = process::processor(floor.id()) - before;
        let each = |time: Duration, events: u64| time.as_secs_f64() * 1e6 / events as f64;
        (each(floor, events), each(figure, sent))
    };
    pair(events / 4);
    let (floors, figures) = (0..bench.scale.runs).map(|_| pair(events)).unzip();
    let requests = server.counter("orders", "backlog", "requests") as f64;
    let a_request = (
        "events a request".to_owned(),
        delivered() as f64 / requests.max(1.0),
    );
    let beside = vec![
        (
            "events/s".to_owned(),
            rates.last().copied().unwrap_or_default(),
        ),
        a_request,
    ];
    Row {
        figures,
        floors,
        beside,
        ..row
    }
}

/// Waits until the server has used no processor time for some pauses in a row: flushes and
/// compactions of what was published have ended. What is left in the buffers of the store is
/// flushed later.
fn wait_until_idle(server: u32) {
    let mut quiet = 0;
    let mut before = process::processor(server);
    for _ in 0..POLLS_MAX {
        thread::sleep(PAUSE);
        let now = process::processor(server);
        quiet = if now == before { quiet + 1 } else { 0 };
        if quiet == QUIET_PAUSES {
            return;
        }
        before = now;
    }
    panic!("the server is still busy");
}
