//! Secrets are shown only on request: a running server gets marked secrets, and everything it
//! writes is searched for them.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    http::{Client, Response},
    load,
    server::{Server, SubscriptionSpec, events_path, subscription, wait_for},
    sink::{Behavior, Sink},
};

const SCOPE: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid";

/// The secrets, each in a place of its own.
const TOKEN: &str = "MARKEDadminTokenOfTheOperator";
const QUERY: &str = "MARKEDcodeInAnAddress";
const HEADER: &str = "MARKEDvalueOfAHeader";
/// Base64 of text with the mark in it.
const SIGNING: &str = "TUFSS0VEc2lnbmluZ1NlY3JldDAxMjM0NTY3ODk=";
const WRONG: &str = "MARKEDwrongKey";

fn given_away(reported: &str, secrets: &[&str]) -> Vec<String> {
    // Also as a header or an address would have them.
    let forms = |secret: &str| {
        [
            secret.to_owned(),
            url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        ]
    };
    let found = secrets
        .iter()
        .flat_map(|secret| forms(secret))
        .filter(|form| reported.contains(form));
    let lines = found.filter_map(|form| {
        reported
            .lines()
            .find(|line| line.contains(&form))
            .map(str::to_owned)
    });
    lines.collect()
}

/// Sends a request of the operator.
fn send(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let bearer = format!("Bearer {TOKEN}");
    Client::new(server.address())
        .ask(method, path, &[("authorization", &bearer)], body.as_bytes())
        .expect("a response")
}

/// Properties of a webhook that has a secret and a signature.
fn webhook() -> Value {
    json!({
        "signing": {"secrets": [format!("whsec_{SIGNING}")]},
        "deliveryAttributeMappings": [{"name": "x-secret", "type": "Static", "properties": {"value": HEADER, "isSecret": true}}],
    })
}

/// Returns the text of the responses.
fn create_subscriptions(server: &Server, sink: &Sink) -> String {
    let mut responses = String::new();
    for (name, behavior) in [
        ("good", Behavior::Respond(200)),
        ("bad", Behavior::Respond(500)),
        ("dead", Behavior::Dead),
        ("gone", Behavior::Respond(400)),
    ] {
        sink.set(&format!("/{name}?code={QUERY}"), behavior);
        let spec = SubscriptionSpec::new(&sink.url(&format!("/{name}?code={QUERY}")))
            .also(&webhook(), &json!({}))
            .dead_letters("letters");
        let response = send(
            server,
            "PUT",
            &subscription("orders", name),
            &json!({"properties": spec.properties()}),
        );
        assert!(response.status < 300, "{}", response.text());
        responses += &response.text();
    }
    responses
}

/// The server refuses these addresses, which contain secrets. Returns the text of the responses.
fn create_impossible_subscriptions(server: &Server) -> String {
    let mut responses = String::new();
    for url in [
        format!("http://user:{QUERY}@127.0.0.1/"),
        format!("http://169.254.169.254/?code={QUERY}"),
        format!("http://127.0.0.1:1/?code={QUERY}"),
        format!("nonsense:{QUERY}"),
    ] {
        let spec = SubscriptionSpec::new(&url).also(&webhook(), &json!({}));
        responses += &send(
            server,
            "PUT",
            &subscription("orders", "refused"),
            &json!({"properties": spec.properties()}),
        )
        .text();
    }
    responses
}

fn publish(server: &Server, headers: &[(&str, &str)], path: &str) -> Response {
    let body = load::body(&["1".to_owned()], "/a");
    Client::new(server.address())
        .ask("POST", path, headers, &body)
        .expect("a response")
}

fn publish_with_secrets(server: &Server, keys: &[&str]) {
    let events = events_path("orders");
    for key in keys {
        let response = publish(server, &[("aeg-sas-key", key)], &events);
        assert_eq!(response.status, 200);
    }
    let bearer = format!("Bearer {TOKEN}");
    let response = publish(server, &[("authorization", &bearer)], &events);
    assert_eq!(response.status, 200);
}

