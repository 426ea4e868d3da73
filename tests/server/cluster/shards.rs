//! Nodes of a cluster with several shards: each owns its part and delivers the events of it, and
//! the others take it over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    net::TcpStream,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use gridhook::cluster::shard_of;
use serde_json::{Value, json};

use super::{
    CALM, Cluster, LONG, NAMES, START,
    clients::{Clients, Published, publishes, topic_without_duplicates},
    pull::{Plant, assert_pulled_anywhere},
    tls::{node_tls, write_node_files},
};
use crate::{
    server::{assert_arrived, many, wait_until_settled},
    spec::shows,
    support::{
        certificates::{Authority, DAY},
        load,
        nats::{NatsCluster, has_nats},
        server::{Server, SubscriptionSpec, events_path, fsck, operator, say, wait_for},
        sink::Sink,
        tcp_proxy::TcpProxy,
    },
};

pub(crate) const SHARDS: u16 = 6;

/// A request to publish an event.
const EVENT: &[u8] = br#"[{"id":"1","subject":"s","eventType":"t","data":{},"dataVersion":"1",
    "eventTime":"2026-01-01T00:00:00Z"}]"#;

/// The names of topics, one in each shard.
pub(super) fn names() -> Vec<String> {
    let shards = usize::from(SHARDS);
    let named = |shard| {
        (0..)
            .map(|number| format!("topic-{number}"))
            .find(|name| shard_of(name, shards) == shard)
    };
    (0..shards)
        .map(|shard| named(shard).expect("a name in each shard"))
        .collect()
}

/// Three nodes with shards, which run.
pub(crate) struct Sharded {
    pub(crate) cluster: Cluster,
}

impl Sharded {
    pub(super) fn prepare(settings: &[(&str, &str)]) -> Self {
        Self::prepare_each(settings, |_| Vec::new())
    }

    /// With settings that each node has besides.
    fn prepare_each(
        settings: &[(&str, &str)],
        own: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        Self::prepare_each_for(None, settings, own)
    }

    fn prepare_each_for(
        client: Option<&Arc<rustls::ClientConfig>>,
        settings: &[(&str, &str)],
        own: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        Self::prepare_on(NatsCluster::start(1, "always"), client, settings, own)
    }

    fn prepare_on(
        nats: NatsCluster,
        client: Option<&Arc<rustls::ClientConfig>>,
        settings: &[(&str, &str)],
        own: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        let of_node = |index: usize| {
            let of_shards = [("CLUSTER__SHARDS", SHARDS.to_string())];
            own(index).into_iter().chain(of_shards).collect()
        };
        let cluster = Cluster::prepare_each_for(nats, client, settings, of_node);
        Self { cluster }
    }

    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::prepare(settings).join_all()
    }

    /// The same on three servers of NATS.
    pub(super) fn start_on_three(settings: &[(&str, &str)]) -> Self {
        Self::start_on(NatsCluster::start(3, "always"), settings)
    }

    /// The same on these servers.
    pub(super) fn start_on(nats: NatsCluster, settings: &[(&str, &str)]) -> Self {
        Self::prepare_on(nats, None, settings, |_| Vec::new()).join_all()
    }

    /// The same, with settings that each node has besides.
    pub(super) fn start_each_on(
        nats: NatsCluster,
        own: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        Self::prepare_on(nats, None, &[], own).join_all()
    }

    /// The same, that are called over https by this client.
    pub(crate) fn start_tls(settings: &[(&str, &str)], client: &Arc<rustls::ClientConfig>) -> Self {
        Self::prepare_each_for(Some(client), settings, |_| Vec::new()).join_all()
    }

    fn join_all(mut self) -> Self {
        self.cluster.join_each(0..3);
        self.wait_for_shares(0, &[2, 2, 2]);
        self
    }

    /// Waits until the nodes that this one takes for alive own so many shards each, the fewest
    /// first, and all serve.
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
    let nodes = view["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .filter(|node| node["state"] == "alive");
    let mut shares: Vec<usize> = nodes
        .map(|node| node["owns"].as_array().map_or(0, Vec::len))
        .collect();
    shares.sort_unstable();
    shares
}

