//! The operations that only the dashboard uses.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::Sink,
};

const LONG: Duration = Duration::from_secs(60);

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn event(id: u64, kind: &str) -> Value {
    json!({"id": id.to_string(), "eventType": kind, "subject": format!("/shop/{id}"), "dataVersion": "1",
        "eventTime": "2026-11-22T12:00:00Z", "data": {"total": id * 100}})
}

fn sequences(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("events");
    events
        .iter()
        .map(|event| event["sequence"].as_u64().expect("a sequence"))
        .collect()
}

#[test]
fn an_operator_publishes_events_and_browses_them_from_the_newest_to_the_oldest() {
    // The publishers' address does not serve the control plane; the page has no other address to
    // publish to. No event subscription keeps the log.
    let server = Server::start(&[("JOURNAL__RETENTION", "1h")]);
    server.topic("orders", "EventGridSchema");
    for first in (0..1_000).step_by(100) {
        let kinds = ["Made", "Sent", "Lost", "Made"];
        let events: Vec<Value> = (first..first + 100)
            .map(|id| event(id, kinds[id as usize % 4]))
            .collect();
        server.command("POST", &format!("{TOPIC}/publish"), &events.into());
    }
    let ask = |query: &str| {
        server
            .command("GET", &format!("{TOPIC}/events?{query}"), &Value::Null)
            .json()
    };
    let first = ask("top=300");
    assert_eq!(
        (&first["logFromSequence"], &first["logBeforeSequence"]),
        (&json!(1), &json!(1_001))
    );
    assert_eq!(sequences(&first), (701..=1_000).rev().collect::<Vec<_>>());
    let newest = &first["events"][0];
    assert_eq!(
        (&newest["id"], &newest["eventType"], &newest["subject"]),
        (&json!("999"), &json!("Made"), &json!("/shop/999"))
    );
    for (query, expected) in [
        ("", (1..=1_000).rev().collect::<Vec<u64>>()),
        (
            "&type=Sent",
            (1..=1_000)
                .rev()
                .filter(|sequence| sequence % 4 == 2)
                .collect(),
        ),
        (
            "&subject=/99",
            (1..=1_000)
                .rev()
                .filter(|sequence| (sequence - 1).to_string().starts_with("99"))
                .collect(),
        ),
        ("&id=0", vec![1]),
        ("&id=none", Vec::new()),
    ] {
        let mut all = Vec::new();
        let mut before = String::new();
        let mut pages = 0;
        loop {
            let page = ask(&format!("top=150{query}{before}"));
            all.extend(sequences(&page));
            pages += 1;
            let Some(next) = page["before"].as_str() else {
                break;
            };
            before = format!("&before={next}");
            assert!(pages < 20, "the pages of {query} do not end");
        }
        assert_eq!(all, expected, "{query}");
    }
    for (query, text) in [
        ("top=0", "1 to 500"),
        ("before=x", "sequence number"),
        ("order=up", "expected"),
    ] {
        let response = server.admin("GET", &format!("{TOPIC}/events?{query}"), &Value::Null);
        assert!(
            response.status == 400 && response.text().contains(text),
            "{query}: {}",
            response.text()
        );
    }
}

#[test]
fn one_event_is_returned_as_it_was_published_and_a_refused_one_says_why() {
    let server = Server::start(&[]);
    server.topic("orders", "EventGridSchema");
    let publish = |body: &str| {
        let token =
            std::fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
        let authorization = format!("Bearer {}", token.trim());
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
        ];
        server
            .client()
            .ask(
                "POST",
                &format!("{TOPIC}/publish"),
                &headers,
                body.as_bytes(),
            )
            .expect("a response")
    };
    // Neither the number nor the order of keys survives a program that reads the data.
    let data = r#"{"z":9007199254740993,"a":1.10,"text":"\u00e4<script>"}"#;
    let text = format!(
        r#"{{"id":"1","eventType":"Made","subject":"/a","eventTime":"2026-11-22T12:00:00Z","dataVersion":"1","data":{data}}}"#
    );
    let published = publish(&format!("[{text}]"));
    assert_eq!(published.status, 200, "{}", published.text());
    let stored = server.command("GET", &format!("{TOPIC}/events/1"), &Value::Null);
    assert!(stored.text().contains(data), "{}", stored.text());
    assert_eq!(stored.header("content-type"), Some("application/json"));
    for (sequence, status) in [("2", 404), ("0", 404), ("99999999999", 404), ("x", 400)] {
        assert_eq!(
            server
                .admin("GET", &format!("{TOPIC}/events/{sequence}"), &Value::Null)
                .status,
            status,
            "{sequence}"
        );
    }
    let refused = publish(r#"[{"id":"1"}]"#);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.json()["error"]["message"]
            .as_str()
            .expect("a message")
            .contains("'subject'"),
        "{}",
        refused.text()
    );
    assert_eq!(
        server
            .request_without_token("POST", &format!("{TOPIC}/publish"), &[])
            .status,
        401
    );
}

