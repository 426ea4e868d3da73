//! Topics that are spread over all shards of a cluster: every shard takes their events, and they
//! are one topic for operators.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    CALM, LONG,
    clients::{Clients, lock, publishes},
    shards::{SHARDS, Sharded, names},
};
use crate::{
    server::{assert_arrived, many, replay, system_topic::UNASKED, wait_until_settled},
    spec::shows,
    support::{
        endpoint::{Endpoint, answer},
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

fn make(node: &Server) -> String {
    node.topic_of(NAME, &json!({"partitionCount": SHARDS}))
}

/// The status of a publish with this key.
fn publish(node: &Server, key: &str, ids: &[String]) -> u16 {
    let body = load::body(ids, "s");
    node.client()
        .ask("POST", &events_path(NAME), &[("aeg-sas-key", key)], &body)
        .expect("an answer")
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
    let refused = |path: &str, properties: Value, why: &str| {
        let answer = nodes[1].admin(
            "PUT",
            path,
            &json!({"location": "local", "properties": properties}),
        );
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(
            answer.text().contains(why),
            "{why} is not in {}",
            answer.text()
        );
    };
    refused(
        &topic,
        json!({"partitionCount": 4}),
        "is 4; expected 1 or 6, the number of shards",
    );
    refused(
        &topic.replace("/topics/", "/domains/"),
        json!({"partitionCount": 6}),
        "expected 1 for a domain",
    );
    let window = json!({"partitionCount": 6, "duplicateDetectionHistoryTimeWindow": "PT1H"});
    refused(&topic, window, "a spread topic has no duplicate detection");
    let made = operator(
        &nodes[0],
        &["topics", "create", &topic, "--partitions", "6"],
    )
    .expect("it is created");
    assert!(made.contains("partitions           6"), "{made}");
    refused(
        &topic,
        json!({"partitionCount": 1}),
        "cannot be changed from 6",
    );
    let key = make(&nodes[1]);
    wait_until_known(nodes);
    for node in nodes {
        assert_eq!(
            node.command("GET", &topic, &Value::Null).json()["properties"]["partitionCount"],
            json!(SHARDS)
        );
        let listed = node.command("GET", SCOPE, &Value::Null).json();
        assert_eq!(
            listed["value"].as_array().map(Vec::len),
            Some(1),
            "{listed}"
        );
    }
    nodes[2].subscribe(NAME, "all", &SubscriptionSpec::new(&sink.url("/first")));
    let count = usize::from(SHARDS) * 20;
    let first = spread(nodes, &key, "first", count);
    wait_for("the events", LONG, || sink.taken("/first") == count);
    assert_arrived(&sink, "/first", &first);
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

    // A change of the event subscription holds in every shard once it is answered.
    nodes[1].subscribe(NAME, "all", &SubscriptionSpec::new(&sink.url("/second")));
    spread(nodes, &key, "second", 60);
    wait_for("the events at the new endpoint", LONG, || {
        sink.taken("/second") == 60
    });
    assert_eq!(sink.taken("/first"), count);
    // So does a key.
    let keys = nodes[2]
        .command(
            "POST",
            &format!("{topic}/regenerateKey"),
            &json!({"keyName": "key1"}),
        )
        .json();
    let fresh = keys["key1"].as_str().expect("a key").to_owned();
    for node in nodes {
        for _ in 0..8 {
            assert_eq!(publish(node, &key, &["old".to_owned()]), 401);
            assert_eq!(publish(node, &fresh, &["new".to_owned()]), 200);
        }
    }
    wait_for("the event", LONG, || {
        sink.ledger("/second").contains_key("new")
    });
    nodes[0].unsubscribe(NAME, "all");
    wait_for("the deletion event", LONG, || {
        !sink.deletion_notices("/second").is_empty()
    });
    for shard in 0..SHARDS {
        let path = format!("{}/status?shard={shard}", subscription(NAME, "all"));
        assert_eq!(nodes[2].admin("GET", &path, &Value::Null).status, 404);
    }
    assert_eq!(sink.deletion_notices("/second").len(), 1);

    // The name may come back as that of another topic.
    nodes[1].command("DELETE", &topic, &Value::Null);
    for node in nodes {
        for _ in 0..8 {
            assert!([404, 503].contains(&publish(node, &fresh, &["gone".to_owned()])));
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

    let commands = crate::readme::cluster_commands();
    assert!(!commands.is_empty());
    for command in commands {
        let command = command.replace("--partitions 16", &format!("--partitions {SHARDS}"));
        let words: Vec<&str> = command
            .strip_prefix("gridhook ")
            .expect("a command of gridhook")
            .split(' ')
            .collect();
        operator(&nodes[1], &words).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
}

#[test]
fn a_spread_system_topic_has_the_events_about_topics_of_every_shard() {
    if !has_nats() {
        return;
    }
    let sharded = Sharded::start(&[CALM, ("SYSTEM_TOPIC__NAME", "server"), UNASKED]);
    let nodes = &sharded.cluster.nodes;
    let endpoint = Endpoint::start(vec![answer(200, "", "")]);
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
    sink.set("/bad", Behavior::Answer(400));
    let count = 60;
    let ids = spread(nodes, &key, "one", count);
    wait_for("the events", LONG, || sink.taken("/good") == count);
    wait_until_settled(&nodes[0], NAME, "bad");
    let get = |node: usize, path: &str| nodes[node].command("GET", path, &Value::Null).json();
    let good = subscription(NAME, "good");
    let bad = subscription(NAME, "bad");

    // Limits are divided: each part has its share of them.
    let status = get(0, &format!("{good}/status"));
    assert_eq!(
        status["endpoint"]["maxRequestsPerSecond"],
        json!(60),
        "{status}"
    );
    for shard in 0..SHARDS {
        let part = get(1, &format!("{good}/status?shard={shard}"));
        assert_eq!(part["endpoint"]["rate"], json!(10.0), "{part}");
    }
    let metrics = get(2, &format!("{bad}/metrics"));
    assert_eq!(metrics["counts"]["matched"], json!(count), "{metrics}");
    let top = get(1, "/top?by=name");
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
        get(0, &format!("/top?topic={SCOPE}/{NAME}"))["matching"],
        json!(2)
    );

    // The history of each event, whichever shard has it.
    for (number, id) in ids.iter().enumerate() {
        let trace = get(number % 3, &format!("{SCOPE}/{NAME}/trace?id={id}"));
        let events = trace["events"].as_array().expect("events");
        assert_eq!(events.len(), 1, "{trace}");
        assert!(events[0]["shard"].is_u64(), "{trace}");
        assert_eq!(
            get(number % 3, &format!("{good}/explain?id={id}"))["state"],
            "completed"
        );
    }
    let mut lines = BTreeSet::new();
    let mut next = String::new();
    loop {
        let page = get(0, &format!("{good}/ledger?top=3{next}"));
        for line in page["lines"].as_array().expect("lines") {
            assert!(
                lines.insert((line["shard"].as_u64(), line["firstSequence"].as_u64())),
                "{line} is listed twice"
            );
            let range = format!("from={}&shard={}", line["firstSequence"], line["shard"]);
            let request = get(1, &format!("{good}/request?{range}"));
            assert_eq!(request["events"], 1, "{request}");
        }
        match page["continue"].as_str() {
            Some(position) => next = format!("&continue={position}"),
            None => break,
        }
    }
    assert_eq!(lines.len(), count);

    // Dead letters: those in files and those that wait are listed once, whichever shard has them.
    let letters = |top: usize| {
        let mut keys = Vec::new();
        let mut path = format!("{bad}/deadLetters?$top={top}");
        loop {
            let page = get(1, &path);
            for one in page["value"].as_array().expect("letters") {
                let key = one["key"].as_str().expect("a key");
                assert_eq!(get(2, &format!("{bad}/deadLetters/{key}"))["id"], one["id"]);
                keys.push(one["id"].to_string());
            }
            match page["nextLink"].as_str() {
                Some(link) => {
                    path = link[link.find("/subscriptions").expect("a path")..].to_owned()
                }
                None => return keys,
            }
        }
    };
    let listed = letters(7);
    assert_eq!(
        (listed.len(), listed.iter().collect::<BTreeSet<_>>().len()),
        (count, count),
        "{listed:?}"
    );
    let topic = format!("{SCOPE}/{NAME}");
    nodes[1].command("PATCH", &topic, &json!({"properties": {"edition": "test"}}));
    spread(nodes, &key, "two", count);
    // Those of the former edition wait no longer than new ones.
    let count = 2 * count;
    wait_for("the dead letters in files", LONG, || {
        get(0, &format!("{bad}/deadLetters?stage=written&$top=1000"))["value"]
            .as_array()
            .map(Vec::len)
            == Some(count)
    });
    let listed = letters(7);
    assert_eq!(
        (listed.len(), listed.iter().collect::<BTreeSet<_>>().len()),
        (count, count),
        "{listed:?}"
    );
    sink.set("/bad", Behavior::Answer(200));
    operator(
        &nodes[2],
        &["dead-letters", "redrive", &topic, "bad", "--all"],
    )
    .expect("a redrive");
    wait_for("the redriven events", LONG, || sink.taken("/bad") == count);
    // Each may go while another one is looked at.
    wait_for("the files to go", LONG, || {
        get(1, &format!("{bad}/deadLetters"))["value"] == json!([])
    });

    // The newest events of all shards, by page.
    let mut listed = Vec::new();
    let mut next = String::new();
    loop {
        let page = get(0, &format!("{topic}/events?top=7{next}"));
        let events = page["events"].as_array().expect("events");
        assert!(events.len() <= 7, "{page}");
        listed.extend(events.iter().map(|event| {
            let path = format!(
                "{topic}/events/{}?shard={}",
                event["sequence"], event["shard"]
            );
            assert_eq!(get(1, &path)["id"], event["id"]);
            (
                event["at"].as_str().expect("a time").to_owned(),
                event["id"].to_string(),
            )
        }));
        match page["before"].as_str() {
            Some(position) => next = format!("&before={position}"),
            None => break,
        }
    }
    let unnamed = nodes[2].admin("GET", &format!("{topic}/events/1"), &Value::Null);
    let allowed = "shard is missing; expected 0 to 5, because each shard of this topic has \
        sequences of its own";
    let message = unnamed.json()["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        (unnamed.status, message.contains(allowed)),
        (400, true),
        "{message}"
    );
    let times: Vec<&String> = listed.iter().map(|(at, _)| at).collect();
    assert!(
        times.is_sorted_by(|newer, older| newer >= older),
        "{times:?}"
    );
    let ids: BTreeSet<&String> = listed.iter().map(|(_, id)| id).collect();
    assert_eq!((listed.len(), ids.len()), (count, count), "{listed:?}");
    let tested = nodes[1]
        .command("POST", &format!("{good}/testFilter"), &json!({"last": 30}))
        .json();
    assert_eq!(
        (&tested["tested"], &tested["matched"]),
        (&json!(30), &json!(30)),
        "{tested}"
    );
    let shards: BTreeSet<u64> = tested["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter_map(|one| one["shard"].as_u64())
        .collect();
    assert_eq!(shards.len(), usize::from(SHARDS), "{tested}");
    let given: Value =
        serde_json::from_slice(&load::body(&["given".to_owned()], "s")).expect("JSON");
    let given = nodes[2]
        .command(
            "POST",
            &format!("{good}/testFilter"),
            &json!({"events": given}),
        )
        .json();
    assert_eq!(
        (&given["tested"], &given["results"][0]["shard"]),
        (&json!(1), &Value::Null),
        "{given}"
    );

    // What an operator does holds in every shard, and is one operation.
    wait_for("all events", LONG, || sink.taken("/good") == count);
    nodes[0].operate(NAME, "good", "hold");
    let operations = get(1, "/audit?search=good/hold");
    assert_eq!(
        operations["value"].as_array().map(Vec::len),
        Some(1),
        "{operations}"
    );
    let more = spread(nodes, &key, "held", 30);
    assert!(get(1, &format!("{good}/status"))["heldBy"].is_string());
    thread::sleep(Duration::from_millis(50));
    assert_eq!(sink.taken("/good"), count);
    nodes[1].operate(NAME, "good", "resume");
    wait_for("the held events", LONG, || {
        sink.taken("/good") == count + more.len()
    });
    wait_until_settled(&nodes[2], NAME, "good");

    // A replay has a job in each shard.
    nodes[0].operate(NAME, "good", "hold");
    let id = replay::start(&nodes[1], NAME, "good", &json!({}));
    assert_eq!(id.split(',').count(), usize::from(SHARDS), "{id}");
    let open = get(0, "/jobs");
    let of_good = open["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .filter(|job| job["subscription"] == "good");
    let mut ids: Vec<&str> = of_good
        .map(|job| job["id"].as_str().expect("an id"))
        .collect();
    ids.sort_unstable();
    assert_eq!(ids.join(","), id, "{open}");
    let path = replay::replays(NAME, "good", &format!("/{id}"));
    assert_eq!(
        nodes[1]
            .command("POST", &format!("{path}/pause"), &Value::Null)
            .json()["state"],
        "paused"
    );
    assert_eq!(
        nodes[2]
            .command("POST", &format!("{path}/resume"), &Value::Null)
            .json()["state"],
        "running"
    );
    nodes[0].operate(NAME, "good", "resume");
    let replayed = 2 * (count + more.len());
    wait_for("the replayed events", LONG, || {
        sink.look("/good", |ledger| {
            ledger
                .values()
                .map(|all| all.iter().filter(|one| one.is_taken()).count())
                .sum::<usize>()
        }) == replayed
    });
    wait_for("the end of the replay", LONG, || {
        get(2, &path)["state"] == "completed"
    });
    let shown = get(0, &path);
    assert_eq!(
        (&shown["id"], &shown["counters"]["delivered"]),
        (&json!(id), &json!(count + more.len())),
        "{shown}"
    );
    // Each node shows the metrics of its shards.
    let series = "gridhook_subscription_delivered_events_total{shard=\"";
    let found: usize = nodes
        .iter()
        .map(|node| {
            let text = node.command("GET", "/metrics", &Value::Null).text();
            text.lines()
                .filter(|line| line.starts_with(series) && line.contains("subscription=\"good\""))
                .count()
        })
        .sum();
    assert_eq!(found, usize::from(SHARDS));
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
                balancer.at(),
                (NAME, &key),
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
        let published = lock(published);
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
    let topic = format!("{SCOPE}/{NAME}");
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
    // One that the owner of the control plane has, too.
    let near = owners.iter().position(|name| *name == names[asked]);
    let near = near.expect("it has its share");
    let lost = (asked + 1) % 3;

    // A paused owner answers nothing for longer than a change waits.
    let paused = lost;
    sharded.cluster.nodes[paused].signal("STOP");
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
    let error = create(&sharded.cluster.nodes[asked]).expect_err("two shards do not answer");
    assert!(
        error.contains("not every shard that it concerns has it yet"),
        "{error}"
    );
    assert!(
        error.contains("repeat the request to wait for that"),
        "{error}"
    );
    sharded.cluster.nodes[paused].signal("CONT");
    create(&sharded.cluster.nodes[asked]).expect("it is created already, and now everywhere");
    assert_eq!(
        shards_with_topic(&sharded.cluster.nodes[asked]).len(),
        usize::from(SHARDS)
    );
    let error = operator(&sharded.cluster.nodes[asked], &["topics", "create", &topic])
        .expect_err("it is another one");
    assert!(error.contains("already exists"), "{error}");

    // A killed one: the next owner of its shards takes the change.
    let node = &sharded.cluster.nodes[asked];
    sharded.cluster.nodes[lost].signal("STOP");
    let answer = thread::scope(|scope| {
        let put =
            scope.spawn(|| node.ask_for(NAME, "all", &SubscriptionSpec::new(&sink.url("/all"))));
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
    if answer.status == 503 {
        // The next owner was not there in time. It follows before it serves.
        wait_for("the change in every shard", LONG, || {
            (0..SHARDS).all(has_it)
        });
    }
    let missing: Vec<u16> = (0..SHARDS).filter(|shard| !has_it(*shard)).collect();
    assert!(
        missing.is_empty(),
        "{} {}: {missing:?}",
        answer.status,
        answer.text()
    );
    let keys = nodes[0]
        .command("POST", &format!("{topic}/listKeys"), &Value::Null)
        .json();
    let key = keys["key1"].as_str().expect("a key");
    for number in 0..60 {
        wait_for("a publish", LONG, || {
            publish(nodes[number % 2], key, &[format!("e{number}")]) == 200
        });
    }
    wait_for("the events", LONG, || sink.taken("/all") == 60);
}
