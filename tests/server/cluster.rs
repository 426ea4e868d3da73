//! Three nodes of a cluster, as processes, on servers of NATS: one owns the store, and another one
//! when it is killed, paused or stopped.

mod alone;
mod chaos;
mod clients;
mod copies;
mod cuts;
mod files;
mod forwarding;
mod machine;
mod membership;
mod pull;
mod restore;
mod restored;
mod rolling;
mod routing;
mod schedule;
mod setup;
pub(crate) mod shards;
mod spread;
mod starting;
mod storm;
mod tls;

use std::{fs, net::SocketAddr, ops::Range, sync::Arc, time::Duration};

use gridhook::{
    clock::Clock,
    journal::changelog::record::{Body, Record},
};
use serde_json::json;

use super::{LONG, assert_arrived, wait_until_settled};
use crate::{
    spec::{fact, shows},
    support::{
        load::{self, Load, Rate},
        nats::{NatsCluster, PASSWORD, has_nats},
        port::ReservedPort,
        server::{SCOPE, Server, SubscriptionSpec, say, wait_for},
        sink::{Behavior, Ledger, Sink},
        tcp_proxy::TcpProxy,
    },
};

/// The token of all nodes.
const TOKEN: &str = "token-of-all-nodes-of-the-cluster";

/// The secret of all nodes.
const SECRET: &str = "secret-of-all-nodes-of-the-cluster";

/// The names of nodes.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Nodes and servers that start on a machine with other work.
const START: Duration = Duration::from_secs(120);

/// Leases that no busy machine ends, for tests that pause and cut nothing. A kill is seen at once
/// all the same.
const CALM: (&str, &str) = ("CLUSTER__EXPIRY", "20s");

/// The stream of the shard.
const STREAM: &str = "GH_test_0";

/// Nodes of a cluster.
pub(crate) struct Cluster {
    pub(crate) nats: NatsCluster,
    pub(crate) nodes: Vec<Server>,
    _files: tempfile::TempDir,
}

impl Cluster {
    /// Three nodes on this number of NATS servers, with these settings besides. The first one owns
    /// the store.
    pub(crate) fn start(nats_servers: usize, settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::prepare(nats_servers, settings);
        cluster.join_all();
        cluster
    }

    fn prepare(nats_servers: usize, settings: &[(&str, &str)]) -> Self {
        Self::prepare_each(NatsCluster::start(nats_servers, "always"), settings, |_| {
            Vec::new()
        })
    }

    /// Three nodes that are not started yet, with these settings, and these of each one besides.
    fn prepare_each(
        nats: NatsCluster,
        settings: &[(&str, &str)],
        of_node: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        Self::prepare_each_for(nats, None, settings, of_node)
    }

