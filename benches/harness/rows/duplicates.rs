//! Duplicate detection: what the look-up of each id costs.

use super::USUAL;
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    load::{Amount, Shape, Target, closed},
    row::{Against, Row},
    stage::{Cost, Stage},
};

/// Long enough that no id ends during a run.
const WINDOW: &str = "PT10M";

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let stage = Stage::start();
    let topic = |name: &str| {
        let target = stage.topic(name, "current");
        stage.subscribe(name, "billing", &endpoint.url("/billing"), |spec| {
            spec.batch(100)
        });
        target
    };
    let plain = topic("orders");
    let detecting = topic("invoices");
    stage.detect_duplicates("invoices", WINDOW);
    let cost = |target: &Target, time| {
        let load = || {
            closed(
                std::slice::from_ref(target),
                Shape::HUNDRED,
                bench.scale.connections,
                Amount::For(time),
            )
        };
        Cost::measure(stage.server.id(), &endpoint, 1, load)
    };
    let pair = |time| (cost(&plain, time), cost(&detecting, time));
    pair(bench.scale.time / 4);
    let (floors, figures): (Vec<Cost>, Vec<Cost>) = (0..bench.scale.runs)
        .map(|_| pair(bench.scale.time))
        .unzip();
    let each = |costs: &[Cost]| costs.iter().map(Cost::each).collect();
    vec![Row {
        number: "27",
        what: "100 new ids a request with duplicate detection: CPU an event",
        on: USUAL.to_owned(),
        unit: "µs",
        floor_is: "the same without duplicate detection",
        against: Against::Floor,
        budget: 2.0,
        stretch: 1.5,
        figures: each(&figures),
        floors: each(&floors),
        beside: figures.last().map(Cost::beside).unwrap_or_default(),
    }]
}