/// Returns the text of the responses.
fn publish_with_wrong_secrets(server: &Server) -> String {
    let topic = format!("{SCOPE}/topics/orders");
    let events = events_path("orders");
    let mut responses = String::new();
    for (name, value) in [
        ("aeg-sas-key", WRONG.to_owned()),
        ("aeg-sas-token", format!("r=x&e=y&s={WRONG}")),
        ("authorization", format!("SharedAccessSignature {WRONG}")),
        ("authorization", format!("Bearer {WRONG}")),
        ("authorization", format!("{WRONG} x")),
    ] {
        let response = publish(
            server,
            &[(name, &value)],
            &format!("{events}?aeg-sas-key-typed-wrong={WRONG}"),
        );
        assert!(response.status >= 400, "{name}: {}", response.status);
        responses += &response.text();
        responses += &Client::new(server.address())
            .ask("GET", &topic, &[(name, &value)], b"")
            .expect("a response")
            .text();
    }
    responses
}

/// Returns all resources and states that may contain a secret.
fn read_everything(server: &Server) -> String {
    let topic = format!("{SCOPE}/topics/orders");
    let mut responses = String::new();
    for name in ["good", "bad", "dead", "gone"] {
        for verb in ["", "/status", "/explain?id=1"] {
            responses += &send(
                server,
                "GET",
                &format!("{}{verb}", subscription("orders", name)),
                &Value::Null,
            )
            .text();
        }
    }
    for path in [
        &*topic,
        &format!("{topic}/eventSubscriptions"),
        &format!("{topic}/status"),
        "/openapi.json",
        "/readyz",
    ] {
        responses += &send(server, "GET", path, &Value::Null).text();
    }
    responses
}

/// The search finds a secret in a response that has one.
fn assert_secrets_are_recognized(server: &Server, secrets: &[&str]) {
    let full = send(
        server,
        "POST",
        &format!("{}/getFullUrl", subscription("orders", "good")),
        &Value::Null,
    )
    .text();
    assert!(
        !given_away(&full, secrets).is_empty(),
        "no secret found in {full}"
    );
}

#[test]
fn no_secret_is_in_a_log_an_error_or_an_answer() {
    let settings = [
        ("SERVER__ADMIN_TOKEN", TOKEN),
        ("LOG__FILTER", "debug"),
        ("CHAOS__ENABLED", "true"),
        ("LIMITS__FAILED_KEYS", "2"),
    ];
    let mut server = Server::start(&settings);
    let sink = Sink::start();
    let topic = format!("{SCOPE}/topics/orders");
    send(&server, "PUT", &topic, &json!({}));
    let keys = send(&server, "POST", &format!("{topic}/listKeys"), &Value::Null).json();
    let [key1, key2] = ["key1", "key2"].map(|name| keys[name].as_str().expect("a key").to_owned());
    let secrets: Vec<&str> = vec![TOKEN, QUERY, HEADER, SIGNING, WRONG, &key1, &key2, "MARKED"];
    let mut responses = create_subscriptions(&server, &sink);
    responses += &create_impossible_subscriptions(&server);
    publish_with_secrets(&server, &[&key1, &key2]);
    responses += &publish_with_wrong_secrets(&server);
    wait_for("an attempt at each", LONG, || {
        ["good", "bad", "dead", "gone"]
            .iter()
            .all(|name| !sink.heads(&format!("/{name}?code={QUERY}")).is_empty())
    });
    let subscription_actor =
        json!({"actor": "subscription", "topic": "orders", "subscription": "bad", "by": "panic"});
    send(&server, "POST", "/chaos/kill", &subscription_actor);
    responses += &read_everything(&server);
    assert_secrets_are_recognized(&server, &secrets);
    server.terminate();
    let log = server.logs();
    assert!(log.len() > 2_000, "at this level the log is long");
    assert_eq!(
        given_away(&log, &secrets),
        Vec::<String>::new(),
        "in the log"
    );
    assert_eq!(
        given_away(&responses, &secrets),
        Vec::<String>::new(),
        "in the responses"
    );
}

#[test]
fn no_core_dump_has_the_memory_of_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let serve = "ulimit -c unlimited; exec \"$0\" serve --listen 127.0.0.1:0 --data-dir data";
    let mut server = Command::new("sh")
        .args(["-c", serve, env!("CARGO_BIN_EXE_gridhook")])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    wait_for("the store", LONG, || {
        folder.path().join("data/rocksdb/CURRENT").exists()
    });
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("its limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .expect("a limit");
    assert_eq!(
        core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(),
        ["0", "0"],
        "{core}"
    );
    let is_sent = Command::new("kill")
        .args(["-ABRT", &server.id().to_string()])
        .status()
        .expect("it runs")
        .success();
    assert!(is_sent);
    assert!(
        !server.wait().expect("it ends").core_dumped(),
        "a core dump was written"
    );
    let files: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|file| file.expect("one").file_name())
        .collect();
    assert_eq!(files, ["data"]);
}
