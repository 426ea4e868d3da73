//! The path of an event as a trace: from its publisher over the journal and two attempts to its
//! outcome, also through a `kill -9`. What the collector gets is read with OpenTelemetry's own
//! protobuf.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{LONG, wait_until_settled};
use crate::{
    sdk::packages::OTLP,
    support::{
        endpoint::{Endpoint, respond},
        needs,
        server::{Server, SubscriptionSpec, events_path, wait_for},
    },
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PUBLISHER: &str = "b7ad6b7169203331";
const STATE: &str = "vendor=of-the-publisher";

/// A span as the protobuf has it.
#[derive(Clone, Debug, Deserialize)]
struct Span {
    trace: String,
    span: String,
    parent: String,
    state: String,
    name: String,
    kind: String,
    attributes: Value,
    links: Vec<String>,
    failed: bool,
}

fn collector() -> Endpoint {
    Endpoint::start(vec![respond(
        200,
        "content-type: application/json\r\n",
        "{}",
    )])
}

fn server(collector: &Endpoint) -> Server {
    let url = format!("http://{}/", collector.address());
    let traced = [
        ("TELEMETRY__OTLP_ENDPOINT", &*url),
        ("TELEMETRY__BATCH_DELAY", "20ms"),
    ];
    Server::start(&[&traced[..], &[("DELIVERY__VALIDATE", "false")]].concat())
}

/// The spans that the collector received, as the script reads them.
fn spans(collector: &Endpoint) -> Vec<Span> {
    let requests = collector.requests();
    let heads = requests.iter().map(|request| request.head.as_str());
    let strange: Vec<_> = heads
        .filter(|head| !head.starts_with("POST /v1/traces HTTP/1.1"))
        .collect();
    assert!(strange.is_empty() && !requests.is_empty(), "{strange:?}");
    let (python, script) = &*OTLP;
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python");
    let mut lines = child.stdin.take().expect("its input");
    for request in &requests {
        assert_eq!(request.header("content-type"), Some("application/json"));
        lines
            .write_all(&[&request.body[..], b"\n"].concat())
            .expect("a request is read");
    }
    drop(lines);
    let output = child.wait_with_output().expect("an end");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("spans")
}

fn named(spans: &[Span], name: &str) -> Vec<Span> {
    spans
        .iter()
        .filter(|span| span.name == name)
        .cloned()
        .collect()
}

fn cloud_event(id: &str, more: &Value) -> Vec<u8> {
    let mut event = json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "Order.Placed", "data": {"n": 1}});
    event
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    event.to_string().into_bytes()
}

fn publish(server: &Server, key: &str, headers: &[(&str, &str)], body: &[u8]) {
    let headers = [&[("aeg-sas-key", key)], headers].concat();
    let response = server
        .client()
        .ask("POST", &events_path("orders"), &headers, body)
        .expect("a response");
    assert_eq!(response.status, 200, "{}", response.text());
}

const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json");

