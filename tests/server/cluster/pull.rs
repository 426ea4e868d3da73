//! Pull delivery from a namespace topic that is spread over all shards of a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use gridhook::pull::LockTokenSealer;
use serde_json::{Value, json};

use super::{
    CALM, Cluster, LONG, NAMES,
    clients::{Clients, LOCK, pulls},
    shards::{SHARDS, Sharded},
};
use crate::{
    server::{
        many,
        pull::RG,
        tokens::{ask as ask_with, token},
    },
    support::{
        http::Client,
        nats::has_nats,
        server::{Server, operator, wait_for},
        sink::Sink,
        tcp_proxy::TcpProxy,
    },
};

const HEAT: &str = "/namespaces/plant/topics/heat";

/// An event that a client has received: its id, its lock token, and how often it was received.
type Received = (String, String, u64);

/// A namespace topic that is spread, and a queue of it.
pub(super) struct Plant {
    pub(super) sharded: Sharded,
    key: String,
}

impl Plant {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::new(Sharded::start(settings))
    }

    /// Its topic and queue, in a cluster that runs.
    pub(super) fn new(sharded: Sharded) -> Self {
        let nodes = &sharded.cluster.nodes;
        nodes[0].command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
        let heat = format!("{RG}/plant/topics/heat");
        let output = operator(&nodes[1], &["topics", "create", &heat, "--partitions", "6"])
            .expect("it is created");
        assert!(output.contains("partitions           6"), "{output}");
        let queue = json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": LOCK.as_secs()}});
        let queue = json!({"properties": {"deliveryConfiguration": queue}});
        nodes[2].command("PUT", &format!("{heat}/eventSubscriptions/work"), &queue);
        for node in nodes {
            wait_for("the node to see the parts", LONG, || {
                node.admin("GET", &format!("{heat}/events?shard=0"), &Value::Null)
                    .status
                    == 200
            });
        }
        let keys = nodes[0]
            .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
            .json();
        let key = keys["key1"].as_str().expect("a key").to_owned();
        Self { sharded, key }
    }

    fn nodes(&self) -> &[Server] {
        &self.sharded.cluster.nodes
    }

    fn ask(&self, node: usize, path: &str, kind: &str, body: &str) -> (u16, Value) {
        ask(&self.nodes()[node], &self.key, path, kind, body)
    }

    /// Publishes events one by one, at these nodes in turn.
    fn publish(&self, nodes: &[usize], of: &str, count: usize) -> BTreeSet<String> {
        let ids: Vec<String> = (0..count).map(|number| format!("{of}-{number}")).collect();
        for (number, id) in ids.iter().enumerate() {
            let event = json!({"specversion": "1.0", "id": id, "source": "/oven", "type": "hot", "data": 1});
            let kind = "application/cloudevents+json; charset=utf-8";
            let (status, response) = self.ask(
                nodes[number % nodes.len()],
                ":publish",
                kind,
                &event.to_string(),
            );
            assert_eq!(status, 200, "{response}");
        }
        ids.into_iter().collect()
    }

    /// A client that waits for events.
    fn wait_at(&self, node: &Server) -> TcpStream {
        let mut client = TcpStream::connect(node.address()).expect("connected");
        let head = format!(
            "POST {HEAT}{} HTTP/1.1\r\nhost: x\r\nauthorization: SharedAccessKey \
             {}\r\ncontent-length: 0\r\n\r\n",
            queue_path("receive?maxEvents=5&maxWaitTime=60"),
            self.key
        );
        client.write_all(head.as_bytes()).expect("sent");
        client
    }

    fn receive(&self, node: usize, most: usize) -> Vec<Received> {
        receive(&self.nodes()[node], &self.key, most)
    }

    /// Receives this number of events, through these nodes in turn.
    fn receive_all(&self, nodes: &[usize], count: usize) -> Vec<Received> {
        let mut all = Vec::new();
        let mut turn = 0;
        while all.len() < count {
            let received = self.receive(nodes[turn % nodes.len()], 10);
            assert!(
                !received.is_empty(),
                "{} of {count} after a wait",
                all.len()
            );
            all.extend(received);
            turn += 1;
        }
        all
    }

    fn settle(&self, node: usize, verb: &str, tokens: &[&str]) -> Value {
        let path = queue_path(verb);
        // As some clients write JSON.
        let body = format!("\u{feff}{}", json!({"lockTokens": tokens}));
        let (status, response) = self.ask(node, &path, "application/json", &body);
        assert_eq!(status, 200, "{response}");
        response
    }
}

