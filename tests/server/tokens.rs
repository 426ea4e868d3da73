//! Named tokens on the real binary: roles, scopes, revocation, and what a reader can change.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use gridhook::clock::Clock;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::LONG;
use crate::{
    publish::bearer::Signer,
    support::{
        endpoint::{Endpoint, respond},
        http::{Response, session_bearer},
        server::{Server, SubscriptionSpec, events_path, operator, say, subscription, wait_for},
        sink::Sink,
    },
};

pub(crate) const RG: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid";

pub(crate) const EVENT: &str = r#"[{"id":"1","subject":"/a","eventType":"T","eventTime":"2026-11-20T12:00:00Z","data":{},"dataVersion":"1"}]"#;

const CLOUD_EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/a","type":"T","data":{}}"#;

/// Creates a token with the command, and returns it.
pub(crate) fn token(server: &Server, arguments: &[&str]) -> String {
    let created = operator(
        server,
        &[&["tokens", "create"], arguments, &["--output", "json"]].concat(),
    );
    let created: Value = serde_json::from_str(&created.expect("a token")).expect("JSON");
    created["token"].as_str().expect("it is shown").to_owned()
}

pub(crate) fn ask(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Response {
    let headers = [
        ("authorization", &*format!("Bearer {token}")),
        ("content-type", "application/json"),
    ];
    server
        .client()
        .ask(method, path, &headers, body.as_bytes())
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(super) fn status(server: &Server, token: &str, method: &str, path: &str) -> u16 {
    let body = if path.ends_with("api/events") {
        EVENT
    } else {
        ""
    };
    ask(server, token, method, path, body).status
}

fn listed(server: &Server) -> Vec<Value> {
    server.command("GET", "/tokens", &Value::Null).json()["value"]
        .as_array()
        .expect("a list")
        .clone()
}

/// A token: its name, roles and scopes, and the status of each probe of `assert_token_permits`.
type NamedToken = (&'static str, &'static str, &'static str, [u16; 8]);

const NAMED_TOKENS: [NamedToken; 10] = [
    (
        "p1",
        "publish",
        "topics/orders",
        [200, 403, 403, 403, 403, 403, 403, 403],
    ),
    (
        "p2",
        "publish",
        "topics/bills*/*",
        [403, 200, 200, 403, 403, 403, 403, 403],
    ),
    (
        "p3",
        "publish",
        "",
        [200, 200, 200, 403, 403, 403, 403, 403],
    ),
    (
        "r1",
        "read",
        "labels/team=shop",
        [403, 403, 403, 200, 200, 403, 403, 403],
    ),
    ("r2", "read", "", [403, 403, 403, 200, 200, 403, 403, 403]),
    (
        "o1",
        "operate",
        "topics/Orders/eventSubscriptions/bill*",
        [403, 403, 403, 200, 200, 200, 403, 403],
    ),
    (
        "o2",
        "publish,operate",
        "labels/team=shop",
        [200, 403, 403, 200, 200, 200, 403, 403],
    ),
    (
        "a1",
        "admin",
        "topics/orders",
        [200, 403, 403, 200, 200, 200, 403, 200],
    ),
    ("a2", "admin", "", [200, 200, 200, 200, 200, 200, 200, 200]),
    (
        "c1",
        "consume",
        "",
        [403, 403, 403, 403, 403, 403, 403, 403],
    ),
];

#[test]
fn a_named_token_permits_its_roles_for_its_resources_only() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let shop = json!({"tags": {"team": "shop"}, "properties": {}});
    server.command("PUT", &format!("{RG}/topics/orders"), &shop);
    for topic in ["bills", "bills-eu"] {
        server.topic(topic, "EventGridSchema");
    }
    for topic in ["orders", "bills"] {
        server.subscribe(topic, "billing", &SubscriptionSpec::new(&sink.url("/")));
    }
    for case in NAMED_TOKENS {
        assert_token_permits(&server, case);
    }
    assert_use_of_tokens_is_shown(&server);
    assert_a_refusal_is_forbidden(&server);
    assert_impossible_tokens_say_why(&server);
}

fn assert_token_permits(server: &Server, (name, roles, scopes, expected): NamedToken) {
    let flags: &[&str] = if scopes.is_empty() {
        &[]
    } else {
        &["--scope", scopes]
    };
    let token = token(server, &[&[name, "--role", roles], flags].concat());
    let billing = subscription("orders", "billing");
    let statuses = [
        ("POST", &*events_path("orders")),
        ("POST", &*events_path("bills")),
        ("POST", &*events_path("bills-eu")),
        ("GET", &*billing),
        ("GET", "/top"),
        ("POST", &*format!("{billing}/hold")),
        (
            "POST",
            &*format!("{}/hold", subscription("bills", "billing")),
        ),
        ("POST", &*format!("{RG}/topics/orders/listKeys")),
    ]
    .map(|(method, path)| status(server, &token, method, path));
    assert_eq!(statuses, expected, "{name}: {roles} for {scopes:?}");
    for topic in ["orders", "bills"] {
        server.post_verb_status(topic, "billing", "release");
        server.post_verb_status(topic, "billing", "resume");
    }
}

fn assert_use_of_tokens_is_shown(server: &Server) {
    let tokens = listed(server);
    let is_used = |name: &str| {
        tokens
            .iter()
            .any(|token| token["name"] == name && token["lastUsed"].is_string())
    };
    assert!(
        is_used("p1") && is_used("c1") && tokens.iter().all(|token| token.get("token").is_none()),
        "{tokens:?}"
    );
}

fn assert_a_refusal_is_forbidden(server: &Server) {
    let response = ask(
        server,
        &token(server, &["p4", "--role", "publish", "--scope", "topics/x"]),
        "POST",
        &events_path("orders"),
        EVENT,
    );
    assert_eq!(
        response.codes(),
        (403, "Forbidden".to_owned(), "Forbidden".to_owned()),
        "{}",
        response.text()
    );
}

fn assert_impossible_tokens_say_why(server: &Server) {
    for (arguments, problem) in [
        (&["p1", "--role", "read"][..], "exists"),
        (&["P1", "--role", "read"], "exists"),
        (&["admin", "--role", "read"], "reserved"),
        (&["x y", "--role", "read"], "expected 1 to 64 letters"),
        (
            &["x", "--role", "reader"],
            "expected one of publish, consume, portal, read, operate, admin",
        ),
        (
            &["x", "--role", "read", "--scope", "orders"],
            "expected a path that begins with topics",
        ),
        (
            &["x", "--role", "read", "--scope", "topics/orders\n"],
            "has a control character",
        ),
        (
            &["x", "--role", "read", "--scope", "labels/team=a\u{1b}b"],
            "has a control character",
        ),
        (
            &[
                "x",
                "--role",
                "read",
                "--scope",
                "topics/orders/eventSubscription/billing",
            ],
            "which no resource can be in",
        ),
        (
            &["x", "--role", "read", "--scope", "topics/orders/topics/x"],
            "which no resource can be in",
        ),
        (
            &[
                "x",
                "--role",
                "read",
                "--scope",
                "namespaces/plant/eventSubscriptions/x",
            ],
            "which no resource can be in",
        ),
        (
            &["x", "--role", "read", "--expires", "2020-01-01"],
            "not in the future",
        ),
    ] {
        let error =
            operator(server, &[&["tokens", "create"], arguments].concat()).expect_err("a refusal");
        assert!(error.contains(problem), "{arguments:?}: {error}");
    }
}

#[test]
fn a_consumer_needs_the_role_for_the_topic() {
    let server = Server::start(&[]);
    server.command(
        "PUT",
        &format!("{RG}/namespaces/plant"),
        &json!({"location": "local"}),
    );
    let queue = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    for topic in ["heat", "cold"] {
        server.command(
            "PUT",
            &format!("{RG}/namespaces/plant/topics/{topic}"),
            &json!({}),
        );
        server.command(
            "PUT",
            &format!("{RG}/namespaces/plant/topics/{topic}/eventSubscriptions/work"),
            &queue,
        );
    }
    let consumer = token(
        &server,
        &[
            "c",
            "--role",
            "consume",
            "--scope",
            "namespaces/plant/topics/heat",
        ],
    );
    let publisher = token(
        &server,
        &["p", "--role", "publish", "--scope", "namespaces/plant"],
    );
    let publish = |token: &str| {
        let headers = [
            ("authorization", &*format!("Bearer {token}")),
            ("content-type", "application/cloudevents+json"),
        ];
        let path = "/namespaces/plant/topics/heat:publish";
        server
            .client()
            .ask("POST", path, &headers, CLOUD_EVENT.as_bytes())
            .expect("a response")
            .status
    };
    assert_eq!((publish(&publisher), publish(&consumer)), (200, 403));
    let receive = |token: &str, topic: &str| {
        let path = format!(
            "/namespaces/plant/topics/{topic}/eventsubscriptions/work:receive?maxWaitTime=10"
        );
        ask(&server, token, "POST", &path, "")
    };
    let received = receive(&consumer, "heat");
    assert_eq!(received.status, 200);
    assert_eq!(
        received.json()["value"][0]["event"]["id"],
        "1",
        "{}",
        received.text()
    );
    assert_eq!(
        (
            receive(&consumer, "cold").status,
            receive(&publisher, "heat").status
        ),
        (403, 403)
    );
    // A long poll ends with its token.
    let at = server.address();
    let request = format!(
        "POST /namespaces/plant/topics/heat/eventsubscriptions/work:receive?maxWaitTime=60 \
             HTTP/1.1\r\nhost: x\r\n\
             authorization: Bearer {consumer}\r\ncontent-length: 0\r\n\r\n"
    );
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("it is sent");
    operator(&server, &["tokens", "revoke", "c", "--yes"]).expect("it is revoked");
    let mut head = String::new();
    BufReader::new(&stream)
        .read_line(&mut head)
        .expect("an answer before the poll's minute");
    assert!(head.contains("200") || head.contains("401"), "{head}");
    assert_eq!(receive(&consumer, "heat").status, 401);
}

/// A live tail, of which the status was read.
pub(super) fn tail(server: &Server, token: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    let request = format!("GET /tail HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).expect("a response");
    assert!(line.contains("200"), "{line}");
    stream
}

#[test]
fn a_revoked_token_ends_its_stream_and_its_session_and_stays_revoked_after_a_kill() {
    let mut server = Server::start(&[("LOG__FILTER", "trace")]);
    let kept = token(&server, &["kept", "--role", "read"]);
    let gone = token(&server, &["gone", "--role", "read"]);
    let short = token(&server, &["short", "--role", "read", "--expires", "1s"]);
    let sign_in = ask(&server, &gone, "POST", "/ui/session", "");
    let session = sign_in.json();
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!("gone"), &json!("read"))
    );
    let session = session_bearer(sign_in.header("set-cookie"), &session);
    assert_eq!(status(&server, &session, "GET", "/top"), 200);
    let sign_in = ask(&server, &kept, "POST", "/ui/session", "");
    let signed_out = session_bearer(sign_in.header("set-cookie"), &sign_in.json());
    let mut ended = tail(&server, &gone);
    let _open = tail(&server, &kept);
    let mut of_session = tail(&server, &signed_out);
    assert_eq!(
        ask(&server, &signed_out, "DELETE", "/ui/session", "").status,
        204
    );
    let mut rest = Vec::new();
    of_session.read_to_end(&mut rest).ok();
    assert!(
        rest.ends_with(b"0\r\n\r\n"),
        "the stream ends with its session: {}",
        String::from_utf8_lossy(&rest)
    );
    operator(&server, &["tokens", "revoke", "gone", "--yes"]).expect("it is revoked");
    let mut rest = Vec::new();
    ended.read_to_end(&mut rest).ok();
    assert!(
        rest.ends_with(b"0\r\n\r\n"),
        "the stream has its end: {}",
        String::from_utf8_lossy(&rest)
    );
    for token in [&gone, &session] {
        assert_eq!(status(&server, token, "GET", "/top"), 401);
    }
    let again = operator(&server, &["tokens", "revoke", "gone", "--yes"]).expect_err("it is gone");
    assert!(again.contains("There is no token 'gone'"), "{again}");
    wait_for("the short token's end", LONG, || {
        status(&server, &short, "GET", "/top") == 401
    });
    server.kill_9();
    server.assert_sound();
    server.restart();
    assert_eq!(
        (
            status(&server, &kept, "GET", "/top"),
            status(&server, &gone, "GET", "/top")
        ),
        (200, 401)
    );
    // The name is free, and its new token is another one.
    let fresh = token(&server, &["gone", "--role", "read"]);
    assert_eq!(
        (
            status(&server, &fresh, "GET", "/top"),
            status(&server, &gone, "GET", "/top")
        ),
        (200, 401)
    );
    // A backup from before a revocation says so when it is restored.
    let beside = tempfile::tempdir().expect("a folder");
    let backup = beside.path().join("backup");
    let backup = backup.to_str().expect("text");
    let back = beside.path().join("data");
    operator(&server, &["backup", backup]).expect("a backup");
    operator(&server, &["tokens", "revoke", "kept", "--yes"]).expect("it is revoked");
    let (restored, said) = say(&[
        "restore",
        backup,
        "--data-dir",
        back.to_str().expect("text"),
    ]);
    assert!(
        restored.success() && said.contains("that are valid again: gone, kept, short"),
        "{said}"
    );
    assert!(said.contains("gridhook tokens revoke NAME"), "{said}");
    // Neither the log nor the data folder has a token.
    server.terminate();
    let logs = server.logs();
    for secret in [&kept, &gone, &short, &fresh, &session] {
        assert!(!logs.contains(&**secret), "the log has a token");
        for entry in walk(&server.data_dir()) {
            let bytes = std::fs::read(&entry).unwrap_or_default();
            let is_there = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!is_there, "{} has a token", entry.display());
        }
    }
}

