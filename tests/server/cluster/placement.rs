//! Copies on some nodes only: four nodes, of which two have a copy of each shard.

use std::{collections::BTreeSet, fs, path::PathBuf};

use gridhook::cluster::{copies::choose_nodes, shard_of};
use serde_json::Value;

use super::{Cluster, LONG, NAMES, START, TOKEN};
use crate::{
    server::{assert_arrived, wait_until_settled},
    support::{
        load,
        nats::{NatsCluster, has_nats},
        port::ReservedPort,
        server::{Server, SubscriptionSpec, events_path, fsck, operator, wait_for},
        sink::Sink,
    },
};

const COPIES: usize = 2;

/// The size of the store of a shard with events, and more than an empty one has.
const FILLED: u64 = 400_000;

/// Four nodes with a topic in each shard.
struct Placed {
    cluster: Cluster,
    topics: Vec<String>,
    keys: Vec<String>,
    published: Vec<Vec<String>>,
    sink: Sink,
    _ports: Vec<Vec<ReservedPort>>,
}

/// What a node says that each node has of each shard; nothing while it gives a shard up, which ends
/// its listener.
pub(super) fn states(node: &Server) -> Vec<(String, Vec<String>)> {
    let authorization = format!("Bearer {TOKEN}");
    let asked = node.client().ask(
        "GET",
        "/cluster/status",
        &[("authorization", &authorization)],
        b"",
    );
    let Ok(answer) = asked else { return Vec::new() };
    assert_eq!(answer.status, 200, "{}", answer.text());
    let view = answer.json();
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |node: &Value| {
        node["copyStates"]
            .as_array()
            .map(|states| states.iter().map(text).collect())
    };
    nodes
        .iter()
        .map(|node| (text(&node["name"]), of(node).unwrap_or_default()))
        .collect()
}

/// The bytes of the files of RocksDB that grow with the data.
fn size(folder: &PathBuf) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let grows = |file: &fs::DirEntry| {
        let name = file.file_name();
        [".log", ".sst"]
            .iter()
            .any(|end| name.to_string_lossy().ends_with(end))
    };
    files
        .filter(grows)
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

impl Placed {
    /// Two nodes run, and have copies of all shards with events, which the streams have no more.
    fn start(shards: u16) -> Self {
        let ports: Vec<_> = NAMES
            .iter()
            .map(|_| ReservedPort::in_a_row(shards + 1))
            .collect();
        let own = |index: usize| {
            let listen = ports[index][0].address.to_string();
            vec![
                ("CLUSTER__NODE_LISTEN", listen),
                ("CLUSTER__SHARDS", shards.to_string()),
                ("CLUSTER__COPIES", COPIES.to_string()),
                ("CLUSTER__REPLACE_AFTER", "4s".to_owned()),
                ("CLUSTER__STREAM_KEEP_BYTES", "0".to_owned()),
            ]
        };
        let mut cluster = Cluster::prepare_many(NatsCluster::start(1, "always"), NAMES.len(), own);
        cluster.join_each(0..COPIES);
        let count = usize::from(shards);
        let named = |shard| {
            (0..)
                .map(|number| format!("topic-{number}"))
                .find(|name| shard_of(name, count) == shard)
        };
        let topics: Vec<String> = (0..count)
            .map(|shard| named(shard).expect("a name in each shard"))
            .collect();
        let sink = Sink::start();
        let mut keys = Vec::new();
        for name in &topics {
            keys.push(cluster.nodes[0].topic(name, "EventGridSchema"));
            cluster.nodes[0].subscribe(
                name,
                "all",
                &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
            );
        }
        let published = vec![Vec::new(); count];
        let mut placed = Self {
            cluster,
            topics,
            keys,
            published,
            sink,
            _ports: ports,
        };
        placed.publish(0, 20);
        placed.wait_for_copies(0, &[0, 1]);
        placed.wait_until_synced(&[0, 1]);
        (0..count).for_each(|shard| placed.cluster.nats.0[0].purge(&format!("GH_test_{shard}")));
        placed
    }

