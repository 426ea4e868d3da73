//! Ten thousand distinct endpoints with an event a second each: as many connections, none of which
//! is used twice in a row.

use std::time::Duration;

use super::{MEGABYTE, USUAL, many::subscribe_all};
use crate::{
    harness::{
        Bench,
        endpoint::{Endpoint, distinct_url},
        floor::Floor,
        load::{Sent, Shape, histogram, open},
        row::{Against, Row},
        stage::{Cost, Stage},
    },
    support::process,
};

/// The number of publishers; each topic has one request a second.
const PUBLISHERS: usize = 8;

/// Requests of the floor at a time.
const CALLERS: usize = 64;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start_everywhere();
    let stage = Stage::start();
    let endpoints = scale.square * scale.square;
    let targets = subscribe_all(&stage, scale.square, scale.square, |topic, number| {
        distinct_url(endpoint.port(), topic * scale.square + number)
    });
    let mut floor = Floor::everywhere(
        bench.again,
        endpoint.port(),
        endpoints,
        CALLERS.min(endpoints),
    );
    let mut called = || {
        let requests = endpoints as u64;
        Cost::measure(floor.id(), &endpoint, 1, || {
            floor.call(requests);
            Sent {
                events: requests,
                answers: histogram(),
            }
        })
    };
    let time = scale.time.max(Duration::from_secs(1));
    let delivered = || {
        let load = || open(&targets, Shape::ONE, PUBLISHERS, targets.len() as f64, time);
        Cost::measure(stage.server.id(), &endpoint, scale.square as u64, load)
    };
    // Not measured: the first round opens the connections of both.
    called();
    delivered();
    let mut floors = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..scale.runs {
        floors.push(called());
        figures.push(delivered());
    }
    let resident =
        [floor.id(), stage.server.id()].map(|id| process::resident(id) as f64 / MEGABYTE);
    let connections = endpoint.connections() as f64;
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect::<Vec<_>>();
    vec![
        Row {
            number: "18",
            what: "10,000 endpoints, an event a second each: CPU a delivery",
            on: USUAL.to_owned(),
            unit: "µs",
            floor_is: "awc alone, to the same endpoints over as many connections",
            against: Against::Floor,
            budget: 1.7,
            stretch: 1.3,
            figures: each(&figures),
            floors: each(&floors),
            beside: figures.last().map(Cost::beside).unwrap_or_default(),
        },
        Row {
            number: "18b",
            what: "the same: memory",
            on: USUAL.to_owned(),
            unit: "MB",
            floor_is: "awc alone",
            against: Against::Floor,
            budget: 2.0,
            stretch: 1.5,
            figures: vec![resident[1]],
            floors: vec![resident[0]],
            beside: vec![("connections of both".to_owned(), connections)],
        },
    ]
}
