//! Three nodes of a cluster, as processes, on servers of NATS: one owns the store, and another one when it is killed, paused
//! or stopped.

mod forwarding;
mod membership;
mod tls;

use std::{fs, time::Duration};

use gridhook::{
    clock::Clock,
    journal::changelog::record::{Body, Record},
};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::{
    spec::shows,
    support::{
        load::{self, Load, Rate},
        nats::{NatsCluster, PASSWORD, has_nats},
        server::{SCOPE, Server, SubscriptionSpec, say, wait_for},
        sink::{Behavior, Ledger, Sink},
    },
};

/// The token of all nodes.
const TOKEN: &str = "token-of-all-nodes-of-the-cluster";

/// The secret of all nodes.
const SECRET: &str = "secret-of-all-nodes-of-the-cluster";

/// Nodes and servers that start on a machine with other work.
const START: Duration = Duration::from_secs(120);

/// The stream of the shard.
const STREAM: &str = "GH_test_0";

/// Nodes of a cluster.
struct Cluster {
    nats: NatsCluster,
    nodes: Vec<Server>,
    _files: tempfile::TempDir,
}

impl Cluster {
    /// Three nodes on so many servers of NATS, with these settings besides. The first one owns the store.
    fn start(nats_servers: usize, settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::prepare(nats_servers, settings);
        for index in 0..cluster.nodes.len() {
            cluster.join(index);
            // The first one claims the store before another one could.
            assert_eq!(cluster.owner(), 0);
        }
        cluster
    }

    fn prepare(nats_servers: usize, settings: &[(&str, &str)]) -> Self {
        let own = |_: &str| settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Self::prepare_on(NatsCluster::start(nats_servers, "always"), own)
    }

