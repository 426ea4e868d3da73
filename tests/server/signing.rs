//! Signed deliveries, at the whole server.

use gridhook::deliver::signature::Signer;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, Received, respond},
    http::header,
    load,
    server::{SCOPE, Server, SubscriptionSpec, wait_for},
    sink::{HandshakeRequest, Sink},
};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const NEW: &str =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

/// Whether a request is signed with these secrets: its id and its timestamp.
fn verified(request: &Received, secrets: &[&str]) -> (String, u64) {
    let header = |name| {
        request
            .header(name)
            .unwrap_or_else(|| panic!("{name}: {}", request.head))
    };
    let id = header("webhook-id");
    let seconds = header("webhook-timestamp").parse().expect("seconds");
    let signer = Signer::new(secrets.iter().copied()).expect("secrets");
    assert_eq!(
        header("webhook-signature"),
        signer.signatures(id, seconds, &request.body)
    );
    (id.to_owned(), seconds)
}

#[test]
fn every_attempt_is_signed_under_the_same_id_and_a_secret_is_changed_without_a_gap() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let key = server.topic("orders", "EventGridSchema");
    let endpoint = Endpoint::start(vec![respond(503, "", ""), respond(200, "", "")]);
    let signing = |secrets: &[&str]| json!({"secrets": secrets});
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&endpoint.url()).webhook("signing", signing(&[OLD])),
    );
    let publish = |id: &str| {
        let before = endpoint.requests().len();
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("an attempt", LONG, || endpoint.requests().len() > before);
        wait_until_settled(&server, "orders", "hook");
    };
    publish("one");
    let change = |properties| {
        server.patch(
            "orders",
            "hook",
            &json!({"destination": {"properties": properties}}),
        )
    };
    assert_eq!(change(json!({"signing": signing(&[NEW, OLD])})).status, 201);
    publish("two");
    assert_eq!(
        change(json!({"maxEventsPerBatch": 5})).status,
        201,
        "secrets survive a change of something else"
    );
    publish("three");
    assert_eq!(change(json!({"signing": null})).status, 201);
    publish("four");

    let requests = endpoint.requests();
    let [first, again] = [0, 1].map(|place| verified(&requests[place], &[OLD]));
    assert_eq!((first.0, first.1 <= again.1), (again.0.clone(), true));
    let [second, third] = [2, 3].map(|place| verified(&requests[place], &[NEW, OLD]));
    assert!(
        second.0 != again.0 && second.0 != third.0,
        "other events have other ids"
    );
    assert_eq!(requests[4].header("webhook-signature"), None);
}

/// The form in which GET returns a secret.
fn hidden(secret: &str) -> String {
    let digest = format!("{:x}", Sha256::digest(secret));
    format!(
        "{}_[hidden:{}]",
        secret.split('_').next().expect("a kind"),
        &digest[..4]
    )
}

#[test]
fn a_rotated_secret_is_dropped_by_its_fingerprint() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let key = server.topic("orders", "EventGridSchema");
    let secrets = |secrets: &[&str]| json!({"destination": {"properties": {"signing": {"secrets": secrets}}}});
    let both =
        SubscriptionSpec::new(&endpoint.url()).webhook("signing", json!({"secrets": [OLD, OTHER]}));
    server.subscribe("orders", "hook", &both);
    // Without the fingerprint it could be either, and an unknown one is none.
    for (given, reason) in [
        ("whsec_[hidden]".to_owned(), "stands for several secrets"),
        (
            "whsec_[hidden:0000]".to_owned(),
            "which is no secret of the event subscription",
        ),
    ] {
        let refused = server.patch("orders", "hook", &secrets(&[&given]));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(reason), "{}", refused.text());
    }
    assert_eq!(
        server
            .patch("orders", "hook", &secrets(&[&hidden(OTHER)]))
            .status,
        201
    );
    let before = endpoint.requests().len();
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("an attempt", LONG, || endpoint.requests().len() > before);
    verified(endpoint.requests().last().expect("a request"), &[OTHER]);
    // The audit trail says which one has gone.
    let trail = server
        .command("GET", "/audit?search=PATCH", &serde_json::Value::Null)
        .text();
    assert!(
        trail.contains(&hidden(OLD))
            && trail.contains(&hidden(OTHER))
            && !trail.contains("MfKQ9r8"),
        "{trail}"
    );
}

