//! One event to many subscriptions, each delivery alone: what is done for each delivery, against the request alone.

use super::USUAL;
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    floor::Floor,
    load::{Amount, Sent, Shape, closed, histogram},
    row::{Against, Row},
    stage::{Cost, Stage},
};

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let (scale, endpoint) = (&bench.scale, Endpoint::start());
    let mut caller = Floor::caller(bench.again, &endpoint.url("/"), scale.connections);
    let stage = Stage::start();
    let target = stage.topic("orders", "current");
    for number in 0..scale.fan_out {
        let name = format!("billing-{number}");
        stage.subscribe("orders", &name, &endpoint.url(&format!("/{name}")), |wish| wish);
    }
    let mut pair = |events: u64| {
        let id = caller.id();
        let floor = Cost::of(id, &endpoint, 1, || {
            caller.call(events * scale.fan_out);
            Sent { events: events * scale.fan_out, answers: histogram() }
        });
        // So few publishers that nobody falls far behind.
        let load = || closed(std::slice::from_ref(&target), Shape::ONE, 4, Amount::Requests(events));
        (floor, Cost::of(stage.server.id(), &endpoint, scale.fan_out, load))
    };
    pair(scale.fanned / 4);
    let (floors, figures): (Vec<_>, Vec<_>) = (0..scale.runs).map(|_| pair(scale.fanned)).unzip();
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect();
    vec![Row {
        number: "3",
        what: "one event to 100 subscriptions, unbatched: CPU a delivery",
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "awc alone",
        against: Against::Floor,
        budget: 1.7,
        stretch: 1.3,
        figures: each(&figures),
        floors: each(&floors),
        beside: figures.last().map(Cost::beside).unwrap_or_default(),
    }]
}
