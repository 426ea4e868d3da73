//! Old pending events: ten million behind a suspended subscription, a million in one retry queue.
//! Their memory, the start with them, the lateness of due retries, and the latency of live events
//! while they are trimmed.

use std::{thread, time::Duration};

use super::{MEGABYTE, USUAL, latency::milliseconds};
use crate::{
    harness::{
        Bench,
        endpoint::{DOWN, Endpoint, RETRIED},
        load::{Amount, FAILS, Shape, Target, closed, open},
        row::{Against, Row},
        stage::{Cost, Stage},
    },
    support::server::wait_for,
};

/// Publishers who fill a log.
const CONNECTIONS: usize = 8;

/// Requests a second of a topic that is watched while something else happens.
const WATCHED: f64 = 2_000.0;

/// Requests a second whose events fail once.
const PROBED: f64 = 200.0;

/// The longest time to fill a backlog.
const FILL_MAX: Duration = Duration::from_secs(900);

/// The events of a backlog: smaller ones than usual, so that ten million of them fit on most disks.
const LYING: Shape = Shape {
    bytes: 256,
    ..Shape::HUNDRED
};

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let endpoint = Endpoint::start();
    let mut stage = Stage::start();
    let mut orders = stage.topic("orders", "current");
    let mut retries = stage.topic("retries", "patient");
    stage.subscribe("orders", "down", &endpoint.url(DOWN), |spec| spec);
    stage.subscribe("retries", "fails", &endpoint.url(RETRIED), |spec| {
        spec.batch(100)
    });
    warm_up(&endpoint, &stage, &retries);
    let mut rows = memory(bench, &stage, &orders, &retries);
    rows.push(starts(bench, &mut stage));
    (orders.at, retries.at) = (stage.server.address(), stage.server.address());
    rows.push(lateness(bench, &endpoint, &stage, &retries));
    rows.push(trimming(bench, &endpoint, &stage, &orders));
    rows
}

/// Lets the server allocate what it needs once and for all, so that it does not count as the
/// backlog's.
fn warm_up(endpoint: &Endpoint, stage: &Stage, target: &Target) {
    Cost::measure(stage.server.id(), endpoint, 1, || {
        closed(
            std::slice::from_ref(target),
            LYING,
            CONNECTIONS,
            Amount::Requests(1_000),
        )
    });
}

/// The resident memory of the server after a pause, in MiB.
fn resident(stage: &Stage, bench: &Bench) -> f64 {
    thread::sleep(bench.scale.time);
    stage.server.resident() as f64 / MEGABYTE
}

/// Publishes a number of events to the suspended subscription of a topic.
pub(crate) fn fill_backlog(target: &Target, events: u64) {
    closed(
        std::slice::from_ref(target),
        LYING,
        CONNECTIONS,
        Amount::Requests(events / LYING.events as u64),
    );
}

/// Lets a number of events fail, so that they wait for their next attempt.
pub(crate) fn fill_queue(stage: &Stage, topic: &str, target: &Target, events: u64) {
    let pending = || stage.server.counter(topic, "fails", "pending");
    let before = pending();
    let failing = Shape {
        stamp: Some(FAILS),
        ..LYING
    };
    closed(
        std::slice::from_ref(target),
        failing,
        CONNECTIONS,
        Amount::Requests(events / LYING.events as u64),
    );
    wait_for("the retry queue to be filled", FILL_MAX, || {
        thread::sleep(Duration::from_millis(50));
        pending() >= before + events
    });
}