/// Asserts that each store on the disk of a stopped node is sound.
pub(super) fn assert_shards_sound(node: &Server) {
    for shard in 0..=SHARDS {
        let (status, report) = fsck(&node.data_dir().join("shards").join(shard.to_string()));
        assert!(status.success(), "{report}");
    }
}

/// A node is ready, says at how many shards it serves, and its log has when it began with each of
/// them.
fn assert_readiness(node: &Server, serves: usize) {
    let mut readiness = Value::Null;
    let mut served = Vec::new();
    wait_for("the node to serve its shards", START, || {
        let response = node.request_without_token("GET", "/readyz", &[]);
        readiness = response.json();
        let shards = readiness["shards"].as_array().expect("shards").iter();
        served = shards
            .filter(|shard| shard["state"] == "serving")
            .map(|shard| shard["shard"].clone())
            .collect();
        let others = readiness["shards"]
            .as_array()
            .expect("shards")
            .iter()
            .filter(|shard| shard["state"] == "following");
        let is_known = served.len() == serves && others.count() == usize::from(SHARDS) - serves;
        response.status == 200 && is_known && readiness["problems"] == json!([])
    });
    let (phase, journal) = if serves > 0 {
        ("serving", "writable")
    } else {
        ("standby", "following")
    };
    assert_eq!(
        (&readiness["phase"], &readiness["journal"]),
        (&json!(phase), &json!(journal)),
        "{readiness}"
    );
    let log = node.logs();
    for shard in served {
        for message in [
            "starting step=\"reading the records\"",
            "this node serves the shard",
        ] {
            let has = log.lines().any(|line| {
                line.contains(&format!("core{{shard={shard}}}")) && line.contains(message)
            });
            assert!(has, "{message} of shard {shard} is not in {log}");
        }
    }
}

/// The shards whose events a node has delivered, as its metrics say. It shows those of its own
/// shards only.
fn delivering_shards(node: &Server) -> BTreeSet<u64> {
    let text = node.command("GET", "/metrics", &Value::Null).text();
    let delivered = text.lines().filter_map(|line| {
        let line = line.strip_prefix("gridhook_subscription_delivered_events_total{shard=\"")?;
        let (shard, rest) = line.split_once('"')?;
        let is_any = rest.rsplit_once(' ').is_some_and(|(_, count)| count != "0");
        is_any.then(|| shard.parse().expect("a number"))
    });
    delivered.collect()
}

