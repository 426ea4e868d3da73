//! Nodes that have claimed the store and do not serve yet, and are asked to give it up or to stop.

use std::{fs, io::Write as _, net::TcpStream, time::Duration};

use gridhook::journal::changelog::record::{Body, Record};
use serde_json::{Value, json};

use super::{
    Cluster, LONG, START, STREAM, TOKEN, assert_arrived,
    cuts::{FENCE, start_behind_proxy},
    publish,
};
use crate::{
    publish::bearer::Signer,
    server::wait_until_settled,
    support::{
        nats::{NatsCluster, has_nats},
        server::{Server, SubscriptionSpec, operator, wait_for},
        sink::Sink,
        tcp_proxy::{Cut, TcpProxy},
    },
};

/// A topic that the first node declares.
const DECLARED: &str = "declared-topic";

/// Its path: that of topics of a file that names no resource group.
const TOPIC: &str =
    "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/declared-topic";

/// Longer than anything that the tests wait for, so that nothing ends only because of it.
const FOREVER: &str = "10m";

/// A cluster whose first node has claimed the store, and whose requests that have this mark do not
/// arrive at NATS.
fn held(mark: &'static str) -> (Cluster, TcpProxy, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topics.toml");
    fs::write(&file, format!("[topics.{DECLARED}]\n")).expect("a file");
    let file = file.display().to_string();
    let (cluster, proxy) = start_behind_proxy(&[
        ("SERVER__APPLY", file.as_str()),
        ("SERVER__SHUTDOWN_TIMEOUT", FOREVER),
    ]);
    let moved = |to: &str| {
        wait_for("the owner to be asked", LONG, || {
            operator(&cluster.nodes[1], &["cluster", "move", "0", to]).is_ok()
        });
    };
    moved("b");
    wait_for("another owner", START, || {
        cluster.ready_owner(None) == Some(1)
    });
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
    wait_for("the node to be a standby", LONG, || {
        cluster.nodes[0].logs().contains(asked)
    });
    let logs = cluster.nodes[0].logs();
    assert!(!logs.contains("the claimed shard was not taken"), "{logs}");
    proxy.cut(Cut::Nothing);
    first_takes_it_again(&cluster);
}

#[test]
fn a_node_that_cannot_follow_what_it_has_claimed_gives_the_claim_up_and_says_why() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy, _files) = held(FENCE.0);
    cluster.nats.0[0].append(STREAM, "what no owner has written");
    proxy.cut(Cut::Nothing);
    wait_for("the node to say why", START, || {
        let response = cluster.nodes[0].client().ask("GET", "/readyz", &[], b"");
        let text = response.expect("a response").text();
        text.contains("of the changelog cannot be applied")
    });
    wait_for("the claim to be given up", START, || {
        let record = cluster.nats.0[0].value("GH_test", "shard.0");
        let record: Value = serde_json::from_slice(&record).expect("a record");
        record["ownerId"] == Value::Null
    });
}

#[test]
fn a_node_asks_again_for_the_records_of_the_cluster_where_nats_does_not_answer_at_first() {
    if !has_nats() {
        return;
    }
    let nats = NatsCluster::start(1, "always");
    let at = nats.0[0]
        .url()
        .trim_start_matches("nats://")
        .parse()
        .expect("an address");
    let proxy = TcpProxy::start(&[at]);
    let url = format!("nats://{}", proxy.address());
    let mut cluster = Cluster::prepare_each(nats, &[], |_| vec![("CLUSTER__URLS", url.clone())]);
    proxy.cut(Cut::Marked("KV_GH_test"));
    cluster.nodes[0].begin();
    wait_for("a request without an answer", START, || {
        cluster.nodes[0]
            .logs()
            .contains("NATS does not make the stream yet; asking again")
    });
    proxy.cut(Cut::Nothing);
    cluster.nodes[0]
        .await_listening()
        .unwrap_or_else(|(status, reported)| panic!("{status}: {reported}"));
    assert_eq!(cluster.owner(), 0);
}

/// The first node takes the store again once it may.
fn first_takes_it_again(cluster: &Cluster) {
    let owner = cluster.owner_but(Some(0));
    for request in [
        ["cluster", "drain", "a", "--end"].as_slice(),
        &["cluster", "move", "0", "a"],
    ] {
        wait_for("the request", START, || {
            operator(&cluster.nodes[owner], request).is_ok()
        });
    }
    wait_for("the first node to own the store", START, || {
        cluster.ready_owner(None) == Some(0)
    });
}

