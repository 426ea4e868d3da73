//! Portal links on the real binary: what such a token may do, and what not; and lists for scoped
//! tokens.

use std::{collections::BTreeSet, io::BufRead};

use serde_json::{Value, json};

use super::tokens::{
    EVENT, RG, Request, ask, one_of_each_kind, requests, state, status, tail, token,
};
use crate::support::{
    http::{Client, Response},
    server::{Server, SubscriptionSpec, operator, operator_with, subscription},
    sink::Sink,
};

/// The operations of a portal link, below an event subscription.
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
    let portal = create_portal_token(&server);
    let endpoint = move_to(&sink.url("/new")).to_string();
    let before = state(&server);
    // First the event subscriptions of others, which must not change.
    let counts_of_others = assert_responses_to(&server, &portal, "other", &endpoint);
    assert_eq!(
        state(&server),
        before,
        "a portal link changed what is not its own"
    );
    let counts_of_own = assert_responses_to(&server, &portal, "billing", &endpoint);
    let refused = counts_of_others.refused + counts_of_own.refused;
    let permitted = counts_of_others.permitted + counts_of_own.permitted;
    assert!(
        refused > 400 && permitted > 60,
        "{refused} refused, {permitted} permitted"
    );
    assert_top_lists_own_subscriptions(&server, &portal);
    let shown = server.get_subscription("orders", "billing").json();
    assert_eq!(
        shown["properties"]["destination"]["properties"]["endpointBaseUrl"],
        sink.url("/new")
    );
    assert_eq!(shown["systemData"]["lastModifiedBy"], "portal");
    assert_the_trail_has_what_it_did(&server, &portal);
    operator(&server, &["tokens", "revoke", "portal", "--yes"]).expect("it is revoked");
    assert_eq!(status(&server, &portal, "GET", "/top"), 401);
}

fn create_portal_token(server: &Server) -> String {
    let scopes = "labels/team=billing,namespaces/plant/topics/heat/eventSubscriptions/billing";
    token(
        server,
        &[
            "portal",
            "--role",
            "portal",
            "--scope",
            scopes,
            "--expires",
            "8h",
        ],
    )
}

/// How many requests were refused, and how many were permitted.
struct Counts {
    refused: usize,
    permitted: usize,
}

/// Sends a request of every route to the event subscriptions of this name, of which `billing` are
/// those of the token.
fn assert_responses_to(server: &Server, portal: &str, name: &str, endpoint: &str) -> Counts {
    let mut counts = Counts {
        refused: 0,
        permitted: 0,
    };
    for request in requests(server, name) {
        let is_own = name == "billing" && is_for_portals(&request);
        let body = match &*request.method {
            "PATCH" if is_own => endpoint,
            "POST" if is_test(&request.template) => r#"{"events": []}"#,
            _ => &request.body,
        };
        let response = ask(server, portal, &request.method, &request.path, body);
        let problem = format!("{}: {} {}", request.of, response.status, response.text());
        let is_for_all =
            request.method == "GET" && ["/top", "/ui/session"].contains(&&*request.template);
        if request.is_open {
            continue;
        }
        if is_own || is_for_all {
            let is_shown = ![401, 403, 405, 500].contains(&response.status);
            let is_listed = request.roles.last().is_some_and(|role| role == "portal");
            assert!(is_shown && is_listed, "{problem}");
            counts.permitted += 1;
        } else if request.roles.is_empty() {
            // The data plane. A host decides about the short paths.
            assert!(response.status >= 400, "{problem}");
        } else {
            assert_eq!(response.status, 403, "{problem}");
            counts.refused += 1;
        }
    }
    counts
}

fn is_test(template: &str) -> bool {
    template.ends_with("/testFilter") || template.ends_with("/testTransform")
}

