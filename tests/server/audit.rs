//! The audit trail of the real binary: its entries, and its limits. The ids of requests.

use std::io::Write as _;

use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    http::Response,
    server::{Server, SubscriptionSpec, operator, subscription, wait_for},
    sink::Sink,
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn ask(server: &Server, token: &str, method: &str, path: &str) -> Response {
    server.request_without_token(
        method,
        path,
        &[("authorization", &format!("Bearer {token}"))],
    )
}

fn trail(server: &Server, query: &str) -> Value {
    server
        .command("GET", &format!("/audit{query}"), &Value::Null)
        .json()
}

/// Operator, method, end of the path and status of each entry, oldest first.
fn lines(trail: &Value) -> Vec<String> {
    let line = |entry: &Value| {
        let operator = entry["operator"].as_str().unwrap_or("-");
        let path = entry["path"].as_str().expect("a path");
        let end = path.rsplit('/').next().expect("a segment");
        format!(
            "{operator} {} {end} {}",
            entry["method"].as_str().expect("a method"),
            entry["status"]
        )
    };
    let mut lines: Vec<String> = trail["value"]
        .as_array()
        .expect("a list")
        .iter()
        .map(line)
        .collect();
    lines.reverse();
    lines
}

fn token(server: &Server, name: &str, role: &str) -> String {
    let created = operator(
        server,
        &["tokens", "create", name, "--role", role, "--output", "json"],
    )
    .expect("a token");
    let created: Value = serde_json::from_str(&created).expect("JSON");
    created["token"].as_str().expect("it is shown").to_owned()
}

/// The entries of the trail after all steps of the test.
const ENTRIES: [&str; 13] = [
    "admin POST tokens 201",
    "admin PUT orders 201",
    "admin POST listKeys 200",
    "admin PATCH orders 201",
    "admin PUT billing 201",
    "admin POST hold 200",
    "admin POST regenerateKey 200",
    "admin POST getFullUrl 200",
    "admin PUT orders 201",
    "reader DELETE orders 403",
    "- DELETE orders 401",
    "admin PUT orders 400",
    "admin DELETE billing 204",
];

#[test]
fn changes_reveals_and_refusals_are_recorded_without_secrets_and_survive_a_kill() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let reader = token(&server, "reader", "read");
    let key = server.topic("orders", "EventGridSchema");
    change_and_reveal(&server, &sink);
    read_and_preview(&server, &reader);
    make_refused_changes(&server, &reader);
    server.unsubscribe("orders", "billing");
    let before = trail(&server, "");
    assert_eq!(lines(&before), ENTRIES);
    assert_changes_are_in_entries(&before, &sink);
    for secret in ["hidden-code", "hidden-value", &key, &reader] {
        assert!(
            !before.to_string().contains(secret),
            "{secret} is in the trail"
        );
    }
    server.kill_9();
    server.assert_sound();
    server.restart();
    assert_eq!(trail(&server, ""), before);
    assert_pages_have_all_entries(&server);
    assert_entries_are_searched(&server, &before);
    assert_the_command_prints_entries(&server);
}

fn change_and_reveal(server: &Server, sink: &Sink) {
    server.command("PATCH", TOPIC, &json!({"tags": {"team": "shop"}}));
    let url = format!("{}?code=hidden-code", sink.url("/hook"));
    let spec = SubscriptionSpec::new(&url).webhook(
        "deliveryAttributeMappings",
        json!([{"name": "x-secret", "type": "Static", "properties": {"value": "hidden-value", "isSecret": true}}]),
    );
    server.subscribe("orders", "billing", &spec);
    server.post_verb("orders", "billing", "hold");
    server.command(
        "POST",
        &format!("{TOPIC}/regenerateKey"),
        &json!({"keyName": "key2"}),
    );
    server.command(
        "POST",
        &format!("{}/getFullUrl", subscription("orders", "billing")),
        &Value::Null,
    );
}

/// Reading and previews are not recorded.
fn read_and_preview(server: &Server, reader: &str) {
    ask(server, reader, "GET", TOPIC);
    server.command("PUT", &format!("{TOPIC}?whatIf=true"), &json!({}));
    // This is no preview, whatever another parameter says.
    server.command(
        "PUT",
        &format!("{TOPIC}?x=whatIf=true"),
        &json!({"tags": {"team": "shop"}}),
    );
}

fn make_refused_changes(server: &Server, reader: &str) {
    assert_eq!(ask(server, reader, "DELETE", TOPIC).status, 403);
    assert_eq!(ask(server, "wrong", "DELETE", TOPIC).status, 401);
    assert_eq!(
        server
            .admin("PUT", TOPIC, &json!({"properties": {"none": 1}}))
            .status,
        400
    );
}