    /// The same, that are called over https if there is a client for it.
    fn prepare_each_for(
        nats: NatsCluster,
        client: Option<&Arc<rustls::ClientConfig>>,
        settings: &[(&str, &str)],
        of_node: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        let own = |name: &str| {
            let index = NAMES
                .iter()
                .position(|known| *known == name)
                .expect("a node");
            let all = settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()));
            all.chain(of_node(index)).collect()
        };
        Self::prepare_for(nats, 3, client, own)
    }

    /// Three nodes that run, of which the others call the first through a proxy, with these
    /// settings of the first and of the others besides. The port is that of the first.
    fn start_behind_proxy(
        first: &[(&'static str, &str)],
        others: &[(&'static str, &str)],
    ) -> (Self, TcpProxy, ReservedPort) {
        let port = ReservedPort::new();
        let proxy = TcpProxy::start(&[port.address]);
        let at = [
            ("CLUSTER__NODE_LISTEN", port.address.to_string()),
            ("CLUSTER__ADVERTISE", proxy.address().to_string()),
        ];
        let owned = |settings: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect()
        };
        let own = |index| match index {
            0 => [owned(first), at.to_vec()].concat(),
            _ => owned(others),
        };
        let mut cluster = Self::prepare_each(NatsCluster::start(1, "always"), &[], own);
        cluster.join_all();
        (cluster, proxy, port)
    }

    /// Three nodes on one server of NATS, with these settings besides, that are called over https
    /// by this client.
    fn start_tls(settings: &[(&str, &str)], client: &Arc<rustls::ClientConfig>) -> Self {
        let own = |_: &str| {
            settings
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect()
        };
        let mut cluster = Self::prepare_for(NatsCluster::start(1, "always"), 3, Some(client), own);
        cluster.join_all();
        cluster
    }

    /// Three nodes on these servers, with settings besides that each node has by its name. None is
    /// started.
    fn prepare_on<'a>(nats: NatsCluster, own: impl Fn(&str) -> Vec<(&'a str, String)>) -> Self {
        Self::prepare_for(nats, 3, None, own)
    }

    /// So many nodes that are not started yet, with settings that each has besides.
    fn prepare_many(
        nats: NatsCluster,
        nodes: usize,
        own: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        let index = |name: &str| {
            NAMES
                .iter()
                .position(|known| *known == name)
                .expect("a node")
        };
        Self::prepare_for(nats, nodes, None, |name| own(index(name)))
    }

    fn prepare_for<'a>(
        nats: NatsCluster,
        nodes: usize,
        client: Option<&Arc<rustls::ClientConfig>>,
        own: impl Fn(&str) -> Vec<(&'a str, String)>,
    ) -> Self {
        let files = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let password = file("password", PASSWORD);
        let secret = file("secret", SECRET);
        let urls = nats.urls().join(",");
        let replicas = nats.0.len().to_string();
        let own: Vec<_> = NAMES[..nodes].iter().map(|name| own(name)).collect();
        let all = |index: usize| {
            let mut all = vec![
                ("SERVER__ADMIN_TOKEN", TOKEN),
                ("CLUSTER__ENGINE", "nats"),
                ("CLUSTER__NAME", "test"),
                ("CLUSTER__NODE", NAMES[index]),
                ("CLUSTER__URLS", urls.as_str()),
                ("CLUSTER__USERNAME", "gridhook"),
                ("CLUSTER__PASSWORD_FILE", password.as_str()),
                ("CLUSTER__SYSTEM_USERNAME", "system"),
                ("CLUSTER__SYSTEM_PASSWORD_FILE", password.as_str()),
                ("CLUSTER__REPLICAS", replicas.as_str()),
                ("CLUSTER__NODE_LISTEN", "127.0.0.1:0"),
                ("CLUSTER__SECRET_FILE", secret.as_str()),
            ];
            all.extend(own[index].iter().map(|(key, value)| (*key, value.as_str())));
            all
        };
        let settings: Vec<_> = (0..nodes).map(all).collect();
        let nodes = Server::several(&settings, client);
        nodes.iter().for_each(keep_token);
        Self {
            nats,
            nodes,
            _files: files,
        }
    }

    /// Starts all nodes.
    fn join_all(&mut self) {
        self.join(0);
        // The first one claims the store before another one could.
        assert_eq!(self.owner(), 0);
        self.join_each(1..self.nodes.len());
    }

    /// The addresses of the nodes that run.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes
            .iter()
            .filter(|node| node.is_running())
            .map(Server::address)
            .collect()
    }

    /// Starts a node, and returns when it serves or follows.
    fn join(&mut self, index: usize) {
        self.join_each(index..index + 1);
    }

    /// The same with several nodes, which start at the same time.
    fn join_each(&mut self, indices: Range<usize>) {
        let follows = |node: &Server| node.logs().matches(FOLLOWS).count();
        let nodes = &mut self.nodes[indices];
        let before: Vec<usize> = nodes.iter().map(follows).collect();
        nodes.iter_mut().for_each(Server::begin);
        for (node, before) in nodes.iter_mut().zip(before) {
            node.await_listening()
                .unwrap_or_else(|(status, reported)| panic!("{status}: {reported}"));
            wait_for("the node to follow", START, || follows(node) > before);
        }
    }

    /// The node that owns the store and serves, as it says itself, if it is not this one.
    fn ready_owner(&self, former: Option<usize>) -> Option<usize> {
        self.ready_owner_of(0, former)
    }

    /// The same for a shard.
    fn ready_owner_of(&self, shard: usize, former: Option<usize>) -> Option<usize> {
        let authorization = format!("Bearer {TOKEN}");
        let owned = format!("gridhook_cluster_shard_owned{{shard=\"{shard}\"}} 1");
        // A node with one shard does not name it.
        let writable = [String::new(), format!("{{shard=\"{shard}\"}}")]
            .map(|label| format!("gridhook_journal_writable{label} 1"));
        let ask = |index: usize, path: &str| {
            let response = self.nodes[index].client().ask(
                "GET",
                path,
                &[("authorization", &authorization)],
                b"",
            );
            response.map(|response| response.text()).unwrap_or_default()
        };
        let serves = |index: &usize| {
            // It is asked again and again, and metrics are a long text.
            if !ask(*index, "/readyz").contains("serving") {
                return false;
            }
            let metrics = ask(*index, "/metrics");
            metrics.contains(&owned) && writable.iter().any(|sign| metrics.contains(sign))
        };
        let others = (0..self.nodes.len()).filter(|index| Some(*index) != former);
        others
            .filter(|index| self.nodes[*index].is_running())
            .find(serves)
    }

    /// Waits until a node owns the store and serves.
    fn owner(&self) -> usize {
        self.owner_but(None)
    }

    /// The same, and it is not this one.
    fn owner_but(&self, former: Option<usize>) -> usize {
        self.owner_of(0, former)
    }

    /// Waits until a node owns a shard and serves, and it is not this one.
    fn owner_of(&self, shard: usize, former: Option<usize>) -> usize {
        let mut owner = None;
        wait_for("an owner", START, || {
            owner = self.ready_owner_of(shard, former);
            owner.is_some()
        });
        owner.expect("it was waited for")
    }
}

