//! Nodes that are gone for good, and nodes that come back.

use std::{fs, time::Duration};

use serde_json::Value;

use super::{Cluster, LONG, START, STREAM, TOKEN, assert_all_arrive, publish};
use crate::{
    commands::examples::example_words,
    support::{
        nats::{NatsCluster, has_nats},
        server::{Server, SubscriptionSpec, operator, say, wait_for},
        sink::Sink,
    },
};

/// The names of the nodes with a record, as a node sees them.
fn names(node: &Server) -> Vec<String> {
    let view = node.command("GET", "/cluster/status", &Value::Null).json();
    let nodes = view["nodes"].as_array().expect("nodes");
    nodes
        .iter()
        .filter_map(|node| Some(node["name"].as_str()?.to_owned()))
        .collect()
}

/// Removes the record of node `c`, once the others list it as dead.
fn forget(node: &Server) {
    wait_for("the node to be dead", START, || {
        match operator(node, &["cluster", "forget", "c", "--yes"]) {
            Ok(shown) => {
                assert!(!shown.contains("\nc "), "{shown}");
                true
            }
            Err(error) => {
                assert!(
                    error.contains("the node c is alive, or was a moment ago"),
                    "{error}"
                );
                false
            }
        }
    });
    // A standby reads the records a moment later than the owner.
    wait_for("the record to be gone", LONG, || names(node) == ["a", "b"]);
}

#[test]
fn a_second_process_with_the_name_of_a_node_that_runs_is_refused() {
    if !has_nats() {
        return;
    }
    let own = |index| match index {
        3 => vec![("CLUSTER__NODE", "a".to_owned())],
        _ => Vec::new(),
    };
    let mut cluster = Cluster::prepare_many(NatsCluster::start(3, "always"), 4, own);
    for index in 0..3 {
        cluster.join(index);
    }
    let key = cluster.nodes[cluster.owner()].topic("orders", "EventGridSchema");
    cluster.nodes[3].begin();
    assert_eq!(cluster.nodes[3].wait(START), Some(1));
    let log = cluster.nodes[3].logs();
    assert!(
        log.contains("another process that runs is the node a"),
        "{log}"
    );
    assert!(!cluster.nodes[0].has_ended(), "{}", cluster.nodes[0].logs());
    let owner = cluster.owner();
    publish(&cluster.nodes[owner], &key, 0..10);
    // Once it has ended, its name is free.
    cluster.nodes[0].kill_9();
    cluster.join(3);
    wait_for("the node to join", START, || {
        names(&cluster.nodes[3]) == ["a", "b", "c"]
    });
}

/// The examples in the help of `cluster` run, with the names of these nodes.
#[test]
fn the_examples_of_the_cluster_run() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[("CLUSTER__EXPIRY", "5s")]);
    wait_for("the records of all", LONG, || {
        names(&cluster.nodes[1]) == ["a", "b", "c"]
    });
    let run = |cluster: &Cluster, name: &str| {
        let words = example_words(name);
        let words: Vec<&str> = words
            .iter()
            .map(|word| word.strip_prefix("node-").unwrap_or(word))
            .collect();
        operator(&cluster.nodes[0], &words)
    };
    for name in ["cluster status", "cluster ownership"] {
        run(&cluster, name).expect("a response");
    }
    wait_for("the node to have caught up", START, || {
        run(&cluster, "cluster move").is_ok()
    });
    wait_for("the next owner", START, || cluster.owner() == 1);
    run(&cluster, "cluster drain").expect("it is asked");
    cluster.nodes[2].kill_9();
    wait_for("the node to be dead", START, || {
        run(&cluster, "cluster forget").is_ok()
    });
}

