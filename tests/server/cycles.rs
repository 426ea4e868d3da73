//! Cycles of load and `kill -9` at any moment of everything that a server does: while it compacts,
//! while it recovers from the kill before, while dead letters are written, while the control plane
//! makes, changes and deletes, while a subscription is held. Nothing that was acknowledged is lost,
//! neither an event nor a word of an operator.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::json;

use super::{LONG, assert_arrived, dead_letter::ids_in_files, end_waits, many, wait_until_settled};
use crate::support::{
    http::Client,
    load::{Load, Rate},
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// Small buffers: tables are written and compacted all the time.
const SMALL: [(&str, &str); 3] = [
    ("JOURNAL__WRITE_BUFFER_BYTES", "1 MiB"),
    ("JOURNAL__MAX_TOTAL_WAL_BYTES", "1 MiB"),
    ("JOURNAL__OUTCOME_DELAY", "1ms"),
];

/// The last response of the control plane for a subscription; none while a request is open.
type Word = Option<Option<&'static str>>;

struct OperatorState {
    at: Mutex<SocketAddr>,
    words: Mutex<BTreeMap<String, Word>>,
    answered: Mutex<usize>,
    stop: AtomicBool,
}

/// An operator that creates, changes and deletes event subscriptions all the time and remembers
/// each response.
struct Operator {
    shared: Arc<OperatorState>,
    at_work: JoinHandle<()>,
}

const PREFIXES: [&str; 3] = ["/a", "/b", "/c"];

impl Operator {
    fn start(server: &Server, url: &str) -> Self {
        let shared = Arc::new(OperatorState {
            at: Mutex::new(server.address()),
            words: Mutex::default(),
            answered: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let token =
            std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
        let works = Arc::clone(&shared);
        let url = url.to_owned();
        let at_work = thread::spawn(move || works.work(&format!("Bearer {}", token.trim()), &url));
        Self { shared, at_work }
    }

    /// The last response, and how many there were.
    fn stop(self) -> (BTreeMap<String, Word>, usize) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.at_work.join().expect("an operator does not panic");
        (
            std::mem::take(&mut *self.shared.words.lock()),
            *self.shared.answered.lock(),
        )
    }
}

impl OperatorState {
    fn work(&self, token: &str, url: &str) {
        let mut jitter = fastrand::Rng::with_seed(7);
        while !self.stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
            let name = format!("temp-{}", jitter.u8(..6));
            let prefix = PREFIXES[jitter.usize(..PREFIXES.len())];
            let path = subscription("orders", &name);
            let spec = SubscriptionSpec::new(url).prefix(prefix).properties();
            let (method, path, body, word) = match jitter.u8(..10) {
                0..5 => (
                    "PUT",
                    path,
                    json!({"properties": spec}).to_string(),
                    Some(prefix),
                ),
                5..8 => ("DELETE", path, String::new(), None),
                verb => {
                    // The load's own subscription is held and let go while it is killed.
                    let verb = if verb == 8 { "hold" } else { "resume" };
                    let path = format!("{}/{verb}", subscription("orders", "alone"));
                    let mut client = Client::new(*self.at.lock());
                    // Where it was held already the response is another one.
                    client
                        .ask("POST", &path, &[("authorization", token)], b"")
                        .ok();
                    continue;
                }
            };
            self.words.lock().insert(name.clone(), None);
            let mut client = Client::new(*self.at.lock());
            let response = client.ask(method, &path, &[("authorization", token)], body.as_bytes());
            if response.is_ok_and(|response| (200..300).contains(&response.status)) {
                self.words.lock().insert(name, Some(word));
                *self.answered.lock() += 1;
            }
        }
    }
}

/// The state is what the responses promised.
fn assert_kept(server: &Server, words: &BTreeMap<String, Word>) {
    for (name, word) in words {
        let reported = server.get_subscription("orders", name);
        match word {
            Some(Some(prefix)) => {
                assert_eq!(reported.status, 200, "{name} was made: {}", reported.text());
                assert_eq!(
                    reported.json()["properties"]["filter"]["subjectBeginsWith"],
                    *prefix,
                    "{name}"
                );
            }
            Some(None) => assert_eq!(
                reported.status,
                404,
                "{name} was deleted: {}",
                reported.text()
            ),
            None => assert!(
                [200, 404].contains(&reported.status),
                "{name}: {}",
                reported.text()
            ),
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_in_cycles_of_load_and_kill_at_any_moment() {
    let mut server = Server::start(&SMALL);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::new(&sink.url("/alone")),
    );
    server.subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched")).batch(10),
    );
    // Events that fall due while their endpoint is suspended are dead-lettered too, so that dead
    // letters are written all the time.
    let doomed = SubscriptionSpec::new(&sink.url("/doomed"))
        .batch(50)
        .attempts(2)
        .dead_letters("letters");
    let doomed = doomed.also(&json!({}), &json!({"deadLetterInProbation": true}));
    server.subscribe("orders", "doomed", &doomed);
    sink.set("/doomed", Behavior::Respond(403));
    let pause = Duration::from_millis(15);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 10,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    let operator = Operator::start(&server, &sink.url("/temp"));
    let mut jitter = fastrand::Rng::with_seed(50);
    let cycles = many(12, 50);
    let mut starts_killed = 0;
    for cycle in 0..cycles {
        let behavior = [
            Behavior::Respond(200),
            Behavior::Respond(503),
            Behavior::Slow(Duration::from_millis(20), 200),
        ];
        sink.set("/alone", behavior[cycle % 3].clone());
        sink.set("/batched", behavior[(cycle + 1) % 3].clone());
        thread::sleep(Duration::from_millis(jitter.u64(100..1200)));
        server.kill_9();
        // It is killed again while it reads what the kill before left.
        for _ in 0..jitter.usize(..3) {
            server.restart_and_kill(Duration::from_millis(jitter.u64(1..120)));
            starts_killed += 1;
        }
        server.assert_sound();
        server.restart();
        load.turn_to(server.address());
        *operator.shared.at.lock() = server.address();
    }
    let (words, answered) = operator.stop();
    let acknowledged = load.stop();
    assert_kept(&server, &words);
    for path in ["/alone", "/batched"] {
        sink.set(path, Behavior::Respond(200));
    }
    let mut repeated = Vec::new();
    for name in ["alone", "batched", "doomed"] {
        end_waits(&server, "orders", name);
        wait_until_settled(&server, "orders", name);
        if name != "doomed" {
            repeated.push(assert_arrived(&sink, &format!("/{name}"), &acknowledged).len());
        }
    }
    let mut written = Vec::new();
    wait_for("all dead letters to be in files", LONG, || {
        written = ids_in_files(&server);
        written.dedup();
        acknowledged
            .iter()
            .all(|id| written.binary_search(id).is_ok())
    });
    server.kill_9();
    server.assert_sound();
    println!(
        "{cycles} kills under load and {starts_killed} of starts, {} events and {answered} words \
         of an operator acknowledged: none lost, {repeated:?} repeated, {} in dead-letter files",
        acknowledged.len(),
        written.len()
    );
    assert!(
        acknowledged.len() > cycles * 50 && answered > cycles,
        "there was a load"
    );
}

#[test]
fn a_server_that_is_killed_while_it_makes_its_store_makes_it_at_the_next_start() {
    let mut jitter = fastrand::Rng::with_seed(3);
    for _ in 0..many(6, 60) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Server::with_data_dir(&folder.path().join("data"), &[]);
        for _ in 0..3 {
            server.restart_and_kill(Duration::from_millis(jitter.u64(0..80)));
        }
        server.restart();
        server.topic("orders", "EventGridSchema");
        server.kill_9();
        server.restart();
        assert_eq!(
            server
                .topic_status("orders")
                .as_object()
                .map(serde_json::Map::is_empty),
            Some(false),
            "it is kept"
        );
        server.terminate();
        server.assert_sound();
    }
}