    /// Publishes large events to each topic through a node.
    fn publish(&mut self, node: usize, count: usize) {
        let node = &self.cluster.nodes[node];
        for (shard, (name, key)) in self.topics.iter().zip(&self.keys).enumerate() {
            for _ in 0..count {
                let id = format!("e{}", self.published[shard].len());
                let seed = (shard * 100_000 + self.published[shard].len()) as u64;
                let subject = format!("/{}", fastrand::Rng::with_seed(seed).u128(..)).repeat(1_000);
                let body = load::body(std::slice::from_ref(&id), &subject);
                wait_for("a publish", START, || {
                    let answer = node.client().ask(
                        "POST",
                        &events_path(name),
                        &[("aeg-sas-key", key)],
                        &body,
                    );
                    answer.is_ok_and(|answer| answer.status == 200)
                });
                self.published[shard].push(id);
            }
        }
    }

    /// The names of the nodes that should have a copy of a shard, if these count.
    fn chosen(&self, shard: usize, nodes: &[usize]) -> BTreeSet<&'static str> {
        choose_nodes(shard, COPIES, nodes.iter().map(|node| NAMES[*node]))
    }

    /// Waits until these nodes have the copies that they should have, and no others, as this node
    /// sees them.
    fn wait_for_copies(&self, node: usize, nodes: &[usize]) {
        let mut seen = Vec::new();
        let what = format!("the copies of {nodes:?}");
        wait_for(&what, START, || {
            seen = states(&self.cluster.nodes[node]);
            let has = |name: &str, shard: usize| {
                let of_node = seen
                    .iter()
                    .find(|(of, _)| of == name)
                    .map(|(_, states)| states[shard].as_str());
                of_node.unwrap_or_default().to_owned()
            };
            (0..self.topics.len()).all(|shard| {
                let chosen = self.chosen(shard, nodes);
                let expected = |name| {
                    if chosen.contains(name) {
                        "complete"
                    } else {
                        "none"
                    }
                };
                nodes
                    .iter()
                    .all(|node| has(NAMES[*node], shard) == expected(NAMES[*node]))
            })
        });
    }

    /// Waits until these nodes have synced all that the streams have of the shards that they have
    /// copies of.
    fn wait_until_synced(&self, nodes: &[usize]) {
        wait_for("the nodes to sync everything", LONG, || {
            let view = self.cluster.nodes[nodes[0]]
                .command("GET", "/cluster/status", &Value::Null)
                .json();
            let seen = view["nodes"].as_array().cloned().unwrap_or_default();
            (0..self.topics.len()).all(|shard| {
                let last = self.cluster.nats.0[0]
                    .messages(&format!("GH_test_{shard}"), u64::MAX - 1)
                    .1;
                let chosen = self.chosen(shard, nodes);
                let of_chosen = seen
                    .iter()
                    .filter(|node| chosen.contains(node["name"].as_str().unwrap_or_default()));
                of_chosen.clone().count() == chosen.len()
                    && of_chosen.clone().all(|node| node["flushed"][shard] == last)
            })
        });
    }

    fn store(&self, node: usize, shard: usize) -> PathBuf {
        let folder = self.cluster.nodes[node].data_dir();
        if self.topics.len() > 1 {
            folder.join("shards").join(shard.to_string())
        } else {
            folder
        }
    }

    /// The nodes without a copy have its files no more. A node says so before it removes them.
    fn wait_for_disks(&self, nodes: &[usize]) {
        for shard in 0..self.topics.len() {
            let chosen = self.chosen(shard, nodes);
            for node in nodes {
                let folder = self.store(*node, shard).join("rocksdb");
                let is_there = chosen.contains(NAMES[*node]);
                let what = format!(
                    "{} to have a copy of shard {shard}: {is_there}",
                    NAMES[*node]
                );
                wait_for(&what, LONG, || (size(&folder) > FILLED) == is_there);
            }
        }
    }

    /// The node that owns a shard, as another one sees it.
    fn owner(&self, node: usize, shard: usize) -> Option<usize> {
        let view = self.cluster.nodes[node]
            .command("GET", "/cluster/ownership", &Value::Null)
            .json();
        let owner = view["value"][shard]["ownerName"].as_str()?.to_owned();
        NAMES.iter().position(|name| *name == owner)
    }

    /// Waits until each shard is owned by a node that should have a copy of it.
    fn wait_for_owners(&self, node: usize, nodes: &[usize]) {
        wait_for("owners with a copy", START, || {
            (0..self.topics.len()).all(|shard| {
                self.owner(node, shard)
                    .is_some_and(|owner| self.chosen(shard, nodes).contains(NAMES[owner]))
            })
        });
    }

    /// Waits until a node has removed all from the streams that these have synced.
    fn wait_until_trimmed(&self) {
        wait_for("the streams to be trimmed", START, || {
            (0..self.topics.len()).all(|shard| {
                let stream = format!("GH_test_{shard}");
                self.cluster.nats.0[0].first(&stream) + 2
                    >= self.cluster.nats.0[0].messages(&stream, u64::MAX - 1).1
            })
        });
    }
}

