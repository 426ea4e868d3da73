//! A disk that is full, that fails and that may only be read, under a whole server.

use std::{fs, time::Duration};

use serde_json::json;

use super::{LONG, assert_arrived, dead_letter::ids_in_files, many, wait_until_settled};
use crate::support::{
    disk::{Mount, ext4, has_strace},
    http::Response,
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, events_path, wait_for},
    sink::{Behavior, Sink},
};

/// The exit status of a server whose store has failed: the I/O error of sysexits.
const EX_IOERR: i32 = 74;

/// A server on a small disk, with one subscription.
struct ServerOnSmallDisk {
    server: Server,
    disk: Mount,
    sink: Sink,
    key: String,
    acknowledged: Vec<String>,
    published: usize,
}

impl ServerOnSmallDisk {
    fn start() -> Option<Self> {
        let disk = Mount::tmpfs(160)?;
        let mut server = Server::with_data_dir(&disk.path().join("data"), &[]);
        server.restart();
        let sink = Sink::start();
        let key = server.topic("orders", "EventGridSchema");
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
        );
        let doomed = SubscriptionSpec::new(&sink.url("/doomed"))
            .batch(10)
            .dead_letters("letters");
        server.subscribe(
            "orders",
            "doomed",
            &doomed.also(&json!({}), &json!({"deadLetterInProbation": true})),
        );
        sink.set("/doomed", Behavior::Respond(403));
        Some(Self {
            server,
            disk,
            sink,
            key,
            acknowledged: Vec::new(),
            published: 0,
        })
    }

    /// Publishes one event, with a subject that takes room.
    fn publish(&mut self) -> Response {
        let id = vec![format!("event-{}", self.published)];
        self.published += 1;
        let body = load::body(
            &id,
            &format!(
                "/{}",
                fastrand::Rng::with_seed(self.published as u64).u128(..)
            )
            .repeat(2500),
        );
        let headers = [("aeg-sas-key", self.key.as_str())];
        let response = self
            .server
            .client()
            .ask("POST", &events_path("orders"), &headers, &body);
        let response = response.expect("a publisher is answered, whatever the disk does");
        match response.status {
            200 => self.acknowledged.extend(id),
            503 => assert!(
                response.header("retry-after").is_some(),
                "{}",
                response.text()
            ),
            status => panic!("{status}: {}", response.text()),
        }
        response
    }

    /// Publishes until there is no room.
    fn publish_until_refused(&mut self) {
        for _ in 0..4000 {
            if self.publish().status == 503 {
                return;
            }
        }
        panic!("the disk never filled");
    }

    fn readiness(&self) -> (u16, String) {
        let response = self
            .server
            .client()
            .ask("GET", "/readyz", &[], b"")
            .expect("somebody answers");
        (response.status, response.text())
    }

    fn is_ready(&self) -> bool {
        let response = self.server.client().ask("GET", "/readyz", &[], b"");
        response.is_ok_and(|response| response.status == 200)
    }

    fn assert_full(&self) {
        wait_for("the server to say that its disk is full", LONG, || {
            self.readiness().0 == 503
        });
        let (_, reported) = self.readiness();
        assert!(
            reported.contains(r#""journal":"full""#)
                && reported.contains("the disk of the data folder is full"),
            "{reported}"
        );
        assert_eq!(
            self.server
                .client()
                .ask("GET", "/healthz", &[], b"")
                .expect("the server answers")
                .status,
            200
        );
    }

    /// An operator's change is refused in clear words, and nothing of it is there.
    fn assert_nothing_is_made(&self, name: &str) {
        let response = self.server.put_subscription(
            "orders",
            name,
            &SubscriptionSpec::new(&self.sink.url("/late")),
        );
        assert_eq!(response.status, 503, "{}", response.text());
        assert!(
            response.header("retry-after").is_some() && response.text().contains("full"),
            "{}",
            response.text()
        );
        assert_eq!(
            self.server.get_subscription("orders", name).status,
            404,
            "half a change"
        );
    }

    /// There is space again: the server recovers without help, and everything arrives.
    fn assert_healed(mut self) {
        wait_for("the server to be ready again", LONG, || {
            self.readiness().0 == 200
        });
        assert_eq!(self.publish().status, 200);
        wait_until_settled(&self.server, "orders", "hook");
        let repeated = assert_arrived(&self.sink, "/hook", &self.acknowledged);
        println!(
            "{} acknowledged, all arrived, {} repeated",
            self.acknowledged.len(),
            repeated.len()
        );
        wait_for("all dead letters to be in files", LONG, || {
            let written = ids_in_files(&self.server);
            self.acknowledged
                .iter()
                .all(|id| written.binary_search(id).is_ok())
        });
        self.server.terminate();
        self.server.assert_sound();
    }
}