#[test]
fn a_topic_shows_its_figures_and_tests_a_filter_before_there_is_an_event_subscription() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    server.topic("orders", "EventGridSchema");
    let status = server.topic_status("orders");
    assert_eq!(status["published"], 0);
    assert!(
        status["publishedPerSecond"]
            .as_f64()
            .is_none_or(|rate| rate == 0.0),
        "{status}"
    );
    let events: Vec<Value> = (0..40)
        .map(|id| event(id, if id % 4 == 0 { "Made" } else { "Sent" }))
        .collect();
    server.command("POST", &format!("{TOPIC}/publish"), &events.into());
    let status = server.topic_status("orders");
    for (field, expected) in [
        ("published", 40),
        ("subscriptions", 0),
        ("logFromSequence", 1),
        ("logBeforeSequence", 41),
    ] {
        assert_eq!(status[field], expected, "{field}: {status}");
    }
    assert!(
        status["publishedBytes"].as_u64() > Some(40 * 100),
        "{status}"
    );
    assert!(status["logFrom"].is_string(), "{status}");

    let test = |body: Value| server.admin("POST", &format!("{TOPIC}/testFilter"), &body);
    let report = test(json!({"filter": {"includedEventTypes": ["Made"]}, "last": 20})).json();
    assert_eq!(
        (&report["tested"], &report["matched"]),
        (&json!(20), &json!(5))
    );
    let given = test(
        json!({"filter": {"subjectEndsWith": "/7"}, "events": [event(7, "x"), event(8, "x")]}),
    )
    .json();
    assert_eq!(
        (&given["tested"], &given["matched"]),
        (&json!(2), &json!(1))
    );
    let missing = test(json!({"last": 20}));
    assert!(
        missing.status == 400 && missing.text().contains("filter is missing"),
        "{}",
        missing.text()
    );

    server.subscribe(
        "orders",
        "all",
        &SubscriptionSpec::new("http://127.0.0.1:9/"),
    );
    assert_eq!(server.topic_status("orders")["subscriptions"], 1);
    let below = format!("{}/testFilter", subscription("orders", "all"));
    assert_eq!(
        server.command("POST", &below, &json!({"last": 20})).json()["matched"],
        20
    );
}