fn queue_path(verb: &str) -> String {
    format!("/eventsubscriptions/work:{verb}")
}

fn ask(node: &Server, key: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
    let shown = format!("SharedAccessKey {key}");
    let headers = [("authorization", shown.as_str()), ("content-type", kind)];
    let response = node
        .client()
        .ask("POST", &format!("{HEAT}{path}"), &headers, body.as_bytes())
        .expect("a response");
    (response.status, response.json())
}

fn receive(node: &Server, key: &str, most: usize) -> Vec<Received> {
    let path = queue_path(&format!("receive?maxEvents={most}&maxWaitTime=20"));
    let (status, response) = ask(node, key, &path, "application/json", "");
    assert_eq!(status, 200, "{response}");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let of = |one: &Value| {
        let lock = &one["brokerProperties"];
        let count = lock["deliveryCount"].as_u64().expect("a number");
        (text(&one["event"]["id"]), text(&lock["lockToken"]), count)
    };
    response["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(of)
        .collect()
}

fn ids(received: &[Received]) -> BTreeSet<String> {
    received.iter().map(|(id, ..)| id.clone()).collect()
}

fn tokens(received: &[Received]) -> Vec<&str> {
    received
        .iter()
        .map(|(_, token, _)| token.as_str())
        .collect()
}

#[test]
fn any_node_receives_from_every_shard_and_settles_every_lock() {
    if !has_nats() {
        return;
    }
    let plant = Plant::start(&[CALM, ("JOURNAL__RETENTION", "7d")]);
    let sink = Sink::start();
    let nodes = plant.nodes();
    assert_partitions_are_one_or_the_shards(&nodes[1]);
    push_too(&nodes[0], &sink);
    let published = plant.publish(&[0, 1, 2], "one", 60);
    let received = plant.receive_all(&[0], published.len());
    assert_eq!(
        (received.len(), ids(&received)),
        (published.len(), published.clone())
    );
    assert!(
        received.iter().all(|(.., count)| *count == 1),
        "{received:?}"
    );
    assert_events_are_of_several_shards(&received);
    wait_for("the pushed events", LONG, || {
        sink.taken("/pushed") == published.len()
    });

    assert_any_node_renews_all_locks(&plant, &received);
    assert_another_method_is_refused(&plant);
    release_and_acknowledge(&plant, &received);

    assert_operators_see_one_queue(nodes, &published);

    let new_key = regenerate_key(&nodes[2]);
    assert_every_shard_has_the_new_key(nodes, &plant.key, &new_key);
    nodes[1].command("DELETE", &format!("{RG}/plant"), &Value::Null);
    assert_every_shard_has_deleted_the_topic(nodes, &new_key);
}

fn assert_partitions_are_one_or_the_shards(node: &Server) {
    let response = node.admin(
        "PUT",
        &format!("{RG}/plant/topics/cold"),
        &json!({"properties": {"partitionCount": 4}}),
    );
    assert!(
        response
            .text()
            .contains("is 4; expected 1 or 6, the number of shards"),
        "{}",
        response.text()
    );
}

/// Adds an event subscription with push delivery.
fn push_too(node: &Server, sink: &Sink) {
    let push = json!({"deliveryMode": "Push", "push": {"destination": {
        "endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/pushed")}}}});
    let push = json!({"properties": {"deliveryConfiguration": push}});
    node.command(
        "PUT",
        &format!("{RG}/plant/topics/heat/eventSubscriptions/pushed"),
        &push,
    );
}

fn assert_events_are_of_several_shards(received: &[Received]) {
    let mut by_shard = BTreeMap::new();
    for (_, token, _) in received {
        *by_shard
            .entry(LockTokenSealer::part_of(token).expect("the shard"))
            .or_insert(0) += 1;
    }
    println!("by shard: {by_shard:?}");
    assert!(by_shard.len() > 3, "{by_shard:?}");
}

