//! TLS between the nodes, and between a node and NATS.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{CALM, Cluster, LONG, START, assert_all_arrive, publish};
use crate::{
    server::system_topic::{INTERVAL, TOPIC, UNASKED},
    support::{
        certificates::{Authority, DAY, days_left},
        endpoint::{Endpoint, respond},
        load,
        nats::{NatsCluster, PASSWORD, has_nats},
        port::ReservedPort,
        server::{SCOPE, Server, SubscriptionSpec, events_path, wait_for},
        sink::Sink,
        tcp_proxy::TcpProxy,
    },
};

/// The settings of TLS between nodes, with the files of a node in this folder.
pub(super) fn node_tls(folder: &Path, node: &str) -> Vec<(&'static str, String)> {
    let file = |kind: &str| folder.join(format!("{node}.{kind}")).display().to_string();
    vec![
        ("CLUSTER__NODE_CA_FILE", file("ca")),
        ("CLUSTER__NODE_CERTIFICATE_FILE", file("crt")),
        ("CLUSTER__NODE_KEY_FILE", file("key")),
    ]
}

/// Writes the files of a node, whose certificate is of `issuer`.
pub(super) fn write_node_files(folder: &Path, node: &str, trusts: &Authority, issuer: &Authority) {
    fs::write(folder.join(format!("{node}.ca")), trusts.pem()).expect("a file");
    issuer.issue("127.0.0.1").write(folder, node);
}

/// Long leases, and handshakes that are not waited for.
fn with_leases(of_node: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let leases = [CALM, ("LIMITS__HEAD_TIMEOUT", "3s")];
    leases
        .map(|(key, value)| (key, value.to_owned()))
        .into_iter()
        .chain(of_node)
        .collect()
}

/// The status of a publish through a node.
fn status_of(node: &Server, key: &str) -> u16 {
    let body = load::body(&["e0".to_owned()], "s");
    let response = node.client().ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", key)],
        &body,
    );
    response.expect("a response").status
}

#[test]
fn nodes_speak_tls_refuse_strangers_and_take_new_certificates() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start();
    let authority = Authority::new();
    let other = Authority::new();
    let write = |node: &str, trusts: &Authority, issuer: &Authority| {
        write_node_files(folder.path(), node, trusts, issuer);
    };
    write("a", &authority, &authority);
    write("b", &authority, &other);
    write("c", &other, &authority);
    let clients = folder.path().join("clients");
    fs::create_dir(&clients).expect("a folder");
    authority
        .ending("gridhook", 90 * DAY)
        .write(&clients, "shop");
    let own = |node: &str| {
        let mut settings = with_leases(node_tls(folder.path(), node));
        settings.push((
            "DELIVERY__CLIENT_CERTIFICATES_DIR",
            clients.display().to_string(),
        ));
        settings
    };
    let nats = NatsCluster::start(1, "always");
    let mut cluster = Cluster::prepare_on(nats, own);
    cluster.join_all();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "taken",
        &SubscriptionSpec::new(&sink.url("/taken")),
    );

    assert_unknown_authorities_are_refused(&cluster, &key);

    replace_a_certificate(&cluster.nodes, &authority, folder.path());
    let mut ids = publish(&cluster.nodes[1], &key, 1..20);
    write("c", &authority, &authority);
    cluster.nodes[2].signal("HUP");
    wait_for("the authority of the owner", LONG, || {
        cluster.nodes[2].logs().contains("authorities replaced")
    });
    ids.extend(publish(&cluster.nodes[2], &key, 20..40));
    assert_all_arrive(&cluster.nodes[1], &sink, &["taken"], &ids);

    assert_connections_without_tls_are_refused(&cluster.nodes[0]);

    take_over(&mut cluster, &key, &sink);
}

