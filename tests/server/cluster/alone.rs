//! A cluster of one node with two shards: what its log and its audit trail say of a shard, and a
//! new cluster that goes on with its data folder.

use std::{fs, thread, time::Duration};

use gridhook::cluster::shard_of;
use serde_json::{Value, json};

use super::{Cluster, LONG, SECRET, START, TOKEN, keep_token, shards::status_of};
use crate::{
    server::{assert_arrived, pull::RG, wait_until_settled},
    support::{
        nats::{NatsCluster, PASSWORD, has_nats},
        server::{Server, SubscriptionSpec, say, wait_for},
        sink::Sink,
    },
};

const SHARDS: usize = 2;

fn prepare() -> Cluster {
    let settings = |_| {
        vec![
            ("CLUSTER__SHARDS", SHARDS.to_string()),
            ("CHAOS__ENABLED", "true".to_owned()),
            // It renews its record often, and a busy machine ends no lease.
            ("CLUSTER__EXPIRY", "20s".to_owned()),
        ]
    };
    let cluster = Cluster::prepare_many(NatsCluster::start(1, "always"), 1, settings);
    keep_token(&cluster.nodes[0]);
    cluster
}

/// Starts the node, and returns when it serves both shards.
fn serve(cluster: &mut Cluster) {
    cluster.nodes[0].restart();
    wait_for("the node to serve", START, || {
        let shards = cluster.nodes[0]
            .request_without_token("GET", "/readyz", &[])
            .json()["shards"]
            .clone();
        let serving = shards
            .as_array()
            .into_iter()
            .flatten()
            .filter(|shard| shard["state"] == "serving");
        serving.count() == SHARDS
    });
}

/// The name of a topic in each shard.
fn names() -> [String; SHARDS] {
    let in_shard = |shard| {
        (0..)
            .map(|number| format!("topic-{number}"))
            .find(|name| shard_of(name, SHARDS) == shard)
    };
    [0, 1].map(|shard| in_shard(shard).expect("a name"))
}

#[test]
fn a_node_with_several_shards_deploys_templates_and_simulates() {
    if !has_nats() {
        return;
    }
    let mut cluster = prepare();
    serve(&mut cluster);
    let node = &cluster.nodes[0];
    let group = "/subscriptions/local/resourceGroups/dev";
    node.command("PUT", group, &json!({"location": "westus2"}));
    let [first, second] = names();
    let topic = |name: &str| {
        json!({
            "type": "Microsoft.EventGrid/topics",
            "apiVersion": "2022-06-15",
            "name": name,
            "location": "local",
        })
    };
    let template = json!({
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "resources": [topic(&first), topic(&second)],
    });
    let deployment = format!("{group}/providers/Microsoft.Resources/deployments/main");
    let body = json!({"properties": {"mode": "Incremental", "template": template}});
    node.command("PUT", &deployment, &body);
    wait_for("the deployment to succeed", START, || {
        let deployment = node.command("GET", &deployment, &Value::Null).json();
        deployment["properties"]["provisioningState"] == "Succeeded"
    });
    let plan = json!({"edition": "current", "models": ["healthy"], "subscriptions": 1, "days": 1});
    node.command("POST", "/simulate", &plan);
}

#[test]
fn the_log_names_the_shard_of_an_actor_and_a_refused_fault_is_recorded_once() {
    if !has_nats() {
        return;
    }
    let mut cluster = prepare();
    serve(&mut cluster);
    let node = &cluster.nodes[0];
    let sink = Sink::start();
    // No shard does it, though each is asked.
    let nameless = node.admin(
        "POST",
        "/chaos/kill",
        &json!({"actor": "topic", "by": "panic"}),
    );
    assert_eq!(nameless.status, 400, "{}", nameless.text());
    let mut asked = 1;
    for name in names() {
        let key = node.topic(&name, "EventGridSchema");
        node.subscribe(
            &name,
            "all",
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
        );
        assert_eq!(status_of(node, &name, &key, "1", "s"), 200);
        let kill = json!({"actor": "topic", "topic": name, "by": "panic"});
        // An actor that does not run yet refuses it.
        wait_for("a fault", LONG, || {
            asked += 1;
            node.admin("POST", "/chaos/kill", &kill).status == 200
        });
    }
    let recorded = || {
        let found = node
            .command("GET", "/audit?top=1000&search=/chaos/kill", &Value::Null)
            .json();
        found["value"].as_array().map_or(0, Vec::len)
    };
    wait_for("the records of the faults", LONG, || recorded() >= asked);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(recorded(), asked);
    for message in ["chaos: killing an actor", "actor ended; restarting it"] {
        for shard in 0..SHARDS {
            let of_shard = format!("core{{shard={shard}}}");
            wait_for("the line of a shard", LONG, || {
                let log = node.logs();
                let lines: Vec<&str> = log.lines().filter(|line| line.contains(message)).collect();
                assert!(
                    lines.iter().all(|line| line.contains("core{shard=")),
                    "{lines:?}"
                );
                lines.iter().any(|line| line.contains(&of_shard))
            });
        }
    }
}

