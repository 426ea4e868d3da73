//! Three nodes that replicate one store through three servers of NATS: what availability costs,
//! beside one node without a cluster, and beside NATS alone with as many bytes. Then the same nodes
//! with several shards, beside one.

mod polls;

use std::{fs, ops::Range, time::Duration};

use gridhook::cluster::shard_of;
use serde_json::{Value, json};

use super::{MEGABYTE, USUAL};
use crate::{
    harness::{
        Bench,
        endpoint::Endpoint,
        floor::Floor,
        load::{Amount, SUBJECT, Shape, TYPE, Target, closed},
        row::{Against, Row},
        stage::Cost,
        time::now,
    },
    support::{
        nats::{NatsCluster, PASSWORD, has_nats},
        process,
        server::{Server, SubscriptionSpec, events_path, wait_for},
    },
};

const TOKEN: &str = "token-of-all-nodes-of-the-bench";

/// Nodes and servers of NATS that start.
const START: Duration = Duration::from_secs(120);

const STREAM: &str = "floor";

/// The shards of three nodes that deliver together.
const SHARDS: usize = 6;

/// The shards of a node whose memory is measured.
const MANY_SHARDS: usize = 16;

/// How long an idle node is left alone before it is measured, and while it is measured.
const IDLE: Duration = Duration::from_secs(5);

/// The place in the list of servers of the one without a cluster.
const ALONE: usize = 0;

/// The places of three nodes with one shard, of which the first is the owner.
const NODES: Range<usize> = 1..4;

/// The places of three nodes with several shards.
const SHARDED: Range<usize> = 4..7;

/// The places of two servers that are a cluster each, one with one shard and one with many.
const IDLING: Range<usize> = 7..9;

/// The servers and figures that are measured in turn.
struct Turn {
    /// Microseconds of processor time for each event, and events a second.
    nats: (f64, f64),
    single: Cost,
    cluster: Cost,
}

pub(crate) fn run(bench: &Bench) -> Vec<Row> {
    if !has_nats() {
        return Vec::new();
    }
    let mut stage = ClusterStage::start();
    let endpoint = Endpoint::start();
    let connections = bench.scale.connections;
    let shapes = [
        (
            "22",
            "a cluster, one event a request: CPU of all an event",
            Shape::ONE,
            connections,
            2.0,
        ),
        (
            "23",
            "a cluster, 100 events a request: CPU of all an event",
            Shape::HUNDRED,
            connections.min(4),
            2.5,
        ),
    ];
    let rows = shapes.map(|(number, what, shape, connections, budget)| {
        let events = shape.events as u32;
        let targets = [ALONE, NODES.start]
            .map(|server| [stage.topic(server, &format!("of{events}"), &endpoint, events)]);
        let messages = bench.scale.fanned * 10 / u64::from(events).min(10);
        let mut floor = Floor::nats(
            bench.again,
            &stage.nats.urls(),
            STREAM,
            connections,
            shape.events * shape.bytes,
        );
        let mut turn = |time: Duration| Turn {
            nats: stage.alone(&mut floor, messages, shape),
            single: stage.cost(
                ALONE..NODES.start,
                false,
                &endpoint,
                (&targets[0], shape, connections, time),
            ),
            cluster: stage.cost(
                NODES,
                true,
                &endpoint,
                (&targets[1], shape, connections, time),
            ),
        };
        turn(bench.scale.time / 4);
        let turns: Vec<Turn> = (0..bench.scale.runs)
            .map(|_| turn(bench.scale.time))
            .collect();
        let last = turns.last().expect("one run at least");
        let beside = [
            ("one node: µs", last.single.each()),
            ("one node: events/s", last.single.rate()),
            ("NATS alone: events/s", last.nats.1),
        ];
        let beside = beside.map(|(name, value)| (name.to_owned(), value));
        Row {
            number,
            what,
            on: format!("{USUAL}; three nodes, three servers of NATS that sync always"),
            unit: "µs",
            floor_is: "NATS alone, three copies, as many bytes: client and servers",
            against: Against::Floor,
            budget,
            stretch: 1.5,
            figures: turns.iter().map(|turn| turn.cluster.each()).collect(),
            floors: turns.iter().map(|turn| turn.nats.0).collect(),
            beside: last.cluster.beside().into_iter().chain(beside).collect(),
        }
    });
    let of_shards = measure_shards(bench, &mut stage, &endpoint);
    let of_polls = polls::rows(bench, &stage);
    rows.into_iter()
        .chain([of_shards, measure_idle_shards(bench, &mut stage)])
        .chain(of_polls)
        .collect()
}

