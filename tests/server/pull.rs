//! Clients that pull from the real binary: their operations, kills while they hold locks, many
//! clients at once, and thousands that wait.

mod deleted;
mod gone;
mod ordered;
mod vain;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{
    clock::Clock,
    control::registry::ChangeBasis,
    event::Schema,
    policy::filter::Filter,
    record::{subscription::SubscriptionRecord, topic::key_in_namespace},
};
use serde_json::{Value, json};

use super::{LONG, in_store, many};
use crate::support::{
    http::{Client, Response},
    server::{Server, wait_for},
};

pub(crate) const RG: &str =
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces";
const TOPIC: &str = "/namespaces/plant/topics/heat";

/// A server with a topic that has these subscriptions: each with its lock in seconds, and the
/// attempts that it allows.
pub(crate) fn start(settings: &[(&str, &str)], queues: &[(&str, u32, u32)]) -> (Server, String) {
    let mut server = Server::start(settings);
    server.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    server.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
    let keys = server
        .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
        .json();
    server.terminate();
    for (name, lock, attempts) in queues {
        put(&server, name, (*lock, *attempts, 60), &Value::Null);
    }
    server.restart();
    (
        server,
        format!("SharedAccessKey {}", keys["key1"].as_str().expect("a key")),
    )
}

/// Puts a subscription into the store of a server that is down, with a lock in seconds and a time
/// to live in minutes that are shorter than the control plane allows.
fn put(
    server: &Server,
    name: &str,
    (lock, attempts, minutes): (u32, u32, u32),
    dead_letter: &Value,
) {
    let record: SubscriptionRecord = serde_json::from_value(json!({
        "number": 0, "version": 0, "name": name, "queue": {"receive_lock_duration_in_seconds": lock},
        "filter": serde_json::to_value(Filter::default()).expect("a record"),
        "delivery_schema": serde_json::to_value(Schema::CloudEvents).expect("a record"),
        "retry": {"max_delivery_attempts": attempts, "event_time_to_live_in_minutes": minutes},
        "dead_letter": dead_letter, "labels": [],
    }))
    .expect("a record");
    in_store(server, Clock::system(), async |registry, _| {
        let key = key_in_namespace("plant", "heat");
        registry
            .put_subscription(&key, record, ChangeBasis::Any)
            .await
            .expect("it is put");
    });
}

/// One client.
pub(crate) struct Consumer {
    client: Client,
    shown: String,
    queue: &'static str,
}

impl Consumer {
    pub(crate) fn new(server: &Server, shown: &str, queue: &'static str) -> Self {
        Self {
            client: server.client(),
            shown: shown.to_owned(),
            queue,
        }
    }

    fn try_post(&mut self, path: &str, body: &[u8]) -> std::io::Result<Response> {
        let headers = [
            ("authorization", self.shown.as_str()),
            ("content-type", "application/json"),
        ];
        self.client.ask("POST", path, &headers, body)
    }

    fn post(&mut self, path: &str, body: &[u8]) -> Response {
        self.try_post(path, body)
            .expect("a client receives an answer")
    }

    fn try_receive(&mut self, most: usize) -> std::io::Result<Vec<Received>> {
        let path = format!(
            "{TOPIC}/eventsubscriptions/{}:receive?maxEvents={most}&maxWaitTime=10",
            self.queue
        );
        let response = self.try_post(&path, b"")?;
        assert_eq!(response.status, 200, "{}", response.text());
        let value = response.json()["value"].as_array().expect("a list").clone();
        Ok(value.into_iter().map(Received::from_value).collect())
    }

    /// Receives until there is something.
    pub(crate) fn receive(&mut self, most: usize) -> Vec<Received> {
        let mut found = Vec::new();
        wait_for("events", LONG, || {
            found = self
                .try_receive(most)
                .expect("a waiting client receives an answer");
            !found.is_empty()
        });
        found
    }

