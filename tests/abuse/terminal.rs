//! Text of publishers and endpoints on an operator's terminal: the commands print visible
//! characters only.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use gridhook::escape;
use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    server::{Server, operator, wait_for},
    sink::{Behavior, Sink},
};

/// Clears the screen in two ways, sets the title, reorders the line, and forges another.
const HOSTILE: &str =
    "x\u{9b}2J\u{1b}[2J\u{1b}]0;t\u{7}\u{7f}\u{8}\u{202e}\u{2066}\u{200f}\u{2028}\r\nforged line";

/// Asserts that the output has no control character of a terminal, no line that the event began,
/// and JSON has the event as it was published.
fn assert_harmless(what: &str, text: &str) {
    let bad: Vec<char> = text
        .chars()
        .filter(|c| *c != '\n' && escape::is_unsafe(*c))
        .collect();
    assert!(bad.is_empty(), "{what} prints {bad:?}: {text:?}");
    assert!(
        !text
            .lines()
            .any(|line| line.trim_start().starts_with("forged line")),
        "{what}: {text:?}"
    );
}

/// Over several lines, as publishers write it.
fn event() -> Vec<u8> {
    let text = json!([{"id": HOSTILE, "eventType": HOSTILE, "subject": HOSTILE, "dataVersion": "1",
        "eventTime": "2026-01-01T00:00:00Z", "data": {"text": HOSTILE, "inner": {"more": [1, 2]}}}]);
    serde_json::to_string_pretty(&text)
        .expect("JSON")
        .into_bytes()
}

/// `gridhook tail` until it has printed an event.
struct Tail(Child);

impl Tail {
    fn start(server: &Server, output: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_gridhook"))
            .args([
                "tail", "orders", "--events", "--data", "--limit", "1", "--output", output,
            ])
            .args([
                "--server",
                &format!("http://{}", server.address()),
                "--token-file",
            ])
            .arg(server.data_dir().join("admin-token"))
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("the binary starts"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .expect("its output")
            .read_to_string(&mut text)
            .expect("UTF-8");
        text
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // The process may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn no_command_prints_what_a_terminal_obeys() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    operator(&server, &["topics", "create", "orders"]).expect("a topic");
    let key: Value = serde_json::from_str(
        &operator(&server, &["topics", "keys", "orders", "--output", "json"])
            .expect("the topic's keys"),
    )
    .expect("JSON");
    let key = key["key1"].as_str().expect("a key");
    let url = sink.url("/hook");
    let flags = [
        "--endpoint",
        &url,
        "--dead-letters",
        "/r",
        "--container",
        "letters",
    ];
    operator(
        &server,
        &[
            &["subscriptions", "create", "orders", "billing"][..],
            &flags,
        ]
        .concat(),
    )
    .expect("a subscription");
    sink.set("/hook", Behavior::StatusAndBody(400, HOSTILE));

    let mut tails = [Tail::start(&server, "table"), Tail::start(&server, "json")];
    wait_for("both to hear of an event", LONG, || {
        server.publish("orders", key, &event());
        std::thread::sleep(Duration::from_millis(50));
        tails.iter_mut().all(Tail::has_ended)
    });
    let [table, lines] = tails.each_mut().map(Tail::text);
    assert_harmless("tail", &table);
    assert_harmless("tail --output json", &lines);
    let line: Value = serde_json::from_str(&lines).expect("one line of JSON");
    assert_eq!(
        (lines.lines().count(), &line["event"]["data"]["text"]),
        (1, &HOSTILE.into()),
        "{lines}"
    );

    let letters = || -> Value {
        let printed = operator(
            &server,
            &[
                "dead-letters",
                "list",
                "orders",
                "billing",
                "--output",
                "json",
            ],
        );
        serde_json::from_str(&printed.expect("a list")).expect("JSON")
    };
    wait_for("a dead letter", LONG, || {
        letters()["value"]
            .as_array()
            .is_some_and(|letters| !letters.is_empty())
    });
    let letter = letters()["value"][0]["key"]
        .as_str()
        .expect("a key")
        .to_owned();
    let of = ["orders", "billing"];
    let commands: [Vec<&str>; 9] = [
        vec!["trace", "1", "--sequence", "--topic", "orders"],
        vec!["trace", HOSTILE],
        [&["ledger"][..], &of].concat(),
        [&["dead-letters", "list"][..], &of].concat(),
        [&["dead-letters", "show"][..], &of, &[&letter]].concat(),
        [&["explain"][..], &of, &[HOSTILE]].concat(),
        [&["subscriptions", "test-filter"][..], &of].concat(),
        [&["subscriptions", "show"][..], &of].concat(),
        vec!["top", "--once", "--every", "500ms"],
    ];
    for command in &commands {
        for output in ["table", "json"] {
            let printed = operator(
                &server,
                &[command.as_slice(), &["--output", output]].concat(),
            );
            let text = printed.unwrap_or_else(|error| error);
            assert_harmless(&format!("{} --output {output}", command.join(" ")), &text);
            assert!(text.len() > 10, "{command:?}: {text}");
        }
    }
    // A name that is refused is printed as it was given, and so is the end of an address.
    let absent = format!("{HOSTILE}?");
    for refused in [
        vec!["topics", "show", HOSTILE],
        vec!["explain", "orders", HOSTILE, HOSTILE],
        [&["explain"][..], &of, &[&absent]].concat(),
        vec!["trace", &absent],
    ] {
        assert_harmless(
            &refused.join(" "),
            &operator(&server, &refused).expect_err("a refusal"),
        );
    }
    // Nor does the log.
    assert_harmless("the log", &server.logs());
}
