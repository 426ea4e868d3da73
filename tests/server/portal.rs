//! Portal links on the real binary: what such a token may do, and what not; and lists for scoped
//! tokens.

use std::{collections::BTreeSet, io::BufRead};

use serde_json::{Value, json};

use super::tokens::{
    EVENT, RG, Request, ask, one_of_each_kind, requests, state, status, tail, token,
};
use crate::support::{
    http::{Answer, Client},
    server::{Server, SubscriptionSpec, operator, operator_with, subscription},
    sink::Sink,
};

/// What a portal link is for, below an event subscription.
const OF_PORTALS: [(&str, &str); 12] = [
    ("GET", ""),
    ("PATCH", ""),
    ("GET", "/status"),
    ("GET", "/ledger"),
    ("GET", "/request"),
    ("GET", "/deadLetters"),
    ("GET", "/deadLetters/{deadLetterKey}"),
    ("POST", "/deadLetters/redrive"),
    ("POST", "/testFilter"),
    ("POST", "/testTransform"),
    ("GET", "/replays"),
    ("GET", "/replays/{replayId}"),
];

const MAIN: [&str; 4] = ["orders", "shops", "berlin", "heat"];

#[test]
fn a_portal_token_tried_on_every_route_does_its_four_things_on_its_own_event_subscriptions_only() {
    let server = Server::start(&[("CHAOS__ENABLED", "true")]);
    let sink = Sink::start();
    one_of_each_kind(&server, &sink, &["billing", "other"]);
    token(&server, &["reader", "--role", "read"]);
    let scopes = "labels/team=billing,namespaces/plant/topics/heat/eventSubscriptions/billing";
    let portal = token(
        &server,
        &[
            "portal",
            "--role",
            "portal",
            "--scope",
            scopes,
            "--expires",
            "8h",
        ],
    );
    let own = |template: &str| {
        template
            .split_once("/eventSubscriptions/{eventSubscriptionName}")
            .map(|(_, action)| action.to_owned())
    };
    let endpoint =
        json!({"destination": {"properties": {"endpointUrl": sink.url("/new")}}}).to_string();
    let before = state(&server);
    // Others' event subscriptions, topics and the server first: nothing is permitted, and nothing
    // has changed.
    let mut refused = 0;
    let mut permitted = 0;
    for name in ["other", "billing"] {
        for Request {
            of,
            method,
            template,
            path,
            body,
            roles,
            is_open,
        } in requests(&server, name)
        {
            let action = own(&template).filter(|_| name == "billing");
            // The event subscription of the namespace is pulled.
            let is_pulled = method == "PATCH" && template.contains("namespaceName");
            let is_own = !is_pulled
                && action.is_some_and(|action| OF_PORTALS.contains(&(&*method, &*action)));
            let is_for_all = method == "GET" && ["/top", "/ui/session"].contains(&&*template);
            let body = match &*method {
                "PATCH" if is_own => &endpoint,
                "POST"
                    if template.ends_with("/testFilter")
                        || template.ends_with("/testTransform") =>
                {
                    r#"{"events": []}"#
                }
                _ => &body,
            };
            let answer = ask(&server, &portal, &method, &path, body);
            if is_open {
                continue;
            }
            if is_own || is_for_all {
                let is_shown = ![401, 403, 405, 500].contains(&answer.status);
                assert!(
                    is_shown && roles.last().is_some_and(|role| role == "portal"),
                    "{of}: {} {}",
                    answer.status,
                    answer.text()
                );
                permitted += 1;
            } else if roles.is_empty() {
                // The data plane. A host decides about the short paths.
                assert!(
                    answer.status >= 400,
                    "{of}: {} {}",
                    answer.status,
                    answer.text()
                );
            } else {
                assert_eq!(answer.status, 403, "{of}: {}", answer.text());
                refused += 1;
            }
        }
        if name == "other" {
            assert_eq!(
                state(&server),
                before,
                "a portal link changed what is not its own"
            );
        }
    }
    assert!(
        refused > 400 && permitted > 60,
        "{refused} refused, {permitted} permitted"
    );
    let top = ask(&server, &portal, "GET", "/top", "").json();
    let mut listed: Vec<_> = top["top"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| {
            [&line["topic"], &line["subscription"]].map(|text| {
                text.as_str()
                    .expect("text")
                    .rsplit('/')
                    .next()
                    .expect("a name")
                    .to_owned()
            })
        })
        .collect();
    listed.sort();
    let mut expected = MAIN.map(|topic| [topic.to_owned(), "billing".to_owned()]);
    expected.sort();
    assert_eq!(
        (top["subscriptions"].as_u64(), listed),
        (Some(4), expected.to_vec()),
        "{top}"
    );
    assert_eq!(
        ask(&server, &portal, "GET", "/ui/session", "").json()["role"],
        "portal"
    );
    let shown = server.get_subscription("orders", "billing").json();
    assert_eq!(
        shown["properties"]["destination"]["properties"]["endpointBaseUrl"],
        sink.url("/new")
    );
    assert_eq!(shown["systemData"]["lastModifiedBy"], "portal");
    // The trail has what it changed and what was refused, and not its secret.
    let trail = server
        .command("GET", "/audit?top=1000", &Value::Null)
        .text();
    for recorded in [
        "\"operator\":\"portal\"",
        "\"status\":403",
        "endpointBaseUrl",
    ] {
        assert!(trail.contains(recorded), "{recorded} in the audit trail");
    }
    assert!(!trail.contains(&portal), "the audit trail has the token");
    operator(&server, &["tokens", "revoke", "portal", "--yes"]).expect("it is revoked");
    assert_eq!(status(&server, &portal, "GET", "/top"), 401);
}

