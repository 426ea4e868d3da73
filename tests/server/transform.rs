//! Transformed deliveries, at the whole server.

use gridhook::deliver::signature::Signer;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, respond},
    server::{Server, SubscriptionSpec, operator, subscription, wait_for},
};

const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn event(id: &str, data: &Value) -> Value {
    json!({"id": id, "eventType": "Made", "subject": "/a", "eventTime": "2026-11-20T12:00:00Z", "dataVersion": "1",
        "data": data})
}

fn publish(server: &Server, key: &str, events: &Value) {
    server.publish("orders", key, events.to_string().as_bytes());
}

#[test]
fn every_attempt_has_the_transformed_body_signed_and_trace_has_its_digest() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let key = server.topic("orders", "EventGridSchema");
    let endpoint = Endpoint::start(vec![respond(503, "", ""), respond(200, "", "")]);
    let transform = json!({
        "body": "{text: join(' ', [subject, 'has', to_string(data.n)])}",
        "method": "PUT",
        "pathSuffix": "['orders', data.name]",
        "headers": {"x-kind": "eventType"},
    });
    let spec =
        SubscriptionSpec::new(&endpoint.url()).webhook("signing", json!({"secrets": [SECRET]}));
    server.subscribe(
        "orders",
        "hook",
        &spec.also(&json!({}), &json!({"transform": transform})),
    );
    publish(
        &server,
        &key,
        &json!([event("1", &json!({"n": 3, "name": "a/b"}))]),
    );
    wait_for("a delivery", LONG, || {
        server.counter("orders", "hook", "delivered") == 1
    });
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let line = request.head.lines().next().expect("a request line");
        assert_eq!(line, "PUT /hook/orders/a%2Fb?code=1 HTTP/1.1");
        assert_eq!(
            String::from_utf8_lossy(&request.body),
            r#"{"text":"/a has 3"}"#
        );
        assert_eq!(
            request.header("content-type"),
            Some("application/json; charset=utf-8")
        );
        assert_eq!(request.header("x-kind"), Some("Made"));
        let header = |name| {
            request
                .header(name)
                .unwrap_or_else(|| panic!("{name}: {}", request.head))
        };
        let seconds = header("webhook-timestamp").parse().expect("seconds");
        let signer = Signer::new([SECRET].into_iter()).expect("a secret");
        assert_eq!(
            header("webhook-signature"),
            signer.signatures(header("webhook-id"), seconds, &request.body)
        );
    }
    let digest: String = Sha256::digest(&requests[0].body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let trace = operator(&server, &["trace", "1", "--topic", TOPIC]).expect("a trace");
    assert!(
        trace.contains(&format!("transformed to 19 bytes, SHA-256 {digest}")),
        "{trace}"
    );

    // Without a transformation it is the event again.
    assert_eq!(
        server
            .patch("orders", "hook", &json!({"transform": null}))
            .status,
        201
    );
    publish(&server, &key, &json!([event("2", &json!({}))]));
    wait_for("the event", LONG, || endpoint.requests().len() == 3);
    let last = endpoint.requests().pop().expect("three requests");
    assert!(last.head.starts_with("POST /hook?code=1 "), "{}", last.head);
    assert_eq!(
        serde_json::from_slice::<Value>(&last.body).expect("JSON")[0]["id"],
        "2"
    );
}