#[test]
fn each_node_delivers_a_part_and_the_others_take_it_over() {
    let _rows = shows(&[
        "S004-001: Several instances of an event processing application can run at once, and the \
         load is balanced between them.",
        "S004-007: An event processor balances load with the other consumers that use the same \
         event hub and the same consumer group.",
        "S004-008: Scaling rests on partitioned consumers, which differ from competing consumers.",
        "S004-009: The partitioned consumer pattern reaches high scale by removing the contention \
         bottleneck.",
        "S004-010: The partitioned consumer pattern supports end-to-end parallelism.",
        "S004-017: Requirement scale: there are several consumers, and each owns the reading of \
         some of the partitions.",
        "S004-019: In the example the number of consumer instances is raised by a human operator \
         when a new sensor type raises the number of events.",
        "S004-020: When consumers are added, the pool rebalances the number of partitions each one \
         owns so that the load is shared with the newly added consumers.",
        "S004-031: Processor clients work cooperatively within the context of one consumer group \
         for one event hub.",
        "S004-032: Processor clients distribute and balance the work automatically as instances \
         become available to the group.",
        "S004-033: Processor clients distribute and balance the work automatically as instances \
         become unavailable to the group.",
        "S004-035: Partition ownership is evenly distributed among all active event processor \
         instances associated with one combination of event hub and consumer group.",
        "S004-036: Only active instances count in the even distribution of partitions.",
        "S004-044: New instances can join the processing pool to scale up.",
    ]);
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[]);
    let sink = Sink::start();
    let names = names();
    let balancer = TcpProxy::start(&sharded.cluster.addresses());
    let mut clients = Clients::new();
    let mut published = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let node = &sharded.cluster.nodes[index % 3];
        let key = topic_without_duplicates(node, name);
        node.subscribe(
            name,
            "all",
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))).batch(10),
        );
        let of_topic = publishes(
            &mut clients,
            balancer.address(),
            (name, &key),
            (index, "/load"),
        );
        published.insert(name.clone(), of_topic);
    }
    let progress = |what: &str| {
        let count = |published: &parking_lot::Mutex<Published>| published.lock().ids.len();
        let before: Vec<usize> = published
            .values()
            .map(|published| count(published))
            .collect();
        wait_for(&format!("events of every topic {what}"), LONG, || {
            published
                .values()
                .zip(&before)
                .all(|(published, before)| count(published) > before + 20)
        });
    };
    progress("at first");
    // The parts have nothing in common, and each node delivers its own.
    let parts: Vec<BTreeSet<u64>> = sharded
        .cluster
        .nodes
        .iter()
        .map(delivering_shards)
        .collect();
    assert!(parts.iter().all(|part| part.len() == 2), "{parts:?}");
    assert_eq!(
        parts.iter().flatten().collect::<BTreeSet<_>>().len(),
        usize::from(SHARDS),
        "{parts:?}"
    );
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
        let Published { ids, longest } = &*published.lock();
        let repeated = assert_arrived(&sink, &format!("/{name}"), ids);
        println!(
            "{name}: {} acknowledged, {} repeated, {longest:?} at most",
            ids.len(),
            repeated.len()
        );
    }
    for node in &mut sharded.cluster.nodes {
        node.kill_9();
        assert_shards_sound(node);
    }
}