    fn try_settle(&mut self, verb: &str, tokens: &[&str]) -> std::io::Result<Value> {
        let path = format!("{TOPIC}/eventsubscriptions/{}:{verb}", self.queue);
        let response =
            self.try_post(&path, json!({"lockTokens": tokens}).to_string().as_bytes())?;
        assert_eq!(response.status, 200, "{}", response.text());
        Ok(response.json())
    }

    pub(crate) fn settle(&mut self, verb: &str, tokens: &[&str]) -> Value {
        self.try_settle(verb, tokens)
            .expect("a client receives an answer")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) token: String,
    count: u64,
    event: Value,
}

impl Received {
    fn from_value(value: Value) -> Self {
        let broker = &value["brokerProperties"];
        Self {
            token: broker["lockToken"].as_str().expect("a token").to_owned(),
            count: broker["deliveryCount"].as_u64().expect("a number"),
            event: value["event"].clone(),
        }
    }

    fn id(&self) -> &str {
        self.event["id"].as_str().expect("an id")
    }
}

pub(crate) fn publish(server: &Server, shown: &str, ids: std::ops::Range<usize>) {
    let events: Vec<Value> = ids
        .map(|id| json!({"specversion": "1.0", "id": id.to_string(), "source": "/oven", "type": "hot", "data": {"c": id}}))
        .collect();
    let headers = [
        ("authorization", shown),
        ("content-type", "application/cloudevents-batch+json"),
    ];
    let body = serde_json::to_vec(&events).expect("JSON");
    let response = server
        .client()
        .ask("POST", &format!("{TOPIC}:publish"), &headers, &body)
        .expect("a response");
    assert_eq!(response.status, 200, "{}", response.text());
}

fn failed(settled: &Value, place: usize) -> &str {
    settled["failedLockTokens"][place]["error"]["code"]
        .as_str()
        .unwrap_or("none")
}

pub(crate) fn succeeded(settled: &Value) -> usize {
    settled["succeededLockTokens"]
        .as_array()
        .map_or(0, Vec::len)
}

#[test]
fn events_are_received_and_each_operation_on_them_has_its_effect() {
    // One connection for all of it, however slow the machine is.
    let (server, shown) = start(
        &[("LIMITS__IDLE_TIMEOUT", "1m")],
        &[("work", 60, 10), ("once", 60, 1)],
    );
    let mut one = Consumer::new(&server, &shown, "work");
    publish(&server, &shown, 0..5);
    let got = one.receive(10);
    assert_eq!(got.len(), 5, "what is there comes at once");
    assert_eq!(
        got[0].event,
        json!({"specversion": "1.0", "id": "0", "source": "/oven", "type": "hot", "data": {"c": 0}})
    );
    assert!(got.iter().all(|event| event.count == 1));
    let tokens: Vec<&str> = got.iter().map(|event| event.token.as_str()).collect();
    // Each word once, and the same again.
    assert_eq!(succeeded(&one.settle("acknowledge", &tokens[..2])), 2);
    let again = one.settle(
        "acknowledge",
        &[tokens[0], "nonsense", tokens[2], tokens[2]],
    );
    assert_eq!(again["succeededLockTokens"], json!([tokens[2]]));
    let codes: Vec<&str> = (0..3).map(|place| failed(&again, place)).collect();
    assert_eq!(codes, ["TokenLost", "TokenLost", "BadToken"], "{again}");
    assert_eq!(
        again["failedLockTokens"][0]["error"]["message"],
        "Token has expired."
    );
    assert!(
        again["failedLockTokens"][0].get("errorCode").is_none(),
        "{again}"
    );
    let before = one.settle("acknowledge?api-version=2023-11-01", &[tokens[0]]);
    let failed_before = &before["failedLockTokens"][0];
    assert_eq!(
        failed_before["errorCode"], failed_before["error"]["code"],
        "as the documents of 2023 have it: {before}"
    );
    assert_eq!(
        failed_before["errorDescription"], "Token has expired.",
        "{before}"
    );
    assert_eq!(
        succeeded(&one.settle("renewLock", &[tokens[3], tokens[3], tokens[4]])),
        3
    );
    assert_eq!(
        succeeded(&one.settle("renewlock", &[tokens[3]])),
        1,
        "as the first preview spelled it"
    );
    assert_eq!(succeeded(&one.settle("reject", &[tokens[3]])), 1);
    assert_eq!(succeeded(&one.settle("release", &[tokens[4]])), 1);
    assert_eq!(
        failed(&one.settle("renewLock", &[tokens[4]]), 0),
        "TokenLost"
    );
    let back = one.receive(10);
    assert_eq!((back.len(), back[0].id(), back[0].count), (1, "4", 2));
    assert_eq!(
        failed(&one.settle("acknowledge", &[tokens[4]]), 0),
        "TokenLost",
        "that was another attempt"
    );
    // A token is good for its own subscription alone.
    assert_eq!(
        failed(
            &Consumer::new(&server, &shown, "once").settle("acknowledge", &[&back[0].token]),
            0
        ),
        "BadToken"
    );
    assert_eq!(succeeded(&one.settle("acknowledge", &[&back[0].token])), 1);
    // The last attempt that is given back is given up.
    let mut once = Consumer::new(&server, &shown, "once");
    let last = once.receive(100);
    let last: Vec<&str> = last.iter().map(|event| event.token.as_str()).collect();
    assert_eq!(succeeded(&once.settle("release", &last)), 5);
    assert_eq!(once.try_receive(1).expect("a response").len(), 0);
    refuses(&server, &mut one);
}

