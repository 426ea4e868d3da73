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

    server.terminate();
    let (status, reported) = server.fsck();
    assert_eq!(status.code(), Some(0), "{reported}");
    assert!(
        reported.contains("1 cursors, ") && reported.contains(" 1 partitions\n"),
        "{reported}"
    );
    assert!(reported.ends_with("\nthe store is sound\n"), "{reported}");

    let store =
        RocksStore::open(&server.data_dir(), &RocksOptions::default()).expect("a sound store");
    let subscription_key = SubscriptionKey {
        partition: PartitionId(1),
        subscription: SubscriptionId(1),
    };
    let mut batch = Batch::default();
    batch.put(
        Family::Due,
        keys::due(subscription_key, Timestamp(0), Lane::LIVE, Seq(3)),
        Vec::new(),
    );
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
    // A full disk and a kill together may leave that.
    let (status, reported) = server.fsck();
    assert_eq!(status.code(), Some(0), "{reported}");
    let expected = "left over: subscription 1 of partition 1: event 3 in lane 0 has a due record \
        for 1970-01-01T00:00:00.0000000Z and is not pending\nthe store is sound\n";
    assert!(reported.ends_with(expected), "{reported}");

    let stray = SubscriptionKey {
        subscription: SubscriptionId(7),
        ..subscription_key
    };
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
        keys::pin(PartitionId(1), Seq(4), stray.subscription, Lane::LIVE),
        Vec::new(),
    );
    store.write(&batch).expect("written");
    store.close().expect("closed");
    drop(store);
    let (status, reported) = server.fsck();
    assert_eq!(status.code(), Some(1), "{reported}");
    let wrong = "event 3 is carried and not needed\n";
    assert!(
        reported.contains(wrong) && reported.contains("the store is not sound: 4 problems\n"),
        "{reported}"
    );
    let (status, reported) = server::fsck_with(&server.data_dir(), &["--repair"]);
    assert!(
        status.code() == Some(1) && reported.contains("\n0 records repaired\n"),
        "{reported}"
    );
    let expected = "the store is not sound: 4 problems\n";
    assert!(
        reported.ends_with(expected),
        "what may be left of something that is missing is kept: {reported}"
    );
    let (status, reported) = server::fsck_with(&server.data_dir(), &["--output", "json"]);
    let reported: serde_json::Value = serde_json::from_str(&reported).expect("JSON");
    assert!(
        status.code() == Some(1) && reported["leftovers"][0]["repair"].is_null(),
        "{reported}"
    );
    let what = "subscription 7 of partition 1: 0 pending, 0 dead letters and no cursor";
    let complaints = reported["findings"].as_array().expect("a list");
    assert!(
        complaints
            .iter()
            .any(|complaint| complaint["problem"] == what),
        "{reported}"
    );

    let store = RocksStore::open(&server.data_dir(), &RocksOptions::default())
        .expect("a store that can be read");
    let mut batch = Batch::default();
    batch.delete(Family::Carried, keys::carried(PartitionId(1), Seq(3)));
    batch.delete(
        Family::Pin,
        keys::pin(PartitionId(1), Seq(4), stray.subscription, Lane::LIVE),
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