/// Nodes join and fetch copies, an owner is killed and replaced, and comes back.
fn place(shards: u16) {
    if !has_nats() {
        return;
    }
    let mut placed = Placed::start(shards);
    placed.cluster.join_each(2..4);
    placed.wait_for_copies(0, &[0, 1, 2, 3]);
    placed.wait_for_owners(0, &[0, 1, 2, 3]);
    placed.wait_for_disks(&[0, 1, 2, 3]);
    let without = (0..4)
        .find(|node| !placed.chosen(0, &[0, 1, 2, 3]).contains(NAMES[*node]))
        .expect("a node");
    let error = operator(
        &placed.cluster.nodes[0],
        &["cluster", "move", "0", NAMES[without]],
    )
    .expect_err("no copy");
    assert!(error.contains("has no copy of shard 0"), "{error}");
    let printed =
        operator(&placed.cluster.nodes[without], &["cluster", "ownership"]).expect("a table");
    let with_copy: Vec<&str> = placed.chosen(0, &[0, 1, 2, 3]).into_iter().collect();
    assert!(printed.contains(&with_copy.join(" ")), "{printed}");
    wait_for("the metrics of the copies", LONG, || {
        let metrics = placed.cluster.nodes[without]
            .command("GET", "/metrics", &Value::Null)
            .text();
        metrics.contains("gridhook_cluster_shard_copies{shard=\"0\"} 2")
    });
    for node in 0..4 {
        placed.publish(node, 2);
    }
    let killed = placed.owner(0, 0).expect("an owner");
    let others: Vec<usize> = (0..4).filter(|node| *node != killed).collect();
    placed.cluster.nodes[killed].kill_9();
    placed.publish(others[0], 5);
    // The node with the other copy has taken over before a new one was made.
    placed.wait_for_owners(others[0], &[0, 1, 2, 3]);
    placed.wait_for_copies(others[0], &others);
    placed.wait_for_owners(others[0], &others);
    placed.wait_for_disks(&others);
    placed.publish(others[1], 2);
    placed.wait_until_trimmed();
    placed.cluster.join(killed);
    placed.wait_for_copies(killed, &[0, 1, 2, 3]);
    placed.wait_for_owners(killed, &[0, 1, 2, 3]);
    placed.publish(killed, 2);
    for (name, ids) in placed.topics.iter().zip(&placed.published) {
        wait_until_settled(&placed.cluster.nodes[killed], name, "all");
        let repeated = assert_arrived(&placed.sink, &format!("/{name}"), ids);
        println!(
            "{name}: {} acknowledged, {} repeated",
            ids.len(),
            repeated.len()
        );
    }
    placed.wait_until_trimmed();
    for node in 0..4 {
        placed.cluster.nodes[node].terminate();
        for shard in 0..usize::from(shards) {
            let (status, report) = fsck(&placed.store(node, shard));
            assert!(status.success(), "{report}");
        }
    }
    placed.wait_for_disks(&[0, 1, 2, 3]);
}

#[test]
fn two_of_four_nodes_have_a_copy_of_each_shard_and_others_take_the_place_of_a_dead_one() {
    place(3);
}

#[test]
fn two_of_four_nodes_have_a_copy_of_the_only_shard_and_the_others_forward() {
    place(1);
}
