//! A few hundred events a second, as on most servers: the cost of an event that shares no sync and
//! no request with others. The relay shows how much more each event costs at such a rate, without
//! any work of the server; the processor time of one synced append is what the disk adds to that,
//! and the relay that stores has both.

use std::thread;

use super::USUAL;
use crate::harness::{
    Bench,
    disk::Probe,
    endpoint::Endpoint,
    floor::Floor,
    load::{Shape, Target, open},
    row::{Against, Row},
    stage::{Cost, Stage, folder},
};

/// Events a second.
const RATE: f64 = 300.0;

/// The number of publishers.
const CONNECTIONS: usize = 4;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let stage = Stage::start();
    let stored = folder();
    let (relay, relayed) = Floor::relay(bench.again, &endpoint.url("/"));
    let (storing, given) = Floor::storing_relay(bench.again, &endpoint.url("/"), stored.path());
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let cost = |process, target: &Target, time| {
        let load = || {
            open(
                std::slice::from_ref(target),
                Shape::KIBIBYTE,
                CONNECTIONS,
                RATE,
                time,
            )
        };
        Cost::measure(process, &endpoint, 1, load)
    };
    let pair = |time| {
        (
            cost(relay.id(), &relayed, time),
            cost(stage.server.id(), &target, time),
        )
    };
    pair(scale.time / 4);
    let (floors, costs): (Vec<Cost>, Vec<Cost>) =
        (0..scale.runs).map(|_| pair(scale.time * 2)).unzip();
    let probe = Probe::start(stage.folder());
    thread::sleep(scale.time);
    let sync = probe.stop().each;
    let storing = cost(storing.id(), &given, scale.time * 2).each();
    let mut beside = costs.last().map(Cost::beside).unwrap_or_default();
    beside.push(("CPU of a synced append, µs".to_owned(), sync));
    beside.push(("CPU of a relay that stores, µs".to_owned(), storing));
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect();
    vec![Row {
        number: "19",
        what: "300 events of 1 KiB a second: CPU an event",
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "a relay of the same bodies at the same rate",
        against: Against::Most,
        budget: 200.0,
        stretch: 120.0,
        figures: each(&costs),
        floors: each(&floors),
        beside,
    }]
}
