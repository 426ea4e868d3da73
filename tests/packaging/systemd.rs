//! The package and its unit under the real systemd: process 1 of namespaces of the test's own
//! (`boot.sh`), where the package of this build is installed, upgraded and purged.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{deb::package, output_text, root};
use crate::support::{
    http::Client,
    load,
    needs::{install, is_met},
    server::{SubscriptionSpec, events_path, subscription, wait_for},
    sink::Sink,
};

/// Booting takes seconds; a machine that builds something else besides takes a minute.
const LONG: Duration = Duration::from_secs(180);

/// How a client of the machine reaches the server.
const TOKEN: &str = "/var/lib/gridhook/admin-token";
const BACKUP: &str = "/var/lib/gridhook-backups/monday";

/// A machine of systemd's.
struct Machine {
    unshare: Child,
    /// systemd, as the machine outside counts its processes.
    systemd: u32,
    listen: String,
    _folder: tempfile::TempDir,
}

impl Machine {
    /// Boots it. `None` where it cannot be had here and `GRIDHOOK_SKIP` says so.
    fn boot() -> Option<Self> {
        install("systemd");
        let folder = tempfile::tempdir().expect("a folder");
        let package = package(folder.path())?;
        match Self::try_boot(&package) {
            Ok(machine) => Some(machine),
            Err(why) => {
                is_met("systemd", Err(why));
                None
            }
        }
    }

