//! Requests to any node: a standby forwards them to the owner, and returns its responses
//! unchanged.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use ring::hmac;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::{CALM, Cluster, NAMES, TOKEN};
use crate::{
    server::{LONG, wait_until_settled},
    spec::shows,
    support::{
        http::{Client, Response, read_head},
        load,
        nats::has_nats,
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::Sink,
        tcp_proxy::{Cut, Direction},
    },
};

/// The head of a response, without what differs from one response to the next: ids, times, the
/// length of a text with the address of the node, and whether a refused body ends the connection.
fn without_changing(response: &Response) -> Vec<String> {
    let changing = [
        "date:",
        "x-ms-request-id:",
        "x-ms-correlation-request-id:",
        "content-length:",
        "connection:",
        // A response that is forwarded while it arrives is not compressed, and has no tag.
        "etag: w/",
        "vary:",
    ];
    let lines = response.head().lines().map(str::to_ascii_lowercase);
    let mut lines: Vec<String> = lines
        .filter(|line| !changing.iter().any(|name| line.starts_with(name)))
        .collect();
    lines.sort();
    lines
}

fn start() -> Cluster {
    Cluster::start(1, &[CALM])
}

fn status(node: &Server) -> Value {
    node.command("GET", "/cluster/status", &Value::Null).json()
}

#[test]
fn every_node_answers_as_the_owner_does_and_what_concerns_it_by_itself() {
    let _rows = shows(&[
        "S004-034: An event processor instance typically owns and processes events from one or \
         more partitions.",
        "S004-059: The owner identifiers in the example ownership records are lower-case \
         hyphenated GUIDs.",
        "S004-001: Several instances of an event processing application can run at once, and the \
         load is balanced between them.",
        "S004-041: In the periodic communication each instance updates its own processing state in \
         the store.",
        "S004-042: In the periodic communication each instance learns about the other active \
         instances from the store.",
        "S004-047: A partition ownership record in the checkpoint store holds exactly six items: \
         Event Hubs namespace, event hub name, consumer group, event processor identifier (owner), \
         partition ID and last modified time.",
        "S004-048: The ownership record has a field for the Event Hubs namespace, which holds the \
         fully qualified host name.",
        "S004-049: The ownership record has a field for the event hub name.",
        "S004-050: The ownership record has a field for the consumer group.",
        "S004-051: The ownership record has a field for the event processor identifier, also known \
         as the owner.",
        "S004-052: The ownership record has a field for the partition ID.",
        "S004-053: The ownership record has a field for the last modified time.",
    ]);
    if !has_nats() {
        return;
    }
    let cluster = start();
    let sink = Sink::start();
    let [owner, standby, other] = [0, 1, 2].map(|index| &cluster.nodes[index]);
    let key = standby.topic("orders", "EventGridSchema");
    other.subscribe(
        "orders",
        "taken",
        &SubscriptionSpec::new(&sink.url("/taken")),
    );

    publish_large_bodies(standby, &key, &sink);

    assert_responses_are_those_of_the_owner(owner, standby, &key);

    let reader = create_reader(owner);
    // A node shows what it read last, which may be from before its own last renewal.
    for node in &cluster.nodes {
        wait_for("three nodes that are alive", LONG, || {
            status(node).to_string().matches("\"alive\"").count() == 3
        });
    }
    for (node, name, owned_shards) in [
        (owner, "a", json!([0])),
        (standby, "b", json!([])),
        (other, "c", json!([])),
    ] {
        wait_for("a node that has caught up", LONG, || {
            node.request_without_token("GET", "/readyz", &[]).status == 200
        });
        assert_a_node_checks_tokens(node, &reader);
        assert_status_is_of_the_node(node, name, &owned_shards);
        assert_metrics_are_of_the_node(node, name);
        assert_ownership_names_the_owner(node);
    }
    assert_cluster_metrics_are_documented(standby);
    let table = operator(standby, &["cluster", "status"]).expect("a table");
    assert!(table.contains("cluster test, as b sees it"), "{table}");
}