/// Any node renews all locks in one request, and names the tokens that are not of the queue.
fn assert_any_node_renews_all_locks(plant: &Plant, received: &[Received]) {
    let wrong_shard = with_another_shard(&received[0].1);
    let mut lock_tokens = tokens(received);
    lock_tokens.insert(7, "x");
    lock_tokens.push(&wrong_shard);
    let response = plant.settle(1, "renewLock", &lock_tokens);
    assert_eq!(
        response["succeededLockTokens"],
        json!(tokens(received)),
        "{response}"
    );
    let failed: Vec<(&Value, &Value)> = response["failedLockTokens"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|failed| (&failed["lockToken"], &failed["error"]["code"]))
        .collect();
    assert_eq!(
        failed,
        [
            (&json!("x"), &json!("BadToken")),
            (&json!(wrong_shard), &json!("BadToken"))
        ]
    );
}

fn assert_another_method_is_refused(plant: &Plant) {
    let path = format!("{HEAT}{}", queue_path("receive"));
    for node in plant.nodes() {
        let response = node.client().ask("GET", &path, &[], b"");
        let response = response.expect("a response");
        assert_eq!(response.status, 405);
        assert!(response.text().contains("error"), "{}", response.text());
    }
}

/// A lock token with the number of another shard.
fn with_another_shard(token: &str) -> String {
    let mut bytes = data_encoding::BASE64URL_NOPAD
        .decode(token.as_bytes())
        .expect("a token");
    bytes[2] = (bytes[2] + 1) % u8::try_from(SHARDS).expect("few");
    data_encoding::BASE64URL_NOPAD.encode(&bytes)
}

fn release_and_acknowledge(plant: &Plant, received: &[Received]) {
    let (released, rest) = received.split_at(20);
    assert_eq!(
        plant.settle(2, "release", &tokens(released))["succeededLockTokens"],
        json!(tokens(released))
    );
    assert_eq!(
        plant.settle(1, "acknowledge", &tokens(rest))["succeededLockTokens"],
        json!(tokens(rest))
    );
    let again = plant.receive_all(&[1, 2], released.len());
    assert_eq!(ids(&again), ids(released));
    assert!(again.iter().all(|(.., count)| *count == 2), "{again:?}");
    assert_eq!(
        plant.settle(0, "acknowledge", &tokens(&again))["failedLockTokens"],
        json!([])
    );
    let lost = plant.settle(0, "acknowledge", &tokens(&again));
    assert_eq!(
        lost["failedLockTokens"].as_array().map(Vec::len),
        Some(again.len()),
        "{lost}"
    );
}

fn assert_operators_see_one_queue(nodes: &[Server], published: &BTreeSet<String>) {
    let heat = format!("{RG}/plant/topics/heat");
    let status = nodes[2]
        .command(
            "GET",
            &format!("{heat}/eventSubscriptions/work/status"),
            &Value::Null,
        )
        .json();
    assert_eq!(
        (&status["counters"]["delivered"], &status["backlog"]),
        (&json!(published.len()), &json!(0)),
        "{status}"
    );
    let namespaces = nodes[1].command("GET", RG, &Value::Null).json();
    assert_eq!(
        namespaces["value"].as_array().map(Vec::len),
        Some(1),
        "{namespaces}"
    );
    for id in published.iter().take(6) {
        let trace = nodes[0]
            .command("GET", &format!("{heat}/trace?id={id}"), &Value::Null)
            .json();
        assert_eq!(trace["events"].as_array().map(Vec::len), Some(1), "{trace}");
    }
}

