//! Lists have one shape in JSON.

use serde_json::Value;

use super::Folder;
use crate::support::{server::Server, sink::Sink};

#[test]
fn every_list_is_an_object_with_its_items_in_value() {
    let server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
    let sink = Sink::start();
    let folder = Folder::with_token_from(&server);
    folder.done(&server, &["topics", "create", "orders"]);
    folder.done(
        &server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--endpoint",
            &sink.url("/a"),
        ],
    );
    folder.write("placed.json", "{}");
    folder.done(
        &server,
        &[
            "event-types",
            "put",
            "orders",
            "Order.Placed",
            "--body",
            "placed.json",
        ],
    );
    folder.write("events.json", EVENT);
    folder.done(&server, &["publish", "orders", "events.json"]);
    folder.done(&server, &["tokens", "create", "reader", "--role", "read"]);
    folder.done(
        &server,
        &["context", "add", "prod", "--server", "http://127.0.0.1:9"],
    );
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).expect("a folder");
    let monday = backups.join("monday");
    folder.done(&server, &["backup", monday.to_str().expect("text")]);
    // Each with the fewest items.
    for (line, least) in [
        ("topics list", 1),
        ("subscriptions list", 1),
        ("subscriptions list orders", 1),
        ("event-types list orders", 1),
        ("dead-letters list orders billing", 0),
        ("dead-letters newest", 0),
        ("replay list orders billing", 0),
        ("replay running", 0),
        ("ledger orders billing", 0),
        ("trace 1 --topic orders", 1),
        ("audit", 1),
        ("tokens list", 1),
        ("context list", 1),
        ("config check", 100),
        ("backup list backups", 1),
    ] {
        let arguments: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        let list: Value = serde_json::from_str(&folder.done(&server, &arguments)).expect("JSON");
        let items = list["value"]
            .as_array()
            .unwrap_or_else(|| panic!("{line}: {list}"));
        assert!(
            items.len() >= least && items.iter().all(Value::is_object),
            "{line}: {list}"
        );
    }
    let listed = folder.done(&server, &["backup", "list", "backups"]);
    assert!(
        listed.contains("/backups/monday ") && listed.contains(" sound "),
        "{listed}"
    );
    std::fs::create_dir(folder.path().join("none")).expect("a folder");
    let empty = folder.done(&server, &["backup", "list", "none"]);
    assert!(empty.starts_with("no backups in "), "{empty}");
}

const EVENT: &str = r#"{"id": "1", "eventType": "Order.Placed", "subject": "/a", "eventTime": "2026-01-01T00:00:00Z",
    "dataVersion": "1", "data": {}}"#;