#[test]
fn an_operator_moves_shards_and_drains_a_node() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM]);
    let nodes = &sharded.cluster.nodes;
    nodes.iter().for_each(|node| assert_readiness(node, 2));
    let owner = |shard: usize| {
        let view = nodes[0]
            .command("GET", "/cluster/ownership", &Value::Null)
            .json();
        view["value"][shard]["ownerName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let error = operator(&nodes[1], &["cluster", "move", "7", "a"]).expect_err("there is none");
    assert!(
        error.contains("there is no shard 7; expected 0 to 6"),
        "{error}"
    );
    let error = operator(&nodes[1], &["cluster", "move", "all", "a"]).expect_err("no number");
    assert!(error.contains("or control"), "{error}");
    let control = usize::from(SHARDS);
    let next = if owner(control) == "b" { "c" } else { "b" };
    operator(&nodes[0], &["cluster", "move", "control", next]).expect("it is asked");
    wait_for("the control plane to move", LONG, || owner(control) == next);
    operator(&nodes[1], &["cluster", "drain", "c"]).expect("it is asked");
    wait_for("the others to own all", START, || {
        shares(&nodes[0]) == [3, 3]
    });
    // It still forwards.
    assert_readiness(&nodes[2], 0);
    assert_readiness(&nodes[0], 3);
    let error = operator(&nodes[0], &["cluster", "move", "0", "c"]).expect_err("it is drained");
    assert!(error.contains("gives everything up"), "{error}");
    operator(&nodes[2], &["cluster", "drain", "c", "--end"]).expect("it is asked");
    sharded.wait_for_shares(0, &[2, 2, 2]);
    let from = owner(0);
    let to = if owner(0) == "b" { "a" } else { "b" };
    operator(&nodes[0], &["cluster", "move", "0", to]).expect("it is asked");
    // The node with the fewest takes one from the one with the most afterwards.
    wait_for("the move", LONG, || owner(0) == to);
    println!("{from} gave shard 0 to {to}");
    sharded.wait_for_shares(0, &[2, 2, 2]);
}

/// What the shards of a process share does not end with the one for which it was made.
#[test]
fn a_node_serves_its_other_shards_after_one_has_moved_away() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[
        CALM,
        ("SERVER__WORKERS", "1"),
        ("LIMITS__HEAD_TIMEOUT", "2s"),
        ("LIMITS__IDLE_TIMEOUT", "100ms"),
    ]);
    let nodes = &sharded.cluster.nodes;
    let owners = || {
        let view = nodes[0].command("GET", "/cluster/ownership", &Value::Null);
        let view = view.json()["value"].clone();
        let name = |shard: usize| view[shard]["ownerName"].as_str().map(str::to_owned);
        (0..usize::from(SHARDS)).map(name).collect::<Vec<_>>()
    };
    let before = owners();
    let moved = 0;
    let stays = (1..before.len()).find(|shard| before[*shard] == before[moved]);
    let stays = stays.expect("a node has two shards");
    let names = names();
    let [moved_key, stays_key] =
        [moved, stays].map(|shard| topic_without_duplicates(&nodes[0], &names[shard]));
    let publish = |node: &Server, shard: usize, key: &str| {
        let path = events_path(&names[shard]);
        let response = node
            .client()
            .ask("POST", &path, &[("aeg-sas-key", key)], EVENT);
        response.expect("a response").status
    };
    let others: Vec<usize> = (0..3)
        .filter(|index| before[moved].as_deref() != Some(NAMES[*index]))
        .collect();
    // Connections to the owner have ended then, and what they shared.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(publish(&nodes[others[0]], moved, &moved_key), 200);
    assert_eq!(publish(&nodes[others[0]], stays, &stays_key), 200);
    let to = NAMES[others[0]];
    operator(&nodes[0], &["cluster", "move", "0", to]).expect("it is asked");
    let is_moved = || owners()[moved].as_deref() == Some(to);
    wait_for("the move", LONG, || {
        assert_eq!(publish(&nodes[others[0]], stays, &stays_key), 200);
        is_moved()
    });
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        for other in &others {
            assert_eq!(publish(&nodes[*other], stays, &stays_key), 200);
        }
    }
}

/// Each core of a process is signaled, and at the same time the node gives up the claims of all.
#[test]
fn a_node_that_stops_gives_up_each_of_its_shards_for_good() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::prepare(&[]);
    for _ in 0..many(4, 40) {
        sharded.cluster.join(0);
        sharded.wait_for_shares(0, &[usize::from(SHARDS)]);
        let node = &mut sharded.cluster.nodes[0];
        // On one processor the claims end before the cores have noticed the signal. A thread that
        // ends meanwhile is an error.
        let id = node.id().to_string();
        wait_for("a process with one processor", START, || {
            let pinned = Command::new("taskset")
                .args(["--all-tasks", "--cpu-list", "--pid", "0", &id])
                .output();
            pinned.is_ok_and(|output| output.status.success())
        });
        node.terminate();
        let logs = node.logs();
        let (_, end) = logs
            .rsplit_once("stopping: publishers are served")
            .expect("a signal that was received");
        assert!(
            !end.contains("standby again"),
            "a shard goes on as a standby while its process stops: {end}"
        );
    }
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
    refused(&mut sharded, 1, "7", fixed);
    refused(&mut sharded, 2, "1", fixed);
    // A refused start leaves no store in the data folder, so the right number is accepted.
    sharded.cluster.nodes[1].set("CLUSTER__SHARDS", "6");
    sharded.cluster.join(1);
    sharded.cluster.nodes[1].terminate();
    // The folder says so, too, whatever the cluster is.
    let of_one_shard = sharded.cluster.nodes[2].data_dir().join("rocksdb");
    fs::create_dir_all(of_one_shard).expect("a folder");
    sharded.cluster.nodes[0].kill_9();
    refused(
        &mut sharded,
        0,
        "1",
        "has the stores of a node with several shards",
    );
    refused(
        &mut sharded,
        0,
        "5",
        "has the stores of a node with 6 shards",
    );
    refused(
        &mut sharded,
        2,
        "6",
        "has the store of a server with one shard",
    );
    sharded.cluster.nodes[0].set("CLUSTER__SHARDS", "6");
    sharded.cluster.join(0);
    wait_for("its shards", Duration::from_secs(60), || {
        shares(&sharded.cluster.nodes[0]) == [6]
    });
}