/// The files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn claims_of_the_issuer_have_roles_and_scopes() {
    let signer = Signer::new();
    let issuer = Endpoint::start(vec![respond(200, "", &signer.set().to_string())]);
    let jwks = format!("{}keys", issuer.url());
    let grants = "roles=Orders.Publisher publish topics/orders,topics/bills; groups=operators \
        operate; scp=Grid.Read read";
    let settings = [
        ("AUTH__ISSUER", "https://issuer/"),
        ("AUTH__JWKS", &jwks),
        ("AUTH__GRANTS", grants),
        ("AUTH__ADMIN_ROLE", "Grid.Admin"),
    ];
    let server = Server::start(&settings);
    server.topic("orders", "EventGridSchema");
    server.topic("other", "EventGridSchema");
    let expires = Clock::system().now().0 / 1_000_000 + 6_000;
    let token = |claims: &Value| {
        let mut all = json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": expires, "sub": "app"});
        all.as_object_mut()
            .expect("an object")
            .extend(claims.as_object().expect("claims").clone());
        signer.sign(Some("ec"), Algorithm::ES256, &all)
    };
    let admin = token(&json!({"roles": ["Grid.Admin"]}));
    wait_for("the issuer's keys", LONG, || {
        status(&server, &admin, "GET", "/top") == 200
    });
    let hold = format!("{}/hold", subscription("orders", "none"));
    for (claims, expected) in [
        (json!({"roles": ["Orders.Publisher"]}), [200, 403, 403, 403]),
        (json!({"roles": ["orders.publisher"]}), [403, 403, 403, 403]),
        (
            json!({"groups": ["others", "operators"]}),
            [403, 403, 200, 404],
        ),
        (json!({"scp": "openid Grid.Read"}), [403, 403, 200, 403]),
        (
            json!({"roles": ["Orders.Publisher"], "scp": "Grid.Read"}),
            [200, 403, 200, 403],
        ),
        (json!({"roles": ["Grid.Admin"]}), [200, 200, 200, 404]),
        (json!({}), [403, 403, 403, 403]),
    ] {
        let token = token(&claims);
        let paths = [
            ("POST", &*events_path("orders")),
            ("POST", &*events_path("other")),
            ("GET", "/top"),
            ("POST", &*hold),
        ];
        let found = paths.map(|(method, path)| status(&server, &token, method, path));
        assert_eq!(found, expected, "{claims}");
    }
    // A rule that cannot be read stops the start, and says why.
    for (rule, problem) in [
        ("roles=A writer", "the role is \"writer\"; expected publish"),
        ("roles publish", "expected \"CLAIM=VALUE ROLE\""),
        ("roles=A publish orders", "a scope is \"orders\""),
        // Not the whole server.
        ("roles=A admin ,", "a scope is \"\""),
        ("roles=A admin topics/orders,", "a scope is \"\""),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut settings = settings;
        settings[2].1 = rule;
        let (status, log) = Server::with_data_dir(&folder.path().join("data"), &settings)
            .try_restart()
            .expect_err("it does not start");
        assert!(
            !status.success() && log.contains("auth.grants") && log.contains(problem),
            "{rule}: {log}"
        );
    }
}