/// Whether a portal token may send this request to its own event subscriptions.
fn is_for_portals(request: &Request) -> bool {
    // The event subscription of the namespace is pulled, so it has no address.
    if request.method == "PATCH" && request.template.contains("namespaceName") {
        return false;
    }
    request
        .template
        .split_once("/eventSubscriptions/{eventSubscriptionName}")
        .is_some_and(|(_, action)| OF_PORTALS.contains(&(&*request.method, action)))
}

fn assert_top_lists_own_subscriptions(server: &Server, portal: &str) {
    let top = ask(server, portal, "GET", "/top", "").json();
    let mut names: Vec<_> = top["top"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| [last_name(&line["topic"]), last_name(&line["subscription"])])
        .collect();
    names.sort();
    let mut expected = MAIN.map(|topic| [topic.to_owned(), "billing".to_owned()]);
    expected.sort();
    assert_eq!(
        (top["subscriptions"].as_u64(), names),
        (Some(4), expected.to_vec()),
        "{top}"
    );
    assert_eq!(
        ask(server, portal, "GET", "/ui/session", "").json()["role"],
        "portal"
    );
}

/// The last segment of a path.
fn last_name(path: &Value) -> String {
    let path = path.as_str().expect("text");
    path.rsplit('/').next().expect("a name").to_owned()
}

/// The trail has what the token changed and what was refused, and not its secret.
fn assert_the_trail_has_what_it_did(server: &Server, portal: &str) {
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
    assert!(!trail.contains(portal), "the audit trail has the token");
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
    let portal = &create_portal_link(&server);
    assert_a_portal_changes_an_address_only(&server, &sink, portal);
    assert_a_portal_changes_an_address_of_a_namespace_only(&server, &sink);
    change_the_address_with_the_command(&server, &sink, portal);
    assert_tests_need_their_own_events(&server, portal);
    assert_a_portal_token_is_narrow_and_short(&server);
}

/// Creates a portal link, and returns its token.
fn create_portal_link(server: &Server) -> String {
    let output = operator(
        server,
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
    let link = output
        .lines()
        .find_map(|line| line.strip_prefix("link"))
        .expect("the link")
        .trim();
    let (page, portal) = link.split_once("#token=").expect("a fragment");
    assert_eq!(page, format!("http://{}/ui/", server.address()));
    portal.to_owned()
}

const ONLY_THE_ADDRESS: &str = "endpointUrl of a webhook and nothing else";

fn assert_a_portal_changes_an_address_only(server: &Server, sink: &Sink, portal: &str) {
    let other_host = sink.url("/moved").replace("127.0.0.1", "localhost");
    let mut batch = move_to(&sink.url("/"));
    batch["destination"]["properties"]["maxEventsPerBatch"] = json!(10);
    for (name, body, expected) in [
        ("plain", move_to(&sink.url("/moved")), Ok(())),
        ("plain", move_to(&other_host), Ok(())),
        ("secret", move_to(&sink.url("/moved")), Ok(())),
        (
            "secret",
            move_to(&other_host),
            Err("another host would receive"),
        ),
        (
            "plain",
            json!({"labels": ["team=other"]}),
            Err(ONLY_THE_ADDRESS),
        ),
        (
            "plain",
            json!({"filter": {}, "destination": move_to("http://127.0.0.1/")["destination"]}),
            Err(ONLY_THE_ADDRESS),
        ),
        ("plain", batch, Err(ONLY_THE_ADDRESS)),
        (
            "plain",
            json!({"destination": [[sink.url("/")]]}),
            Err(ONLY_THE_ADDRESS),
        ),
        (
            "plain",
            json!({"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": sink.url("/")}}}),
            Err(ONLY_THE_ADDRESS),
        ),
        (
            "plain",
            json!({"destination": {"endpointType": "StorageQueue", "properties": {"resourceId": "/r", "queueName": "q"}}}),
            Err(ONLY_THE_ADDRESS),
        ),
    ] {
        let path = subscription("orders", name);
        let response = ask(server, portal, "PATCH", &path, &body.to_string());
        assert_outcome(&response, expected, &format!("{name} {body}"));
    }
}

