//! The negative controls of the tests that kill a server: between two of its processes the test
//! changes what is on its disk, as a bug would have left it, and the checks of those tests must
//! detect. Each check is the one that they use.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    thread,
    time::Duration,
};

use gridhook::{
    event::{Seq, SubscriptionKey},
    policy::record::{Cursor, PendingDelivery},
    store::{
        Batch, Family, Store, keys,
        records::StoredRecord,
        rocks::{RocksOptions, RocksStore},
    },
};

use super::{LONG, assert_arrived, dead_letter::ids_in_files, wait_until_settled};
use crate::{
    journal::copy_folder,
    support::{
        load::{self, Load, Rate},
        server::{Server, SubscriptionSpec, wait_for},
        sink::{Behavior, Ledger, Sink},
    },
};

/// A bug, and the store that a process with it leaves. Each bug is one line of code.
struct Bug {
    name: &'static str,
    left: Left,
}

/// The store as it was left.
enum Left {
    /// The records of a family, in order, are others.
    Records(Family, fn(&mut Records)),
    /// This was written too.
    Batch(fn(&RocksStore) -> Batch),
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

const fn bug(name: &'static str, family: Family, leave: fn(&mut Records)) -> Bug {
    Bug {
        name,
        left: Left::Records(family, leave),
    }
}

const BUGS: [Bug; 12] = [
    bug(
        "a pending record was forgotten",
        Family::Pending,
        |records| drop(records.pop()),
    ),
    bug("a due key was lost", Family::Due, |records| {
        drop(records.pop())
    }),
    bug("a dead letter was forgotten", Family::Dead, |records| {
        drop(records.pop())
    }),
    bug(
        "an event that is still asked for went with the log",
        Family::Carried,
        |records| drop(records.pop()),
    ),
    bug(
        "the newest chunk was acknowledged and not written",
        Family::Log,
        |records| drop(records.pop()),
    ),
    bug(
        "a file of the log went before its floor",
        Family::Log,
        |records| drop(records.remove(0)),
    ),
    bug(
        "a subscription's cursor was lost",
        Family::Cursor,
        |records| drop(records.remove(0)),
    ),
    bug(
        "a cursor passed events that nobody sent",
        Family::Cursor,
        |records| {
            change_cursor(records, |cursor| {
                // Both equations hold.
                cursor.lanes[0].read = cursor.lanes[0].read.plus(5);
                cursor.counters.passed += 5;
                cursor.counters.filtered += 5;
            });
        },
    ),
    bug(
        "a cursor was written before the outcomes it stands for",
        Family::Cursor,
        |records| {
            change_cursor(records, |cursor| {
                cursor.lanes[0].read = Seq(cursor.lanes[0].read.0 - 1)
            });
        },
    ),
    bug("a delivery was counted twice", Family::Cursor, |records| {
        change_cursor(records, |cursor| cursor.counters.delivered += 1);
    }),
    bug(
        "a byte of what was published is another",
        Family::Log,
        |records| {
            for (_, value) in records {
                let at = value
                    .windows(8)
                    .rposition(|bytes| bytes == b"\"data\":{")
                    .expect("an event with data");
                value[at + 8 + 6] ^= 1;
            }
        },
    ),
    Bug {
        name: "a success was answered and not written",
        left: Left::Batch(owe_again),
    },
];

/// An event that was taken is pending, and every account says so.
fn owe_again(store: &RocksStore) -> Batch {
    let first = |family| {
        let range = keys::family_range(family);
        store
            .last(family, &range.start, &range.end)
            .expect("readable")
            .expect("a record")
    };
    let (pending_key, pending) = first(Family::Pending);
    let (_, event) = first(Family::Carried);
    let (partition, _, subscription, lane) =
        keys::parse_pending(&pending_key).expect("the key of a pending delivery");
    let subscription_key = SubscriptionKey {
        partition,
        subscription,
    };
    let due = PendingDelivery::decode(&pending)
        .expect("a pending record")
        .due;
    let cursor = store
        .get(Family::Cursor, &keys::cursor(subscription_key))
        .expect("readable")
        .expect("a cursor");
    let mut cursor = Cursor::decode(&cursor).expect("a cursor");
    cursor.counters.delivered -= 1;
    cursor.counters.pending += 1;
    let mut batch = Batch::default();
    batch.put(
        Family::Pending,
        keys::pending(partition, Seq(1), subscription, lane),
        pending,
    );
    batch.put(
        Family::Due,
        keys::due(subscription_key, due, lane, Seq(1)),
        Vec::new(),
    );
    batch.put(Family::Carried, keys::carried(partition, Seq(1)), event);
    batch.put(
        Family::Cursor,
        keys::cursor(subscription_key),
        cursor.encode(),
    );
    batch
}

/// That of the first subscription, which has unread events before it.
fn change_cursor(records: &mut Records, change: impl Fn(&mut Cursor)) {
    let (_, value) = records.first_mut().expect("a cursor");
    let mut cursor = Cursor::decode(value).expect("a cursor");
    change(&mut cursor);
    *value = cursor.encode().to_vec();
}

/// Leaves the store as the bug would.
fn plant(bug: &Bug, data_dir: &Path) {
    let store = RocksStore::open(data_dir, &RocksOptions::default()).expect("a sound store");
    // Events below the floor may be deleted at any time, and are deleted now.
    store.compact_log().expect("compacted");
    let batch = match &bug.left {
        Left::Batch(left) => left(&store),
        Left::Records(family, leave) => changed(&store, *family, *leave),
    };
    assert!(!batch.0.is_empty(), "{}: it was done", bug.name);
    store.write(&batch).expect("written");
    store.close().expect("closed");
}

fn changed(store: &RocksStore, family: Family, leave: fn(&mut Records)) -> Batch {
    let range = keys::family_range(family);
    let mut before = Vec::new();
    let read = &mut |key: &[u8], value: &[u8]| {
        before.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    store
        .scan(family, &range.start, &range.end, read)
        .expect("readable");
    assert!(!before.is_empty(), "{family:?} has nothing to do it to");
    let mut after = before.clone();
    leave(&mut after);
    let mut batch = Batch::default();
    for (key, _) in before
        .iter()
        .filter(|(key, _)| after.iter().all(|(left, _)| left != key))
    {
        match family {
            Family::Due => batch.single_delete(family, key.clone()),
            _ => batch.delete(family, key.clone()),
        }
    }
    for (key, value) in after.into_iter().filter(|record| !before.contains(record)) {
        batch.put(family, key, value);
    }
    batch
}

/// A server that was killed with work of every kind on its hands.
struct KilledServer {
    folder: tempfile::TempDir,
    sink: Sink,
    acknowledged: Vec<String>,
    taken: Ledger,
}

impl KilledServer {
    fn start() -> Self {
        let mut server = Server::start(&[]);
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
        );
        let doomed = SubscriptionSpec::new(&sink.url("/doomed"))
            .batch(10)
            .dead_letters("letters");
        server.subscribe("orders", "doomed", &doomed);
        sink.set("/doomed", Behavior::Respond(400));
        let mut acknowledged = Vec::new();
        let mut publish = |from: usize| {
            for first in (from..from + 50).step_by(10) {
                let ids: Vec<String> = (first..first + 10)
                    .map(|number| format!("event-{number}"))
                    .collect();
                server.publish("orders", &key, &load::body(&ids, "/a"));
                acknowledged.extend(ids);
            }
        };
        publish(0);
        publish(50);
        wait_for("what is taken", LONG, || sink.taken("/hook") == 100);
        wait_until_settled(&server, "orders", "hook");
        sink.set("/hook", Behavior::Respond(503));
        publish(100);
        wait_for("failures", LONG, || {
            server.counter("orders", "hook", "pending") >= 10
        });
        // The floor follows, and pending events are held.
        thread::sleep(Duration::from_millis(1500));
        // No reader receives what comes now.
        server.post_verb("orders", "hook", "hold");
        publish(150);
        wait_for("dead letters", LONG, || {
            server.counter("orders", "doomed", "deadLettered") == 200
        });
        // Outcomes of responses are on disk by now, so that no event may arrive twice.
        thread::sleep(Duration::from_millis(400));
        server.kill_9();
        let folder = tempfile::tempdir().expect("a folder");
        copy_folder(&server.data_dir(), &folder.path().join("data")).expect("copied");
        let taken = sink.ledger("/hook");
        Self {
            folder,
            sink,
            acknowledged,
            taken,
        }
    }

    /// The checks of the tests that kill, one after another, on what a process with this bug left.
    fn check(&self, bug: Option<&Bug>) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = folder.path().join("data");
        copy_folder(&self.folder.path().join("data"), &data_dir).expect("copied");
        if let Some(bug) = bug {
            plant(bug, &data_dir);
        }
        catch_unwind(AssertUnwindSafe(|| self.check_folder(&data_dir)))
            .map_err(|panic| first_line(&*panic))
    }

