//! The storm: nodes and servers of NATS are killed, paused and stopped in the same rounds, the
//! network between them is slow or cut, and streams are full, under every kind of work. At last a
//! stream is rolled back.

use std::{process::Command, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;

use gridhook::cluster::shard_of;
use serde_json::{Value, json};

use super::{
    ChangelogReader, Cluster, LONG, START,
    clients::{Clients, LOCK, Published, Pulled, publishes, pulls, topic_without_duplicates},
    shards::{SHARDS, Sharded, assert_shards_sound, names},
};
use crate::{
    server::{assert_arrived, end_waits, many, pull::RG, wait_until_settled},
    support::{
        load,
        nats::{Nats, NatsCluster, StreamBackup, has_nats},
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Behavior, Sink},
        tcp_proxy::{Cut, Direction, TcpProxy},
    },
};

/// How long a fault lasts: longer than a lease.
const FAULT: Duration = Duration::from_secs(3);

/// The most events that an owner has in flight, of one event subscription.
const IN_FLIGHT: usize = 250;

/// The delay in milliseconds of messages from a slow node to NATS: more than half of a renewal.
const SLOW: u64 = 300;

/// The proxies between each node and the servers of NATS.
struct Links(Vec<Vec<TcpProxy>>);

impl Links {
    fn new(nats: &NatsCluster, nodes: usize) -> Self {
        let link = |nats: &Nats| TcpProxy::start(&[nats.address()]);
        let links = (0..nodes).map(|_| nats.0.iter().map(link).collect());
        Self(links.collect())
    }

    /// The setting of a node that reaches NATS through its proxies only.
    fn setting(&self, node: usize) -> Vec<(&'static str, String)> {
        let urls = self.0[node]
            .iter()
            .map(|proxy| format!("nats://{}", proxy.address()));
        let urls: Vec<String> = urls.collect();
        vec![("CLUSTER__URLS", urls.join(","))]
    }

    /// Makes the network of a node as bad as it is in this round.
    fn disturb(&self, node: usize, round: usize) {
        let cut = [
            Cut::Nothing,
            Cut::Both,
            Cut::One(Direction::ToClient),
            Cut::One(Direction::ToServer),
        ][round % 4];
        let delay = if cut == Cut::Nothing { SLOW } else { 0 };
        println!("node {node}: {cut:?} of the network, {delay} ms");
        for proxy in &self.0[node] {
            proxy.cut(cut);
            proxy.delay(delay);
        }
    }

    fn mend(&self, node: usize) {
        for proxy in &self.0[node] {
            proxy.cut(Cut::Nothing);
            proxy.delay(0);
        }
    }
}

/// A topic, what was acknowledged, and the path of its endpoint.
struct Topic {
    name: String,
    key: String,
    published: Vec<Arc<Mutex<Published>>>,
}

impl Topic {
    fn path(&self) -> String {
        format!("/{}", self.name)
    }

    fn acknowledged(&self) -> Vec<String> {
        let ids = |published: &Arc<Mutex<Published>>| published.lock().ids.clone();
        self.published.iter().flat_map(ids).collect()
    }
}

fn signal(nats: &Nats, name: &str) {
    let sent = Command::new("sh")
        .args([
            "-c",
            &format!("kill -{name} \"$0\""),
            &nats.id().to_string(),
        ])
        .status();
    assert!(sent.expect("a shell").success(), "a signal is sent");
}

/// The stream of the shard of a topic.
fn stream_name(topic: &str) -> String {
    format!("GH_test_{}", shard_of(topic, usize::from(SHARDS)))
}

/// Sets the limit of a stream once its servers have a leader, and returns the one before.
fn limit_stream(nats: &Nats, stream: &str, max_bytes: Option<i64>) -> i64 {
    let mut before = None;
    wait_for("a leader of the stream", START, || {
        before = nats.try_limit(stream, max_bytes);
        before.is_some()
    });
    before.expect("it was waited for")
}

/// A stream that is rolled back loses nothing in silence: its shard is refused, and no other one.
fn assert_rollback_is_refused(cluster: &Cluster, backup: &StreamBackup, topics: &[Topic]) {
    let [rolled_back, other] = [&topics[1], &topics[2]];
    let shard = shard_of(&rolled_back.name, usize::from(SHARDS));
    cluster.nats.0[0].restore(backup);
    let publish = |node: &Server, topic: &Topic| {
        let body = load::body(&["rolled-back".to_owned()], "/a");
        let headers = [("aeg-sas-key", topic.key.as_str())];
        let path = events_path(&topic.name);
        let response = node.client().ask("POST", &path, &headers, &body);
        response.expect("a response").status
    };
    wait_for("all nodes to refuse the shard", START, || {
        cluster.nodes.iter().all(|node| {
            assert_ne!(publish(node, rolled_back), 200);
            let view = node.request_without_token("GET", "/readyz", &[]).json();
            let problem = format!("cannot serve shard {shard}");
            view["problems"].to_string().contains(&problem)
        })
    });
    wait_for("the other shards to be served", START, || {
        cluster.nodes.iter().all(|node| publish(node, other) == 200)
    });
}