/// The newest entry whose line contains this text.
fn entry<'a>(trail: &'a Value, text: &str) -> &'a Value {
    let position = ENTRIES
        .iter()
        .rev()
        .position(|line| line.contains(text))
        .expect("it is there");
    &trail["value"][position]
}

/// The new value of a property in the newest entry whose line contains this text.
fn value_after(trail: &Value, text: &str, property: &str) -> Value {
    let changes = entry(trail, text)["changes"].as_array().expect("a list");
    let change = changes.iter().find(|change| change["at"] == property);
    change.expect("it is there")["after"].clone()
}

fn assert_changes_are_in_entries(before: &Value, sink: &Sink) {
    let tags = json!([{"at": "tags.team", "before": null, "after": "shop"}]);
    assert_eq!(
        (
            &entry(before, "PATCH")["changes"],
            &entry(before, "PATCH")["from"]
        ),
        (&tags, &json!("127.0.0.1"))
    );
    assert_eq!(
        entry(before, "regenerateKey")["changes"],
        json!([{"at": "keyName", "before": null, "after": "key2"}])
    );
    let base = "properties.destination.properties.endpointBaseUrl";
    assert_eq!(value_after(before, "PUT billing", base), sink.url("/hook"));
    assert_eq!(value_after(before, "DELETE billing", base), Value::Null);
    assert_eq!(value_after(before, "POST tokens", "roles"), json!(["read"]));
}

fn assert_pages_have_all_entries(server: &Server) {
    let first = trail(server, "?top=5");
    let next = first["continue"].as_str().expect("more");
    let rest = trail(server, &format!("?continue={next}"));
    assert_eq!([lines(&rest), lines(&first)].concat(), ENTRIES);
    assert!(rest.get("continue").is_none());
    assert_eq!(
        lines(&trail(server, "?operator=reader")),
        ["reader DELETE orders 403"]
    );
}

