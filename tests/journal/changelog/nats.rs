//! The changelog in streams of NATS: the contract on one server and on three, servers that are
//! killed, and servers that are refused.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use async_nats::ConnectOptions;
use bytes::Bytes;
use gridhook::{
    journal::changelog::{
        Changelog, ChangelogBounds, ChangelogError,
        nats::{NatsChangelog, NatsConnection, NatsError, StreamSettings},
    },
    store::{Family, Store},
};

use super::{batch, contract::RULES, data, owner, value_of};
use crate::support::{
    nats::{Nats, NatsCluster, PASSWORD, has_nats},
    server::wait_for,
};

/// Servers that elect a leader on a machine with other work.
const ELECTION: Duration = Duration::from_secs(120);

/// How often a rule is tried while servers do not respond in time.
const ATTEMPTS: usize = 5;

fn connect(urls: &[String], user: &str) -> Result<NatsConnection, NatsError> {
    NatsConnection::open(
        urls,
        ConnectOptions::with_user_and_password(user.to_owned(), PASSWORD.to_owned()),
    )
}

/// Makes a stream, once the servers have a leader.
fn create(connection: &NatsConnection, name: &str, replicas: usize) {
    let settings = StreamSettings {
        replicas,
        bytes_max: None,
        first: 1,
    };
    wait_for("a stream", ELECTION, || {
        connection.create_stream_if_missing(name, settings).is_ok()
    });
}

/// A log that notes whether a call got no response. Then a rule shows nothing: it may have been
/// made or not.
struct Watched {
    log: NatsChangelog,
    was_unavailable: Arc<AtomicBool>,
}

impl Watched {
    fn note<T>(&self, response: Result<T, ChangelogError>) -> Result<T, ChangelogError> {
        if let Err(ChangelogError::Unavailable(why)) = &response {
            println!("no answer: {why}");
            self.was_unavailable.store(true, Ordering::Relaxed);
        }
        response
    }
}

impl Changelog for Watched {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        self.note(self.log.append(record, expected))
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        self.note(self.log.bounds())
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        self.note(self.log.read(from, most))
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        self.note(self.log.trim(through, keep_bytes))
    }
}

/// Runs every rule on a stream of its own. Servers that are busy elect another leader or respond
/// late: a rule that was broken meanwhile is tried again on a new stream.
fn check_contract(servers: usize) {
    let nats = NatsCluster::start(servers, "always");
    let connections = [0, 1].map(|_| connect(&nats.urls(), "gridhook").expect("it runs"));
    for (index, (name, rule)) in RULES.into_iter().enumerate() {
        for attempt in 1.. {
            println!("{name}, attempt {attempt}");
            let stream = format!("GH_{index}_{attempt}");
            create(&connections[0], &stream, servers);
            let was_unavailable = Arc::new(AtomicBool::new(false));
            let [one, other] = connections.each_ref().map(|connection| {
                let was_unavailable = Arc::clone(&was_unavailable);
                Arc::new(Watched {
                    log: connection.changelog(&stream),
                    was_unavailable,
                })
            });
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| rule(one, other))) else {
                break;
            };
            if !was_unavailable.load(Ordering::Relaxed) || attempt == ATTEMPTS {
                resume_unwind(panic);
            }
        }
    }
}

#[test]
fn a_stream_of_one_server_keeps_the_contract() {
    if has_nats() {
        check_contract(1);
    }
}

#[test]
fn a_stream_of_three_servers_keeps_the_contract() {
    if has_nats() {
        check_contract(3);
    }
}

#[test]
fn a_stream_that_is_missing_full_or_given_too_large_a_record_says_so() {
    if !has_nats() {
        return;
    }
    let nats = NatsCluster::start(1, "always");
    let connection = connect(&nats.urls(), "gridhook").expect("it runs");
    let missing = connection.changelog("GH_none");
    assert_eq!(missing.bounds(), Err(ChangelogError::Missing));
    assert_eq!(missing.read(1, 1), Err(ChangelogError::Missing));
    assert!(matches!(
        missing.append(&"a".into(), None),
        Err(ChangelogError::Unavailable(_))
    ));
    connection
        .create_stream_if_missing(
            "GH_small",
            StreamSettings {
                replicas: 1,
                bytes_max: Some(4_000),
                first: 1,
            },
        )
        .expect("made");
    // To make it again changes nothing, also with another limit; on more servers it is refused.
    connection
        .create_stream_if_missing(
            "GH_small",
            StreamSettings {
                replicas: 1,
                bytes_max: Some(4_000),
                first: 1,
            },
        )
        .expect("it is there");
    let other = connection.create_stream_if_missing(
        "GH_small",
        StreamSettings {
            replicas: 1,
            bytes_max: Some(5_000),
            first: 1,
        },
    );
    assert_eq!(other, Ok(()));
    let small_info = connection.find_stream("GH_small");
    let bytes_max = small_info
        .expect("a stream")
        .expect("it is there")
        .bytes_max;
    assert_eq!(bytes_max, Some(4_000));
    let other = connection.create_stream_if_missing(
        "GH_small",
        StreamSettings {
            replicas: 3,
            bytes_max: Some(4_000),
            first: 1,
        },
    );
    assert!(matches!(other, Err(NatsError::Create { .. })), "{other:?}");
    let small = connection.changelog("GH_small");
    assert_eq!(small.append(&vec![0; 3_000].into(), Some(0)), Ok(1));
    assert_eq!(
        small.append(&vec![0; 3_000].into(), Some(1)),
        Err(ChangelogError::Full)
    );
    assert!(matches!(
        small.append(&vec![0; 9 << 20].into(), Some(1)),
        Err(ChangelogError::Refused(_))
    ));
    assert_eq!(small.bounds().expect("it is there").last, 1);
}

