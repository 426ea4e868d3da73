//! Nodes of a cluster with several shards: each owns its part and delivers the events of it, and the others take it over.

use std::{collections::BTreeMap, fs, time::Duration};

use gridhook::cluster::shard_of;
use serde_json::Value;

use super::{
    Cluster, LONG, START,
    chaos::{Clients, Published, lock, publishes, topic_without_duplicates},
};
use crate::{
    server::{assert_arrived, many, wait_until_settled},
    support::{
        nats::{NatsCluster, has_nats},
        port::ReservedPort,
        server::{Server, SubscriptionSpec, fsck, operator, say, wait_for},
        sink::Sink,
        tcp_proxy::TcpProxy,
    },
};

pub(super) const SHARDS: u16 = 6;

/// The names of topics, one in each shard.
pub(super) fn names() -> Vec<String> {
    let shards = usize::from(SHARDS);
    let named = |shard| (0..).map(|number| format!("topic-{number}")).find(|name| shard_of(name, shards) == shard);
    (0..shards).map(|shard| named(shard).expect("a name in each shard")).collect()
}

/// Three nodes with shards, which run.
pub(crate) struct Sharded {
    pub(crate) cluster: Cluster,
    _ports: Vec<Vec<ReservedPort>>,
}

impl Sharded {
    fn prepare(settings: &[(&str, &str)]) -> Self {
        let ports: Vec<_> = (0..3).map(|_| ReservedPort::in_a_row(SHARDS)).collect();
        let of_node = |index: usize| {
            let listen = ports[index][0].address.to_string();
            vec![("CLUSTER__NODE_LISTEN", listen), ("CLUSTER__SHARDS", SHARDS.to_string())]
        };
        let cluster = Cluster::prepare_each(NatsCluster::start(1, "always"), settings, of_node);
        Self { cluster, _ports: ports }
    }

    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let mut started = Self::prepare(settings);
        (0..3).for_each(|index| started.cluster.join(index));
        started.wait_for_shares(0, &[2, 2, 2]);
        started
    }

    /// Waits until the nodes that this one takes for alive own so many shards each, the fewest first, and all serve.
    pub(super) fn wait_for_shares(&self, node: usize, wanted: &[usize]) {
        let node = &self.cluster.nodes[node];
        let mut seen = Vec::new();
        let what = format!("shares of {wanted:?}");
        wait_for(&what, START, || {
            seen = shares(node);
            seen == wanted
        });
    }
}

/// How many shards each living node owns, the fewest first.
fn shares(node: &Server) -> Vec<usize> {
    let view = node.command("GET", "/cluster/status", &Value::Null).json();
    let nodes = view["nodes"].as_array().expect("nodes").iter().filter(|node| node["state"] == "alive");
    let mut shares: Vec<usize> = nodes.map(|node| node["owns"].as_array().map_or(0, Vec::len)).collect();
    shares.sort_unstable();
    shares
}

#[test]
fn each_node_delivers_a_part_and_the_others_take_it_over() {
    if !has_nats() {
        return;
    }
    let (mut sharded, sink, names) = (Sharded::start(&[]), Sink::start(), names());
    let balancer = TcpProxy::start(&sharded.cluster.addresses());
    let mut clients = Clients::new();
    let mut published = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let node = &sharded.cluster.nodes[index % 3];
        let key = topic_without_duplicates(node, name);
        node.subscribe(name, "all", &SubscriptionSpec::of(&sink.url(&format!("/{name}"))).batch(10));
        let of_topic = publishes(&mut clients, balancer.at(), (name, &key), (index, "/load"));
        published.insert(name.clone(), of_topic);
    }
    let progress = |what: &str| {
        let count = |published: &std::sync::Mutex<Published>| lock(published).ids.len();
        let before: Vec<usize> = published.values().map(|published| count(published)).collect();
        wait_for(&format!("events of every topic {what}"), LONG, || {
            published.values().zip(&before).all(|(published, before)| count(published) > before + 20)
        });
    };
    progress("at first");
    for round in 0..many(1, 10) {
        println!("round {round}");
        let [killed, paused, other] = [round % 3, (round + 1) % 3, (round + 2) % 3];
        sharded.cluster.nodes[killed].kill_9();
        sharded.wait_for_shares(other, &[3, 3]);
        progress("without the killed node");
        sharded.cluster.join(killed);
        balancer.turn_to(&sharded.cluster.addresses());
        sharded.wait_for_shares(other, &[2, 2, 2]);
        progress("with a node that came back");
        sharded.cluster.nodes[paused].signal("STOP");
        sharded.wait_for_shares(other, &[3, 3]);
        sharded.cluster.nodes[paused].signal("CONT");
        sharded.wait_for_shares(other, &[2, 2, 2]);
        progress("with a node that was paused");
        for index in 0..3 {
            let took = sharded.cluster.nodes[index].terminate();
            println!("node {index} stopped after {took:?}");
            sharded.cluster.join(index);
            balancer.turn_to(&sharded.cluster.addresses());
            sharded.wait_for_shares(other, &[2, 2, 2]);
        }
        progress("after a restart of all nodes");
    }
    clients.stop();
    for (name, published) in &published {
        wait_until_settled(&sharded.cluster.nodes[0], name, "all");
        let Published { ids, longest } = &*lock(published);
        let repeated = assert_arrived(&sink, &format!("/{name}"), ids);
        println!("{name}: {} acknowledged, {} repeated, {longest:?} at most", ids.len(), repeated.len());
    }
    for node in &mut sharded.cluster.nodes {
        node.kill_9();
        for shard in 0..SHARDS {
            let (status, report) = fsck(&node.data_dir().join("shards").join(shard.to_string()));
            assert!(status.success(), "{report}");
        }
    }
}

