//! Servers of NATS that were restored from an older backup, and streams and stores that are lost,
//! of one shard among others.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Cluster, LONG, START, STREAM, assert_all_arrive, keep_token, publish,
    routing::post_at,
    shards::{SHARDS, Sharded, names},
};
use crate::{
    server::{assert_arrived, tokens::RG, wait_until_settled},
    support::{
        load,
        nats::{NatsCluster, has_nats},
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::Sink,
    },
};

/// Longer than a node waits before it takes a shard that nobody owns.
const CLAIMED: Duration = Duration::from_secs(6);

fn readiness(node: &Server) -> (u16, Value) {
    let response = node.client().ask("GET", "/readyz", &[], b"");
    let response = response.expect("a response");
    (response.status, response.json())
}

/// Waits until `/readyz` of a node says why it cannot serve a shard.
pub(super) fn wait_for_failure(node: &Server, why: &str) {
    wait_for("a shard that failed", START, || {
        let (status, view) = readiness(node);
        status == 503 && view["problems"].to_string().contains(why)
    });
}

fn try_publish(node: &Server, topic: &str, key: &str) -> u16 {
    let body = load::body(&["late".to_owned()], "s");
    let response = node
        .client()
        .ask("POST", &events_path(topic), &[("aeg-sas-key", key)], &body);
    response.expect("a response").status
}

/// A namespace with a topic `heat`. Returns its key, as a header has it.
fn create_namespace(node: &Server, name: &str) -> String {
    let path = format!("{RG}/namespaces/{name}");
    node.command("PUT", &path, &json!({"location": "local"}));
    node.command("PUT", &format!("{path}/topics/heat"), &json!({}));
    let keys = node.command("POST", &format!("{path}/listKeys"), &Value::Null);
    let key = keys.json()["key1"].as_str().expect("a key").to_owned();
    format!("SharedAccessKey {key}")
}

fn publish_by_host(node: &Server, host: &str, key: &str) -> u16 {
    let event = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "T", "data": {}});
    let headers = [
        ("authorization", key),
        ("content-type", "application/cloudevents+json"),
    ];
    let body = event.to_string();
    post_at(
        node,
        host,
        "/topics/heat:publish",
        &headers,
        body.as_bytes(),
    )
}

#[test]
fn a_stream_that_was_restored_from_an_older_backup_is_taken_by_no_node_that_is_behind_it() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    assert_all_arrive(&cluster.nodes[0], &sink, &["all"], &ids);
    cluster.nodes[2].terminate();
    let backup = cluster.nats.0[0].back_up(STREAM);
    ids.extend(publish(&cluster.nodes[0], &key, 20..40));
    assert_all_arrive(&cluster.nodes[0], &sink, &["all"], &ids);
    // Their records have the last position.
    thread::sleep(Duration::from_secs(2));
    for node in &mut cluster.nodes[..2] {
        node.terminate();
    }
    cluster.nats.0[0].restore(&backup);
    // A node that is behind, and one without anything.
    for is_empty in [false, true] {
        if is_empty {
            cluster.nodes[2].terminate();
            fs::remove_dir_all(cluster.nodes[2].data_dir()).expect("a folder");
            keep_token(&cluster.nodes[2]);
        }
        cluster.nodes[2].begin();
        cluster.nodes[2].await_listening().expect("it listens");
        wait_for_failure(&cluster.nodes[2], "was acknowledged");
        assert_eq!(try_publish(&cluster.nodes[2], "orders", &key), 503);
    }
    let view = cluster.nodes[2].command("GET", "/cluster/status", &Value::Null);
    let text = view.text();
    assert!(text.contains("\"state\":\"failed\""), "{text}");
    assert!(text.contains("continue from data folders"), "{text}");
    let output = operator(&cluster.nodes[2], &["cluster", "status"]).expect("a view");
    assert!(output.contains("cannot serve shard 0"), "{output}");
    // The ones that are ahead of it.
    for node in &mut cluster.nodes[..2] {
        node.begin();
        node.await_listening().expect("it listens");
        wait_for_failure(node, "cannot serve shard 0");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

#[test]
fn a_node_that_went_on_with_restored_servers_of_nats_stops_when_a_copy_has_more() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..20);
    cluster.nodes[2].terminate();
    // The bucket is as old as the stream.
    let backup = tempfile::tempdir().expect("a folder");
    let place = |index: usize| backup.path().join(index.to_string());
    cluster.nats.0.iter_mut().for_each(|nats| nats.kill());
    for (index, nats) in cluster.nats.0.iter().enumerate() {
        copy_folder(&nats.data_dir(), &place(index));
    }
    cluster.nats.0.iter_mut().for_each(|nats| nats.start());
    cluster.nats.0.iter().for_each(|nats| nats.wait());
    for id in 20..40 {
        wait_for("an event to be stored", START, || {
            try_publish(&cluster.nodes[0], "orders", &key) == 200
        });
        assert!(id < 40);
    }
    for node in &mut cluster.nodes[..2] {
        node.terminate();
    }
    cluster.nats.0.iter_mut().for_each(|nats| nats.kill());
    for (index, nats) in cluster.nats.0.iter().enumerate() {
        fs::remove_dir_all(nats.data_dir()).expect("a folder");
        copy_folder(&place(index), &nats.data_dir());
    }
    cluster.nats.0.iter_mut().for_each(|nats| nats.start());
    cluster.nats.0.iter().for_each(|nats| nats.wait());
    // No node has a record of more yet.
    cluster.join(2);
    assert_eq!(cluster.owner(), 2);
    assert_eq!(try_publish(&cluster.nodes[2], "orders", &key), 200);
    cluster.nodes[0].begin();
    cluster.nodes[0].await_listening().expect("it listens");
    wait_for_failure(&cluster.nodes[0], "cannot serve shard 0");
    wait_for_failure(&cluster.nodes[2], "and a node went on with it");
    assert_eq!(try_publish(&cluster.nodes[2], "orders", &key), 503);
}