#[test]
fn the_whole_way_of_an_event_is_one_trace_that_its_publisher_began() {
    if !needs::python() {
        return;
    }
    let collector = collector();
    let endpoint = Endpoint::start(vec![respond(503, "", ""), respond(200, "", "")]);
    let mut server = server(&collector);
    let key = server.topic("orders", "CloudEventSchemaV1_0");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url()).schema("CloudEventSchemaV1_0"),
    );
    let parent = format!("00-{TRACE}-{PUBLISHER}-01");
    publish(
        &server,
        &key,
        &[STRUCTURED],
        &cloud_event("one", &json!({"traceparent": parent, "tracestate": STATE})),
    );
    wait_for("two attempts", LONG, || endpoint.requests().len() == 2);
    wait_until_settled(&server, "orders", "hook");
    server.terminate();

    let spans = spans(&collector);
    let strangers: Vec<_> = spans
        .iter()
        .filter(|span| span.trace != TRACE || span.state != STATE)
        .collect();
    assert!(strangers.is_empty(), "{strangers:#?}");
    let one = |name: &str| {
        <[Span; 1]>::try_from(named(&spans, name)).unwrap_or_else(|_| panic!("{name}: {spans:#?}"))
    };
    let two = |name: &str| {
        <[Span; 2]>::try_from(named(&spans, name)).unwrap_or_else(|_| panic!("{name}: {spans:#?}"))
    };
    let [published] = one("publish orders");
    assert_eq!(
        (published.parent.as_str(), published.kind.as_str()),
        (PUBLISHER, "SPAN_KIND_SERVER")
    );
    let [written] = one("journal orders");
    assert_eq!(
        (&written.parent, written.kind.as_str()),
        (&published.span, "SPAN_KIND_INTERNAL")
    );
    let attempts = two("deliver hook");
    let outcomes = two("settle hook");
    for (at, (status, became)) in [(503, "deferred"), (200, "delivered")]
        .into_iter()
        .enumerate()
    {
        let attempt = &attempts[at];
        let outcome = &outcomes[at];
        assert_eq!(
            (&attempt.parent, attempt.kind.as_str()),
            (&published.span, "SPAN_KIND_CLIENT")
        );
        assert_eq!(
            (
                attempt.attributes["http.response.status_code"].as_u64(),
                attempt.failed
            ),
            (Some(status), at == 0)
        );
        assert_eq!(attempt.attributes["gridhook.attempt"], at + 1);
        assert_eq!(
            (
                &outcome.parent,
                outcome.attributes["gridhook.became"].as_str()
            ),
            (&attempt.span, Some(became))
        );
        // The endpoint receives the trace context of the attempt, and the span has its response.
        let request = &endpoint.requests()[at];
        assert_eq!(
            request.header("traceparent"),
            Some(&*format!("00-{TRACE}-{}-01", attempt.span))
        );
        assert_eq!(request.header("tracestate"), Some(STATE));
        let event: Value = serde_json::from_slice(&request.body).expect("an event");
        assert_eq!(
            (&event["traceparent"], &event["tracestate"]),
            (&json!(parent), &json!(STATE))
        );
    }
    assert_eq!(spans.len(), 6, "{spans:#?}");
}

#[test]
fn an_attempt_after_a_kill_is_in_the_trace_of_the_request_that_published() {
    if !needs::python() {
        return;
    }
    let collector = collector();
    let endpoint = Endpoint::start(vec![respond(503, "", ""), respond(200, "", "")]);
    let mut server = server(&collector);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&endpoint.url()));
    server.post_verb("orders", "hook", "hold");
    // Such an event has no attributes of its own: its place stands beside it in the log.
    let event = json!([{"id": "one", "eventType": "T", "subject": "s", "dataVersion": "1",
        "eventTime": "2026-11-20T12:00:00Z", "data": {}}]);
    let parent = format!("00-{TRACE}-{PUBLISHER}-01");
    publish(
        &server,
        &key,
        &[("traceparent", &parent), ("tracestate", STATE)],
        event.to_string().as_bytes(),
    );
    let is_exported = |name: &str| {
        let requests = collector.requests();
        requests
            .iter()
            .any(|request| String::from_utf8_lossy(&request.body).contains(name))
    };
    wait_for("the span of the publish", LONG, || {
        is_exported("publish orders")
    });
    server.kill_9();
    server.restart();
    server.post_verb("orders", "hook", "resume");
    wait_for("two attempts", LONG, || endpoint.requests().len() == 2);
    wait_until_settled(&server, "orders", "hook");
    server.terminate();

    let spans = spans(&collector);
    let [published] =
        <[Span; 1]>::try_from(named(&spans, "publish orders")).expect("one publishing");
    let attempts = named(&spans, "deliver hook");
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    for (attempt, request) in attempts.iter().zip(endpoint.requests()) {
        assert_eq!(
            (attempt.trace.as_str(), &attempt.parent),
            (TRACE, &published.span)
        );
        assert_eq!(
            request.header("traceparent"),
            Some(&*format!("00-{TRACE}-{}-01", attempt.span))
        );
        assert_eq!(request.header("tracestate"), Some(STATE));
        assert!(
            !String::from_utf8_lossy(&request.body).contains(TRACE),
            "the event is what was published"
        );
    }
}

