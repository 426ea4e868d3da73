//! Ten times the load that the server takes: it refuses in time, its memory stays bounded, and what
//! it acknowledged arrives.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::clock::Clock;
use serde_json::Value;

use super::LONG;
use crate::support::{
    http::{Client, Response},
    load,
    needs::many,
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::Sink,
};

/// The rate of the topic in events a second, and ten times that.
const TAKEN: usize = 200;
const OFFERED: usize = 10 * TAKEN;

const PUBLISHERS: usize = 16;

/// Events of a request.
const EVENTS: usize = 10;

/// The memory that is expected: the caches and tails of these settings, and the reserve of the
/// allocator.
const GROWTH_MAX: u64 = 64 * 1024 * 1024;

/// A health check returns within this time, also on a machine that does other things.
const HEALTH_MAX: Duration = Duration::from_secs(10);

/// The observations of a flood.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: Vec<String>,
    shed: usize,
    /// Refusals that did not say when to come again.
    curt: usize,
    other: Vec<String>,
    probes: Vec<Duration>,
    memory: Vec<u64>,
}

impl Seen {
    fn note(&mut self, ids: Vec<String>, response: std::io::Result<Response>) {
        match response {
            Ok(response) if response.status == 200 => self.acknowledged.extend(ids),
            Ok(response) if matches!(response.status, 429 | 503) => {
                self.shed += 1;
                let seconds = response
                    .header("retry-after")
                    .and_then(|seconds| seconds.parse::<u32>().ok());
                self.curt += usize::from(seconds.is_none_or(|seconds| seconds == 0));
            }
            Ok(response) => self
                .other
                .push(format!("{} {}", response.status, response.text())),
            Err(error) => self.other.push(error.to_string()),
        }
    }

    fn growth(&self) -> u64 {
        let first = self.memory.first();
        let most = self.memory.iter().max();
        first
            .zip(most)
            .map_or(0, |(first, most)| most.saturating_sub(*first))
    }

    /// Violations of a limit or a guarantee, one line each.
    fn complaints(&self) -> Vec<String> {
        let slowest = self.probes.iter().max().copied().unwrap_or(Duration::MAX);
        let mut found = Vec::new();
        if self.shed == 0 {
            found.push("nothing was shed".to_owned());
        }
        if self.curt > 0 {
            found.push(format!("{} refusals without Retry-After", self.curt));
        }
        if !self.other.is_empty() {
            found.push(format!("other answers: {:.3?}", self.other));
        }
        if slowest > HEALTH_MAX {
            found.push(format!("a question after its health took {slowest:?}"));
        }
        if self.growth() > GROWTH_MAX {
            found.push(format!("memory grew by {} bytes", self.growth()));
        }
        found
    }

    fn print(&self, title: &str) {
        let mut probes = self.probes.clone();
        probes.sort_unstable();
        let at = |share: usize| {
            probes
                .get(probes.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        let acknowledged = self.acknowledged.len();
        let shed = self.shed;
        println!(
            "{title}: {acknowledged} events acknowledged, {shed} requests shed; {} probes, p50 \
             {:.1?}, p99 {:.1?}; memory {} MiB at first, {} MiB more at the most",
            probes.len(),
            at(50),
            at(99),
            self.memory.first().copied().unwrap_or_default() >> 20,
            self.growth() >> 20
        );
    }
}

/// Publishers that offer `OFFERED` events a second in all, whatever the response, for so long.
fn flood(server: &Server, key: &str, most: Duration) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|number| {
            let seen = Arc::clone(&seen);
            let stop = Arc::clone(&stop);
            let at = server.address();
            let key = key.to_owned();
            thread::spawn(move || offer(number, at, &key, &seen, &stop))
        })
        .collect();
    let clock = Clock::system();
    let begun = clock.now();
    while clock.now().since(begun) < most {
        for path in ["/healthz", "/readyz"] {
            let asked = clock.now();
            assert_eq!(
                server.request_without_token("GET", path, &[]).status,
                200,
                "{path}"
            );
            let took = clock.now().since(asked);
            seen.lock().probes.push(took);
        }
        let asked = clock.now();
        server.topic_status("orders");
        let mut seen = seen.lock();
        seen.probes.push(clock.now().since(asked));
        // The memory of a server at its start does not count.
        if clock.now().since(begun) > most / 4 {
            seen.memory.push(server.resident());
        }
        drop(seen);
        thread::sleep(Duration::from_millis(50));
    }
    stop.store(true, Ordering::SeqCst);
    for publisher in publishers {
        publisher.join().expect("a publisher does not panic");
    }
    let mut seen = seen.lock();
    std::mem::take(&mut *seen)
}