    fn try_boot(package: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let process = std::process::id();
        let listen = format!("127.{}.{}.2:8080", 1 + process % 250, process / 250 % 250);
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let mount = folder.path().join("machine");
        fs::create_dir(&mount).expect("a folder");
        let mut unshare = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--cgroup",
                "--ipc",
                "--uts",
                "--fork",
                "--kill-child",
            ])
            .args(["--propagation", "private", "sh"])
            .arg(root().join("tests/packaging/boot.sh"))
            .args([mount.as_path(), package])
            .arg(&listen)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut systemd = None;
        let mut ended = false;
        wait_for("systemd to be process 1", LONG, || {
            ended = unshare.try_wait().expect("a child is waited for").is_some();
            let id = unshare.id();
            let children =
                fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            let child = children
                .split_whitespace()
                .next()
                .and_then(|child| child.parse().ok());
            systemd = child.filter(|child: &u32| {
                let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
                name.trim() == "systemd"
            });
            ended || systemd.is_some()
        });
        if let Some(systemd) = systemd {
            return Ok(Self {
                unshare,
                systemd,
                listen,
                _folder: folder,
            });
        }
        Err(fs::read_to_string(folder.path().join("log")).unwrap_or_default())
    }

    /// Runs a command inside.
    fn run(&self, command: &[&str]) -> Output {
        let target = self.systemd.to_string();
        let enter = [
            "--target", &target, "--mount", "--pid", "--cgroup", "--root", "--wd",
        ];
        let mut enter_and_run = Command::new("nsenter");
        enter_and_run
            .args(enter)
            .args(command)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        enter_and_run.output().expect("nsenter is there")
    }

    /// Runs a command inside, which must end well.
    fn must(&self, command: &[&str]) -> String {
        let output = self.run(command);
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}",
            output_text(&output),
            self.journal()
        );
        output_text(&output)
    }

    /// An operator's command inside.
    fn operate(&self, words: &[&str]) -> Output {
        let server = format!("http://{}", self.listen);
        self.run(
            &[
                &["gridhook"],
                words,
                &["--server", &server, "--token-file", TOKEN],
            ]
            .concat(),
        )
    }

    /// A path inside, as it is seen from outside.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.systemd))
    }

    /// A property of the unit.
    fn property(&self, name: &str) -> String {
        self.must(&[
            "systemctl",
            "show",
            "--value",
            "--property",
            name,
            "gridhook",
        ])
        .trim()
        .to_owned()
    }

    fn wait_until(&self, state: &str) {
        let mut last = String::new();
        wait_for(&format!("the unit to be {state}"), LONG, || {
            last = output_text(&self.run(&["systemctl", "is-active", "gridhook"]))
                .trim()
                .to_owned();
            assert!(last != "failed" || state == "failed", "{}", self.journal());
            last == state
        });
    }

    fn journal(&self) -> String {
        output_text(&self.run(&["journalctl", "--no-pager", "--lines", "40"]))
    }

    fn client(&self) -> Client {
        Client::with_tls(self.listen.parse().expect("an address"), None)
    }

    fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let token = fs::read_to_string(self.path(TOKEN)).expect("an admin token");
        let authorization = format!("Bearer {}", token.trim());
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let response = self.client().ask(
            method,
            path,
            &[("authorization", &authorization)],
            body.as_bytes(),
        );
        let response = response.expect("an operator is answered");
        assert!(
            (200..300).contains(&response.status),
            "{method} {path}: {} {}",
            response.status,
            response.text()
        );
        response.json()
    }

    /// The package created the user and enabled the unit.
    fn assert_the_unit_is_installed(&self) {
        let user = self.must(&["getent", "passwd", "gridhook"]);
        assert!(
            user.trim()
                .ends_with(":/var/lib/gridhook:/usr/sbin/nologin"),
            "{user}"
        );
        assert_eq!(
            self.must(&["systemctl", "is-enabled", "gridhook"]).trim(),
            "enabled"
        );
        assert!(
            self.property("StatusText").contains(&self.listen),
            "systemd was notified of readiness"
        );
    }

    /// Creates a topic and an event subscription, and returns its key.
    fn create_topic(&self, sink: &Sink) -> String {
        self.admin("PUT", TOPIC, &json!({"properties": {}}));
        let spec = SubscriptionSpec::new(&sink.url("/hook"));
        self.admin(
            "PUT",
            &subscription_of(),
            &json!({"properties": spec.properties()}),
        );
        let keys = self.admin("POST", &format!("{TOPIC}/listKeys"), &Value::Null);
        keys["key1"].as_str().expect("a key").to_owned()
    }

    fn publish(&self, key: &str, id: &str) {
        let body = load::body(&[id.to_owned()], "/a");
        let response = self.client().ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", key)],
            &body,
        );
        assert_eq!(response.expect("a response").status, 200);
    }

    /// Backs up to the folder that the unit has for it. Other folders are refused.
    fn back_up(&self) {
        let output = self.operate(&["backup", BACKUP]);
        assert!(output.status.success(), "{}", output_text(&output));
        assert!(self.path(BACKUP).join("backup.json").exists());
        let modes = self.must(&[
            "find",
            "/var/lib/gridhook",
            "/var/lib/gridhook-backups",
            "-printf",
            "%u %m %y %p\n",
        ]);
        let open: Vec<&str> = modes
            .lines()
            .filter(|line| {
                !line.starts_with("gridhook 600 f") && !line.starts_with("gridhook 700 d")
            })
            .collect();
        assert!(open.is_empty() && modes.lines().count() > 10, "{open:#?}");
        for elsewhere in [
            "/srv/backup",
            "/tmp/backup",
            "/var/tmp/backup",
            "/var/lib/other",
        ] {
            let output = self.operate(&["backup", elsewhere]);
            let printed = output_text(&output);
            assert!(
                !output.status.success() && printed.contains("or add the folder to ReadWritePaths"),
                "{elsewhere}: {printed}"
            );
        }
        let read = self.must(&["gridhook", "fsck", "--data-dir", BACKUP]);
        assert!(read.contains("the store is sound"), "{read}");
    }

    /// A reload keeps the process.
    fn reload(&self, key: &str, sink: &Sink) {
        let process = self.property("MainPID");
        self.must(&["systemctl", "reload", "gridhook"]);
        self.publish(key, "reloaded");
        wait_for("an event after a reload", LONG, || sink.taken("/hook") == 2);
        assert_eq!(self.property("MainPID"), process, "{}", self.journal());
    }

    fn stop_and_start(&self, key: &str, sink: &Sink) {
        let count = sink.taken("/hook");
        self.must(&["systemctl", "stop", "gridhook"]);
        assert_eq!(self.property("Result"), "success", "{}", self.journal());
        assert_eq!(self.property("ExecMainStatus"), "0");
        self.must(&["systemctl", "start", "gridhook"]);
        self.publish(key, "2");
        wait_for("an event after a restart", LONG, || {
            sink.taken("/hook") == count + 1
        });
    }

    /// After a kill systemd starts the server again.
    fn kill(&self, key: &str, sink: &Sink) {
        let process = self.property("MainPID");
        let count = sink.taken("/hook");
        self.must(&["systemctl", "kill", "--signal", "KILL", "gridhook"]);
        wait_for("another process", LONG, || {
            let current = self.property("MainPID");
            current != "0"
                && current != process
                && self.property("ActiveState") == "active"
                && self.property("NRestarts") == "1"
        });
        self.publish(key, "3");
        wait_for("an event after a kill", LONG, || {
            sink.taken("/hook") == count + 1
        });
    }

    /// An upgrade restarts the server.
    fn upgrade(&self, key: &str, sink: &Sink) {
        let count = sink.taken("/hook");
        let process = self.property("MainPID");
        self.must(&["dpkg", "--install", "/gridhook.deb"]);
        self.wait_until("active");
        assert_ne!(self.property("MainPID"), process, "{}", self.journal());
        self.publish(key, "4");
        wait_for("an event after an upgrade", LONG, || {
            sink.taken("/hook") == count + 1
        });
    }

    /// A purge stops the server, and leaves the store and the backups.
    fn purge(&self) {
        let output = self.must(&["dpkg", "--purge", "gridhook"]);
        assert!(output.contains("are left in /var/lib/gridhook"), "{output}");
        assert!(
            self.client().ask("GET", "/healthz", &[], b"").is_err(),
            "no server runs"
        );
        assert!(
            !self.path("/usr/bin/gridhook").exists()
                && !self.path("/etc/gridhook/gridhook.toml").exists()
        );
        let owner = self.must(&["stat", "-c", "%U %a", "/var/lib/gridhook", BACKUP]);
        assert_eq!(owner, "gridhook 700\ngridhook 700\n");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the machine's journal\n{}", self.journal());
        }
        // With `unshare` systemd is killed, and with that all of its processes and mounts.
        self.unshare.kill().ok();
        self.unshare.wait().ok();
    }
}

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

#[test]
fn under_systemd_the_packaged_server_starts_publishes_backs_up_reloads_restarts_and_is_purged() {
    let Some(machine) = Machine::boot() else {
        return;
    };
    machine.wait_until("active");
    machine.assert_the_unit_is_installed();
    let sink = Sink::start();

    let key = machine.create_topic(&sink);
    machine.publish(&key, "1");
    wait_for("an event", LONG, || sink.taken("/hook") == 1);

    machine.back_up();
    machine.reload(&key, &sink);
    machine.stop_and_start(&key, &sink);
    machine.kill(&key, &sink);
    machine.upgrade(&key, &sink);
    machine.purge();
}

fn subscription_of() -> String {
    let path = subscription("orders", "hook");
    assert!(path.starts_with(TOPIC), "{path}");
    path
}
