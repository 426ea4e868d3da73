//! A cluster that has lost its nodes and its streams begins again with the backups of its shards.

use std::fs;

use serde_json::{Value, json};

use super::{
    CALM, LONG, assert_arrived,
    clients::topic_without_duplicates,
    shards::{SHARDS, Sharded, assert_shards_sound, names, status_of},
};
use crate::{
    server::wait_until_settled,
    support::{
        nats::has_nats,
        server::{Server, SubscriptionSpec, operator, say, wait_for},
        sink::Sink,
    },
};

/// The topic that is in every shard.
const SPREAD: &str = "wide";

/// Publishes an event to each topic.
fn publish_all(node: &Server, topics: &[(String, String)], id: &str) {
    for (name, key) in topics {
        wait_for("a publish", LONG, || {
            status_of(node, name, key, id, "s") == 200
        });
    }
}

#[test]
fn a_cluster_is_restored_with_the_backups_of_its_shards() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[CALM]);
    let sink = Sink::start();
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = &sharded.cluster.nodes;
    let mut topics: Vec<(String, String)> = names()
        .into_iter()
        .map(|name| (name.clone(), topic_without_duplicates(&nodes[0], &name)))
        .collect();
    topics.push((
        SPREAD.to_owned(),
        nodes[1].topic_of(SPREAD, &json!({"partitionCount": SHARDS})),
    ));
    for (name, _) in &topics {
        nodes[0].subscribe(
            name,
            "all",
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
        );
        nodes[0].post_verb(name, "all", "hold");
    }
    publish_all(&nodes[0], &topics, "first");
    publish_all(&nodes[1], &topics, "second");
    let backup = folder.path().join("backup");
    let at = |shard: u16| backup.join(format!("shard-{shard}"));
    let made = operator(
        &nodes[2],
        &["backup", backup.to_str().expect("text"), "--output", "json"],
    )
    .expect("a backup");
    let made: Value = serde_json::from_str(&made).expect("JSON");
    // The control plane is the one behind them.
    for shard in 0..=SHARDS {
        let manifest = fs::read(at(shard).join("backup.json")).expect("a manifest");
        let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
        let of_shard = &made["backups"][usize::from(shard)];
        assert_eq!(
            (&of_shard["shard"], &of_shard["sequence"]),
            (&json!(shard), &manifest["sequence"]),
            "{made}"
        );
        assert_eq!(of_shard["folder"], json!(at(shard)));
    }
    assert!(made["backup"].is_null(), "{made}");
    let error =
        operator(&nodes[2], &["backup", backup.to_str().expect("text")]).expect_err("there is one");
    assert!(error.contains("shard-0 is not empty"), "{error}");
    // A node refuses its own data folder, whether it owns the first shard or only later ones.
    let owner = |shard: u16| sharded.cluster.owner_of(shard.into(), None);
    let later = (1..SHARDS)
        .find(|shard| owner(*shard) != owner(0))
        .expect("each node has its share");
    for shard in [0, later] {
        let inside = nodes[owner(shard)].data_dir().join("backup");
        let error = operator(&nodes[2], &["backup", inside.to_str().expect("text")])
            .expect_err("it is on the same disk");
        assert!(error.contains("is in the data folder"), "{error}");
        assert!(!inside.join(format!("shard-{shard}")).exists(), "{error}");
    }

    sharded.cluster.nodes.iter_mut().for_each(Server::kill_9);
    sharded.cluster.nats.0[0].kill();
    let mut restored = Sharded::prepare(&[]);
    let stores = restored.cluster.nodes[0].data_dir().join("shards");
    for shard in 0..=SHARDS {
        let from = at(shard);
        let to = stores.join(shard.to_string());
        let (status, report) = say(&[
            "restore",
            from.to_str().expect("text"),
            "--data-dir",
            to.to_str().expect("text"),
        ]);
        assert!(status.success(), "{report}");
    }
    restored.cluster.join(0);
    restored.wait_for_shares(0, &[6]);
    // The others have empty folders, and the streams begin behind what the restored stores have.
    restored.cluster.join_each(1..3);
    restored.wait_for_shares(0, &[2, 2, 2]);
    let nodes = &restored.cluster.nodes;
    publish_all(&nodes[1], &topics, "third");
    for (name, _) in &topics {
        nodes[2].post_verb(name, "all", "resume");
    }
    let of_all = |ids: &[&str], nodes: &[Server]| {
        for (name, _) in &topics {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            wait_until_settled(&nodes[1], name, "all");
            assert!(assert_arrived(&sink, &format!("/{name}"), &ids).is_empty());
        }
    };
    of_all(&["first", "second", "third"], nodes);
    restored.cluster.nodes[0].kill_9();
    restored.wait_for_shares(1, &[3, 3]);
    publish_all(&restored.cluster.nodes[1], &topics, "fourth");
    of_all(
        &["first", "second", "third", "fourth"],
        &restored.cluster.nodes,
    );
    for node in &mut restored.cluster.nodes[1..] {
        node.terminate();
        assert_shards_sound(node);
    }
}
