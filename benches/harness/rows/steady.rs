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
    let store = folder();
    let (relay, relayed) = Floor::relay(bench.again, &endpoint.url("/"));
    let (storing, stored) = Floor::storing_relay(bench.again, &endpoint.url("/"), store.path());
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
    let measure_all = |time| {
        (
            cost(relay.id(), &relayed, time),
            cost(storing.id(), &stored, time),
            cost(stage.server.id(), &target, time),
        )
    };
    measure_all(scale.time / 4);
    let (floors, storing_floors, costs): (Vec<Cost>, Vec<Cost>, Vec<Cost>) = (0..scale.runs)
        .map(|_| measure_all(scale.time * 2))
        .collect();
    let probe = Probe::start(stage.folder());
    thread::sleep(scale.time);
    let sync = probe.stop().each;
    let mut beside = costs.last().map(Cost::beside).unwrap_or_default();
    beside.push(("CPU of a synced append, µs".to_owned(), sync));
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect::<Vec<_>>();
    let row = Row {
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
    };
    let over_storing = Row {
        number: "19b",
        what: "row 19 over a relay that stores",
        floor_is: "the relay, which syncs each event to RocksDB first",
        against: Against::Floor,
        budget: 1.3,
        stretch: 1.1,
        floors: each(&storing_floors),
        beside: Vec::new(),
        ..row.clone()
    };
    vec![row, over_storing]
}