/// Six topics, each in a shard of its own or all in one, published to all nodes in turn, as by a
/// load balancer.
fn measure_shards(bench: &Bench, stage: &mut ClusterStage, endpoint: &Endpoint) -> Row {
    stage.run_all(SHARDED, SHARDS);
    let named = |shard| {
        (0..)
            .map(|number| format!("topic-{number}"))
            .find(|name| shard_of(name, SHARDS) == shard)
    };
    let names: Vec<String> = (0..SHARDS)
        .map(|shard| named(shard).expect("a name in each shard"))
        .collect();
    let shape = Shape::HUNDRED;
    let topics = [NODES, SHARDED].map(|nodes| {
        let targets = names.iter().zip(nodes.cycle());
        targets
            .map(|(name, node)| stage.topic(node, name, endpoint, shape.events as u32))
            .collect::<Vec<_>>()
    });
    let connections = bench.scale.connections.min(2 * SHARDS);
    let turn = |time| {
        [(NODES, &topics[0]), (SHARDED, &topics[1])].map(|(nodes, topics)| {
            stage.cost(nodes, true, endpoint, (topics, shape, connections, time))
        })
    };
    turn(bench.scale.time / 4);
    let turns: Vec<[Cost; 2]> = (0..bench.scale.runs)
        .map(|_| turn(bench.scale.time))
        .collect();
    let [one, six] = turns.last().expect("one run at least");
    let of_one = [("one shard: events/s".to_owned(), one.rate())];
    Row {
        number: "24",
        what: "three nodes with six shards, 100 events a request: CPU of all an event",
        on: format!(
            "{USUAL}; six topics, called through all nodes; three servers of NATS that sync always"
        ),
        unit: "µs",
        floor_is: "one shard",
        against: Against::Floor,
        budget: 1.25,
        stretch: 1.0,
        figures: turns.iter().map(|[_, six]| six.each()).collect(),
        floors: turns.iter().map(|[one, _]| one.each()).collect(),
        beside: six.beside().into_iter().chain(of_one).collect(),
    }
}