#[test]
fn a_portal_link_changes_an_address_only_and_its_token_is_narrow_and_short() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    let secret = json!([{"name": "x-key", "type": "Static", "properties": {"value": "s3cret", "isSecret": true}}]);
    server.subscribe("orders", "plain", &SubscriptionSpec::new(&sink.url("/")));
    server.subscribe(
        "orders",
        "secret",
        &SubscriptionSpec::new(&sink.url("/")).webhook("deliveryAttributeMappings", secret),
    );
    let created = operator(
        &server,
        &[
            "tokens",
            "create",
            "p",
            "--role",
            "portal",
            "--scope",
            "topics/orders",
            "--expires",
            "8h",
        ],
    )
    .expect("a link");
    let link = created
        .lines()
        .find_map(|line| line.strip_prefix("link"))
        .expect("the link")
        .trim();
    let (page, portal) = link.split_once("#token=").expect("a fragment");
    assert_eq!(page, format!("http://{}/ui/", server.at()));
    let to = |url: &str| json!({"destination": {"properties": {"endpointUrl": url}}});
    let other_host = sink.url("/moved").replace("127.0.0.1", "localhost");
    let only = "endpointUrl of a webhook and nothing else";
    let mut batch = to(&sink.url("/"));
    batch["destination"]["properties"]["maxEventsPerBatch"] = json!(10);
    for (name, body, expected) in [
        ("plain", to(&sink.url("/moved")), Ok(())),
        ("plain", to(&other_host), Ok(())),
        ("secret", to(&sink.url("/moved")), Ok(())),
        ("secret", to(&other_host), Err("another host would receive")),
        ("plain", json!({"labels": ["team=other"]}), Err(only)),
        (
            "plain",
            json!({"filter": {}, "destination": to("http://127.0.0.1/")["destination"]}),
            Err(only),
        ),
        ("plain", batch, Err(only)),
        (
            "plain",
            json!({"destination": [[sink.url("/")]]}),
            Err(only),
        ),
        (
            "plain",
            json!({"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}}}),
            Err(only),
        ),
        (
            "plain",
            json!({"destination": {"endpointType": "StorageQueue", "properties": {"resourceId": "/r", "queueName": "q"}}}),
            Err(only),
        ),
    ] {
        let answer = ask(
            &server,
            portal,
            "PATCH",
            &subscription("orders", name),
            &body.to_string(),
        );
        match expected {
            Ok(()) => assert_eq!(answer.status, 201, "{name} {body}: {}", answer.text()),
            Err(why) => {
                assert!(
                    answer.status == 403 && answer.text().contains(why),
                    "{name} {body}: {}",
                    answer.text()
                )
            }
        }
    }
    // A push subscription of a namespace topic has another form.
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
    let [pushed, pulled] = ["pushed", "pulled"]
        .map(|name| format!("{RG}/namespaces/plant/topics/heat/eventSubscriptions/{name}"));
    let mode = |mode: &Value| json!({"properties": {"deliveryConfiguration": mode}});
    let hook = json!({"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}});
    server.command(
        "PUT",
        &pushed,
        &mode(&json!({"deliveryMode": "Push", "push": {"destination": hook}})),
    );
    server.command("PUT", &pulled, &mode(&json!({"deliveryMode": "Queue"})));
    let other = operator(
        &server,
        &[
            "tokens",
            "create",
            "n",
            "--role",
            "portal",
            "--scope",
            "namespaces/plant",
            "--expires",
            "8h",
            "--output",
            "json",
        ],
    );
    let other: Value = serde_json::from_str(&other.expect("a link")).expect("JSON");
    let other = other["token"].as_str().expect("a token");
    let push = |change: Value| mode(&json!({"push": change}));
    for (path, body, expected) in [
        (&pushed, push(to(&sink.url("/moved"))), Ok(())),
        (&pushed, push(json!({"maxDeliveryCount": 2})), Err(only)),
        (&pushed, to(&sink.url("/moved")), Err(only)),
        (
            &pulled,
            push(to(&sink.url("/moved"))),
            Err("is not a webhook"),
        ),
    ] {
        let answer = ask(&server, other, "PATCH", path, &body.to_string());
        match expected {
            Ok(()) => assert!(
                [200, 201].contains(&answer.status),
                "{path} {body}: {}",
                answer.text()
            ),
            Err(why) => {
                assert!(
                    answer.status == 403 && answer.text().contains(why),
                    "{path} {body}: {}",
                    answer.text()
                )
            }
        }
    }
    // The command of the dashboard's page, too.
    let file = server.data_dir().join("portal-token");
    std::fs::write(&file, portal).expect("a file");
    let moved = sink.url("/command");
    operator_with(
        &server,
        &file,
        &[
            "subscriptions",
            "update",
            &format!("{RG}/topics/orders"),
            "plain",
            "--endpoint",
            &moved,
        ],
    )
    .expect("the address changes");
    let shown = server
        .command("GET", &subscription("orders", "plain"), &Value::Null)
        .json();
    assert_eq!(
        shown["properties"]["destination"]["properties"]["endpointBaseUrl"],
        moved
    );
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (test, key, draft) in [
        ("testFilter", "filter", "{}"),
        ("testTransform", "transform", r#"{"body": "@"}"#),
    ] {
        let test = format!("{}/{test}", subscription("orders", "plain"));
        for body in [
            format!(r#"{{"{key}": {draft}, "last": 10}}"#),
            format!(r#"{{"last": 0, "{key}": {draft}, "last": 10}}"#),
            format!(r#"{{"{key}": 1e999, "{key}": {draft}, "last": 10}}"#),
            format!(r#"{{"{key}": {deep}, "{key}": {draft}, "last": 10}}"#),
        ] {
            let newest = ask(&server, portal, "POST", &test, &body);
            assert!(
                newest.status == 403 && newest.text().contains("give events to test"),
                "{body}: {}",
                newest.text()
            );
        }
    }
    let test = format!("{}/testFilter", subscription("orders", "plain"));
    assert_eq!(
        ask(&server, portal, "POST", &test, EVENT).json()["matched"],
        1
    );
    for (arguments, problem) in [
        (
            &["--role", "portal", "--expires", "8h"][..],
            "scopes is empty",
        ),
        (&["--role", "portal", "--scope", "topics/orders"], "7 days"),
        (
            &[
                "--role",
                "portal",
                "--scope",
                "topics/orders",
                "--expires",
                "8d",
            ],
            "7 days",
        ),
        (
            &[
                "--role",
                "portal,operate",
                "--scope",
                "topics/orders",
                "--expires",
                "8h",
            ],
            "portal alone",
        ),
    ] {
        let error = operator(&server, &[&["tokens", "create", "q"], arguments].concat())
            .expect_err("a refusal");
        assert!(error.contains(problem), "{arguments:?}: {error}");
    }
}

/// The names of a list of resources.
fn names(answer: &Answer) -> Vec<String> {
    let list = answer.json();
    let name = |one: &Value| one["name"].as_str().expect("a name").to_owned();
    list["value"]
        .as_array()
        .unwrap_or_else(|| panic!("{list}"))
        .iter()
        .map(name)
        .collect()
}

#[test]
fn lists_and_the_tail_have_what_the_scopes_of_a_token_cover() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let keys = ["orders", "bills"].map(|topic| server.topic(topic, "EventGridSchema"));
    for (topic, name) in [("orders", "mine"), ("orders", "other"), ("bills", "mine")] {
        let labels = if name == "mine" {
            json!(["team=shop"])
        } else {
            json!([])
        };
        let spec = SubscriptionSpec::new(&sink.url("/"))
            .dead_letters("letters")
            .also(&json!({}), &json!({"labels": labels}));
        server.subscribe(topic, name, &spec);
    }
    for (topic, key, names) in [
        ("orders", &keys[0], &["mine", "other"][..]),
        ("bills", &keys[1], &["mine"]),
    ] {
        for _ in 0..5 {
            server.publish(topic, key, EVENT.as_bytes());
        }
        // A job that does not end by itself.
        for name in names {
            let replays = format!("{}/replays", subscription(topic, name));
            server.command("POST", &replays, &json!({"eventsPerSecond": 0.001}));
        }
    }
    server.command(
        "PUT",
        &format!("{RG}/namespaces/plant"),
        &json!({"location": "local", "tags": {"team": "shop"}}),
    );
    server.command("PUT", &format!("{RG}/domains/shops"), &json!({}));
    let whole = "/subscriptions/s/providers/Microsoft.EventGrid";
    let lists = |token: &str| {
        let list = |path: &str| names(&ask(&server, token, "GET", path, ""));
        [
            list(&format!("{whole}/topics")),
            list(&format!("{whole}/namespaces")),
            list(&format!("{whole}/domains")),
            list(&format!("{RG}/eventSubscriptions")),
            list(&format!("{RG}/topics/orders/eventSubscriptions")),
        ]
        .map(|names| names.join(","))
    };
    let [of_label, of_topic, all] = [("l", "labels/team=shop"), ("t", "topics/orders"), ("a", "")]
        .map(|(name, scope)| {
            let scope: &[&str] = if scope.is_empty() {
                &[]
            } else {
                &["--scope", scope]
            };
            token(&server, &[&[name, "--role", "read"], scope].concat())
        });
    assert_eq!(lists(&of_label), ["", "plant", "", "mine,mine", "mine"]);
    assert_eq!(
        lists(&of_topic),
        ["orders", "", "", "mine,other", "mine,other"]
    );
    assert_eq!(
        lists(&all),
        [
            "bills,orders",
            "plant",
            "shops",
            "mine,mine,other",
            "mine,other"
        ]
    );
    for (token, jobs) in [(&of_label, 2), (&of_topic, 2), (&all, 3)] {
        assert_eq!(ask(&server, token, "GET", "/jobs", "").json()["open"], jobs);
        assert_eq!(status(&server, token, "GET", "/deadLetters"), 200);
        assert_eq!(
            status(&server, token, "GET", "/supervision"),
            if jobs == 3 { 200 } else { 403 }
        );
    }
    let tails = [&of_label, &of_topic, &all].map(|token| tail(&server, token));
    server.publish("bills", &keys[1], EVENT.as_bytes());
    server.publish("orders", &keys[0], EVENT.as_bytes());
    // Events of topics and outcomes of event subscriptions, until the last that is expected.
    let expected: [&[&str]; 3] = [
        &["bills mine", "orders mine"],
        &["orders", "orders mine", "orders other"],
        &[
            "bills",
            "bills mine",
            "orders",
            "orders mine",
            "orders other",
        ],
    ];
    for (mut tail, expected) in tails.into_iter().zip(expected) {
        let mut seen = BTreeSet::new();
        while seen.len() < expected.len() {
            let mut line = String::new();
            tail.read_line(&mut line).expect("a line in time");
            let Ok(line) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            let Some(topic) = line["topic"].as_str() else {
                continue;
            };
            let topic = topic.rsplit('/').next().expect("a name");
            seen.insert(match line["subscription"].as_str() {
                Some(subscription) => format!("{topic} {subscription}"),
                None => topic.to_owned(),
            });
        }
        assert_eq!(
            seen.iter().map(String::as_str).collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn a_client_of_the_operators_listener_does_not_choose_the_host_of_links() {
    let server = Server::start(&[("SERVER__ADMIN_LISTEN", "127.0.0.1:0")]);
    let log = server.logs();
    let operators = log
        .split("the control plane is at ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("an address");
    let at = operators
        .trim_start_matches("http://")
        .parse()
        .expect("an address");
    let admin = std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let authorization = format!("Bearer {}", admin.trim());
    let headers = [
        ("authorization", authorization.as_str()),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "host=evil.example;proto=https"),
    ];
    let ask = |method: &str, path: &str, body: &str| {
        Client::with_tls(at, None)
            .ask(method, path, &headers, body.as_bytes())
            .expect("a response")
            .json()
    };
    for number in 0..3 {
        ask("PUT", &format!("{RG}/topics/topic-{number}"), "{}");
    }
    let link =
        r#"{"name": "p", "roles": ["portal"], "scopes": ["topics/topic-1"], "expires": "EXPIRES"}"#;
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let link = ask(
        "POST",
        "/tokens",
        &link.replace("EXPIRES", &expires.to_string()),
    )["link"]
        .clone();
    let next = ask("GET", &format!("{RG}/topics?$top=1"), "")["nextLink"].clone();
    let manager = ask("GET", "/metadata/endpoints?api-version=2022-09-01", "");
    for (what, text) in [("link", &link), ("nextLink", &next)] {
        assert!(
            text.as_str()
                .is_some_and(|text| text.starts_with(operators)),
            "{what}: {text}"
        );
    }
    assert!(
        !manager.to_string().contains("evil") && manager.to_string().contains(operators),
        "{manager}"
    );
}