/// A change of the address of a webhook.
fn move_to(url: &str) -> Value {
    json!({"destination": {"properties": {"endpointUrl": url}}})
}

/// Asserts that a change was made, or that it was refused with this text.
fn assert_outcome(response: &Response, expected: Result<(), &str>, change: &str) {
    let text = response.text();
    let is_as_expected = match expected {
        Ok(()) => [200, 201].contains(&response.status),
        Err(reason) => response.status == 403 && text.contains(reason),
    };
    assert!(is_as_expected, "{change}: {} {text}", response.status);
}

/// A push subscription of a namespace topic has another form.
fn assert_a_portal_changes_an_address_of_a_namespace_only(server: &Server, sink: &Sink) {
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
    let portal = operator(
        server,
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
    let portal: Value = serde_json::from_str(&portal.expect("a link")).expect("JSON");
    let portal = portal["token"].as_str().expect("a token");
    let push = |change: Value| mode(&json!({"push": change}));
    for (path, body, expected) in [
        (&pushed, push(move_to(&sink.url("/moved"))), Ok(())),
        (
            &pushed,
            push(json!({"maxDeliveryCount": 2})),
            Err(ONLY_THE_ADDRESS),
        ),
        (&pushed, move_to(&sink.url("/moved")), Err(ONLY_THE_ADDRESS)),
        (
            &pulled,
            push(move_to(&sink.url("/moved"))),
            Err("is not a webhook"),
        ),
    ] {
        let response = ask(server, portal, "PATCH", path, &body.to_string());
        assert_outcome(&response, expected, &format!("{path} {body}"));
    }
}

/// Runs the command that the dashboard shows.
fn change_the_address_with_the_command(server: &Server, sink: &Sink, portal: &str) {
    let file = server.data_dir().join("portal-token");
    std::fs::write(&file, portal).expect("a file");
    let address = sink.url("/command");
    operator_with(
        server,
        &file,
        &[
            "subscriptions",
            "update",
            &format!("{RG}/topics/orders"),
            "plain",
            "--endpoint",
            &address,
        ],
    )
    .expect("the address changes");
    let subscription = server
        .command("GET", &subscription("orders", "plain"), &Value::Null)
        .json();
    assert_eq!(
        subscription["properties"]["destination"]["properties"]["endpointBaseUrl"],
        address
    );
}

/// A portal token does not test with the newest events of the topic.
fn assert_tests_need_their_own_events(server: &Server, portal: &str) {
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
            let response = ask(server, portal, "POST", &test, &body);
            assert!(
                response.status == 403 && response.text().contains("give events to test"),
                "{body}: {}",
                response.text()
            );
        }
    }
    let test = format!("{}/testFilter", subscription("orders", "plain"));
    assert_eq!(
        ask(server, portal, "POST", &test, EVENT).json()["matched"],
        1
    );
}

fn assert_a_portal_token_is_narrow_and_short(server: &Server) {
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
        let error = operator(server, &[&["tokens", "create", "q"], arguments].concat())
            .expect_err("a refusal");
        assert!(error.contains(problem), "{arguments:?}: {error}");
    }
}

/// The names of a list of resources.
fn names(response: &Response) -> Vec<String> {
    let list = response.json();
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
    create_subscriptions_with_jobs(&server, &sink, &keys);
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
    for (tail, expected) in tails.into_iter().zip(expected) {
        assert_tail_has(tail, expected);
    }
}

/// Reads events of topics and outcomes of event subscriptions, until the last that is expected.
fn assert_tail_has(mut tail: impl BufRead, expected: &[&str]) {
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

/// Each event subscription has a job that runs until the end of the test.
fn create_subscriptions_with_jobs(server: &Server, sink: &Sink, keys: &[String; 2]) {
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
        // The job runs until the end of the test.
        for name in names {
            let replays = format!("{}/replays", subscription(topic, name));
            server.command("POST", &replays, &json!({"eventsPerSecond": 0.001}));
        }
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