#[test]
fn a_forgotten_node_joins_again_or_says_what_it_needs() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[("CLUSTER__EXPIRY", "5s")]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "taken",
        &SubscriptionSpec::new(&sink.url("/taken")),
    );
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    wait_for("the records of all", LONG, || {
        names(&cluster.nodes[1]) == ["a", "b", "c"]
    });
    let asked = |node: &str, flag: &[&str]| {
        operator(
            &cluster.nodes[1],
            &[&["cluster", "forget", node], flag].concat(),
        )
    };
    let error = asked("b", &["--yes"]).expect_err("it is alive");
    assert!(error.contains("the node b is alive"), "{error}");
    let error = asked("d", &["--yes"]).expect_err("there is none");
    assert!(
        error.contains("no node d has a record; the nodes are a, b, c"),
        "{error}"
    );
    let error = asked("c", &[]).expect_err("nobody has confirmed it");
    assert!(
        error.contains("Forget the node c?") && error.contains("--yes"),
        "{error}"
    );

    // The stream has all that it needs.
    cluster.nodes[2].kill_9();
    let advice =
        "c is dead, and the stream keeps what it needs: start it, or gridhook cluster forget c";
    wait_for("the advice", START, || {
        operator(&cluster.nodes[1], &["cluster", "status"])
            .expect("a table")
            .contains(advice)
    });
    forget(&cluster.nodes[1]);
    let trail =
        operator(&cluster.nodes[0], &["audit", "--search", "/cluster/forget"]).expect("a table");
    assert!(trail.contains("POST"), "{trail}");
    cluster.join(2);
    wait_for("its record", LONG, || {
        names(&cluster.nodes[0]) == ["a", "b", "c"]
    });

    // The stream does not have it any more, and whether the store is of this cluster is not known.
    cluster.nodes[2].kill_9();
    fs::remove_file(cluster.nodes[2].data_dir().join("cluster-id")).expect("a file");
    ids.extend(publish(&cluster.nodes[0], &key, 10..30));
    forget(&cluster.nodes[0]);
    wait_for("the standby to apply everything", LONG, || {
        let view = cluster.nodes[1]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        view["nodes"][0]["applied"] == view["nodes"][1]["applied"]
    });
    cluster.nats.0[0].purge(STREAM);
    cluster.nodes[2].begin();
    assert_eq!(cluster.nodes[2].wait(START), Some(1));
    let logs = cluster.nodes[2].logs();
    assert!(
        logs.contains("the changelog begins at record") && logs.contains("an empty data folder"),
        "{logs}"
    );
    assert_eq!(
        names(&cluster.nodes[0]),
        ["a", "b"],
        "the stream is kept for no node that cannot follow"
    );

    // A backup of the cluster will do, too.
    let backup = cluster.nodes[0].data_dir().with_file_name("backup");
    operator(
        &cluster.nodes[1],
        &["backup", backup.to_str().expect("text")],
    )
    .expect("a backup");
    let folder = cluster.nodes[2].data_dir();
    fs::remove_dir_all(&folder).expect("a folder");
    let backup = backup.display().to_string();
    let folder_name = folder.display().to_string();
    let (status, reported) = say(&["restore", &backup, "--data-dir", &folder_name]);
    assert!(status.success(), "{reported}");
    fs::write(folder.join("admin-token"), TOKEN).expect("a file");
    cluster.join(2);
    wait_for("its record", LONG, || {
        names(&cluster.nodes[0]) == ["a", "b", "c"]
    });
    wait_for("the node to have caught up", START, || {
        let moved = operator(&cluster.nodes[1], &["cluster", "move", "0", "c"]);
        moved
            .inspect_err(|error| assert!(error.contains("the node c has not caught up"), "{error}"))
            .is_ok()
    });
    wait_for("the node to own the store", START, || cluster.owner() == 2);
    ids.extend(publish(&cluster.nodes[2], &key, 30..40));
    wait_for("all events", Duration::from_secs(60), || {
        sink.taken("/taken") >= ids.len()
    });
    assert_all_arrive(&cluster.nodes[2], &sink, &["taken"], &ids);
}

#[test]
fn a_node_that_was_forgotten_while_it_was_paused_joins_again_also_with_a_copy() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[("CLUSTER__EXPIRY", "5s")]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    let follows = |cluster: &Cluster| {
        wait_for("all to have the same", LONG, || {
            let view = cluster.nodes[0]
                .command("GET", "/cluster/status", &Value::Null)
                .json();
            let nodes = view["nodes"].as_array().expect("nodes").clone();
            nodes
                .iter()
                .all(|node| node["flushed"] == nodes[0]["flushed"])
        });
    };
    publish(&cluster.nodes[0], &key, 0..10);
    wait_for("the records of all", LONG, || {
        names(&cluster.nodes[0]) == ["a", "b", "c"]
    });
    follows(&cluster);

    // The stream has what it needs.
    cluster.nodes[2].signal("STOP");
    publish(&cluster.nodes[0], &key, 10..20);
    forget(&cluster.nodes[1]);
    cluster.nodes[2].signal("CONT");
    wait_for("its record", LONG, || {
        names(&cluster.nodes[0]) == ["a", "b", "c"]
    });
    assert!(
        cluster.nodes[2].logs().contains("it joins again"),
        "{}",
        cluster.nodes[2].logs()
    );
    follows(&cluster);

    // The stream does not have it any more.
    cluster.nodes[2].signal("STOP");
    publish(&cluster.nodes[0], &key, 20..30);
    forget(&cluster.nodes[1]);
    follows(&cluster);
    cluster.nats.0[0].purge(STREAM);
    publish(&cluster.nodes[0], &key, 30..40);
    cluster.nodes[2].signal("CONT");
    wait_for("a copy of the store", START, || {
        cluster.nodes[2]
            .logs()
            .contains("the copy of the store is in place")
    });
    wait_for("its record", LONG, || {
        names(&cluster.nodes[0]) == ["a", "b", "c"]
    });
    follows(&cluster);
    cluster.nodes[2].terminate();
    cluster.nodes[2].assert_sound();
}
