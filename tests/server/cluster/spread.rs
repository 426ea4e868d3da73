//! Topics that are spread over all shards of a cluster: every shard takes their events, and they
//! are one topic for operators.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    CALM, LONG, TOKEN,
    clients::{Clients, publishes},
    shards::{SHARDS, Sharded, names},
};
use crate::{
    server::{assert_arrived, many, replay, system_topic::UNASKED, wait_until_settled},
    spec::shows,
    support::{
        endpoint::{Endpoint, respond},
        load,
        nats::has_nats,
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, subscription, wait_for},
        sink::{Behavior, Sink},
        tcp_proxy::TcpProxy,
    },
};

const NAME: &str = "wide";

/// How long a node may take a spread topic for one that is not.
const SEEN: Duration = Duration::from_secs(10);

/// The response to a GET of the operator.
fn get(node: &Server, path: &str) -> Value {
    node.command("GET", path, &Value::Null).json()
}

fn make(node: &Server) -> String {
    node.topic_of(NAME, &json!({"partitionCount": SHARDS}))
}

/// The status of a publish with this key.
fn publish(node: &Server, key: &str, ids: &[String]) -> u16 {
    let body = load::body(ids, "s");
    node.client()
        .ask("POST", &events_path(NAME), &[("aeg-sas-key", key)], &body)
        .expect("a response")
        .status
}

/// Publishes these events at all nodes in turn.
fn spread(nodes: &[Server], key: &str, of: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|number| format!("{of}-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(
            publish(&nodes[number % nodes.len()], key, std::slice::from_ref(id)),
            200
        );
    }
    ids
}

/// Waits until every node lists the topic as spread.
fn wait_until_known(nodes: &[Server]) {
    for node in nodes {
        wait_for("the node to see the parts", SEEN, || {
            // The shard of a topic that is not spread knows no such parameter.
            node.admin(
                "GET",
                &format!("{SCOPE}/{NAME}/events?shard=0"),
                &Value::Null,
            )
            .status
                == 200
        });
    }
}

fn published_by_shard(node: &Server) -> Vec<u64> {
    let of_shard = |shard| {
        let path = format!("{SCOPE}/{NAME}/status?shard={shard}");
        node.command("GET", &path, &Value::Null).json()["published"]
            .as_u64()
            .expect("a count")
    };
    (0..SHARDS).map(of_shard).collect()
}

#[test]
fn a_spread_topic_is_in_every_shard_and_each_node_takes_its_events() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM]);
    let sink = Sink::start();
    let nodes = &sharded.cluster.nodes;
    let topic = format!("{SCOPE}/{NAME}");
    assert_impossible_partitions_are_refused(&nodes[1], &topic);
    let output = operator(
        &nodes[0],
        &["topics", "create", &topic, "--partitions", "6"],
    )
    .expect("it is created");
    assert!(output.contains("partitions           6"), "{output}");
    assert_refused(
        &nodes[1],
        &topic,
        &json!({"partitionCount": 1}),
        "cannot be changed from 6",
    );
    let key = make(&nodes[1]);
    wait_until_known(nodes);
    assert_every_node_lists_the_topic(nodes, &topic);
    nodes[2].subscribe(NAME, "all", &SubscriptionSpec::new(&sink.url("/first")));
    let count = deliver_through_all_shards(nodes, &key, &sink);

    change_the_endpoint_in_every_shard(nodes, &key, &sink, count);
    let new_key = change_the_key_in_every_shard(nodes, &key, &sink);
    delete_in_every_shard(nodes, &sink);

    reuse_the_name(nodes, &new_key);

    run_the_commands_of_the_readme(&nodes[1]);
}

fn assert_refused(node: &Server, path: &str, properties: &Value, reason: &str) {
    let body = json!({"location": "local", "properties": properties});
    let response = node.admin("PUT", path, &body);
    assert_eq!(response.status, 400, "{}", response.text());
    assert!(
        response.text().contains(reason),
        "{reason} is not in {}",
        response.text()
    );
}