/// Publishes a large body in one piece and another one in chunks, on a connection that stays open.
fn publish_large_bodies(standby: &Server, key: &str, sink: &Sink) {
    let ids: Vec<String> = (0..2_000).map(|id| format!("e{id}")).collect();
    let body = load::body(&ids, "s");
    assert!(body.len() > 200_000, "{}", body.len());
    standby.publish("orders", key, &body);
    let mut chunked = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\naeg-sas-key: {key}\r\ntransfer-encoding: chunked\r\n\r\n",
        events_path("orders"),
        standby.address()
    )
    .into_bytes();
    let late: Vec<String> = (0..500).map(|id| format!("late{id}")).collect();
    for part in load::body(&late, "s").chunks(10_000) {
        chunked.extend(format!("{:x}\r\n", part.len()).bytes());
        chunked.extend(part);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    let mut client = standby.client();
    assert_eq!(client.exchange(&chunked).expect("a response").status, 200);
    let again = client.ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", key)],
        &load::body(&ids[..1], "s"),
    );
    assert_eq!(again.expect("a response").status, 200);
    wait_for("all events", LONG, || {
        sink.taken("/taken") >= ids.len() + late.len()
    });
    wait_until_settled(standby, "orders", "taken");
}

/// Compares responses, refusals included, except for ids and times.
fn assert_responses_are_those_of_the_owner(owner: &Server, standby: &Server, key: &str) {
    let too_large = vec![b' '; 3 << 20];
    let orders = events_path("orders");
    let requests: [(&str, &str, Option<&str>, &[u8]); 6] = [
        ("POST", &orders, Some("wrong"), b"[]"),
        ("POST", &orders, None, b"[]"),
        ("POST", &orders, Some(key), &too_large),
        ("POST", &orders, Some(key), b"no JSON"),
        ("GET", "/nowhere?a=%2F&b", None, b""),
        ("GET", "/openapi.json", None, b""),
    ];
    for (method, path, key, body) in requests {
        let headers: Vec<(&str, &str)> = key.map(|key| ("aeg-sas-key", key)).into_iter().collect();
        let request = |node: &Server| {
            node.client()
                .ask(method, path, &headers, body)
                .expect("a response")
        };
        let direct = request(owner);
        let forwarded = request(standby);
        let heads = [&direct, &forwarded].map(without_changing);
        assert_eq!(heads[0], heads[1], "{method} {path}");
        assert_eq!(
            direct.body.is_empty(),
            forwarded.body.is_empty(),
            "{method} {path}"
        );
        if direct.status < 400 {
            assert_eq!(direct.body, forwarded.body, "{method} {path}");
        }
    }
}

fn create_reader(owner: &Server) -> String {
    let token = owner
        .command(
            "POST",
            "/tokens",
            &json!({"name": "reader", "roles": ["read"]}),
        )
        .json();
    format!("Bearer {}", token["token"].as_str().expect("a token"))
}

/// The status and the metrics need a token. The owner knows it, whichever node receives it.
fn assert_a_node_checks_tokens(node: &Server, reader: &str) {
    for path in ["/cluster/status", "/metrics"] {
        assert_eq!(
            node.request_without_token("GET", path, &[]).status,
            401,
            "{path}"
        );
    }
    let response = node
        .client()
        .ask("GET", "/cluster/status", &[("authorization", reader)], b"")
        .expect("a response");
    assert_eq!(
        (response.status, response.json()["node"].as_str()),
        (200, Some("a")),
        "the owner knows other tokens"
    );
}

fn assert_status_is_of_the_node(node: &Server, name: &str, owned_shards: &Value) {
    let view = status(node);
    assert_eq!(view["node"], name);
    let nodes = view["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3, "{view}");
    let own = nodes
        .iter()
        .find(|node| node["name"] == name)
        .expect("the node");
    assert_eq!(
        (&own["owns"], &own["state"]),
        (owned_shards, &json!("alive")),
        "{view}"
    );
}

fn assert_metrics_are_of_the_node(node: &Server, name: &str) {
    let metrics = node.command("GET", "/metrics", &Value::Null).text();
    let is_owner = u8::from(name == "a");
    for line in [
        &*format!("gridhook_cluster_shard_owned{{shard=\"0\"}} {is_owner}"),
        "gridhook_cluster_nodes_alive 3\n",
        "gridhook_cluster_shard_has_owner{shard=\"0\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{name}: {line}: {metrics}");
    }
}

