//! A damaged store is refused; with `--accept-loss` its readable part is taken and served.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use gridhook::store::watermark::{self, WatermarkValue};
use serde_json::Value;

use super::{LONG, wait_until_settled};
use crate::support::{
    load,
    server::{self, Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// Each in a request of its own, so that the event with the id n has the place n.
const EVENTS: u64 = 400;

/// RocksDB's log with the most in it.
fn fullest_wal(data_dir: &Path) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("rocksdb"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").path());
    let wals = entries.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    wals.max_by_key(|path| fs::metadata(path).expect("a file").len())
        .expect("a store has a log")
}

/// A server that was killed with everything unread by one subscription, and pending for another.
fn killed(sink: &Sink) -> (Server, String) {
    let mut server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "held", &SubscriptionSpec::new(&sink.url("/held")));
    server.post_verb("orders", "held", "hold");
    sink.set("/ill", Behavior::Respond(503));
    server.subscribe("orders", "ill", &SubscriptionSpec::new(&sink.url("/ill")));
    for id in 1..=EVENTS {
        server.publish("orders", &key, &load::body(&[id.to_string()], "/a"));
    }
    // It is noted once a second, and each request is a change.
    let mark = server.data_dir().join("watermark");
    wait_for(
        "the watermark",
        LONG,
        || matches!(watermark::read(&mark), Ok(WatermarkValue::Whole(noted)) if noted > EVENTS),
    );
    server.kill_9();
    (server, key)
}

/// The server refuses; what is left is taken, and served: the ids that arrive, and the events
/// reported as missing.
fn taken(mut server: Server, key: &str, sink: &Sink, refusal: &str) -> (BTreeSet<u64>, Value) {
    let data_dir = server.data_dir();
    let (status, shown) = server::fsck(&data_dir);
    assert!(!status.success() && shown.contains(refusal), "{shown}");
    let damaged = data_dir.with_file_name("damaged");
    fs::rename(&data_dir, &damaged).expect("moved");
    let from = damaged.to_str().expect("text");
    let to = data_dir.to_str().expect("text");
    let before = fs::read(fullest_wal(&damaged)).expect("bytes");
    let (status, shown) = server::say(&["restore", from, "--data-dir", to]);
    assert!(
        !status.success() && shown.contains("has no backup.json"),
        "{shown}"
    );
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
    assert!(
        fs::read(fullest_wal(&damaged)).expect("bytes") == before,
        "the damaged folder is only read"
    );
    let reported: Value = serde_json::from_str(&shown).expect("JSON");
    let (status, shown) = server::fsck(&data_dir);
    assert!(status.success(), "{shown}");
    sink.set("/ill", Behavior::Respond(200));
    server.restart();
    server.post_verb("orders", "held", "resume");
    server.publish("orders", key, &load::body(&["9999".to_owned()], "/a"));
    wait_for("what is left to arrive", LONG, || {
        server.post_verb_status("orders", "ill", "release");
        sink.look("/held", |ledger| ledger.contains_key("9999"))
            && sink.look("/ill", |ledger| {
                ledger.get("9999").is_some_and(|arrivals| {
                    arrivals.iter().any(crate::support::sink::Arrival::is_taken)
                })
            })
    });
    for name in ["held", "ill"] {
        wait_until_settled(&server, "orders", name);
    }
    server.terminate();
    server.assert_sound();
    let arrived = sink.look("/held", |ledger| {
        ledger
            .keys()
            .filter_map(|id| id.parse().ok())
            .collect::<BTreeSet<u64>>()
    });
    let taken = sink.look("/ill", |ledger| {
        let taken = ledger
            .iter()
            .filter(|(_, arrivals)| arrivals.iter().any(crate::support::sink::Arrival::is_taken));
        taken
            .filter_map(|(id, _)| id.parse().ok())
            .collect::<BTreeSet<u64>>()
    });
    let missing: Vec<_> = arrived.difference(&taken).collect();
    assert!(
        missing.is_empty(),
        "what one got the other got: {missing:?}"
    );
    (
        arrived.into_iter().filter(|id| *id <= EVENTS).collect(),
        reported["loss"].clone(),
    )
}

#[test]
fn accept_loss_of_a_log_that_was_cut_leaves_the_events_before_the_cut() {
    let sink = Sink::start();
    let (server, key) = killed(&sink);
    let wal = fullest_wal(&server.data_dir());
    let whole = fs::metadata(&wal).expect("a file").len();
    fs::OpenOptions::new()
        .write(true)
        .open(&wal)
        .expect("a file")
        .set_len(whole * 2 / 3)
        .expect("cut");
    let (arrived, loss) = taken(server, &key, &sink, "changes up to");
    let last = arrived.last().copied().expect("some are left");
    println!("{} of {EVENTS} events are left; {loss}", arrived.len());
    assert!(last > EVENTS / 10 && last < EVENTS, "{last}");
    assert_eq!(
        arrived,
        (1..=last).collect::<BTreeSet<_>>(),
        "all before the cut, and none behind it"
    );
    let acknowledged = loss["acknowledged"].as_u64();
    let recovered = loss["recovered"].as_u64();
    assert!(acknowledged > recovered, "{loss}");
    assert_eq!(
        loss["events"],
        serde_json::json!([]),
        "no record mentions what is behind the cut"
    );
}

#[test]
fn accept_loss_takes_what_is_left_of_a_damaged_backup_at_a_destination() {
    let sink = Sink::start();
    let beside = tempfile::tempdir().expect("a folder");
    let destination = beside.path().join("backups");
    let url = format!("file://{}", destination.display());
    let mut server = Server::start(&[("BACKUP__STORE__URL", &url)]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "held", &SubscriptionSpec::new(&sink.url("/held")));
    server.post_verb("orders", "held", "hold");
    for id in 1..=EVENTS {
        server.publish("orders", &key, &load::body(&[id.to_string()], "/a"));
    }
    server::operator(&server, &["backup"]).expect("a backup");
    server.terminate();
    let manifest = fs::read_dir(destination.join("backups"))
        .expect("a folder")
        .next()
        .expect("one")
        .expect("an entry");
    let manifest: Value =
        serde_json::from_slice(&fs::read(manifest.path()).expect("bytes")).expect("JSON");
    let files = manifest["files"].as_array().expect("a list").iter();
    let largest = files
        .max_by_key(|file| file["bytes"].as_u64())
        .expect("a file");
    let hash = largest["pieces"][0].as_str().expect("a piece");
    let piece = destination.join("pieces").join(&hash[..2]).join(hash);
    let mut bytes = fs::read(&piece).expect("bytes");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&piece, bytes).expect("written");
    let back = beside.path().join("data");
    let folder = back.to_str().expect("text");
    let (status, shown) = server::say(&["restore", &url, "--data-dir", folder]);
    assert!(
        !status.success() && shown.contains("has a wrong checksum"),
        "{shown}"
    );
    let (status, shown) = server::say(&[
        "restore",
        &url,
        "--data-dir",
        folder,
        "--accept-loss",
        "--output",
        "json",
    ]);
    assert!(status.success(), "{shown}");
    let reported: Value = serde_json::from_str(&shown).expect("JSON");
    assert!(
        reported["loss"]["events"]
            .as_array()
            .is_some_and(|events| !events.is_empty()),
        "{shown}"
    );
    let left = fs::read_dir(beside.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name());
    assert_eq!(
        left.collect::<BTreeSet<_>>().len(),
        2,
        "the copy of the backup is removed"
    );
    let mut server = Server::with_data_dir(&back, &[]);
    server.restart();
    server.terminate();
    server.assert_sound();
}

#[test]
fn accept_loss_of_a_flipped_bit_lists_exactly_the_events_that_are_missing() {
    let sink = Sink::start();
    let (server, key) = killed(&sink);
    let wal = fullest_wal(&server.data_dir());
    let mut bytes = fs::read(&wal).expect("bytes");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&wal, bytes).expect("written");
    let (arrived, loss) = taken(server, &key, &sink, "the store is damaged");
    let mut listed = BTreeSet::new();
    for gap in loss["events"].as_array().expect("a list") {
        let first = gap["first"].as_u64().expect("a number");
        let count = gap["count"].as_u64().expect("a number");
        listed.extend(first..first + count);
    }
    println!("{} of {EVENTS} events are missing: {loss}", listed.len());
    assert!(!listed.is_empty(), "{loss}");
    let missing: BTreeSet<u64> = (1..=EVENTS).filter(|id| !arrived.contains(id)).collect();
    assert_eq!(missing, listed);
}
