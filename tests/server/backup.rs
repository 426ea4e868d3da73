//! Backups of a server under load: one point of it, brought back.

use std::{fs, thread, time::Duration};

use serde_json::Value;

use super::{LONG, many, wait_until_settled};
use crate::support::{
    load::{Load, Rate},
    server::{self, Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// A server with three subscriptions: one whose endpoint is well, one whose endpoint fails every other time and gives up,
/// and one that is held.
fn busy(sink: &Sink) -> (Server, Load) {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "well", &SubscriptionSpec::of(&sink.url("/well")));
    server.subscribe("orders", "ill", &SubscriptionSpec::of(&sink.url("/ill")).attempts(3).dead_letters("ill"));
    server.subscribe("orders", "held", &SubscriptionSpec::of(&sink.url("/held")));
    server.operate("orders", "held", "hold");
    sink.set("/ill", Behavior::Answer(503));
    let pause = Duration::from_millis(5);
    let rate = Rate { topic: "orders".to_owned(), key, publishers: 3, events_per_request: 10, pause };
    let load = Load::start(server.at(), &rate);
    (server, load)
}

#[test]
fn what_was_acknowledged_before_a_backup_under_load_is_in_it() {
    let sink = Sink::start();
    let (mut server, load) = busy(&sink);
    let mut backups = Vec::new();
    let beside = tempfile::tempdir().expect("a folder");
    for round in 0..many(3, 20) {
        thread::sleep(Duration::from_millis(300));
        let acknowledged = load.so_far();
        let folder = beside.path().join(round.to_string());
        let (status, reported) = server.say(&["backup", folder.to_str().expect("text")]);
        assert!(status.success() && reported.contains("\nthe store is sound\nbacked up to "), "{reported}");
        let meanwhile = load.acknowledged() - acknowledged.len();
        println!("backup {round}: {} events acknowledged before it, {meanwhile} meanwhile", acknowledged.len());
        assert!(meanwhile > 0, "publishers went on");
        backups.push((folder, acknowledged));
    }
    load.stop();
    server.terminate();
    server.assert_sound();
    sink.set("/ill", Behavior::Answer(200));
    let data_dir = server.data_dir();
    for (folder, acknowledged) in backups {
        let from = folder.to_str().expect("text");
        let (status, reported) = server::fsck(&folder);
        assert!(status.success(), "a backup is looked at as it stands: {reported}");
        fs::remove_dir_all(&data_dir).expect("the disk is lost");
        let (status, reported) = server::say(&["restore", from, "--data-dir", data_dir.to_str().expect("text")]);
        assert!(status.success() && reported.contains("\nthe store is sound\nrestored to "), "{reported}");
        server.restart();
        server.operate("orders", "held", "resume");
        for name in ["well", "ill", "held"] {
            if server.status("orders", name)["health"]["state"] == "suspended" {
                server.try_to("orders", name, "release");
            }
        }
        for name in ["well", "held"] {
            wait_until_settled(&server, "orders", name);
        }
        wait_for("all that is owed to arrive or to be given up", LONG, || {
            server.try_to("orders", "ill", "release");
            let status = server.status("orders", "ill");
            status["backlog"] == 0 && status["counters"]["pending"] == 0
        });
        for path in ["/well", "/held"] {
            sink.look(path, |ledger| {
                let missing: Vec<_> = acknowledged.iter().filter(|id| !ledger.contains_key(*id)).collect();
                assert!(missing.is_empty(), "{path}: {} of {} are missing", missing.len(), acknowledged.len());
            });
        }
        for name in ["well", "ill", "held"] {
            let counters = server.status("orders", name)["counters"].clone();
            let count = |counter: &str| counters[counter].as_u64().expect("a number");
            assert!(count("matched") >= acknowledged.len() as u64, "{name}: {counters}");
            assert_eq!(count("matched"), count("delivered") + count("deadLettered"), "{name}: {counters}");
        }
        server.terminate();
        server.assert_sound();
    }
}

#[test]
fn a_running_server_looks_at_its_own_store() {
    let sink = Sink::start();
    let (server, load) = busy(&sink);
    wait_for("something to be owed", LONG, || server.counter("orders", "ill", "pending") > 20);
    for round in 0..many(3, 50) {
        let (status, reported) = server.say(&["fsck", "--online"]);
        assert!(status.success() && reported.ends_with("\nthe store is sound\n"), "round {round}: {reported}");
    }
    let (status, reported) = server.say(&["fsck", "--online", "--output", "json"]);
    let report: Value = serde_json::from_str(&reported).expect("JSON");
    assert!(status.success() && report["counts"]["cursors"] == 3, "{reported}");
    load.stop();
    let none = server.admin("POST", "/store/backup", &serde_json::json!({"folder": "relative"}));
    assert!(none.status == 400 && none.text().contains("is not an absolute path"), "{}", none.text());
    let (status, reported) = server.say(&["backup", server.data_dir().join("inside").to_str().expect("text")]);
    assert!(!status.success() && reported.contains("is in the data folder"), "{reported}");
    let stranger = server.open("POST", "/store/check", &[("authorization", "Bearer guessed")]);
    assert_eq!(stranger.status, 401);
}