fn assert_impossible_partitions_are_refused(node: &Server, topic: &str) {
    let domain = topic.replace("/topics/", "/domains/");
    for (path, properties, reason) in [
        (
            topic,
            json!({"partitionCount": 4}),
            "is 4; expected 1 or 6, the number of shards",
        ),
        (
            &domain,
            json!({"partitionCount": 6}),
            "expected 1 for a domain",
        ),
        (
            topic,
            json!({"partitionCount": 6, "duplicateDetectionHistoryTimeWindow": "PT1H"}),
            "a spread topic has no duplicate detection",
        ),
    ] {
        assert_refused(node, path, &properties, reason);
    }
}

fn assert_every_node_lists_the_topic(nodes: &[Server], topic: &str) {
    for node in nodes {
        assert_eq!(
            node.command("GET", topic, &Value::Null).json()["properties"]["partitionCount"],
            json!(SHARDS)
        );
        let topics = node.command("GET", SCOPE, &Value::Null).json();
        assert_eq!(
            topics["value"].as_array().map(Vec::len),
            Some(1),
            "{topics}"
        );
    }
}

fn deliver_through_all_shards(nodes: &[Server], key: &str, sink: &Sink) -> usize {
    let count = usize::from(SHARDS) * 20;
    let first = spread(nodes, key, "first", count);
    wait_for("the events", LONG, || sink.taken("/first") == count);
    assert_arrived(sink, "/first", &first);
    wait_until_settled(&nodes[0], NAME, "all");
    for node in nodes {
        assert_eq!(node.counter(NAME, "all", "delivered"), count as u64);
        assert_eq!(node.topic_status(NAME)["published"], json!(count));
    }
    let by_shard = published_by_shard(&nodes[1]);
    println!("published by shard: {by_shard:?}");
    assert_eq!(by_shard.iter().sum::<u64>(), count as u64);
    assert!(
        by_shard.iter().filter(|published| **published > 0).count() > 3,
        "{by_shard:?}"
    );
    count
}

/// A change of an event subscription has reached every shard when the request returns.
fn change_the_endpoint_in_every_shard(nodes: &[Server], key: &str, sink: &Sink, count: usize) {
    nodes[1].subscribe(NAME, "all", &SubscriptionSpec::new(&sink.url("/second")));
    spread(nodes, key, "second", 60);
    wait_for("the events at the new endpoint", LONG, || {
        sink.taken("/second") == 60
    });
    assert_eq!(sink.taken("/first"), count);
}

fn change_the_key_in_every_shard(nodes: &[Server], key: &str, sink: &Sink) -> String {
    let keys = nodes[2]
        .command(
            "POST",
            &format!("{SCOPE}/{NAME}/regenerateKey"),
            &json!({"keyName": "key1"}),
        )
        .json();
    let new_key = keys["key1"].as_str().expect("a key").to_owned();
    for node in nodes {
        for _ in 0..8 {
            assert_eq!(publish(node, key, &["old".to_owned()]), 401);
            assert_eq!(publish(node, &new_key, &["new".to_owned()]), 200);
        }
    }
    wait_for("the event", LONG, || {
        sink.ledger("/second").contains_key("new")
    });
    new_key
}

fn delete_in_every_shard(nodes: &[Server], sink: &Sink) {
    nodes[0].unsubscribe(NAME, "all");
    wait_for("the deletion event", LONG, || {
        !sink.deletion_notices("/second").is_empty()
    });
    for shard in 0..SHARDS {
        let path = format!("{}/status?shard={shard}", subscription(NAME, "all"));
        assert_eq!(nodes[2].admin("GET", &path, &Value::Null).status, 404);
    }
    assert_eq!(sink.deletion_notices("/second").len(), 1);
}

