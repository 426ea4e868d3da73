//! A restart of all nodes, one after the other, under load: what an upgrade is.

use std::time::Duration;

use serde_json::Value;

use super::{
    Cluster,
    clients::{Clients, lock, publishes, topic_without_duplicates},
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

#[test]
fn a_rolling_restart_refuses_no_publisher_for_long_and_repeats_nothing() {
    let _rows = shows(&["S004-046", "S004-018", "S004-032", "S004-033"]);
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = topic_without_duplicates(&cluster.nodes[0], "orders");
    cluster.nodes[0].subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::of(&sink.url("/alone")),
    );
    cluster.nodes[0].subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::of(&sink.url("/batched")).batch(10),
    );
    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    let published: Vec<_> = (0..3)
        .map(|publisher| {
            publishes(
                &mut clients,
                balancer.at(),
                ("orders", &key),
                (publisher, "/load"),
            )
        })
        .collect();
    let acknowledged = || {
        published
            .iter()
            .map(|published| lock(published).ids.len())
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
        .map(|published| lock(published).longest)
        .max()
        .unwrap_or_default();
    let acknowledged: Vec<String> = published
        .iter()
        .flat_map(|published| lock(published).ids.clone())
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