#[test]
fn a_full_disk_refuses_publishers_goes_on_delivering_and_heals() {
    let Some(mut scene) = ServerOnSmallDisk::start() else {
        return;
    };
    for round in 0..many(1, 5) {
        let filler = scene.disk.fill(4 << 20);
        scene.publish_until_refused();
        scene.assert_full();
        let count = scene.acknowledged.len();
        wait_for(
            "what there is to be delivered while the disk is full",
            LONG,
            || scene.sink.taken("/hook") >= count,
        );
        scene.assert_full();
        let late = format!("late-{round}");
        scene.assert_nothing_is_made(&late);
        println!(
            "round {round}: {count} events acknowledged and delivered, and the disk still full"
        );
        fs::remove_file(filler).expect("removed");
        wait_for("the server to be ready again", LONG, || {
            scene.readiness().0 == 200
        });
        scene.server.subscribe(
            "orders",
            &late,
            &SubscriptionSpec::new(&scene.sink.url("/late")),
        );
    }
    scene.assert_healed();
}

#[test]
fn a_full_disk_heals_on_a_server_where_nothing_else_is_written() {
    let Some(disk) = Mount::tmpfs(160) else {
        return;
    };
    let mut server = Server::with_data_dir(&disk.path().join("data"), &[]);
    server.restart();
    let key = server.topic("orders", "EventGridSchema");
    let filler = disk.fill(4 << 20);
    let body = load::body(&["1".to_owned()], &"/".repeat(50_000));
    let publish = || {
        let response = server.client().ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", &key)],
            &body,
        );
        response.expect("a publisher is answered").status
    };
    let refused = (0..4000).any(|_| publish() == 503);
    assert!(refused, "the disk never filled");
    let ready = || {
        server
            .client()
            .ask("GET", "/readyz", &[], b"")
            .expect("somebody answers")
            .status
    };
    wait_for("the server to say that its disk is full", LONG, || {
        ready() == 503
    });
    fs::remove_file(filler).expect("removed");
    wait_for("the server to be ready again", LONG, || ready() == 200);
    assert_eq!(publish(), 200);
}

/// RocksDB cannot begin a write-ahead log on a disk without a byte left, and never recovers from
/// that. The log in use has its space in advance.
#[test]
fn a_store_that_was_full_to_the_last_byte_recovers_or_ends_the_process_and_the_next_start_heals() {
    let Some(mut scene) = ServerOnSmallDisk::start() else {
        return;
    };
    // The log reserves its space with the first write.
    assert_eq!(scene.publish().status, 200);
    let filler = scene.disk.fill(0);
    scene.publish_until_refused();
    scene.assert_full();
    fs::remove_file(filler).expect("removed");
    // RocksDB recovers by itself if it had begun its next log in time.
    wait_for("the server to recover or to end", LONG, || {
        scene.server.has_ended() || scene.is_ready()
    });
    if scene.server.has_ended() {
        assert_eq!(scene.server.wait(LONG), Some(EX_IOERR));
        let log = scene.server.logs();
        assert!(
            log.contains("does not write although it has space"),
            "{log}"
        );
        scene.server.restart();
    }
    scene.assert_healed();
}

#[test]
fn a_server_that_is_killed_on_a_full_disk_starts_there_or_says_why_not_and_heals() {
    for left in [0, 300 << 10, 2 << 20] {
        let Some(mut scene) = ServerOnSmallDisk::start() else {
            return;
        };
        scene.sink.set("/hook", Behavior::Respond(503));
        let filler = scene.disk.fill(4 << 20);
        scene.publish_until_refused();
        scene.server.kill_9();
        fs::remove_file(filler).expect("removed");
        // Now not even the ballast's room is left.
        let filler = scene.disk.fill(left);
        let reported = match scene.server.try_restart() {
            Ok(()) => {
                scene.assert_full();
                "started, and reported that it is full".to_owned()
            }
            Err((status, reported)) => {
                assert_eq!(status.code(), Some(1), "{reported}");
                assert!(
                    reported.contains("is full; free some space and start again"),
                    "{reported}"
                );
                reported
            }
        };
        println!("{left} bytes left: {reported}");
        fs::remove_file(filler).expect("removed");
        if !scene.server.is_running() {
            scene.server.restart();
        }
        scene.sink.set("/hook", Behavior::Respond(200));
        scene.assert_healed();
    }
}