/// Everything that a reader could change.
pub(super) fn state(server: &Server) -> Value {
    let get = |path: &str| server.command("GET", path, &Value::Null).json();
    let post = |path: &str| server.command("POST", path, &Value::Null).json();
    let whole = "/subscriptions/s/providers/Microsoft.EventGrid";
    let lists = ["topics", "domains", "namespaces", "eventSubscriptions"]
        .map(|kind| get(&format!("{whole}/{kind}")));
    let keys = [
        "topics/orders",
        "domains/shops",
        "namespaces/plant",
        "namespaces/plant/topics/heat",
    ]
    .map(|of| post(&format!("{RG}/{of}/listKeys")));
    let names: Vec<Value> = listed(server)
        .iter()
        .map(|token| token["name"].clone())
        .collect();
    let status = server.status("orders", "billing");
    let replays = get(&format!("{}/replays", subscription("orders", "billing")));
    let topic = server.topic_status("orders");
    let published = [
        &topic["published"],
        &topic["subscriptions"],
        &topic["logBeforeSequence"],
    ];
    let clock = get("/clock")["expiryPaused"].clone();
    json!([
        lists,
        keys,
        names,
        status["health"],
        status["counters"],
        replays,
        published,
        get("/chaos"),
        clock
    ])
}

/// A request for an operation of `/openapi.json`.
pub(super) struct Request {
    /// Method and path, for messages.
    pub(super) of: String,
    pub(super) method: String,
    pub(super) template: String,
    pub(super) path: String,
    /// The example of the document.
    pub(super) body: String,
    /// The roles that may use the operation of the control plane, the usual one first.
    pub(super) roles: Vec<String>,
    /// Whether it needs no token.
    pub(super) is_open: bool,
}