fn offer(number: usize, at: SocketAddr, key: &str, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let pause = Duration::from_secs_f64((PUBLISHERS * EVENTS) as f64 / OFFERED as f64);
    let clock = Clock::system();
    let mut client = Client::new(at);
    let begun = clock.now();
    for request in 0u32.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let ids: Vec<String> = (0..EVENTS)
            .map(|event| format!("{number}-{request}-{event}"))
            .collect();
        let body = load::body(&ids, &"/".repeat(1000));
        let response = client.ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", key)],
            &body,
        );
        seen.lock().note(ids, response);
        // At planned times, so that slow responses do not reduce the load.
        thread::sleep((begun.after(pause * request)).since(clock.now()));
    }
}

#[test]
fn at_ten_times_its_rate_it_sheds_stays_responsive_and_keeps_its_word() {
    let rate = TAKEN.to_string();
    let server = Server::start(&[
        ("PUBLISH__EVENTS_PER_SECOND", &rate),
        ("TOPIC__RECENT_EVENTS_BYTES", "4 MiB"),
    ]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(100),
    );
    let seen = flood(&server, &key, Duration::from_secs(many(8, 120)));
    seen.print("ten times the rate");
    assert!(seen.complaints().is_empty(), "{:#?}", seen.complaints());
    wait_for("what was acknowledged", LONG, || {
        sink.taken("/hook") >= seen.acknowledged.len()
    });
    sink.look("/hook", |ledger| {
        let missing = seen
            .acknowledged
            .iter()
            .filter(|id| !ledger.contains_key(*id))
            .count();
        assert_eq!(
            (missing, ledger.len()),
            (0, seen.acknowledged.len()),
            "all that was acknowledged, and nothing else"
        );
    });
}

#[test]
fn without_the_rate_nothing_is_shed_and_the_test_fails() {
    let server = Server::start(&[("PUBLISH__EVENTS_PER_SECOND", "0")]);
    let key = server.topic("orders", "EventGridSchema");
    let seen = flood(&server, &key, Duration::from_secs(2));
    assert!(
        seen.complaints().contains(&"nothing was shed".to_owned()),
        "{:?}",
        seen.complaints()
    );
}

