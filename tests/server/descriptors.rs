//! A process that may open few files: the store has its part, publishers are refused beyond theirs,
//! and deliveries wait.

use std::{fs, io::Read, net::TcpStream, path::PathBuf, process::Command, time::Duration};

use gridhook::server::descriptors::{DescriptorBudget, MIN, ProcessThreads, SharedBudget};
use serde_json::json;

use super::LONG;
use crate::support::{
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

/// The default limit of a system.
const FILES: usize = 1024;

/// With 16 requests each they want all of [`FILES`] and half as many again.
const SUBSCRIPTIONS: usize = 100;

const EVENTS: usize = 24;

fn limited(settings: &[(&str, &str)]) -> Server {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let mut server = Server::with_data_dir(&folder.join("data"), settings);
    server.run_under(&["sh", "-c", "ulimit -n 1024 && exec \"$@\"", "--"]);
    server.restart();
    server
}

/// The targets of the open files.
fn open_files(server: &Server) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{}/fd", server.id())).expect("a process that runs");
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .collect()
}

fn open_sockets(server: &Server) -> usize {
    open_files(server)
        .iter()
        .filter(|file| file.to_string_lossy().starts_with("socket:"))
        .count()
}

/// The part of the files that is for requests in flight.
fn requests_max(server: &Server) -> usize {
    let logs = server.logs();
    let mut parts = logs.lines().rev().filter_map(|line| {
        line.split_once("file descriptors divided")?
            .1
            .split_once(" requests=")
    });
    parts
        .next()
        .and_then(|(_, number)| number.trim().parse().ok())
        .expect("a number")
}

#[test]
fn the_parts_of_a_budget_are_no_more_than_there_is() {
    for limit in [MIN, 1024, 4096, 20_000, 262_144, 1 << 24] {
        for threads in [3, 6, 24] {
            let Ok(budget) = DescriptorBudget::with_limit(limit, threads) else {
                assert_eq!(limit, MIN, "{limit} files are enough for {threads} threads");
                continue;
            };
            let DescriptorBudget {
                limit: _,
                store,
                inbound,
                refusals,
                outbound,
                idle,
            } = budget;
            assert!(
                store + inbound + refusals + outbound + idle < limit,
                "{budget:?}"
            );
            assert!(
                [store, inbound, refusals, outbound, idle]
                    .iter()
                    .all(|part| *part > 0),
                "{budget:?}"
            );
            assert!(budget.open_tables_max() > 0, "{budget:?}");
        }
    }
    let error = DescriptorBudget::with_limit(256, 6)
        .expect_err("too few")
        .to_string();
    assert!(
        error.contains("256") && error.contains("LimitNOFILE"),
        "{error}"
    );
    assert!(
        DescriptorBudget::with_limit(20_000, 6)
            .expect("enough")
            .inbound
            >= 8192,
        "the default of limits.connections"
    );
}

#[test]
fn with_few_files_slow_endpoints_wait_and_the_store_goes_on() {
    let sink = Sink::start();
    // Its logs are short, so that it opens new ones all the time.
    let small = [
        ("JOURNAL__WRITE_BUFFER_BYTES", "1 MiB"),
        ("JOURNAL__MAX_TOTAL_WAL_BYTES", "1 MiB"),
    ];
    let mut server = limited(&small);
    let key = server.topic("orders", "EventGridSchema");
    for number in 0..SUBSCRIPTIONS {
        let path = format!("/hook{number}");
        sink.set(&path, Behavior::Slow(Duration::from_millis(500), 200));
        server.subscribe(
            "orders",
            &format!("hook{number}"),
            &SubscriptionSpec::new(&sink.url(&path)),
        );
    }
    let mut most = 0;
    for event in 0..EVENTS {
        let body = json!([{
            "id": event.to_string(), "subject": "/a", "eventType": "t", "eventTime": "2026-01-01T00:00:00Z",
            "dataVersion": "1", "data": {"text": "x".repeat(100_000 + event)},
        }]);
        server.publish("orders", &key, body.to_string().as_bytes());
        most = most.max(open_sockets(&server));
    }
    wait_for("all events to be delivered", LONG * 2, || {
        most = most.max(open_sockets(&server));
        (0..SUBSCRIPTIONS).all(|number| sink.taken(&format!("/hook{number}")) == EVENTS)
    });
    let requests_max = requests_max(&server);
    println!("{most} sockets were open at once, for {requests_max} requests and others");
    assert!(
        most >= requests_max,
        "only {most} sockets were open: nothing had to wait"
    );
    for number in 0..SUBSCRIPTIONS {
        sink.look(&format!("/hook{number}"), |ledger| {
            let again: Vec<_> = ledger
                .iter()
                .filter(|(_, arrivals)| arrivals.len() > 1 || arrivals[0].attempts > 0)
                .collect();
            assert!(again.is_empty(), "waiting costs no attempt: {again:.3?}");
        });
    }
    server.terminate();
    server.assert_sound();
}