    /// Three nodes on these servers, with settings besides that each node has by its name. None is started.
    fn prepare_on<'a>(nats: NatsCluster, own: impl Fn(&str) -> Vec<(&'a str, String)>) -> Self {
        let files = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (password, secret) = (file("password", PASSWORD), file("secret", SECRET));
        let (urls, replicas) = (nats.urls().join(","), nats.0.len().to_string());
        let names = ["a", "b", "c"];
        let own = names.map(own);
        let all = |index: usize| {
            let mut all = vec![
                ("SERVER__ADMIN_TOKEN", TOKEN),
                ("CLUSTER__ENGINE", "nats"),
                ("CLUSTER__NAME", "test"),
                ("CLUSTER__NODE", names[index]),
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
        let nodes = Server::several(&[0, 1, 2].map(all));
        for node in &nodes {
            // Where the tests read the token of a server.
            fs::create_dir_all(node.data_dir()).expect("a folder");
            fs::write(node.data_dir().join("admin-token"), TOKEN).expect("a file");
        }
        Self { nats, nodes, _files: files }
    }

    /// Starts a node, and returns when it serves or follows.
    fn join(&mut self, index: usize) {
        let before = self.nodes[index].logs().matches(FOLLOWS).count();
        self.nodes[index].try_restart().unwrap_or_else(|(status, reported)| panic!("{status}: {reported}"));
        wait_for("the node to follow", START, || self.nodes[index].logs().matches(FOLLOWS).count() > before);
    }

    /// The node that owns the store and serves, as it says itself, if it is not this one.
    fn ready_owner(&self, former: Option<usize>) -> Option<usize> {
        let authorization = format!("Bearer {TOKEN}");
        let serves = |index: &usize| {
            let mut client = self.nodes[*index].client();
            let answer = client.ask("GET", "/metrics", &[("authorization", &authorization)], b"");
            let text = answer.map(|answer| answer.text()).unwrap_or_default();
            let signs = ["gridhook_cluster_shard_owned{shard=\"0\"} 1", "gridhook_journal_writable 1"];
            signs.into_iter().all(|sign| text.contains(sign))
        };
        let others = (0..self.nodes.len()).filter(|index| Some(*index) != former);
        others.filter(|index| self.nodes[*index].is_running()).find(serves)
    }

    /// Waits until a node owns the store and serves.
    fn owner(&self) -> usize {
        self.owner_but(None)
    }

    /// The same, and it is not this one.
    fn owner_but(&self, former: Option<usize>) -> usize {
        let mut owner = None;
        wait_for("an owner", START, || {
            owner = self.ready_owner(former);
            owner.is_some()
        });
        owner.expect("it was waited for")
    }
}

/// What a node says once it has joined.
const FOLLOWS: &str = "following the changelog";

fn publish(server: &Server, key: &str, ids: std::ops::Range<u32>) -> Vec<String> {
    let ids: Vec<String> = ids.map(|id| format!("e{id}")).collect();
    server.publish("orders", key, &load::body(&ids, "s"));
    ids
}

/// Every acknowledged event arrives at the endpoints of these event subscriptions, each at the path of its name.
fn assert_all_arrive(owner: &Server, sink: &Sink, subscriptions: &[&str], acknowledged: &[String]) {
    for subscription in subscriptions {
        wait_until_settled(owner, "orders", subscription);
        let repeated = assert_arrived(sink, &format!("/{subscription}"), acknowledged);
        println!("{subscription}: {} acknowledged, {} repeated", acknowledged.len(), repeated.len());
    }
}

#[test]
fn another_node_delivers_what_a_killed_owner_left() {
    let _rows = shows(&["S004-021", "S004-022", "S004-045", "S004-062", "S004-064", "S004-079", "S004-082"]);
    if !has_nats() {
        return;
    }
    let (mut cluster, sink) = (Cluster::start(1, &[]), Sink::start());
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "taken", &SubscriptionSpec::of(&sink.url("/taken")));
    cluster.nodes[0].subscribe("orders", "later", &SubscriptionSpec::of(&sink.url("/later")).batch(10));
    sink.set("/later", Behavior::Answer(503));
    let mut ids = publish(&cluster.nodes[0], &key, 0..50);
    wait_for("the first events", LONG, || sink.taken("/taken") == 50 && !sink.ledger("/later").is_empty());
    let mut owner = 0;
    for round in 1..3 {
        cluster.nodes[owner].kill_9();
        let next = cluster.owner_but(Some(owner));
        println!("{owner} was killed, {next} took over");
        ids.extend(publish(&cluster.nodes[next], &key, round * 50..round * 50 + 50));
        wait_for("events of the next owner", LONG, || sink.taken("/taken") >= ids.len());
        cluster.join(owner);
        owner = next;
    }
    sink.set("/later", Behavior::Answer(200));
    assert_all_arrive(&cluster.nodes[owner], &sink, &["taken", "later"], &ids);
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
    let (cluster, sink) = (Cluster::start(1, &[]), Sink::start());
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    // Each event is tried again after some milliseconds.
    sink.set("/failing", Behavior::Answer(503));
    cluster.nodes[0].subscribe("orders", "failing", &SubscriptionSpec::of(&sink.url("/failing")).attempts(30));
    publish(&cluster.nodes[0], &key, 0..50);
    wait_for("attempts", LONG, || sink.ledger("/failing").len() == 50);
    cluster.nodes[0].signal("STOP");
    let next = cluster.owner_but(Some(0));
    // From now on only the paused owner would call this endpoint.
    cluster.nodes[next].unsubscribe("orders", "failing");
    let attempts = |ledger: &Ledger| ledger.values().map(Vec::len).sum::<usize>();
    let (mut before, mut unchanged) = (0, 0);
    wait_for("requests of the next owner to end", LONG, || {
        let seen = std::mem::replace(&mut before, sink.look("/failing", attempts));
        unchanged = if seen == before { unchanged + 1 } else { 0 };
        unchanged > 100
    });
    cluster.nodes[0].signal("CONT");
    wait_for("the former owner to follow", LONG, || cluster.nodes[0].logs().contains("standby again"));
    assert_eq!(sink.look("/failing", attempts), before, "the former owner has delivered");
    let ids = publish(&cluster.nodes[next], &key, 50..60);
    // What a former owner wrote behind a fence would break the chain of records.
    let (messages, _) = cluster.nats.0[0].messages(STREAM, 0);
    let mut epoch = 0;
    for (index, (_, message)) in messages.iter().enumerate() {
        let record = Record::decode(&message.clone().into()).expect("a record");
        match record.body {
            Body::Fence { .. } => epoch = index as u64 + 1,
            Body::Group { .. } | Body::Release => assert_eq!(record.epoch, epoch, "record {}", index + 1),
        }
    }
    assert!(epoch > 1 && ids.len() == 10);
}