/// The owner does not know the authority of the second node, and the third one does not know that
/// of the owner.
fn assert_unknown_authorities_are_refused(cluster: &Cluster, key: &str) {
    assert_eq!(status_of(&cluster.nodes[1], key), 503);
    assert_eq!(status_of(&cluster.nodes[2], key), 503);
    for (node, line) in [
        (1, "received fatal alert"),
        (2, "invalid peer certificate"),
        (0, "invalid peer certificate"),
        (0, "received fatal alert"),
    ] {
        wait_for(line, LONG, || cluster.nodes[node].logs().contains(line));
    }
    assert!(
        cluster.nodes[1]
            .logs()
            .contains("the owner has not accepted a connection of this node")
    );
    // A reason is logged once a minute, however often nodes try. On a busy machine there are more
    // reasons.
    let logs = cluster.nodes[0].logs();
    let refusals = logs
        .lines()
        .filter(|line| line.contains("a connection of another node was refused"));
    let reasons: Vec<&str> = refusals
        .filter_map(|line| line.split("error=").nth(1)?.split(" total=").next())
        .collect();
    let unique: BTreeSet<&str> = reasons.iter().copied().collect();
    assert!(
        reasons.len() >= 2 && reasons.len() == unique.len(),
        "{reasons:?}"
    );
}

/// A certificate is replaced without a restart.
fn replace_a_certificate(nodes: &[Server], authority: &Authority, folder: &Path) {
    let days = |node: &Server| days_left(&node.command("GET", "/metrics", &Value::Null).text());
    let path = |name: &str| folder.join(name).display().to_string();
    assert!(days(&nodes[1])[&path("b.crt")] > 60);
    authority.ending("127.0.0.1", 60 * DAY).write(folder, "b");
    nodes[1].signal("HUP");
    wait_for("the new certificate", LONG, || {
        nodes[1].logs().contains("certificate replaced")
    });
    let client_certificate = (path("clients/shop.crt"), 90);
    assert_eq!(
        days(&nodes[1]),
        BTreeMap::from([(path("b.crt"), 60), client_certificate.clone()])
    );
    let owner_days = days(&nodes[0]);
    assert!(
        owner_days.contains_key(&path("a.crt"))
            && owner_days.get(&client_certificate.0) == Some(&90),
        "{owner_days:?}"
    );
}

fn assert_connections_without_tls_are_refused(owner: &Server) {
    let view = owner.command("GET", "/cluster/status", &Value::Null).json();
    let address: SocketAddr = view["nodes"][0]["address"]
        .as_str()
        .and_then(|at| at.parse().ok())
        .expect("an address");
    for request in ["", "publishers/0 0123abcd 00\n"] {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream.write_all(request.as_bytes()).expect("a line");
        let mut response = Vec::new();
        // The connection may be reset.
        stream.read_to_end(&mut response).ok();
        assert!(
            !String::from_utf8_lossy(&response).contains("gridhook"),
            "{response:?}"
        );
    }
    wait_for("the connections to be refused", LONG, || {
        owner.logs().contains("no handshake came in time")
    });
}

/// A standby that has become the owner detects failures through TLS, and serves the others.
fn take_over(cluster: &mut Cluster, key: &str, sink: &Sink) {
    let start = Instant::now();
    cluster.nodes[0].kill_9();
    let next = cluster.owner_but(Some(0));
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "the failure was not detected through TLS: {:?}",
        start.elapsed()
    );
    let standby = 3 - next;
    let more = publish(&cluster.nodes[standby], key, 40..50);
    assert_all_arrive(&cluster.nodes[next], sink, &["taken"], &more);
}