/// Invalid requests, and their errors.
fn refuses(server: &Server, consumer: &mut Consumer) {
    let below = format!("{TOPIC}/eventsubscriptions");
    for (path, body, status, says) in [
        (
            format!("{below}/work:receive?maxEvents=0"),
            "",
            400,
            "a whole number from 1 to 100",
        ),
        (
            format!("{below}/work:receive?maxWaitTime=5"),
            "",
            400,
            "a whole number from 10 to 120",
        ),
        (
            format!("{below}/work:release?releaseDelayInSeconds=7"),
            r#"{"lockTokens":["a"]}"#,
            400,
            "0, 10, 60, 600 or 3600",
        ),
        (format!("{below}/work:acknowledge"), "{}", 400, "lockTokens"),
        (
            format!("{below}/work:acknowledge"),
            r#"{"lockTokens":[]}"#,
            400,
            "1 to 100",
        ),
        (
            format!("{below}/none:receive"),
            "",
            404,
            "no event subscription 'none'",
        ),
        (
            "/namespaces/plant/topics/cold/eventsubscriptions/work:receive".to_owned(),
            "",
            410,
            "no topic 'cold'",
        ),
    ] {
        let response = consumer.post(&path, body.as_bytes());
        assert_eq!(response.status, status, "{path}: {}", response.text());
        assert!(
            response.text().contains(says),
            "{path}: {}",
            response.text()
        );
    }
    let mut stranger = Consumer::new(server, "SharedAccessKey AAAA", "work");
    assert_eq!(
        stranger.post(&format!("{below}/work:receive"), b"").status,
        401
    );
}

#[test]
fn an_answer_is_as_large_as_was_asked_for_where_there_is_enough() {
    let idle_timeout = ("LIMITS__IDLE_TIMEOUT", "1m");
    let (server, shown) = start(&[idle_timeout], &[("work", 60, 10), ("other", 60, 10)]);
    // The log is read in pieces, and no piece ends where a response does.
    (0..5).for_each(|of| publish(&server, &shown, of * 280..(of + 1) * 280));
    // An event subscription learns of events after their publisher, together with its neighbours.
    let mut other = Consumer::new(&server, &shown, "other");
    let mut others = 0;
    wait_for("all events at another subscription", LONG, || {
        others += other.receive(100).len();
        others == 1400
    });
    let mut work = Consumer::new(&server, &shown, "work");
    let sizes: Vec<usize> = (0..14).map(|_| work.receive(100).len()).collect();
    assert_eq!(sizes, [100; 14]);
}

