//! Every node of a cluster with several shards responds to every request, whichever node owns what
//! the request is about.

use std::{
    collections::BTreeSet,
    io::BufRead as _,
    time::{Duration, Instant},
};

use gridhook::cluster::shard_of;
use serde_json::{Value, json};

use super::{
    CALM, LONG, TOKEN,
    shards::{SHARDS, Sharded, names},
};
use crate::{
    server::{
        tokens::{RG, ask, status, tail, token},
        wait_until_settled,
    },
    support::{
        http::session_bearer,
        load,
        nats::has_nats,
        server::{SCOPE, Server, SubscriptionSpec, operator, wait_for},
        sink::Sink,
    },
};

/// Three nodes, with a topic in each shard that was created by one node after the other.
fn start() -> (Sharded, Vec<(String, String)>) {
    let sharded = Sharded::start(&[CALM]);
    let create = |(index, name): (usize, String)| {
        let key = sharded.cluster.nodes[index % 3].topic(&name, "EventGridSchema");
        (name, key)
    };
    let topics = names().into_iter().enumerate().map(create).collect();
    (sharded, topics)
}

fn get(node: &Server, path: &str) -> Value {
    node.command("GET", path, &Value::Null).json()
}

fn listed(list: &Value) -> Vec<String> {
    list["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// The names on all pages.
fn pages(node: &Server, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next {
        let page = get(node, &path);
        all.extend(listed(&page));
        next = page["nextLink"]
            .as_str()
            .map(|link| link[link.find("/subscriptions").expect("a path")..].to_owned());
        assert!(all.len() < 100, "pages without an end");
    }
    all
}

/// The status of a POST that names another host.
pub(super) fn post_at(
    node: &Server,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> u16 {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    node.client().exchange(&request).expect("a response").status
}

#[test]
fn every_node_answers_for_every_shard() {
    if !has_nats() {
        return;
    }
    let (sharded, topics) = start();
    let sink = Sink::start();
    let nodes = &sharded.cluster.nodes;
    for (index, (name, _)) in topics.iter().enumerate() {
        nodes[(index + 1) % 3].subscribe(
            name,
            "all",
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))),
        );
    }
    let mut expected: Vec<String> = topics.iter().map(|(name, _)| name.clone()).collect();
    expected.sort();
    for (index, node) in nodes.iter().enumerate() {
        publish_to_all_topics(node, index, &topics);
        assert_lists_are_of_all_shards(node, &expected);
        operator(node, &["top", "--once"]).expect("figures");
    }
    for (name, _) in &topics {
        wait_for("the events", LONG, || sink.taken(&format!("/{name}")) == 6);
        wait_until_settled(&nodes[2], name, "all");
        assert_eq!(nodes[1].counter(name, "all", "delivered"), 6);
    }
    assert_the_trail_has_each_operation_once(&nodes[0], 3 * topics.len());
    assert_metrics_have_each_topic_once(nodes, &topics);
    for (index, (name, _)) in topics.iter().enumerate() {
        nodes[index % 3].command("DELETE", &format!("{SCOPE}/{name}"), &Value::Null);
    }
    assert_eq!(pages(&nodes[1], SCOPE), Vec::<String>::new());
}

/// Publishes to each topic by its path and by its host.
fn publish_to_all_topics(node: &Server, index: usize, topics: &[(String, String)]) {
    for (name, key) in topics {
        let id = |form: &str| format!("{index}-{form}");
        node.publish(name, key, &load::body(&[id("path")], "s"));
        let host = format!("{name}.localhost");
        let body = load::body(&[id("host")], "s");
        assert_eq!(
            post_at(node, &host, "/api/events", &[("aeg-sas-key", key)], &body),
            200
        );
        assert_eq!(
            node.admin("GET", &format!("{SCOPE}/{name}"), &Value::Null)
                .json()["name"],
            json!(name)
        );
    }
}