#[test]
fn nodes_with_and_without_tls_forward_nothing_to_each_other() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    for node in ["a", "b"] {
        write_node_files(folder.path(), node, &authority, &authority);
    }
    let nats = NatsCluster::start(1, "always");
    let port = ReservedPort::new();
    let proxy = TcpProxy::start(&[port.address]);
    // The last one has no TLS.
    let own = |node: &str| {
        with_leases(match node {
            "c" => {
                vec![
                    ("CLUSTER__NODE_LISTEN", port.address.to_string()),
                    ("CLUSTER__ADVERTISE", proxy.address().to_string()),
                ]
            }
            node => node_tls(folder.path(), node),
        })
    };
    let mut cluster = Cluster::prepare_on(nats, own);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.join(1);
    cluster.join(2);
    publish(&cluster.nodes[1], &key, 0..5);
    assert_eq!(status_of(&cluster.nodes[2], &key), 503);
    let may_expect = "it may expect TLS (cluster.node_certificate_file)";
    wait_for(may_expect, LONG, || {
        cluster.nodes[2].logs().contains(may_expect)
    });
    let moved =
        cluster.nodes[0].command("POST", "/cluster/move", &json!({"shard": 0, "node": "c"}));
    assert_eq!(moved.status, 202, "{}", moved.text());
    wait_for("the other one to own the store", START, || {
        cluster.owner() == 2
    });
    // Requests that wait share the attempts.
    let before = proxy.connections();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(status_of(&cluster.nodes[1], &key), 503));
        }
    });
    let made = proxy.connections() - before;
    assert!(
        made <= 40,
        "{made} connections for eight requests that wait for five seconds"
    );
    let on_all = "set cluster.node_certificate_file on all nodes or on none";
    wait_for(on_all, LONG, || cluster.nodes[1].logs().contains(on_all));
}

#[test]
fn a_node_reaches_nats_through_tls_with_a_client_certificate_that_is_replaced_and_warns_before_it_ends()
 {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let authority = Authority::new();
    let of_clients = Authority::new();
    let next = Authority::new();
    fs::write(file("ca.pem"), authority.pem()).expect("a file");
    fs::write(file("clients.pem"), of_clients.pem()).expect("a file");
    fs::write(file("other.pem"), next.pem()).expect("a file");
    authority.issue("127.0.0.1").write(folder.path(), "server");
    of_clients.issue("gridhook").write(folder.path(), "client");
    write_node_files(folder.path(), "node", &authority, &authority);
    let own = |node: &str| {
        let mut settings = vec![(
            "CLUSTER__CA_FILE",
            file(if node == "b" { "other.pem" } else { "ca.pem" }),
        )];
        settings.extend(node_tls(folder.path(), "node"));
        settings.extend([TOPIC, INTERVAL, UNASKED].map(|(name, value)| (name, value.to_owned())));
        if node != "c" {
            let [certificate, key] = ["client.crt", "client.key"].map(file);
            settings.extend([
                ("CLUSTER__CERTIFICATE_FILE", certificate),
                ("CLUSTER__KEY_FILE", key),
            ]);
        }
        settings
    };
    let mut cluster = Cluster::prepare_on(NatsCluster::start_tls(folder.path()), own);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    cluster.nodes[0].topic("orders", "EventGridSchema");
    for (index, why) in [(1, "invalid peer certificate"), (2, "")] {
        cluster.nodes[index].begin();
        assert_eq!(cluster.nodes[index].wait(START), Some(1));
        let logs = cluster.nodes[index].logs();
        assert!(
            logs.contains("NATS cannot be reached") && logs.contains(why),
            "{logs}"
        );
    }

    let subscriber = Endpoint::start(vec![respond(200, "", "")]);
    cluster.nodes[0].topic("server", "EventGridSchema");
    cluster.nodes[0].subscribe("server", "all", &SubscriptionSpec::new(&subscriber.url()));

    // The servers of NATS take another authority of clients, and have a certificate of another one
    // themselves. The new certificates end within `system_topic.certificate_expiry`.
    cluster.nats.0[0].kill();
    for name in ["clients.pem", "ca.pem"] {
        fs::write(file(name), next.pem()).expect("a file");
    }
    next.issue("127.0.0.1").write(folder.path(), "server");
    next.ending("gridhook", 10 * DAY)
        .write(folder.path(), "client");
    authority
        .ending("127.0.0.1", 10 * DAY)
        .write(folder.path(), "node");
    cluster.nodes[0].signal("HUP");
    wait_for("the new certificates", LONG, || {
        cluster.nodes[0]
            .logs()
            .matches("certificate replaced")
            .count()
            == 2
    });
    wait_for("the new authority", LONG, || {
        cluster.nodes[0].logs().contains("authorities replaced")
    });
    cluster.nats.0[0].resume();
    wait_for("writes", START, || {
        let response = cluster.nodes[0].client().ask("GET", "/readyz", &[], b"");
        response.is_ok_and(|response| response.status == 200)
    });
    let made = cluster.nodes[0].admin("PUT", &format!("{SCOPE}/more"), &json!({"properties": {}}));
    assert!(made.status < 300, "{}", made.text());
    let ending = || {
        let events = subscriber
            .requests()
            .into_iter()
            .map(|request| serde_json::from_slice::<[Value; 1]>(&request.body));
        let events = events.map(|event| event.expect("an array of one")[0].clone());
        let ending = events.filter(|event| event["eventType"] == "Gridhook.CertificateNearExpiry");
        ending
            .map(|event| event["subject"].as_str().expect("a subject").to_owned())
            .collect::<BTreeSet<String>>()
    };
    let expected = BTreeSet::from(["client.crt", "node.crt"].map(file));
    wait_for("events about both certificates", LONG, || {
        ending() == expected
    });
}

