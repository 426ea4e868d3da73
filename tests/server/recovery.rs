//! An endpoint that fails and returns has its old rate again in seconds, and its neighbour is not
//! affected.

use std::{thread, time::Duration};

use gridhook::event::Timestamp;

use super::{LONG, assert_arrived, wait_until_settled};
use crate::support::{
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Requests that were taken on a path, and when.
fn taken(sink: &Sink, path: &str) -> Vec<Timestamp> {
    sink.look(path, |ledger| {
        let mut taken: Vec<Timestamp> = ledger
            .values()
            .flatten()
            .filter(|arrival| arrival.is_taken())
            .map(|arrival| arrival.at)
            .collect();
        taken.sort_unstable();
        taken
    })
}

/// How many of them are from `from` on, for so long.
fn within(taken: &[Timestamp], from: Timestamp, wait: Duration) -> usize {
    taken
        .iter()
        .filter(|at| from <= **at && **at < from.after(wait))
        .count()
}

/// How long events take from their publisher to the neighbour's endpoint: the median of some.
fn latency(server: &Server, key: &str, sink: &Sink, name: &str) -> Duration {
    let sent: Vec<(String, Timestamp)> = (0..40)
        .map(|number| {
            let id = format!("{name}-{number}");
            let from = sink.now();
            server.publish("orders", key, &load::body(std::slice::from_ref(&id), "/a"));
            thread::sleep(Duration::from_millis(20));
            (id, from)
        })
        .collect();
    let arrived = |id: &str| {
        sink.look("/neighbour", |ledger| {
            ledger.get(id).map(|arrivals| arrivals[0].at)
        })
    };
    wait_for("the neighbour's events", LONG, || {
        sent.iter().all(|(id, _)| arrived(id).is_some())
    });
    let took =
        |(id, from): &(String, Timestamp)| arrived(id).expect("it was waited for").since(*from);
    let mut all: Vec<Duration> = sent.iter().map(took).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn an_endpoint_that_comes_back_has_its_last_healthy_rate_within_three_seconds_and_no_more() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    for name in ["hook", "neighbour"] {
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
        );
    }
    let pause = Duration::from_millis(10);
    let load = Load::start(
        server.address(),
        &Rate {
            topic: "orders".to_owned(),
            key: key.clone(),
            publishers: 1,
            events_per_request: 1,
            pause,
        },
    );
    wait_for("five seconds of deliveries", LONG, || {
        let all = taken(&sink, "/hook");
        all.last()
            .zip(all.first())
            .is_some_and(|(last, first)| last.since(*first) > Duration::from_secs(5))
    });
    let calm = latency(&server, &key, &sink, "calm");
    sink.set("/hook", Behavior::Respond(503));
    wait_for("the suspension", LONG, || {
        server.status("orders", "hook")["health"]["state"] == "suspended"
    });
    let healthy = server.status("orders", "hook")["endpoint"]["healthyRate"]
        .as_f64()
        .expect("a rate");
    let down = sink.now();
    // The backlog grows meanwhile to far more than the events of a second.
    thread::sleep(Duration::from_secs(4));
    sink.set("/hook", Behavior::Respond(200));
    let up = sink.now();
    let back = || taken(&sink, "/hook").into_iter().find(|at| *at >= up);
    wait_for("the probe", LONG, || back().is_some());
    let probe = back().expect("it was waited for");
    let busy = latency(&server, &key, &sink, "busy");
    // A few times as long, and a moment of this machine. Behind four seconds of backlog it would be
    // seconds.
    assert!(
        busy < 4 * calm + Duration::from_millis(100),
        "the neighbour waits: {busy:?}, and {calm:?} before"
    );
    wait_for("seven seconds", LONG, || {
        sink.now() > probe.after(Duration::from_secs(7))
    });
    let now = taken(&sink, "/hook");
    let half = Duration::from_millis(500);
    let counts: Vec<usize> = (0..14)
        .map(|slice| within(&now, probe.after(half * slice), half))
        .collect();
    println!("{healthy:.0} in a second before; then, in each half of one, {counts:?}");
    println!("the neighbour's events took {calm:?} before and {busy:?} meanwhile");
    let expected = healthy / 2.0;
    // As many new events come as before, and the backlog is a tenth of them at first.
    assert!(
        (counts[0] as f64) < 1.4 * expected,
        "it is not overrun at first: {counts:?}"
    );
    // Four seconds together, so that a stall of this machine is a small part of them.
    let reached = counts[6..].iter().sum::<usize>() as f64;
    assert!(
        reached > 0.7 * 4.0 * healthy,
        "after three seconds it has its rate again: {counts:?} of {healthy}"
    );
    // Sums, as what a stall of this machine held back comes after it.
    let sums = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum as f64)
    });
    let is_more = sums
        .zip(1u32..)
        .any(|(sum, slices)| sum > expected * (1.3 * f64::from(slices) + 0.5));
    assert!(!is_more, "and no more: {counts:?} of {healthy}");
    assert_eq!(
        server.status("orders", "hook")["health"]["state"],
        "healthy"
    );
    let beside = within(&taken(&sink, "/neighbour"), down, up.since(down)) as f64;
    assert!(
        beside > 0.5 * healthy * up.since(down).as_secs_f64(),
        "the neighbour got {beside} meanwhile"
    );
    let acknowledged = load.stop();
    for name in ["hook", "neighbour"] {
        wait_until_settled(&server, "orders", name);
        assert!(
            assert_arrived(&sink, &format!("/{name}"), &acknowledged).is_empty(),
            "{name}: nothing is taken twice"
        );
    }
}

#[test]
fn an_operator_probes_and_releases_an_endpoint_that_is_left_alone() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    for verb in ["probe", "release"] {
        sink.set("/hook", Behavior::Respond(503));
        let ids: Vec<String> = (0..40).map(|number| format!("{verb}-{number}")).collect();
        server.publish("orders", &key, &load::body(&ids, "/a"));
        let before = sink.taken("/hook");
        // The longest wait of the tests' edition is a second: there is time for a command in the
        // later ones.
        wait_for("two suspensions", LONG, || {
            server.status("orders", "hook")["health"]["consecutiveSuspensions"].as_u64() >= Some(2)
        });
        sink.set("/hook", Behavior::Respond(200));
        // Its own probe may be quicker: then the command has no sense any more, and says so.
        let status = server.post_verb_status("orders", "hook", verb);
        assert!(matches!(status, 200 | 409), "{verb}: {status}");
        wait_for("all events", LONG, || {
            sink.taken("/hook") == before + ids.len()
        });
        wait_until_settled(&server, "orders", "hook");
        assert_eq!(
            server.status("orders", "hook")["health"]["state"],
            "healthy"
        );
    }
}
