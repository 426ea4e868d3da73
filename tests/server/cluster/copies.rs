//! Nodes whose next record the stream has not any more, and new ones of a cluster whose stream was
//! trimmed: they fetch the store of the owner.

use std::{fs, path::Path};

use serde_json::Value;

use super::{Cluster, LONG, START, STREAM, assert_all_arrive, keep_token, publish};
use crate::support::{
    load,
    nats::{NatsCluster, has_nats},
    server::{Server, SubscriptionSpec, events_path, operator, wait_for},
    sink::Sink,
    tcp_proxy::{Cut, Direction},
};

const IN_PLACE: &str = "the copy of the store is in place";

/// The view that a node has of the node with this name.
fn view(node: &Server, name: &str) -> Value {
    let view = node.command("GET", "/cluster/status", &Value::Null).json();
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    nodes
        .into_iter()
        .find(|node| node["name"] == name)
        .unwrap_or_default()
}

/// Waits until a node has synced all that the stream has.
pub(super) fn wait_until_synced(cluster: &Cluster, node: usize, name: &str) {
    wait_for("the node to sync everything", LONG, || {
        let last = cluster.nats.0[0].messages(STREAM, u64::MAX - 1).1;
        let view = view(&cluster.nodes[node], name);
        view["state"] == "alive" && view["flushed"][0] == last
    });
}

fn wait_until_in_place(node: &Server, times: usize) {
    wait_for("the copy", START, || {
        node.logs().matches(IN_PLACE).count() == times
    });
    // Its record says so at its next renewal.
    wait_for("the metrics of the copy", LONG, || {
        let metrics = node.command("GET", "/metrics", &Value::Null).text();
        let expected = [
            "gridhook_cluster_copies_total 1",
            "gridhook_cluster_shard_copy_bytes{shard=\"0\"} 0",
        ];
        expected.into_iter().all(|line| metrics.contains(line))
    });
}

/// Publishes what no compression makes small, of some megabytes.
fn publish_much(node: &Server, key: &str, ids: std::ops::Range<u32>) -> Vec<String> {
    let publish = |id: u32| {
        let name = format!("large-{id}");
        let subject = format!("/{}", fastrand::Rng::with_seed(id.into()).u128(..)).repeat(1_000);
        let body = load::body(std::slice::from_ref(&name), &subject);
        let response = node.client().ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", key)],
            &body,
        );
        assert_eq!(response.expect("a response").status, 200);
        name
    };
    ids.map(publish).collect()
}

/// Removes the data folder of a node, but for its token.
fn wipe(node: &Server) {
    fs::remove_dir_all(node.data_dir()).expect("removed");
    keep_token(node);
}

#[test]
fn a_node_whose_next_record_was_removed_and_a_new_one_fetch_the_store_and_take_over() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    wait_until_synced(&cluster, 0, "c");
    cluster.nodes[2].kill_9();
    ids.extend(publish(&cluster.nodes[0], &key, 20..40));
    wait_until_synced(&cluster, 0, "b");
    cluster.nats.0[0].purge(STREAM);
    ids.extend(publish(&cluster.nodes[0], &key, 40..60));
    cluster.join(2);
    wait_until_in_place(&cluster.nodes[2], 1);
    wait_until_synced(&cluster, 0, "c");
    // It has all that the others have.
    operator(&cluster.nodes[0], &["cluster", "move", "0", "c"]).expect("it is asked");
    wait_for("the node to take over", START, || {
        cluster.ready_owner(None) == Some(2)
    });
    ids.extend(publish(&cluster.nodes[2], &key, 60..80));
    cluster.nodes[1].terminate();
    wipe(&cluster.nodes[1]);
    cluster.join(1);
    wait_until_in_place(&cluster.nodes[1], 1);
    wait_until_synced(&cluster, 2, "b");
    cluster.nodes[2].kill_9();
    let next = cluster.owner_but(Some(2));
    ids.extend(publish(&cluster.nodes[next], &key, 80..100));
    assert_all_arrive(&cluster.nodes[next], &sink, &["all"], &ids);
    for node in cluster.nodes.iter_mut().filter(|node| node.is_running()) {
        node.terminate();
    }
    cluster.nodes.iter().for_each(Server::assert_sound);
}