#[test]
fn each_shard_has_its_part_of_the_declared_topics_and_backups_of_its_own() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topics.toml");
    let backups = folder.path().join("backups");
    let names = names();
    let declared: String = names
        .iter()
        .map(|name| format!("[topics.{name}]\n"))
        .collect();
    fs::write(&file, declared).expect("a file");
    let sharded = Sharded::start(&[
        CALM,
        ("SERVER__APPLY", file.to_str().expect("text")),
        (
            "BACKUP__STORE__URL",
            &format!("file://{}", backups.display()),
        ),
        ("BACKUP__SCHEDULE", "1h"),
    ]);
    for name in &names {
        let path = format!(
            "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/{name}"
        );
        wait_for("a declared topic", LONG, || {
            sharded.cluster.nodes[1]
                .admin("GET", &path, &Value::Null)
                .status
                == 200
        });
    }
    for shard in 0..SHARDS {
        let of_shard = backups.join(format!("shard-{shard}"));
        let has_any =
            || fs::read_dir(of_shard.join("backups")).is_ok_and(|mut files| files.next().is_some());
        wait_for("a backup of the shard", LONG, has_any);
        let restored = folder.path().join(format!("restored-{shard}"));
        let url = format!("file://{}", of_shard.display());
        let (status, report) = say(&[
            "restore",
            &url,
            "--data-dir",
            restored.to_str().expect("text"),
        ]);
        assert!(status.success(), "{report}");
        let (status, report) = fsck(&restored);
        assert!(status.success(), "{report}");
    }
}

/// Publishes to a topic through a node, and returns the status.
pub(super) fn status_of(node: &Server, topic: &str, key: &str, id: &str, subject: &str) -> u16 {
    let body = load::body(&[id.to_owned()], subject);
    let response = node
        .client()
        .ask("POST", &events_path(topic), &[("aeg-sas-key", key)], &body);
    response.map_or(0, |response| response.status)
}

#[test]
fn shards_speak_tls_to_each_other_and_read_certificates_again_on_sighup() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    for node in ["0", "1", "2"] {
        write_node_files(folder.path(), node, &authority, &authority);
    }
    let sharded =
        Sharded::prepare_each(&[], |index| node_tls(folder.path(), &index.to_string())).join_all();
    let nodes = &sharded.cluster.nodes;
    let keys: Vec<String> = names()
        .iter()
        .map(|name| nodes[0].topic(name, "EventGridSchema"))
        .collect();
    let publish_all = |round: &str| {
        for (node, (name, key)) in nodes
            .iter()
            .flat_map(|node| names().into_iter().zip(&keys).map(move |of| (node, of)))
        {
            assert_eq!(status_of(node, &name, key, round, "s"), 200, "{name}");
        }
    };
    publish_all("first");
    authority
        .ending("127.0.0.1", 60 * DAY)
        .write(folder.path(), "1");
    nodes[1].signal("HUP");
    wait_for("the new certificate", LONG, || {
        nodes[1].logs().contains("certificate replaced")
    });
    publish_all("second");
    let view = nodes[0]
        .command("GET", "/cluster/status", &Value::Null)
        .json();
    let address = view["nodes"][1]["address"].as_str().expect("an address");
    // The listener for nodes expects TLS: without it there is no greeting.
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a socket");
    let greeted = stream.read(&mut [0; 16]);
    assert_eq!(greeted.unwrap_or(0), 0, "it speaks without TLS");
    assert_pulled_anywhere(&Plant::new(sharded));
}