/// Writes the token where the tests read that of a server.
fn keep_token(node: &Server) {
    fs::create_dir_all(node.data_dir()).expect("a folder");
    fs::write(node.data_dir().join("admin-token"), TOKEN).expect("a file");
}

/// The log line of an owner that has taken over the store.
const TAKEN: &str = "this node owns the store";

/// The log line of a node that has joined.
const FOLLOWS: &str = "following the changelog";

/// The owners of a shard, from its changelog. It is read in parts, before the stream is trimmed.
struct ChangelogReader {
    stream: String,
    /// The last sequence that was read.
    through: u64,
    epoch: u64,
    is_released: bool,
    /// How many owners were replaced that had not released the shard.
    unreleased: usize,
    /// The sequences of the records that an owner wrote behind the fence of the next one.
    of_former: Vec<u64>,
}

impl ChangelogReader {
    fn new(shard: usize) -> Self {
        let stream = format!("GH_test_{shard}");
        Self {
            stream,
            through: 0,
            epoch: 0,
            is_released: true,
            unreleased: 0,
            of_former: Vec::new(),
        }
    }

    /// Reads what was appended since the last time.
    fn read(&mut self, nats: &NatsCluster) {
        let first = nats.0[0].first(&self.stream);
        assert!(
            first <= self.through + 1,
            "{}: {first} is behind {}",
            self.stream,
            self.through
        );
        let (messages, last) = nats.0[0].messages(&self.stream, self.through);
        for (sequence, (_, message)) in (self.through + 1..).zip(messages) {
            let record = Record::decode(&message.into()).expect("a record");
            let is_fence = matches!(record.body, Body::Fence { .. });
            if is_fence {
                self.unreleased += usize::from(!self.is_released);
                self.epoch = sequence;
            } else if record.epoch != self.epoch {
                self.of_former.push(sequence);
                continue;
            }
            self.is_released = matches!(record.body, Body::Release);
        }
        self.through = last;
    }
}

/// The sequences of the records that an owner of the only shard wrote behind the fence of the next
/// one.
fn records_by_former_owners(nats: &NatsCluster) -> Vec<u64> {
    let mut changelog = ChangelogReader::new(0);
    changelog.read(nats);
    changelog.of_former
}

