//! Given-up events are written to dead-letter files once and whole, whenever the server is killed.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{LONG, redrive::command, wait_until_settled};
use crate::support::{
    edition::FILE_DELAY,
    load,
    server::{Server, SubscriptionSpec, events_path, subscription, wait_for},
    sink::{Behavior, Sink},
};

const CONTAINER: &str = "letters";

/// A dead letter in its file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Letter {
    id: String,
    dead_letter_reason: String,
    delivery_attempts: u32,
    last_delivery_outcome: String,
    last_http_status_code: Option<u16>,
    data: Box<RawValue>,
}

/// All files below a folder, but for one that is just being written.
fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
    // It is made with the first file.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_in(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push(path);
        }
    }
}

/// The files of dead letters.
pub(super) fn files(server: &Server) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files_in(&server.data_dir().join("dead-letters"), &mut found);
    found.sort();
    found
}

/// The dead letters of a file; none if it was removed meanwhile.
fn letters(file: &Path) -> Vec<Letter> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        read => read.expect("a file of text"),
    };
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The ids in all files, sorted.
pub(super) fn ids_in_files(server: &Server) -> Vec<String> {
    let mut ids: Vec<String> = files(server)
        .iter()
        .flat_map(|file| letters(file))
        .map(|letter| letter.id)
        .collect();
    ids.sort();
    ids
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A server with one subscription, `Hook`, whose endpoint behaves like this.
fn start(
    status: u16,
    spec: impl FnOnce(SubscriptionSpec) -> SubscriptionSpec,
) -> (Server, Sink, String) {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "Hook",
        &spec(SubscriptionSpec::new(&sink.url("/hook")).batch(10)),
    );
    sink.set("/hook", Behavior::Respond(status));
    (server, sink, key)
}