/// Requests for all operations, but for the stream of `/tail`, which has no end.
pub(super) fn requests(server: &Server, event_subscription: &str) -> Vec<Request> {
    let document = server
        .request_without_token("GET", "/openapi.json", &[])
        .json();
    let mut requests = Vec::new();
    let paths = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .filter(|(path, _)| *path != "/tail");
    for (template, item) in paths {
        let is_namespace = template.contains("namespaceName");
        let value = |part: &str| match part {
            "{subscriptionId}" => "s",
            "{resourceGroupName}" => "r",
            "{topicName}" if is_namespace => "heat",
            "{topicName}" | "{topic}" => "orders",
            "{domainName}" | "{domain}" => "shops",
            "{domainTopicName}" => "berlin",
            "{namespaceName}" | "{namespace}" => "plant",
            "{eventSubscriptionName}" => event_subscription,
            "{tokenName}" => "reader",
            "{sequence}" => "1",
            other => if other.starts_with('{') { "1" } else { other }
                .to_owned()
                .leak(),
        };
        // An operation of a namespace's topic follows the name in the same segment.
        let path: Vec<String> = template
            .split('/')
            .map(|part| match part.split_once("}:") {
                Some((name, verb)) => format!("{}:{verb}", value(&format!("{name}}}"))),
                None => value(part).to_owned(),
            })
            .collect();
        let path = path.join("/");
        let operations = item.as_object().expect("operations").iter();
        for (method, operation) in
            operations.filter(|(key, _)| !["parameters", "head"].contains(&key.as_str()))
        {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            let security = operation["security"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let role = |scheme: &Value| scheme["admin"][0].as_str().map(str::to_owned);
            requests.push(Request {
                of: format!("{method} {path}"),
                method: method.to_uppercase(),
                template: template.clone(),
                path: path.clone(),
                body: if example.is_null() {
                    "{}".to_owned()
                } else {
                    example.to_string()
                },
                roles: security.iter().filter_map(role).collect(),
                is_open: security.is_empty(),
            });
        }
    }
    requests
}

/// Topics of each kind, each with these event subscriptions. The webhooks have the name as their
/// label `team`.
pub(super) fn one_of_each_kind(server: &Server, sink: &Sink, names: &[&str]) {
    let queue = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}}});
    server.topic("orders", "EventGridSchema");
    server.command("PUT", &format!("{RG}/domains/shops"), &json!({}));
    server.command(
        "PUT",
        &format!("{RG}/namespaces/plant"),
        &json!({"location": "local"}),
    );
    server.command(
        "PUT",
        &format!("{RG}/namespaces/plant/topics/heat"),
        &json!({}),
    );
    for name in names {
        let spec = SubscriptionSpec::new(&sink.url(&format!("/{name}"))).dead_letters("letters");
        let webhook = json!({"properties": spec.also(&json!({}), &json!({"labels": [format!("team={name}")]})).properties()});
        for at in [
            "topics/orders",
            "domains/shops",
            "domains/shops/topics/berlin",
        ] {
            server.command(
                "PUT",
                &format!("{RG}/{at}/eventSubscriptions/{name}"),
                &webhook,
            );
        }
        server.command(
            "PUT",
            &format!("{RG}/namespaces/plant/topics/heat/eventSubscriptions/{name}"),
            &queue,
        );
    }
}

