//! One event in a request, one in a delivery: the whole cost of an event.

use super::USUAL;
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    floor::Floor,
    load::{Amount, Shape, Target, closed},
    row::{Against, Row},
    stage::{Cost, Stage, folder},
};

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let stored = folder();
    let relay = Floor::relay(bench.again, &endpoint.url("/"));
    let storing = Floor::storing_relay(bench.again, &endpoint.url("/"), stored.path());
    let stage = Stage::start();
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let relayed = "a relay of the same bodies, actix-web in, awc out";
    let rows = [
        (
            "1",
            "one event a request, one a delivery: CPU an event",
            Shape::ONE,
            &relay,
            relayed,
        ),
        (
            "1b",
            "the same with events of 1 KiB",
            Shape::KIBIBYTE,
            &relay,
            relayed,
        ),
        (
            "1c",
            "row 1 over a relay that stores",
            Shape::ONE,
            &storing,
            "the relay, which syncs each event to RocksDB first",
        ),
    ];
    let rows = rows.map(|(number, what, shape, (floor, floored), floor_is)| {
        let (floors, figures) = pairs(
            bench,
            &endpoint,
            (floor, floored),
            (&stage, &target),
            shape,
            bench.scale.connections,
        );
        let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect();
        Row {
            number,
            what,
            on: USUAL.to_owned(),
            unit: "µs",
            floor_is,
            against: Against::Floor,
            budget: 1.6,
            stretch: 1.3,
            figures: each(&figures),
            floors: each(&floors),
            beside: beside(&floors, &figures),
        }
    });
    rows.into()
}

/// The last run, and the relay's rate in it.
pub(super) fn beside(floors: &[Cost], figures: &[Cost]) -> Vec<(String, f64)> {
    let relay = floors
        .last()
        .map(|cost| ("the relay's events/s".to_owned(), cost.rate()));
    figures
        .last()
        .map(Cost::beside)
        .unwrap_or_default()
        .into_iter()
        .chain(relay)
        .collect()
}

/// The costs of the relay and of the server, in turn, once both are warm.
pub(super) fn pairs(
    bench: &Bench,
    endpoint: &Endpoint,
    (relay, relayed): (&Floor, &Target),
    (stage, target): (&Stage, &Target),
    shape: Shape,
    connections: usize,
) -> (Vec<Cost>, Vec<Cost>) {
    let time = bench.scale.time;
    let cost = |process, target: &Target, time| {
        let load = || {
            closed(
                std::slice::from_ref(target),
                shape,
                connections,
                Amount::For(time),
            )
        };
        Cost::measure(process, endpoint, 1, load)
    };
    let pair = |time| {
        (
            cost(relay.id(), relayed, time),
            cost(stage.server.id(), target, time),
        )
    };
    pair(time / 4);
    (0..bench.scale.runs).map(|_| pair(time)).unzip()
}
