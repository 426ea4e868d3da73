//! How long a publisher waits, and how long an event is on its way, while the server does half of
//! what it can.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{MEGABYTE, USUAL};
use crate::harness::{
    Bench,
    disk::Probe,
    endpoint::Endpoint,
    floor::Floor,
    load::{Amount, Shape, closed, open},
    row::{Against, Row},
    stage::{Cost, Stage, folder},
};

/// The time after a start until a server has given back what the start took.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(6);

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let mut stage = Stage::start();
    let idle = (0..scale.runs).map(|_| {
        std::thread::sleep(SETTLE_TIME.min(scale.time * 2));
        let resident = stage.server.resident() as f64 / MEGABYTE;
        stage.server.terminate();
        stage.server.restart();
        resident
    });
    let idle: Vec<f64> = idle.collect();
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let targets = std::slice::from_ref(&target);
    let most = Cost::measure(stage.server.id(), &endpoint, 1, || {
        closed(
            targets,
            Shape::ONE,
            scale.connections,
            Amount::For(scale.time),
        )
    });
    let half = most.rate() / 2.0;
    let mut syncs = Vec::new();
    let mut answers = Vec::new();
    let mut medians = Vec::new();
    let mut tails = Vec::new();
    let stored = folder();
    let (relay, relayed) = Floor::storing_relay(bench.again, &endpoint.url("/"), stored.path());
    let mut beside = Vec::new();
    let mut relayed_tails = Vec::new();
    for _ in 0..scale.runs {
        endpoint.take();
        let probe = Probe::start(stage.folder());
        let timed = Shape {
            stamp: None,
            ..Shape::ONE
        };
        let cost = Cost::measure(stage.server.id(), &endpoint, 1, || {
            open(targets, timed, scale.connections, half, scale.time)
        });
        let (ways, _) = endpoint.take();
        let of_relay = || {
            open(
                std::slice::from_ref(&relayed),
                timed,
                scale.connections,
                half,
                scale.time,
            )
        };
        Cost::measure(relay.id(), &endpoint, 1, of_relay);
        let (relayed_ways, _) = endpoint.take();
        let tail = |ways: &Histogram<u64>| milliseconds(ways, 0.99) - milliseconds(ways, 0.5);
        syncs.push(milliseconds(&probe.stop().took, 0.5));
        answers.push(milliseconds(&cost.sent.answers, 0.5));
        medians.push(milliseconds(&ways, 0.5));
        tails.push(tail(&ways));
        relayed_tails.push(tail(&relayed_ways));
        beside = cost.beside();
        beside.push(("half of events/s".to_owned(), most.rate()));
    }
    let answered = Row {
        number: "4",
        what: "a publisher's wait at half load: p50",
        on: USUAL.to_owned(),
        unit: "ms",
        floor_is: "one sync of this disk, p50, meanwhile",
        against: Against::Floor,
        budget: 2.5,
        stretch: 1.5,
        figures: answers,
        floors: syncs,
        beside,
    };
    let arrived = Row {
        number: "5",
        what: "publish to arrival at half load: p99 - p50",
        floor_is: "p50 of the same way",
        against: Against::Most,
        budget: 8.0,
        stretch: 4.0,
        figures: tails,
        floors: medians,
        beside: Vec::new(),
        ..answered.clone()
    };
    let beyond_storing = Row {
        number: "5b",
        what: "row 5 over a relay that stores",
        floor_is: "the relay, which syncs each event to RocksDB first, at the same rate",
        against: Against::Floor,
        budget: 2.0,
        stretch: 1.3,
        floors: relayed_tails,
        ..arrived.clone()
    };
    let memory = Row {
        number: "6",
        what: "memory of an idle server",
        on: "the defaults".to_owned(),
        unit: "MB",
        floor_is: "none",
        budget: 64.0,
        stretch: 40.0,
        figures: idle,
        floors: Vec::new(),
        ..arrived.clone()
    };
    vec![answered, arrived, beyond_storing, memory]
}

/// The quantile of durations in nanoseconds, in milliseconds.
pub(super) fn milliseconds(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1e6
}
