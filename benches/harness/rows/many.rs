//! Ten thousand subscriptions: their memory and processor time while idle, and with an event a
//! second each; and ten times as many after a restart, of which one in a hundred has events.

use std::{thread, time::Duration};

use super::{MEGABYTE, USUAL};
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    load::{Sent, Shape, Target, open},
    row::{Against, Row},
    scale::Scale,
    stage::{Cost, Stage},
};

/// Operators at a time, while the subscriptions are made.
pub(super) const OPERATORS: usize = 8;

/// The number of publishers; each topic has one request a second.
const CONNECTIONS: usize = 8;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let stage = Stage::start();
    let targets = subscribe_all(&stage, scale.square, scale.square, |topic, number| {
        endpoint.url(&format!("/{topic}/{number}"))
    });
    thread::sleep(Duration::from_secs(2).min(scale.time));
    let resident = || stage.server.resident() as f64 / MEGABYTE;
    let mut idle = Vec::new();
    let mut busy = Vec::new();
    let mut beside = Vec::new();
    for _ in 0..scale.runs {
        idle.push(resident());
        let load = || publish_one_a_second(scale, &targets);
        let cost = Cost::measure(stage.server.id(), &endpoint, scale.square as u64, load);
        busy.push(resident());
        beside = cost.beside();
        beside.push(("µs CPU a delivery".to_owned(), cost.each()));
    }
    // The first is what they take before they ever had anything to do.
    idle.truncate(1);
    let idle = Row {
        number: "7a",
        what: "memory with 10,000 subscriptions, idle",
        on: USUAL.to_owned(),
        unit: "MB",
        floor_is: "none",
        against: Against::Most,
        budget: 80.0,
        stretch: 64.0,
        figures: idle,
        floors: Vec::new(),
        beside: Vec::new(),
    };
    let busy = Row {
        number: "7b",
        what: "the same, each with an event a second",
        budget: 150.0,
        stretch: 120.0,
        figures: busy,
        beside,
        ..idle.clone()
    };
    let (resident, ready) = measure_mostly_idle(bench);
    let mostly_idle = Row {
        number: "7c",
        what: "100,000 subscriptions after a restart, of which 1,000 have an event a second each",
        budget: 400.0,
        stretch: 320.0,
        figures: vec![resident],
        beside: vec![("s to ready".to_owned(), ready.as_secs_f64())],
        ..idle.clone()
    };
    vec![idle, busy, mostly_idle]
}

/// The memory in MB of ten times as many subscriptions, and how long a start with them takes.
fn measure_mostly_idle(bench: &Bench) -> (f64, Duration) {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let mut stage = Stage::start();
    subscribe_all(&stage, 10 * scale.square, scale.square, |topic, number| {
        endpoint.url(&format!("/{topic}/{number}"))
    });
    stage.server.terminate();
    let ready = stage.server.restart();
    let active: Vec<Target> = (0..scale.square.div_ceil(10))
        .map(|topic| stage.topic(&name(topic), "current"))
        .collect();
    let load = || publish_one_a_second(scale, &active);
    Cost::measure(stage.server.id(), &endpoint, scale.square as u64, load);
    (stage.server.resident() as f64 / MEGABYTE, ready)
}

/// Publishes an event a second to each topic.
fn publish_one_a_second(scale: &Scale, topics: &[Target]) -> Sent {
    open(
        topics,
        Shape::ONE,
        CONNECTIONS,
        topics.len() as f64,
        scale.time.max(Duration::from_secs(1)),
    )
}

/// Makes topics with this number of subscriptions each. `url` returns the endpoint of a
/// subscription.
pub(super) fn subscribe_all(
    stage: &Stage,
    topics: usize,
    subscriptions: usize,
    url: impl Fn(usize, usize) -> String + Sync,
) -> Vec<Target> {
    let targets = (0..topics)
        .map(|topic| stage.topic(&name(topic), "current"))
        .collect();
    thread::scope(|scope| {
        for operator in 0..OPERATORS {
            let url = &url;
            scope.spawn(move || {
                for topic in (operator..topics).step_by(OPERATORS) {
                    for number in 0..subscriptions {
                        stage.subscribe(
                            &name(topic),
                            &format!("billing-{number}"),
                            &url(topic, number),
                            |spec| spec,
                        );
                    }
                }
            });
        }
    });
    targets
}

fn name(topic: usize) -> String {
    format!("orders-{topic}")
}
