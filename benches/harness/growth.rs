//! The cost of an event while something else grows: topics, subscriptions of a topic, a backlog, a
//! retry queue. It should stay the same.

use serde_json::json;

use super::{
    Bench,
    endpoint::{DOWN, Endpoint, RETRIED},
    floor::Floor,
    load::{Amount, Shape, Target, closed},
    plot::{self, Panel},
    row::{Row, median, number},
    rows::backlog::{fill_backlog, fill_queue},
    stage::{Cost, Stage},
};

/// The number of runs of which a point of a panel is the median.
const RUNS: usize = 3;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let (relay, relayed) = Floor::relay(bench.again, &endpoint.url("/"));
    let floor = each(bench, &endpoint, relay.id(), &[relayed]);
    let [topics, subscriptions, backlog, retries] = bench.scale.growth;
    let panels = [
        Panel {
            title: "topics",
            points: by_topics(bench, &endpoint, topics),
        },
        Panel {
            title: "subscriptions of the topic, of which one matches",
            points: by_subscriptions(bench, &endpoint, subscriptions),
        },
        Panel {
            title: "events behind a suspended subscription of the topic",
            points: by_backlog(bench, &endpoint, backlog),
        },
        Panel {
            title: "events in the subscription's retry queue",
            points: by_retries(bench, &endpoint, retries),
        },
    ];
    println!("CPU an event, µs; a bare relay: {}", number(floor));
    for Panel { title, points } in &panels {
        let points: Vec<_> = points
            .iter()
            .map(|(size, cost)| format!("{size}: {}", number(*cost)))
            .collect();
        println!("{title:52} {}", points.join("   "));
    }
    std::fs::create_dir_all(&bench.scale.plots).expect("a folder of plots");
    let path = bench.scale.plots.join("growth.svg");
    std::fs::write(&path, plot::draw(&panels, floor)).expect("a plot");
    println!("drawn to {}", path.display());
    let figures = panels
        .iter()
        .map(|panel| json!({"growing": panel.title, "points": panel.points}));
    bench.write_down(
        "growth-points",
        &json!({"relay": floor, "panels": figures.collect::<Vec<_>>()}),
    );
    Vec::new()
}

/// Microseconds of processor time for an event, each of which arrives once.
fn each(bench: &Bench, endpoint: &Endpoint, process: u32, targets: &[Target]) -> f64 {
    let scale = &bench.scale;
    let cost = |time| {
        Cost::measure(process, endpoint, 1, || {
            closed(targets, Shape::ONE, scale.connections, Amount::For(time))
        })
        .each()
    };
    cost(scale.time / 8);
    median(
        &(0..RUNS.min(scale.runs))
            .map(|_| cost(scale.time / 2))
            .collect::<Vec<_>>(),
    )
}

/// The powers of ten up to 10^`powers`.
fn sizes(powers: u32) -> impl Iterator<Item = u64> {
    (0..=powers).map(|power| 10_u64.pow(power))
}

/// Rounds down to hundreds: events of a backlog are published by the hundred.
fn round_to_hundreds(size: u64) -> u64 {
    size / 100 * 100
}

fn by_topics(bench: &Bench, endpoint: &Endpoint, powers: u32) -> Vec<(u64, f64)> {
    let stage = Stage::start();
    let mut targets = Vec::new();
    let points = sizes(powers).map(|size| {
        for number in targets.len()..size as usize {
            let name = format!("orders-{number}");
            targets.push(stage.topic(&name, "current"));
            stage.subscribe(
                &name,
                "billing",
                &endpoint.url(&format!("/{number}")),
                |spec| spec,
            );
        }
        (size, each(bench, endpoint, stage.server.id(), &targets))
    });
    points.collect()
}

fn by_subscriptions(bench: &Bench, endpoint: &Endpoint, powers: u32) -> Vec<(u64, f64)> {
    let stage = Stage::start();
    let targets = [stage.topic("orders", "current")];
    let mut made = 0;
    let points = sizes(powers).map(|size| {
        for number in made..size {
            let url = endpoint.url(&format!("/{number}"));
            stage.subscribe("orders", &format!("billing-{number}"), &url, |spec| {
                spec.prefix(&format!("/bench/{number:04}"))
            });
        }
        made = size;
        (size, each(bench, endpoint, stage.server.id(), &targets))
    });
    points.collect()
}

fn by_backlog(bench: &Bench, endpoint: &Endpoint, powers: u32) -> Vec<(u64, f64)> {
    let stage = Stage::start();
    let targets = [stage.topic("orders", "current")];
    stage.subscribe("orders", "down", &endpoint.url(DOWN), |spec| spec);
    let mut lying = 0;
    let points = sizes(powers)
        .filter(|size| *size == 1 || *size >= 100)
        .map(|size| {
            fill_backlog(&targets[0], round_to_hundreds(size) - lying);
            lying = round_to_hundreds(size);
            stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
            let cost = each(bench, endpoint, stage.server.id(), &targets);
            stage.server.unsubscribe("orders", "billing");
            (size, cost)
        });
    points.collect()
}

fn by_retries(bench: &Bench, endpoint: &Endpoint, powers: u32) -> Vec<(u64, f64)> {
    let stage = Stage::start();
    let targets = [stage.topic("orders", "patient")];
    let mut pending = 0;
    let points = sizes(powers)
        .filter(|size| *size == 1 || *size >= 100)
        .map(|size| {
            // In batches while they fail, one by one while it is measured.
            stage.subscribe("orders", "fails", &endpoint.url(RETRIED), |spec| {
                spec.batch(100)
            });
            fill_queue(
                &stage,
                "orders",
                &targets[0],
                round_to_hundreds(size) - pending,
            );
            pending = round_to_hundreds(size);
            stage.subscribe("orders", "fails", &endpoint.url(RETRIED), |spec| spec);
            (size, each(bench, endpoint, stage.server.id(), &targets))
        });
    points.collect()
}
