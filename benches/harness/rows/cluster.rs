//! Three nodes that replicate one store through three servers of NATS: what availability costs, beside one node without a
//! cluster, and beside NATS alone with as many bytes.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use super::USUAL;
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

/// The token of all nodes.
const TOKEN: &str = "token-of-all-nodes-of-the-bench";

/// Nodes and servers of NATS that start.
const START: Duration = Duration::from_secs(120);

/// The stream of the floor.
const STREAM: &str = "floor";

/// What is measured in turn.
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
    let stage = ClusterStage::start();
    let endpoint = Endpoint::start();
    let connections = bench.scale.connections;
    let shapes = [
        ("22", "a cluster, one event a request: CPU of all an event", Shape::ONE, connections),
        ("23", "a cluster, 100 events a request: CPU of all an event", Shape::HUNDRED, connections.min(4)),
    ];
    let rows = shapes.map(|(number, what, shape, connections)| {
        let events = shape.events as u32;
        let targets = [0, 1].map(|server: usize| stage.topic(server, &format!("of{events}"), &endpoint, events));
        let messages = bench.scale.fanned * 10 / u64::from(events).min(10);
        let mut floor = Floor::nats(bench.again, &stage.nats.urls(), STREAM, connections, shape.events * shape.bytes);
        let mut turn = |time: Duration| Turn {
            nats: stage.alone(&mut floor, messages, shape),
            single: stage.cost(&[&stage.servers[0]], false, &endpoint, (&targets[0], shape, connections, time)),
            cluster: stage.cost(
                &stage.servers[1..].iter().collect::<Vec<_>>(),
                true,
                &endpoint,
                (&targets[1], shape, connections, time),
            ),
        };
        turn(bench.scale.time / 4);
        let turns: Vec<Turn> = (0..bench.scale.runs).map(|_| turn(bench.scale.time)).collect();
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
            budget: 3.0,
            stretch: 2.0,
            figures: turns.iter().map(|turn| turn.cluster.each()).collect(),
            floors: turns.iter().map(|turn| turn.nats.0).collect(),
            beside: last.cluster.beside().into_iter().chain(beside).collect(),
        }
    });
    rows.into()
}

/// One node without a cluster, and three nodes of one.
struct ClusterStage {
    nats: NatsCluster,
    /// The one alone is the first; the owner is the second.
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
        let (secret, urls) = (secret.display().to_string(), nats.urls().join(","));
        let usual =
            [("SERVER__ADMIN_TOKEN", TOKEN), ("DELIVERY__VALIDATE", "false"), ("JOURNAL__BACKLOG_MAX", "64 GiB")];
        let node = |name: &'static str| {
            let of_cluster = [
                ("CLUSTER__ENGINE", "nats"),
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
            [&usual[..], &of_cluster].concat()
        };
        let mut servers = Server::several(&[usual.to_vec(), node("a"), node("b"), node("c")], None);
        for server in &mut servers {
            fs::create_dir_all(server.data_dir()).expect("a folder");
            fs::write(server.data_dir().join("admin-token"), TOKEN).expect("a file");
            server.restart();
        }
        let stage = Self { nats, servers, _files: files };
        wait_for("the first node to own the store", START, || {
            let records = stage.servers[1].command("GET", "/cluster/ownership", &Value::Null).json();
            records["value"][0]["ownerName"] == "a"
        });
        stage
    }

    /// A topic of a server with a subscription whose deliveries have up to this number of events.
    fn topic(&self, server: usize, name: &str, endpoint: &Endpoint, events: u32) -> Target {
        let server = &self.servers[server];
        let key = server.topic_of(name, &json!({"inputSchema": "EventGridSchema", "edition": "current"}));
        let usual = SubscriptionSpec::of(&endpoint.url(&format!("/{name}"))).types(&[TYPE]).prefix(SUBJECT);
        server.subscribe(name, "billing", &usual.batch(events));
        Target { at: server.at(), path: events_path(name), key, tls: None }
    }

    /// What a load costs these servers, and NATS with them.
    fn cost(
        &self,
        servers: &[&Server],
        has_nats: bool,
        endpoint: &Endpoint,
        (target, shape, connections, time): (&Target, Shape, usize, Duration),
    ) -> Cost {
        let nats = self.nats.0.iter().filter(|_| has_nats).map(|nats| nats.id());
        let processes: Vec<u32> = servers.iter().map(|server| server.id()).chain(nats).collect();
        let load = || closed(std::slice::from_ref(target), shape, connections, Amount::For(time));
        Cost::of_all(&processes, endpoint, 1, load)
    }

    /// What NATS costs alone, the client with it.
    fn alone(&self, floor: &mut Floor, messages: u64, shape: Shape) -> (f64, f64) {
        let processes: Vec<u32> = self.nats.0.iter().map(|nats| nats.id()).chain([floor.id()]).collect();
        let spent = || processes.iter().map(|id| process::processor(*id)).sum::<Duration>();
        let (before, began) = (spent(), now());
        floor.call(messages);
        let (took, events) = (now() - began, (messages * shape.events as u64) as f64);
        ((spent() - before).as_secs_f64() * 1e6 / events, events * 1e9 / took as f64)
    }
}