fn assert_lists_are_of_all_shards(node: &Server, expected: &[String]) {
    assert_eq!(pages(node, SCOPE), expected);
    assert_eq!(pages(node, &format!("{SCOPE}?$top=2")), expected);
    assert_eq!(
        pages(node, &format!("{RG}/eventSubscriptions?$top=4")).len(),
        expected.len()
    );
    let top = get(node, "/top?by=name&top=4&skip=1");
    assert_eq!(
        (&top["subscriptions"], &top["matching"]),
        (&json!(SHARDS), &json!(SHARDS)),
        "{top}"
    );
    assert_eq!(top["top"].as_array().map(Vec::len), Some(4));
    assert!(get(node, "/supervision")["actors"].as_u64() >= Some(2 * u64::from(SHARDS)));
    for path in [
        "/jobs",
        "/clock",
        "/server",
        "/deadLetters",
        "/history",
        "/editions",
        "/cluster/status",
    ] {
        assert!(get(node, path).is_object(), "{path}");
    }
}

fn assert_the_trail_has_each_operation_once(node: &Server, count: usize) {
    let mut operations = Vec::new();
    let mut query = "top=3".to_owned();
    loop {
        let page = get(node, &format!("/audit?{query}"));
        let entries = page["value"].as_array().expect("entries");
        operations.extend(
            entries
                .iter()
                .map(|entry| format!("{} {}", entry["method"], entry["path"])),
        );
        match page["continue"].as_str() {
            Some(next) => query = format!("top=3&continue={next}"),
            None => break,
        }
    }
    let unique: BTreeSet<&String> = operations.iter().collect();
    assert_eq!(
        (operations.len(), unique.len()),
        (count, count),
        "{operations:?}"
    );
}

/// A node exposes the metrics of the shards that it owns. Together the nodes have each topic once.
fn assert_metrics_have_each_topic_once(nodes: &[Server], topics: &[(String, String)]) {
    let texts: Vec<String> = nodes
        .iter()
        .map(|node| node.command("GET", "/metrics", &Value::Null).text())
        .collect();
    for (name, _) in topics {
        let series = format!(
            "gridhook_subscription_delivered_events_total{{shard=\"{}\",topic=\"{name}\"",
            shard_of(name, usize::from(SHARDS))
        );
        let found: usize = texts.iter().map(|text| text.matches(&series).count()).sum();
        assert_eq!(found, 1, "{series}");
    }
    for text in &texts {
        assert_eq!(text.matches("\nprocess_threads ").count(), 1);
        assert_eq!(text.matches("# HELP gridhook_topics ").count(), 1);
        assert_eq!(
            text.matches("\ngridhook_topics{shard=").count(),
            2,
            "{text}"
        );
    }
}

#[test]
fn the_commands_of_an_operator_work_at_any_node() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[
        CALM,
        ("CHAOS__ENABLED", "true"),
        ("JOURNAL__RETENTION", "1h"),
    ]);
    let sink = Sink::start();
    let nodes = &sharded.cluster.nodes;
    let files = tempfile::tempdir().expect("a folder");
    let file = files.path().join("events.json");
    let mut turn = 0;
    let mut run = |arguments: &[&str]| {
        turn += 1;
        operator(&nodes[turn % 3], arguments)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    };
    for name in names() {
        let endpoint = sink.url(&format!("/{name}"));
        assert!(run(&["topics", "create", &name]).starts_with(&format!("created {name}")));
        run(&[
            "subscriptions",
            "create",
            &name,
            "billing",
            "--endpoint",
            &endpoint,
        ]);
        std::fs::write(&file, load::body(&["1".to_owned(), "2".to_owned()], "s")).expect("a file");
        run(&["publish", &name, &file.display().to_string()]);
        wait_for("the events", LONG, || sink.taken(&format!("/{name}")) == 2);
        for command in [
            &["topics", "show", &name][..],
            &["subscriptions", "show", &name, "billing"],
            &["subscriptions", "hold", &name, "billing"],
            &["subscriptions", "resume", &name, "billing"],
            &["trace", "1", "--topic", &name],
            &["ledger", &name, "billing"],
        ] {
            run(command);
        }
    }
    for command in [
        &["subscriptions", "list"][..],
        &["top", "--once"],
        &["supervision"],
        &["server"],
        &["clock", "show"],
        &["audit"],
        &["tokens", "list"],
        &["cluster", "status"],
        &["fsck", "--online"],
    ] {
        run(command);
    }
    let output = run(&["topics", "list"]);
    assert!(names().iter().all(|name| output.contains(name)), "{output}");
    // The actor of one topic, and a random one, whichever shard has it.
    let first = &names()[0];
    let last = &names()[5];
    let of_topic = |topic: &str| get(&nodes[2], &format!("/supervision?topic={topic}"));
    nodes[0].command(
        "POST",
        "/chaos/kill",
        &json!({"actor": "topic", "topic": last, "by": "panic"}),
    );
    wait_for("the end of the actor, and the next one", LONG, || {
        let seen = of_topic(last);
        seen["ends"]["killed"].as_u64() >= Some(1) && seen["actors"] == json!(2)
    });
    nodes[0].command(
        "POST",
        "/chaos/kill",
        &json!({"actor": "random", "by": "panic"}),
    );
    nodes[1].command(
        "POST",
        "/chaos/writes",
        &json!({"fail": 1, "duration": "1ms"}),
    );
    let report = get(&nodes[2], "/chaos");
    let killed = ["topicsKilled", "subscriptionsKilled", "deadLettersKilled"]
        .map(|count| report["injected"][count].as_u64());
    assert_eq!(killed.into_iter().flatten().sum::<u64>(), 2, "{report}");
    assert!(get(&nodes[1], "/supervision")["ended"].as_u64() >= Some(1));
    // The random one may be of this topic.
    wait_for("the actors to run again", LONG, || {
        of_topic(first)["actors"] == json!(2)
    });
}

