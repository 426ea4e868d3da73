//! `gridhook top` and `gridhook tail`, in a terminal and in scripts.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;

use super::LONG;
use crate::support::{
    load,
    server::{Server, operator, wait_for},
    sink::{Behavior, Sink},
    terminal::Terminal,
};

fn done(server: &Server, arguments: &[&str]) -> String {
    operator(server, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// A topic `orders` with two subscriptions, one of them for an endpoint that is down; and the
/// topic's key.
fn well_and_sick(server: &Server, sink: &Sink) -> String {
    done(server, &["topics", "create", "orders"]);
    for name in ["well", "sick"] {
        let url = sink.url(&format!("/{name}"));
        done(
            server,
            &[
                "subscriptions",
                "create",
                "orders",
                name,
                "--endpoint",
                &url,
            ],
        );
    }
    sink.set("/sick", Behavior::Respond(503));
    key_of_topic(server)
}

fn key_of_topic(server: &Server) -> String {
    let keys: Value = serde_json::from_str(&done(
        server,
        &["topics", "keys", "orders", "--output", "json"],
    ))
    .expect("JSON");
    keys["key1"].as_str().expect("a key").to_owned()
}

/// Creates the topic `orders`, and returns its key.
fn create_topic(server: &Server) -> String {
    done(server, &["topics", "create", "orders"]);
    key_of_topic(server)
}

fn publish(server: &Server, key: &str, ids: &[&str], subject: &str) {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    server.publish("orders", key, &load::body(&ids, subject));
}

/// The command as it is typed, with all that it needs.
fn typed(server: &Server, command: &str) -> String {
    let token = server.data_dir().join("admin-token");
    let binary = env!("CARGO_BIN_EXE_gridhook");
    format!(
        "{binary} {command} --server http://{} --token-file {}",
        server.address(),
        token.display()
    )
}

#[test]
fn top_shows_the_busiest_and_the_sickest_once_for_scripts() {
    let server = Server::start(&[("DELIVERY__SUSPEND_AFTER_FAILURES", "2")]);
    let sink = Sink::start();
    let key = well_and_sick(&server, &sink);
    let mut published = 0;
    let mut report = Value::Null;
    wait_for("a suspension and a window", LONG, || {
        published += 1;
        publish(&server, &key, &[&published.to_string()], "/a");
        let output = done(
            &server,
            &[
                "top", "--once", "--every", "500ms", "--output", "json", "--by", "health",
            ],
        );
        report = serde_json::from_str(&output).expect("JSON");
        report["top"][0]["subscription"] == "sick"
            && report["suspended"] == 1
            && report["windowSeconds"].is_number()
    });
    assert_eq!(
        (
            &report["subscriptions"],
            &report["top"].as_array().map(Vec::len)
        ),
        (&2.into(), &Some(2)),
        "{report}"
    );
    assert!(report["windowSeconds"].as_f64() >= Some(1.0), "{report}");
    let well = &report["top"][1];
    assert_eq!(
        (&well["subscription"], &well["health"]["state"]),
        (&"well".into(), &"healthy".into()),
        "{report}"
    );
    let table = done(
        &server,
        &["top", "--once", "--limit", "1", "--by", "health"],
    );
    assert!(
        table.contains("by health")
            && table.contains("orders/sick")
            && !table.contains("orders/well"),
        "{table}"
    );
    let error = operator(&server, &["top", "--every", "1ms"]).expect_err("a refusal");
    assert!(error.contains("500ms to 30s"), "{error}");
}

#[test]
fn top_is_watched_in_a_terminal_which_is_as_it_was_afterwards() {
    let server = Server::start(&[("DELIVERY__SUSPEND_AFTER_FAILURES", "2")]);
    let sink = Sink::start();
    let key = well_and_sick(&server, &sink);
    let pause = Duration::from_millis(50);
    let rate = load::Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 1,
        events_per_request: 5,
        pause,
    };
    let load = load::Load::start(server.address(), &rate);
    let terminal = Terminal::open(120, 24);
    terminal.enter("echo what was there before");
    terminal.enter(&typed(&server, "top --every 500ms"));
    let has_rate = |screen: &str| {
        screen.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("orders/well")
                && words.next() == Some("healthy")
                && words.next().is_some_and(|rate| rate != "-" && rate != "0")
        })
    };
    let screen = terminal.wait_until("rates", has_rate);
    assert!(
        screen.contains("2 event subscriptions") && screen.contains("by activity"),
        "{screen}"
    );
    assert!(
        !screen.contains("what was there before") && terminal.is("alternate_on"),
        "{screen}"
    );
    terminal.press("h");
    let is_first = |screen: &str| {
        screen
            .lines()
            .nth(4)
            .is_some_and(|line| line.starts_with("orders/sick"))
    };
    let screen = terminal.wait_until("the sick one", |screen| {
        screen.contains("by health") && is_first(screen)
    });
    assert!(screen.contains("probe"), "{screen}");
    terminal.press("d");
    terminal.wait_until("another order", |screen| {
        screen.contains("sorted by events given up")
    });
    terminal.resize(60, 4);
    let screen = terminal.wait_until("a small screen", |screen| {
        screen.lines().count() <= 4 && screen.contains("event subscriptions")
    });
    assert!(
        screen.lines().all(|line| line.chars().count() <= 60),
        "{screen}"
    );
    terminal.resize(120, 24);
    terminal.wait_until("all of it again", |screen| screen.contains("orders/well"));
    terminal.press("q");
    let screen = terminal.wait_until("the shell", |screen| {
        screen.contains("what was there before")
    });
    assert!(
        !screen.contains("SUBSCRIPTION")
            && !terminal.is("alternate_on")
            && terminal.is("cursor_flag"),
        "{screen}"
    );
    terminal.enter("clear; stty -a");
    let modes = terminal.wait_until("its modes", |screen| screen.contains("icanon"));
    let has = |mode: &str| {
        modes
            .split_whitespace()
            .any(|word| word.trim_end_matches(';') == mode)
    };
    assert!(has("icanon") && has("echo") && has("isig"), "{modes}");
    assert!(!load.stop().is_empty());
}

