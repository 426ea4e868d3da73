//! A few hundred events a second, as on most servers: the cost of an event that shares no sync and no request with
//! others.

use super::USUAL;
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    load::{Shape, open},
    row::{Against, Row},
    stage::{Cost, Stage},
};

/// Events a second.
const RATE: f64 = 300.0;

/// Publishers.
const CONNECTIONS: usize = 4;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let (scale, endpoint, stage) = (&bench.scale, Endpoint::start(), Stage::start());
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let cost = |time| {
        let load = || open(std::slice::from_ref(&target), Shape::KIBIBYTE, CONNECTIONS, RATE, time);
        Cost::of(stage.server.id(), &endpoint, 1, load)
    };
    cost(scale.time / 4);
    let costs: Vec<Cost> = (0..scale.runs).map(|_| cost(scale.time * 2)).collect();
    vec![Row {
        number: "19",
        what: "300 events of 1 KiB a second: CPU an event",
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "none",
        against: Against::Most,
        budget: 200.0,
        stretch: 120.0,
        figures: costs.iter().map(Cost::each).collect(),
        floors: Vec::new(),
        beside: costs.last().map(Cost::beside).unwrap_or_default(),
    }]
}