#[test]
fn a_bucket_that_was_restored_from_an_older_backup_stops_deliveries_for_the_expiry_only() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(3, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    let backup = cluster.nats.0[0].back_up("KV_GH_test");
    thread::sleep(CLAIMED);
    cluster.nats.0[0].restore(&backup);
    thread::sleep(CLAIMED);
    let owner = cluster.owner();
    ids.extend(publish(&cluster.nodes[owner], &key, 20..40));
    wait_for("events to be delivered", START, || {
        sink.taken("/all") == ids.len()
    });
    assert_all_arrive(&cluster.nodes[cluster.owner()], &sink, &["all"], &ids);
}

#[test]
fn a_shard_whose_stream_was_deleted_fails_alone() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start_on_three(&[]);
    let nodes = &sharded.cluster.nodes;
    let names = names();
    let keys: Vec<String> = names
        .iter()
        .map(|name| nodes[0].topic(name, "EventGridSchema"))
        .collect();
    let namespace_key = create_namespace(&nodes[0], &names[1]);
    sharded.cluster.nats.0[0].delete("GH_test_2");
    assert_ne!(try_publish(&nodes[0], &names[2], &keys[2]), 200);
    let failed = |node: &Server| {
        let (_, view) = readiness(node);
        view["shards"][2]["state"] == "failed"
    };
    wait_for("all nodes to see it", START, || nodes.iter().all(failed));
    let others = || (0..usize::from(SHARDS)).filter(|shard| *shard != 2);
    for node in nodes {
        for shard in others() {
            assert_eq!(try_publish(node, &names[shard], &keys[shard]), 200);
        }
        // No other shard is asked which namespaces there are.
        let host = format!("{}.localhost", names[1]);
        let began = Instant::now();
        assert_eq!(publish_by_host(node, &host, &namespace_key), 200);
        assert!(began.elapsed() < Duration::from_secs(4), "it waited");
        let (status, view) = readiness(node);
        assert_eq!(status, 200, "{view}");
        let problems = view["problems"].to_string();
        assert!(problems.contains("cannot serve shard 2"), "{problems}");
        wait_for("metrics to show it", LONG, || {
            let metrics = node.command("GET", "/metrics", &Value::Null).text();
            let has = |shard: usize| {
                let sample = format!("gridhook_cluster_shard_failed{{shard=\"{shard}\"}} 1");
                metrics.contains(&sample)
            };
            has(2) && !others().any(has)
        });
    }
}

/// Publishes to a topic until its shard takes no more, and returns what was acknowledged.
fn fill_shard(node: &Server, topic: &str, key: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for round in 0..400 {
        let random = fastrand::Rng::with_seed(round).u128(..);
        let subject: String = (0..60_000)
            .map(|_| fastrand::alphanumeric())
            .chain(random.to_string().chars())
            .collect();
        let some: Vec<String> = (0..10)
            .map(|number| format!("{topic}-{round}-{number}"))
            .collect();
        let body = load::body(&some, &subject);
        let response =
            node.client()
                .ask("POST", &events_path(topic), &[("aeg-sas-key", key)], &body);
        match response.expect("a response").status {
            200 => ids.extend(some),
            503 => return ids,
            status => panic!("{status}"),
        }
    }
    panic!("{topic}: the stream is never full");
}