#[test]
fn a_read_only_disk_is_reported_at_the_start_and_loses_nothing() {
    let Some(mut scene) = ServerOnSmallDisk::start() else {
        return;
    };
    scene.sink.set("/hook", Behavior::Respond(503));
    for _ in 0..5 {
        scene.publish();
    }
    scene.server.kill_9();
    if !scene.disk.remount("ro") {
        return;
    }
    let (status, reported) = scene
        .server
        .try_restart()
        .expect_err("nothing can be written");
    assert_eq!(status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("cannot be used: Read-only file system"),
        "{reported}"
    );
    assert!(scene.disk.remount("rw"));
    scene.server.restart();
    scene.sink.set("/hook", Behavior::Respond(200));
    scene.assert_healed();
}

#[test]
fn a_disk_that_turns_read_only_under_load_ends_the_process_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("disk");
    if !ext4(&image, 512) {
        return;
    }
    let Some(disk) = Mount::image(&image) else {
        return;
    };
    let mut server = Server::with_data_dir(&disk.path().join("data"), &[]);
    server.restart();
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    for name in ["hook", "pending"] {
        server.subscribe(
            "orders",
            name,
            &SubscriptionSpec::new(&sink.url(&format!("/{name}"))).batch(10),
        );
    }
    sink.set("/pending", Behavior::Respond(503));
    let pause = Duration::from_millis(2);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    for round in 0..many(1, 5) {
        let before = load.acknowledged();
        wait_for("publishers to be served", LONG, || {
            load.acknowledged() > before + 500
        });
        // ext4 does the same on an error, also with files that are open for writing.
        if !disk.remount("abort") {
            return;
        }
        assert_eq!(
            server.wait(LONG),
            Some(EX_IOERR),
            "the process ends: {}",
            server.logs()
        );
        let log = server.logs();
        assert!(
            log.contains("the store failed, and nothing more may be written"),
            "{log}"
        );
        assert!(disk.image_again(&image));
        server.assert_sound();
        server.restart();
        load.turn_to(server.address());
        println!("round {round}: {} events acknowledged", load.acknowledged());
    }
    sink.set("/pending", Behavior::Respond(200));
    let acknowledged = load.stop();
    for name in ["hook", "pending"] {
        wait_until_settled(&server, "orders", name);
        let repeated = assert_arrived(&sink, &format!("/{name}"), &acknowledged);
        println!(
            "{name}: {} acknowledged, none lost, {} repeated",
            acknowledged.len(),
            repeated.len()
        );
    }
    server.terminate();
    server.assert_sound();
}

/// The n-th sync from the start of the process fails, as it does where the disk below has gone or
/// may only be read.
fn a_failed_sync(error: &str, number: u32) {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(10),
    );
    server.terminate();
    let inject = format!("-einject=fdatasync:error={error}:when={number}");
    server.run_under(&[
        "strace",
        "-f",
        "-qqq",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "signal=none",
        &inject,
    ]);
    server.restart();
    let pause = Duration::from_millis(2);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 5,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    assert_eq!(
        server.wait(LONG),
        Some(EX_IOERR),
        "the process ends: {}",
        server.logs()
    );
    assert!(
        server
            .logs()
            .contains("the store failed, and nothing more may be written"),
        "{}",
        server.logs()
    );
    server.run_under(&[]);
    server.assert_sound();
    server.restart();
    load.turn_to(server.address());
    let acknowledged = load.stop();
    wait_until_settled(&server, "orders", "hook");
    let repeated = assert_arrived(&sink, "/hook", &acknowledged);
    println!(
        "{error} of sync {number}: ended, {} acknowledged, none lost, {} repeated",
        acknowledged.len(),
        repeated.len()
    );
    assert!(!acknowledged.is_empty(), "there was a load");
}

#[test]
fn a_sync_that_fails_ends_the_process_and_loses_nothing() {
    if !has_strace() {
        return;
    }
    let numbers = [20, 41, 60, 100, 300, 1000];
    for number in &numbers[..many(2, numbers.len())] {
        a_failed_sync("EIO", *number);
    }
    a_failed_sync("EROFS", 30);
}