#[test]
fn publishers_beyond_their_part_are_refused_and_the_store_goes_on() {
    let server = limited(&[
        ("LIMITS__HEAD_TIMEOUT", "5m"),
        ("LIMITS__IDLE_TIMEOUT", "5m"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let mut publisher = server.client();
    let body = crate::support::load::body(&["one".to_owned()], "/a");
    let path = events_path("orders");
    let mut publish = || {
        publisher
            .ask("POST", &path, &[("aeg-sas-key", &key)], &body)
            .map(|response| response.status)
    };
    assert_eq!(publish().expect("a response"), 200);
    let mut strangers: Vec<TcpStream> = (0..FILES - 100)
        .map(|_| TcpStream::connect(server.address()).expect("a connection"))
        .collect();
    let last = strangers.last_mut().expect("one");
    last.set_read_timeout(Some(LONG)).expect("a timeout");
    let mut reported = [0; 12];
    // It was logged, unless it was one of too many.
    if last.read_exact(&mut reported).is_ok() {
        assert_eq!(&reported, b"HTTP/1.1 503");
    }
    for _ in 0..20 {
        assert_eq!(
            publish().expect("a response"),
            200,
            "connected clients are served"
        );
    }
    let files = open_files(&server).len();
    assert!(files < FILES - 100, "{files} files are open");
}

/// The exit status of a process whose store has failed.
const EX_IOERR: i32 = 74;

#[test]
fn a_store_that_can_open_no_file_ends_the_process_and_what_was_acknowledged_is_there() {
    let sink = Sink::start();
    let small = [
        ("JOURNAL__WRITE_BUFFER_BYTES", "1 MiB"),
        ("JOURNAL__MAX_TOTAL_WAL_BYTES", "1 MiB"),
    ];
    let mut server = Server::start(&small);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    sink.set("/hook", Behavior::Respond(503));
    let mut publisher = server.client();
    let path = events_path("orders");
    let mut publish = |number: usize| {
        let body = json!([{
            "id": number.to_string(), "subject": "/a", "eventType": "t", "eventTime": "2026-01-01T00:00:00Z",
            "dataVersion": "1", "data": {"text": "x".repeat(100_000)},
        }]);
        let body = body.to_string();
        publisher
            .ask("POST", &path, &[("aeg-sas-key", &key)], body.as_bytes())
            .is_ok_and(|response| response.status == 200)
    };
    assert!(publish(0), "it is served");
    // The limit falls below the budget: from now on no file and no connection can be opened.
    let process = server.id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &process, "--nofile=8:"])
        .status();
    assert!(
        limited.is_ok_and(|status| status.success()),
        "the limit is set"
    );
    let acknowledged = 1 + (1..500).take_while(|number| publish(*number)).count();
    println!("{acknowledged} events were acknowledged");
    assert!(acknowledged < 500, "the store needed no other file");
    assert_eq!(server.wait(LONG), Some(EX_IOERR), "{}", server.logs());
    let log = server.logs();
    assert!(
        log.contains("the store failed, and nothing more may be written"),
        "{log}"
    );
    assert!(log.contains("Too many open files"), "{log}");

    sink.set("/hook", Behavior::Respond(200));
    server.restart();
    let arrived =
        |number: &usize| sink.look("/hook", |ledger| ledger.contains_key(&number.to_string()));
    wait_for("all that was acknowledged", LONG, || {
        (0..acknowledged).all(|number| arrived(&number))
    });
    server.terminate();
    server.assert_sound();
}

/// A process of which six threads serve clients.
fn process_threads(cores: usize, of_core: usize) -> ProcessThreads {
    ProcessThreads {
        cores,
        front: 6,
        of_core,
    }
}

#[test]
fn the_cores_of_a_node_and_its_clients_share_the_descriptors() {
    for (limit, shards, threads) in [
        (20_000, 4, 4),
        (262_144, 16, 4),
        (1 << 20, 64, 4),
        (20_000, 2, 12),
    ] {
        let SharedBudget {
            front,
            core,
            node_connections,
        } = SharedBudget::with_limit(limit, process_threads(shards, threads)).expect("enough");
        assert!(
            front.limit + shards * core.limit <= limit,
            "{limit} for {shards} shards"
        );
        assert!(core.limit * shards > limit * 2 / 3, "most is for the cores");
        let served = node_connections + shards * (core.store + core.outbound + core.idle);
        assert!(
            served < limit - front.inbound,
            "{limit} for {shards} shards"
        );
    }
    let error = SharedBudget::with_limit(4_096, process_threads(16, 4))
        .err()
        .expect("too few")
        .to_string();
    let least: usize = error
        .split("at least ")
        .nth(1)
        .and_then(|rest| rest.split(';').next()?.parse().ok())
        .expect("it says");
    assert!(error.contains("the limit of open files is 4096"), "{error}");
    SharedBudget::with_limit(least, process_threads(16, 4)).expect("what it says is enough");
}