#[test]
fn a_read_token_tried_on_every_route_changes_nothing() {
    let server = Server::start(&[("CHAOS__ENABLED", "true")]);
    let sink = Sink::start();
    one_of_each_kind(&server, &sink, &["billing"]);
    let reader = token(&server, &["reader", "--role", "read"]);
    let before = state(&server);

    let mut refused = 0;
    let mut shown = 0;
    for Request {
        of,
        method,
        path,
        body,
        roles,
        is_open,
        ..
    } in requests(&server, "billing")
    {
        let response = ask(&server, &reader, &method, &path, &body);
        match roles.first().map(String::as_str) {
            Some("operate" | "admin") => {
                assert_eq!(response.status, 403, "{of}: {}", response.text());
                refused += 1;
            }
            Some(_) => {
                assert!(
                    ![401, 403, 405, 500].contains(&response.status),
                    "{of}: {} {}",
                    response.status,
                    response.text()
                );
                shown += 1;
            }
            None if is_open => {}
            // The data plane: a reader neither publishes nor consumes. A host decides about the
            // short paths.
            None => assert!(
                response.status >= 400,
                "{of}: {} {}",
                response.status,
                response.text()
            ),
        }
    }
    assert!(
        refused > 80 && shown > 80,
        "{refused} refused, {shown} shown"
    );
    assert_eq!(state(&server), before, "a reader changed something");
    assert!(sink.taken("/billing") == 0, "a reader published");
    // The same requests of an administrator do change something, so the comparison can fail.
    server.command(
        "POST",
        &format!("{RG}/topics/orders/regenerateKey"),
        &json!({"keyName": "key2"}),
    );
    assert_ne!(state(&server), before);
}

