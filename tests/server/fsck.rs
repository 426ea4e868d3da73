//! `gridhook fsck` on real folders.

use gridhook::{
    event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp},
    store::{
        Batch, Family, Store, keys,
        rocks::{RocksOptions, RocksStore},
    },
};

use super::{LONG, wait_until_settled};
use crate::support::{
    load,
    server::{self, Server, SubscriptionSpec, wait_for},
    sink::Sink,
};

const SUBSCRIPTION: SubscriptionKey = SubscriptionKey {
    partition: PartitionId(1),
    subscription: SubscriptionId(1),
};

/// A subscription that does not exist.
const STRAY: SubscriptionId = SubscriptionId(7);

#[test]
fn a_folder_that_a_server_has_used_is_sound_and_one_that_it_uses_is_not_looked_at() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    let ids: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    wait_for("all events", LONG, || sink.taken("/hook") == ids.len());
    wait_until_settled(&server, "orders", "hook");

    assert_a_folder_in_use_is_refused(&server);

    server.terminate();
    let (status, reported) = server.fsck();
    assert_eq!(status.code(), Some(0), "{reported}");
    assert!(
        reported.contains("1 cursor, ") && reported.contains(" 1 partition\n"),
        "{reported}"
    );
    assert!(reported.ends_with("\nthe store is sound\n"), "{reported}");

    add_a_leftover(&server);

    add_damage(&server);
    assert_damage_is_not_repaired(&server);

    remove_the_damage_and_repair(&server);
}

fn assert_a_folder_in_use_is_refused(server: &Server) {
    let (status, reported) = server.fsck();
    let folder = server.data_dir().display().to_string();
    let id = server.id();
    let refusal =
        format!("gridhook: the data folder {folder} is in use by process {id}; stop that process");
    assert!(
        status.code() == Some(1) && reported.starts_with(&refusal),
        "{status}: {reported}"
    );
    assert_eq!(
        server.counter("orders", "hook", "delivered"),
        10,
        "it runs on"
    );
}

/// A due record without its event is left over: a full disk and a kill together may leave it.
fn add_a_leftover(server: &Server) {
    let store =
        RocksStore::open(&server.data_dir(), &RocksOptions::default()).expect("a sound store");
    let mut batch = Batch::default();
    batch.put(
        Family::Due,
        keys::due(SUBSCRIPTION, Timestamp(0), Lane::LIVE, Seq(3)),
        Vec::new(),
    );
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
    let (status, reported) = server.fsck();
    assert_eq!(status.code(), Some(0), "{reported}");
    let expected = "left over: subscription 1 of partition 1: event 3 in lane 0 has a due record \
        for 1970-01-01T00:00:00.0000000Z and is not pending\nthe store is sound\n";
    assert!(reported.ends_with(expected), "{reported}");
}

/// A carried event without use, and a pin without a cursor, are damage.
fn add_damage(server: &Server) {
    let store =
        RocksStore::open(&server.data_dir(), &RocksOptions::default()).expect("a sound store");
    let mut batch = Batch::default();
    batch.put(
        Family::Carried,
        keys::carried(PartitionId(1), Seq(3)),
        b"no event".to_vec(),
    );
    batch.put(
        Family::Pin,
        keys::pin(PartitionId(1), Seq(4), STRAY, Lane::LIVE),
        Vec::new(),
    );
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
}

fn assert_damage_is_not_repaired(server: &Server) {
    let (status, output) = server.fsck();
    assert_eq!(status.code(), Some(1), "{output}");
    let wrong = "event 3 is carried and not needed\n";
    assert!(
        output.contains(wrong) && output.contains("the store is not sound: 4 problems\n"),
        "{output}"
    );
    let (status, output) = server::fsck_with(&server.data_dir(), &["--repair"]);
    assert!(
        status.code() == Some(1) && output.contains("\n0 records repaired\n"),
        "{output}"
    );
    let expected = "the store is not sound: 4 problems\n";
    assert!(
        output.ends_with(expected),
        "records that may belong to something missing are kept: {output}"
    );
    let (status, output) = server::fsck_with(&server.data_dir(), &["--output", "json"]);
    let output: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert!(
        status.code() == Some(1) && output["leftovers"][0]["repair"].is_null(),
        "{output}"
    );
    let what = "subscription 7 of partition 1: 0 pending, 0 dead letters and no cursor";
    let complaints = output["findings"].as_array().expect("a list");
    assert!(
        complaints
            .iter()
            .any(|complaint| complaint["problem"] == what),
        "{output}"
    );
}

fn remove_the_damage_and_repair(server: &Server) {
    let store = RocksStore::open(&server.data_dir(), &RocksOptions::default())
        .expect("a store that can be read");
    let mut batch = Batch::default();
    batch.delete(Family::Carried, keys::carried(PartitionId(1), Seq(3)));
    batch.delete(
        Family::Pin,
        keys::pin(PartitionId(1), Seq(4), STRAY, Lane::LIVE),
    );
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
    let (status, reported) = server::fsck_with(&server.data_dir(), &["--repair"]);
    assert!(
        status.success() && reported.ends_with("\n1 record repaired\nthe store is sound\n"),
        "{reported}"
    );
}

#[test]
fn a_folder_without_a_store_is_reported_and_not_made_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for data_dir in [folder.path().to_owned(), folder.path().join("mistyped")] {
        let (status, reported) = server::fsck(&data_dir);
        let expected = format!(
            "gridhook: no store in {}; name the data folder of a server with --data-dir\n",
            data_dir.display()
        );
        assert_eq!((status.code(), reported), (Some(1), expected));
    }
    assert_eq!(
        folder.path().read_dir().expect("a folder").count(),
        0,
        "nothing was made"
    );
}