#[test]
fn what_is_acknowledged_arrives_through_kills_pauses_and_stops_of_owners() {
    if !has_nats() {
        return;
    }
    let (mut cluster, sink) = (Cluster::start(1, &[]), Sink::start());
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "alone", &SubscriptionSpec::of(&sink.url("/alone")));
    cluster.nodes[0].subscribe("orders", "batched", &SubscriptionSpec::of(&sink.url("/batched")).batch(10));
    let pause = Duration::from_millis(20);
    let rate = Rate { topic: "orders".to_owned(), key, publishers: 2, events_per_request: 5, pause };
    let load = Load::start(cluster.nodes[0].at(), &rate);
    let (mut owner, mut took, clock) = (0, Vec::new(), Clock::system());
    for round in 0..many(6, 50) {
        let answer = if round % 2 == 0 { Behavior::Answer(503) } else { Behavior::Answer(200) };
        sink.set("/batched", answer);
        let before = load.acknowledged();
        wait_for("publishers to be served", LONG, || load.acknowledged() > before + 20);
        let began = clock.now();
        let how = ["KILL", "STOP", "TERM"][round % 3];
        cluster.nodes[owner].signal(how);
        let next = cluster.owner_but(Some(owner));
        load.turn_to(cluster.nodes[next].at());
        took.push((clock.now().since(began), how));
        match how {
            "STOP" => {
                let before = cluster.nodes[owner].logs().matches("standby again").count();
                cluster.nodes[owner].signal("CONT");
                wait_for("the former owner to follow", LONG, || {
                    cluster.nodes[owner].logs().matches("standby again").count() > before
                });
            }
            "TERM" => {
                assert_eq!(cluster.nodes[owner].wait(START), Some(0));
                cluster.join(owner);
            }
            _ => {
                cluster.nodes[owner].wait(START);
                cluster.join(owner);
            }
        }
        owner = next;
    }
    took.sort_unstable();
    println!("takeovers: median {:?}, worst {:?}: {took:?}", took[took.len() / 2], took[took.len() - 1]);
    sink.set("/batched", Behavior::Answer(200));
    let acknowledged = load.stop();
    assert_all_arrive(&cluster.nodes[owner], &sink, &["alone", "batched"], &acknowledged);
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
}

#[test]
fn nodes_that_were_all_stopped_serve_and_deliver_again() {
    if !has_nats() {
        return;
    }
    let (mut cluster, sink) = (Cluster::start(1, &[]), Sink::start());
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::of(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    for node in &mut cluster.nodes {
        node.terminate();
    }
    for node in &mut cluster.nodes {
        node.begin();
    }
    for node in &mut cluster.nodes {
        node.await_listening().unwrap_or_else(|(status, reported)| panic!("{status}: {reported}"));
    }
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
    // A standby notices by reading, and an owner by writing.
    assert_eq!(cluster.nodes[1].wait(START), Some(1));
    assert!(cluster.nodes[1].logs().contains("the changelog does not exist, but"), "{}", cluster.nodes[1].logs());
    let answer = cluster.nodes[0].admin("PUT", &format!("{SCOPE}/more"), &serde_json::json!({"properties": {}}));
    assert!(answer.status >= 500, "{}", answer.text());
    assert_eq!(cluster.nodes[0].wait(START), Some(1));
    // A new node does not begin a new stream, as long as the records say that there was one.
    cluster.nodes[2].begin();
    assert_eq!(cluster.nodes[2].wait(START), Some(1));
    assert!(cluster.nodes[2].logs().contains("the changelog does not exist"), "{}", cluster.nodes[2].logs());
    let folder = cluster.nodes[0].data_dir().display().to_string();
    let (status, reported) = say(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &folder]);
    assert!(!status.success(), "{reported}");
    assert!(reported.contains("belongs to a node of a cluster"), "{reported}");
}

#[test]
fn what_is_acknowledged_survives_kills_of_one_and_of_all_servers_of_nats() {
    if !has_nats() {
        return;
    }
    let (mut cluster, sink) = (Cluster::start(3, &[]), Sink::start());
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "batched", &SubscriptionSpec::of(&sink.url("/batched")).batch(10));
    let pause = Duration::from_millis(20);
    let rate = Rate { topic: "orders".to_owned(), key, publishers: 2, events_per_request: 5, pause };
    let load = Load::start(cluster.nodes[0].at(), &rate);
    let clock = Clock::system();
    for killed in [0..1, 1..2, 0..3] {
        let before = load.acknowledged();
        wait_for("publishers to be served", START, || load.acknowledged() > before + 20);
        killed.clone().for_each(|index| cluster.nats.0[index].kill());
        let began = clock.now();
        killed.clone().for_each(|index| cluster.nats.0[index].start());
        // The leases of all nodes may have ended meanwhile, so that any of them may be the next owner.
        let before = load.acknowledged();
        wait_for("publishers to be served again", START, || {
            if let Some(owner) = cluster.ready_owner(None) {
                load.turn_to(cluster.nodes[owner].at());
            }
            load.acknowledged() > before + 20
        });
        println!("{killed:?} were killed: served again after {:?}", clock.now().since(began));
    }
    let acknowledged = load.stop();
    let owner = cluster.owner();
    assert_all_arrive(&cluster.nodes[owner], &sink, &["batched"], &acknowledged);
    for node in &mut cluster.nodes {
        node.kill_9();
        node.assert_sound();
    }
}
