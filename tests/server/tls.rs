//! https in both directions, at the whole server.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::LONG;
use crate::support::{
    certificates::Authority,
    endpoint::{Endpoint, respond},
    http::Client,
    load,
    server::{Server, SubscriptionSpec, wait_for},
};

/// Its certificate as the next connection is shown it.
fn shown(server: &Server) -> Vec<u8> {
    let mut client = server.client();
    client.ask("GET", "/healthz", &[], b"").expect("it answers");
    client.certificate().expect("it was shown")
}

#[test]
fn a_new_certificate_is_shown_without_a_restart_and_a_bad_one_is_not() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let [first, second] = [authority.issue("127.0.0.1"), authority.issue("127.0.0.1")];
    first.write(folder.path(), "server");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let certificate = path("server.crt");
    let key = path("server.key");
    let settings = [
        ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
        ("SERVER__TLS_KEY", &key),
        ("SERVER__TLS_RELOAD", "100ms"),
        ("SERVER__TLS_MINIMUM_VERSION", "1.3"),
    ];
    let server = Server::start_tls(&settings, authority.client());
    let key_of_topic = server.topic("orders", "EventGridSchema");
    server.publish(
        "orders",
        &key_of_topic,
        &load::body(&["one".to_owned()], "/a"),
    );
    let scope = "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics";
    let topic = server
        .command("GET", &format!("{scope}/orders"), &Value::Null)
        .json();
    let endpoint = topic["properties"]["endpoint"]
        .as_str()
        .expect("an address")
        .to_owned();
    assert!(endpoint.starts_with("https://127.0.0.1:"), "{endpoint}");
    assert!(
        Client::new(server.address())
            .ask("GET", "/healthz", &[], b"")
            .is_err(),
        "it speaks nothing but https"
    );

    let mut open = server.client();
    assert_eq!(
        open.ask("GET", "/healthz", &[], b"")
            .expect("it answers")
            .status,
        200
    );
    assert_eq!(shown(&server), first.certificate.to_vec());
    // Half of the pair: for a moment it is a certificate without its key.
    std::fs::write(&certificate, &second.pem).expect("written");
    wait_for("the complaint", LONG, || {
        server.logs().contains("a new certificate cannot be used")
    });
    assert_eq!(shown(&server), first.certificate.to_vec());
    second.write(folder.path(), "server");
    wait_for("the new certificate", LONG, || {
        shown(&server) == second.certificate.to_vec()
    });
    assert_eq!(
        open.ask("GET", "/healthz", &[], b"")
            .expect("it answers")
            .status,
        200,
        "what is open stays open"
    );
    assert_eq!(open.certificate(), Some(first.certificate.to_vec()));

    let complaints = || {
        server
            .logs()
            .matches("a new certificate cannot be used")
            .count()
    };
    let before = complaints();
    std::fs::write(&certificate, "nothing").expect("written");
    wait_for("another complaint", LONG, || complaints() > before);
    authority
        .expired("127.0.0.1")
        .write(folder.path(), "server");
    wait_for("a complaint about its end", LONG, || {
        let log = server.logs();
        log.contains("and the one in use is valid now") && log.contains("2020")
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(shown(&server), second.certificate.to_vec());
}

#[test]
fn an_endpoint_that_demands_a_certificate_gets_the_one_that_the_subscription_names() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let certificates = folder.path().join("certificates");
    std::fs::create_dir(&certificates).expect("a folder");
    authority.issue("gridhook").write(&certificates, "shop");
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    let [roots, shown] =
        [folder.path().join("ca.pem"), certificates.clone()].map(|path| path.display().to_string());
    let settings = [
        ("DELIVERY__TLS_ROOTS", roots.as_str()),
        ("DELIVERY__CLIENT_CERTIFICATES_DIR", &shown),
    ];
    let mut server = Server::start(&settings);
    let key = server.topic("orders", "EventGridSchema");
    let script = respond(200, "webhook-allowed-origin: *\r\n", "");
    let endpoint = Endpoint::start_tls(vec![script], authority.demanding("localhost"));
    let url = format!("https://localhost:{}/hook", endpoint.address().port());
    let spec = |name: &str| {
        SubscriptionSpec::new(&url)
            .schema("CloudEventSchemaV1_0")
            .webhook("clientCertificate", json!(name))
    };

    let without = server.put_subscription(
        "orders",
        "hook",
        &SubscriptionSpec::new(&url).schema("CloudEventSchemaV1_0"),
    );
    assert_eq!(
        without.codes(),
        (400, "Url validation".to_owned(), "SocketError".to_owned()),
        "{}",
        without.text()
    );
    assert!(without.text().contains("alert"), "{}", without.text());
    let unknown = server.put_subscription("orders", "hook", &spec("elsewhere"));
    let message = unknown.text();
    assert!(
        unknown.status == 400
            && message.contains(
                "clientCertificate is \\\"elsewhere\\\", which does not exist; \
                 expected one of shop"
            ),
        "{message}"
    );
    assert_eq!(endpoint.requests().len(), 0);

    server.subscribe("orders", "hook", &spec("shop"));
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("the event", LONG, || endpoint.requests().len() == 2);
    assert_eq!(
        endpoint.requests()[1].header("aeg-event-type"),
        Some("Notification")
    );
    let reported = server.get_subscription("orders", "hook").json();
    assert_eq!(
        reported["properties"]["destination"]["properties"]["clientCertificate"],
        "shop"
    );

    // A certificate that is gone after a restart stops nothing but its own requests, which say why.
    server.terminate();
    std::fs::remove_file(certificates.join("shop.crt")).expect("it was there");
    server.restart();
    server.publish("orders", &key, &load::body(&["two".to_owned()], "/a"));
    wait_for("a failure", LONG, || {
        server.counter("orders", "hook", "requestsFailed") > 0
    });
    assert_eq!(endpoint.requests().len(), 2);
}

