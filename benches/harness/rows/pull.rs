//! Pull delivery: the cost of a call beside a pushed event, and the cost of many clients that wait
//! without events.
//!
//! The budgets are a third above the first measurement on two cores, the stretches a third below
//! it. One consumer with one event a call has nobody to share a sync with, and is measured against
//! 64 publishers who have.

use std::{
    fs,
    io::{ErrorKind, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use super::{
    USUAL,
    latency::{SETTLE_TIME, milliseconds},
};
use crate::{
    harness::{
        Bench,
        endpoint::Endpoint,
        load::{Amount, Shape, TYPE, Target, closed, histogram},
        pulled::{Consumer, Pulled, authorization_value, fill, publish, pull},
        row::{Against, Row},
        stage::{Cost, Stage},
        time::now,
    },
    support::http::Client,
};

/// A way to pull, with its budget.
struct Form {
    number: &'static str,
    what: &'static str,
    consumers: usize,
    /// The maximum of events of a call.
    most: usize,
    /// The budget: for one event a call, a multiple of the cost of pushing it; for a hundred events
    /// a call, microseconds.
    budget: f64,
    stretch: f64,
}

#[rustfmt::skip]
const FORMS: [Form; 6] = [
    Form { number: "13a", what: "1 consumer pulls 1 event a call: CPU an event", consumers: 1, most: 1, budget: 11.0, stretch: 5.7 },
    Form { number: "13b", what: "16 consumers pull 1 event a call: CPU an event", consumers: 16, most: 1, budget: 2.8, stretch: 1.4 },
    Form { number: "13c", what: "64 consumers pull 1 event a call: CPU an event", consumers: 64, most: 1, budget: 2.0, stretch: 1.0 },
    Form { number: "13d", what: "1 consumer pulls 100 events a call: CPU an event", consumers: 1, most: 100, budget: 8.0, stretch: 4.0 },
    Form { number: "13e", what: "16 consumers pull 100 events a call: CPU an event", consumers: 16, most: 100, budget: 5.5, stretch: 2.7 },
    Form { number: "13f", what: "64 consumers pull 100 events a call: CPU an event", consumers: 64, most: 100, budget: 5.5, stretch: 2.7 },
];

/// Events that are published for each second of a run, with one and with a hundred events a call:
/// more than are pulled.
const AVAILABLE_PER_SECOND: [f64; 2] = [15_000.0, 60_000.0];

/// The time until a poll that was sent waits in the server.
const POLL_ARRIVAL: Duration = Duration::from_millis(20);

/// The number of events of a run whose arrival at one poll is timed.
const PROBES: u64 = 20;

/// Files that this process and the server need beside those that wait.
const NO_COMPACTIONS: usize = 100;

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    let mut rows = throughput(bench);
    rows.extend(waiting(bench));
    rows
}

fn throughput(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let endpoint = Endpoint::start();
    let stage = Stage::start();
    let pushed = stage.topic("orders", "current");
    stage.subscribe("orders", "billing", &endpoint.url("/billing"), |spec| spec);
    let queue = stage.queues(&[("work", TYPE)]);
    let push = |time| {
        let load = || {
            closed(
                std::slice::from_ref(&pushed),
                Shape::ONE,
                scale.connections,
                Amount::For(time),
            )
        };
        Cost::measure(stage.server.id(), &endpoint, 1, load)
    };
    let mut left = 0;
    let mut pulled = |consumers: usize, most: usize, time: Duration| {
        let wanted = (time.as_secs_f64() * AVAILABLE_PER_SECOND[usize::from(most > 1)]) as u64
            + (consumers * most) as u64;
        left += fill(&queue, wanted.saturating_sub(left));
        let before = stage.server.processor();
        let pulled = pull(
            &queue,
            "work",
            consumers.min(scale.connections),
            most,
            (time, wanted),
        );
        left -= pulled.events;
        (pulled, stage.server.processor().saturating_sub(before))
    };
    push(scale.time / 4);
    pulled(16, 1, scale.time / 4);
    pulled(16, 100, scale.time / 4);
    let mut pushes = Vec::new();
    let mut last_push = Vec::new();
    let mut figures: [Vec<f64>; FORMS.len()] = Default::default();
    let mut beside: [Vec<(String, f64)>; FORMS.len()] = Default::default();
    for _ in 0..scale.runs {
        let cost = push(scale.time);
        pushes.push(cost.each());
        last_push = vec![("pushed events/s".to_owned(), cost.rate())];
        for (
            place,
            Form {
                consumers, most, ..
            },
        ) in FORMS.into_iter().enumerate()
        {
            let (pulled, processor) = pulled(consumers, most, scale.time);
            figures[place].push(processor.as_secs_f64() * 1e6 / pulled.events as f64);
            beside[place] = further_figures(&pulled);
        }
    }
    let rows = FORMS
        .into_iter()
        .zip(figures)
        .zip(beside)
        .map(|((form, figures), beside)| {
            let Form {
                number,
                what,
                consumers,
                most,
                budget,
                stretch,
            } = form;
            let against = if most == 1 {
                Against::Floor
            } else {
                Against::Most
            };
            let consumers = consumers.min(scale.connections);
            Row {
                number,
                what,
                on: format!(
                    "journal synced, ledger, access key; {consumers} at a time, each receives \
                     and acknowledges"
                ),
                unit: "µs",
                floor_is: "one event a request pushed to a webhook, its publishing counted",
                against,
                budget,
                stretch,
                figures,
                floors: pushes.clone(),
                beside: beside.into_iter().chain(last_push.clone()).collect(),
            }
        });
    rows.collect()
}

fn further_figures(pulled: &Pulled) -> Vec<(String, f64)> {
    let mut further_figures = vec![
        (
            "events/s".to_owned(),
            pulled.events as f64 / pulled.took.as_secs_f64(),
        ),
        (
            "events a call".to_owned(),
            pulled.events as f64 / pulled.calls.max(1) as f64,
        ),
    ];
    for (name, times) in [
        ("receive", &pulled.receives),
        ("acknowledge", &pulled.acknowledgements),
    ] {
        for (quantile, of) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            further_figures.push((format!("ms to {name}, {quantile}"), milliseconds(times, of)));
        }
    }
    further_figures
}

