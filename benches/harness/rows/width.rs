//! Many topics, and many subscriptions that do not match: an event should cost as much as with few.

use std::thread;

use super::many::OPERATORS;
use crate::harness::{
    Bench,
    endpoint::Endpoint,
    load::{Amount, Shape, Target, closed},
    row::Row,
    stage::{Cost, Stage},
};

/// Subscriptions that do not match, in the floor.
const FEW: usize = 10;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let url = endpoint.url("/billing");
    let topics = pairs(bench, &endpoint, |many| {
        let stage = Stage::start();
        let topics = if many { scale.topics } else { 1 };
        let targets = (0..topics).map(|number| {
            let name = format!("orders-{number}");
            let target = stage.topic(&name, "current");
            stage.subscribe(&name, "billing", &url, |spec| spec);
            target
        });
        let targets = targets.collect();
        (stage, targets)
    });
    let subscriptions = pairs(bench, &endpoint, |many| {
        let stage = Stage::start();
        let target = stage.topic("orders", "current");
        stage.subscribe("orders", "billing", &url, |spec| spec);
        let idle = if many {
            scale.unmatched
        } else {
            FEW.min(scale.unmatched)
        };
        thread::scope(|scope| {
            for operator in 0..OPERATORS {
                let stage = &stage;
                let url = &url;
                scope.spawn(move || {
                    for number in (operator..idle).step_by(OPERATORS) {
                        stage.subscribe("orders", &format!("idle-{number}"), url, |spec| {
                            spec.prefix(&format!("/bench/{:04}", number + 1))
                        });
                    }
                });
            }
        });
        (stage, vec![target])
    });
    let row = Row::from_processor_time;
    vec![
        row(
            "15",
            "1,000 topics: CPU an event",
            "one topic",
            (1.25, 1.1),
            topics,
        ),
        row(
            "16",
            "1,000 subscriptions that do not match: CPU an event",
            "ten of these subscriptions",
            (1.15, 1.05),
            subscriptions,
        ),
    ]
}

/// Costs of an event on a server with little and on one with much, in turn, each long enough for
/// the periodic checks.
fn pairs(
    bench: &Bench,
    endpoint: &Endpoint,
    start: impl Fn(bool) -> (Stage, Vec<Target>),
) -> (Vec<f64>, Vec<f64>) {
    let few = start(false);
    let many = start(true);
    let each = |(stage, targets): &(Stage, Vec<Target>), time| {
        let load = || {
            closed(
                targets,
                Shape::ONE,
                bench.scale.connections,
                Amount::For(time),
            )
        };
        Cost::measure(stage.server.id(), endpoint, 1, load).each()
    };
    let pair = |time| (each(&few, time), each(&many, time));
    pair(bench.scale.time / 2);
    (0..bench.scale.runs)
        .map(|_| pair(bench.scale.time * 5))
        .unzip()
}