#[test]
fn a_subscription_that_demands_tls_1_3_refuses_an_endpoint_with_tls_1_2() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    let roots = folder.path().join("ca.pem").display().to_string();
    let server = Server::start(&[("DELIVERY__TLS_ROOTS", roots.as_str())]);
    let key = server.topic("orders", "EventGridSchema");
    let script = || vec![respond(200, "webhook-allowed-origin: *\r\n", "")];
    let old = Endpoint::start_tls(
        script(),
        authority.endpoint("localhost", &[&rustls::version::TLS12]),
    );
    let new = Endpoint::start_tls(
        script(),
        authority.endpoint("localhost", rustls::ALL_VERSIONS),
    );
    let spec = |endpoint: &Endpoint, version: &str| {
        let url = format!("https://localhost:{}/hook", endpoint.address().port());
        let spec = SubscriptionSpec::new(&url).schema("CloudEventSchemaV1_0");
        spec.webhook("minimumTlsVersionAllowed", json!(version))
    };
    // A connection that another subscription opened is not used either.
    server.subscribe("orders", "any", &spec(&old, "1.0"));
    let refused = server.put_subscription("orders", "strict", &spec(&old, "1.3"));
    assert_eq!(
        refused.codes(),
        (400, "Url validation".to_owned(), "SocketError".to_owned()),
        "{}",
        refused.text()
    );
    assert!(refused.text().contains("no TLS with"), "{}", refused.text());
    server.subscribe("orders", "strict", &spec(&new, "1.3"));
    let version = |name: &str| {
        let reported = server.get_subscription("orders", name).json();
        reported["properties"]["destination"]["properties"]["minimumTlsVersionAllowed"].clone()
    };
    assert_eq!(
        (version("any"), version("strict")),
        (json!("1.0"), json!("1.3"))
    );
    server.publish("orders", &key, &load::body(&["one".to_owned()], "/a"));
    wait_for("both", LONG, || {
        ["any", "strict"]
            .iter()
            .all(|name| server.counter("orders", name, "delivered") == 1)
    });
    assert_eq!(
        (old.requests().len(), new.requests().len()),
        (2, 2),
        "a handshake and a delivery each"
    );
}