/// The name of a deleted topic can be that of a topic in one shard, and then of a spread one.
fn reuse_the_name(nodes: &[Server], old_key: &str) {
    let topic = format!("{SCOPE}/{NAME}");
    nodes[1].command("DELETE", &topic, &Value::Null);
    for node in nodes {
        for _ in 0..8 {
            assert!([404, 503].contains(&publish(node, old_key, &["gone".to_owned()])));
        }
    }
    let key = nodes[0].topic_of(NAME, &json!({"partitionCount": 1}));
    for node in nodes {
        for _ in 0..8 {
            wait_for("the topic of one shard", SEEN, || {
                publish(node, &key, &["one".to_owned()]) == 200
            });
        }
    }
    assert_eq!(nodes[0].topic_status(NAME)["published"], json!(24));
    nodes[0].command("DELETE", &topic, &Value::Null);
    let key = make(&nodes[2]);
    wait_until_known(nodes);
    spread(nodes, &key, "again", 60);
    assert_eq!(published_by_shard(&nodes[0]).iter().sum::<u64>(), 60);
}

fn run_the_commands_of_the_readme(node: &Server) {
    let commands = crate::readme::cluster_commands();
    assert!(!commands.is_empty());
    for command in commands {
        let command = command.replace("--partitions 16", &format!("--partitions {SHARDS}"));
        let words: Vec<&str> = command
            .strip_prefix("gridhook ")
            .expect("a command of gridhook")
            .split(' ')
            .collect();
        operator(node, &words).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
}

#[test]
fn a_spread_system_topic_has_the_events_about_topics_of_every_shard() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM, ("SYSTEM_TOPIC__NAME", "server"), UNASKED]);
    let nodes = &sharded.cluster.nodes;
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let properties = json!({"partitionCount": SHARDS, "inputSchema": "CloudEventSchemaV1_0"});
    nodes[0].topic_of("server", &properties);
    let created = "Microsoft.EventGrid.SubscriptionCreated";
    let all = SubscriptionSpec::new(&endpoint.url())
        .schema("CloudEventSchemaV1_0")
        .types(&[created]);
    nodes[1].subscribe("server", "all", &all);
    // A topic in each shard, and one in all of them.
    make(&nodes[2]);
    let names: Vec<String> = names().into_iter().chain([NAME.to_owned()]).collect();
    for (number, name) in names.iter().enumerate() {
        let node = &nodes[number % 3];
        if name != NAME {
            node.topic(name, "EventGridSchema");
        }
        node.subscribe(name, "all", &SubscriptionSpec::new(&endpoint.url()));
    }
    wait_for("an event for each", LONG, || {
        endpoint.requests().len() >= names.len()
    });
    wait_until_settled(&nodes[0], "server", "all");
    let subject =
        |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON")["subject"].to_string();
    let mut subjects: Vec<String> = endpoint
        .requests()
        .iter()
        .map(|request| subject(&request.body))
        .collect();
    subjects.sort_unstable();
    let mut wanted: Vec<String> = names
        .iter()
        .map(|name| format!("\"{SCOPE}/{name}/eventSubscriptions/all\""))
        .collect();
    wanted.sort_unstable();
    assert_eq!(subjects, wanted);
}

#[test]
fn operators_see_the_parts_of_a_spread_topic_as_one() {
    if !has_nats() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", files.path().display());
    let settings = [
        CALM,
        ("JOURNAL__RETENTION", "7d"),
        ("DEAD_LETTER__STORES__SHARED__URL", &*url),
        ("DEAD_LETTER__STORES__SHARED__ACCOUNTS", "*"),
    ];
    let sharded = Sharded::start_on_three(&settings);
    let sink = Sink::start();
    let nodes = &sharded.cluster.nodes;
    // With its delay of minutes dead letters wait for their files.
    let key = nodes[0].topic_of(
        NAME,
        &json!({"partitionCount": SHARDS, "edition": "current"}),
    );
    wait_until_known(nodes);
    let limit = json!(60);
    nodes[1].subscribe(
        NAME,
        "good",
        &SubscriptionSpec::new(&sink.url("/good")).webhook("maxRequestsPerSecond", limit),
    );
    nodes[2].subscribe(
        NAME,
        "bad",
        &SubscriptionSpec::new(&sink.url("/bad")).dead_letters("letters"),
    );
    sink.set("/bad", Behavior::Respond(400));
    let count = 60;
    let ids = spread(nodes, &key, "one", count);
    wait_for("the events", LONG, || sink.taken("/good") == count);
    wait_until_settled(&nodes[0], NAME, "bad");

    assert_limits_and_counts_are_of_all_parts(nodes, count);

    assert_each_event_has_one_history(nodes, &ids);
    assert_the_ledger_lists_each_request_once(nodes, count);

    assert_dead_letters_are_listed_once(nodes, count);
    let count = write_all_dead_letters(nodes, &key, count);
    assert_dead_letters_are_listed_once(nodes, count);
    redrive_all_dead_letters(nodes, &sink, count);

    assert_the_newest_events_are_listed_by_page(nodes, count);
    assert_an_event_needs_its_shard(&nodes[2]);
    assert_a_filter_is_tested_in_every_shard(nodes);

    let count = hold_and_resume_in_every_shard(nodes, &sink, &key, count);

    replay_in_every_shard(nodes, &sink, count);
    assert_each_node_shows_the_metrics_of_its_shards(nodes);
}