#[test]
fn secrets_are_accepted_and_never_shown() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false"), ("LOG__FILTER", "debug")]);
    server.topic("orders", "EventGridSchema");
    let spec = |secrets: &[&str]| {
        SubscriptionSpec::new("http://127.0.0.1:1/").webhook("signing", json!({"secrets": secrets}))
    };
    let saved = server.put_subscription("orders", "hook", &spec(&[NEW, OLD]));
    for reported in [
        saved,
        server.get_subscription("orders", "hook"),
        server.patch("orders", "hook", &json!({"labels": ["x"]})),
    ] {
        let secrets =
            &reported.json()["properties"]["destination"]["properties"]["signing"]["secrets"];
        assert_eq!(
            secrets,
            &json!([hidden(NEW), hidden(OLD)]),
            "{}",
            reported.text()
        );
    }
    // The returned form can be put back, in any order. Without fingerprints, as older servers
    // returned it, this works for one secret of a kind.
    let older = ["whsk_[hidden]", "whsec_[hidden]"].map(str::to_owned);
    for again in [
        [hidden(OLD), hidden(NEW)],
        [hidden(NEW), hidden(OLD)],
        older,
    ] {
        let again = server.put_subscription(
            "orders",
            "hook",
            &spec(&again.each_ref().map(String::as_str)),
        );
        assert_eq!(again.status, 201, "{}", again.text());
    }
    let refused = server.put_subscription("orders", "hook", &spec(&[NEW, OLD, "whsec_[hidden]"]));
    assert_eq!(refused.status, 400);
    let reason = "properties.destination.properties.signing.secrets[2] is \\\"whsec_[hidden]\\\", \
        and the list has this secret";
    assert!(refused.text().contains(reason), "{}", refused.text());
    let log = server.logs();
    assert!(
        !log.contains("MfKQ9r8") && !log.contains("6Xb/dCc"),
        "no log has a secret"
    );
}

#[test]
fn handshakes_and_deletion_notices_are_signed_like_deliveries() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "true")]);
    let sink = Sink::start();
    let signing = json!({"secrets": [NEW, OLD]});
    for (schema, path) in [
        ("EventGridSchema", "/grid"),
        ("CloudEventSchemaV1_0", "/cloud"),
    ] {
        let topic = path.trim_start_matches('/');
        server.topic(topic, schema);
        server.subscribe(
            topic,
            "hook",
            &SubscriptionSpec::new(&sink.url(path)).webhook("signing", signing.clone()),
        );
        let [handshake] = &sink.handshakes(path)[..] else {
            panic!("one handshake: {:?}", sink.handshakes(path))
        };
        check_signed(handshake);
        server.command(
            "DELETE",
            &format!("{SCOPE}/{topic}/eventSubscriptions/hook"),
            &serde_json::Value::Null,
        );
        wait_for("a notice", LONG, || !sink.deletion_notices(path).is_empty());
        check_signed(&sink.deletion_notices(path)[0]);
    }
}

/// The sink keeps the body as JSON, whose text is the sent one: the server writes the same form.
fn check_signed(request: &HandshakeRequest) {
    let header =
        |name| header(&request.head, name).unwrap_or_else(|| panic!("{name}: {}", request.head));
    let id = header("webhook-id");
    let seconds = header("webhook-timestamp").parse().expect("seconds");
    let signer = Signer::new([NEW, OLD].into_iter()).expect("secrets");
    let body = if request.body.is_null() {
        String::new()
    } else {
        request.body.to_string()
    };
    assert_eq!(
        header("webhook-signature"),
        signer.signatures(id, seconds, body.as_bytes()),
        "{}",
        request.head
    );
    assert!(id.starts_with("msg_") && !id.contains('.'), "{id}");
}