#[test]
fn a_request_with_events_of_several_traces_is_linked_to_each() {
    if !needs::python() {
        return;
    }
    let collector = collector();
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let mut server = server(&collector);
    let key = server.topic("orders", "CloudEventSchemaV1_0");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url())
            .schema("CloudEventSchemaV1_0")
            .batch(10),
    );
    let event = |id: &str, trace: &str| {
        let event = cloud_event(
            id,
            &json!({"traceparent": format!("00-{trace}-{PUBLISHER}-01")}),
        );
        String::from_utf8(event).expect("text")
    };
    let other = "4bf92f3577b34da6a3ce929d0e0e4736";
    let batch = format!("[{},{}]", event("one", TRACE), event("two", other));
    publish(
        &server,
        &key,
        &[("content-type", "application/cloudevents-batch+json")],
        batch.as_bytes(),
    );
    wait_for("a request", LONG, || endpoint.requests().len() == 1);
    wait_until_settled(&server, "orders", "hook");
    server.terminate();
    let [attempt] =
        <[Span; 1]>::try_from(named(&spans(&collector), "deliver hook")).expect("one attempt");
    assert_eq!(
        (attempt.trace.as_str(), attempt.links),
        (TRACE, vec![other.to_owned()])
    );
    assert_eq!(attempt.attributes["messaging.batch.message_count"], 2);
}

#[test]
fn a_trace_that_its_publisher_does_not_record_is_passed_on_and_not_recorded() {
    let collector = collector();
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let mut server = server(&collector);
    let key = server.topic("orders", "CloudEventSchemaV1_0");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url()).schema("CloudEventSchemaV1_0"),
    );
    let parent = format!("00-{TRACE}-{PUBLISHER}-00");
    publish(
        &server,
        &key,
        &[STRUCTURED],
        &cloud_event("one", &json!({"traceparent": parent})),
    );
    wait_for("a request", LONG, || endpoint.requests().len() == 1);
    wait_until_settled(&server, "orders", "hook");
    server.terminate();
    assert_eq!(endpoint.requests()[0].header("traceparent"), Some(&*parent));
    assert!(collector.requests().is_empty(), "nothing is exported");
}

#[test]
fn a_collector_that_does_not_answer_delays_no_event_and_where_there_is_none_nothing_is_added() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", silent.local_addr().expect("its address"));
    let never = [
        ("TELEMETRY__OTLP_ENDPOINT", &*url),
        ("TELEMETRY__EXPORT_TIMEOUT", "60s"),
        ("TELEMETRY__QUEUE_SPANS", "5"),
        ("TELEMETRY__BATCH_DELAY", "1ms"),
        ("DELIVERY__VALIDATE", "false"),
    ];
    for (settings, is_traced) in [(&never[..], true), (&never[4..], false)] {
        let mut server = Server::start(settings);
        let key = server.topic("orders", "CloudEventSchemaV1_0");
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new(&endpoint.url()).schema("CloudEventSchemaV1_0"),
        );
        let before = endpoint.requests().len();
        let parent = json!({"traceparent": format!("00-{TRACE}-{PUBLISHER}-01")});
        for id in 0..50 {
            publish(
                &server,
                &key,
                &[STRUCTURED],
                &cloud_event(&id.to_string(), &parent),
            );
        }
        wait_until_settled(&server, "orders", "hook");
        let requests = endpoint.requests();
        assert_eq!(requests.len() - before, 50);
        let traced = requests[before..]
            .iter()
            .filter(|request| request.header("traceparent").is_some())
            .count();
        assert_eq!(traced, if is_traced { 50 } else { 0 });
        server.terminate();
        let log = server.logs();
        assert_eq!(log.contains("counts.exported=0"), is_traced, "{log}");
        assert!(!log.contains("counts.dropped=0"), "{log}");
    }
}