#[test]
fn events_that_an_endpoint_refuses_are_in_one_file_byte_for_byte() {
    let _rows = crate::spec::shows(&[
        "S002-048: The endpoint of the dead-letter container is provided when the event \
         subscription is created.",
    ]);
    let (mut server, sink, key) = start(400, |spec| spec.dead_letters(CONTAINER));
    let data = [
        r#"{ "a" : 1.0,  "big":12345678901234567890.10 }"#,
        r#""\u00fc\/ü""#,
        "[1e3, null]",
    ];
    let events = data.iter().enumerate().map(|(id, data)| {
        format!(r#"{{"id":"{id}","subject":"/a","eventType":"T","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1","data":{data}}}"#)
    });
    let body = format!("[{}]", events.collect::<Vec<_>>().join(","));
    server.publish("orders", &key, body.as_bytes());
    wait_for("the events to be given up", LONG, || {
        server.counter("orders", "Hook", "deadLettered") == 3
    });
    wait_for("their file", LONG, || !files(&server).is_empty());
    wait_until_settled(&server, "orders", "Hook");

    let files = files(&server);
    assert_eq!(files.len(), 1, "{files:?}");
    let path = files[0]
        .strip_prefix(server.data_dir())
        .expect("a file of the folder");
    let parts: Vec<&str> = path
        .iter()
        .map(|part| part.to_str().expect("text"))
        .collect();
    let [
        "dead-letters",
        CONTAINER,
        "HOOK",
        year,
        month,
        day,
        hour,
        name,
    ] = parts[..]
    else {
        panic!("{parts:?}")
    };
    for number in [year, month, day, hour] {
        assert!(
            number
                .parse::<u16>()
                .is_ok_and(|parsed| parsed.to_string() == number),
            "{parts:?}"
        );
    }
    assert!(
        name.strip_suffix(".json")
            .is_some_and(|id| id.parse::<uuid::Uuid>().is_ok()),
        "{name}"
    );
    let letters = letters(&files[0]);
    for (index, (letter, data)) in letters.iter().zip(data).enumerate() {
        assert_eq!(
            (letter.id.as_str(), letter.data.get()),
            (index.to_string().as_str(), data),
            "byte for byte"
        );
        assert_eq!(
            letter.dead_letter_reason,
            "UndeliverableDueToHttpBadRequest"
        );
        assert_eq!(
            (letter.delivery_attempts, letter.last_http_status_code),
            (1, Some(400))
        );
        assert_eq!(letter.last_delivery_outcome, "BadRequest");
    }
    assert_eq!(letters.len(), 3);
    for (counter, expected) in [
        ("matched", 3),
        ("pending", 0),
        ("delivered", 0),
        ("dropped", 0),
        ("requests", 1),
    ] {
        assert_eq!(
            server.counter("orders", "Hook", counter),
            expected,
            "{counter}"
        );
    }
    assert_eq!(sink.taken("/hook"), 0);
    server.terminate();
    server.assert_sound();
}

#[test]
fn events_whose_attempts_are_exhausted_are_dead_lettered() {
    let _rows = crate::spec::shows(&[
        "S000-095, S002-036, S003-072: When Event Grid cannot deliver an event within a certain \
         time or after a certain number of attempts, it can send the undelivered event to a \
         storage account (dead-lettering).",
        "S000-102, S002-040, S003-079: Event Grid sends an event to the dead-letter location when \
         all of its retry attempts have been made.",
    ]);
    let (mut server, sink, key) = start(503, |spec| spec.attempts(3).dead_letters(CONTAINER));
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    wait_for("their files", LONG, || ids_in_files(&server) == ids(5));
    for letter in files(&server).iter().flat_map(|file| letters(file)) {
        assert_eq!(letter.dead_letter_reason, "MaxDeliveryAttemptsExceeded");
        assert_eq!(
            (letter.delivery_attempts, letter.last_http_status_code),
            (3, Some(503))
        );
        assert_eq!(letter.data.get(), load::data(&letter.id));
    }
    for arrivals in sink.ledger("/hook").values() {
        assert_eq!(arrivals.len(), 3);
    }
    assert_eq!(server.counter("orders", "Hook", "deadLettered"), 5);
    server.terminate();
    server.assert_sound();
}

#[test]
fn dead_letters_are_published_again_from_their_files_and_delivered() {
    let _rows = crate::spec::shows(&[
        "S000-101, S002-039, S003-078: Undelivered events can be pulled from the dead-letter \
         storage so that their delivery can be resumed.",
    ]);
    let (mut server, sink, key) = start(400, |spec| spec.dead_letters(CONTAINER));
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    wait_for("their files", LONG, || ids_in_files(&server) == ids(5));
    sink.set("/hook", Behavior::Respond(200));
    let url = format!("http://{}{}", server.address(), events_path("orders"));
    for file in files(&server) {
        let mut publish = Command::new(env!("CARGO_BIN_EXE_gridhook"));
        publish
            .args(["publish", &url])
            .arg(file)
            .arg("--from-dead-letters")
            .env("GRIDHOOK_KEY", &key);
        let output = publish.output().expect("the binary starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    wait_for("the events", LONG, || {
        server.counter("orders", "Hook", "delivered") == 5
    });
    let mut arrived: Vec<String> = sink.ledger("/hook").into_keys().collect();
    arrived.sort();
    assert_eq!(arrived, ids(5));
    server.terminate();
    server.assert_sound();
}

#[test]
fn dead_letters_that_wait_and_in_files_are_listed_shown_and_purged() {
    let (mut server, _sink, key) = start(400, |spec| spec.dead_letters(CONTAINER));
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    let count = |server: &Server, rest: &[&str]| {
        command(server, "orders", "list", rest)["value"]
            .as_array()
            .map_or(0, Vec::len)
    };
    wait_for("the events to be given up", LONG, || {
        server.counter("orders", "Hook", "deadLettered") == 5
    });
    wait_for("all to be in files", LONG, || {
        count(&server, &["--stage", "written"]) == 5
    });
    assert_eq!(ids_in_files(&server), ids(5));
    assert_eq!(count(&server, &["--id", "3"]), 1);
    assert_eq!(
        count(
            &server,
            &[
                "--reason",
                "UndeliverableDueToHttpBadRequest",
                "--from",
                "2020-01-01"
            ]
        ),
        5
    );
    assert_eq!(count(&server, &["--to", "2020-01-01T00:00:00Z"]), 0);
    assert_eq!(count(&server, &["--limit", "2"]), 2);

    let found = command(&server, "orders", "list", &["--id", "3"]);
    let letter_key = found["value"][0]["key"].as_str().expect("a key");
    let shown = command(&server, "orders", "show", &[letter_key]);
    assert_eq!(shown["event"]["data"]["id"], "3");
    assert_eq!(
        (&shown["deliveryAttempts"], &shown["schema"]),
        (&1.into(), &"EventGridSchema".into())
    );

    let purged = |server: &Server, rest: &[&str]| {
        command(server, "orders", "purge", rest)["deadLetters"].as_u64()
    };
    assert_eq!(purged(&server, &["--all", "--dry-run"]), Some(5));
    assert_eq!(purged(&server, &["--key", letter_key, "--yes"]), Some(1));
    assert_eq!(
        (count(&server, &[]), ids_in_files(&server)),
        (4, ids(5)),
        "the others are in the file yet"
    );
    let nothing_said = server.admin(
        "POST",
        &format!("{}/deadLetters/purge", subscription("orders", "Hook")),
        &json!({}),
    );
    assert_eq!(nothing_said.status, 400, "{}", nothing_said.text());
    assert!(
        nothing_said.text().contains("selects no dead letters"),
        "{}",
        nothing_said.text()
    );
    for verb in ["purge", "redrive"] {
        let both = server.admin(
            "POST",
            &format!("{}/deadLetters/{verb}", subscription("orders", "Hook")),
            &json!({"all": true, "filter": {"id": "3"}}),
        );
        assert_eq!(both.status, 400, "{}", both.text());
    }

    server.publish("orders", &key, &load::body(&["late".to_owned()], "/a"));
    wait_for("one more to be given up", LONG, || {
        server.counter("orders", "Hook", "deadLettered") == 6
    });
    assert_eq!(
        purged(&server, &["--all", "--yes"]),
        Some(5),
        "wherever they are"
    );
    assert_eq!((count(&server, &[]), files(&server)), (0, Vec::new()));
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_kill_between_the_giving_up_and_the_file_loses_and_repeats_no_dead_letter() {
    let (mut server, _sink, key) = start(400, |spec| spec.dead_letters(CONTAINER));
    let mut expected = Vec::new();
    for round in 0..3 {
        let more: Vec<String> = (0..4).map(|number| format!("{round}-{number}")).collect();
        server.publish("orders", &key, &load::body(&more, "/a"));
        expected.extend(more);
        let before = ids_in_files(&server);
        wait_for("the events to be given up", LONG, || {
            server.counter("orders", "Hook", "deadLettered") == expected.len() as u64
        });
        server.kill_9();
        assert_eq!(
            ids_in_files(&server),
            before,
            "the kill came before the file"
        );
        server.assert_sound();
        server.restart();
        wait_for("the file", LONG, || ids_in_files(&server) == expected);
        assert_eq!(
            server.counter("orders", "Hook", "deadLettered"),
            expected.len() as u64
        );
    }
    assert_eq!(files(&server).len(), 3);
    server.kill_9();
    server.assert_sound();
    assert_eq!(ids_in_files(&server), expected, "each once");
}

#[test]
fn without_a_destination_events_are_dropped_and_counted_and_no_file_is_written() {
    let (mut server, _sink, key) = start(400, |spec| spec);
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    wait_for("the events to be dropped", LONG, || {
        server.counter("orders", "Hook", "dropped") == 5
    });
    wait_until_settled(&server, "orders", "Hook");
    assert_eq!(server.counter("orders", "Hook", "deadLettered"), 0);
    server.terminate();
    server.assert_sound();
    let (_, reported) = server.fsck();
    assert!(
        !reported.contains("dead letters"),
        "nothing waits for a file: {reported}"
    );
    assert_eq!(files(&server), Vec::<PathBuf>::new());
}

/// A server that was killed after its subscription was deleted, if all dead letters are left in its
/// store.
fn kill_after_unsubscribing() -> Option<Server> {
    let (mut server, _sink, key) = start(400, |spec| spec.dead_letters(CONTAINER));
    server.publish("orders", &key, &load::body(&ids(5), "/a"));
    wait_for("the events to be given up", LONG, || {
        server.counter("orders", "Hook", "deadLettered") == 5
    });
    server.unsubscribe("orders", "Hook");
    server.kill_9();
    server.assert_sound();
    let (_, reported) = server.fsck();
    reported.contains("5 dead letters").then_some(server)
}

#[test]
fn a_subscription_that_is_deleted_while_dead_letters_wait_leaves_a_sound_store_and_no_file() {
    // They are cleared away once a second: on a busy machine a kill may come too late.
    let mut server = (0..5)
        .find_map(|_| kill_after_unsubscribing())
        .expect("a kill before they are cleared away");
    // No word comes when it is done: it is done once a second.
    wait_for("all to be cleared away", LONG, || {
        server.restart();
        thread::sleep(2 * FILE_DELAY);
        server.terminate();
        server.assert_sound();
        let (_, reported) = server.fsck();
        !reported.contains(" dead letter") && !reported.contains(" cursor")
    });
    assert_eq!(files(&server), Vec::<PathBuf>::new());
}