/// A response without its time and its request's id, and with other names in place of these.
fn neutral(response: &Response, names: &[(&str, &str)]) -> String {
    let is_own = |line: &&str| {
        let name = line.to_ascii_lowercase();
        // Whether the connection ends depends on how much of the body has arrived.
        let name = name.split(':').next().unwrap_or_default();
        ["date", "connection"].contains(&name) || name.ends_with("request-id")
    };
    let ids = ["x-ms-request-id", "x-ms-correlation-request-id"]
        .into_iter()
        .filter_map(|name| response.header(name));
    let mut head: Vec<&str> = response
        .head()
        .lines()
        .filter(|line| !is_own(line))
        .collect();
    head.sort_unstable();
    let text = ids.fold(format!("{head:?} {}", response.text()), |text, id| {
        text.replace(id, "ID")
    });
    names
        .iter()
        .fold(text, |text, (name, other)| text.replace(name, other))
}

#[test]
fn a_scoped_token_does_not_learn_whether_a_resource_of_others_exists() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    one_of_each_kind(&server, &sink, &["billing"]);
    let mine = json!({"tags": {"team": "mine"}, "properties": {}});
    server.command("PUT", &format!("{RG}/topics/mine"), &mine);
    // Names of the same length, because responses contain lengths.
    let names = [
        ("0rders", "orders"),
        ("sh0ps", "shops"),
        ("p1ant", "plant"),
        ("b1lling", "billing"),
    ];
    let absent = |path: &str| {
        names.iter().fold(path.to_owned(), |path, (absent, name)| {
            path.replace(name, absent)
        })
    };
    let ids = [
        "topics/orders",
        "domains/shops",
        "domains/shops/topics/berlin",
        "namespaces/plant/topics/heat",
    ];
    let queries = ["/top", "/deadLetters", "/tail"]
        .into_iter()
        .flat_map(|list| {
            ids.iter().map(move |id| {
                (
                    "GET".to_owned(),
                    format!("{list}?topic={RG}/{id}"),
                    String::new(),
                )
            })
        });
    // Anyone may ask the data plane for a topic.
    let routes = requests(&server, "billing")
        .into_iter()
        .filter(|request| !request.roles.is_empty());
    let routes = routes.map(|request| (request.method, request.path, request.body));
    let asked: Vec<(String, String, String)> = routes
        .chain(queries)
        .filter(|(_, path, _)| absent(path) != *path)
        .collect();
    let mut compared = 0;
    for (number, scope) in ["topics/mine", "labels/team=mine"].into_iter().enumerate() {
        for role in ["read", "operate", "admin", "portal"] {
            let name = format!("{role}-{number}");
            let token = token(
                &server,
                &[&name, "--role", role, "--scope", scope, "--expires", "2h"],
            );
            for (method, path, body) in &asked {
                let existing = ask(&server, &token, method, path, body);
                let missing = ask(&server, &token, method, &absent(path), body);
                let of = format!("{role} {scope}: {method} {path}");
                assert_eq!(neutral(&existing, &[]), neutral(&missing, &names), "{of}");
                compared += 1;
            }
        }
    }
    assert!(compared > 500, "{compared} requests");
    // An administrator of everything gets the reason.
    let top = format!("/top?topic={RG}/topics/orders");
    let everything = token(&server, &["everything", "--role", "admin"]);
    let found = [top.clone(), absent(&top)].map(|path| status(&server, &everything, "GET", &path));
    assert_eq!(found, [200, 404]);
}