/// Makes a namespace with a queue, and returns its key.
fn queue(server: &Server) -> String {
    server.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    server.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
    let queue =
        json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": LOCK.as_secs()}});
    let queue = json!({"properties": {"deliveryConfiguration": queue}});
    let work = format!("{RG}/plant/topics/heat/eventSubscriptions/work");
    server.command("PUT", &work, &queue);
    let keys = server
        .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
        .json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// The number of a publisher's request and event, in the order of its requests.
fn order_of(id: &str) -> (u64, u64) {
    let mut parts = id.rsplit('-').map(|part| part.parse().expect("a number"));
    let event = parts.next().expect("an event");
    (parts.next().expect("a request"), event)
}

/// The events of each publisher, who has a key of its own, were taken in their order.
fn assert_in_order(sink: &Sink, topic: &Topic) {
    for published in &topic.published {
        let mut ids = published.lock().ids.clone();
        ids.sort_by_key(|id| order_of(id));
        let times = sink.look(&topic.path(), |ledger| {
            let first = |id: &String| {
                let taken = ledger[id].iter().filter(|arrival| arrival.is_taken());
                taken.map(|arrival| arrival.answered).min().expect("taken")
            };
            ids.iter().map(first).collect::<Vec<_>>()
        });
        let is_late = times.windows(2).position(|pair| pair[0] > pair[1]);
        assert_eq!(is_late, None, "{}: out of order", topic.name);
    }
}

/// The faults of a round.
#[derive(Debug)]
struct RoundFault {
    round: usize,
    node: usize,
    node_signal: &'static str,
    server: usize,
    server_signal: &'static str,
    /// Another server of NATS, which is paused: for a while there is no majority.
    paused_server: Option<usize>,
    /// A stream that is full. It is one whose records are not read in the end, because full
    /// streams are trimmed.
    full_stream: Option<String>,
}

impl RoundFault {
    fn new(round: usize, names: &[String]) -> Self {
        let server = (round + round / 2) % 3;
        Self {
            round,
            node: round % 3,
            node_signal: ["KILL", "STOP", "TERM"][(round + round / 3) % 3],
            server,
            server_signal: ["STOP", "KILL", "TERM"][(round / 2) % 3],
            paused_server: (round % 4 == 3).then_some((server + 1) % 3),
            full_stream: (round % 4 == 2).then(|| stream_name(&names[0])),
        }
    }

    fn inject_and_mend(&self, cluster: &mut Cluster, links: &Links, balancer: &TcpProxy) {
        let distant_node = (self.node + 1) % 3;
        let limit = self
            .full_stream
            .as_ref()
            .map(|stream| limit_stream(&cluster.nats.0[self.server], stream, None));
        links.disturb(distant_node, self.round / 2);
        cluster.nodes[self.node].signal(self.node_signal);
        signal(&cluster.nats.0[self.server], self.server_signal);
        if let Some(paused) = self.paused_server {
            signal(&cluster.nats.0[paused], "STOP");
        }
        thread::sleep(FAULT);
        self.mend_servers(cluster);
        links.mend(distant_node);
        if let Some(stream) = &self.full_stream {
            limit_stream(&cluster.nats.0[self.server], stream, limit);
        }
        self.mend_node(cluster, balancer);
    }

    fn mend_servers(&self, cluster: &mut Cluster) {
        if let Some(paused) = self.paused_server {
            signal(&cluster.nats.0[paused], "CONT");
        }
        let server = &mut cluster.nats.0[self.server];
        if self.server_signal == "STOP" {
            signal(server, "CONT");
        } else {
            server.kill();
            server.start();
        }
    }

    fn mend_node(&self, cluster: &mut Cluster, balancer: &TcpProxy) {
        if self.node_signal == "STOP" {
            cluster.nodes[self.node].signal("CONT");
        } else {
            cluster.nodes[self.node].wait(START);
            balancer.turn_to(&cluster.addresses());
            cluster.join(self.node);
        }
        balancer.turn_to(&cluster.addresses());
    }
}

/// Starts two publishers of each topic. The topics are delivered in order, without retries, with
/// retries in probation, and in all shards.
fn start_publishers(
    node: &Server,
    sink: &Sink,
    balancer: &TcpProxy,
    clients: &mut Clients,
    names: &[String],
) -> Vec<Topic> {
    let mut topics = Vec::new();
    for name in [&names[1], &names[2], &names[3], &"wide".to_owned()] {
        let key = if name == "wide" {
            let keys = node.command("POST", &format!("{SCOPE}/wide/listKeys"), &Value::Null);
            keys.json()["key1"].as_str().expect("a key").to_owned()
        } else {
            topic_without_duplicates(node, name)
        };
        let mut spec = SubscriptionSpec::new(&sink.url(&format!("/{name}")));
        if *name == names[1] {
            spec = spec.also(&json!({}), &json!({"ordering": {"key": "subject"}}));
        }
        node.subscribe(name, "all", &spec);
        let published = [(0, "/a"), (1, "/b")]
            .map(|publisher| publishes(clients, balancer.address(), (name, &key), publisher));
        topics.push(Topic {
            name: name.clone(),
            key,
            published: published.into(),
        });
    }
    topics
}

#[test]
fn nothing_acknowledged_is_lost_while_nodes_and_nats_servers_fail_in_the_same_rounds() {
    if !has_nats() {
        return;
    }
    let nats = NatsCluster::start(3, "always");
    let links = Links::new(&nats, 3);
    let mut sharded = Sharded::start_each_on(nats, |node| links.setting(node));
    let cluster = &mut sharded.cluster;
    let sink = Sink::start();
    let names = names();
    let first = &cluster.nodes[0];
    let wide = format!("{SCOPE}/wide");
    let partitions = SHARDS.to_string();
    operator(
        first,
        &["topics", "create", &wide, "--partitions", &partitions],
    )
    .expect("a topic");
    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    let topics = start_publishers(first, &sink, &balancer, &mut clients, &names);
    let backup = cluster.nats.0[0].back_up(&stream_name(&topics[1].name));
    let pulled = pulls(&mut clients, balancer.address(), &queue(first));
    let rounds = many(8, 50);
    for round in 0..rounds {
        let fault = RoundFault::new(round, &names);
        println!("round {round}: {fault:?}");
        let counts: Vec<usize> = topics
            .iter()
            .map(|topic| topic.acknowledged().len())
            .collect();
        let status = if round % 2 == 0 { 503 } else { 200 };
        sink.set(&topics[2].path(), Behavior::Respond(status));
        fault.inject_and_mend(cluster, &links, &balancer);
        for (topic, count) in topics.iter().zip(counts) {
            wait_for("publishers to be served", START, || {
                topic.acknowledged().len() > count + 20
            });
        }
        for node in &mut cluster.nodes {
            assert!(!node.has_ended(), "{}", node.logs());
        }
    }
    sink.set(&topics[2].path(), Behavior::Respond(200));
    stop_clients(clients, &pulled);
    for topic in &topics {
        assert_topic_lost_nothing(cluster, &sink, topic);
    }
    assert_in_order(&sink, &topics[0]);
    wait_for("the nodes to be whole", LONG, || {
        cluster.nodes.iter().all(|node| {
            let response = node.client().ask("GET", "/readyz", &[], b"");
            response.is_ok_and(|response| response.status == 200)
        })
    });
    assert_rollback_is_refused(cluster, &backup, &topics);
    for node in &mut cluster.nodes {
        node.terminate();
        assert_shards_sound(node);
    }
}

fn assert_topic_lost_nothing(cluster: &Cluster, sink: &Sink, topic: &Topic) {
    let node = &cluster.nodes[0];
    end_waits(node, &topic.name, "all");
    wait_until_settled(node, &topic.name, "all");
    let acknowledged = topic.acknowledged();
    let repeated = assert_arrived(sink, &topic.path(), &acknowledged).len();
    println!(
        "{}: {} acknowledged, {repeated} repeated",
        topic.name,
        acknowledged.len()
    );
    if topic.name == "wide" {
        return;
    }
    let mut changelog = ChangelogReader::new(shard_of(&topic.name, usize::from(SHARDS)));
    changelog.read(&cluster.nats);
    assert_eq!(changelog.of_former, Vec::<u64>::new(), "{}", topic.name);
    let in_flight_max = changelog.unreleased * IN_FLIGHT;
    assert!(
        repeated <= in_flight_max,
        "{repeated} repeated, and {in_flight_max} were in flight"
    );
}

fn stop_clients(clients: Clients, pulled: &Mutex<Pulled>) {
    let published = pulled.lock().published.clone();
    wait_for("all pulled events to be acknowledged", 3 * LOCK, || {
        published.is_subset(&pulled.lock().acknowledged)
    });
    clients.stop();
    assert!(pulled.lock().wrong.is_empty(), "{:?}", pulled.lock().wrong);
}
