//! An endpoint that never responds does not delay the others.
//!
//! The short form asserts facts that do not depend on time. The long one (`make soak`) compares
//! latencies: pairs of runs, with and without black holes, in turns, each after a warm-up.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use gridhook::{clock::Clock, event::Timestamp};
use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    http::Client,
    names::{NameReply, NameServer},
    needs,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

/// Healthy subscriptions, and as many black holes beside them.
const EACH: usize = 50;

/// Events of a request, one for each healthy subscription and its neighbour.
const EVENTS: usize = 10;

/// How much worse the slowest hundredth may be.
const RATIO_MAX: f64 = 1.25;

struct Street {
    server: Server,
    sink: Sink,
    key: String,
}

impl Street {
    fn new(holes: bool) -> Self {
        // Black holes shall time out within the run, and again.
        let server = Server::start(&[
            ("DELIVERY__RESPONSE_TIMEOUT", "2s"),
            ("DELIVERY__LATE_TIMEOUT", "10s"),
        ]);
        let sink = Sink::start();
        let key = server.topic("street", "EventGridSchema");
        for number in 0..EACH {
            for (kind, there) in [("healthy", true), ("hole", holes)] {
                let path = format!("/{kind}/{number}");
                if there {
                    server.subscribe(
                        "street",
                        &format!("{kind}-{number}"),
                        &SubscriptionSpec::new(&sink.url(&path)).types(&[&type_of(number)]),
                    );
                }
                if kind == "hole" {
                    sink.set(&path, Behavior::Hang);
                }
            }
        }
        Self { server, sink, key }
    }

    /// Publishes at a rate for a duration, and returns when each event was sent, by id.
    fn publish(&self, per_second: usize, most: Duration) -> HashMap<String, Timestamp> {
        let mut client = Client::new(self.server.address());
        let clock = Clock::system();
        let mut sent = HashMap::new();
        let begun = clock.now();
        let pause = Duration::from_secs_f64(EVENTS as f64 / per_second as f64);
        let requests = (most.as_secs_f64() / pause.as_secs_f64()) as u32;
        for request in 0..requests {
            let events: Vec<String> = (0..EVENTS)
                .map(|event| {
                    let id = format!("{request}-{event}");
                    let of = (request as usize * EVENTS + event) % EACH;
                    sent.insert(id.clone(), self.sink.now());
                    let kind = type_of(of);
                    format!(r#"{{"id":"{id}","subject":"/a","eventType":"{kind}","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1","data":{{}}}}"#)
                })
                .collect();
            let body = format!("[{}]", events.join(","));
            let headers = [("aeg-sas-key", self.key.as_str())];
            let response = client
                .ask("POST", &events_path("street"), &headers, body.as_bytes())
                .expect("a response");
            assert_eq!(response.status, 200, "{}", response.text());
            thread::sleep(begun.after(pause * (request + 1)).since(clock.now()));
        }
        sent
    }

    fn taken(&self) -> usize {
        (0..EACH)
            .map(|number| self.sink.taken(&format!("/healthy/{number}")))
            .sum()
    }

    /// How long each event that was sent after `from` took to its healthy endpoint.
    fn latencies(&self, sent: &HashMap<String, Timestamp>, from: Timestamp) -> Vec<Duration> {
        let mut found = Vec::new();
        for number in 0..EACH {
            self.sink.look(&format!("/healthy/{number}"), |ledger| {
                for (id, arrivals) in ledger {
                    if sent[id] >= from {
                        found.push(arrivals[0].at.since(sent[id]));
                    }
                }
            });
        }
        found.sort_unstable();
        found
    }
}

/// Subscriptions of a topic that look for as many strings as they may, each of one letter and a
/// number.
const SEEKERS: usize = 5;

#[test]
fn dear_filters_of_one_topic_do_not_stop_the_others() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    // Numbered in turns, so that each thread has topics of both kinds.
    let dear: Vec<(String, String)> = (0..4)
        .map(|number| {
            let name = format!("dear-{number}");
            let key = server.topic(&name, "EventGridSchema");
            (name, key)
        })
        .collect();
    for (name, _) in &dear {
        for seeker in 0..SEEKERS {
            let values: Vec<String> = (0..25)
                .map(|value| format!("{}{seeker}{value}", "a".repeat(400)))
                .collect();
            let filter = json!({"filter": {"advancedFilters": [
                {"operatorType": "StringContains", "key": "data.k", "values": values}]}});
            let spec = SubscriptionSpec::new(&sink.url("/dear")).also(&json!({}), &filter);
            server.subscribe(name, &format!("seeker-{seeker}"), &spec);
        }
    }
    let quiet: Vec<(String, String)> = (0..4)
        .map(|number| {
            let name = format!("quiet-{number}");
            let key = server.topic(&name, "EventGridSchema");
            server.subscribe(
                &name,
                "all",
                &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
            );
            (name, key)
        })
        .collect();
    let event = |id: &str, text: &str| {
        format!(
            r#"[{{"id":"{id}","subject":"/a","eventType":"E","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1","data":{{"k":"{text}"}}}}]"#
        )
    };
    let long = "a".repeat(1_000_000);
    for round in 0..5 {
        for (name, key) in &dear {
            // At the bound of its rate a topic refuses some.
            let headers = [("aeg-sas-key", key.as_str())];
            let body = event(&format!("dear-{round}"), &long);
            let response = Client::new(server.address()).ask(
                "POST",
                &events_path(name),
                &headers,
                body.as_bytes(),
            );
            assert!([200, 429].contains(&response.expect("a response").status));
        }
        for (name, key) in &quiet {
            server.publish(name, key, event(&format!("quiet-{round}"), "b").as_bytes());
        }
    }
    // One search for each of the strings of each event takes minutes.
    wait_for("the quiet topics' events", LONG, || {
        quiet
            .iter()
            .all(|(name, _)| sink.taken(&format!("/{name}")) == 5)
    });
    wait_for("the dear ones to be passed", LONG, || {
        dear.iter()
            .all(|(name, _)| server.counter(name, "seeker-0", "filtered") > 0)
    });
    assert_eq!(sink.taken("/dear"), 0);
}

