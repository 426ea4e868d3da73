//! Nodes that have claimed the store and do not serve yet, and are asked to give it up or to stop.

use std::{fs, time::Duration};

use gridhook::journal::changelog::record::{Body, Record};
use serde_json::Value;

use super::{
    Cluster, LONG, START, STREAM,
    cuts::{FENCE, start_behind_proxy},
};
use crate::support::{
    nats::has_nats,
    server::{operator, wait_for},
    tcp_proxy::{Cut, TcpProxy},
};

/// A topic that the first node declares.
const DECLARED: &str = "declared-topic";

/// Its path: that of topics of a file that names no resource group.
const TOPIC: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/declared-topic";

/// Longer than anything that the tests wait for, so that nothing ends only because of it.
const SHUTDOWN: &str = "10m";

/// A cluster whose first node has claimed the store, and whose requests that have this mark do not arrive at NATS.
fn held(mark: &'static str) -> (Cluster, TcpProxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topics.toml");
    fs::write(&file, format!("[topics.{DECLARED}]\n")).expect("a file");
    let file = file.display().to_string();
    let (cluster, proxy) =
        start_behind_proxy(&[("SERVER__APPLY", file.as_str()), ("SERVER__SHUTDOWN_TIMEOUT", SHUTDOWN)]);
    let moved = |to: &str| {
        wait_for("the owner to be asked", LONG, || operator(&cluster.nodes[1], &["cluster", "move", "0", to]).is_ok());
    };
    moved("b");
    wait_for("another owner", START, || cluster.ready_owner(None) == Some(1));
    // The first node declares it again.
    cluster.nodes[1].command("DELETE", TOPIC, &Value::Null);
    proxy.cut(Cut::Marked(mark));
    moved("a");
    wait_for("a write that waits for NATS", START, || proxy.has_marked());
    (cluster, proxy, folder)
}

/// Asks the first node to give everything up. A request to the nodes would be forwarded to it.
fn drain_first(cluster: &Cluster) {
    cluster.nats.0[0].put("GH_test", "drained.a", "{}");
}

#[test]
fn a_node_that_waits_for_its_fence_gives_the_store_up_when_it_is_asked_to() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy, _files) = held(FENCE.0);
    drain_first(&cluster);
    println!("node {} is the next owner", cluster.owner_but(Some(0)));
    let asked = "asked to give the store up while it was taken";
    wait_for("the node to be a standby", LONG, || cluster.nodes[0].logs().contains(asked));
    let logs = cluster.nodes[0].logs();
    assert!(!logs.contains("the claimed shard was not taken"), "{logs}");
    // It takes the store again once it may.
    proxy.cut(Cut::Nothing);
    let owner = cluster.owner_but(Some(0));
    for request in [["cluster", "drain", "a", "--end"].as_slice(), &["cluster", "move", "0", "a"]] {
        wait_for("the request", START, || operator(&cluster.nodes[owner], request).is_ok());
    }
    wait_for("the first node to own the store", START, || cluster.ready_owner(None) == Some(0));
}

#[test]
fn a_node_whose_first_write_waits_gives_the_store_up_when_it_is_asked_to() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy, _files) = held(DECLARED);
    drain_first(&cluster);
    println!("node {} is the next owner", cluster.owner_but(Some(0)));
    proxy.cut(Cut::Nothing);
    let asked = "asked to give the store up while it started; standby again";
    wait_for("the node to be a standby", LONG, || cluster.nodes[0].logs().contains(asked));
}

#[test]
fn a_node_that_is_stopped_at_its_first_write_releases_the_changelog() {
    if !has_nats() {
        return;
    }
    let (mut cluster, proxy, _files) = held(DECLARED);
    cluster.nodes[0].signal_term();
    proxy.cut(Cut::Nothing);
    assert_eq!(cluster.nodes[0].wait(Duration::from_secs(60)), Some(0));
    println!("node {} is the next owner", cluster.owner_but(Some(0)));
    let (messages, _) = cluster.nats.0[0].messages(STREAM, 0);
    let records = messages.into_iter().map(|(_, message)| Record::decode(&message.into()).expect("a record").body);
    let records: Vec<Body> = records.collect();
    let is_fence = |record: &Body| matches!(record, Body::Fence { .. });
    let last = records.iter().rposition(is_fence).expect("the fence of the next owner");
    assert!(matches!(records[last - 1], Body::Release), "{:?}", records[last - 1]);
}