/// The ownership record has the six fields of the event processor's.
fn assert_ownership_names_the_owner(node: &Server) {
    let records = node.command("GET", "/cluster/ownership", &Value::Null);
    let record = &records.json()["value"][0];
    for field in [
        "fullyQualifiedNamespace",
        "eventHubName",
        "consumerGroup",
        "partitionId",
        "ownerId",
    ] {
        let text = record[field].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{field}: {record}");
    }
    let time = record["lastModifiedTime"].as_str().unwrap_or_default();
    assert!(time.ends_with('Z'), "{record}");
    assert_eq!(
        (&record["ownerName"], &record["partitionId"]),
        (&json!("a"), &json!("0")),
        "{record}"
    );
    let id = record["ownerId"].as_str().expect("an id");
    let guid: uuid::Uuid = id.parse().expect("a GUID");
    assert_eq!(guid.hyphenated().to_string(), id, "in lower case");
}

fn assert_cluster_metrics_are_documented(standby: &Server) {
    let metrics = standby.command("GET", "/metrics", &Value::Null).text();
    let exposed = cluster_metrics(&metrics);
    let manual = include_str!("../../../src/manual/metrics.md");
    for text in [
        include_str!("../../../config/prometheus/gridhook.rules.yml"),
        include_str!("../../../config/grafana/gridhook.json"),
        manual,
    ] {
        let names = cluster_metrics(text);
        assert!(
            names.is_subset(&exposed),
            "{:?} are not exposed",
            names.difference(&exposed)
        );
    }
    assert_eq!(
        cluster_metrics(manual),
        exposed,
        "the manual has all of them"
    );
    assert!(
        !metrics.contains("gridhook_cluster_forwarded_requests_total{result=\"answered\"} 0"),
        "{metrics}"
    );
}

/// The names of the metrics of clusters in a text, without their mere prefix.
fn cluster_metrics(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("gridhook_cluster_") && !word.ends_with('_'))
        .map(str::to_owned)
        .collect()
}

/// Publishes from this address, which claims to be another one.
fn publish_from(client: [u8; 4], node: &Server, key: &str) -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from((client, 0)).into())
        .expect("an address of loopback");
    socket
        .connect(&node.address().into())
        .expect("a connection");
    socket.set_read_timeout(Some(LONG)).expect("a socket");
    let mut stream = TcpStream::from(socket);
    let body = load::body(&["e0".to_owned()], "s");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\naeg-sas-key: {key}\r\ncontent-length: {}\r\n\
         gridhook-forwarded-client: 127.0.0.77:1 127.0.0.1:2 https\r\n\r\n",
        events_path("walled"),
        node.address(),
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), &body].concat())
        .expect("a request");
    let head = read_head(&mut BufReader::new(stream)).expect("a response");
    head.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status")
}

#[test]
fn the_address_of_a_client_is_kept_and_cannot_be_forged() {
    if !has_nats() {
        return;
    }
    let cluster = start();
    let rules = json!([{"ipMask": "127.0.0.77", "action": "Allow"}]);
    let properties = json!({"inputSchema": "EventGridSchema", "inboundIpRules": rules});
    let key = cluster.nodes[1].topic_of("walled", &properties);
    for node in &cluster.nodes {
        assert_eq!(publish_from([127, 0, 0, 77], node, &key), 200);
        assert_eq!(publish_from([127, 0, 0, 78], node, &key), 403);
    }
}

