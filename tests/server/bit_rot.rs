//! A table with flipped bits: events in other blocks are delivered, and each lost event is
//! reported.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use gridhook::store::{
    Store,
    rocks::{RocksOptions, RocksStore},
};
use serde_json::Value;

use super::{LONG, wait_until_settled};
use crate::support::{
    load,
    server::{self, Server, SubscriptionSpec, operator, wait_for},
    sink::Sink,
};

/// Each in a request of its own, so that the event with the id n has the place n.
const EVENTS: u64 = 300;

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

const WATCHER: &str = "a-watcher-and-nobody-else";

/// So long, and of nothing that can be compressed, that a block has few events.
fn subject(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..30)
        .map(|_| format!("{:032x}", random.u128(..)))
        .collect()
}

/// All of the log is in tables, and no process has the store.
fn into_tables(data_dir: &Path) {
    let store =
        RocksStore::open(data_dir, &RocksOptions::default()).expect("a store that is whole");
    store.compact_log().expect("compacted");
    store.close().expect("closed");
}

/// The largest table: that of the log.
fn table(data_dir: &Path) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("rocksdb"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").path());
    let tables =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    tables
        .max_by_key(|path| fs::metadata(path).expect("a file").len())
        .expect("a store has tables")
}

/// Flips a bit at each of these places, in parts of a hundred.
fn rot(data_dir: &Path, places: &[usize]) {
    let table = table(data_dir);
    let mut bytes = fs::read(&table).expect("bytes");
    for place in places {
        let at = bytes.len() * place / 100;
        bytes[at] ^= 4;
    }
    fs::write(&table, bytes).expect("written");
}

fn readiness(server: &Server) -> Value {
    let response = server.request_without_token("GET", "/readyz", &[]);
    assert_eq!(response.status, 200, "it takes events: {}", response.text());
    response.json()
}

/// The value of a series.
fn series(server: &Server, name: &str) -> u64 {
    let bearer = format!("Bearer {WATCHER}");
    let text = server
        .request_without_token("GET", "/metrics", &[("authorization", &bearer)])
        .text();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line
        .and_then(|line| line.rsplit_once(' '))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .1;
    value
        .parse()
        .unwrap_or_else(|error| panic!("{name} {value}: {error}"))
}

/// A server with a log in tables, all of it unread by one subscription.
fn stopped(sink: &Sink) -> (Server, String) {
    let mut server = Server::start(&[("METRICS__TOKEN", WATCHER)]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "held", &SubscriptionSpec::new(&sink.url("/held")));
    server.post_verb("orders", "held", "hold");
    for id in 1..=EVENTS {
        server.publish("orders", &key, &load::body(&[id.to_string()], &subject(id)));
    }
    server.terminate();
    into_tables(&server.data_dir());
    (server, key)
}

fn ids(sink: &Sink) -> BTreeSet<u64> {
    sink.look("/held", |ledger| {
        ledger.keys().filter_map(|id| id.parse().ok()).collect()
    })
}