fn publish(server: &Server, key: &str, ids: Range<u32>) -> Vec<String> {
    let ids: Vec<String> = ids.map(|id| format!("e{id}")).collect();
    server.publish("orders", key, &load::body(&ids, "s"));
    ids
}

/// Every acknowledged event arrives at the endpoints of these event subscriptions, each at the path
/// of its name.
fn assert_all_arrive(owner: &Server, sink: &Sink, subscriptions: &[&str], acknowledged: &[String]) {
    for subscription in subscriptions {
        wait_until_settled(owner, "orders", subscription);
        let repeated = assert_arrived(sink, &format!("/{subscription}"), acknowledged);
        println!(
            "{subscription}: {} acknowledged, {} repeated",
            acknowledged.len(),
            repeated.len()
        );
    }
}

#[test]
fn another_node_delivers_what_a_killed_owner_left() {
    let _rows = shows(&[
        "S004-005: Events are received by registering an event handler for the events of interest.",
        "S004-021: Requirement recovery: when a consumer fails (for example the virtual machine \
         hosting it stops suddenly), the other consumers take over the partitions it owned and go \
         on.",
        "S004-022: After a takeover, the continuation point is exactly the point at which the \
         failed consumer failed, or slightly before it.",
        "S004-030: The processor offers a way to checkpoint its progress.",
        "S004-045: When an instance goes down because of a failure, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
        "S004-062: A new owner starts processing a partition from its last known checkpoint.",
        "S004-064: Other instances try to get ownership of the partitions previously owned by the \
         inactive instance.",
        "S004-076: Checkpointing is the process by which an event processor marks or commits the \
         position of the last successfully processed event within a partition.",
        "S004-078: Checkpointing takes place per partition within a consumer group.",
        "S004-079: If an event processor disconnects from a partition, another instance can resume \
         processing the partition at the checkpoint previously committed by the last processor of \
         that partition in that consumer group.",
        "S004-082: Checkpointing provides resilience when an event processor goes down.",
        "S004-084: When a checkpoint marks an event as processed, an entry is added or updated in \
         the checkpoint store.",
    ]);
    if !has_nats() {
        return;
    }
    let leases = [CALM];
    let mut cluster = Cluster::start(1, &leases);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "taken",
        &SubscriptionSpec::new(&sink.url("/taken")),
    );
    cluster.nodes[0].subscribe(
        "orders",
        "later",
        &SubscriptionSpec::new(&sink.url("/later")).batch(10),
    );
    sink.set("/later", Behavior::Respond(503));
    let mut ids = publish(&cluster.nodes[0], &key, 0..50);
    wait_for("the first events", LONG, || {
        sink.taken("/taken") == 50 && !sink.ledger("/later").is_empty()
    });
    let mut owner = 0;
    for round in 1..3 {
        wait_until_settled(&cluster.nodes[owner], "orders", "taken");
        cluster.nodes[owner].kill_9();
        let next = cluster.owner_but(Some(owner));
        println!("{owner} was killed, {next} took over");
        ids.extend(publish(
            &cluster.nodes[next],
            &key,
            round * 50..round * 50 + 50,
        ));
        wait_for("events of the next owner", LONG, || {
            sink.taken("/taken") >= ids.len()
        });
        cluster.join(owner);
        owner = next;
    }
    sink.set("/later", Behavior::Respond(200));
    assert_all_arrive(&cluster.nodes[owner], &sink, &["taken", "later"], &ids);
    // Nothing was in flight there: each owner began exactly where the killed one had ended.
    assert!(assert_arrived(&sink, "/taken", &ids).is_empty());
    let most = sink.look("/taken", |ledger| {
        ledger.values().flatten().map(|arrival| arrival.batch).max()
    });
    fact("S004-069", &json!(most));
    let is_retried = sink.look("/later", |ledger| {
        ledger.values().any(|arrivals| arrivals.len() > 1)
    });
    assert!(is_retried);
    for node in &mut cluster.nodes {
        node.kill_9();
        node.assert_sound();
    }
}