#[test]
fn a_failing_transformation_gives_up_its_event_only_also_across_a_kill() {
    let mut server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let key = server.topic("orders", "EventGridSchema");
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let spec = SubscriptionSpec::new(&endpoint.url())
        .batch(10)
        .dead_letters("letters");
    let transform = json!({"transform": {"body": "abs(data.n)"}});
    server.subscribe("orders", "hook", &spec.also(&json!({}), &transform));
    server.post_verb("orders", "hook", "hold");
    publish(
        &server,
        &key,
        &json!([
            event("1", &json!({"n": 1})),
            event("2", &json!({})),
            event("3", &json!({"n": 3}))
        ]),
    );
    server.kill_9();
    server.restart();
    server.post_verb("orders", "hook", "resume");
    wait_until_settled(&server, "orders", "hook");
    let bodies: Vec<_> = endpoint
        .requests()
        .iter()
        .map(|one| String::from_utf8_lossy(&one.body).into_owned())
        .collect();
    assert_eq!(bodies, ["[1,3]"]);
    assert_eq!(server.counter("orders", "hook", "delivered"), 2);
    assert_eq!(server.counter("orders", "hook", "deadLettered"), 1);
    let trace = operator(&server, &["trace", "2", "--topic", TOPIC]).expect("a trace");
    assert!(trace.contains("given up: TransformationFailed"), "{trace}");
    assert!(
        trace.contains(
            "reason: transform.body: line 1, column 4: argument 1 of abs is null; \
             expected a number"
        ),
        "{trace}"
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_transformation_is_tested_before_it_is_put_and_refused_with_its_place() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new("http://127.0.0.1:1/").types(&["None"]),
    );
    publish(
        &server,
        &key,
        &json!([event("1", &json!({"n": 1})), event("2", &json!({}))]),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let draft = file(
        "draft.json",
        r#"{"body": "[abs(data.n)]", "method": "PATCH"}"#,
    );
    let test = ["subscriptions", "test-transform", TOPIC, "hook"];
    let missing = operator(&server, &test).expect_err("there is nothing to test");
    assert!(
        missing.contains("transform is missing, and the event subscription has none"),
        "{missing}"
    );
    let tested = operator(&server, &[&test[..], &["--draft", &draft]].concat()).expect("a test");
    assert!(tested.starts_with("1 of 2 events can be sent"), "{tested}");
    for part in [
        "yes, PATCH",
        "[1]",
        "transform.body: line 1, column 5: argument 1 of abs is null; expected a number",
    ] {
        assert!(tested.contains(part), "{tested}");
    }
    let update = ["subscriptions", "update", TOPIC, "hook", "--transform"];
    let error = operator(
        &server,
        &[&update[..], &["{\n  n: shout(data.n)\n}"]].concat(),
    )
    .expect_err("it is refused");
    assert!(
        error.contains("transform.body line 2, column 11: the function shout is unknown"),
        "{error}"
    );
    operator(&server, &[&update[..], &["data"]].concat()).expect("it is taken");
    let stored = server.get_subscription("orders", "hook").json();
    assert_eq!(stored["properties"]["transform"], json!({"body": "data"}));
    let own = server.admin(
        "POST",
        &format!("{}/testTransform", subscription("orders", "hook")),
        &json!({"last": 1}),
    );
    assert_eq!(
        own.json()["results"],
        json!([{"id": "2", "body": "{}"}]),
        "{}",
        own.text()
    );
}

#[test]
fn push_delivery_of_a_namespace_is_transformed_and_pull_delivery_is_refused() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let namespace =
        "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant";
    let topic = format!("{namespace}/topics/heat");
    server.command("PUT", namespace, &json!({"location": "local"}));
    server.command("PUT", &topic, &json!({}));
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let hook = format!("{topic}/eventSubscriptions/hook");
    let destination =
        json!({"endpointType": "WebHook", "properties": {"endpointUrl": endpoint.url()}});
    let pushed = json!({"properties": {
        "deliveryConfiguration": {"deliveryMode": "Push", "push": {"destination": destination}},
        "transform": {"body": "{kind: type}", "method": "PUT"},
    }});
    server.command("PUT", &hook, &pushed);
    let update = [
        "subscriptions",
        "update",
        &topic,
        "hook",
        "--transform",
        "{kind: type, n: data.n}",
    ];
    operator(&server, &update).expect("the method stays");
    let shown = server.command("GET", &hook, &Value::Null).json();
    assert_eq!(
        shown["properties"]["transform"],
        json!({"body": "{kind: type, n: data.n}", "method": "PUT"})
    );
    let event =
        json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "Made", "data": {"n": 3}});
    server.command("POST", &format!("{topic}/publish"), &event);
    wait_for("a delivery", LONG, || !endpoint.requests().is_empty());
    let request = endpoint.requests().swap_remove(0);
    assert!(
        request.head.starts_with("PUT /hook?code=1 "),
        "{}",
        request.head
    );
    assert_eq!(
        String::from_utf8_lossy(&request.body),
        r#"{"kind":"Made","n":3}"#
    );

    let pulled = json!({"properties": {"deliveryConfiguration": {"deliveryMode": "Queue"}, "transform": {"body": "type"}}});
    let response = server.admin(
        "PUT",
        &format!("{topic}/eventSubscriptions/pulled"),
        &pulled,
    );
    assert_eq!(response.status, 400, "{}", response.text());
    assert!(
        response
            .text()
            .contains("deliveryMode is Queue; expected Push"),
        "{}",
        response.text()
    );
}
