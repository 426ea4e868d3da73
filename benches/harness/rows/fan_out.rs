//! One event to many subscriptions, each delivery alone. The floors are the request alone, and as
//! many requests to as many endpoints over as many connections.

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
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let mut caller = Floor::caller(bench.again, &endpoint.url("/"), scale.connections);
    let stage = Stage::start();
    let target = stage.topic("orders", "current");
    for number in 0..scale.fan_out {
        let name = format!("billing-{number}");
        stage.subscribe(
            "orders",
            &name,
            &endpoint.url(&format!("/{name}")),
            |spec| spec,
        );
    }
    let called = |caller: &mut Floor, events: u64| {
        let id = caller.id();
        let requests = events * scale.fan_out;
        Cost::measure(id, &endpoint, 1, || {
            caller.call(requests);
            Sent {
                events: requests,
                answers: histogram(),
            }
        })
    };
    let delivered = |events: u64| {
        // So few publishers that no subscription falls far behind.
        let load = || {
            closed(
                std::slice::from_ref(&target),
                Shape::ONE,
                4,
                Amount::Requests(events),
            )
        };
        Cost::measure(stage.server.id(), &endpoint, scale.fan_out, load)
    };
    called(&mut caller, scale.fanned / 4);
    let others = endpoint.connections();
    delivered(scale.fanned / 4);
    // As many as the server opened for this load.
    let connections = endpoint.connections().saturating_sub(others).max(1);
    let mut callers = Floor::callers(
        bench.again,
        &endpoint.url("/billing-"),
        scale.fan_out,
        connections,
    );
    called(&mut callers, scale.fanned / 4);
    let mut floors = Vec::new();
    let mut wide_floors = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..scale.runs {
        floors.push(called(&mut caller, scale.fanned));
        wide_floors.push(called(&mut callers, scale.fanned));
        figures.push(delivered(scale.fanned));
    }
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect::<Vec<_>>();
    let row = |number, what, floor_is, floors: &[Cost], beside| Row {
        number,
        what,
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is,
        against: Against::Floor,
        budget: 1.7,
        stretch: 1.3,
        figures: each(&figures),
        floors: each(floors),
        beside,
    };
    vec![
        row(
            "3",
            "one event to 100 subscriptions, unbatched: CPU a delivery",
            "awc alone, to one endpoint over warm connections",
            &floors,
            figures.last().map(Cost::beside).unwrap_or_default(),
        ),
        row(
            "3b",
            "the same against as many endpoints and connections",
            "awc alone, to as many endpoints over as many connections",
            &wide_floors,
            vec![("connections".to_owned(), connections as f64)],
        ),
    ]
}
