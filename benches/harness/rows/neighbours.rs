//! Ten thousand event subscriptions of one topic, each with a text to look for in every event: how
//! long events of another topic are on their way meanwhile.

use std::thread;

use serde_json::json;

use super::{USUAL, latency::milliseconds, many::OPERATORS};
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    load::{Shape, open},
    row::{Against, Row},
    stage::{Cost, Stage},
};

/// Events a second of the topic with the filters, and of its neighbour.
const FILTERED_RATE: f64 = 20.0;
const NEIGHBOUR_RATE: f64 = 200.0;

/// The number of publishers of each topic.
const CONNECTIONS: usize = 4;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let filters = scale.square * scale.square;
    let filters_max = filters.to_string();
    let stage = Stage::with(&[("LIMITS__SUBSCRIPTIONS_PER_TOPIC", filters_max.as_str())]);
    let neighbour = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let filtered = stage.topic("searched", "current");
    let url = endpoint.url("/searched");
    thread::scope(|scope| {
        for operator in 0..OPERATORS {
            let stage = &stage;
            let url = &url;
            scope.spawn(move || {
                for number in (operator..filters).step_by(OPERATORS) {
                    let text = json!({
                        "operatorType": "StringContains",
                        "key": "data.pad",
                        "values": [format!("order {number}")],
                    });
                    let filter = json!({"filter": {"advancedFilters": [text]}});
                    stage.subscribe("searched", &format!("text-{number}"), url, |spec| {
                        spec.also(&json!({}), &filter)
                    });
                }
            });
        }
    });
    let timed = Shape {
        stamp: None,
        ..Shape::ONE
    };
    let publish_to = |target, shape, rate| {
        open(
            std::slice::from_ref(target),
            shape,
            CONNECTIONS,
            rate,
            scale.time * 2,
        )
    };
    let slowest = || {
        endpoint.take();
        Cost::measure(stage.server.id(), &endpoint, 1, || {
            publish_to(&neighbour, timed, NEIGHBOUR_RATE)
        });
        let (ways, _) = endpoint.take();
        milliseconds(&ways, 0.99)
    };
    let mut floors = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..scale.runs {
        floors.push(slowest());
        let meanwhile = thread::scope(|scope| {
            // None of its events matches a filter, so none arrives.
            scope.spawn(|| publish_to(&filtered, Shape::ONE, FILTERED_RATE));
            slowest()
        });
        figures.push(meanwhile);
    }
    vec![Row {
        number: "29",
        what: "publish to arrival beside 10,000 text filters: p99",
        on: USUAL.to_owned(),
        unit: "ms",
        floor_is: "the same without events of the other topic",
        against: Against::Most,
        budget: 10.0,
        stretch: 5.0,
        figures,
        floors,
        beside: Vec::new(),
    }]
}
