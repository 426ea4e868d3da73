//! Handshakes on real sockets. Every failure has a name.

use std::{io, net::SocketAddr, time::Duration};

use expect_test::expect;
use gridhook::{
    deliver::{
        AddressRules, ClientOptions, Destination, OutgoingRequest, WebhookClient,
        handshake::{EventEnvelope, deletion_notice, permission_request, validation_request},
    },
    event::{Schema, WallTime},
    policy::{
        outcome::{Failure, Outcome},
        validation::{Handshake, ValidationFailure, ValidationResponse},
    },
};

use super::{options, with_names};
use crate::support::{
    endpoint::{Endpoint, Received, Script, Step, respond},
    port::ReservedPort,
};

const AMPLE: Duration = Duration::from_secs(10);
const BRIEF: Duration = Duration::from_millis(500);

fn destination(url: &str, schema: Schema) -> Destination {
    Destination::new(url, "to-shop", schema, schema, false).expect("a good URL")
}

fn envelope() -> EventEnvelope<'static> {
    // 2021-03-10T21:02:56Z
    EventEnvelope {
        id: "e-1",
        topic: "/subscriptions/s/topics/t",
        wall: WallTime(1_615_410_176_000_000),
    }
}

fn outgoing(handshake: Handshake, destination: &Destination) -> OutgoingRequest {
    match handshake {
        Handshake::EventGrid => validation_request(
            destination,
            &envelope(),
            "CODE",
            "http://here/validate?token=1",
        ),
        Handshake::CloudEvents => {
            permission_request(destination, Some(("http://here/validate?token=1", 120)))
        }
    }
}

async fn handshake_with(
    options: ClientOptions,
    url: &str,
    handshake: Handshake,
    wait: Duration,
) -> Result<ValidationResponse, ValidationFailure> {
    let schema = match handshake {
        Handshake::EventGrid => Schema::EventGrid,
        Handshake::CloudEvents => Schema::CloudEvents,
    };
    let destination = destination(url, schema);
    WebhookClient::new(options)
        .send_handshake(
            handshake,
            &destination,
            &outgoing(handshake, &destination),
            wait,
        )
        .await
}

/// Without what differs between runs.
fn shown(received: &Received) -> String {
    let mut lines: Vec<&str> = received.head.trim_end().lines().collect();
    lines.retain(|line| {
        !["host:", "date:", "user-agent:"]
            .iter()
            .any(|name| line.to_lowercase().starts_with(name))
    });
    lines[1..].sort_unstable();
    format!(
        "{}\n\n{}",
        lines.join("\n"),
        String::from_utf8_lossy(&received.body)
    )
}

#[test]
fn a_handshake_has_the_static_delivery_properties() {
    let fixed = r#"{"name":"Authorization","type":"Static","properties":{"value":"Bearer of the hook","isSecret":true}}"#;
    let other = r#"{"name":"total","type":"Dynamic","properties":{"sourceField":"data.total"}}"#;
    let properties = [fixed, other].map(|text| serde_json::from_str(text).expect("a property"));
    for (handshake, schema) in [
        (Handshake::EventGrid, Schema::EventGrid),
        (Handshake::CloudEvents, Schema::CloudEvents),
    ] {
        let destination = destination("http://127.0.0.1:1/", schema).with_properties(&properties);
        let request = outgoing(handshake, &destination);
        assert_eq!(
            request.properties,
            [("Authorization".to_owned(), "Bearer of the hook".to_owned())]
        );
    }
}