#[test]
fn a_full_nats_server_leaves_room_for_the_records_and_readyz_names_the_streams() {
    if !has_nats() {
        return;
    }
    // By themselves the streams would take it.
    let nats = NatsCluster::start_with_room(3, 96 << 20);
    let mut sharded = Sharded::start_on(nats, &[]);
    let names = names();
    let sink = Sink::start();
    let nodes = &mut sharded.cluster.nodes;
    let keys: Vec<String> = names
        .iter()
        .map(|name| nodes[0].topic(name, "EventGridSchema"))
        .collect();
    nodes[0].subscribe(
        &names[0],
        "all",
        &SubscriptionSpec::new(&sink.url("/all")).batch(10),
    );
    // The streams keep what these need.
    nodes[1].terminate();
    nodes[2].terminate();
    sharded.wait_for_shares(0, &[6]);
    let nodes = &mut sharded.cluster.nodes;
    let mut ids = Vec::new();
    for (name, key) in names.iter().zip(&keys) {
        let filled = fill_shard(&nodes[0], name, key);
        if *name == names[0] {
            ids = filled;
        }
    }
    // Space that is too small for these requests may be enough for the records of a node.
    let last = SHARDS - 1;
    let (_, view) = readiness(&nodes[0]);
    let problems = view["problems"].to_string();
    let named = format!("the stream GH_test_{last} in NATS is full");
    assert!(problems.contains(&named), "{problems}");
    assert!(!problems.contains("data folder"), "{problems}");
    let metrics = nodes[0].command("GET", "/metrics", &Value::Null).text();
    let limit = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gridhook_cluster_stream_bytes_max{shard=\"0\"} "))
        .and_then(|limit| limit.parse::<u64>().ok())
        .expect("a metric");
    assert!((8 << 20..12 << 20).contains(&limit), "{limit}");
    for name in ["b", "c"] {
        wait_for("a node to be forgotten", START, || {
            operator(&nodes[0], &["cluster", "forget", name, "--yes"]).is_ok()
        });
    }
    for (name, key) in names.iter().zip(&keys) {
        wait_for("publishers to be served", START, || {
            try_publish(&nodes[0], name, key) == 200
        });
    }
    ids.push("late".to_owned());
    nodes[0].terminate();
    nodes[0].begin();
    nodes[0].await_listening().expect("it listens");
    sharded.wait_for_shares(0, &[6]);
    let node = &sharded.cluster.nodes[0];
    wait_until_settled(node, &names[0], "all");
    assert_arrived(&sink, "/all", &ids);
}

#[test]
fn a_shard_whose_store_is_damaged_fails_alone_and_another_node_serves_it() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start_on_three(&[]);
    let names = names();
    let nodes = &mut sharded.cluster.nodes;
    let keys: Vec<String> = names
        .iter()
        .map(|name| nodes[0].topic(name, "EventGridSchema"))
        .collect();
    nodes[0].terminate();
    let store = nodes[0].data_dir().join("shards/1/rocksdb");
    fs::write(store.join("CURRENT"), "MANIFEST-no").expect("a file");
    nodes[0].begin();
    nodes[0].await_listening().expect("it listens");
    wait_for("the other shards to be followed", LONG, || {
        let (_, view) = readiness(&nodes[0]);
        view["shards"][1]["state"] == "failed" && view["shards"][1]["hasOwner"] == true
    });
    for (name, key) in names.iter().zip(&keys) {
        wait_for("a publisher to be served", START, || {
            try_publish(&nodes[0], name, key) == 200
        });
    }
    let (_, view) = readiness(&nodes[0]);
    let cause = view["shards"][1]["cause"].to_string();
    assert!(cause.contains("damaged"), "{cause}");
}

#[test]
fn a_control_plane_without_a_stream_keeps_only_changes_from_being_made() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start_on_three(&[]);
    let nodes = &sharded.cluster.nodes;
    let sink = Sink::start();
    let name = &names()[1];
    let key = nodes[0].topic(name, "EventGridSchema");
    nodes[0].subscribe(name, "all", &SubscriptionSpec::new(&sink.url("/all")));
    sharded.cluster.nats.0[0].delete("GH_test_control");
    let failed = |node: &Server| {
        let (_, view) = readiness(node);
        view["controlPlane"]["state"] == "failed"
    };
    let put_late_topic = || {
        let path = format!("{SCOPE}/late");
        nodes[0].admin("PUT", &path, &json!({})).status
    };
    // Its owner notices with the next write.
    wait_for("all nodes to see it", START, || {
        put_late_topic();
        nodes.iter().all(failed)
    });
    for node in nodes {
        assert_eq!(try_publish(node, name, &key), 200);
        let (status, view) = readiness(node);
        assert_eq!(status, 200, "{view}");
        let problems = view["problems"].to_string();
        assert!(
            problems.contains("cannot serve the control plane"),
            "{problems}"
        );
    }
    wait_for("the event", LONG, || sink.taken("/all") == 1);
    assert_eq!(put_late_topic(), 503);
}
