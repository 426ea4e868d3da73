//! Consumers, each on a thread with a connection of its own: they receive, and acknowledge what
//! they have received.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;

use super::{
    load::{TYPE, Target, histogram, pad},
    time::{nanoseconds, now},
};
use crate::support::http::Client;

/// Events in a request that fills a queue.
const FILL: u64 = 500;

/// The number of publishers that fill the queue.
const PUBLISHERS: u64 = 4;

/// The text before a lock token, which is nowhere else.
const TOKEN: &[u8] = br#""lockToken":""#;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The result of pulling.
pub(crate) struct Pulled {
    pub(crate) events: u64,
    pub(crate) calls: u64,
    pub(crate) took: Duration,
    /// The times until the responses, in nanoseconds.
    pub(crate) receives: Histogram<u64>,
    pub(crate) acknowledgements: Histogram<u64>,
}

impl Pulled {
    fn none() -> Self {
        let receives = histogram();
        let acknowledgements = histogram();
        Self {
            events: 0,
            calls: 0,
            took: Duration::ZERO,
            receives,
            acknowledgements,
        }
    }

    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.calls += other.calls;
        self.receives.add(&other.receives).expect("the same bounds");
        self.acknowledgements
            .add(&other.acknowledgements)
            .expect("the same bounds");
    }
}

/// A client that receives and acknowledges.
pub(crate) struct Consumer {
    client: Client,
    receive: String,
    acknowledge: String,
    authorization: String,
}

impl Consumer {
    /// A client that receives up to this number of events in a call.
    pub(crate) fn new(target: &Target, queue: &str, most: usize) -> Self {
        let way = |verb: &str| format!("{}/eventsubscriptions/{queue}:{verb}", target.path);
        Self {
            client: Client::new(target.at),
            receive: format!("{}?maxEvents={most}&maxWaitTime=30", way("receive")),
            acknowledge: way("acknowledge"),
            authorization: authorization_value(target),
        }
    }

    /// The lock tokens of what it is given.
    pub(crate) fn receive(&mut self) -> Vec<String> {
        let headers = [("authorization", self.authorization.as_str())];
        let response = self
            .client
            .ask("POST", &self.receive, &headers, b"")
            .expect("a waiting client receives an answer");
        assert_eq!(response.status, 200, "{}", response.text());
        let tokens = memchr::memmem::find_iter(&response.body, TOKEN).map(|at| {
            let rest = &response.body[at + TOKEN.len()..];
            let length = memchr::memchr(b'"', rest).expect("a token ends");
            String::from_utf8_lossy(&rest[..length]).into_owned()
        });
        tokens.collect()
    }

    /// Acknowledges events, which must succeed.
    pub(crate) fn acknowledge(&mut self, tokens: &[String]) {
        let body = format!(r#"{{"lockTokens":["{}"]}}"#, tokens.join(r#"",""#));
        let headers = [
            ("authorization", self.authorization.as_str()),
            ("content-type", "application/json"),
        ];
        let response = self
            .client
            .ask("POST", &self.acknowledge, &headers, body.as_bytes())
            .expect("it is answered");
        assert_eq!(response.status, 200, "{}", response.text());
        let failed = memchr::memmem::find(&response.body, br#""failedLockTokens":[]"#).is_none();
        assert!(!failed, "{}", response.text());
    }
}

/// The value of `Authorization` for a target.
pub(crate) fn authorization_value(target: &Target) -> String {
    format!("SharedAccessKey {}", target.key)
}

/// Runs consumers that receive and acknowledge for a duration, or until they have requested
/// `available` events. There must be as many, so that no consumer waits.
pub(crate) fn pull(
    target: &Target,
    queue: &str,
    consumers: usize,
    most: usize,
    (time, available): (Duration, u64),
) -> Pulled {
    let begin = now();
    let asked = AtomicU64::new(0);
    let end = begin + nanoseconds(time);
    let consume = || {
        let mut consumer = Consumer::new(target, queue, most);
        let mut pulled = Pulled::none();
        while asked.fetch_add(most as u64, Ordering::Relaxed) + most as u64 <= available {
            let at = now();
            let tokens = consumer.receive();
            let received = now();
            assert!(
                !tokens.is_empty(),
                "nothing was received where there is something"
            );
            consumer.acknowledge(&tokens);
            pulled.receives.saturating_record(received - at);
            pulled.acknowledgements.saturating_record(now() - received);
            pulled.events += tokens.len() as u64;
            pulled.calls += 1;
            if now() >= end {
                break;
            }
        }
        pulled
    };
    let mut all = Pulled::none();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..consumers).map(|_| scope.spawn(consume)).collect();
        for one in threads {
            all.add(&one.join().expect("a consumer does not panic"));
        }
    });
    all.took = Duration::from_nanos(now() - begin);
    all
}

/// Publishes at least this number of events of 512 bytes, and returns how many.
pub(crate) fn fill(target: &Target, events: u64) -> u64 {
    let each = events.div_ceil(FILL).div_ceil(PUBLISHERS);
    thread::scope(|scope| {
        for _ in 0..PUBLISHERS {
            scope.spawn(|| {
                let mut client = Client::new(target.at);
                (0..each).for_each(|_| publish(&mut client, target, FILL));
            });
        }
    });
    each * FILL * PUBLISHERS
}

/// Publishes this number of events in a request.
pub(crate) fn publish(client: &mut Client, target: &Target, events: u64) {
    let first = NUMBERS.fetch_add(events, Ordering::Relaxed);
    let events: Vec<String> = (first..first + events).map(event).collect();
    let headers = [
        ("authorization", &*authorization_value(target)),
        ("content-type", "application/cloudevents-batch+json"),
    ];
    let body = format!("[{}]", events.join(","));
    let response = client.ask(
        "POST",
        &format!("{}:publish", target.path),
        &headers,
        body.as_bytes(),
    );
    let response = response.expect("a publisher is answered");
    assert_eq!(response.status, 200, "{}", response.text());
}

fn event(number: u64) -> String {
    let event = |pad: &str| {
        format!(
            r#"{{"specversion":"1.0","id":"{number:019}","source":"/bench","type":"{TYPE}","data":{{"pad":"{pad}"}}}}"#
        )
    };
    event(&pad(512 - event("").len(), number))
}
