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
    stage::{Cost, Stage, folder},
};

/// Enough to keep the journal busy.
const CONNECTIONS: usize = 16;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let folders = [folder(), folder()];
    let (relay, relayed) = Floor::relay(bench.again, &endpoint.url("/"));
    let (storing, stored) =
        Floor::storing_relay(bench.again, &endpoint.url("/"), folders[0].path());
    let (copy, copied) = Floor::copy(bench.again, endpoint.address(), folders[1].path());
    let stage = Stage::start();
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| {
        spec.batch(100)
    });
    let connections = CONNECTIONS.min(bench.scale.connections);
    let over = |floor, target_of_floor| {
        pairs(
            bench,
            &endpoint,
            (floor, target_of_floor),
            (&stage, &target),
            Shape::HUNDRED,
            connections,
        )
    };
    let (floors, figures) = over(&relay, &relayed);
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
    let (stored_floors, stored_figures) = over(&storing, &stored);
    let over_storing = Row {
        number: "2c",
        what: "row 2a over a relay that stores",
        floor_is: "the relay, which syncs each request to RocksDB first",
        against: Against::Floor,
        budget: 1.3,
        stretch: 1.1,
        figures: of(&stored_figures, Cost::each),
        floors: of(&stored_floors, Cost::each),
        beside: beside(&stored_floors, &stored_figures),
        ..row.clone()
    };
    let (copied_floors, copied_figures) = over(&copy, &copied);
    let over_copy = Row {
        number: "2d",
        what: "row 2a over a copy of the bytes",
        floor_is: "the bytes copied from a socket to a synced file and to another socket",
        budget: 4.0,
        stretch: 3.0,
        figures: of(&copied_figures, Cost::each),
        floors: of(&copied_floors, Cost::each),
        beside: beside(&copied_floors, &copied_figures),
        ..over_storing.clone()
    };
    vec![row, rate, over_storing, over_copy]
}