#[test]
fn the_request_of_an_attempt_is_made_again_with_its_body_and_without_secrets() {
    let server = Server::start(&[
        ("JOURNAL__RETENTION", "1h"),
        ("DELIVERY__VALIDATE", "false"),
    ]);
    let key = server.topic("orders", "EventGridSchema");
    let secret = json!([{"name": "x-code", "type": "Static", "properties": {"value": "hidden", "isSecret": true}}]);
    let spec = SubscriptionSpec::new("http://127.0.0.1:9/hook?code=hidden")
        .types(&["Made"])
        .batch(10)
        .webhook("deliveryAttributeMappings", secret);
    server.subscribe("orders", "billing", &spec);
    let events: Vec<Value> = (0..6)
        .map(|id| event(id, ["Made", "Lost"][id as usize % 2]))
        .collect();
    server.publish("orders", &key, &serde_json::to_vec(&events).expect("JSON"));
    let path = format!("{}/request", subscription("orders", "billing"));
    let shown = server
        .command(
            "GET",
            &format!("{path}?from=1&to=6&attempt=3"),
            &Value::Null,
        )
        .json();
    assert_eq!(
        (&shown["events"], &shown["truncated"]),
        (&json!(3), &json!(false))
    );
    let head = shown["head"].as_str().expect("a head");
    for line in [
        "POST /hook?[hidden]",
        "aeg-delivery-count: 2",
        "x-code: [hidden]",
    ] {
        assert!(head.lines().any(|one| one == line), "{line}: {head}");
    }
    assert!(!shown.to_string().contains("\"hidden\""), "{shown}");
    let body: Value = serde_json::from_str(shown["body"].as_str().expect("a body")).expect("JSON");
    let ids: Vec<&str> = body
        .as_array()
        .expect("a list")
        .iter()
        .map(|event| event["id"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids, ["0", "2", "4"]);
    for (query, status, problem) in [
        ("from=2", 404, "none matches the filter"),
        ("from=3&to=1", 400, "is before `from`"),
        ("to=1", 400, "from"),
        ("from=1&attempt=x", 400, "from, to or attempt"),
    ] {
        let response = server.admin("GET", &format!("{path}?{query}"), &Value::Null);
        assert!(
            response.status == status && response.text().contains(problem),
            "{query}: {} {}",
            response.status,
            response.text()
        );
    }
}

#[test]
fn a_preview_checks_all_that_a_change_checks_and_changes_nothing() {
    let server = Server::start(&[
        ("DELIVERY__ALLOW_NETWORKS", "127.0.0.1/32"),
        ("LIMITS__SUBSCRIPTIONS_PER_TOPIC", "1"),
    ]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    let path = subscription("orders", "billing");
    let preview = |method: &str, path: &str, body: &Value| {
        server.admin(method, &format!("{path}?whatIf=true"), body)
    };
    let hook = |url: &str| json!({"endpointType": "WebHook", "properties": {"endpointUrl": url}});
    let url = sink.url("/hook");
    for (destination, target) in [
        (
            hook("http://127.0.0.2:9/"),
            "destination.properties.endpointUrl",
        ),
        (
            json!({"endpointType": "ServiceBusQueue", "properties": {"resourceId": "none/queues/orders"}}),
            "destination.properties.resourceId",
        ),
        (
            json!({"endpointType": "WebHook", "properties": {"endpointUrl": url, "clientCertificate": "none"}}),
            "destination.properties.clientCertificate",
        ),
    ] {
        let body = json!({"properties": {"destination": destination}});
        let refused = preview("PUT", &path, &body);
        assert_eq!(refused.status, 400, "{target}: {}", refused.text());
        let error = refused.json()["error"].clone();
        assert!(
            error["target"]
                .as_str()
                .is_some_and(|at| at.ends_with(target)),
            "{error}"
        );
        // With a validation of its endpoint, which says the same in Azure's words.
        assert_eq!(server.admin("PUT", &path, &body).status, 400, "{target}");
    }
    let body = json!({"properties": {"destination": hook(&url)}});
    let shown = preview("PUT", &path, &body).json();
    assert_eq!(
        (&shown["exists"], &shown["needsValidation"]),
        (&json!(false), &json!(true))
    );
    server.command("PUT", &path, &body);
    let before = server.command("GET", &path, &Value::Null).json();
    let full = preview("PUT", &subscription("orders", "other"), &body);
    assert_eq!(full.status, 409, "{}", full.text());
    let shown = preview("PATCH", &path, &json!({"labels": ["shop"]})).json();
    assert_eq!(shown["changes"][0]["at"], "labels", "{shown}");
    assert!(shown.get("needsValidation").is_none(), "{shown}");
    let refused = preview(
        "PATCH",
        &path,
        &json!({"destination": hook("http://127.0.0.2:9/")}),
    );
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(server.command("GET", &path, &Value::Null).json(), before);
    let topic = preview("PATCH", TOPIC, &json!({"tags": {"team": "shop"}}));
    assert!(
        topic.status == 400 && topic.text().contains("use PUT"),
        "{}",
        topic.text()
    );
}

#[test]
fn the_test_endpoint_receives_without_a_request_and_a_setting_removes_it() {
    let mut server = Server::start(&[("DELIVERY__VALIDATE", "true")]);
    let facts = server.command("GET", "/server", &Value::Null).json();
    let endpoint = facts["testEndpoint"].as_str().expect("an address");
    let key = server.topic("orders", "EventGridSchema");
    let spec = SubscriptionSpec::new(&format!("{endpoint}first"));
    server.subscribe("orders", "first", &spec);
    let body = |id| serde_json::to_vec(&[event(id, "Made")]).expect("JSON");
    server.publish("orders", &key, &body(1));
    let is_delivered =
        |server: &Server, events| server.counter("orders", "first", "delivered") == events;
    wait_for("the delivery", LONG, || is_delivered(&server, 1));
    server.kill_9();
    server.restart();
    server.publish("orders", &key, &body(2));
    wait_for("the delivery after a restart", LONG, || {
        is_delivered(&server, 2)
    });
    server.unsubscribe("orders", "first");
    let without = Server::start(&[("DELIVERY__TEST_ENDPOINT", "false")]);
    let facts = without.command("GET", "/server", &Value::Null).json();
    assert!(facts.get("testEndpoint").is_none(), "{facts}");
    without.topic("orders", "EventGridSchema");
    let body = json!({"properties": spec.properties()});
    let response = without.admin("PUT", &subscription("orders", "first"), &body);
    assert!(
        response.status == 400 && response.text().contains("delivery.test_endpoint"),
        "{}",
        response.text()
    );
}