#[test]
fn a_copy_is_begun_again_after_kills_of_the_node_and_of_the_owner() {
    if !has_nats() {
        return;
    }
    let own = |index| match index {
        0 => vec![("CLUSTER__COPY_RATE", "128 KiB".to_owned())],
        _ => Vec::new(),
    };
    let mut cluster = Cluster::prepare_each(NatsCluster::start(1, "always"), &[], own);
    let sink = Sink::start();
    cluster.join_all();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish_much(&cluster.nodes[0], &key, 0..60);
    wait_until_synced(&cluster, 0, "b");
    cluster.nodes[2].kill_9();
    ids.extend(publish(&cluster.nodes[0], &key, 0..20));
    wait_until_synced(&cluster, 0, "b");
    cluster.nats.0[0].purge(STREAM);
    let receives = |cluster: &Cluster| {
        let copy = view(&cluster.nodes[1], "c")["copies"][0].clone();
        copy["received"]
            .as_u64()
            .filter(|received| *received > 0 && copy["bytes"].as_u64() > Some(*received))
    };
    for round in 0..3_u64 {
        cluster.join(2);
        let mut least = 0;
        wait_for("a part of the copy", START, || {
            least = receives(&cluster).unwrap_or_default();
            least > round * 100_000
        });
        println!("killed with {least} bytes");
        cluster.nodes[2].kill_9();
        assert!(cluster.nodes[2].data_dir().join("received.new").exists());
        wait_for("the record of the killed node to be old", LONG, || {
            view(&cluster.nodes[1], "c")["state"] == "dead"
        });
    }
    cluster.join(2);
    wait_for("a part of the copy", START, || receives(&cluster).is_some());
    let output = operator(&cluster.nodes[1], &["cluster", "status"]).expect("a table");
    assert!(
        output.contains("c fetches a copy of shard 0: ") && output.contains("catching up"),
        "{output}"
    );
    // A rolling upgrade waits for it.
    let ready = cluster.nodes[2].request_without_token("GET", "/readyz", &[]);
    assert_eq!(
        (ready.status, ready.json()["ready"].clone()),
        (503, false.into()),
        "{}",
        ready.text()
    );
    assert!(
        ready
            .text()
            .contains("this node fetches a copy of the store from the owner"),
        "{}",
        ready.text()
    );
    cluster.nodes[0].kill_9();
    assert_eq!(
        cluster.owner_but(Some(0)),
        1,
        "the node that fetches takes nothing"
    );
    wait_until_in_place(&cluster.nodes[2], 1);
    assert!(
        cluster.nodes[2]
            .logs()
            .contains("the store was not fetched; trying again"),
        "{}",
        cluster.nodes[2].logs()
    );
    ids.extend(publish(&cluster.nodes[1], &key, 20..40));
    wait_until_synced(&cluster, 1, "c");
    cluster.nodes[1].kill_9();
    assert_eq!(cluster.owner_but(Some(1)), 2);
    assert_all_arrive(&cluster.nodes[2], &sink, &["all"], &ids);
    cluster.nodes[2].terminate();
    cluster.nodes[2].assert_sound();
}

#[test]
fn a_copy_that_was_altered_or_cut_on_its_way_is_refused_and_fetched_again() {
    if !has_nats() {
        return;
    }
    let (mut cluster, proxy, _port) =
        Cluster::start_behind_proxy(&[("CLUSTER__COPY_RATE", "256 KiB")], &[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish_much(&cluster.nodes[0], &key, 0..40);
    wait_until_synced(&cluster, 0, "b");
    cluster.nodes[2].terminate();
    wipe(&cluster.nodes[2]);
    cluster.nats.0[0].purge(STREAM);
    publish(&cluster.nodes[0], &key, 0..20);
    proxy.replace_answers("large-17", "large-71");
    cluster.join(2);
    wait_for("the altered copy to be refused", START, || {
        cluster.nodes[2].logs().contains("has a wrong checksum")
    });
    assert!(!cluster.nodes[2].logs().contains(IN_PLACE));
    proxy.replace_answers("large-17", "large-17");
    wait_for("a part of the copy", START, || {
        view(&cluster.nodes[1], "c")["copies"][0]["received"].as_u64() > Some(0)
    });
    proxy.cut(Cut::One(Direction::ToClient));
    wait_for("pieces that wait", LONG, || proxy.is_holding());
    proxy.break_held();
    wait_for("the cut copy to be refused", START, || {
        cluster.nodes[2].logs().contains("the transfer ended early")
    });
    assert!(!cluster.nodes[2].logs().contains(IN_PLACE));
    proxy.cut(Cut::Nothing);
    wait_until_in_place(&cluster.nodes[2], 1);
    wait_until_synced(&cluster, 0, "c");
}

#[test]
fn a_store_of_which_it_is_not_known_whether_it_is_of_the_cluster_is_not_replaced() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..20);
    wait_until_synced(&cluster, 0, "c");
    cluster.nodes[2].kill_9();
    let folder = cluster.nodes[2].data_dir();
    let id = fs::read_to_string(folder.join("cluster-id")).expect("the identifier");
    fs::write(folder.join("cluster-id"), "of another cluster\n").expect("a file");
    let before = files(&folder.join("rocksdb"));
    publish(&cluster.nodes[0], &key, 20..40);
    wait_until_synced(&cluster, 0, "b");
    cluster.nats.0[0].purge(STREAM);
    publish(&cluster.nodes[0], &key, 40..60);
    cluster.nodes[2].begin();
    assert_eq!(cluster.nodes[2].wait(START), Some(1));
    let log = cluster.nodes[2].logs();
    assert!(
        log.contains("whether it is of this cluster is not known"),
        "{log}"
    );
    assert!(
        before
            .iter()
            .filter(|name| name.ends_with(".sst"))
            .all(|name| folder.join("rocksdb").join(name).exists())
    );
    fs::write(folder.join("cluster-id"), id).expect("a file");
    cluster.join(2);
    wait_until_in_place(&cluster.nodes[2], 1);
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