/// Publishers that send all but the end of a large body, and then stay: how much more memory that
/// takes, how many were asked to come back, and whether a small publisher is served meanwhile.
fn hoard(server: &Server, key: &str, publishers: usize) -> (u64, usize, u16) {
    let before = server.resident();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ncontent-length: 1000001\r\n\r\n",
        events_path("orders")
    );
    let request = [head.as_bytes(), &[b' '; 1_000_000]].concat();
    let at = server.address();
    let threads: Vec<_> = (0..publishers)
        .map(|_| {
            let request = request.clone();
            thread::spawn(move || {
                let talk = super::raw::RawRequest {
                    first: &request,
                    drip: None,
                    reads: true,
                    most: Duration::from_secs(10),
                };
                let ended = talk.until_answered(at);
                let reported = ended.response.contains("HTTP/1.1 503")
                    && ended.response.contains("retry-after: ");
                (reported, ended)
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let small = load::body(&["1".to_owned()], "/a");
    let response = Client::new(at).ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", key)],
        &small,
    );
    let status = response.expect("a publisher is answered").status;
    let reported = threads
        .into_iter()
        .filter_map(|thread| thread.join().ok())
        .filter(|(reported, _)| *reported)
        .count();
    let grown = server.most_resident().saturating_sub(before);
    (grown, reported, status)
}

#[test]
fn bodies_that_are_never_finished_hold_no_more_than_their_bound() {
    let bounds = [
        ("PUBLISH__BYTES_IN_FLIGHT", "8 MiB"),
        ("PUBLISH__REQUEST_BYTES", "1 MiB"),
        ("PUBLISH__EVENT_BYTES", "1 MiB"),
    ];
    let server = Server::start(&bounds);
    let key = server.topic("orders", "EventGridSchema");
    let (grown, reported, _) = hoard(&server, &key, 60);
    println!(
        "60 unfinished bodies of 1 MB, room for 8: {} MiB more memory, {reported} received 503",
        grown >> 20
    );
    assert!(grown < 48 << 20, "{grown} bytes");
    assert!((45..=58).contains(&reported), "{reported} received 503");
}

#[test]
fn bodies_of_one_topic_that_stop_leave_room_to_the_others() {
    let server = Server::start(&[
        ("PUBLISH__BODY_BYTES_PER_SECOND", "0"),
        ("PUBLISH__BODY_TIMEOUT", "1h"),
    ]);
    let keys = ["orders", "quiet"].map(|topic| server.topic(topic, "EventGridSchema"));
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {}\r\ncontent-length: 1500000\r\n\r\n",
        events_path("orders"),
        keys[0]
    );
    let request = [head.as_bytes(), &[b' '; 1_499_999]].concat();
    let mut stuck = Vec::new();
    for _ in 0..24 {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream
            .set_write_timeout(Some(Duration::from_secs(5)))
            .expect("a timeout can be set");
        // Without room the server responds at once, before the end of the request.
        stream.write_all(&request).ok();
        stuck.push(stream);
    }
    let held = || {
        let text = server.admin("GET", "/metrics", &Value::Null).text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("gridhook_publish_in_flight_bytes "));
        line.and_then(|value| value.parse::<f64>().ok())
            .expect("the metric is there")
    };
    wait_for("the room of one to be full", LONG, || held() > 20e6);
    let mut client = server.client();
    let mut statuses = Vec::new();
    for number in 0..20 {
        // Large and small ones.
        let path = if number % 2 == 0 {
            "/a".to_owned()
        } else {
            format!("/{}", "a".repeat(900_000))
        };
        let body = load::body(&[number.to_string()], &path);
        let response = client.ask(
            "POST",
            &events_path("quiet"),
            &[("aeg-sas-key", &keys[1])],
            &body,
        );
        statuses.push(response.expect("a publisher is answered").status);
    }
    assert_eq!(statuses, [200; 20]);
    assert!(held() > 20e6, "the others hold what they have");
}

#[test]
fn bodies_that_stop_lose_their_place_long_before_the_deadline() {
    let server = Server::start(&[("PUBLISH__BODY_TIMEOUT", "1h")]);
    let key = server.topic("orders", "EventGridSchema");
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ncontent-length: 1000\r\n\r\n[",
        events_path("orders")
    );
    let talk = super::raw::RawRequest {
        first: request.as_bytes(),
        drip: None,
        reads: true,
        most: LONG,
    };
    let ended = talk.until_answered(server.address());
    assert!(ended.response.starts_with("HTTP/1.1 408"), "{ended:?}");
    assert!(
        ended.response.contains("at less than 1024 bytes a second"),
        "{ended:?}"
    );
}

#[test]
fn without_that_bound_they_hold_what_they_like_and_the_test_fails() {
    let server = Server::start(&[("PUBLISH__BYTES_IN_FLIGHT", "1 GiB")]);
    let key = server.topic("orders", "EventGridSchema");
    let (grown, reported, status) = hoard(&server, &key, 60);
    assert_eq!((reported, status), (0, 200));
    assert!(
        grown > 48 << 20,
        "60 bodies of a megabyte are {grown} bytes"
    );
}

#[test]
fn a_large_declared_length_reserves_no_memory_of_others() {
    let bounds = [
        ("PUBLISH__BYTES_IN_FLIGHT", "2 MiB"),
        ("PUBLISH__REQUEST_BYTES", "1 MiB"),
        ("PUBLISH__EVENT_BYTES", "1 MiB"),
    ];
    let server = Server::start(&bounds);
    let key = server.topic("orders", "EventGridSchema");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ncontent-length: 1000000\r\n\r\n[",
        events_path("orders")
    );
    let at = server.address();
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let first = head.clone().into_bytes();
            let most = Duration::from_secs(3);
            thread::spawn(move || {
                super::raw::RawRequest {
                    first: &first,
                    drip: None,
                    reads: true,
                    most,
                }
                .until_answered(at)
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    for number in 0..20 {
        server.publish("orders", &key, &load::body(&[number.to_string()], "/a"));
    }
    for ended in slow {
        let ended = ended.join().expect("a connection does not panic");
        assert!(
            ended.response.is_empty(),
            "forty megabytes were announced where there is room for two: {ended:?}"
        );
    }
}