    fn check_folder(&self, data_dir: &Path) {
        let mut server = Server::with_data_dir(data_dir, &[]);
        server.assert_sound();
        self.sink.reset("/hook", self.taken.clone());
        self.sink.set("/hook", Behavior::Respond(200));
        server.restart();
        server.post_verb("orders", "hook", "resume");
        wait_until_settled(&server, "orders", "hook");
        wait_until_settled(&server, "orders", "doomed");
        let repeated = assert_arrived(&self.sink, "/hook", &self.acknowledged);
        assert!(
            repeated.is_empty(),
            "{} events were repeated though nothing was in flight",
            repeated.len()
        );
        let mut written = Vec::new();
        wait_for("all dead letters to be in files", LONG, || {
            written = ids_in_files(&server);
            written.dedup();
            self.acknowledged
                .iter()
                .all(|id| written.binary_search(id).is_ok())
        });
        server.terminate();
        server.assert_sound();
    }
}

#[test]
fn the_checks_of_the_kill_tests_detect_every_seeded_bug_of_an_incarnation() {
    let scene = KilledServer::start();
    assert_eq!(
        scene.check(None),
        Ok(()),
        "without a bug there is nothing to detect"
    );
    let mut missed = Vec::new();
    for bug in &BUGS {
        match scene.check(Some(bug)) {
            Ok(()) => missed.push(bug.name),
            Err(reported) => println!("{}: caught: {reported}", bug.name),
        }
    }
    println!("caught {} of {}", BUGS.len() - missed.len(), BUGS.len());
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

fn first_line(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let mut lines = text.unwrap_or("something").lines();
    // Of fsck's report, the complaint.
    let first = lines.next().unwrap_or_default();
    let wrong = lines.find(|line| line.starts_with("wrong: "));
    wrong.unwrap_or(first).chars().take(140).collect()
}

/// The next incarnation of a killed actor has its requests in flight and repeats nothing. A killed
/// process hands over none: so the check of the tests that kill actors is held against that.
#[test]
fn the_check_of_the_chaos_tests_detects_an_incarnation_without_its_requests_in_flight() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "victim",
        &SubscriptionSpec::new(&sink.url("/victim")).batch(5),
    );
    sink.set("/victim", Behavior::Slow(Duration::from_millis(50), 200));
    let pause = Duration::from_millis(10);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for kills in 1..=3 {
        wait_for("deliveries", LONG, || sink.taken("/victim") > 100 * kills);
        server.kill_9();
        server.restart();
        load.turn_to(server.address());
    }
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "victim");
    let repeated = assert_arrived(&sink, "/victim", &acknowledged).len();
    println!(
        "caught: {repeated} events were repeated by three incarnations without requests in flight"
    );
    assert!(repeated > 0, "the check would detect nothing");
}