#[test]
fn a_waiting_client_is_served_as_soon_as_an_event_is_there() {
    let (server, shown) = start(&[], &[("work", 60, 10)]);
    let mut consumer = Consumer::new(&server, &shown, "work");
    let waiting = thread::spawn(move || consumer.receive(1));
    thread::sleep(Duration::from_millis(50));
    publish(&server, &shown, 0..1);
    assert_eq!(waiting.join().expect("it is served").len(), 1);
}

#[test]
fn locked_events_stay_locked_across_a_kill_and_others_come_back() {
    let (mut server, shown) = start(&[], &[("long", 300, 10), ("short", 2, 10)]);
    publish(&server, &shown, 0..20);
    let held = Consumer::new(&server, &shown, "long").receive(10);
    let lost = Consumer::new(&server, &shown, "short").receive(100);
    server.kill_9();
    server.assert_sound();
    server.restart();
    // The tokens are valid after the restart, and no other client has what they hold.
    let mut long = Consumer::new(&server, &shown, "long");
    let rest = long.receive(100);
    assert_eq!((held.len(), rest.len()), (10, 10));
    assert!(
        rest.iter()
            .all(|event| event.count == 1 && held.iter().all(|other| other.id() != event.id()))
    );
    let tokens: Vec<&str> = held.iter().map(|event| event.token.as_str()).collect();
    assert_eq!(succeeded(&long.settle("acknowledge", &tokens)), 10);
    // Locks that have expired give back every event, after one attempt more.
    let mut short = Consumer::new(&server, &shown, "short");
    let mut back = BTreeMap::new();
    wait_for("what was held to come back", LONG, || {
        let got = short.try_receive(100).expect("a response");
        let tokens: Vec<&str> = got.iter().map(|event| event.token.as_str()).collect();
        if !tokens.is_empty() {
            short.settle("acknowledge", &tokens);
        }
        for event in &got {
            back.entry(event.id().to_owned()).or_insert(event.count);
        }
        back.len() == 20
    });
    for event in &lost {
        assert!(
            back[event.id()] >= 2,
            "{} was received before: {back:?}",
            event.id()
        );
    }
    server.kill_9();
    server.assert_sound();
}