#[test]
fn streams_and_long_polls_go_through_a_standby_and_end_with_their_clients() {
    if !has_nats() {
        return;
    }
    let cluster = start();
    let owner = &cluster.nodes[0];
    let standby = &cluster.nodes[1];
    let key = owner.topic("orders", "EventGridSchema");
    // A server has a limit of streams.
    let tail = || {
        let mut stream = TcpStream::connect(standby.address()).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        let token = super::TOKEN;
        let head = format!(
            "GET /tail HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
            standby.address()
        );
        stream.write_all(head.as_bytes()).expect("a request");
        let mut stream = BufReader::new(stream);
        let head = read_head(&mut stream).expect("a response");
        head.starts_with("HTTP/1.1 200").then_some(stream)
    };
    let mut stream = tail().expect("a stream");
    owner.publish("orders", &key, &load::body(&["e0".to_owned()], "s"));
    let mut seen = String::new();
    while !seen.contains("\"e0\"") {
        assert_ne!(stream.read_line(&mut seen).expect("a line"), 0, "{seen}");
    }
    let mut streams: Vec<_> = std::iter::from_fn(tail).take(200).collect();
    assert!(streams.len() < 200, "there is a limit");
    streams.clear();
    // The owner sees that the clients have gone.
    wait_for("a stream", LONG, || tail().is_some());
}

#[test]
fn a_node_accepts_forwarded_requests_from_nodes_of_its_cluster_only() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(1, &[CALM, ("LIMITS__HEAD_TIMEOUT", "1s")]);
    let owner = &cluster.nodes[0];
    let key = owner.topic("orders", "EventGridSchema");
    let address = node_address(owner);
    let body = "[]";
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: {address}\r\naeg-sas-key: {key}\r\ncontent-length: \
         {}\r\n\r\n{body}",
        events_path("orders"),
        body.len()
    );
    let wrong = format!("publishers/0 0123abcd {}\n{request}", "0".repeat(64));
    for offered in [request.as_str(), wrong.as_str()] {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        let mut stream = BufReader::new(stream);
        let mut greeting = String::new();
        stream.read_line(&mut greeting).expect("a line");
        assert!(greeting.starts_with("gridhook-node/3 "), "{greeting}");
        stream
            .get_mut()
            .write_all(offered.as_bytes())
            .expect("a request");
        let mut answered = Vec::new();
        // It may be reset.
        stream.read_to_end(&mut answered).ok();
        let answered = String::from_utf8_lossy(&answered);
        assert!(["", "refused\n"].contains(&&*answered), "{answered}");
    }
    // A proof for another address is none, and the owner proves itself, too.
    let other = SocketAddr::from(([127, 0, 0, 1], 1));
    assert!(!handshake(address, other, "publishers/0", LONG).1);
    assert!(handshake(address, address, "publishers/0", LONG).1);
    // A connection to a shard that the cluster does not have ends at once.
    let began = Instant::now();
    let (mut refused, confirmed) = handshake(address, address, "publishers/1", LONG);
    assert!(!confirmed);
    assert_eq!(refused.read(&mut [0]).expect("the end"), 0);
    assert!(began.elapsed() < Duration::from_secs(5), "it does not wait");
    // A proven node may watch for longer than the time limit of a proof.
    let (mut watching, confirmed) = handshake(address, address, "watch", LONG);
    assert!(confirmed);
    watching
        .get_mut()
        .set_read_timeout(Some(Duration::from_millis(2_500)))
        .expect("a socket");
    let kind = watching.read(&mut [0]).map_err(|error| error.kind());
    assert!(
        matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        "{kind:?}"
    );
}

/// Strangers who say nothing do not keep nodes out: beyond a limit the oldest of them end.
#[test]
fn connections_without_a_proof_make_room_for_a_node() {
    if !has_nats() {
        return;
    }
    const UNPROVEN: usize = 64;
    let cluster = Cluster::start(1, &[CALM]);
    let address = node_address(&cluster.nodes[0]);
    let connect = || {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        let mut stream = BufReader::new(stream);
        let mut greeting = String::new();
        stream.read_line(&mut greeting).expect("a line");
        stream
    };
    let mut strangers: Vec<_> = (0..UNPROVEN + 6).map(|_| connect()).collect();
    assert_eq!(strangers[0].read(&mut [0]).expect("the end"), 0);
    assert!(handshake(address, address, "publishers/0", LONG).1);
    let last = strangers.last_mut().expect("a connection");
    let timeout = Some(Duration::from_millis(10));
    last.get_mut().set_read_timeout(timeout).expect("a socket");
    assert!(last.read(&mut [0]).is_err(), "it stays open");
}

