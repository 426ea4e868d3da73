//! A disk whose syncs take a millisecond, or five: how long one publisher and many wait, over a
//! relay that stores on the same disk. strace delays the syncs of both.

use super::{USUAL, latency::milliseconds};
use crate::{
    harness::{
        Bench,
        endpoint::Endpoint,
        floor::Floor,
        load::{Amount, Sent, Shape, Target, closed},
        row::{Against, Row},
        stage::{Stage, folder},
    },
    support::disk::has_strace,
};

/// Rows: their numbers at one publisher and at many, what they measure, and the time of a sync.
const DISKS: [([&str; 2], [&str; 2], u32); 2] = [
    (
        ["30a", "30b"],
        [
            "syncs of 1 ms, one publisher: wait, p99",
            "syncs of 1 ms, 64 publishers: wait, p99",
        ],
        1_000,
    ),
    (
        ["30c", "30d"],
        [
            "syncs of 5 ms, one publisher: wait, p99",
            "syncs of 5 ms, 64 publishers: wait, p99",
        ],
        5_000,
    ),
];

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    if !has_strace() {
        return Vec::new();
    }
    DISKS
        .into_iter()
        .flat_map(|(numbers, whats, microseconds)| {
            measure_disk(bench, numbers, whats, microseconds)
        })
        .collect()
}

fn measure_disk(
    bench: &Bench,
    numbers: [&'static str; 2],
    whats: [&'static str; 2],
    microseconds: u32,
) -> Vec<Row> {
    let delay = format!("inject=fsync,fdatasync:delay_enter={microseconds}");
    let slow = [
        "strace",
        "-f",
        "-qqq",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        &delay,
    ];
    let endpoint = Endpoint::start();
    let stored = folder();
    let url = endpoint.url("/");
    let (_relay, relayed) = Floor::storing_relay_under(&slow, bench.again, &url, stored.path());
    let stage = Stage::start_under(&slow);
    let target = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let publish_to = |target: &Target, connections| {
        closed(
            std::slice::from_ref(target),
            Shape::ONE,
            connections,
            Amount::For(bench.scale.time),
        )
    };
    let groups = [1, bench.scale.connections];
    let rows = numbers.into_iter().zip(whats).zip(groups);
    rows.map(|((number, what), connections)| {
        let pair = || {
            (
                publish_to(&relayed, connections),
                publish_to(&target, connections),
            )
        };
        pair();
        let (floors, figures): (Vec<Sent>, Vec<Sent>) =
            (0..bench.scale.runs).map(|_| pair()).unzip();
        let waits = |sent: &[Sent]| -> Vec<f64> {
            sent.iter()
                .map(|sent| milliseconds(&sent.answers, 0.99))
                .collect()
        };
        let rate = |sent: &[Sent]| {
            let events = sent.last().map_or(0, |sent| sent.events);
            events as f64 / bench.scale.time.as_secs_f64()
        };
        Row {
            number,
            what,
            on: USUAL.to_owned(),
            unit: "ms",
            floor_is: "the relay, which syncs each event to RocksDB first, on the same disk",
            against: Against::Floor,
            budget: 1.6,
            stretch: 1.3,
            figures: waits(&figures),
            floors: waits(&floors),
            beside: vec![
                ("events/s".to_owned(), rate(&figures)),
                ("the relay's events/s".to_owned(), rate(&floors)),
            ],
        }
    })
    .collect()
}
