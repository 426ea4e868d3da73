//! Endpoint validation at the whole server: at once, by hand, failed, and across a kill.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use expect_test::expect;
use gridhook::event::Timestamp;
use serde_json::{Value, json};

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, Step},
    load,
    port::ReservedPort,
    server::{Server, SubscriptionSpec, wait_for},
    sink::{HandshakeReply, Sink},
};

const CLOUD_EVENTS: &str = "CloudEventSchemaV1_0";
const TOPIC: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/orders";

fn publish(server: &Server, key: &str, id: &str) {
    server.publish("orders", key, &load::body(&[id.to_owned()], "/a"));
}

fn wait_until_taken(server: &Server, sink: &Sink, path: &str, ids: &[&str]) {
    wait_for("the events", LONG, || sink.taken(path) == ids.len());
    wait_until_settled(server, "orders", "hook");
    let mut taken: Vec<String> = sink.ledger(path).into_keys().collect();
    taken.sort_unstable();
    assert_eq!(taken, ids, "on {path}");
}

/// State, endpoint in service, and configured endpoint.
fn state(reported: &Value) -> String {
    let properties = &reported["properties"];
    let [state, in_service] =
        ["provisioningState", "endpointInService"].map(|name| &properties[name]);
    let endpoint = &properties["destination"]["properties"]["endpointBaseUrl"];
    let path = |url: &Value| {
        url.as_str()
            .and_then(|url| url.rsplit('/').next())
            .unwrap_or("none")
            .to_owned()
    };
    format!(
        "{}, {} in service, configured {}",
        state.as_str().unwrap_or("none"),
        path(in_service),
        path(endpoint)
    )
}

/// The message of an error without the parts that differ from run to run.
fn message(response: &Value) -> String {
    let message = response["error"]["message"].as_str().expect("a message");
    let words = message.split(' ').map(|word| {
        let id = word.starts_with("id:");
        let time = word.starts_with("20") && word.ends_with('Z');
        let url = word.starts_with("http://127.0.0.1:");
        if id {
            "id:…,"
        } else if time {
            "…"
        } else if url {
            "http://…"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_endpoint_that_answers_the_handshake_is_called_from_then_on() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    publish(&server, &key, "before");
    let spec = SubscriptionSpec::new(&sink.url("/hook"));
    let saved = server.put_subscription("orders", "hook", &spec);
    assert_eq!(
        (saved.status, state(&saved.json()).as_str()),
        (201, "Succeeded, none in service, configured hook")
    );
    publish(&server, &key, "after");
    wait_until_taken(&server, &sink, "/hook", &["after"]);

    // Only another address or another schema is asked for again.
    let patched = server.patch("orders", "hook", &json!({"labels": ["x"]}));
    assert_eq!((patched.status, sink.handshakes("/hook").len()), (201, 1));
    server.subscribe("orders", "hook", &spec.clone().batch(3));
    assert_eq!(sink.handshakes("/hook").len(), 1);
    sink.greet("/hook", HandshakeReply::AcceptRate("90"));
    let saved = server.put_subscription("orders", "hook", &spec.schema(CLOUD_EVENTS));
    assert_eq!((saved.status, sink.handshakes("/hook").len()), (201, 2));
    assert_eq!(
        saved.json()["properties"]["destination"]["properties"]["allowedRate"],
        90
    );
    let heads = sink
        .handshakes("/hook")
        .into_iter()
        .map(|reported| reported.head.split(' ').next().map(str::to_owned));
    assert_eq!(heads.flatten().collect::<Vec<_>>(), ["POST", "OPTIONS"]);
    // An endpoint stays validated as long as its address is the same.
    let patched = server
        .patch("orders", "hook", &json!({"labels": ["y"]}))
        .json();
    assert_eq!(
        patched["properties"]["destination"]["properties"]["allowedRate"],
        90
    );
}

#[test]
fn an_allowed_rate_is_obeyed() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    // 600 a minute are 10 a second.
    sink.greet("/hook", HandshakeReply::AcceptRate("600"));
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).schema(CLOUD_EVENTS),
    );
    let ids: Vec<String> = (0..35).map(|id| id.to_string()).collect();
    server.publish("orders", &key, &load::body(&ids, "/a"));
    wait_for("all of them", LONG, || {
        server.counter("orders", "hook", "delivered") == 35
    });
    let mut at: Vec<Timestamp> = sink
        .ledger("/hook")
        .values()
        .map(|arrivals| arrivals[0].at)
        .collect();
    at.sort_unstable();
    // A request in the air more or less, and what a pause had saved up.
    let busiest = at
        .windows(13)
        .map(|window| window[12].since(window[0]))
        .min()
        .expect("more than a second's worth");
    assert!(
        busiest >= Duration::from_millis(900),
        "13 requests within {busiest:?}"
    );
}