#[test]
fn an_operator_moves_shards_and_drains_a_node() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[("CLUSTER__STRATEGY", "balanced")]);
    let nodes = &sharded.cluster.nodes;
    let owner = |shard: usize| {
        let view = nodes[0].command("GET", "/cluster/ownership", &Value::Null).json();
        view["value"][shard]["ownerName"].as_str().unwrap_or_default().to_owned()
    };
    let error = operator(&nodes[1], &["cluster", "move", "6", "a"]).expect_err("there is none");
    assert!(error.contains("there is no shard 6; the cluster has 6"), "{error}");
    operator(&nodes[1], &["cluster", "drain", "c"]).expect("it is asked");
    wait_for("the others to own all", START, || shares(&nodes[0]) == [3, 3]);
    let error = operator(&nodes[0], &["cluster", "move", "0", "c"]).expect_err("it is drained");
    assert!(error.contains("gives everything up"), "{error}");
    operator(&nodes[2], &["cluster", "drain", "c", "--end"]).expect("it is asked");
    sharded.wait_for_shares(0, &[2, 2, 2]);
    let (from, to) = (owner(0), if owner(0) == "b" { "a" } else { "b" });
    operator(&nodes[0], &["cluster", "move", "0", to]).expect("it is asked");
    // The node with the fewest takes one from the one with the most afterwards.
    wait_for("the move", LONG, || owner(0) == to);
    println!("{from} gave shard 0 to {to}");
    sharded.wait_for_shares(0, &[2, 2, 2]);
}

#[test]
fn another_number_of_shards_is_refused() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::prepare(&[]);
    sharded.cluster.join(0);
    let refused = |sharded: &mut Sharded, node: usize, shards: &str, error: &str| {
        let node = &mut sharded.cluster.nodes[node];
        node.set("CLUSTER__SHARDS", shards);
        node.begin();
        assert_eq!(node.wait(START), Some(1));
        let logs = node.logs();
        assert!(logs.contains(error), "{error} is not in {logs}");
    };
    let fixed = "the cluster test has 6; set 6 on all nodes";
    refused(&mut sharded, 1, "4", fixed);
    refused(&mut sharded, 2, "1", fixed);
    // The folder says so, too, whatever the cluster is.
    sharded.cluster.nodes[0].kill_9();
    refused(&mut sharded, 0, "1", "has the stores of a node with several shards");
    refused(&mut sharded, 0, "5", "has a store of shard 5");
    refused(&mut sharded, 2, "6", "has the store of a server with one shard");
    sharded.cluster.nodes[0].set("CLUSTER__SHARDS", "6");
    sharded.cluster.join(0);
    wait_for("its shards", Duration::from_secs(60), || shares(&sharded.cluster.nodes[0]) == [6]);
}

#[test]
fn each_shard_has_its_part_of_the_declared_topics_and_backups_of_its_own() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (file, backups) = (folder.path().join("topics.toml"), folder.path().join("backups"));
    let names = names();
    let declared: String = names.iter().map(|name| format!("[topics.{name}]\n")).collect();
    fs::write(&file, declared).expect("a file");
    let sharded = Sharded::start(&[
        ("SERVER__APPLY", file.to_str().expect("text")),
        ("BACKUP__STORE__URL", &format!("file://{}", backups.display())),
        ("BACKUP__SCHEDULE", "1h"),
    ]);
    for name in &names {
        let path = format!("/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/{name}");
        wait_for("a declared topic", LONG, || sharded.cluster.nodes[1].admin("GET", &path, &Value::Null).status == 200);
    }
    for shard in 0..SHARDS {
        let of_shard = backups.join(format!("shard-{shard}"));
        let has_any = || fs::read_dir(of_shard.join("backups")).is_ok_and(|mut files| files.next().is_some());
        wait_for("a backup of the shard", LONG, has_any);
        let restored = folder.path().join(format!("restored-{shard}"));
        let url = format!("file://{}", of_shard.display());
        let (status, report) = say(&["restore", &url, "--data-dir", restored.to_str().expect("text")]);
        assert!(status.success(), "{report}");
        let (status, report) = fsck(&restored);
        assert!(status.success(), "{report}");
    }
}