/// Measures what shards cost a node that has nothing to do.
fn measure_idle_shards(bench: &Bench, stage: &mut ClusterStage) -> Row {
    for (node, shards) in IDLING.zip([1, MANY_SHARDS]) {
        stage.run_all(node..node + 1, shards);
    }
    let ids: Vec<u32> = IDLING.map(|node| stage.servers[node].id()).collect();
    let pause = bench.scale.time.min(IDLE);
    std::thread::sleep(pause);
    let measured = (0..bench.scale.runs).map(|_| {
        let before: Vec<Duration> = ids.iter().map(|id| process::processor(*id)).collect();
        std::thread::sleep(pause);
        let spent = ids
            .iter()
            .zip(before)
            .map(|(id, before)| process::processor(*id) - before);
        let idle: Vec<f64> = spent
            .map(|spent| spent.as_secs_f64() * 1e3 / pause.as_secs_f64())
            .collect();
        (
            ids.iter()
                .map(|id| process::resident(*id) as f64 / MEGABYTE)
                .collect::<Vec<_>>(),
            idle,
        )
    });
    let measured: Vec<_> = measured.collect();
    let idle = &measured.last().expect("one run at least").1;
    let beside = [
        ("one shard: ms of CPU a second", idle[0]),
        ("sixteen: ms of CPU a second", idle[1]),
    ];
    Row {
        number: "25",
        what: "a node with sixteen shards, idle: memory",
        on: "no topics".to_owned(),
        unit: "MB",
        floor_is: "one shard",
        against: Against::Floor,
        budget: 1.3,
        stretch: 1.1,
        figures: measured.iter().map(|(memory, _)| memory[1]).collect(),
        floors: measured.iter().map(|(memory, _)| memory[0]).collect(),
        beside: beside.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}

/// One node without a cluster, and the nodes of four clusters.
struct ClusterStage {
    nats: NatsCluster,
    servers: Vec<Server>,
    _files: tempfile::TempDir,
}

impl ClusterStage {
    fn start() -> Self {
        let nats = NatsCluster::start(3, "always");
        nats.0[0].create_replicated(STREAM, 3);
        let files = tempfile::tempdir().expect("a folder");
        let secret = files.path().join("secret");
        fs::write(&secret, PASSWORD).expect("a file");
        let secret = secret.display().to_string();
        let urls = nats.urls().join(",");
        let usual = [
            ("SERVER__ADMIN_TOKEN", TOKEN),
            ("DELIVERY__VALIDATE", "false"),
            ("JOURNAL__BACKLOG_MAX", "64 GiB"),
        ];
        let node = |cluster: &'static str, name: &'static str| {
            let of_cluster = [
                ("CLUSTER__ENGINE", "nats"),
                ("CLUSTER__NAME", cluster),
                ("CLUSTER__NODE", name),
                ("CLUSTER__URLS", urls.as_str()),
                ("CLUSTER__USERNAME", "gridhook"),
                ("CLUSTER__PASSWORD_FILE", secret.as_str()),
                ("CLUSTER__DURABILITY", "unchecked"),
                ("CLUSTER__NODE_LISTEN", "127.0.0.1:0"),
                ("CLUSTER__SECRET_FILE", secret.as_str()),
                // A machine with other work ends no lease.
                ("CLUSTER__EXPIRY", "20s"),
            ];
            // The clusters share the room of the servers of NATS, which they reserve.
            let (keep_bytes, stream_bytes) = if cluster.starts_with("idle") {
                ("16 MiB", "64 MiB")
            } else {
                ("256 MiB", "1 GiB")
            };
            let of_stream = [
                ("CLUSTER__STREAM_KEEP_BYTES", keep_bytes),
                ("CLUSTER__STREAM_BYTES", stream_bytes),
            ];
            [&usual[..], &of_cluster, &of_stream].concat()
        };
        let shards = SHARDS.to_string();
        let many_shards = MANY_SHARDS.to_string();
        let sharded = |cluster, name, shards| {
            let of_shards = [("CLUSTER__SHARDS", shards)];
            [node(cluster, name), of_shards.into()].concat()
        };
        let settings = [
            usual.to_vec(),
            node("one", "a"),
            node("one", "b"),
            node("one", "c"),
            sharded("six", "a", shards.as_str()),
            sharded("six", "b", &shards),
            sharded("six", "c", &shards),
            node("idle-one", "a"),
            sharded("idle-many", "a", &many_shards),
        ];
        let servers = Server::several(&settings, None);
        let mut stage = Self {
            nats,
            servers,
            _files: files,
        };
        for server in &mut stage.servers {
            fs::create_dir_all(server.data_dir()).expect("a folder");
            fs::write(server.data_dir().join("admin-token"), TOKEN).expect("a file");
        }
        stage.servers[ALONE].restart();
        stage.run_all(NODES, 1);
        wait_for("the first node to own the store", START, || {
            stage.owners(NODES.start) == ["a"]
        });
        stage
    }

    /// Starts the nodes of a cluster with this number of shards, and returns when each node has its
    /// part.
    fn run_all(&mut self, nodes: Range<usize>, shards: usize) {
        for server in &mut self.servers[nodes.clone()] {
            server.restart();
        }
        wait_for("an owner of every shard", START, || {
            let owners = self.owners(nodes.start);
            let owned = |name: &&str| owners.iter().filter(|owner| owner == name).count();
            let parts: Vec<usize> = ["a", "b", "c"][..nodes.len()].iter().map(owned).collect();
            parts.iter().sum::<usize>() == shards
                && parts
                    .iter()
                    .all(|part| part * nodes.len() < shards + nodes.len())
        });
    }

    /// The owners of all shards with topics.
    fn owners(&self, node: usize) -> Vec<String> {
        let records = self.servers[node]
            .command("GET", "/cluster/ownership", &Value::Null)
            .json();
        let records = records["value"].as_array().cloned().unwrap_or_default();
        records
            .iter()
            .filter(|record| record["partitionId"] != "control")
            .filter_map(|record| record["ownerName"].as_str().map(str::to_owned))
            .collect()
    }

    /// A topic of a server with a subscription whose deliveries have up to this number of events.
    fn topic(&self, server: usize, name: &str, endpoint: &Endpoint, events: u32) -> Target {
        let server = &self.servers[server];
        let key = server.topic_of(
            name,
            &json!({"inputSchema": "EventGridSchema", "edition": "current"}),
        );
        let usual = SubscriptionSpec::new(&endpoint.url(&format!("/{name}")))
            .types(&[TYPE])
            .prefix(SUBJECT);
        server.subscribe(name, "billing", &usual.batch(events));
        Target {
            at: server.address(),
            path: events_path(name),
            key,
            tls: None,
        }
    }

    /// Measures what a load costs these servers, and NATS with them.
    fn cost(
        &self,
        servers: Range<usize>,
        has_nats: bool,
        endpoint: &Endpoint,
        (targets, shape, connections, time): (&[Target], Shape, usize, Duration),
    ) -> Cost {
        let nats = self
            .nats
            .0
            .iter()
            .filter(|_| has_nats)
            .map(|nats| nats.id());
        let processes: Vec<u32> = self.servers[servers]
            .iter()
            .map(Server::id)
            .chain(nats)
            .collect();
        let load = || closed(targets, shape, connections, Amount::For(time));
        Cost::measure_all(&processes, endpoint, 1, load)
    }

    /// Measures what NATS costs alone, with its client.
    fn alone(&self, floor: &mut Floor, messages: u64, shape: Shape) -> (f64, f64) {
        let processes: Vec<u32> = self
            .nats
            .0
            .iter()
            .map(|nats| nats.id())
            .chain([floor.id()])
            .collect();
        let spent = || {
            processes
                .iter()
                .map(|id| process::processor(*id))
                .sum::<Duration>()
        };
        let before = spent();
        let began = now();
        floor.call(messages);
        let took = now() - began;
        let events = (messages * shape.events as u64) as f64;
        (
            (spent() - before).as_secs_f64() * 1e6 / events,
            events * 1e9 / took as f64,
        )
    }
}