fn assert_limits_and_counts_are_of_all_parts(nodes: &[Server], count: usize) {
    let good = subscription(NAME, "good");
    let bad = subscription(NAME, "bad");
    // Limits are divided: each part has its share of them.
    let status = get(&nodes[0], &format!("{good}/status"));
    assert_eq!(
        status["endpoint"]["maxRequestsPerSecond"],
        json!(60),
        "{status}"
    );
    for shard in 0..SHARDS {
        let part = get(&nodes[1], &format!("{good}/status?shard={shard}"));
        assert_eq!(part["endpoint"]["rate"], json!(10.0), "{part}");
    }
    let metrics = nodes[2]
        .command("GET", &format!("{bad}/metrics"), &Value::Null)
        .text();
    let matched: usize = metrics
        .lines()
        .filter(|line| line.starts_with("gridhook_subscription_matched_events_total{shard="))
        .map(|line| line.rsplit_once(' ').expect("a value").1)
        .map(|value| value.parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(matched, count, "{metrics}");
    let top = get(&nodes[1], "/top?by=name");
    assert_eq!(
        (&top["subscriptions"], &top["matching"]),
        (&json!(2), &json!(2)),
        "{top}"
    );
    let delivered: Vec<&Value> = top["top"]
        .as_array()
        .expect("lines")
        .iter()
        .map(|line| &line["delivered"])
        .collect();
    assert_eq!(delivered, [&json!(0), &json!(count)], "{top}");
    assert_eq!(
        get(&nodes[0], &format!("/top?topic={SCOPE}/{NAME}"))["matching"],
        json!(2)
    );
}

fn assert_each_event_has_one_history(nodes: &[Server], ids: &[String]) {
    let good = subscription(NAME, "good");
    for (number, id) in ids.iter().enumerate() {
        let trace = get(&nodes[number % 3], &format!("{SCOPE}/{NAME}/trace?id={id}"));
        let events = trace["events"].as_array().expect("events");
        assert_eq!(events.len(), 1, "{trace}");
        assert!(events[0]["shard"].is_u64(), "{trace}");
        assert_eq!(
            get(&nodes[number % 3], &format!("{good}/explain?id={id}"))["state"],
            "completed"
        );
    }
}

fn assert_the_ledger_lists_each_request_once(nodes: &[Server], count: usize) {
    let good = subscription(NAME, "good");
    let mut lines = BTreeSet::new();
    let mut next = String::new();
    loop {
        let page = get(&nodes[0], &format!("{good}/ledger?top=3{next}"));
        for line in page["lines"].as_array().expect("lines") {
            assert!(
                lines.insert((line["shard"].as_u64(), line["firstSequence"].as_u64())),
                "{line} is listed twice"
            );
            let range = format!("from={}&shard={}", line["firstSequence"], line["shard"]);
            let request = get(&nodes[1], &format!("{good}/request?{range}"));
            assert_eq!(request["events"], 1, "{request}");
        }
        match page["continue"].as_str() {
            Some(position) => next = format!("&continue={position}"),
            None => break,
        }
    }
    assert_eq!(lines.len(), count);
}

/// Dead letters in files and those that wait are listed once, whichever shard has them.
fn assert_dead_letters_are_listed_once(nodes: &[Server], count: usize) {
    let ids = list_dead_letters(nodes);
    assert_eq!(
        (ids.len(), ids.iter().collect::<BTreeSet<_>>().len()),
        (count, count),
        "{ids:?}"
    );
}

/// The ids of all dead letters of `bad`, in pages of seven.
fn list_dead_letters(nodes: &[Server]) -> Vec<String> {
    let bad = subscription(NAME, "bad");
    let mut ids = Vec::new();
    let mut path = format!("{bad}/deadLetters?$top=7");
    loop {
        let page = get(&nodes[1], &path);
        for one in page["value"].as_array().expect("letters") {
            let key = one["key"].as_str().expect("a key");
            let dead_letter = get(&nodes[2], &format!("{bad}/deadLetters/{key}"));
            assert_eq!(dead_letter["id"], one["id"]);
            ids.push(one["id"].to_string());
        }
        let Some(link) = page["nextLink"].as_str() else {
            return ids;
        };
        path = link[link.find("/subscriptions").expect("a path")..].to_owned();
    }
}

/// In the edition `test` dead letters do not wait for their files, and neither do those that were
/// there before the change.
fn write_all_dead_letters(nodes: &[Server], key: &str, count: usize) -> usize {
    let topic = format!("{SCOPE}/{NAME}");
    nodes[1].command("PATCH", &topic, &json!({"properties": {"edition": "test"}}));
    spread(nodes, key, "two", count);
    let count = 2 * count;
    let bad = subscription(NAME, "bad");
    wait_for("the dead letters in files", LONG, || {
        get(
            &nodes[0],
            &format!("{bad}/deadLetters?stage=written&$top=1000"),
        )["value"]
            .as_array()
            .map(Vec::len)
            == Some(count)
    });
    count
}

fn redrive_all_dead_letters(nodes: &[Server], sink: &Sink, count: usize) {
    sink.set("/bad", Behavior::Respond(200));
    let topic = format!("{SCOPE}/{NAME}");
    operator(
        &nodes[2],
        &["dead-letters", "redrive", &topic, "bad", "--all"],
    )
    .expect("a redrive");
    wait_for("the redriven events", LONG, || sink.taken("/bad") == count);
    // A file may disappear while the next one is read.
    wait_for("the files to go", LONG, || {
        get(
            &nodes[1],
            &format!("{}/deadLetters", subscription(NAME, "bad")),
        )["value"]
            == json!([])
    });
}

fn assert_the_newest_events_are_listed_by_page(nodes: &[Server], count: usize) {
    let events = list_newest_events(nodes);
    let times: Vec<&String> = events.iter().map(|(time, _)| time).collect();
    assert!(
        times.is_sorted_by(|newer, older| newer >= older),
        "{times:?}"
    );
    let ids: BTreeSet<&String> = events.iter().map(|(_, id)| id).collect();
    assert_eq!((events.len(), ids.len()), (count, count), "{events:?}");
}

/// The times and ids of the newest events of all shards, in pages of seven.
fn list_newest_events(nodes: &[Server]) -> Vec<(String, String)> {
    let topic = format!("{SCOPE}/{NAME}");
    let mut newest = Vec::new();
    let mut next = String::new();
    loop {
        let page = get(&nodes[0], &format!("{topic}/events?top=7{next}"));
        let events = page["events"].as_array().expect("events");
        assert!(events.len() <= 7, "{page}");
        for event in events {
            let position = format!("{}?shard={}", event["sequence"], event["shard"]);
            let by_position = get(&nodes[1], &format!("{topic}/events/{position}"));
            assert_eq!(by_position["id"], event["id"]);
            newest.push((
                event["at"].as_str().expect("a time").to_owned(),
                event["id"].to_string(),
            ));
        }
        let Some(position) = page["before"].as_str() else {
            return newest;
        };
        next = format!("&before={position}");
    }
}

fn assert_an_event_needs_its_shard(node: &Server) {
    let path = format!("{SCOPE}/{NAME}/events/1");
    let response = node.admin("GET", &path, &Value::Null);
    let allowed = "shard is missing; expected 0 to 5, because each shard of this topic has \
        sequences of its own";
    let message = response.json()["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        (response.status, message.contains(allowed)),
        (400, true),
        "{message}"
    );
}

/// The newest events of a test come from all shards. Events of the request have no shard.
fn assert_a_filter_is_tested_in_every_shard(nodes: &[Server]) {
    let path = format!("{}/testFilter", subscription(NAME, "good"));
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    // As some clients write JSON.
    let body = "\u{feff}{\"last\": 30}".as_bytes();
    let response = nodes[1].client().ask("POST", &path, &headers, body);
    let newest = response.expect("a response").json();
    assert_eq!(
        (&newest["tested"], &newest["matched"]),
        (&json!(30), &json!(30)),
        "{newest}"
    );
    let shards: BTreeSet<u64> = newest["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter_map(|one| one["shard"].as_u64())
        .collect();
    assert_eq!(shards.len(), usize::from(SHARDS), "{newest}");
    let events: Value =
        serde_json::from_slice(&load::body(&["given".to_owned()], "s")).expect("JSON");
    let given = nodes[2]
        .command("POST", &path, &json!({"events": events}))
        .json();
    assert_eq!(
        (&given["tested"], &given["results"][0]["shard"]),
        (&json!(1), &Value::Null),
        "{given}"
    );
}

/// Holding an event subscription is one operation for all shards.
fn hold_and_resume_in_every_shard(nodes: &[Server], sink: &Sink, key: &str, count: usize) -> usize {
    wait_for("all events", LONG, || sink.taken("/good") == count);
    nodes[0].post_verb(NAME, "good", "hold");
    let operations = get(&nodes[1], "/audit?search=good/hold");
    assert_eq!(
        operations["value"].as_array().map(Vec::len),
        Some(1),
        "{operations}"
    );
    let held_events = spread(nodes, key, "held", 30);
    let status = format!("{}/status", subscription(NAME, "good"));
    assert!(get(&nodes[1], &status)["heldBy"].is_string());
    thread::sleep(Duration::from_millis(50));
    assert_eq!(sink.taken("/good"), count);
    nodes[1].post_verb(NAME, "good", "resume");
    let count = count + held_events.len();
    wait_for("the held events", LONG, || sink.taken("/good") == count);
    wait_until_settled(&nodes[2], NAME, "good");
    count
}

/// A replay has a job in each shard, and its id names all of them.
fn replay_in_every_shard(nodes: &[Server], sink: &Sink, count: usize) {
    nodes[0].post_verb(NAME, "good", "hold");
    let id = replay::start(&nodes[1], NAME, "good", &json!({}));
    assert_eq!(id.split(',').count(), usize::from(SHARDS), "{id}");
    assert_eq!(list_jobs_of_good(&nodes[0]).join(","), id);
    let path = replay::replays(NAME, "good", &format!("/{id}"));
    for (node, action, state) in [
        (&nodes[1], "pause", "paused"),
        (&nodes[2], "resume", "running"),
    ] {
        let response = node.command("POST", &format!("{path}/{action}"), &Value::Null);
        assert_eq!(response.json()["state"], state);
    }
    nodes[0].post_verb(NAME, "good", "resume");
    wait_for("the replayed events", LONG, || {
        count_deliveries(sink, "/good") == 2 * count
    });
    wait_for("the end of the replay", LONG, || {
        get(&nodes[2], &path)["state"] == "completed"
    });
    let replay = get(&nodes[0], &path);
    assert_eq!(
        (&replay["id"], &replay["counters"]["delivered"]),
        (&json!(id), &json!(count)),
        "{replay}"
    );
}

/// The ids of the open jobs of `good`, in order.
fn list_jobs_of_good(node: &Server) -> Vec<String> {
    let response = get(node, "/jobs");
    let jobs = response["jobs"].as_array().expect("jobs");
    let mut ids: Vec<String> = jobs
        .iter()
        .filter(|job| job["subscription"] == "good")
        .map(|job| job["id"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort_unstable();
    ids
}

/// The number of deliveries that this path accepted, repeated ones included.
fn count_deliveries(sink: &Sink, path: &str) -> usize {
    sink.look(path, |ledger| {
        ledger
            .values()
            .map(|all| all.iter().filter(|one| one.is_taken()).count())
            .sum()
    })
}

fn assert_each_node_shows_the_metrics_of_its_shards(nodes: &[Server]) {
    let series = "gridhook_subscription_delivered_events_total{shard=\"";
    let mut count = 0;
    for node in nodes {
        let text = node.command("GET", "/metrics", &Value::Null).text();
        count += text
            .lines()
            .filter(|line| line.starts_with(series) && line.contains("subscription=\"good\""))
            .count();
    }
    assert_eq!(count, usize::from(SHARDS));
}

#[test]
fn a_spread_topic_takes_events_while_an_owner_is_gone_and_loses_none() {
    let _rows =
        shows(&["S004-078: Checkpointing takes place per partition within a consumer group."]);
    if !has_nats() {
        return;
    }
    let mut sharded = Sharded::start(&[]);
    let sink = Sink::start();
    let key = make(&sharded.cluster.nodes[0]);
    wait_until_known(&sharded.cluster.nodes);
    sharded.cluster.nodes[0].subscribe(
        NAME,
        "all",
        &SubscriptionSpec::new(&sink.url("/all")).batch(10),
    );
    let balancer = TcpProxy::start(&sharded.cluster.addresses());
    let mut clients = Clients::new();
    let published: Vec<_> = (0..3)
        .map(|publisher| {
            publishes(
                &mut clients,
                balancer.address(),
                (NAME, &key),
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
    wait_for("events", LONG, || acknowledged() > 100);
    for round in 0..many(3, 30) {
        let killed = round % 3;
        let other = (round + 1) % 3;
        sharded.cluster.nodes[killed].kill_9();
        let rest: Vec<_> = sharded
            .cluster
            .addresses()
            .into_iter()
            .enumerate()
            .filter(|(node, _)| *node != killed)
            .collect();
        balancer.turn_to(
            &rest
                .into_iter()
                .map(|(_, address)| address)
                .collect::<Vec<_>>(),
        );
        // Before anyone owns the shards of the killed node.
        let before = acknowledged();
        let began = Instant::now();
        wait_for(
            "events without the killed node",
            Duration::from_secs(2),
            || acknowledged() >= before + 50,
        );
        println!(
            "round {round}: 50 events {:?} after the kill",
            began.elapsed()
        );
        sharded.wait_for_shares(other, &[3, 3]);
        sharded.cluster.join(killed);
        balancer.turn_to(&sharded.cluster.addresses());
        sharded.wait_for_shares(other, &[2, 2, 2]);
    }
    clients.stop();
    wait_until_settled(&sharded.cluster.nodes[1], NAME, "all");
    for (publisher, published) in published.iter().enumerate() {
        let published = published.lock();
        println!(
            "publisher {publisher}: {} acknowledged, {:?} at most",
            published.ids.len(),
            published.longest
        );
        sink.look("/all", |ledger| {
            let missing: Vec<&String> = published
                .ids
                .iter()
                .filter(|id| !ledger.contains_key(*id))
                .collect();
            assert!(
                missing.is_empty(),
                "{} are missing: {missing:.10?}",
                missing.len()
            );
        });
    }
}

/// The shards that have the topic now.
fn shards_with_topic(node: &Server) -> Vec<u16> {
    let path = |shard| format!("{SCOPE}/{NAME}/status?shard={shard}");
    (0..SHARDS)
        .filter(|shard| node.admin("GET", &path(*shard), &Value::Null).status == 200)
        .collect()
}

#[test]
fn a_change_of_a_spread_topic_reaches_every_shard_though_a_node_is_lost_in_its_middle() {
    if !has_nats() {
        return;
    }
    // Leases that no pause ends.
    let mut sharded = Sharded::start(&[("CLUSTER__EXPIRY", "60s")]);
    let sink = Sink::start();
    let owners = |node: &Server| -> Vec<String> {
        let view = node
            .command("GET", "/cluster/ownership", &Value::Null)
            .json();
        let owners = view["value"]
            .as_array()
            .expect("shards")
            .iter()
            .map(|shard| shard["ownerName"].clone());
        owners
            .map(|owner| owner.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let owners = owners(&sharded.cluster.nodes[0]);
    let names = ["a", "b", "c"];
    let is_asked = |name: &&str| **name == owners[usize::from(SHARDS)];
    let asked = names.iter().position(is_asked).expect("a node");
    // A shard that the owner of the control plane owns, too.
    let near = owners.iter().position(|name| *name == names[asked]);
    let near = near.expect("it has its share");
    let lost = (asked + 1) % 3;

    create_while_a_node_is_paused(&sharded.cluster.nodes, asked, lost);

    // A killed one: the next owner of its shards takes the change.
    let node = &sharded.cluster.nodes[asked];
    sharded.cluster.nodes[lost].signal("STOP");
    let response = thread::scope(|scope| {
        let put = scope.spawn(|| {
            node.put_subscription(NAME, "all", &SubscriptionSpec::new(&sink.url("/all")))
        });
        // One shard has it, and the others are waited for.
        wait_for("the event subscription in a shard", LONG, || {
            let path = format!("{}/status?shard={near}", subscription(NAME, "all"));
            node.admin("GET", &path, &Value::Null).status == 200
        });
        assert!(!put.is_finished());
        sharded.cluster.nodes[lost].signal("KILL");
        put.join().expect("it is answered")
    });
    sharded.cluster.nodes[lost].wait(LONG);
    let nodes: Vec<&Server> = sharded
        .cluster
        .nodes
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != lost)
        .map(|(_, node)| node)
        .collect();
    let of_shard = |shard| format!("{}/status?shard={shard}", subscription(NAME, "all"));
    let has_it = |shard| nodes[1].admin("GET", &of_shard(shard), &Value::Null).status == 200;
    if response.status == 503 {
        // The next owner was not there in time. It follows before it serves.
        wait_for("the change in every shard", LONG, || {
            (0..SHARDS).all(has_it)
        });
    }
    let missing: Vec<u16> = (0..SHARDS).filter(|shard| !has_it(*shard)).collect();
    assert!(
        missing.is_empty(),
        "{} {}: {missing:?}",
        response.status,
        response.text()
    );
    let keys = nodes[0]
        .command("POST", &format!("{SCOPE}/{NAME}/listKeys"), &Value::Null)
        .json();
    let key = keys["key1"].as_str().expect("a key");
    for number in 0..60 {
        wait_for("a publish", LONG, || {
            publish(nodes[number % 2], key, &[format!("e{number}")]) == 200
        });
    }
    wait_for("the events", LONG, || sink.taken("/all") == 60);
}

/// A paused owner sends no response for longer than a change waits.
fn create_while_a_node_is_paused(nodes: &[Server], asked: usize, paused: usize) {
    let topic = format!("{SCOPE}/{NAME}");
    nodes[paused].signal("STOP");
    let create = |node: &Server| {
        operator(
            node,
            &[
                "topics",
                "create",
                &topic,
                "--partitions",
                "6",
                "--tag",
                "team=shop",
            ],
        )
    };
    let error = create(&nodes[asked]).expect_err("two shards do not answer");
    assert!(
        error.contains("not every shard that it concerns has it yet"),
        "{error}"
    );
    assert!(
        error.contains("repeat the request to wait for that"),
        "{error}"
    );
    nodes[paused].signal("CONT");
    create(&nodes[asked]).expect("it is created already, and now everywhere");
    assert_eq!(shards_with_topic(&nodes[asked]).len(), usize::from(SHARDS));
    let error =
        operator(&nodes[asked], &["topics", "create", &topic]).expect_err("it is another one");
    assert!(error.contains("already exists"), "{error}");
}