#[test]
fn connections_between_nodes_end_with_the_shard_that_they_are_for() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(1, &[CALM]);
    let address = node_address(&cluster.nodes[0]);
    let (mut connection, confirmed) = handshake(address, address, "publishers/0", LONG);
    assert!(confirmed);
    operator(&cluster.nodes[1], &["cluster", "drain", "a"]).expect("it is asked");
    assert_eq!(connection.read(&mut [0]).expect("the end"), 0);
    wait_for("another owner", LONG, || cluster.owner() != 0);
}

/// The address at which other nodes call the node of the first record.
fn node_address(node: &Server) -> SocketAddr {
    let view = status(node);
    view["nodes"][0]["address"]
        .as_str()
        .and_then(|address| address.parse().ok())
        .expect("an address")
}

/// The handshake of a node that calls `address` and means `named`, and whether the owner has
/// confirmed it in time.
fn handshake(
    address: SocketAddr,
    named: SocketAddr,
    target: &str,
    patience: Duration,
) -> (BufReader<TcpStream>, bool) {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(patience)).expect("a socket");
    let mut stream = BufReader::new(stream);
    let mut greeting = String::new();
    let mut response = String::new();
    stream.read_line(&mut greeting).expect("a line");
    let (protocol, owner_nonce) = greeting.trim_end().split_once(' ').expect("a nonce");
    let key = hmac::Key::new(hmac::HMAC_SHA256, super::SECRET.as_bytes());
    let proof = |prover: &str| {
        let text = format!("{protocol} {prover} {named} {owner_nonce} 0123abcd {target}");
        HEXLOWER.encode(hmac::sign(&key, text.as_bytes()).as_ref())
    };
    stream
        .get_mut()
        .write_all(format!("{target} 0123abcd {}\n", proof("node")).as_bytes())
        .expect("a proof");
    stream.read_line(&mut response).ok();
    let confirmed = response.trim_end() == proof("owner");
    (stream, confirmed)
}

