//! A hundred events in a request, up to a hundred in a delivery: the cost of an event when the cost
//! of requests is shared.

use super::{
    USUAL,
    single::{beside, pairs},
};
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    floor::Floor,
    load::Shape,
    row::{Against, Row},
    stage::{Cost, Stage},
};

/// Enough to keep the journal busy.
const CONNECTIONS: usize = 16;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let (relay, relayed) = Floor::relay(bench.again, &endpoint.url("/"));
    let stage = Stage::start();
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| {
        spec.batch(100)
    });
    let connections = CONNECTIONS.min(bench.scale.connections);
    let (floors, figures) = pairs(
        bench,
        &endpoint,
        (&relay, &relayed),
        (&stage, &target),
        Shape::HUNDRED,
        connections,
    );
    let of =
        |costs: &[Cost], figure: fn(&Cost) -> f64| costs.iter().map(figure).collect::<Vec<_>>();
    let row = Row {
        number: "2a",
        what: "100 events a request, up to 100 a delivery: CPU",
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "a relay of the same bodies",
        against: Against::Most,
        budget: 2.5,
        stretch: 2.0,
        figures: of(&figures, Cost::each),
        floors: of(&floors, Cost::each),
        beside: beside(&floors, &figures),
    };
    let rate = Row {
        number: "2b",
        what: "the same: events a second",
        unit: "1/s",
        against: Against::Least,
        budget: 550_000.0,
        stretch: 650_000.0,
        figures: of(&figures, Cost::rate),
        floors: of(&floors, Cost::rate),
        beside: Vec::new(),
        ..row.clone()
    };
    vec![row, rate]
}