/// A `gridhook tail` whose lines are read. It ends with the test.
struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn start(server: &Server, arguments: &str) -> Self {
        let command = typed(server, &format!("tail {arguments} --output json"));
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let line = self
            .lines
            .next()
            .expect("a line")
            .expect("a line that can be read");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Publishes until a listener prints an event: when it is connected cannot be seen.
fn publish_until(server: &Server, key: &str, mut received: impl FnMut() -> bool) {
    let mut published = 0;
    wait_for("somebody to hear of it", LONG, || {
        published += 1;
        publish(server, key, &[&format!("event-{published}")], "/a");
        std::thread::sleep(Duration::from_millis(50));
        received()
    });
}

#[test]
fn tail_follows_events_and_outcomes_in_a_terminal() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = well_and_sick(&server, &sink);
    let terminal = Terminal::open(200, 40);
    terminal.enter(&typed(&server, "tail orders"));
    publish_until(&server, &key, || {
        let screen = terminal.screen();
        screen.contains("event    orders  ")
            && screen.contains("delivered orders/well")
            && screen.contains("deferred orders/sick")
    });
    let screen = terminal.screen();
    assert!(
        screen.contains("Load.Event  subject /a  id event-")
            && screen.contains("attempt 1: 503 Busy"),
        "{screen}"
    );
    terminal.press("C-c");
    terminal.wait_until("the shell", |screen| screen.trim_end().ends_with('$'));
    // `q` ends it, too, and leaves the terminal as it was.
    terminal.enter("clear");
    terminal.enter(&typed(&server, "tail orders"));
    publish_until(&server, &key, || {
        terminal.screen().contains("event    orders  ")
    });
    terminal.press("q");
    terminal.wait_until("the shell", |screen| screen.trim_end().ends_with('$'));
    terminal.enter("clear; stty -a");
    let modes = terminal.wait_until("its modes", |screen| screen.contains("icanon"));
    assert!(
        !modes.contains("-icanon") && !modes.contains("-isig"),
        "{modes}"
    );
}

#[test]
fn tail_prints_what_is_selected_and_ends_with_its_count() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = well_and_sick(&server, &sink);
    let mut sick = Following::start(&server, "orders/sick --status 503 --limit 1");
    let mut events = Following::start(
        &server,
        "orders --events --type Load.Event --data --limit 1",
    );
    let mut ended = [false, false];
    publish_until(&server, &key, || {
        for (following, ended) in [&mut sick, &mut events].into_iter().zip(&mut ended) {
            *ended |= following.child.try_wait().expect("a child").is_some();
        }
        ended == [true, true]
    });
    let outcome = sick.next();
    let event = events.next();
    assert_eq!(
        (
            &outcome["kind"],
            &outcome["subscription"],
            &outcome["status"]
        ),
        (&"outcome".into(), &"sick".into(), &503.into())
    );
    assert_eq!(
        (
            &event["kind"],
            &event["eventType"],
            &event["event"]["subject"]
        ),
        (&"event".into(), &"Load.Event".into(), &"/a".into())
    );
    assert!(sick.lines.next().is_none() && events.lines.next().is_none());
    let error = operator(&server, &["tail", "ordres"]).expect_err("a refusal");
    assert!(error.ends_with("Did you mean orders?"), "{error}");
}

#[test]
fn a_tail_goes_on_with_a_topic_that_was_deleted_and_created_again() {
    let server = Server::start(&[]);
    let old_key = create_topic(&server);
    let mut following = Following::start(&server, "orders --events");
    let lines = Mutex::new(Vec::new());
    let has_subject = |subject: &str| {
        let lines = lines.lock();
        lines.iter().any(|line: &Value| line["subject"] == subject)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_subject("/b") {
                let line = following.next();
                lines.lock().push(line);
            }
        });
        publish_until(&server, &old_key, || has_subject("/a"));
        done(&server, &["topics", "delete", "orders", "--yes"]);
        let new_key = create_topic(&server);
        publish(&server, &new_key, &["after"], "/b");
        let deadline = std::time::Instant::now() + LONG;
        while !has_subject("/b") && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        if !has_subject("/b") {
            server.signal("KILL");
        }
        assert!(has_subject("/b"), "the tail is silent");
    });
}

#[test]
fn a_caller_that_watches_delays_no_stop() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = well_and_sick(&server, &sink);
    let mut following = Following::start(&server, "--events");
    let received = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let tells = std::sync::Arc::clone(&received);
        let following = &mut following;
        scope.spawn(move || {
            following.next();
            tells.store(true, std::sync::atomic::Ordering::Release);
        });
        publish_until(&server, &key, || {
            received.load(std::sync::atomic::Ordering::Acquire)
        });
    });
    server.terminate();
    while following.lines.next().is_some() {}
    assert_eq!(following.child.wait().expect("a child").code(), Some(1));
}
