//! Signed deliveries, at the whole server.

use gridhook::deliver::signature::Signer;
use serde_json::json;

use super::{LONG, wait_until_settled};
use crate::support::{
    endpoint::{Endpoint, Received, answer},
    load,
    server::{Server, SubscriptionSpec, wait_for},
};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

/// Whether a request is signed with these secrets: its id and its timestamp.
fn verified(request: &Received, secrets: &[&str]) -> (String, u64) {
    let header = |name| request.header(name).unwrap_or_else(|| panic!("{name}: {}", request.head));
    let (id, seconds) = (header("webhook-id"), header("webhook-timestamp").parse().expect("seconds"));
    let signer = Signer::new(secrets.iter().copied()).expect("secrets");
    assert_eq!(header("webhook-signature"), signer.signatures(id, seconds, &request.body));
    (id.to_owned(), seconds)
}

#[test]
fn every_attempt_is_signed_under_the_same_id_and_a_secret_is_changed_without_a_gap() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false")]);
    let key = server.topic("orders", "EventGridSchema");
    let endpoint = Endpoint::start(vec![answer(503, "", ""), answer(200, "", "")]);
    let signing = |secrets: &[&str]| json!({"secrets": secrets});
    server.subscribe("orders", "hook", &SubscriptionSpec::of(&endpoint.url()).webhook("signing", signing(&[OLD])));
    let publish = |id: &str| {
        let before = endpoint.requests().len();
        server.publish("orders", &key, &load::body(&[id.to_owned()], "/a"));
        wait_for("an attempt", LONG, || endpoint.requests().len() > before);
        wait_until_settled(&server, "orders", "hook");
    };
    publish("one");
    let change = |properties| server.patch("orders", "hook", &json!({"destination": {"properties": properties}}));
    assert_eq!(change(json!({"signing": signing(&[NEW, OLD])})).status, 201);
    publish("two");
    assert_eq!(change(json!({"maxEventsPerBatch": 5})).status, 201, "secrets survive a change of something else");
    publish("three");
    assert_eq!(change(json!({"signing": null})).status, 201);
    publish("four");

    let requests = endpoint.requests();
    let [first, again] = [0, 1].map(|place| verified(&requests[place], &[OLD]));
    assert_eq!((first.0, first.1 <= again.1), (again.0.clone(), true));
    let [second, third] = [2, 3].map(|place| verified(&requests[place], &[NEW, OLD]));
    assert!(second.0 != again.0 && second.0 != third.0, "other events have other ids");
    assert_eq!(requests[4].header("webhook-signature"), None);
}

#[test]
fn secrets_are_accepted_and_never_shown() {
    let server = Server::start(&[("DELIVERY__VALIDATE", "false"), ("LOG__FILTER", "debug")]);
    server.topic("orders", "EventGridSchema");
    let spec =
        |secrets: &[&str]| SubscriptionSpec::of("http://127.0.0.1:1/").webhook("signing", json!({"secrets": secrets}));
    let saved = server.ask_for("orders", "hook", &spec(&[NEW, OLD]));
    for reported in
        [saved, server.get_subscription("orders", "hook"), server.patch("orders", "hook", &json!({"labels": ["x"]}))]
    {
        let secrets = &reported.json()["properties"]["destination"]["properties"]["signing"]["secrets"];
        assert_eq!(secrets, &json!(["whsk_[hidden]", "whsec_[hidden]"]), "{}", reported.text());
    }
    // What is shown can be written back: each secret stays where it was. Where there was none, there is nothing to stay.
    let again = server.ask_for("orders", "hook", &spec(&["whsk_[hidden]", "whsec_[hidden]"]));
    assert_eq!(again.status, 201, "{}", again.text());
    let refused = server.ask_for("orders", "hook", &spec(&[NEW, OLD, "whsec_[hidden]"]));
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("destination.properties.signing.secrets[2] cannot be used"), "{}", refused.text());
    let log = server.logs();
    assert!(!log.contains("MfKQ9r8") && !log.contains("6Xb/dCc"), "no log has a secret");
}
