//! A cluster that is set up as the manual says: its files are written, checked, and used.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::START;
use crate::support::{
    http::Client,
    nats::has_nats,
    port::ReservedPort,
    server::{say, wait_for},
};

/// How far the ports of NATS for other servers are behind those for clients.
const ROUTES: u16 = 2_000;

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str], log: &Path) -> Self {
        let log = File::create(log).expect("a log");
        let child = Command::new(program)
            .args(arguments)
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn();
        Self(child.expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A port for clients of NATS, behind which the one for other servers is free.
fn nats_port() -> ReservedPort {
    for _ in 0..100 {
        let port = ReservedPort::new();
        let route = port.address.port().checked_add(ROUTES);
        if route.is_some_and(|route| TcpListener::bind(("127.0.0.1", route)).is_ok()) {
            return port;
        }
    }
    panic!("no port is free");
}

fn check(folder: &Path, node: usize) -> (bool, Value) {
    let file = folder.join(format!("gridhook-{node}.toml"));
    let file = file.display().to_string();
    let (status, text) = say(&["cluster", "check", "--config", &file, "--output", "json"]);
    let view = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (status.success(), view)
}

/// The port of a setting of a node.
fn port_in(settings: &str, key: &str) -> u16 {
    let line = settings.lines().find(|line| line.starts_with(key));
    let address = line.expect(key).trim_end_matches('"');
    let port = address.rsplit(':').next().expect("an address");
    port.parse().expect(address)
}

#[test]
fn nodes_on_one_machine_have_ports_of_their_own() {
    for shards in [1, 4] {
        let folder = tempfile::tempdir().expect("a folder");
        let into = folder.path().join("cluster");
        let path = into.display().to_string();
        let count = shards.to_string();
        let host = "127.0.0.1,127.0.0.1,127.0.0.1";
        let init = [
            "cluster", "init", "--nats", host, "--nodes", host, "--shards", &count, "--into", &path,
        ];
        let (status, text) = say(&init);
        assert!(status.success(), "{text}");
        let mut ports = BTreeSet::new();
        for node in 1..=3 {
            let file = into.join(format!("gridhook-{node}.toml"));
            let settings = fs::read_to_string(file).expect("settings");
            for key in ["listen", "admin_listen", "node_listen"] {
                let port = port_in(&settings, key);
                assert!(ports.insert(port), "{port} is of two listeners");
            }
        }
    }
}

#[test]
fn a_cluster_from_written_files_passes_its_check_and_serves() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("cluster");
    let nodes: Vec<_> = (0..3).map(|_| ReservedPort::in_a_row(3)).collect();
    write_files(&into, &nodes);
    let (is_success, view) = check(&into, 1);
    let problems = view["problems"].as_array().expect("problems").len();
    assert!(!is_success && problems >= 4, "{view}");

    let mut servers: Vec<Running> = (1..=3).map(|number| start_nats(&into, number)).collect();
    wait_until_sound(&into);

    let running = start_nodes(&into, &nodes);
    let toml = fs::read_to_string(into.join("gridhook-1.toml")).expect("settings");
    wait_until_all_are_seen(&into, &toml, nodes[0][1].address);

    assert_other_settings_are_named(&into, &toml);
    drop(running);
    restart_without_sync(&into, &mut servers);
}

/// Writes the files of a cluster. The command does not overwrite them.
fn write_files(into: &Path, nodes: &[Vec<ReservedPort>]) {
    let nats: Vec<ReservedPort> = (0..3).map(|_| nats_port()).collect();
    let list = |addresses: Vec<String>| addresses.join(",");
    let nats_hosts = list(nats.iter().map(|port| port.address.to_string()).collect());
    let node_hosts = nodes.iter().map(|ports| ports[0].address.to_string());
    let node_hosts = list(node_hosts.collect());
    let path = into.display().to_string();
    let init = [
        "cluster",
        "init",
        "--nats",
        &nats_hosts,
        "--nodes",
        &node_hosts,
        "--shards",
        "4",
        "--into",
        &path,
    ];
    let (status, text) = say(&init);
    assert!(status.success(), "{text}");
    let (status, text) = say(&init);
    assert!(
        !status.success() && text.contains("nothing is overwritten"),
        "{text}"
    );
}

fn start_nats(into: &Path, number: usize) -> Running {
    let file = into
        .join(format!("nats-{number}.conf"))
        .display()
        .to_string();
    Running::start(
        "nats-server",
        &["-c", &file],
        &into.join(format!("nats-{number}.log")),
    )
}

fn wait_until_sound(into: &Path) {
    let mut view = Value::Null;
    wait_for("a set-up without problems", START, || {
        let (is_success, current) = check(into, 2);
        view = current;
        is_success
    });
    assert_eq!(view["problems"], serde_json::json!([]));
}

fn start_nodes(into: &Path, nodes: &[Vec<ReservedPort>]) -> Vec<Running> {
    let binary = env!("CARGO_BIN_EXE_gridhook");
    let start = |number: usize| {
        let file = into
            .join(format!("gridhook-{number}.toml"))
            .display()
            .to_string();
        Running::start(
            binary,
            &["serve", "--config", &file],
            &into.join(format!("gridhook-{number}.log")),
        )
    };
    let running: Vec<Running> = (1..=3).map(start).collect();
    for ports in nodes {
        wait_for("a node to be ready", START, || {
            let response = Client::new(ports[0].address).ask("GET", "/readyz", &[], b"");
            response.is_ok_and(|response| response.status == 200)
        });
    }
    running
}

fn wait_until_all_are_seen(into: &Path, toml: &str, address: SocketAddr) {
    let token = toml
        .lines()
        .find_map(|line| line.strip_prefix("admin_token = "))
        .map(|token| token.trim_matches('"').to_owned())
        .expect("a token");
    let token_file = into.join("token").display().to_string();
    fs::write(&token_file, token).expect("a file");
    let server = format!("http://{}", address);
    let status = [
        "cluster",
        "status",
        "--server",
        &server,
        "--token-file",
        &token_file,
    ];
    // A node is ready before the others have read its record.
    wait_for("all nodes to be seen", START, || {
        let (outcome, text) = say(&status);
        outcome.success() && text.contains("node-3")
    });
}

/// A node has another expiry, a shard too many and another secret.
fn assert_other_settings_are_named(into: &Path, toml: &str) {
    let other = toml
        .replace("shards = 4", "shards = 5\nexpiry = \"3s\"")
        .replace("node-1", "node-4")
        .replace("cluster-secret", "other-secret");
    fs::write(into.join("other-secret"), "a secret of no other node").expect("a secret");
    fs::write(into.join("gridhook-4.toml"), other).expect("settings");
    let (is_success, view) = check(into, 4);
    let problems = view["problems"].to_string();
    assert!(!is_success, "{view}");
    for problem in [
        "cluster.shards is 5, and the cluster has 4",
        "cluster.expiry is 3s here and 2s on the node",
        "give all nodes the same cluster.secret_file",
    ] {
        assert!(problems.contains(problem), "{problems}");
    }
}

/// The check names a server that is down, and one that does not sync.
fn restart_without_sync(into: &Path, servers: &mut Vec<Running>) {
    let conf = into.join("nats-3.conf");
    let lazy = fs::read_to_string(&conf)
        .expect("settings")
        .replace("sync_interval: always", "sync_interval: \"2m\"");
    fs::write(&conf, lazy).expect("settings");
    drop(servers.pop());
    wait_for("a server that is down to be named", START, || {
        let (_, view) = check(into, 1);
        thread::sleep(Duration::from_millis(50));
        view["problems"]
            .to_string()
            .contains("n3 has copies of streams and is down")
    });
    servers.push(start_nats(into, 3));
    wait_for("a server that does not sync to be named", START, || {
        let (is_success, view) = check(into, 1);
        thread::sleep(Duration::from_millis(50));
        !is_success
            && view["problems"]
                .to_string()
                .contains("n3 does not sync every write")
    });
}