#[test]
fn tokens_and_sessions_hold_in_every_shard_and_end_there_when_they_are_revoked() {
    if !has_nats() {
        return;
    }
    let (sharded, topics) = start();
    let nodes = &sharded.cluster.nodes;
    let publisher = token(
        &nodes[0],
        &[
            "publisher",
            "--role",
            "publish",
            "--scope",
            &format!("topics/{}", topics[3].0),
        ],
    );
    let reader = token(&nodes[1], &["reader", "--role", "read"]);
    let sign_in = |token: &str| {
        let response = ask(&nodes[2], token, "POST", "/ui/session", "");
        session_bearer(response.header("set-cookie"), &response.json())
    };
    let session = sign_in(&reader);
    let of_admin = sign_in(TOKEN);
    for node in nodes {
        for (index, (name, _)) in topics.iter().enumerate() {
            let events = format!("/topics/{name}/api/events");
            let topic = format!("{SCOPE}/{name}");
            assert_eq!(
                status(node, &publisher, "POST", &events),
                if index == 3 { 200 } else { 403 },
                "{name}"
            );
            for bearer in [&reader, &session] {
                assert_eq!(status(node, bearer, "GET", &topic), 200, "{name}");
                assert_eq!(status(node, bearer, "DELETE", &topic), 403, "{name}");
            }
            assert_eq!(
                status(node, &of_admin, "POST", &format!("{topic}/listKeys")),
                200,
                "{name}"
            );
            assert_eq!(status(node, "ght_unknown", "GET", &topic), 401, "{name}");
        }
    }
    // Nobody but a node says who a caller is.
    let record = json!({
        "name": "forged", "digest": gridhook::control::tokens::digest_text("ght_forged"), "roles": ["admin"], "scopes": [],
        "created": 0, "createdBy": "x", "expires": null, "lastUsed": null,
    });
    for (name, _) in &topics {
        let headers = [
            ("authorization", "Bearer ght_forged"),
            ("gridhook-forwarded-token", &*record.to_string()),
        ];
        let response = nodes[0]
            .client()
            .ask("GET", &format!("{SCOPE}/{name}"), &headers, b"")
            .expect("a response");
        assert_eq!(response.status, 401, "{}", response.text());
    }
    for path in [
        "/node/identity",
        "/node/followed?position=1",
        "/node/topics?topic=x",
        "/node/pull?id=1",
    ] {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            assert_eq!(
                status(&nodes[0], TOKEN, method, path),
                404,
                "{method} {path}"
            );
        }
    }
    let mut followed = tail(&nodes[1], &reader);
    operator(&nodes[2], &["tokens", "revoke", "reader", "--yes"]).expect("it is revoked");
    let revoked = Instant::now();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut followed, &mut rest).ok();
    for node in nodes {
        for bearer in [&reader, &session] {
            for (name, _) in &topics {
                wait_for("the token to be refused", Duration::from_secs(3), || {
                    status(node, bearer, "GET", &format!("{SCOPE}/{name}")) == 401
                });
            }
        }
    }
    println!("refused everywhere after {:?}", revoked.elapsed());
}