#[test]
fn servers_that_do_not_sync_are_old_or_take_only_small_messages_are_refused() {
    if !has_nats() {
        return;
    }
    let urls = |nats: &NatsCluster| nats.urls();
    let synced = NatsCluster::start(1, "always");
    assert_eq!(
        connect(&urls(&synced), "system")
            .expect("it runs")
            .check_sync(),
        Ok(())
    );
    let blind = connect(&urls(&synced), "gridhook")
        .expect("it runs")
        .check_sync();
    assert_eq!(
        blind,
        Err(NatsError::Unreported {
            found: 0,
            servers: 1
        })
    );
    let lazy = NatsCluster::start(1, "\"1m\"");
    let refused = connect(&urls(&lazy), "system")
        .expect("it runs")
        .check_sync();
    assert_eq!(
        refused,
        Err(NatsError::Sync {
            server: "n0".to_owned()
        })
    );
    let mut small = Nats::new();
    small.resume();
    let refused = connect(&[small.url()], "gridhook").err();
    assert_eq!(
        refused,
        Some(NatsError::Payload {
            found: crate::support::nats::MESSAGE_BYTES_MAX
        })
    );
    let refused = connect(&[old_server()], "gridhook")
        .err()
        .expect("it is old");
    assert_eq!(
        refused.to_string(),
        "the NATS server old has version 2.14.9; run 2.15 or later"
    );
}

/// The address of what a client takes for an old server.
fn old_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let info = r#"INFO {"server_id":"i","server_name":"old","version":"2.14.9","max_payload":8388608,"proto":1,"headers":true}"#;
        socket
            .write_all(format!("{info}\r\n").as_bytes())
            .expect("it listens");
        for line in BufReader::new(socket.try_clone().expect("a socket"))
            .lines()
            .map_while(Result::ok)
        {
            if line == "PING" {
                socket.write_all(b"PONG\r\n").ok();
            }
        }
    });
    format!("nats://{address}")
}

#[test]
fn nothing_is_appended_after_a_reconnection_that_was_refused_before_it() {
    if !has_nats() {
        return;
    }
    let mut nats = NatsCluster::start(1, "always");
    let connection = connect(&nats.urls(), "gridhook").expect("it runs");
    create(&connection, "GH_late", 1);
    let log = connection.changelog("GH_late");
    assert_eq!(log.append(&"a".into(), Some(0)), Ok(1));
    nats.0[0].kill();
    wait_for("the connection to be lost", ELECTION, || {
        log.bounds().is_err()
    });
    for expected in [Some(1), None] {
        assert!(matches!(
            log.append(&"late".into(), expected),
            Err(ChangelogError::Unavailable(_))
        ));
    }
    // What is not known is not missing.
    for error in [
        connection.find_stream("GH_late").err(),
        connection.count_replicas("GH_late").err(),
        connection.has_stream("GH_none").err(),
    ] {
        assert!(matches!(error, Some(NatsError::Use { .. })), "{error:?}");
    }
    nats.0[0].start();
    wait_for("the server to be back", ELECTION, || log.bounds().is_ok());
    assert_eq!(connection.has_stream("GH_none"), Ok(false));
    assert_eq!(log.append(&"b".into(), Some(1)), Ok(2));
    assert_eq!(log.read(1, 9).expect("readable"), ["a", "b"]);
}

/// One, two and all three servers are killed while an owner writes. It waits, and continues by
/// itself; what was acknowledged is in the log once, in order, and in every copy.
#[test]
fn acknowledged_records_survive_kills_of_one_two_and_three_servers() {
    if !has_nats() {
        return;
    }
    let mut nats = NatsCluster::start(3, "always");
    let connection = connect(&nats.urls(), "gridhook").expect("it runs");
    create(&connection, "GH_kills", 3);
    let log: Arc<dyn Changelog> = Arc::new(connection.changelog("GH_kills"));
    let (first, local) = owner(&log, "a");
    let acknowledged = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 1;
            while !is_over.load(Ordering::Relaxed) {
                // Every third batch has parts.
                let bytes = if next % 3 == 0 { 600 } else { 0 };
                first
                    .write(&batch(&format!("{next:06}"), next, bytes))
                    .expect("it owns the shard");
                acknowledged.store(next, Ordering::Release);
                next += 1;
            }
        });
        let seen = || acknowledged.load(Ordering::Acquire);
        let goes_on = |since: u64| {
            wait_for("the owner to go on", ELECTION, || {
                seen() >= since + 20 || writer.is_finished()
            })
        };
        goes_on(0);
        for killed in 1..=3 {
            nats.0.iter_mut().skip(3 - killed).for_each(Nats::kill);
            if killed == 1 {
                goes_on(seen());
            }
            nats.0.iter_mut().skip(3 - killed).for_each(Nats::start);
            goes_on(seen());
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("it owned the shard all the time");
    });
    let last = acknowledged.load(Ordering::Acquire);
    let expected: BTreeMap<_, _> = (1..=last)
        .map(|value| {
            let bytes = if value % 3 == 0 { 600 } else { 0 };
            (
                (Family::Pending, format!("{value:06}").into_bytes()),
                value_of(value, bytes).into(),
            )
        })
        .collect();
    assert_eq!(data(&local), expected);
    // A fence, and then each batch once.
    assert_eq!(
        log.bounds().expect("reachable").last,
        1 + last + last / 3 * 3
    );
    let copied = owner(&log, "b").1;
    assert_eq!(data(&copied), expected);
    assert!(first.write(&batch("late", 0, 0)).is_err());
}