#[test]
fn events_in_intact_blocks_are_delivered_and_each_lost_event_is_reported() {
    let sink = Sink::start();
    let (mut server, key) = stopped(&sink);
    rot(&server.data_dir(), &[20, 60]);
    server.restart();
    wait_for("the scrub to find it", LONG, || {
        series(&server, "gridhook_store_scrub_passes_total") > 0
    });
    let response = readiness(&server);
    let lost = response["lostEvents"].as_u64().expect("a number");
    assert!(
        (2..EVENTS / 4).contains(&lost),
        "two blocks of a few events: {response}"
    );
    assert_eq!(series(&server, "gridhook_store_lost_events"), lost);
    assert_eq!(series(&server, "gridhook_store_damaged_families"), 1);

    server.publish("orders", &key, &load::body(&["9999".to_owned()], "/new"));
    server.post_verb("orders", "held", "resume");
    wait_until_settled(&server, "orders", "held");
    let arrived = ids(&sink);
    assert!(
        arrived.contains(&9999),
        "events are taken and delivered as before"
    );
    let missing: Vec<u64> = (1..=EVENTS).filter(|id| !arrived.contains(id)).collect();
    assert_eq!(missing.len() as u64, lost, "{missing:?}: {response}");
    let gaps: Vec<&[u64]> = missing.chunk_by(|one, next| one + 1 == *next).collect();
    let ledger =
        operator(&server, &["ledger", TOPIC, "held", "--outcome", "dropped"]).expect("it answers");
    for gap in &gaps {
        let count = gap.len();
        let first = gap[0];
        let last = gap[gap.len() - 1];
        let expected =
            format!("lost to damage: {count} events, sequences {first} to {last} of partition ");
        assert!(
            response["problems"].to_string().contains(&expected),
            "{expected}: {response}"
        );
        let expected = format!("{first} to {last}");
        assert!(
            ledger.contains("lost to damage of the store: ") && ledger.contains(&expected),
            "{expected}: {ledger}"
        );
    }
    assert_eq!(server.counter("orders", "held", "dropped"), lost);
    let dropped = r#"gridhook_subscription_dropped_events_total{topic="orders",subscription="held",reason="Missing"}"#;
    assert_eq!(series(&server, dropped), lost);
    for end in ["panicked", "stopped"] {
        let restarts = format!(
            r#"gridhook_subscription_restarts_total{{topic="orders",subscription="held",end="{end}"}}"#
        );
        assert_eq!(series(&server, &restarts), 0, "its actor went on");
    }
    server.terminate();
}

#[test]
fn the_loss_of_tables_is_accepted_and_what_is_left_is_served() {
    let sink = Sink::start();
    let (mut server, key) = stopped(&sink);
    let data_dir = server.data_dir();
    rot(&data_dir, &[40]);
    let damaged = data_dir.with_file_name("damaged");
    fs::rename(&data_dir, &damaged).expect("moved");
    let from = damaged.to_str().expect("text");
    let to = data_dir.to_str().expect("text");
    let (status, shown) = server::fsck(&damaged);
    assert!(!status.success() && shown.contains("log: "), "{shown}");
    let (status, shown) = server::say(&[
        "restore",
        from,
        "--data-dir",
        to,
        "--accept-loss",
        "--output",
        "json",
    ]);
    assert!(status.success(), "{shown}");
    let reported: Value = serde_json::from_str(&shown).expect("JSON");
    let (status, shown) = server::fsck(&data_dir);
    assert!(status.success(), "{shown}");

    server.restart();
    wait_for("the scrub", LONG, || {
        series(&server, "gridhook_store_scrub_passes_total") > 0
    });
    assert_eq!(readiness(&server)["problems"], serde_json::json!([]));
    server.publish("orders", &key, &load::body(&["9999".to_owned()], "/new"));
    server.post_verb("orders", "held", "resume");
    wait_until_settled(&server, "orders", "held");
    let arrived = ids(&sink);
    let missing: Vec<u64> = (1..=EVENTS).filter(|id| !arrived.contains(id)).collect();
    let gaps = reported["loss"]["events"].as_array().expect("a list");
    assert_eq!(gaps.len(), 1, "{reported}");
    assert_eq!(
        gaps[0]["first"].as_u64(),
        missing.first().copied(),
        "{reported} {missing:?}"
    );
    assert_eq!(
        gaps[0]["count"].as_u64(),
        Some(missing.len() as u64),
        "{reported} {missing:?}"
    );
    assert!(missing.len() < 60 && !missing.is_empty(), "{missing:?}");
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_compaction_that_meets_with_damage_does_not_end_the_server_again_and_again() {
    let sink = Sink::start();
    let (mut server, key) = stopped(&sink);
    let data_dir = server.data_dir();
    rot(&data_dir, &[50]);
    // As a compaction does it that meets with the damage: writing ends, and the process with it.
    let store = RocksStore::open(&data_dir, &RocksOptions::default()).expect("opened");
    store.compact_log().expect("asked for");
    drop(store);
    server.restart();
    server.publish("orders", &key, &load::body(&["9999".to_owned()], "/new"));
    server.post_verb("orders", "held", "resume");
    wait_until_settled(&server, "orders", "held");
    assert!(ids(&sink).contains(&9999));
    server.terminate();
    assert!(
        data_dir.join("spared").exists(),
        "the log's tables are left as they are"
    );
}
