//! The progress of a start, and the requirements on the machine.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    process::{Command, Stdio},
};

use super::LONG;
use crate::support::{
    http::{Client, Response},
    port::ReservedPort,
    server::{Server, wait_for},
};

fn ask(at: SocketAddr, method: &str, path: &str) -> Option<Response> {
    Client::new(at).ask(method, path, &[], b"").ok()
}

#[test]
fn a_server_that_reads_its_store_is_alive_and_not_ready() {
    let port = ReservedPort::new();
    let at = port.address;
    let mut server = Server::start(&[("SERVER__ADMIN_LISTEN", &at.to_string())]);
    server.terminate();
    let current = server.data_dir().join("rocksdb/CURRENT");
    let text = fs::read(&current).expect("a store");
    fs::remove_file(&current).expect("removed");
    // Opening it blocks until another process writes to it: the store takes for ever to open.
    assert!(
        Command::new("mkfifo")
            .arg(&current)
            .status()
            .expect("mkfifo")
            .success()
    );
    server.begin();
    wait_for("a response", LONG, || ask(at, "GET", "/healthz").is_some());
    let alive = ask(at, "GET", "/healthz").expect("a response");
    assert_eq!(
        (alive.status, &alive.json()["status"]),
        (200, &"starting".into()),
        "{}",
        alive.text()
    );
    assert!(alive.json()["step"].is_string(), "{}", alive.text());
    let ready = ask(at, "GET", "/readyz").expect("a response");
    assert_eq!(
        (ready.status, &ready.json()["phase"]),
        (503, &"recovering".into()),
        "{}",
        ready.text()
    );
    assert!(
        ready.text().contains("the store is being read"),
        "{}",
        ready.text()
    );
    for (method, path) in [("POST", "/topics/orders/api/events"), ("GET", "/metrics")] {
        let response = ask(at, method, path).expect("a response");
        assert_eq!(
            (response.status, response.header("retry-after")),
            (503, Some("1")),
            "{}",
            response.text()
        );
    }
    server.kill_9();
    fs::remove_file(&current).expect("removed");
    fs::write(&current, text).expect("written");
    server.restart();
    let alive = ask(at, "GET", "/healthz").expect("a response");
    assert_eq!(alive.json(), serde_json::json!({"status": "ok"}));
    server.terminate();
}

/// As Kubernetes makes a volume for `fsGroup: 65534` and mounts it into a pod that runs as another
/// user.
#[test]
fn a_folder_of_a_group_that_may_write_it_is_a_data_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a folder");
    for (path, mode) in [(folder.path(), 0o755), (&data, 0o2775)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("rights");
    }
    chown(&data, None, Some(65_534)).expect("this test runs as root, as those that mount do");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o2775)).expect("rights");
    let out = folder.path().join("out");
    let log = folder.path().join("log");
    // Where the binary lies others may not look.
    let binary = folder.path().join("gridhook");
    fs::copy(env!("CARGO_BIN_EXE_gridhook"), &binary).expect("a copy");
    let mut child = Command::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--groups=65534"])
        .arg(&binary)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        // And what a service of its name sets in every pod does no harm.
        .envs([
            ("GRIDHOOK_PORT", "tcp://10.0.0.1:80"),
            ("GRIDHOOK_SERVICE_HOST", "10.0.0.1"),
        ])
        .env("GRIDHOOK_SERVER_LISTEN", "127.0.0.1:1")
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).expect("a file"))
        .stderr(fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("setpriv");
    let output = || {
        format!(
            "{}{}",
            fs::read_to_string(&out).expect("text"),
            fs::read_to_string(&log).expect("text")
        )
    };
    let mut ended = None;
    wait_for("the server to listen", LONG, || {
        ended = child.try_wait().expect("a child");
        ended.is_some() || output().contains("listens on http")
    });
    child.kill().ok();
    child.wait().expect("a child");
    assert!(ended.is_none(), "{}", output());
    assert!(
        output().contains("GRIDHOOK_SERVER__LISTEN"),
        "a near miss is reported: {}",
        output()
    );
    let token = fs::metadata(data.join("admin-token")).expect("a token");
    assert_eq!(
        token.permissions().mode() & 0o777,
        0o600,
        "what it makes there is its own"
    );
}