/// Replaces the first key of the namespace, and returns the new one.
fn regenerate_key(node: &Server) -> String {
    let keys = node
        .command(
            "POST",
            &format!("{RG}/plant/regenerateKey"),
            &json!({"keyName": "key1"}),
        )
        .json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// Publishes the same event, and returns the response.
fn publish_keyed(node: &Server, key: &str) -> (u16, Value) {
    let event =
        json!({"specversion": "1.0", "id": "keyed", "source": "/oven", "type": "hot", "data": 1});
    let content_type = "application/cloudevents+json; charset=utf-8";
    ask(node, key, ":publish", content_type, &event.to_string())
}

/// Once a key is regenerated, it holds in every shard.
fn assert_every_shard_has_the_new_key(nodes: &[Server], old_key: &str, new_key: &str) {
    for node in nodes {
        for _ in 0..8 {
            assert_eq!(publish_keyed(node, old_key).0, 401);
            assert_eq!(publish_keyed(node, new_key).0, 200);
        }
        let response = ask(
            node,
            old_key,
            &queue_path("receive"),
            "application/json",
            "",
        );
        assert_eq!(response.0, 401);
    }
}

/// With a namespace its topics are deleted in every shard.
fn assert_every_shard_has_deleted_the_topic(nodes: &[Server], key: &str) {
    for node in nodes {
        for _ in 0..8 {
            let (status, body) = publish_keyed(node, key);
            assert!([404, 503].contains(&status), "{body}");
        }
        let namespaces = node.command("GET", RG, &Value::Null).json();
        assert_eq!(namespaces["value"], json!([]));
    }
}

/// Publishes at two nodes, receives everything at the third, and settles it at the first.
pub(super) fn assert_pulled_anywhere(plant: &Plant) {
    let published = plant.publish(&[1, 2], "anywhere", 12);
    let received = plant.receive_all(&[2], published.len());
    assert_eq!(ids(&received), published);
    let parts: BTreeSet<usize> = received
        .iter()
        .filter_map(|(_, token, _)| LockTokenSealer::part_of(token))
        .collect();
    assert!(parts.len() > 1, "{received:?}");
    assert_eq!(
        plant.settle(0, "acknowledge", &tokens(&received))["failedLockTokens"],
        json!([])
    );
}

/// A token is revoked while its client waits in every shard: it receives nothing that comes then.
fn assert_ends_with_its_token(plant: &Plant) {
    let granted = ["keeper", "--role", "consume", "--scope", "namespaces/plant"];
    let bearer = token(&plant.nodes()[0], &granted);
    let receive = |wait: u32| {
        let path = format!(
            "{HEAT}{}",
            queue_path(&format!("receive?maxEvents=5&maxWaitTime={wait}"))
        );
        ask_with(&plant.nodes()[1], &bearer, "POST", &path, "")
    };
    thread::scope(|scope| {
        let waits = scope.spawn(|| receive(60));
        thread::sleep(Duration::from_millis(50));
        operator(&plant.nodes()[2], &["tokens", "revoke", "keeper", "--yes"])
            .expect("it is revoked");
        let revoked = Instant::now();
        let response = waits.join().expect("a response");
        assert!(
            revoked.elapsed() < Duration::from_secs(10),
            "{:?}",
            revoked.elapsed()
        );
        let ended = (response.status, response.json()["value"].clone());
        assert!(
            ended == (200, json!([])) || ended.0 == 503,
            "{}",
            response.text()
        );
    });
    let published = plant.publish(&[0, 1, 2], "after", 6);
    assert_eq!(receive(10).status, 401);
    let received = plant.receive_all(&[0], published.len());
    assert_eq!(ids(&received), published);
    assert!(
        received.iter().all(|(.., count)| *count == 1),
        "{received:?}"
    );
}

#[test]
fn a_client_that_waits_at_one_node_is_woken_by_an_event_in_any_shard() {
    if !has_nats() {
        return;
    }
    let plant = Plant::start(&[CALM]);
    let mut seen = BTreeSet::new();
    for round in 0..9 {
        let waiting = round % 3;
        let publishing = (round / 3 + 1) % 3;
        thread::scope(|scope| {
            let waits = scope.spawn(|| (plant.receive(waiting, 5), Instant::now()));
            // Most of the time it waits in all shards by then.
            thread::sleep(Duration::from_millis(50));
            let began = Instant::now();
            plant.publish(&[publishing], &format!("round-{round}"), 1);
            let (received, at) = waits.join().expect("a client");
            println!(
                "node {waiting} had the event of node {publishing} after {:?}",
                at.duration_since(began)
            );
            assert!(at.duration_since(began) < Duration::from_secs(5));
            assert_eq!(received.len(), 1, "{received:?}");
            seen.extend(
                received
                    .iter()
                    .filter_map(|(_, token, _)| LockTokenSealer::part_of(token)),
            );
            assert_eq!(
                plant.settle(publishing, "acknowledge", &tokens(&received))["failedLockTokens"],
                json!([])
            );
        });
    }
    assert!(seen.len() > 2, "{seen:?}");
    // A client that disconnects gets no events, and no attempt is counted.
    let leaves = plant.wait_at(&plant.nodes()[1]);
    thread::sleep(Duration::from_millis(50));
    drop(leaves);
    let published = plant.publish(&[0, 1, 2], "left", 6);
    let received = plant.receive_all(&[0, 2], published.len());
    assert_eq!(ids(&received), published);
    assert!(
        received.iter().all(|(.., count)| *count == 1),
        "{received:?}"
    );
    // Events of several shards at once, for clients that each take one: whatever no client takes is
    // at hand for the next.
    let count = 60;
    let all = thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|node| {
                let plant = &plant;
                scope.spawn(move || {
                    let mut own = Vec::new();
                    while own.len() < count / 3 {
                        own.extend(plant.receive(node, 1));
                    }
                    own
                })
            })
            .collect();
        let published: Vec<_> = (0..3)
            .map(|node| {
                let plant = &plant;
                scope.spawn(move || plant.publish(&[node], &format!("at-{node}"), count / 3))
            })
            .collect();
        let published: BTreeSet<String> = published
            .into_iter()
            .flat_map(|ids| ids.join().expect("ids"))
            .collect();
        let all: Vec<Received> = clients
            .into_iter()
            .flat_map(|client| client.join().expect("events"))
            .collect();
        assert_eq!(ids(&all), published);
        all
    });
    assert_eq!(all.len(), count);
    assert!(
        all.iter().all(|(.., deliveries)| *deliveries == 1),
        "{all:?}"
    );
    assert_ends_with_its_token(&plant);
}