/// The parts of a queue hand over one large event each, and all of them are of one node.
#[test]
fn a_response_to_a_client_that_pulls_has_no_more_large_events_than_that_of_one_shard() {
    if !has_nats() {
        return;
    }
    let mut cluster = prepare();
    cluster.nodes[0].set("PUBLISH__EVENT_BYTES", "6000000");
    cluster.nodes[0].set("PUBLISH__REQUEST_BYTES", "6000000");
    serve(&mut cluster);
    let node = &cluster.nodes[0];
    node.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    let heat = format!("{RG}/plant/topics/heat");
    let partitions = json!({"properties": {"partitionCount": SHARDS}});
    node.command("PUT", &heat, &partitions);
    let queue = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    node.command("PUT", &format!("{heat}/eventSubscriptions/work"), &queue);
    let keys = node.command("POST", &format!("{RG}/plant/listKeys"), &Value::Null);
    let key = format!(
        "SharedAccessKey {}",
        keys.json()["key1"].as_str().expect("a key")
    );
    let ask = |operation: &str, body: &str| {
        let content_type = "application/cloudevents+json; charset=utf-8";
        let headers = [("authorization", &*key), ("content-type", content_type)];
        let path = format!("/namespaces/plant/topics/heat{operation}");
        let response = node.client().ask("POST", &path, &headers, body.as_bytes());
        let response = response.expect("a response");
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    wait_for("the node to see the parts", LONG, || {
        let path = format!("{heat}/events?shard=0");
        node.admin("GET", &path, &Value::Null).status == 200
    });
    let count = 6;
    for number in 0..count {
        let data = "x".repeat(4_500_000);
        let event = json!({"specversion": "1.0", "id": number.to_string(), "source": "/oven",
            "type": "hot", "data": data});
        ask(":publish", &event.to_string());
    }
    for _ in 0..count {
        let received = ask(
            "/eventsubscriptions/work:receive?maxEvents=10&maxWaitTime=20",
            "",
        );
        assert_eq!(received["value"].as_array().map(Vec::len), Some(1));
    }
}

/// The settings of the node for a command. It need not wait long for a renewal.
fn settings(cluster: &Cluster, folder: &std::path::Path) -> String {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let password = file("password", PASSWORD);
    let secret = file("secret", SECRET);
    let url = &cluster.nats.urls()[0];
    let text = format!(
        r#"[server]
admin_token = "{TOKEN}"
[cluster]
engine = "nats"
name = "test"
node = "a"
urls = ["{url}"]
username = "gridhook"
password_file = "{password}"
durability = "unchecked"
replicas = 1
shards = {SHARDS}
node_listen = "127.0.0.1:7000"
secret_file = "{secret}"
expiry = "1s"
"#
    );
    file("gridhook.toml", &text)
}

#[test]
fn a_new_cluster_goes_on_with_the_stores_of_a_node_whose_cluster_has_lost_its_streams() {
    if !has_nats() {
        return;
    }
    let mut cluster = prepare();
    serve(&mut cluster);
    let sink = Sink::start();
    let topic = |name: String| {
        let node = &cluster.nodes[0];
        let key = node.topic(&name, "EventGridSchema");
        node.subscribe(
            &name,
            "all",
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
        );
        node.post_verb(&name, "all", "hold");
        assert_eq!(status_of(node, &name, &key, "before", "s"), 200);
        (name, key)
    };
    let topics = names().map(topic);

    let files = tempfile::tempdir().expect("a folder");
    let data = cluster.nodes[0].data_dir();
    let settings = settings(&cluster, files.path());
    let reseed = |flags: &[&str]| {
        let of_node = [
            "cluster",
            "reseed",
            "--config",
            &settings,
            "--data-dir",
            data.to_str().expect("text"),
        ];
        let (status, said) = say(&[&of_node[..], flags].concat());
        if status.success() {
            Ok(said)
        } else {
            Err(said)
        }
    };
    let names_cluster =
        || (0..SHARDS).all(|shard| data.join(format!("shards/{shard}/cluster-id")).exists());
    let alive = reseed(&["--yes"]).expect_err("its node runs");
    assert!(
        alive.contains("nodes of the cluster test run: a; stop them first"),
        "{alive}"
    );
    reseed(&["--yes", "--nats-lost"]).expect_err("its node has the stores open");
    assert!(names_cluster());

    cluster.nodes[0].kill_9();
    for shard in 0..SHARDS {
        cluster.nats.0[0].delete(&format!("GH_test_{shard}"));
    }
    let looked = reseed(&["--look", "--output", "json"]).expect("what it has");
    let looked: Value = serde_json::from_str(&looked).expect("JSON");
    for shard in 0..SHARDS {
        let of_shard = &looked["value"][shard];
        assert!(
            of_shard["applied"].as_u64() > Some(1) && of_shard["cluster"].is_string(),
            "{looked}"
        );
    }
    let unasked = reseed(&[]).expect_err("nobody has confirmed it");
    assert!(
        unasked.contains("Nothing was done") && names_cluster(),
        "{unasked}"
    );
    let reseeded = reseed(&["--yes"]).expect("no node runs");
    assert!(
        reseeded.contains("Set another cluster.name") && !names_cluster(),
        "{reseeded}"
    );

    cluster.nodes[0].set("CLUSTER__NAME", "again");
    serve(&mut cluster);
    for (name, key) in &topics {
        let node: &Server = &cluster.nodes[0];
        assert_eq!(status_of(node, name, key, "after", "s"), 200);
        node.post_verb(name, "all", "resume");
        wait_until_settled(node, name, "all");
        let ids = ["before", "after"].map(str::to_owned);
        assert_eq!(assert_arrived(&sink, &format!("/{name}"), &ids).len(), 0);
    }
    assert!(names_cluster());
}