#[test]
fn a_full_stream_of_one_shard_stops_no_other_and_is_trimmed_once_all_nodes_have_its_records() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[CALM, ("CLUSTER__STREAM_KEEP_BYTES", "64 KiB")]);
    let names = names();
    let keys: Vec<String> = names
        .iter()
        .map(|name| topic_without_duplicates(&sharded.cluster.nodes[0], name))
        .collect();
    let full = 3;
    // The streams keep what this node needs.
    sharded.cluster.nodes[2].terminate();
    sharded.wait_for_shares(0, &[3, 3]);
    let nodes = &sharded.cluster.nodes;
    let large = format!("/{}", fastrand::Rng::with_seed(1).u128(..)).repeat(1_000);
    for number in 0..20 {
        assert_eq!(
            status_of(
                &nodes[0],
                &names[full],
                &keys[full],
                &format!("e{number}"),
                &large
            ),
            200
        );
    }
    sharded.cluster.nats.0[0].fill(&format!("GH_test_{full}"));
    wait_for("a refusal", LONG, || {
        status_of(&nodes[1], &names[full], &keys[full], "more", &large) == 503
    });
    for (shard, (name, key)) in names
        .iter()
        .zip(&keys)
        .enumerate()
        .filter(|(shard, _)| *shard != full)
    {
        assert_eq!(
            status_of(&nodes[shard % 2], name, key, "other", "s"),
            200,
            "shard {shard}"
        );
    }
    assert_eq!(
        status_of(&nodes[0], &names[full], &keys[full], "more", &large),
        503,
        "it is kept for the third node"
    );
    sharded.cluster.join(2);
    let nodes = &sharded.cluster.nodes;
    wait_for("the stream to be trimmed", START, || {
        status_of(&nodes[2], &names[full], &keys[full], "after", &large) == 200
    });
    sharded.wait_for_shares(0, &[2, 2, 2]);
}

#[test]
fn a_node_fetches_copies_of_the_shards_whose_records_were_removed_and_follows_the_others() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[]);
    let names = names();
    let keys: Vec<String> = names
        .iter()
        .map(|name| topic_without_duplicates(&sharded.cluster.nodes[0], name))
        .collect();
    let publish_all = |sharded: &Sharded, node: usize, id: &str| {
        for (name, key) in names.iter().zip(&keys) {
            wait_for("a publish", START, || {
                status_of(&sharded.cluster.nodes[node], name, key, id, "s") == 200
            });
        }
    };
    publish_all(&sharded, 0, "first");
    let synced = |sharded: &Sharded, name: &str| {
        let view = sharded.cluster.nodes[0]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
        let node = nodes
            .into_iter()
            .find(|node| node["name"] == name)
            .unwrap_or_default();
        let last = |shard| {
            sharded.cluster.nats.0[0]
                .messages(&format!("GH_test_{shard}"), u64::MAX - 1)
                .1
        };
        (0..usize::from(SHARDS)).all(|shard| node["flushed"][shard] == last(shard))
    };
    wait_for("the third node to sync everything", LONG, || {
        synced(&sharded, "c")
    });
    sharded.cluster.nodes[2].kill_9();
    sharded.wait_for_shares(0, &[3, 3]);
    publish_all(&sharded, 1, "second");
    wait_for("the others to sync everything", LONG, || {
        synced(&sharded, "a") && synced(&sharded, "b")
    });
    for shard in [1, 4] {
        sharded.cluster.nats.0[0].purge(&format!("GH_test_{shard}"));
    }
    sharded.cluster.join(2);
    sharded.wait_for_shares(0, &[2, 2, 2]);
    let log = sharded.cluster.nodes[2].logs();
    assert_eq!(
        log.matches("the copy of the store is in place").count(),
        2,
        "{log}"
    );
    for index in [0, 1] {
        sharded.cluster.nodes[index].kill_9();
    }
    sharded.wait_for_shares(2, &[6]);
    publish_all(&sharded, 2, "third");
    sharded.cluster.nodes[2].terminate();
    assert_shards_sound(&sharded.cluster.nodes[2]);
}