fn type_of(number: usize) -> String {
    format!("Street.House{number}")
}

#[test]
fn fifty_black_holes_hold_their_own_places_and_healthy_neighbours_get_everything() {
    let street = Street::new(true);
    let sent = street.publish(500, Duration::from_secs(6));
    wait_for("everything at the healthy ones", LONG, || {
        street.taken() >= sent.len()
    });
    assert_eq!(street.taken(), sent.len(), "and nothing twice");
    let mut failed = 0;
    let mut held = 0;
    for number in 0..EACH {
        let healthy = street.server.status("street", &format!("healthy-{number}"));
        assert_eq!(healthy["counters"]["requestsFailed"], 0, "{healthy}");
        let hole = street.server.status("street", &format!("hole-{number}"));
        let of = |value: &Value| value.as_u64().expect("a number");
        assert!(of(&hole["inFlight"]) <= 16, "its places are 16: {hole}");
        assert!(
            of(&hole["lateRequests"]) <= 64,
            "and 64 for late answers: {hole}"
        );
        assert_eq!(hole["counters"]["delivered"], 0, "{hole}");
        failed += of(&hole["counters"]["requestsFailed"]);
        held += of(&hole["inFlight"]) + of(&hole["lateRequests"]);
    }
    println!(
        "50 black holes: {failed} requests failed, {held} places held; {} events at the others",
        sent.len()
    );
    assert!(failed > 0, "they were called");
}

#[test]
fn name_servers_that_never_answer_delay_no_other_name() {
    let names = NameServer::start(|name, _| match name {
        name if name.starts_with("silent") => NameReply::Silence,
        _ => NameReply::Addresses(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], 0),
    });
    let at = names.address().to_string();
    let settings = [
        ("DELIVERY__NAME_SERVERS", at.as_str()),
        ("DELIVERY__VALIDATE", "false"),
    ];
    let server = Server::start(&settings);
    let sink = Sink::start();
    let key = server.topic("names", "EventGridSchema");
    for number in 0..150 {
        let spec =
            SubscriptionSpec::new(&format!("http://silent{number}.test/")).types(&["Silent"]);
        server.subscribe("names", &format!("silent-{number}"), &spec);
    }
    for number in 0..5 {
        let url = sink
            .url(&format!("/near/{number}"))
            .replace("127.0.0.1", &format!("near{number}.test"));
        server.subscribe(
            "names",
            &format!("near-{number}"),
            &SubscriptionSpec::new(&url).types(&[&format!("Near{number}")]),
        );
    }
    let publish = |kind: &str| {
        let event = json!([{
            "id": kind, "subject": "/a", "eventType": kind, "eventTime": "2026-11-20T17:18:13Z", "dataVersion": "1", "data": {},
        }]);
        let headers = [("aeg-sas-key", key.as_str())];
        let response = server.client().ask(
            "POST",
            &events_path("names"),
            &headers,
            event.to_string().as_bytes(),
        );
        assert_eq!(response.expect("a response").status, 200);
    };
    publish("Silent");
    let clock = Clock::system();
    let mut waits = Vec::new();
    for number in 0..5 {
        let published = clock.now();
        publish(&format!("Near{number}"));
        wait_for("a neighbour's event", LONG, || {
            sink.taken(&format!("/near/{number}")) == 1
        });
        waits.push(clock.now().since(published));
    }
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.id())).expect("a process");
    let threads = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))
        .expect("a count")
        .trim()
        .to_owned();
    println!("150 names that nobody answers for: neighbours waited {waits:.0?}; {threads} threads");
    assert!(
        waits.iter().all(|wait| *wait < Duration::from_secs(20)),
        "{waits:?}"
    );
    assert!(threads.parse::<u32>().expect("a number") < 100, "{threads}");
}

/// The slowest hundredth's latency, with or without black holes.
fn p99(holes: bool, long: Duration) -> Duration {
    let street = Street::new(holes);
    let sent = street.publish(1000, long);
    wait_for("everything", LONG, || street.taken() >= sent.len());
    let first = sent.values().min().copied().unwrap_or_default();
    let latencies = street.latencies(&sent, first.after(long / 4));
    let at = |share: usize| latencies[latencies.len() * share / 1000];
    println!(
        "{}: {} events, p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}",
        if holes {
            "with black holes   "
        } else {
            "without black holes"
        },
        latencies.len(),
        at(500),
        at(990),
        at(999)
    );
    at(990)
}

#[test]
fn neighbours_that_never_answer_do_not_affect_the_slowest_hundredth() {
    if !needs::soak() {
        return;
    }
    let mut ratios: Vec<f64> = (0..3)
        .map(|_| {
            let [without, with] = [false, true].map(|holes| p99(holes, Duration::from_secs(160)));
            with.as_secs_f64() / without.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("p99 with black holes against p99 without, pair by pair: {ratios:.2?}");
    assert!(ratios[ratios.len() / 2] <= RATIO_MAX, "{ratios:?}");
}