#[test]
fn a_node_whose_first_write_waits_gives_the_store_up_when_it_is_asked_to() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy, _files) = held(DECLARED);
    // A client whose request waits for an owner, and then does not end.
    let mut tail = TcpStream::connect(cluster.nodes[0].address()).expect("a connection");
    let request =
        format!("GET /tail HTTP/1.1\r\nhost: node\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    tail.write_all(request.as_bytes()).expect("a request");
    drain_first(&cluster);
    println!("node {} is the next owner", cluster.owner_but(Some(0)));
    proxy.cut(Cut::Nothing);
    let asked = "asked to give the store up while it started; standby again";
    wait_for("the node to be a standby", LONG, || {
        cluster.nodes[0].logs().contains(asked)
    });
    wait_for("the node to answer other clients", LONG, || {
        let response = cluster.nodes[0].client().ask("GET", "/healthz", &[], b"");
        response.is_ok_and(|response| response.status == 200)
    });
    first_takes_it_again(&cluster);
    drop(tail);
}

#[test]
fn a_node_that_is_stopped_at_its_first_write_releases_the_changelog() {
    if !has_nats() {
        return;
    }
    let (mut cluster, proxy, _files) = held(DECLARED);
    cluster.nodes[0].signal("TERM");
    proxy.cut(Cut::Nothing);
    assert_eq!(cluster.nodes[0].wait(Duration::from_secs(60)), Some(0));
    println!("node {} is the next owner", cluster.owner_but(Some(0)));
    assert!(is_released(&cluster));
}

#[test]
fn a_node_that_cannot_start_releases_the_changelog_and_leaves() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    fs::write(&keys, Signer::new().set().to_string()).expect("a file");
    let own = |node: &str| {
        let keys = keys.display().to_string();
        let settings = vec![
            ("AUTH__ISSUER", "https://issuer/".to_owned()),
            ("AUTH__JWKS", keys),
        ];
        settings.into_iter().filter(|_| node == "b").collect()
    };
    let mut cluster = Cluster::prepare_on(NatsCluster::start(1, "always"), own);
    cluster.join_all();
    // A standby does not need the file.
    fs::remove_file(&keys).expect("a file");
    // It is refused until the standby has caught up.
    wait_for("the move", LONG, || {
        operator(&cluster.nodes[0], &["cluster", "move", "0", "b"]).is_ok()
    });
    assert_eq!(cluster.nodes[1].wait(Duration::from_secs(60)), Some(1));
    let logs = cluster.nodes[1].logs();
    assert!(
        logs.contains("this node owns the store") && logs.contains("keys.json cannot be read"),
        "{logs}"
    );
    let next = cluster.owner_but(Some(1));
    assert!(is_released(&cluster));
    let view = cluster.nodes[next]
        .command("GET", "/cluster/status", &Value::Null)
        .json();
    let nodes = view["nodes"].as_array().expect("nodes");
    let failed = nodes
        .iter()
        .find(|node| node["name"] == "b")
        .expect("its record");
    assert_eq!(failed["owns"], json!([]), "{view}");
}

/// Whether the owner before the present one has released the changelog.
fn is_released(cluster: &Cluster) -> bool {
    let (messages, _) = cluster.nats.0[0].messages(STREAM, 0);
    let records = messages
        .into_iter()
        .map(|(_, message)| Record::decode(&message.into()).expect("a record").body);
    let records: Vec<Body> = records.collect();
    let is_fence = |record: &Body| matches!(record, Body::Fence { .. });
    let last = records
        .iter()
        .rposition(is_fence)
        .expect("the fence of the next owner");
    println!("before the fence: {:?}", records[last - 1]);
    matches!(records[last - 1], Body::Release)
}

/// Servers of NATS that are down do not keep nodes down: a majority acknowledges writes without
/// them.
#[test]
fn nodes_start_while_one_of_three_nats_servers_is_down_and_check_it_later() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    for node in &mut cluster.nodes {
        node.terminate();
    }
    cluster.nats.0[2].kill();
    cluster.join_all();
    ids.extend(publish(&cluster.nodes[0], &key, 10..20));
    wait_until_settled(&cluster.nodes[0], "orders", "all");
    assert_arrived(&sink, "/all", &ids);
    let is_checked = |node: &Server| node.logs().contains("all NATS servers sync every write");
    assert!(!cluster.nodes.iter().any(is_checked), "a server is down");
    let lacks_server = |node: &Server| {
        let metrics = node.command("GET", "/metrics", &Value::Null).text();
        metrics.contains("gridhook_cluster_stream_missing_replicas{shard=\"0\"} 1")
    };
    wait_for("the missing server to be counted", LONG, || {
        cluster.nodes.iter().any(lacks_server)
    });
    cluster.nats.0[2].start();
    wait_for("the server to be checked", START, || {
        cluster.nodes.iter().all(is_checked)
    });
    wait_for("no server to be missing", LONG, || {
        !cluster.nodes.iter().any(lacks_server)
    });
}