#[test]
fn a_paused_owner_neither_writes_nor_delivers_when_it_resumes() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    // Each event is tried again after some milliseconds.
    sink.set("/failing", Behavior::Respond(503));
    cluster.nodes[0].subscribe(
        "orders",
        "failing",
        &SubscriptionSpec::new(&sink.url("/failing")).attempts(30),
    );
    publish(&cluster.nodes[0], &key, 0..50);
    wait_for("attempts", LONG, || sink.ledger("/failing").len() == 50);
    cluster.nodes[0].signal("STOP");
    let next = cluster.owner_but(Some(0));
    // From now on only the paused owner would call this endpoint.
    cluster.nodes[next].unsubscribe("orders", "failing");
    let attempts = |ledger: &Ledger| ledger.values().map(Vec::len).sum::<usize>();
    let mut before = 0;
    let mut unchanged = 0;
    wait_for("requests of the next owner to end", LONG, || {
        let seen = std::mem::replace(&mut before, sink.look("/failing", attempts));
        unchanged = if seen == before { unchanged + 1 } else { 0 };
        unchanged > 100
    });
    cluster.nodes[0].signal("CONT");
    wait_for("the former owner to follow", LONG, || {
        cluster.nodes[0].logs().contains("standby again")
    });
    assert_eq!(
        sink.look("/failing", attempts),
        before,
        "the former owner has delivered"
    );
    publish(&cluster.nodes[next], &key, 50..60);
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
}

#[test]
fn nodes_that_were_all_stopped_serve_and_deliver_again() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    for node in &mut cluster.nodes {
        node.terminate();
    }
    cluster.join_each(0..3);
    let owner = cluster.owner();
    ids.extend(publish(&cluster.nodes[owner], &key, 20..40));
    assert_all_arrive(&cluster.nodes[owner], &sink, &["all"], &ids);
}

#[test]
fn a_lost_stream_and_a_folder_of_another_kind_are_refused() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::prepare(1, &[]);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.join(1);
    cluster.nats.0[0].delete(STREAM);
    // A standby detects it by reading, an owner by writing.
    restored::wait_for_failure(&cluster.nodes[1], "the changelog does not exist, but");
    let response = cluster.nodes[0].admin(
        "PUT",
        &format!("{SCOPE}/more"),
        &serde_json::json!({"properties": {}}),
    );
    assert!(response.status >= 500, "{}", response.text());
    restored::wait_for_failure(&cluster.nodes[0], "the changelog does not exist, but");
    // A new node does not begin a new stream, as long as the records say that there was one.
    cluster.join(2);
    restored::wait_for_failure(&cluster.nodes[2], "the changelog does not exist");
    cluster.nodes[0].terminate();
    let folder = cluster.nodes[0].data_dir().display().to_string();
    let (status, reported) = say(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &folder]);
    assert!(!status.success(), "{reported}");
    assert!(
        reported.contains("belongs to a node of a cluster"),
        "{reported}"
    );
}

#[test]
fn acknowledged_events_survive_kills_of_one_and_of_all_servers_of_nats() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched")).batch(10),
    );
    let pause = Duration::from_millis(20);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(cluster.nodes[0].address(), &rate);
    let clock = Clock::system();
    for killed in [0..1, 1..2, 0..3] {
        let before = load.acknowledged();
        wait_for("publishers to be served", START, || {
            load.acknowledged() > before + 20
        });
        killed
            .clone()
            .for_each(|index| cluster.nats.0[index].kill());
        let began = clock.now();
        killed
            .clone()
            .for_each(|index| cluster.nats.0[index].start());
        // The leases of all nodes may have ended meanwhile, so that any of them may be the next
        // owner.
        let before = load.acknowledged();
        wait_for("publishers to be served again", START, || {
            if let Some(owner) = cluster.ready_owner(None) {
                load.turn_to(cluster.nodes[owner].address());
            }
            load.acknowledged() > before + 20
        });
        println!(
            "{killed:?} were killed: served again after {:?}",
            clock.now().since(began)
        );
    }
    let acknowledged = load.stop();
    let owner = cluster.owner();
    assert_all_arrive(&cluster.nodes[owner], &sink, &["batched"], &acknowledged);
    for node in &mut cluster.nodes {
        node.kill_9();
        node.assert_sound();
    }
}