#[test]
fn a_standby_delays_guessed_tokens_and_answers_a_client_that_has_closed_its_side() {
    if !has_nats() {
        return;
    }
    let cluster = start();
    let standby = &cluster.nodes[1];
    let key = standby.topic("orders", "EventGridSchema");
    // Ten refusals come at once; the delays after that double from 50 ms.
    let began = Instant::now();
    for _ in 0..15 {
        let response =
            standby
                .client()
                .ask("GET", "/metrics", &[("authorization", "Bearer wrong")], b"");
        assert_eq!(response.expect("a response").status, 401);
    }
    assert!(
        began.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        began.elapsed()
    );

    for node in &cluster.nodes {
        let (head, body) = publish_request(node, &key);
        let mut stream = TcpStream::connect(node.address()).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream
            .write_all(&[head.as_bytes(), &body].concat())
            .expect("a request");
        stream.shutdown(Shutdown::Write).expect("a socket");
        let head = read_head(&mut BufReader::new(stream)).expect("a response");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
}

/// A publish as its head and its body.
fn publish_request(node: &Server, key: &str) -> (String, Vec<u8>) {
    let body = load::body(&["e0".to_owned()], "s");
    let path = events_path("orders");
    let at = node.address();
    let length = body.len();
    (
        format!(
            "POST {path} HTTP/1.1\r\nhost: {at}\r\naeg-sas-key: {key}\r\ncontent-length: \
             {length}\r\n\r\n"
        ),
        body,
    )
}

#[test]
fn a_standby_that_stops_finishes_the_requests_that_it_forwards() {
    if !has_nats() {
        return;
    }
    let mut cluster = start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    let standby = &mut cluster.nodes[1];
    let (head, body) = publish_request(standby, &key);
    let mut stream = TcpStream::connect(standby.address()).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream
        .write_all(&[head.as_bytes(), &body[..10]].concat())
        .expect("a part of a request");
    // The standby has read the head.
    assert_eq!(
        standby.request_without_token("GET", "/healthz", &[]).status,
        200
    );
    standby.signal("TERM");
    // Longer than a new server leaves to the one before it.
    thread::sleep(Duration::from_secs(4));
    stream.write_all(&body[10..]).expect("the rest");
    let head = read_head(&mut BufReader::new(stream)).expect("a response");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(standby.wait(LONG), Some(0));
}

#[test]
fn an_owner_with_a_write_that_waits_for_nats_stops_by_itself() {
    if !has_nats() {
        return;
    }
    let mut cluster = start();
    let owner = &mut cluster.nodes[0];
    let key = owner.topic("orders", "EventGridSchema");
    for nats in &mut cluster.nats.0 {
        nats.kill();
    }
    let (head, body) = publish_request(owner, &key);
    let mut stream = TcpStream::connect(owner.address()).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream
        .write_all(&[head.as_bytes(), &body].concat())
        .expect("a request");
    assert_eq!(
        owner.request_without_token("GET", "/healthz", &[]).status,
        200
    );
    println!("stopped after {:?}", owner.terminate());
}

#[test]
fn an_operator_moves_the_store_and_drains_nodes_from_any_node() {
    let _rows = shows(&[
        "S004-044: New instances can join the processing pool to scale up.",
        "S004-046: When an instance goes down in order to scale down, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
        "S004-061: An event processor instance that acquires ownership of a partition starts \
         processing that partition.",
    ]);
    if !has_nats() {
        return;
    }
    let cluster = start();
    let sink = Sink::start();
    let key = cluster.nodes[2].topic("orders", "EventGridSchema");
    cluster.nodes[1].subscribe(
        "orders",
        "taken",
        &SubscriptionSpec::new(&sink.url("/taken")),
    );
    let error =
        operator(&cluster.nodes[2], &["cluster", "move", "0", "d"]).expect_err("no such node");
    assert!(
        error.contains("no node d is alive; alive are a, b, c"),
        "{error}"
    );
    let error =
        operator(&cluster.nodes[0], &["cluster", "move", "7", "b"]).expect_err("no such shard");
    assert!(error.contains("there is no shard 7"), "{error}");

    // A publisher that tries again sees nothing of it.
    let mut sent = 0;
    let mut publish = |through: usize| {
        let id = format!("e{sent}");
        sent += 1;
        wait_for("a publish", LONG, || {
            let body = load::body(std::slice::from_ref(&id), "s");
            let response = cluster.nodes[through].client().ask(
                "POST",
                &events_path("orders"),
                &[("aeg-sas-key", &key)],
                &body,
            );
            response.is_ok_and(|response| response.status == 200)
        });
    };
    wait_for("a copy on b", LONG, || {
        operator(&cluster.nodes[2], &["cluster", "move", "0", "b"]).is_ok()
    });
    let mut through = 0;
    while cluster.owner() != 1 {
        publish(through % 3);
        through += 1;
    }
    operator(&cluster.nodes[0], &["cluster", "drain", "b"]).expect("a request");
    while cluster.owner() == 1 {
        publish(through % 3);
        through += 1;
    }
    let output = operator(&cluster.nodes[2], &["cluster", "status"]).expect("a table");
    assert!(output.contains("drained"), "{output}");
    let error =
        operator(&cluster.nodes[2], &["cluster", "move", "0", "b"]).expect_err("it takes nothing");
    assert!(error.contains("drain --end"), "{error}");
    operator(&cluster.nodes[1], &["cluster", "drain", "b", "--end"]).expect("a request");
    for node in 0..3 {
        publish(node);
    }
    wait_for("all events", LONG, || sink.taken("/taken") >= sent);
    assert_eq!(
        cluster.nodes[0]
            .admin("GET", &format!("{SCOPE}/orders"), &Value::Null)
            .status,
        200
    );
}

/// Clients that each ask on a connection of their own, again and again, and what they met instead
/// of a response.
fn count_resets(cluster: &Cluster, change: impl FnOnce()) -> Vec<String> {
    let is_over = AtomicBool::new(false);
    let ask_until_over = |node: &Server, path: &str| {
        let mut errors = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let response = Client::new(node.address()).ask("GET", path, &[], b"");
            errors.extend(response.err().map(|error| format!("{path}: {error}")));
        }
        errors
    };
    thread::scope(|scope| {
        let clients = cluster.nodes.iter().flat_map(|node| {
            ["/readyz", "/nowhere"].map(|path| scope.spawn(move || ask_until_over(node, path)))
        });
        let clients: Vec<_> = clients.collect();
        change();
        is_over.store(true, Ordering::Relaxed);
        let errors = clients.into_iter().map(|client| client.join());
        errors
            .flat_map(|errors| errors.expect("no panic"))
            .collect()
    })
}