#[test]
fn a_shard_whose_copy_cannot_be_opened_fails_alone_until_the_next_start() {
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[("CLUSTER__COPY_RATE", "64 KiB")]);
    let control = usize::from(SHARDS);
    let names = names();
    let key = topic_without_duplicates(&sharded.cluster.nodes[0], &names[0]);
    sharded.cluster.nodes[2].kill_9();
    sharded.wait_for_shares(0, &[3, 3]);
    topic_without_duplicates(&sharded.cluster.nodes[0], &names[1]);
    sharded.cluster.nats.0[0].purge("GH_test_control");
    sharded.cluster.nodes[2].begin();
    let listening = sharded.cluster.nodes[2].await_listening();
    listening.expect("it listens before it fetches");
    wait_for("the copy to be fetched", START, || {
        let log = sharded.cluster.nodes[2].logs();
        log.contains("this node fetches a copy of the store from the owner")
    });
    // A folder with content is not replaced.
    let data_dir = sharded.cluster.nodes[2].data_dir();
    let obstacle = data_dir.join(format!("shards/{control}/received/obstacle"));
    fs::create_dir_all(obstacle).expect("a folder");
    wait_for("the shard to fail", START, || {
        let log = sharded.cluster.nodes[2].logs();
        log.contains("restart the node once that is mended")
    });
    // It serves the others, and the nodes that have not failed are shown as alive.
    sharded.wait_for_shares(0, &[2, 2]);
    assert_eq!(
        status_of(&sharded.cluster.nodes[2], &names[0], &key, "id", "s"),
        200
    );
    let log = sharded.cluster.nodes[2].logs();
    assert!(!log.contains("panicked"), "{log}");
    sharded.cluster.nodes[2].terminate();
    sharded.cluster.join(2);
    wait_for("the copy to be in place", START, || {
        let log = sharded.cluster.nodes[2].logs();
        log.contains("the copy of the store is in place")
    });
    sharded.cluster.nodes[2].terminate();
    assert_shards_sound(&sharded.cluster.nodes[2]);
}

/// The names of the threads of a process, with their numbers.
fn threads_of(server: &Server) -> BTreeMap<String, usize> {
    let mut threads = BTreeMap::new();
    let folder = format!("/proc/{}/task", server.id());
    for task in fs::read_dir(folder).expect("a process").flatten() {
        // One may have ended meanwhile.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        *threads.entry(name.trim_end().to_owned()).or_default() += 1;
    }
    threads
}

#[test]
fn shards_without_events_have_no_threads_for_reads_trims_and_the_scrub() {
    if !has_nats() {
        return;
    }
    const SHARDS: u16 = 16;
    let own = |_| vec![("CLUSTER__SHARDS", SHARDS.to_string())];
    let mut cluster = Cluster::prepare_many(NatsCluster::start(1, "always"), 1, own);
    cluster.join_each(0..1);
    let node = &cluster.nodes[0];
    wait_for("all shards to be served", START, || {
        let response = node.client().ask("GET", "/readyz", &[], b"");
        response.is_ok_and(|response| {
            response.status == 200 && response.json()["problems"] == json!([])
        })
    });
    let mut threads = BTreeMap::new();
    // Of each shard: one that serves it, one that writes, and one for what blocks.
    wait_for("threads to end", START, || {
        threads = threads_of(node);
        let waiting = [
            "trim",
            "journal-trim",
            "journal-read",
            "journal-ids",
            "scrub",
        ];
        let has_none = waiting.iter().all(|name| !threads.contains_key(*name));
        has_none && threads.values().sum::<usize>() <= 3 * usize::from(SHARDS + 1) + 20
    });
}