#[test]
fn an_endpoint_that_fails_validation_is_reported_with_the_reason_and_nothing_is_created() {
    let server = Server::start(&[
        ("DELIVERY__VALIDATE_TIMEOUT", "300ms"),
        ("DELIVERY__VALIDATE_PAUSE", "50ms"),
    ]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    sink.greet("/no", HandshakeReply::Refuse(404));
    let silent = Endpoint::start(vec![vec![Step::Hang]]);
    let port = ReservedPort::new();
    let gone = port.address;
    let mut lines = Vec::new();
    for spec in [
        SubscriptionSpec::new(&sink.url("/no")),
        SubscriptionSpec::new(&sink.url("/no")).schema(CLOUD_EVENTS),
        SubscriptionSpec::new(&silent.url()),
        SubscriptionSpec::new(&format!("http://{gone}/?code=secret")),
        SubscriptionSpec::new("http://10.0.0.1/"),
    ] {
        let response = server.put_subscription("orders", "hook", &spec);
        let (status, code, detail) = response.codes();
        lines.push(format!(
            "{status} {code}, {detail}: {}",
            message(&response.json())
        ));
    }
    let text = lines.join("\n").replace(&gone.to_string(), "GONE");
    expect![[r#"
        400 Url validation, UnexpectedStatus: Webhook validation handshake failed for http://… Http POST request failed with response code 404. Activity id:…, timestamp: … (UTC). What happened: the endpoint returned 404; expected 200 with {"validationResponse": the validationCode} as its body.
        400 Url validation, UnexpectedStatus: Webhook validation handshake failed for http://… Http OPTIONS request failed with response code 404. Activity id:…, timestamp: … (UTC). What happened: the endpoint returned 404; expected a response to OPTIONS with WebHook-Allowed-Origin, or 2xx without it for manual validation.
        400 Url validation, TimedOut: Webhook validation handshake failed for http://… Http POST request failed with response code Unknown. Activity id:…, timestamp: … (UTC). What happened: no response within 300ms.
        400 Url validation, SocketError: Webhook validation handshake failed for http://… Http POST request failed with response code Unknown. Activity id:…, timestamp: … (UTC). What happened: no connection to GONE: Connection refused (os error 111).
        400 Url validation, SocketError: Webhook validation handshake failed for http://10.0.0.1/. Http POST request failed with response code Unknown. Activity id:…, timestamp: … (UTC). What happened: the address 10.0.0.1 is private or reserved; the setting delivery.allow_networks allows a network."#]]
    .assert_eq(&text);
    assert_eq!(
        silent.requests().len(),
        2,
        "who is silent is asked once more"
    );
    assert_eq!(sink.handshakes("/no").len(), 2, "who answers is not");
    assert_eq!(server.get_subscription("orders", "hook").status, 404);
    assert!(!server.logs().contains("secret"));
}

#[test]
fn an_endpoint_that_is_validated_by_hand_gets_what_is_published_after_that() {
    let mut server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    for (path, schema, method) in [
        ("/grid", "EventGridSchema", "GET"),
        ("/cloud", CLOUD_EVENTS, "POST"),
    ] {
        sink.greet(path, HandshakeReply::Defer);
        let saved = server.put_subscription(
            "orders",
            "hook",
            &SubscriptionSpec::new(&sink.url(path)).schema(schema),
        );
        assert_eq!(saved.status, 201);
        assert!(
            state(&saved.json()).starts_with("AwaitingManualAction, none in service"),
            "{}",
            saved.text()
        );
        let request_path = sink.handshakes(path)[0].validation_path();
        assert!(
            request_path.starts_with("/eventsubscriptions/hook/validate?id="),
            "{request_path}"
        );
        publish(&server, &key, "before");

        server.kill_9();
        server.restart();
        let reported = server.get_subscription("orders", "hook").json();
        assert!(
            state(&reported).starts_with("AwaitingManualAction"),
            "{reported}"
        );
        let list = server.command("GET", &format!("{TOPIC}/eventSubscriptions"), &Value::Null);
        assert_eq!(list.json()["value"][0], reported);
        assert_eq!(
            server
                .request_without_token("GET", &request_path.replace("token=", "token=0"), &[])
                .status,
            404
        );
        assert_eq!(
            server
                .request_without_token("OPTIONS", &request_path, &[])
                .status,
            405
        );

        let opened =
            server.request_without_token(method, &request_path, &[("webhook-allowed-rate", "600")]);
        assert_eq!(opened.status, 200, "{}", opened.text());
        assert_eq!(
            server
                .request_without_token(method, &request_path, &[])
                .status,
            404,
            "it is good once"
        );
        let reported = server.get_subscription("orders", "hook").json();
        assert!(state(&reported).starts_with("Succeeded"), "{reported}");
        assert_eq!(
            reported["properties"]["destination"]["properties"]["allowedRate"],
            600
        );
        publish(&server, &key, "after");
        wait_until_taken(&server, &sink, path, &["after"]);
        assert_eq!(
            server.counter("orders", "hook", "matched"),
            1,
            "what was published before is not its own"
        );
        server.unsubscribe("orders", "hook");
    }
    server.kill_9();
    server.assert_sound();
}

#[test]
fn a_subscription_is_found_all_the_time_while_its_endpoint_is_confirmed() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    for number in 0..20 {
        let name = format!("hook-{number}");
        let path = format!("/hook-{number}");
        sink.greet(&path, HandshakeReply::Defer);
        assert_eq!(
            server
                .put_subscription("orders", &name, &SubscriptionSpec::new(&sink.url(&path)))
                .status,
            201
        );
        let request_path = sink.handshakes(&path)[0].validation_path();
        let is_confirmed = AtomicBool::new(false);
        thread::scope(|scope| {
            let found = scope.spawn(|| {
                let mut statuses = BTreeSet::new();
                while !is_confirmed.load(Ordering::Acquire) {
                    statuses.insert(server.get_subscription("orders", &name).status);
                }
                statuses
            });
            assert_eq!(
                server
                    .request_without_token("GET", &request_path, &[])
                    .status,
                200
            );
            is_confirmed.store(true, Ordering::Release);
            let found = found.join().expect("no panic");
            assert!(
                found.iter().all(|status| *status == 200),
                "{found:?} for {name}"
            );
        });
    }
}

#[test]
fn a_validation_that_is_not_given_in_time_fails_and_the_version_in_force_goes_on() {
    let server = Server::start(&[("DELIVERY__VALIDATE_WINDOW", "400ms")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    sink.greet("/new", HandshakeReply::Defer);
    let shown = |expected: &str| {
        let shown = server.get_subscription("orders", "hook").json();
        assert_eq!(state(&shown), expected);
    };
    let failed = || {
        wait_for("the end of the wait", LONG, || {
            server
                .get_subscription("orders", "hook")
                .text()
                .contains("Failed")
        })
    };

    server.put_subscription("orders", "hook", &SubscriptionSpec::new(&sink.url("/new")));
    failed();
    shown("Failed, none in service, configured new");
    let late =
        server.request_without_token("GET", &sink.handshakes("/new")[0].validation_path(), &[]);
    assert_eq!(late.codes().0, 410, "{}", late.text());

    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/old")));
    shown("Succeeded, none in service, configured old");
    assert_eq!(
        server
            .put_subscription("orders", "hook", &SubscriptionSpec::new(&sink.url("/new")))
            .status,
        201
    );
    shown("AwaitingManualAction, old in service, configured new");
    publish(&server, &key, "one");
    failed();
    shown("Failed, old in service, configured old");
    publish(&server, &key, "two");
    wait_until_taken(&server, &sink, "/old", &["one", "two"]);
    assert!(sink.ledger("/new").is_empty());
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/old")));
    shown("Succeeded, none in service, configured old");
}

#[test]
fn a_change_of_endpoint_is_in_force_when_the_new_one_agrees_and_not_before() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/old")));
    sink.greet("/new", HandshakeReply::Refuse(500));
    let change = json!({"destination": {"properties": {"endpointUrl": sink.url("/new")}}});
    let refused = server.patch("orders", "hook", &change);
    assert_eq!(
        refused.codes(),
        (
            400,
            "Url validation".to_owned(),
            "UnexpectedStatus".to_owned()
        )
    );
    publish(&server, &key, "one");
    wait_until_taken(&server, &sink, "/old", &["one"]);

    sink.greet("/new", HandshakeReply::Defer);
    assert_eq!(server.patch("orders", "hook", &change).status, 201);
    publish(&server, &key, "two");
    wait_until_taken(&server, &sink, "/old", &["one", "two"]);
    let handshakes = sink.handshakes("/new");
    let path = handshakes.last().expect("it was asked").validation_path();
    assert_eq!(server.request_without_token("GET", &path, &[]).status, 200);
    publish(&server, &key, "three");
    wait_until_taken(&server, &sink, "/new", &["three"]);
    assert_eq!(sink.taken("/old"), 2);
    assert_eq!(
        state(&server.get_subscription("orders", "hook").json()),
        "Succeeded, none in service, configured new"
    );
}

#[test]
fn the_endpoint_receives_an_event_for_a_deletion_which_does_not_wait_for_it() {
    let server = Server::start(&[]);
    let sink = Sink::start();
    for (path, schema) in [("/grid", "EventGridSchema"), ("/cloud", CLOUD_EVENTS)] {
        server.topic("orders", "EventGridSchema");
        server.subscribe(
            "orders",
            "hook",
            &SubscriptionSpec::new(&sink.url(path)).schema(schema),
        );
        server.unsubscribe("orders", "hook");
        wait_for("a farewell", LONG, || {
            !sink.deletion_notices(path).is_empty()
        });
        server.subscribe(
            "orders",
            "other",
            &SubscriptionSpec::new(&sink.url(path)).schema(schema),
        );
        server.command("DELETE", TOPIC, &Value::Null);
        wait_for("another farewell", LONG, || {
            sink.deletion_notices(path).len() == 2
        });
        let reported = sink.deletion_notices(path);
        let ids: Vec<&Value> = reported
            .iter()
            .map(|reported| reported.body.get(0).unwrap_or(&reported.body))
            .map(|event| &event["data"]["eventSubscriptionId"])
            .collect();
        let ours = ["hook", "other"].map(|name| format!("{TOPIC}/eventSubscriptions/{name}"));
        assert_eq!(json!(ids), json!(ours));
    }
}

#[test]
fn without_validation_an_endpoint_that_hangs_delays_neither_creation_nor_deletion() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    server.topic("orders", "EventGridSchema");
    let endpoint = Endpoint::start(vec![vec![Step::Hang]]);
    let clock = gridhook::clock::Clock::system();
    let start = clock.now();
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&endpoint.url()));
    server.unsubscribe("orders", "hook");
    let took = clock.now().since(start);
    // A response that is waited for takes 30 s.
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    wait_for("the farewell", LONG, || endpoint.requests().len() == 1);
    assert_eq!(
        endpoint.requests()[0].header("aeg-event-type"),
        Some("SubscriptionDeletion")
    );
}