/// Many polls that nothing comes for, and one that events come for.
fn waiting(bench: &Bench) -> Vec<Row> {
    let scale = &bench.scale;
    let stage = Stage::with(&[
        ("LIMITS__CONNECTIONS", "20000"),
        ("LIMITS__CONNECTIONS_PER_ADDRESS", "20000"),
    ]);
    let queue = stage.queues(&[("live", TYPE), ("idle", "Bench.Never")]);
    // Both have done what they do.
    arrival(&queue);
    thread::sleep(SETTLE_TIME.min(scale.time * 2));
    let share = || {
        let before = stage.server.processor();
        let began = now();
        thread::sleep(scale.time * 2);
        let took = Duration::from_nanos(now() - began);
        (stage.server.processor().saturating_sub(before)).as_secs_f64() * 100.0 / took.as_secs_f64()
    };
    let alone = share();
    let resident = || stage.server.resident() as f64 / 1024.0;
    let before = resident();
    let polls = polls(
        &queue,
        scale
            .polls
            .min((files() * 2 / 5).saturating_sub(NO_COMPACTIONS)),
    );
    thread::sleep(Duration::from_secs(2).min(scale.time));
    let mut memory = Vec::new();
    let mut shares = Vec::new();
    let mut arrivals = Vec::new();
    let mut latest = Vec::new();
    for _ in 0..scale.runs {
        shares.push(share());
        memory.push((resident() - before).max(0.0) / polls.len() as f64);
        let mut ways = histogram();
        (0..PROBES.min(scale.probes)).for_each(|_| ways.saturating_record(arrival(&queue)));
        arrivals.push(milliseconds(&ways, 0.5));
        latest = vec![(
            "ms, the longest of the last run".to_owned(),
            milliseconds(&ways, 1.0),
        )];
    }
    let still = polls.iter().filter(|poll| waits(poll)).count();
    assert_eq!(
        still,
        polls.len(),
        "of those who wait for what never comes some were answered"
    );
    rows_of_waiting(still, [memory, shares, arrivals], alone, latest)
}

fn rows_of_waiting(
    polls: usize,
    [memory, shares, arrivals]: [Vec<f64>; 3],
    alone: f64,
    beside: Vec<(String, f64)>,
) -> Vec<Row> {
    let memory = Row {
        number: "14a",
        what: "memory of a long poll that waits",
        on: format!("{polls} polls of a queue that nothing comes to"),
        unit: "KB",
        floor_is: "none",
        against: Against::Most,
        budget: 40.0,
        stretch: 20.0,
        figures: memory,
        floors: Vec::new(),
        beside: Vec::new(),
    };
    let processor = Row {
        number: "14b",
        what: "CPU while that many long polls wait",
        unit: "%",
        floor_is: "the same server before anybody waits",
        budget: 0.5,
        stretch: 0.1,
        floors: vec![alone; shares.len()],
        figures: shares,
        ..memory.clone()
    };
    let arrival = Row {
        number: "14c",
        what: "publish to arrival at one more poll meanwhile: p50",
        on: format!("{USUAL}; {polls} polls of another queue of the topic"),
        unit: "ms",
        budget: 5.0,
        stretch: 0.8,
        figures: arrivals,
        beside,
        ..memory.clone()
    };
    vec![memory, processor, arrival]
}

/// Nanoseconds from the publishing of an event until a poll that waits has it.
pub(super) fn arrival(queue: &Target) -> u64 {
    let mut consumer = Consumer::new(queue, "live", 1);
    thread::scope(|scope| {
        let poll = scope.spawn(|| {
            let tokens = consumer.receive();
            let at = now();
            assert_eq!(tokens.len(), 1, "an event for each poll");
            consumer.acknowledge(&tokens);
            at
        });
        thread::sleep(POLL_ARRIVAL);
        let began = now();
        publish(&mut Client::new(queue.at), queue, 1);
        poll.join().expect("a poll is served").saturating_sub(began)
    })
}

/// A number of polls, each sent on a connection of its own.
pub(super) fn polls(queue: &Target, most: usize) -> Vec<TcpStream> {
    let way = &queue.path;
    let key = authorization_value(queue);
    let head = format!(
        "POST {way}/eventsubscriptions/idle:receive?maxWaitTime=120 HTTP/1.1\r\nhost: \
         {}\r\nauthorization: {key}\r\ncontent-length: 0\r\n\r\n",
        queue.at
    );
    let poll = |_| {
        let mut poll = TcpStream::connect(queue.at).expect("a server that listens");
        poll.write_all(head.as_bytes())
            .expect("a server that reads");
        poll
    };
    (0..most).map(poll).collect()
}

/// Whether a poll has no response yet.
fn waits(poll: &TcpStream) -> bool {
    poll.set_nonblocking(true).expect("an option of a socket");
    poll.peek(&mut [0])
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Files that a process may open here; the server uses more than two fifths of them for connections
/// of clients.
fn files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").expect("a process has limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("one of files");
    // The soft limit is before the hard one.
    line.split_whitespace()
        .next()
        .and_then(|most| most.parse().ok())
        .unwrap_or(1_048_576)
}