/// The requests that a node has sent to owners of shards.
fn sent_to_owners(node: &Server) -> usize {
    let metrics = node.command("GET", "/metrics", &Value::Null).text();
    metrics
        .lines()
        .find_map(|line| line.strip_prefix("gridhook_cluster_requests_to_owners_total "))
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// The nodes that own the shards with topics.
fn owners(node: &Server) -> Vec<String> {
    let view = node
        .command("GET", "/cluster/ownership", &Value::Null)
        .json();
    let name = |shard: usize| {
        view["value"][shard]["ownerName"]
            .as_str()
            .unwrap_or_default()
    };
    (0..usize::from(SHARDS))
        .map(|shard| name(shard).to_owned())
        .collect()
}

#[test]
fn clients_wait_on_while_half_of_the_shards_of_a_node_move_away() {
    if !has_nats() {
        return;
    }
    let plant = Plant::start(&[CALM]);
    let nodes = plant.nodes();
    let index_of = |name: &str| NAMES.iter().position(|known| *known == name);
    let from = index_of(&owners(&nodes[0])[0]).expect("an owner");
    let [to, third] = [(from + 1) % 3, (from + 2) % 3];
    thread::scope(|scope| {
        let wait = || (plant.receive(third, 5), Instant::now());
        let clients = [scope.spawn(wait), scope.spawn(wait)];
        // Most of the time they wait in all shards by then.
        thread::sleep(Duration::from_millis(50));
        operator(&nodes[0], &["cluster", "move", "0", NAMES[to]]).expect("it is asked");
        wait_for("the move", LONG, || owners(&nodes[third])[0] == NAMES[to]);
        let mut published = BTreeSet::new();
        let began = Instant::now();
        for (round, node) in [from, to].into_iter().enumerate() {
            assert!(clients.iter().filter(|client| client.is_finished()).count() <= round);
            published.extend(plant.publish(&[node], &format!("moved-{round}"), 1));
            wait_for("a client to receive the event", LONG, || {
                clients.iter().filter(|client| client.is_finished()).count() > round
            });
        }
        let mut received = Vec::new();
        for client in clients {
            let (events, at) = client.join().expect("a client");
            assert!(at.duration_since(began) < Duration::from_secs(5));
            received.extend(events);
        }
        assert_eq!(ids(&received), published);
        assert!(
            received.iter().all(|(.., count)| *count == 1),
            "{received:?}"
        );
        let failed = plant.settle(from, "acknowledge", &tokens(&received));
        assert_eq!(failed["failedLockTokens"], json!([]));
    });
}

#[test]
fn a_client_that_waits_in_every_shard_learns_that_its_subscription_was_deleted() {
    if !has_nats() {
        return;
    }
    let plant = Plant::start(&[CALM]);
    let nodes = plant.nodes();
    let path = queue_path("receive?maxWaitTime=60");
    thread::scope(|scope| {
        let waits = scope.spawn(|| plant.ask(1, &path, "application/json", ""));
        // Most of the time it waits in all shards by then.
        thread::sleep(Duration::from_millis(50));
        let subscription = format!("{RG}/plant/topics/heat/eventSubscriptions/work");
        let deleted = Instant::now();
        nodes[0].command("DELETE", &subscription, &Value::Null);
        let (status, response) = waits.join().expect("a response");
        assert_eq!(status, 404, "{response}");
        assert!(deleted.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn a_client_that_waits_costs_a_request_to_each_node_and_one_that_ends_it() {
    if !has_nats() {
        return;
    }
    const POLLS: usize = 30;
    // A request for each shard instead of each node would be 90 more.
    const OTHER_REQUESTS: usize = 30;
    let plant = Plant::start(&[CALM]);
    let node = &plant.nodes()[0];
    // Metrics are read from owners, too.
    let first = sent_to_owners(node);
    let before = sent_to_owners(node);
    let mut reads = 0;
    let mut sent = || {
        reads += 1;
        sent_to_owners(node) - before - reads * (before - first)
    };
    let clients: Vec<TcpStream> = (0..POLLS).map(|_| plant.wait_at(node)).collect();
    let nodes = plant.nodes().len();
    wait_for("the clients to wait in all shards", LONG, || {
        sent() >= POLLS * nodes
    });
    // A client that waits sends nothing more. The nodes themselves ask each other now and then.
    thread::sleep(Duration::from_millis(50));
    assert!(sent() <= POLLS * nodes + OTHER_REQUESTS);
    drop(clients);
    let mut last = 0;
    wait_for("no more requests", LONG, || {
        let now = sent();
        let is_same = now == std::mem::replace(&mut last, now);
        is_same && now > POLLS * nodes
    });
    assert!(
        last <= 2 * POLLS * nodes + OTHER_REQUESTS,
        "{last} requests"
    );
}

#[test]
fn clients_that_wait_at_a_node_have_their_responses_at_once_when_it_stops() {
    if !has_nats() {
        return;
    }
    // Nothing here ends because of a time limit.
    let settings = [CALM, ("SERVER__SHUTDOWN_TIMEOUT", "10m")];
    let mut plant = Plant::new(Sharded::start_on_three(&settings));
    let nodes = plant.nodes();
    // Another topic, whose requests are forwarded.
    let cold = format!("{RG}/plant/topics/cold");
    nodes[0].command("PUT", &cold, &json!({}));
    let queue = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    let queue_of_cold = format!("{cold}/eventSubscriptions/work");
    nodes[0].command("PUT", &queue_of_cold, &queue);
    let at = nodes[0].address();
    let key = plant.key.clone();
    let began = Instant::now();
    let waiting: Vec<_> = ["heat", "cold"]
        .into_iter()
        .map(|topic| {
            let shown = format!("SharedAccessKey {key}");
            let path = format!(
                "/namespaces/plant/topics/{topic}{}",
                queue_path("receive?maxEvents=5&maxWaitTime=120")
            );
            thread::spawn(move || {
                let headers = [("authorization", shown.as_str())];
                Client::new(at).ask("POST", &path, &headers, b"")
            })
        })
        .collect();
    // Most of the time they wait at the owners by then.
    thread::sleep(Duration::from_millis(500));
    plant.sharded.cluster.nodes[0].signal("TERM");
    for client in waiting {
        let response = client.join().expect("a client").expect("a response");
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.json()["value"], json!([]));
    }
    assert_eq!(plant.sharded.cluster.nodes[0].wait(LONG), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(110),
        "the time of the clients"
    );
}

#[test]
fn clients_that_pull_lose_nothing_while_owners_are_killed_and_paused() {
    if !has_nats() {
        return;
    }
    let mut plant = Plant::start(&[]);
    let balancer = TcpProxy::start(&plant.sharded.cluster.addresses());
    let mut clients = Clients::new();
    let pulled = pulls(&mut clients, balancer.address(), &plant.key);
    let acknowledged = || pulled.lock().acknowledged.len();
    wait_for("events", LONG, || acknowledged() > 30);
    for round in 0..many(1, 10) {
        let [killed, paused, other] = [round % 3, (round + 1) % 3, (round + 2) % 3];
        let but = |cluster: &Cluster, away: usize| {
            let rest = cluster
                .addresses()
                .into_iter()
                .enumerate()
                .filter(|(node, _)| *node != away);
            rest.map(|(_, address)| address).collect::<Vec<_>>()
        };
        plant.sharded.cluster.nodes[killed].kill_9();
        balancer.turn_to(&but(&plant.sharded.cluster, killed));
        let before = acknowledged();
        let began = Instant::now();
        wait_for("events without the killed node", LONG, || {
            acknowledged() >= before + 10
        });
        println!(
            "round {round}: 10 events {:?} after the kill",
            began.elapsed()
        );
        plant.sharded.wait_for_shares(other, &[3, 3]);
        plant.sharded.cluster.join(killed);
        plant.sharded.wait_for_shares(other, &[2, 2, 2]);
        plant.nodes()[paused].signal("STOP");
        balancer.turn_to(&but(&plant.sharded.cluster, paused));
        plant.sharded.wait_for_shares(other, &[3, 3]);
        plant.nodes()[paused].signal("CONT");
        plant.sharded.wait_for_shares(other, &[2, 2, 2]);
        balancer.turn_to(&plant.sharded.cluster.addresses());
    }
    // Events that a client of the killed node received, or that were on their way to it, are due
    // again when their lock expires.
    let published = pulled.lock().published.clone();
    wait_for("all events to be acknowledged", 3 * LOCK, || {
        published.is_subset(&pulled.lock().acknowledged)
    });
    clients.stop();
    println!("{} acknowledged", acknowledged());
    assert!(pulled.lock().wrong.is_empty(), "{:?}", pulled.lock().wrong);
}

#[test]
fn what_was_not_acknowledged_comes_again_after_an_owner_was_killed() {
    if !has_nats() {
        return;
    }
    let mut plant = Plant::start(&[CALM]);
    plant.publish(&[0, 1, 2], "one", 40);
    let received = plant.receive_all(&[0, 1, 2], 40);
    let (acknowledged, held) = received.split_at(15);
    assert_eq!(
        plant.settle(1, "acknowledge", &tokens(acknowledged))["failedLockTokens"],
        json!([])
    );
    plant.sharded.cluster.nodes[0].kill_9();
    plant.sharded.wait_for_shares(1, &[3, 3]);
    // Locks are those of the next owner, too.
    let (kept, left) = held.split_at(5);
    assert_eq!(
        plant.settle(2, "acknowledge", &tokens(kept))["succeededLockTokens"],
        json!(tokens(kept))
    );
    // No lock is shorter than a minute, which only the long form waits for.
    if many(0, 1) == 0 {
        assert_eq!(
            plant.settle(1, "release", &tokens(left))["succeededLockTokens"],
            json!(tokens(left))
        );
    }
    let mut again = Vec::new();
    wait_for("the events to come again", 2 * LOCK, || {
        again.extend(plant.receive(1 + again.len() % 2, 10));
        again.len() >= left.len()
    });
    assert_eq!((again.len(), ids(&again)), (left.len(), ids(left)));
    assert!(again.iter().all(|(.., count)| *count == 2), "{again:?}");
    assert_eq!(
        plant.settle(1, "acknowledge", &tokens(&again))["failedLockTokens"],
        json!([])
    );
    plant.sharded.cluster.join(0);
    plant.sharded.wait_for_shares(1, &[2, 2, 2]);
    let last = plant.publish(&[0], "last", 6);
    assert_eq!(ids(&plant.receive_all(&[2], 6)), last);
}