#[actix_rt::test]
async fn the_code_is_posted_to_the_exact_address_in_event_grid_s_form() {
    let endpoint = Endpoint::start(vec![respond(200, "", r#"{"validationResponse":"CODE"}"#)]);
    let response = handshake_with(options(), &endpoint.url(), Handshake::EventGrid, AMPLE)
        .await
        .expect("a response");
    assert_eq!(
        (response.status, &response.body[..]),
        (200, &br#"{"validationResponse":"CODE"}"#[..])
    );
    expect![[r#"
        POST /hook?code=1 HTTP/1.1
        aeg-event-type: SubscriptionValidation
        aeg-subscription-name: TO-SHOP
        content-length: 288
        content-type: application/json; charset=utf-8

        [{"data":{"validationCode":"CODE","validationUrl":"http://here/validate?token=1"},"dataVersion":"1","eventTime":"2021-03-10T21:02:56.0000000Z","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","id":"e-1","metadataVersion":"1","subject":"","topic":"/subscriptions/s/topics/t"}]"#]]
    .assert_eq(&shown(&endpoint.requests()[0]));
}

#[actix_rt::test]
async fn a_permission_is_requested_with_options_and_read_from_headers() {
    let headers = "WebHook-Allowed-Origin: eventgrid.azure.net\r\nWebHook-Allowed-Rate: 100\r\n";
    for script in [
        respond(200, headers, "a page"),
        // A body that never ends does not delay the result, because it is not read.
        vec![
            Step::Say(
                format!("HTTP/1.1 200 OK\r\n{headers}content-length: 9\r\n\r\n").into_bytes(),
            ),
            Step::Hang,
        ],
    ] {
        let endpoint = Endpoint::start(vec![script]);
        let response = handshake_with(options(), &endpoint.url(), Handshake::CloudEvents, AMPLE)
            .await
            .expect("a response");
        assert_eq!(
            response.allowed_origin.as_deref(),
            Some("eventgrid.azure.net")
        );
        assert_eq!(
            (response.status, response.allowed_rate.as_deref()),
            (200, Some("100"))
        );
        expect![[r#"
            OPTIONS /hook?code=1 HTTP/1.1
            content-length: 0
            webhook-request-callback: http://here/validate?token=1
            webhook-request-origin: eventgrid.azure.net
            webhook-request-rate: 120

        "#]]
        .assert_eq(&shown(&endpoint.requests()[0]));
    }
}

#[actix_rt::test]
async fn a_redirect_is_reported_and_not_followed() {
    let elsewhere = Endpoint::start(vec![respond(200, "", r#"{"validationResponse":"CODE"}"#)]);
    let headers = format!("location: {}\r\n", elsewhere.url());
    let endpoint = Endpoint::start(vec![respond(307, &headers, "")]);
    let response = handshake_with(options(), &endpoint.url(), Handshake::EventGrid, AMPLE)
        .await
        .expect("a response");
    assert_eq!((response.status, elsewhere.requests().len()), (307, 0));
}

async fn check(
    options: ClientOptions,
    url: &str,
    wait: Duration,
    outcome: Outcome,
    reported: &str,
) {
    for handshake in [Handshake::EventGrid, Handshake::CloudEvents] {
        match handshake_with(options.clone(), url, handshake, wait).await {
            Err(ValidationFailure::Unanswered {
                outcome: found,
                detail,
            }) => {
                assert_eq!(found, outcome, "{detail}");
                assert!(detail.contains(reported), "{handshake:?}: {detail}");
            }
            other => panic!("{handshake:?} of {url}: {other:?}"),
        }
    }
}

#[actix_rt::test]
async fn every_handshake_failure_has_a_name() {
    let port = ReservedPort::new();
    let gone = port.address;
    let refused = format!("no connection to {gone}: Connection refused");
    check(
        options(),
        &format!("http://{gone}/"),
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        &refused,
    )
    .await;

    let unknown = with_names(|_, _| Some(Err(io::Error::other("no such name"))));
    let expected = "cannot resolve the name nowhere.test: no such name";
    check(
        unknown,
        "http://nowhere.test/",
        AMPLE,
        Outcome::Failed(Failure::ResolutionError),
        expected,
    )
    .await;
    let empty = with_names(|_, _| Some(Ok(Vec::new())));
    check(
        empty,
        "http://empty.test/",
        AMPLE,
        Outcome::Failed(Failure::ResolutionError),
        "the name empty.test has no address",
    )
    .await;

    let inner: SocketAddr = "10.1.2.3:80".parse().expect("an address");
    let trick = with_names(move |_, _| Some(Ok(vec![inner])));
    check(
        trick,
        "http://trick.test/",
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        "trick.test resolves to 10.1.2.3, which is private",
    )
    .await;
    check(
        options(),
        "http://10.1.2.3/",
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        "the address 10.1.2.3 is private",
    )
    .await;
    let strict = ClientOptions {
        rules: AddressRules {
            allow_http: false,
            ..AddressRules::loopback()
        },
        ..options()
    };
    check(
        strict,
        "http://127.0.0.1/",
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        "http is not allowed",
    )
    .await;

    let start = |step: Step| Endpoint::start(vec![vec![step]] as Vec<Script>);
    let plain = start(Step::Say(b"HTTP/1.1 400 No\r\n\r\n".to_vec()));
    let tls = format!("https://127.0.0.1:{}/", plain.address().port());
    check(
        options(),
        &tls,
        BRIEF,
        Outcome::Failed(Failure::TimedOut),
        "no TLS with 127.0.0.1",
    )
    .await;
    let silent = start(Step::Hang);
    check(
        options(),
        &silent.url(),
        BRIEF,
        Outcome::Failed(Failure::TimedOut),
        "no response within 500ms",
    )
    .await;
    let rude = start(Step::Close);
    check(
        options(),
        &rude.url(),
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        "closed without a response",
    )
    .await;
    let reset = start(Step::Reset);
    check(
        options(),
        &reset.url(),
        AMPLE,
        Outcome::Failed(Failure::SocketError),
        "broke before the response",
    )
    .await;
    let other = Endpoint::start(vec![vec![
        Step::Say(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()),
        Step::Hang,
    ]]);
    check(
        options(),
        &other.url(),
        AMPLE,
        Outcome::Failed(Failure::GenericError),
        "not valid HTTP",
    )
    .await;
}

#[actix_rt::test]
async fn each_handshake_has_its_own_connection() {
    let endpoint = Endpoint::start(vec![respond(200, "", "{}")]);
    let client = WebhookClient::new(options());
    let destination = destination(&endpoint.url(), Schema::EventGrid);
    let outgoing = outgoing(Handshake::EventGrid, &destination);
    for _ in 0..3 {
        client
            .send_handshake(Handshake::EventGrid, &destination, &outgoing, AMPLE)
            .await
            .expect("a response");
    }
    assert_eq!((endpoint.requests().len(), endpoint.connections()), (3, 3));
}

#[test]
fn a_deletion_event_has_the_delivery_schema() {
    let response = |schema| {
        let outgoing = deletion_notice(
            &destination("https://x.test/", schema),
            &envelope(),
            "/subscriptions/s/es",
        );
        let headers: Vec<_> = outgoing
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        format!(
            "{}\n{}",
            headers.join("\n"),
            String::from_utf8_lossy(&outgoing.body)
        )
    };
    expect![[r#"
        content-type: application/json; charset=utf-8
        aeg-event-type: SubscriptionDeletion
        aeg-subscription-name: TO-SHOP
        [{"data":{"eventSubscriptionId":"/subscriptions/s/es"},"dataVersion":"1","eventTime":"2021-03-10T21:02:56.0000000Z","eventType":"Microsoft.EventGrid.SubscriptionDeletedEvent","id":"e-1","metadataVersion":"1","subject":"","topic":"/subscriptions/s/topics/t"}]
        content-type: application/cloudevents+json; charset=utf-8
        aeg-event-type: SubscriptionDeletion
        aeg-subscription-name: TO-SHOP
        {"data":{"eventSubscriptionId":"/subscriptions/s/es"},"id":"e-1","source":"/subscriptions/s/topics/t","specversion":"1.0","time":"2021-03-10T21:02:56.0000000Z","type":"Microsoft.EventGrid.SubscriptionDeletedEvent"}"#]]
    .assert_eq(&[response(Schema::EventGrid), response(Schema::CloudEvents)].join("\n"));
}

#[actix_rt::test]
async fn the_body_of_a_validation_may_be_long() {
    for (bytes, is_whole) in [(10_000, true), (60_000, true), (70_000, false)] {
        let json = format!(
            r#"{{"padding":"{}","validationResponse":"CODE"}}"#,
            "x".repeat(bytes)
        );
        let endpoint = Endpoint::start(vec![respond(200, "", &json)]);
        let reply = handshake_with(options(), &endpoint.url(), Handshake::EventGrid, AMPLE)
            .await
            .expect("a response");
        assert_eq!(reply.body == json, is_whole, "{bytes}");
    }
}