#[test]
fn each_event_is_acknowledged_once_by_many_consumers_across_a_kill() {
    let _rows = crate::spec::shows(&[
        "S004-081: Checkpointing can be used to mark events as complete by downstream \
         applications.",
    ]);
    let events = many(600, 20_000);
    let (mut server, shown) = start(&[], &[("work", 10, 100)]);
    for from in (0..events).step_by(100) {
        publish(&server, &shown, from..from + 100);
    }
    let at = Arc::new(Mutex::new(server.address()));
    let done = Arc::new(AtomicBool::new(false));
    // By id: how often it was received, and how often an acknowledgement of it was answered.
    let ledger: Arc<Mutex<BTreeMap<String, (u32, u32)>>> = Arc::default();
    let consumers: Vec<_> = (0..8)
        .map(|_| {
            let at = Arc::clone(&at);
            let done = Arc::clone(&done);
            let ledger = Arc::clone(&ledger);
            let shown = shown.clone();
            thread::spawn(move || {
                let mut taken = 0;
                while !done.load(Ordering::SeqCst) {
                    let client = Client::new(*at.lock());
                    let mut consumer = Consumer {
                        client,
                        shown: shown.clone(),
                        queue: "work",
                    };
                    while !done.load(Ordering::SeqCst) {
                        let Ok(got) = consumer.try_receive(7) else {
                            break;
                        };
                        let tokens: Vec<&str> =
                            got.iter().map(|event| event.token.as_str()).collect();
                        got.iter().for_each(|event| {
                            ledger.lock().entry(event.id().to_owned()).or_default().0 += 1;
                        });
                        if tokens.is_empty() {
                            continue;
                        }
                        let Ok(settled) = consumer.try_settle("acknowledge", &tokens) else {
                            break;
                        };
                        for event in got.iter().filter(|event| {
                            settled["succeededLockTokens"]
                                .as_array()
                                .is_some_and(|all| all.contains(&json!(event.token)))
                        }) {
                            ledger.lock().entry(event.id().to_owned()).or_default().1 += 1;
                            taken += 1;
                        }
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                taken
            })
        })
        .collect();
    let acknowledged = |ledger: &Mutex<BTreeMap<String, (u32, u32)>>| {
        ledger
            .lock()
            .values()
            .filter(|(_, acknowledged)| *acknowledged > 0)
            .count()
    };
    wait_for("some of them", LONG, || acknowledged(&ledger) > events / 3);
    server.kill_9();
    server.assert_sound();
    server.restart();
    *at.lock() = server.address();
    // Events whose request was interrupted by the kill are due again after their lock, or were
    // acknowledged without a response.
    wait_for("all of them", 3 * LONG, || {
        ledger.lock().len() == events && acknowledged(&ledger) + 8 * 7 >= events
    });
    done.store(true, Ordering::SeqCst);
    let taken: Vec<u32> = consumers
        .into_iter()
        .map(|consumer| consumer.join().expect("no panic"))
        .collect();
    let ledger = ledger.lock();
    let repeated = ledger
        .values()
        .filter(|(received, _)| *received > 1)
        .count();
    println!(
        "{events} events, {} acknowledged, {repeated} received again, by consumer {taken:?}",
        ledger.len()
    );
    assert!(
        ledger.values().all(|(_, acknowledged)| *acknowledged <= 1),
        "acknowledged twice: {ledger:?}"
    );
    assert!(
        taken.iter().filter(|taken| **taken > 0).count() > 1,
        "one has them all: {taken:?}"
    );
}

#[test]
fn thousands_that_wait_cost_little() {
    let most = many(1_500, 9_000);
    let settings = [
        ("limits.connections", "20000"),
        ("limits.connections_per_address", "20000"),
    ];
    let (server, shown) = start(&settings, &[("work", 60, 10)]);
    let mut consumer = Consumer::new(&server, &shown, "work");
    publish(&server, &shown, 0..1);
    assert_eq!(consumer.receive(1).len(), 1);
    let before = server.resident();
    let processor = server.processor();
    let head = format!(
        "POST {TOPIC}/eventsubscriptions/work:receive?maxWaitTime=120 HTTP/1.1\r\nhost: \
         a\r\nauthorization: {shown}\r\ncontent-length: 0\r\n\r\n"
    );
    let mut polls = Vec::with_capacity(most);
    while polls.len() < most {
        let Ok(mut poll) = TcpStream::connect(server.address()) else {
            break;
        };
        poll.write_all(head.as_bytes()).expect("it is listened to");
        polls.push(poll);
    }
    let waits = Duration::from_secs(5);
    let asked = server.processor();
    thread::sleep(Duration::from_millis(50));
    let after = server.resident();
    println!(
        "{} wait: {} KiB each, {:?} of processor to get there",
        polls.len(),
        after.saturating_sub(before) / 1024 / polls.len().max(1) as u64,
        asked.saturating_sub(processor)
    );
    // All are served, each with an event of its own.
    for from in (1..=polls.len()).step_by(100) {
        publish(&server, &shown, from..(from + 100).min(polls.len() + 1));
    }
    let mut seen = std::collections::BTreeSet::new();
    for poll in &mut polls {
        poll.set_read_timeout(Some(LONG + waits)).expect("a socket");
        let mut response = Vec::new();
        let mut part = [0; 4096];
        while !response.ends_with(b"]}") {
            let read = poll.read(&mut part).expect("it is served");
            assert!(read > 0, "{}", String::from_utf8_lossy(&response));
            response.extend_from_slice(&part[..read]);
        }
        let text = String::from_utf8(response).expect("text");
        let body: Value =
            serde_json::from_str(text.split_once("\r\n\r\n").expect("a head").1).expect("JSON");
        let value = body["value"].as_array().expect("a list").clone();
        assert_eq!(value.len(), 1, "{text}");
        assert!(
            seen.insert(value[0]["event"]["id"].to_string()),
            "an event is with two"
        );
    }
    assert_eq!(seen.len(), polls.len());
    assert!(
        after.saturating_sub(before) < 64 * 1024 * polls.len() as u64,
        "a client that waits costs more than 64 KiB"
    );
}
