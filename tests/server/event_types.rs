//! Event types of a topic in the real server: declared in each way, checked, counted, and there
//! after a kill.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::server::{Server, events_path, operator};

const TOPIC: &str =
    "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics/orders";

fn publish(server: &Server, data: &Value) -> (u16, String) {
    let keys = server
        .command("POST", &format!("{TOPIC}/listKeys"), &Value::Null)
        .json();
    let key = keys["key1"].as_str().expect("a key").to_owned();
    let event = json!([{"id": "1", "eventType": "Order.Placed", "subject": "s", "dataVersion": "1", "eventTime": "2026-11-20T10:00:00Z", "data": data}]);
    let response = server
        .client()
        .ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", &key)],
            event.to_string().as_bytes(),
        )
        .expect("it is answered");
    (response.status, response.text())
}

fn metric(server: &Server, name: &str) -> String {
    let name = format!("{name}{{topic=\"orders\"}} ");
    let text = server.command("GET", "/metrics", &Value::Null).text();
    text.lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap_or_else(|| panic!("no {name}"))
        .to_owned()
}

fn say(server: &Server, arguments: &[&str]) -> String {
    operator(server, arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[test]
fn a_namespace_topic_has_event_types_of_its_own() {
    let mut server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hot.json");
    let schema = json!({"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]});
    let hot = json!({"versions": {"1": {"schema": schema, "examples": [{"degrees": 40}]}}});
    std::fs::write(&path, hot.to_string()).expect("a file");
    let body = path.to_str().expect("text");
    say(&server, &["topics", "create", "namespaces/plant"]);
    let topic = "namespaces/plant/topics/heat";
    say(
        &server,
        &["topics", "create", topic, "--schema-validation", "refuse"],
    );
    say(
        &server,
        &["event-types", "put", topic, "Too.Hot", "--body", body],
    );
    let token = say(
        &server,
        &[
            "tokens",
            "create",
            "publisher",
            "--role",
            "publish",
            "--output",
            "json",
        ],
    );
    let token: Value = serde_json::from_str(&token).expect("JSON");
    let bearer = format!("Bearer {}", token["token"].as_str().expect("text"));
    let publish = |server: &Server, data: &Value| {
        let event =
            json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "Too.Hot", "data": data}).to_string();
        let headers = [
            ("authorization", &*bearer),
            ("content-type", "application/cloudevents+json"),
        ];
        let path = "/namespaces/plant/topics/heat:publish";
        let response = server
            .client()
            .ask("POST", path, &headers, event.as_bytes())
            .expect("it is answered");
        (response.status, response.text())
    };
    assert_eq!(publish(&server, &json!({"degrees": 40})).0, 200);
    let (status, text) = publish(&server, &json!({"degrees": "forty"}));
    assert!(
        status == 400 && text.contains("/properties/degrees/type"),
        "{status} {text}"
    );
    server.kill_9();
    server.restart();
    assert_eq!(
        publish(&server, &json!({"degrees": "hot"})).0,
        400,
        "after a kill"
    );
    // A change of the topic keeps its event types.
    say(
        &server,
        &["topics", "update", topic, "--schema-validation", "warn"],
    );
    assert_eq!(publish(&server, &json!({"degrees": "warm"})).0, 200);
    say(
        &server,
        &["topics", "update", topic, "--schema-validation", "refuse"],
    );
    assert_eq!(publish(&server, &json!({"degrees": "cold!"})).0, 400);
    assert!(say(&server, &["event-types", "list", topic]).contains("Too.Hot"));
    say(
        &server,
        &["event-types", "delete", topic, "Too.Hot", "--yes"],
    );
    assert_eq!(publish(&server, &json!({"degrees": "chilly"})).0, 200);
}

#[test]
fn events_are_checked_against_the_catalogue_which_survives_a_kill() {
    let mut server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    say(
        &server,
        &[
            "topics",
            "create",
            "orders",
            "--schema-validation",
            "refuse",
        ],
    );
    put_an_event_type(&server, folder.path());

    assert_events_are_checked(&server);
    server.kill_9();
    server.restart();
    assert_eq!(
        publish(&server, &json!({"total": "five"})).0,
        400,
        "after a kill"
    );
    say(
        &server,
        &["topics", "update", "orders", "--schema-validation", "warn"],
    );
    assert_eq!(publish(&server, &json!({"total": "five"})).0, 200);
    assert_eq!(
        metric(&server, "gridhook_topic_nonconforming_events_total"),
        "1"
    );
    assert!(
        server.logs().contains("events do not match their schema"),
        "{}",
        server.logs()
    );
    say(
        &server,
        &["topics", "update", "orders", "--schema-validation", "off"],
    );
    assert_eq!(publish(&server, &json!({"total": "five"})).0, 200);
    assert_eq!(
        metric(&server, "gridhook_topic_nonconforming_events_total"),
        "1"
    );

    change_the_topic(&server, folder.path());
    delete_the_event_type(&server);
}

fn write_file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("text").to_owned()
}

/// The examples of an event type must match its schema.
fn put_an_event_type(server: &Server, folder: &Path) {
    let schema = json!({"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]});
    let placed = json!({"description": "An order", "versions": {"1": {"schema": schema, "examples": [{"total": 5}]}}});
    let body = write_file(folder, "placed.json", &placed.to_string());
    let saved = say(
        server,
        &[
            "event-types",
            "put",
            "orders",
            "Order.Placed",
            "--body",
            &body,
        ],
    );
    assert!(saved.contains("example      {\"total\":5}"), "{saved}");
    let unfit = write_file(
        folder,
        "unfit.json",
        &placed.to_string().replace(":5", ":\"five\""),
    );
    let error = operator(
        server,
        &[
            "event-types",
            "put",
            "orders",
            "Order.Placed",
            "--body",
            &unfit,
        ],
    );
    let error = error.expect_err("its example does not match");
    assert!(
        error.contains("inlineEventTypes.Order.Placed.versions.1.examples[0]"),
        "{error}"
    );
}

fn assert_events_are_checked(server: &Server) {
    let (status, text) = publish(server, &json!({"total": "five"}));
    assert!(
        status == 400 && text.contains("Event 0: "),
        "{status} {text}"
    );
    assert!(text.contains("/properties/total/type"), "{text}");
    assert_eq!(publish(server, &json!({"total": 5})).0, 200);
}

/// A PUT of the topic keeps event types that it does not name. `apply` replaces them.
fn change_the_topic(server: &Server, folder: &Path) {
    server.command(
        "PUT",
        TOPIC,
        &json!({"properties": {"schemaValidation": "refuse"}}),
    );
    assert_eq!(publish(server, &json!({})).0, 400);
    let declared = write_file(
        folder,
        "topics.toml",
        "[topics.orders]\nschemaValidation = \"refuse\"\n[topics.orders.eventTypeInfo]\nkind = \
         \"Inline\"\n\
         [topics.orders.eventTypeInfo.inlineEventTypes.\"Order.Placed\".versions.1.schema]\ntype = \
         \"null\"\n",
    );
    let applied = say(server, &["apply", "-f", &declared, "--yes"]);
    assert!(applied.contains("change 1"), "{applied}");
    assert!(say(server, &["apply", "-f", &declared, "--yes"]).contains("no changes"));
    assert_eq!(publish(server, &json!({"total": 5})).0, 400);
    assert_eq!(publish(server, &Value::Null).0, 200);
}

fn delete_the_event_type(server: &Server) {
    say(
        server,
        &["event-types", "delete", "orders", "Order.Placed", "--yes"],
    );
    assert_eq!(publish(server, &json!({})).0, 200);
    assert!(!say(server, &["event-types", "list", "orders"]).contains("Order.Placed"));
}