fn assert_entries_are_searched(server: &Server, before: &Value) {
    for (query, expected) in [
        (
            "search=delete%20/SUBSCRIPTIONS",
            vec![
                "reader DELETE orders 403",
                "- DELETE orders 401",
                "admin DELETE billing 204",
            ],
        ),
        ("search=regenerateKey", vec!["admin POST regenerateKey 200"]),
        (
            "refused=true",
            vec![
                "reader DELETE orders 403",
                "- DELETE orders 401",
                "admin PUT orders 400",
            ],
        ),
        (
            "refused=true&operator=admin&search=put",
            vec!["admin PUT orders 400"],
        ),
        ("search=nothing", Vec::new()),
    ] {
        assert_eq!(
            lines(&trail(server, &format!("?{query}"))),
            expected,
            "{query}"
        );
    }
    let id = entry(before, "regenerateKey")["requestId"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(
        lines(&trail(server, &format!("?search={id}"))),
        ["admin POST regenerateKey 200"]
    );
    assert_eq!(
        server
            .admin("GET", "/audit?refused=maybe", &Value::Null)
            .status,
        400
    );
}

fn assert_the_command_prints_entries(server: &Server) {
    let table = operator(
        server,
        &[
            "audit",
            "--refused",
            "--search",
            "orders",
            "--operator",
            "reader",
        ],
    )
    .expect("a table");
    assert!(
        table.contains("403") && table.lines().count() == 2,
        "{table}"
    );
    assert_eq!(
        server.admin("GET", "/audit?top=0", &Value::Null).status,
        400
    );
    let table =
        operator(server, &["audit", "--operator", "admin", "--limit", "3"]).expect("a table");
    // Each change of a value has a line of its own below its operation.
    let operations = table.lines().filter(|line| !line.starts_with(' ')).count();
    assert!(
        table.contains("DELETE") && operations == 4 && table.contains("\n    name: "),
        "{table}"
    );
}

#[test]
fn the_trail_is_bounded_and_wrong_tokens_cannot_empty_it() {
    let mut server = Server::start(&[
        ("JOURNAL__AUDIT_RECORDS", "20"),
        ("LIMITS__FAILED_KEYS", "1000000"),
    ]);
    server.topic("orders", "EventGridSchema");
    for _ in 0..30 {
        server.command("PATCH", TOPIC, &json!({}));
    }
    assert_eq!(
        lines(&trail(&server, "")),
        vec!["admin PATCH orders 201"; 20]
    );
    // A hundred refusals in a row are one or a few entries, which have their number.
    for _ in 0..100 {
        assert_eq!(ask(&server, "wrong", "DELETE", TOPIC).status, 401);
    }
    wait_for("another second", LONG, || {
        ask(&server, "wrong", "DELETE", TOPIC);
        let entries = trail(&server, "")["value"]
            .as_array()
            .expect("a list")
            .clone();
        entries
            .iter()
            .any(|entry| entry["suppressed"].as_u64() > Some(0))
    });
    let refused = lines(&trail(&server, ""))
        .iter()
        .filter(|line| line.starts_with('-'))
        .count();
    assert!((1..=2).contains(&refused), "{refused} of 20: a tenth");
    server.terminate();
    server.restart();
    server.command("PATCH", TOPIC, &json!({}));
    let all = lines(&trail(&server, ""));
    let changes = all.iter().filter(|line| line.starts_with("admin")).count();
    assert!(
        changes == 20 && all.len() <= 22,
        "the changes, and a tenth for refusals besides: {all:?}"
    );
}

#[test]
fn a_change_is_recorded_though_its_client_resets_the_connection() {
    let server = Server::start(&[]);
    let admin = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    for number in 0..60_u64 {
        let path = TOPIC.replace("orders", &format!("topic-{number}"));
        let head = format!(
            "authorization: Bearer {}\r\nhost: localhost\r\ncontent-length: 2\r\n",
            admin.trim()
        );
        let mut client = std::net::TcpStream::connect(server.address()).expect("a connection");
        client
            .write_all(format!("PUT {path} HTTP/1.1\r\n{head}\r\n{{}}").as_bytes())
            .expect("it is sent");
        // It ends at another moment of the change each time.
        std::thread::sleep(std::time::Duration::from_micros(100 * number));
        socket2::SockRef::from(&client)
            .set_linger(Some(std::time::Duration::ZERO))
            .expect("an option");
        drop(client);
    }
    server.command("PUT", TOPIC, &json!({}));
    let made = || {
        let list = server.command(
            "GET",
            &format!("{}?$top=100", TOPIC.trim_end_matches("/orders")),
            &Value::Null,
        );
        let names = list.json()["value"].as_array().expect("a list").clone();
        names
            .iter()
            .map(|topic| topic["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    // Each change that was made is recorded, now or soon.
    wait_for("the records", LONG, || {
        let recorded: Vec<String> = lines(&trail(&server, "?top=1000"));
        made()
            .iter()
            .all(|name| recorded.contains(&format!("admin PUT {name} 201")))
    });
    assert!(!made().is_empty());
}

#[test]
fn every_response_has_the_ids_of_its_request_and_so_have_the_log_and_errors() {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    let token = token(&server, "ids", "admin");
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", &*bearer),
        ("aeg-sas-key", &*key),
        ("x-ms-correlation-request-id", "mine-1"),
    ];
    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/top"),
        ("GET", "/nowhere"),
        ("GET", "/ui/"),
        ("GET", TOPIC),
        ("DELETE", "/top"),
        ("POST", "/topics/orders/api/events"),
        ("POST", "/topics/none/api/events"),
    ] {
        let response = server.request_without_token(method, path, &headers);
        let id = response
            .header("x-ms-request-id")
            .unwrap_or_else(|| panic!("{path}: {}", response.head()));
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{path}: {id}");
        assert_eq!(
            response.header("x-ms-correlation-request-id"),
            Some("mine-1"),
            "{path}"
        );
        let own = server.request_without_token(method, path, &headers[..2]);
        assert_eq!(
            own.header("x-ms-correlation-request-id"),
            own.header("x-ms-request-id"),
            "{path}"
        );
        assert_ne!(own.header("x-ms-request-id"), Some(id), "{path}");
        let odd = [
            headers[0],
            headers[1],
            ("x-ms-correlation-request-id", "a b<c>"),
        ];
        let odd = server.request_without_token(method, path, &odd);
        assert_eq!(
            odd.header("x-ms-correlation-request-id"),
            odd.header("x-ms-request-id"),
            "{path}"
        );
    }
    for (token, status) in [("wrong", 401), (&*token, 404)] {
        let refused = ask(&server, token, "POST", &format!("{TOPIC}x/listKeys"));
        assert_eq!(refused.status, status);
        let id = refused.header("x-ms-request-id").expect("an id");
        let info = json!([{"type": "RequestId", "info": {"requestId": id}}]);
        assert_eq!(refused.json()["error"]["additionalInfo"], info);
        assert_eq!(
            trail(&server, "")["value"][0]["requestId"],
            id,
            "the trail has it"
        );
    }
    let deleted = ask(&server, &token, "DELETE", TOPIC);
    let id = deleted.header("x-ms-request-id").expect("an id").to_owned();
    wait_for("the log", LONG, || {
        server.logs().lines().any(|line| {
            line.contains("topic deleted") && line.contains(&id) && line.contains("ids")
        })
    });
}