#[test]
fn while_an_endpoint_is_asked_others_are_served_and_an_outdated_change_is_refused() {
    let server = Server::start(&[("DELIVERY__VALIDATE_TIMEOUT", "20s")]);
    let sink = Sink::start();
    server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/old")));
    let permission = "HTTP/1.1 200 OK\r\nwebhook-allowed-origin: *\r\ncontent-length: 0\r\n\r\n";
    let slow = vec![
        Step::Pause(Duration::from_millis(1500)),
        Step::Say(permission.as_bytes().to_vec()),
    ];
    let slow = Endpoint::start(vec![slow]);
    let change = json!({"destination": {"properties": {"endpointUrl": slow.url()}}, "eventDeliverySchema": CLOUD_EVENTS});
    thread::scope(|scope| {
        let changing = scope.spawn(|| server.patch("orders", "hook", &change));
        wait_for("the question", LONG, || slow.requests().len() == 1);
        assert_eq!(
            server
                .patch("orders", "hook", &json!({"labels": ["x"]}))
                .status,
            201
        );
        assert!(!changing.is_finished(), "nobody waited for the endpoint");
        let outdated = changing.join().expect("it is answered");
        assert_eq!(outdated.codes().0, 409, "{}", outdated.text());
    });
    let reported = server.get_subscription("orders", "hook").json();
    assert_eq!(reported["properties"]["labels"], json!(["x"]));
    assert_eq!(
        state(&reported),
        "Succeeded, none in service, configured old"
    );
}