#[test]
fn tail_follows_all_shards_and_goes_on_when_owners_change() {
    if !has_nats() {
        return;
    }
    let (mut sharded, topics) = start();
    let mut followed = tail(&sharded.cluster.nodes[0], TOKEN);
    let mut seen = |expected: &str| {
        let mut line = String::new();
        while !line.contains(expected) {
            line.clear();
            assert!(
                followed.read_line(&mut line).expect("a line") > 0,
                "the stream has ended"
            );
        }
    };
    for (name, key) in &topics {
        sharded.cluster.nodes[1].publish(name, key, &load::body(&[format!("first-{name}")], "s"));
        seen(&format!("first-{name}"));
    }
    sharded.cluster.nodes[2].kill_9();
    sharded.wait_for_shares(0, &[3, 3]);
    let (name, key) = &topics[5];
    for round in 0..200 {
        sharded.cluster.nodes[1].publish(name, key, &load::body(&[format!("later-{round}")], "s"));
        std::thread::sleep(Duration::from_millis(20));
    }
    for (name, key) in &topics {
        sharded.cluster.nodes[1].publish(name, key, &load::body(&[format!("last-{name}")], "s"));
        seen(&format!("last-{name}"));
    }
}

/// Creates a namespace with the topic `heat` and a queue, each by another node, and returns the
/// header that authorizes its clients.
fn create_namespace(nodes: &[Server], namespace: &str) -> String {
    let queue =
        json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue", "queue": {}}}});
    let path = format!("{RG}/namespaces/{namespace}");
    nodes[0].command("PUT", &path, &json!({"location": "local"}));
    nodes[1].command("PUT", &format!("{path}/topics/heat"), &json!({}));
    let pulled = format!("{path}/topics/heat/eventSubscriptions/pulled");
    nodes[2].command("PUT", &pulled, &queue);
    let list_keys = format!("{path}/listKeys");
    let keys = nodes[1].command("POST", &list_keys, &Value::Null).json();
    format!("SharedAccessKey {}", keys["key1"].as_str().expect("a key"))
}

/// The status of a publish to a topic of a namespace.
fn publish_cloud_event(node: &Server, path: &str, host: &str, key: &str, id: &str) -> u16 {
    let event = json!({"specversion": "1.0", "id": id, "source": "/a", "type": "T", "data": {}});
    let content_type = "application/cloudevents+json; charset=utf-8";
    let headers = [("authorization", key), ("content-type", content_type)];
    post_at(node, host, path, &headers, event.to_string().as_bytes())
}

/// Receives events of `pulled` and acknowledges them. Returns their ids.
fn pull_ids(node: &Server, namespace: &str, key: &str) -> Vec<String> {
    let headers = [("authorization", key), ("content-type", "application/json")];
    let path = format!("/namespaces/{namespace}/topics/heat/eventsubscriptions/pulled");
    let call = |verb: &str, body: &str| {
        let path = format!("{path}:{verb}?api-version=2024-06-01&maxEvents=100&maxWaitTime=10");
        let response = node.client().ask("POST", &path, &headers, body.as_bytes());
        let response = response.expect("a response");
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    let received = call("receive", "");
    let details = received["value"].as_array().expect("a list").clone();
    let tokens: Vec<&Value> = details
        .iter()
        .map(|detail| &detail["brokerProperties"]["lockToken"])
        .collect();
    let settled = call("acknowledge", &json!({"lockTokens": tokens}).to_string());
    assert_eq!(
        settled["succeededLockTokens"].as_array().map(Vec::len),
        Some(tokens.len()),
        "{settled}"
    );
    details
        .iter()
        .map(|detail| detail["event"]["id"].to_string())
        .collect()
}

#[test]
fn namespaces_are_found_by_name_by_host_and_alone() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM]);
    let nodes = &sharded.cluster.nodes;
    let spaces = names();
    let first = &spaces[1];
    let second = &spaces[4];
    let key = create_namespace(nodes, first);
    // The only namespace needs no name.
    let by_name = format!("/namespaces/{first}/topics/heat:publish");
    let host = format!("{first}.localhost");
    for (index, node) in nodes.iter().enumerate() {
        for (way, path, host) in [
            ("alone", "/topics/heat:publish", "x"),
            ("name", &by_name, "x"),
            ("host", "/topics/heat:publish", &host),
        ] {
            let id = format!("{index}-{way}");
            assert_eq!(
                publish_cloud_event(node, path, host, &key, &id),
                200,
                "{id}"
            );
        }
    }
    let other_key = create_namespace(nodes, second);
    let other_host = format!("{second}.localhost");
    for node in nodes {
        let path = "/topics/heat:publish";
        let status = publish_cloud_event(node, path, "x", &key, "lost");
        assert_eq!(status, 404, "which namespace is meant?");
        let status = publish_cloud_event(node, path, &other_host, &other_key, "named");
        assert_eq!(status, 200);
    }
    let mut pulled = BTreeSet::new();
    for round in 0..9 {
        if pulled.len() < 9 {
            pulled.extend(pull_ids(&nodes[round % 3], first, &key));
        }
    }
    assert_eq!(pulled.len(), 9, "{pulled:?}");
    assert_eq!(pull_ids(&nodes[0], second, &other_key), ["\"named\""; 3]);
}