#[test]
fn no_request_is_cut_off_while_the_store_moves() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(3, &[CALM]);
    wait_for("copies", LONG, || {
        operator(&cluster.nodes[0], &["cluster", "move", "0", "b"]).is_ok()
    });
    let errors = count_resets(&cluster, || {
        for next in [1, 2, 0, 1, 2, 0] {
            let name = NAMES[next];
            wait_for("a move", LONG, || {
                operator(&cluster.nodes[0], &["cluster", "move", "0", name]).is_ok()
            });
            wait_for("the next owner", LONG, || cluster.owner() == next);
        }
    });
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn a_read_whose_owner_says_nothing_receives_503() {
    if !has_nats() {
        return;
    }
    let others = [CALM, ("LIMITS__ANSWER_TIMEOUT", "1s")];
    let (cluster, proxy, _port) = Cluster::start_behind_proxy(&[CALM], &others);
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    // The same thread forwards all requests of a connection, and keeps its own to the owner.
    let mut client = cluster.nodes[1].client();
    let mut read = || {
        let path = format!("{SCOPE}/orders");
        client.ask("GET", &path, &headers, b"").expect("a response")
    };
    assert_eq!(read().status, 404);
    proxy.cut(Cut::One(Direction::ToClient));
    let response = read();
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.text().contains("in time"), "{}", response.text());
    assert_eq!(cluster.owner(), 0, "NATS has its renewals");
}

#[test]
fn a_request_that_no_node_takes_waits_and_receives_503() {
    if !has_nats() {
        return;
    }
    let mut cluster = start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    let address = node_address(&cluster.nodes[0]);
    for nats in &mut cluster.nats.0 {
        nats.kill();
    }
    cluster.nodes[0].kill_9();
    let impostor = Impostor::at(address);
    let began = Instant::now();
    let response = cluster.nodes[1].client().ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", &key)],
        b"[]",
    );
    let response = response.expect("a response");
    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(response.header("retry-after"), Some("1"));
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "it waits for an owner"
    );
    let (greeted, taken) = &*impostor.0.lock();
    assert!(
        *greeted > 0 && taken.is_empty(),
        "{greeted}: {}",
        String::from_utf8_lossy(taken)
    );
    wait_for("it to say so", LONG, || {
        let metrics = cluster.nodes[1]
            .command("GET", "/metrics", &Value::Null)
            .text();
        metrics.contains("gridhook_cluster_records_readable 0")
    });
}

/// A process at the address of a former owner that does not know the secret: how many nodes have
/// greeted it, and what they sent behind that.
struct Impostor(Arc<Mutex<(u32, Vec<u8>)>>);

impl Impostor {
    fn at(address: SocketAddr) -> Self {
        let seen = Arc::<Mutex<(u32, Vec<u8>)>>::default();
        let listener = TcpListener::bind(address).expect("the address is free");
        let shared = Arc::clone(&seen);
        // It ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut proof = String::new();
                    stream
                        .get_mut()
                        .write_all(format!("gridhook-node/3 {}\n", "a".repeat(32)).as_bytes())
                        .ok()?;
                    stream.read_line(&mut proof).ok()?;
                    shared.lock().0 += 1;
                    stream
                        .get_mut()
                        .write_all(format!("{}\n", "0".repeat(64)).as_bytes())
                        .ok()?;
                    let mut byte = [0];
                    while stream.read(&mut byte).is_ok_and(|read| read > 0) {
                        shared.lock().1.extend(byte);
                    }
                    Some(())
                });
            }
        });
        Self(seen)
    }
}
