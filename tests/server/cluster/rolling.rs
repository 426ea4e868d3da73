//! A restart of all nodes, one after the other, under load: what an upgrade is.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    Cluster, STREAM,
    clients::{Clients, publishes, topic_without_duplicates},
    publish,
};
use crate::{
    server::{LONG, assert_arrived, many, wait_until_settled},
    spec::shows,
    support::{
        nats::has_nats,
        server::{Server, SubscriptionSpec, wait_for},
        sink::Sink,
        tcp_proxy::TcpProxy,
    },
};

/// No publisher that tries again is refused for longer, on a machine that has nothing else to do.
const REFUSED: Duration = Duration::from_secs(1);

/// As this node sees it, all nodes run and may take the store.
fn is_whole(node: &Server) -> bool {
    let view = node.command("GET", "/cluster/status", &Value::Null).json();
    let nodes = view["nodes"].as_array().expect("nodes");
    nodes.iter().all(|node| node["state"] == "alive")
}

/// The formats of the fences of a stream, the first ones first.
fn fence_formats(cluster: &Cluster) -> Vec<u8> {
    let (messages, _) = cluster.nats.0[0].messages(STREAM, 0);
    let records = messages.into_iter().map(|(_, record)| record);
    let is_fence = |record: &Vec<u8>| record[1] == 1;
    records.filter(is_fence).map(|record| record[0]).collect()
}

#[test]
fn a_format_is_written_once_all_nodes_read_it() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::prepare(3, &[]);
    cluster.nodes[1].set("CLUSTER__RECORD_FORMAT", "1");
    // Nobody is there who reads the second one.
    cluster.join(1);
    assert_eq!(cluster.owner(), 1);
    cluster.join(0);
    cluster.join(2);
    let key = topic_without_duplicates(&cluster.nodes[0], "orders");
    publish(&cluster.nodes[0], &key, 0..10);
    cluster.nodes[1].terminate();
    // The former release comes back at once, so that its record stays alive.
    cluster.join(1);
    let owner = cluster.owner();
    let expiry = Instant::now();
    wait_for("the nodes to know each other", LONG, || {
        is_whole(&cluster.nodes[owner]) && expiry.elapsed() > Duration::from_secs(1)
    });
    let before = fence_formats(&cluster);
    cluster.nodes[owner].kill_9();
    let next = cluster.owner_but(Some(owner));
    publish(&cluster.nodes[next], &key, 10..20);
    let formats = fence_formats(&cluster);
    assert!(formats.len() > before.len(), "{formats:?}");
    let all_have = |formats: &[u8], format| formats.iter().all(|one| *one == format);
    assert!(all_have(&formats[before.len()..], 1), "{formats:?}");
    cluster.join(owner);
    cluster.nodes[1].terminate();
    cluster.nodes[1].set("CLUSTER__RECORD_FORMAT", "2");
    cluster.join(1);
    let owner = cluster.owner();
    let began = Instant::now();
    wait_for("the nodes to know each other", LONG, || {
        is_whole(&cluster.nodes[owner]) && began.elapsed() > Duration::from_secs(1)
    });
    let before = fence_formats(&cluster).len();
    cluster.nodes[owner].kill_9();
    let next = cluster.owner_but(Some(owner));
    publish(&cluster.nodes[next], &key, 20..30);
    let formats = fence_formats(&cluster);
    assert!(
        formats.len() > before && all_have(&formats[before..], 2),
        "{formats:?}"
    );
    cluster.join(owner);
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
}

#[test]
fn a_rolling_restart_refuses_no_publisher_for_long_and_repeats_nothing() {
    let _rows = shows(&[
        "S004-046: When an instance goes down in order to scale down, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
        "S004-018: Requirement load balance: the number of consumers can be raised or lowered \
         dynamically.",
        "S004-032: Processor clients distribute and balance the work automatically as instances \
         become available to the group.",
        "S004-033: Processor clients distribute and balance the work automatically as instances \
         become unavailable to the group.",
    ]);
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = topic_without_duplicates(&cluster.nodes[0], "orders");
    cluster.nodes[0].subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::new(&sink.url("/alone")),
    );
    cluster.nodes[0].subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched")).batch(10),
    );
    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    let published: Vec<_> = (0..3)
        .map(|publisher| {
            publishes(
                &mut clients,
                balancer.address(),
                ("orders", &key),
                (publisher, "/load"),
            )
        })
        .collect();
    let acknowledged = || {
        published
            .iter()
            .map(|published| published.lock().ids.len())
            .sum::<usize>()
    };
    for round in 0..many(1, 5) {
        // The owner is the last one.
        let owner = cluster.owner();
        for index in [(owner + 1) % 3, (owner + 2) % 3, owner] {
            let before = acknowledged();
            wait_for(
                "publishers to be served by a cluster that is whole",
                LONG,
                || acknowledged() > before + 50 && is_whole(&cluster.nodes[index]),
            );
            let took = cluster.nodes[index].terminate();
            println!("round {round}: node {index} stopped after {took:?}");
            balancer.turn_to(&cluster.addresses());
            cluster.join(index);
            balancer.turn_to(&cluster.addresses());
        }
    }
    let before = acknowledged();
    wait_for("publishers to be served", LONG, || {
        acknowledged() > before + 50
    });
    clients.stop();
    let longest = published
        .iter()
        .map(|published| published.lock().longest)
        .max()
        .unwrap_or_default();
    let acknowledged: Vec<String> = published
        .iter()
        .flat_map(|published| published.lock().ids.clone())
        .collect();
    println!(
        "{} events; no publisher was refused for longer than {longest:?}",
        acknowledged.len()
    );
    // Beside other tests the machine has other work.
    assert!(
        longest <= REFUSED * many(10, 1) as u32,
        "a publisher was refused for {longest:?}"
    );
    let owner = cluster.owner();
    for subscription in ["alone", "batched"] {
        wait_until_settled(&cluster.nodes[owner], "orders", subscription);
        let repeated = assert_arrived(&sink, &format!("/{subscription}"), &acknowledged);
        println!("{subscription}: {} repeated", repeated.len());
        let is_cut_short =
            |node: &Server| node.logs().contains("requests are in flight at the stop");
        assert!(
            repeated.is_empty() || cluster.nodes.iter().any(is_cut_short),
            "{} repeated",
            repeated.len()
        );
    }
}