#[test]
fn a_node_that_owns_nothing_finds_a_namespace_that_was_just_created() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM]);
    let nodes = &sharded.cluster.nodes;
    operator(&nodes[1], &["cluster", "drain", "c"]).expect("it is asked");
    wait_for("the others to own all", LONG, || {
        let view = nodes[0]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        view["nodes"][2]["state"] == "drained"
    });
    // No change waits for a node without a shard: its own copy has to catch up when it is asked.
    for namespace in &names()[1..4] {
        let path = format!("{RG}/namespaces/{namespace}");
        nodes[0].command("PUT", &path, &json!({"location": "local"}));
        nodes[1].command("PUT", &format!("{path}/topics/heat"), &json!({}));
        let host = format!("{namespace}.localhost");
        let publish = || publish_cloud_event(&nodes[2], "/topics/heat:publish", &host, "", "a");
        // The one before is the only one that the node knows: the client repeats the request.
        let status = Some(publish()).filter(|status| *status != 503);
        let status = status.unwrap_or_else(publish);
        assert_eq!(status, 401, "the topic is there, the key is not");
        nodes[1].command("DELETE", &path, &Value::Null);
    }
}

#[test]
fn events_are_delivered_to_topics_of_namespaces_in_other_shards() {
    if !has_nats() {
        return;
    }
    let (sharded, topics) = start();
    let nodes = &sharded.cluster.nodes;
    let space = format!("{RG}/namespaces/plant");
    nodes[0].command("PUT", &space, &json!({"location": "local"}));
    nodes[1].command("PUT", &format!("{space}/topics/heat"), &json!({}));
    // Keeps the events in the log.
    let queue = json!({"deliveryConfiguration": {"deliveryMode": "Queue", "queue": {}}});
    nodes[1].command(
        "PUT",
        &format!("{space}/topics/heat/eventSubscriptions/pulled"),
        &json!({"properties": queue}),
    );
    let to = |name: &str| {
        let properties = json!({"resourceId": format!("{space}/topics/{name}")});
        let destination =
            json!({"destination": {"endpointType": "NamespaceTopic", "properties": properties}});
        SubscriptionSpec::new("")
            .also(&json!({}), &destination)
            .schema("CloudEventSchemaV1_0")
    };
    for (index, (name, key)) in topics.iter().enumerate() {
        nodes[index % 3].subscribe(name, "forward", &to("heat"));
        nodes[(index + 1) % 3].publish(
            name,
            key,
            &load::body(&[format!("of-{name}"), format!("more-{name}")], "s"),
        );
    }
    for (name, _) in &topics {
        wait_until_settled(&nodes[0], name, "forward");
        assert_eq!(nodes[1].counter(name, "forward", "delivered"), 2, "{name}");
    }
    let stored = get(&nodes[2], &format!("{space}/topics/heat/events?top=100"));
    let ids: BTreeSet<String> = stored["events"]
        .as_array()
        .unwrap_or_else(|| panic!("{stored}"))
        .iter()
        .map(|event| event["id"].to_string())
        .collect();
    assert_eq!(ids.len(), 2 * topics.len(), "{stored}");
}
