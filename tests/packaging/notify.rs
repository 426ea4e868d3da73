//! The real binary under a service manager of the test: a datagram socket as systemd's.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::BINARY;
use crate::support::{http::Client, server::wait_for};

/// A notification arrives within this.
const LONG: Duration = Duration::from_secs(180);

/// The signal of a service manager that stops a service.
const SIGTERM: u32 = 15;

/// A server that is started as a service; it ends with the test.
struct Service(Child);

impl Service {
    fn start(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(BINARY);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
        {
            command.env_remove(name);
        }
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.join("data"));
        command
            .env_remove("WATCHDOG_PID")
            .env_remove("WATCHDOG_USEC")
            .envs(variables.iter().copied());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("the binary starts"))
    }

    /// Asks it to end, and waits until it has.
    fn stop(&mut self) {
        let sent = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status()
            .expect("a signal");
        assert!(sent.success());
    }

    /// Whether a signal has a handler, and does not end the process by itself.
    fn handles(&self, signal: u32) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
    }

    fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the service to end", LONG, || {
            status = self.0.try_wait().expect("a child is waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The process may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The next message.
fn hear(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let read = socket.recv(&mut buffer).expect("a message in time");
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

/// Hears messages until one begins so.
fn hear_until(socket: &UnixDatagram, begin: &str) -> String {
    (0..1000)
        .map(|_| hear(socket))
        .find(|message| message.starts_with(begin))
        .expect("it comes in the end")
}

fn listening(socket: io::Result<UnixDatagram>) -> UnixDatagram {
    let socket = socket.expect("a socket");
    socket
        .set_read_timeout(Some(LONG))
        .expect("a socket that waits");
    socket
}

#[test]
fn a_service_manager_receives_ready_watchdog_and_stopping() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = listening(UnixDatagram::bind(&path));
    let mut service = Service::start(
        folder.path(),
        &[
            ("NOTIFY_SOCKET", path.to_str().expect("text")),
            ("WATCHDOG_USEC", "100000"),
        ],
    );
    let ready = hear_until(&socket, "READY=1");
    // The service manager is notified once the server accepts events.
    let at = ready
        .trim()
        .rsplit("//")
        .next()
        .and_then(|at| at.parse().ok())
        .unwrap_or_else(|| panic!("{ready}"));
    let response = Client::with_tls(at, None)
        .ask("GET", "/readyz", &[], b"")
        .expect("a response");
    assert_eq!(response.status, 200, "{ready}");
    for _ in 0..5 {
        hear_until(&socket, "WATCHDOG=1");
    }
    service.stop();
    hear_until(&socket, "STOPPING=1");
    assert_eq!(service.ended(), Some(0));
}

#[test]
fn the_service_manager_may_have_an_abstract_socket_and_no_watchdog() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("gridhook-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = listening(UnixDatagram::bind_addr(&address));
    // The watchdog is for another process.
    let variables = [
        ("NOTIFY_SOCKET", &*format!("@{name}")),
        ("WATCHDOG_USEC", "1000"),
        ("WATCHDOG_PID", "1"),
    ];
    let mut service = Service::start(folder.path(), &variables);
    assert!(hear(&socket).starts_with("READY=1\n"));
    assert!(
        service.handles(SIGTERM),
        "a server that is ready can be stopped"
    );
    service.stop();
    assert!(hear(&socket).starts_with("STOPPING=1\n"));
    assert_eq!(service.ended(), Some(0));
}

#[test]
fn a_server_without_a_service_manager_serves() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let mut service = Service::start(
        folder.path(),
        &[("NOTIFY_SOCKET", nowhere.to_str().expect("text"))],
    );
    wait_for("a server that has its folder", LONG, || {
        folder.path().join("data/admin-token").exists()
    });
    // It serves before it can be asked to stop, or else the signal ends it as one that it does not
    // hear.
    wait_for("a server that handles signals", LONG, || {
        service.handles(SIGTERM)
    });
    service.stop();
    assert_eq!(service.ended(), Some(0));
}

#[test]
fn the_group_of_the_service_reads_the_admin_token_in_the_runtime_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = folder.path().join("run");
    std::fs::create_dir(&runtime).expect("a folder");
    let _service = Service::start(
        folder.path(),
        &[("RUNTIME_DIRECTORY", runtime.to_str().expect("text"))],
    );
    let shared = runtime.join("admin-token");
    wait_for("the token to be shared", LONG, || shared.exists());
    let token = std::fs::read_to_string(&shared).expect("it is readable");
    assert_eq!(
        token,
        std::fs::read_to_string(folder.path().join("data/admin-token")).expect("the token itself")
    );
    let mode = |path: &Path| {
        std::fs::metadata(path)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&shared), 0o640);
    assert_eq!(mode(&folder.path().join("data/admin-token")), 0o600);
    let unit = include_str!("../../config/packaging/gridhook.service");
    assert!(
        unit.contains("\nRuntimeDirectory=gridhook\nRuntimeDirectoryMode=0750\n"),
        "only the group may enter"
    );
}