#[test]
fn a_standby_reads_the_certificate_for_clients_again_on_sighup() {
    if !has_nats() {
        return;
    }
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = [30, 90].map(|days| authority.ending("127.0.0.1", days * DAY));
    first.write(folder.path(), "server");
    let [certificate, key] =
        ["server.crt", "server.key"].map(|name| folder.path().join(name).display().to_string());
    // Only the signal makes the server read it.
    let settings = [
        ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
        ("SERVER__TLS_KEY", key.as_str()),
        ("SERVER__TLS_RELOAD", "1h"),
    ];
    let cluster = Cluster::start_tls(&settings, &authority.client());
    second.write(folder.path(), "server");
    let standby = &cluster.nodes[1];
    standby.signal("HUP");
    wait_for("the new certificate", LONG, || {
        standby.logs().contains("certificate replaced")
    });
    let mut client = standby.client();
    client.ask("GET", "/healthz", &[], b"").expect("it answers");
    assert_eq!(client.certificate(), Some(second.certificate.to_vec()));
}

#[test]
fn a_node_logs_in_with_a_new_password_of_nats_without_a_restart() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).expect("a file");
    let own = |_: &str| {
        let keys = ["CLUSTER__PASSWORD_FILE", "CLUSTER__SYSTEM_PASSWORD_FILE"];
        let setting = |key| (key, password.display().to_string());
        keys.map(setting).to_vec()
    };
    let mut cluster = Cluster::prepare_on(NatsCluster::start(1, "always"), own);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    let node = &cluster.nodes[0];
    let is_ready = || {
        let response = node.client().ask("GET", "/readyz", &[], b"");
        response.is_ok_and(|response| response.status == 200)
    };
    cluster.nats.0[0].replace_password("another-password");
    wait_for("the node to be cut off", LONG, || !is_ready());
    wait_for("the reason in the log", LONG, || {
        let logs = node.logs();
        let mut lines = logs.lines();
        lines.any(|line| {
            line.contains("the NATS server cannot be used")
                && line.contains("authorization violation")
        })
    });
    fs::write(&password, "another-password\n").expect("a file");
    wait_for("the node to log in", START, is_ready);
    node.topic("orders", "EventGridSchema");
}

#[test]
fn a_standby_reloads_who_may_read_what_it_serves_itself() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gridhook.toml");
    let write_token = |token: &str| {
        fs::write(&file, format!("[metrics]\ntoken = \"{token}\"\n")).expect("a file");
    };
    let [old, new] = ["the-old-token-of-prometheus", "the-new-token-of-prometheus"];
    write_token(old);
    let mut cluster = Cluster::prepare_on(NatsCluster::start(1, "always"), |_| Vec::new());
    let with_file = format!("exec \"$@\" --config {}", file.display());
    for node in &mut cluster.nodes {
        node.run_under(&["sh", "-c", &with_file, "--"]);
    }
    cluster.join_all();
    let standby = &cluster.nodes[1];
    let status = |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        standby
            .request_without_token("GET", "/metrics", &headers)
            .status
    };
    assert_eq!(status(old), 200);
    write_token(new);
    standby.signal("HUP");
    wait_for("the new token", LONG, || status(new) == 200);
    assert_eq!(status(old), 401);
    assert!(standby.logs().contains("admin_token=\"unchanged\""));
}