fn memory(bench: &Bench, stage: &Stage, orders: &Target, retries: &Target) -> Vec<Row> {
    let scale = &bench.scale;
    let before = resident(stage, bench);
    fill_backlog(orders, scale.backlog);
    let behind = resident(stage, bench);
    let on_disk = stage.on_disk() as f64;
    fill_queue(stage, "retries", retries, scale.retries);
    let pending = resident(stage, bench);
    let row = Row {
        number: "8",
        what: "memory for 10 million events behind a suspended sub",
        on: USUAL.to_owned(),
        unit: "MB",
        floor_is: "the same server before, which is taken away from the figure",
        against: Against::Most,
        budget: 64.0,
        stretch: 16.0,
        figures: vec![behind - before],
        floors: vec![before],
        beside: vec![(
            "disk bytes an event".to_owned(),
            on_disk / scale.backlog as f64,
        )],
    };
    let queue = Row {
        number: "9",
        what: "memory for a million events in one retry queue",
        budget: 48.0,
        figures: vec![pending - behind],
        floors: vec![behind],
        beside: vec![(
            "bytes an event".to_owned(),
            (pending - behind) * MEGABYTE / scale.retries as f64,
        )],
        ..row.clone()
    };
    vec![row, queue]
}

fn starts(bench: &Bench, stage: &mut Stage) -> Row {
    let starts = (0..bench.scale.runs).map(|run| {
        // In turn as after a power cut and as after a clean stop.
        if run % 2 == 0 {
            stage.server.kill_9();
        } else {
            stage.server.terminate();
        }
        stage.server.restart().as_secs_f64()
    });
    Row {
        number: "10",
        what: "start to ready with both on disk",
        on: "every other start after kill -9".to_owned(),
        unit: "s",
        floor_is: "none",
        against: Against::Most,
        budget: 2.0,
        stretch: 0.5,
        figures: starts.collect(),
        floors: Vec::new(),
        beside: Vec::new(),
    }
}

fn lateness(bench: &Bench, endpoint: &Endpoint, stage: &Stage, retries: &Target) -> Row {
    let scale = &bench.scale;
    let timed = Shape {
        events: 1,
        stamp: None,
        ..LYING
    };
    let per_run = scale.probes as f64 / scale.runs as f64;
    let mut tails = Vec::new();
    let mut medians = Vec::new();
    for _ in 0..scale.runs {
        endpoint.take();
        let time = Duration::from_secs_f64(per_run / PROBED);
        Cost::measure(stage.server.id(), endpoint, 1, || {
            open(
                std::slice::from_ref(retries),
                timed,
                CONNECTIONS,
                PROBED,
                time,
            )
        });
        let (_, late) = endpoint.take();
        tails.push(milliseconds(&late, 0.99));
        medians.push(milliseconds(&late, 0.5));
    }
    Row {
        number: "11",
        what: "lateness of retries with a million waiting: p99",
        on: USUAL.to_owned(),
        unit: "ms",
        floor_is: "p50 of the same",
        against: Against::Most,
        budget: 250.0,
        stretch: 50.0,
        figures: tails,
        floors: medians,
        beside: Vec::new(),
    }
}

fn trimming(bench: &Bench, endpoint: &Endpoint, stage: &Stage, orders: &Target) -> Row {
    stage.subscribe("orders", "live", &endpoint.url("/live"), |spec| spec);
    let rate = WATCHED.min(bench.scale.backlog as f64);
    let timed = Shape {
        stamp: None,
        ..Shape::ONE
    };
    let p99 = || {
        endpoint.take();
        let load = || {
            open(
                std::slice::from_ref(orders),
                timed,
                bench.scale.connections,
                rate,
                bench.scale.time * 2,
            )
        };
        Cost::measure(stage.server.id(), endpoint, 1, load);
        milliseconds(&endpoint.take().0, 0.99)
    };
    p99();
    let quiet: Vec<f64> = (0..bench.scale.runs).map(|_| p99()).collect();
    let before = stage.on_disk() as f64 / MEGABYTE;
    stage.server.unsubscribe("orders", "down");
    let trimmed = p99();
    let after = stage.on_disk() as f64 / MEGABYTE;
    Row {
        number: "12",
        what: "live p99 while 10 million events are trimmed",
        on: format!("{USUAL}; {rate} events a second"),
        unit: "ms",
        floor_is: "the same load before",
        against: Against::Floor,
        budget: 1.25,
        stretch: 1.05,
        figures: vec![trimmed; quiet.len()],
        floors: quiet,
        beside: vec![
            ("MB on disk before".to_owned(), before),
            ("MB behind".to_owned(), after),
        ],
    }
}
