//! Long polls of a queue whose topic is spread over six shards, beside those of one in one shard.

use std::{ops::Range, thread, time::Duration};

use serde_json::json;

use super::{
    super::pull::{arrival, polls},
    ClusterStage, IDLE, NODES, SHARDED, SHARDS,
};
use crate::{
    harness::{
        Bench,
        load::{TYPE, Target},
        row::{Against, Row},
        stage::queues,
        time::now,
    },
    support::{process, server::Server},
};

/// Clients that wait at once, and leave.
const POLLS: usize = 300;

/// The number of times that these clients poll if they poll one shard: a single time costs less
/// than idle nodes differ from each other.
const ROUNDS: u32 = 8;

/// Events that are waited for, one after the other.
const EVENTS: u64 = 100;

/// A queue, called through all nodes of a cluster.
struct Queue {
    nodes: Range<usize>,
    targets: Vec<Target>,
    rounds: u32,
    /// Processor time a second while nobody calls.
    idle: f64,
}

/// The costs of polls.
struct Spent {
    /// Microseconds of processor time for a poll without an event.
    a_poll: f64,
    /// Microseconds of processor time for an event that a poll waits for.
    an_event: f64,
    /// Milliseconds from publishing to arrival, on average.
    arrival: f64,
}

pub(super) fn rows(bench: &Bench, stage: &ClusterStage) -> [Row; 2] {
    let scale = &bench.scale;
    let topics = [
        (NODES, json!({}), ROUNDS),
        (
            SHARDED,
            json!({"properties": {"partitionCount": SHARDS}}),
            1,
        ),
    ];
    let queues = topics.map(|(nodes, topic, rounds)| {
        let target = queues(
            &stage.servers[nodes.start],
            &topic,
            &[("live", TYPE), ("idle", "Bench.Never")],
        );
        let at = |server: &Server| Target {
            at: server.address(),
            ..target.clone()
        };
        Queue {
            targets: stage.servers[nodes.clone()].iter().map(at).collect(),
            nodes,
            rounds,
            idle: 0.0,
        }
    });
    let pause = scale.time.min(IDLE);
    let queues = queues.map(|queue| {
        thread::sleep(pause);
        let before = spent(stage, &queue);
        let began = now();
        thread::sleep(pause);
        let idle = (spent(stage, &queue) - before).as_secs_f64() * 1e9 / (now() - began) as f64;
        Queue { idle, ..queue }
    });
    let turn = |queue: &Queue| {
        let open = POLLS.min(scale.polls);
        let (a_poll, ()) = busy(stage, queue, || {
            for _ in 0..queue.rounds {
                let each = queue
                    .targets
                    .iter()
                    .map(|target| polls(target, open.div_ceil(queue.targets.len())));
                let open: Vec<_> = each.collect();
                thread::sleep(pause / queue.rounds);
                drop(open);
                thread::sleep(pause / queue.rounds);
            }
        });
        let events = EVENTS.min(scale.probes);
        let (an_event, nanos) = busy(stage, queue, || {
            (0..events)
                .zip(queue.targets.iter().cycle())
                .map(|(_, target)| arrival(target))
                .sum::<u64>()
        });
        let open = open as f64 * f64::from(queue.rounds);
        let events = events as f64;
        Spent {
            a_poll: a_poll / open,
            an_event: an_event / events,
            arrival: nanos as f64 / 1e6 / events,
        }
    };
    // Every thread of every node knows the topic then.
    for queue in &queues {
        turn(queue);
    }
    let turns: Vec<[Spent; 2]> = (0..scale.runs)
        .map(|_| queues.each_ref().map(turn))
        .collect();
    let figures = |of: fn(&Spent) -> f64| {
        [0, 1].map(|queue: usize| {
            turns
                .iter()
                .map(|turn| of(&turn[queue]))
                .collect::<Vec<_>>()
        })
    };
    let [one, six] = turns.last().expect("one run at least");
    let beside = [
        ("ms from publish to arrival", six.arrival),
        ("one shard: ms", one.arrival),
    ];
    let [[poll_of_one, poll_of_six], [event_of_one, event_of_six]] = [
        figures(|spent| spent.a_poll),
        figures(|spent| spent.an_event),
    ];
    let poll = Row {
        number: "26",
        what: "a long poll of a queue in six shards, until its client leaves: CPU of all a poll",
        on: format!(
            "three nodes, called in turn; {} polls at a time",
            POLLS.min(scale.polls)
        ),
        unit: "µs",
        floor_is: "a queue in one shard",
        against: Against::Floor,
        budget: 4.0,
        stretch: 3.0,
        figures: poll_of_six,
        floors: poll_of_one,
        beside: Vec::new(),
    };
    let event = Row {
        number: "26b",
        what: "an event that a long poll waits for in six shards: CPU of all an event",
        on: "three nodes, called in turn; one event at a time, received and acknowledged"
            .to_owned(),
        budget: 4.0,
        stretch: 2.0,
        figures: event_of_six,
        floors: event_of_one,
        beside: beside.map(|(name, value)| (name.to_owned(), value)).into(),
        ..poll.clone()
    };
    [poll, event]
}

/// Processor time of the nodes and of NATS.
fn spent(stage: &ClusterStage, queue: &Queue) -> Duration {
    let nodes = stage.servers[queue.nodes.clone()].iter().map(Server::id);
    nodes
        .chain(stage.nats.0.iter().map(|nats| nats.id()))
        .map(process::processor)
        .sum()
}

/// The microseconds that `work` costs the nodes, without what they spend when idle.
fn busy<T>(stage: &ClusterStage, queue: &Queue, work: impl FnOnce() -> T) -> (f64, T) {
    let before = spent(stage, queue);
    let began = now();
    let done = work();
    let spent = (spent(stage, queue) - before).as_secs_f64() * 1e6;
    let took = (now() - began) as f64 / 1e3;
    ((spent - queue.idle * took).max(0.0), done)
}
