//! https: certificates are verified, and errors name the cause.

use std::sync::Arc;

use gridhook::{
    deliver::{
        ClientCertificates, ClientOptions, TlsTrust, WebhookClient,
        trust::{MinimumTlsVersion, TrustRoots},
    },
    policy::outcome::{Failure, Outcome},
};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use tempfile::TempDir;

use super::{AMPLE, BRIEF, eventually, options, post_to, trusting};
use crate::support::{
    certificates::Authority,
    endpoint::{Endpoint, Step, respond},
};

/// A certificate authority of the test, in a file, and a server certificate from it for `name`.
fn authority(name: &str) -> (TempDir, Arc<ServerConfig>) {
    let (folder, authority) = known();
    (folder, authority.endpoint(name, rustls::ALL_VERSIONS))
}

fn known() -> (TempDir, Authority) {
    let folder = TempDir::new().expect("a folder");
    let authority = Authority::new();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    (folder, authority)
}

fn url(endpoint: &Endpoint, host: &str) -> String {
    format!("https://{host}:{}/hook", endpoint.address().port())
}

#[actix_rt::test]
async fn an_operator_s_authority_is_trusted_and_connections_are_reused() {
    let (folder, tls) = authority("localhost");
    let endpoint = Endpoint::start_tls(
        vec![
            respond(200, "", "safe"),
            respond(200, "", "still"),
            vec![Step::Hang],
        ],
        tls,
    );
    let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
    for body in ["safe", "still"] {
        let response = post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
        assert_eq!(
            (response.outcome, response.status),
            (Outcome::Delivered, Some(200)),
            "{}",
            response.detail
        );
        assert_eq!(response.body, body);
    }
    assert_eq!(endpoint.connections(), 1);
    assert_eq!(
        post_to(&client, &url(&endpoint, "localhost"), BRIEF)
            .await
            .outcome,
        Outcome::Failed(Failure::TimedOut)
    );
}

#[actix_rt::test]
async fn an_unknown_authority_and_a_wrong_name_have_different_errors() {
    let (folder, tls) = authority("elsewhere.test");
    let endpoint = Endpoint::start_tls(vec![respond(200, "", "")], tls);
    let untrusted = post_to(
        &WebhookClient::new(options()),
        &url(&endpoint, "127.0.0.1"),
        AMPLE,
    )
    .await;
    assert_eq!(untrusted.outcome, Outcome::Failed(Failure::SocketError));
    assert!(
        untrusted.detail.contains("no TLS with 127.0.0.1"),
        "{}",
        untrusted.detail
    );
    assert!(
        untrusted.detail.contains("UnknownIssuer"),
        "{}",
        untrusted.detail
    );
    let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
    let misnamed = post_to(&client, &url(&endpoint, "127.0.0.1"), AMPLE).await;
    assert_eq!(misnamed.outcome, Outcome::Failed(Failure::SocketError));
    assert!(
        misnamed.detail.contains("not valid for"),
        "{}",
        misnamed.detail
    );
    assert_eq!(endpoint.requests().len(), 0);
}

#[actix_rt::test]
async fn new_authorities_apply_to_the_next_connection() {
    let (folder, _) = known();
    let file = folder.path().join("ca.pem");
    let next = Authority::new();
    let endpoint = Endpoint::start_tls(
        vec![respond(200, "", "")],
        next.endpoint("localhost", rustls::ALL_VERSIONS),
    );
    let trust = TlsTrust::load_roots(&[TrustRoots::File(file.clone())], MinimumTlsVersion::Tls12)
        .expect("an authority");
    let client = WebhookClient::new(ClientOptions {
        trust: trust.clone(),
        ..options()
    });
    let post = async || post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
    assert_eq!(
        post().await.outcome,
        Outcome::Failed(Failure::SocketError),
        "the first authority"
    );
    let authorities = trust.authorities();
    assert_eq!(authorities.reload(), "unchanged");
    std::fs::write(&file, &next.pem()[..200]).expect("written");
    for _ in 0..2 {
        assert_eq!(authorities.reload(), "not usable", "it is read again");
    }
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(authorities.reload(), "not readable");
    assert_eq!(post().await.outcome, Outcome::Failed(Failure::SocketError));
    std::fs::write(&file, next.pem()).expect("written");
    assert_eq!(authorities.reload(), "new");
    assert_eq!(authorities.reload(), "unchanged");
    let response = post().await;
    assert_eq!(response.outcome, Outcome::Delivered, "{}", response.detail);
}

/// Connects in memory. Returns how, or why the client refuses the server.
fn connect_once(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<HandshakeKind, rustls::Error> {
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut server = ServerConnection::new(Arc::clone(server)).expect("a server");
    // The tickets of TLS 1.3 follow the handshake.
    while client.is_handshaking() || server.wants_write() || client.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("bytes");
        }
        server.read_tls(&mut bytes.as_slice()).expect("bytes");
        server.process_new_packets().expect("a server takes all");
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("bytes");
        }
        client.read_tls(&mut bytes.as_slice()).expect("bytes");
        client.process_new_packets()?;
    }
    Ok(client.handshake_kind().expect("a handshake"))
}

fn assert_no_resumption_after_removal(version: &'static SupportedProtocolVersion) {
    let (folder, first) = known();
    let server = first.endpoint("localhost", &[version]);
    let file = folder.path().join("ca.pem");
    let trust = TlsTrust::load_roots(&[TrustRoots::File(file.clone())], MinimumTlsVersion::Tls12)
        .expect("an authority");
    first.issue("shop").write(folder.path(), "shop");
    let path = |name: &str| folder.path().join(name);
    let with_certificate = trust
        .with_client_certificate(&path("shop.crt"), &path("shop.key"))
        .expect("a certificate");
    let clients = [trust.config(), with_certificate.config()];
    for client in &clients {
        let first_connection = connect_once(client, &server);
        assert!(
            matches!(
                first_connection,
                Ok(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)
            ),
            "a client certificate has sessions of its own: {first_connection:?}"
        );
        assert_eq!(connect_once(client, &server), Ok(HandshakeKind::Resumed));
    }
    std::fs::write(&file, Authority::new().pem()).expect("written");
    assert_eq!(trust.authorities().reload(), "new");
    for client in &clients {
        let error = connect_once(client, &server).expect_err("the authority was removed");
        // The authorities of the tests have one name.
        assert!(
            matches!(error, rustls::Error::InvalidCertificate(_)),
            "{error}"
        );
    }
}

#[test]
fn a_session_with_a_removed_authority_is_not_resumed() {
    assert_no_resumption_after_removal(&rustls::version::TLS12);
    assert_no_resumption_after_removal(&rustls::version::TLS13);
}

#[actix_rt::test]
async fn an_unanswered_tls_handshake_is_a_timeout_with_its_cause() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let response = post_to(
        &WebhookClient::new(options()),
        &url(&endpoint, "127.0.0.1"),
        BRIEF,
    )
    .await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::TimedOut));
    assert!(
        response.detail.contains("no TLS with 127.0.0.1"),
        "{}",
        response.detail
    );
}

#[actix_rt::test]
async fn a_stale_tls_connection_costs_no_attempt() {
    for end in [Step::Reset, Step::Close] {
        let (folder, tls) = authority("localhost");
        let endpoint = Endpoint::start_tls(
            vec![respond(200, "", ""), vec![end], respond(202, "", "")],
            tls,
        );
        let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
        for status in [200, 202] {
            let response = post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
            assert_eq!(response.status, Some(status), "{}", response.detail);
        }
        assert_eq!((endpoint.requests().len(), endpoint.connections()), (3, 2));
    }
}

#[actix_rt::test]
async fn idle_tls_connections_are_closed_too() {
    let (folder, tls) = authority("localhost");
    let endpoint = Endpoint::start_tls(vec![respond(200, "", "")], tls);
    let keep_alive = std::time::Duration::from_millis(20);
    let options = gridhook::deliver::ClientOptions {
        keep_alive,
        ..trusting(&folder.path().join("ca.pem"))
    };
    let client = WebhookClient::new(options);
    post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
    assert!(eventually(|| endpoint.closed() == 1).await);
    assert_eq!(
        post_to(&client, &url(&endpoint, "localhost"), AMPLE)
            .await
            .status,
        Some(200)
    );
}

#[test]
fn a_file_without_certificates_is_refused_at_start() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("empty.pem");
    assert!(TlsTrust::load(Some(&path)).is_err(), "no file");
    std::fs::write(&path, "nothing").expect("written");
    assert!(TlsTrust::load(Some(&path)).is_err(), "no certificate");
    std::fs::write(&path, &Authority::new().pem()[..200]).expect("written");
    let error = TlsTrust::load(Some(&path)).expect_err("half a certificate");
    assert!(error.to_string().contains("may be incomplete"), "{error}");
}

#[actix_rt::test]
async fn an_old_version_of_tls_is_refused() {
    let (folder, authority) = known();
    let old = authority.endpoint("localhost", &[&rustls::version::TLS12]);
    let endpoint = Endpoint::start_tls(vec![respond(200, "", "")], old);
    let roots = [TrustRoots::File(folder.path().join("ca.pem"))];
    let post = async |version| {
        let trust = TlsTrust::load_roots(&roots, version).expect("an authority");
        post_to(
            &WebhookClient::new(ClientOptions { trust, ..options() }),
            &url(&endpoint, "localhost"),
            AMPLE,
        )
        .await
    };
    for accepted in [
        MinimumTlsVersion::Tls10,
        MinimumTlsVersion::Tls11,
        MinimumTlsVersion::Tls12,
    ] {
        assert_eq!(post(accepted).await.outcome, Outcome::Delivered);
    }
    let response = post(MinimumTlsVersion::Tls13).await;
    assert_eq!(response.outcome, Outcome::Failed(Failure::SocketError));
    assert!(
        response.detail.contains("no TLS with"),
        "{}",
        response.detail
    );
}

#[actix_rt::test]
async fn an_endpoint_that_requests_a_certificate_gets_the_configured_one() {
    let (folder, authority) = known();
    let shown = TempDir::new().expect("a folder");
    authority.issue("shop").write(shown.path(), "shop");
    Authority::new()
        .issue("shop")
        .write(shown.path(), "stranger");
    let endpoint =
        Endpoint::start_tls(vec![respond(200, "", "")], authority.demanding("localhost"));
    let trust = TlsTrust::load_roots(
        &[TrustRoots::File(folder.path().join("ca.pem"))],
        MinimumTlsVersion::Tls12,
    )
    .expect("an authority");
    let identities = ClientCertificates::load(shown.path(), &trust).expect("certificates");
    assert_eq!(identities.names(), ["shop", "stranger"]);
    let post = async |trust: &TlsTrust| {
        let client = WebhookClient::new(ClientOptions {
            trust: trust.clone(),
            ..options()
        });
        post_to(&client, &url(&endpoint, "localhost"), AMPLE).await
    };
    assert_eq!(
        post(&identities.get("shop").expect("it is there"))
            .await
            .outcome,
        Outcome::Delivered
    );
    for refused in [
        trust.clone(),
        identities.get("stranger").expect("it is there"),
    ] {
        let response = post(&refused).await;
        assert_eq!(
            response.outcome,
            Outcome::Failed(Failure::SocketError),
            "{}",
            response.detail
        );
        assert!(response.detail.contains("alert"), "{}", response.detail);
    }
    assert_eq!(endpoint.requests().len(), 1);
}

#[actix_rt::test]
async fn an_endpoint_may_be_an_address_with_a_certificate_for_it() {
    for host in ["127.0.0.1", "::1"] {
        let (folder, authority) = known();
        let tls = authority.endpoint(host, rustls::ALL_VERSIONS);
        let endpoint = Endpoint::start_tls_at(host, vec![respond(200, "", "")], tls);
        let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
        let response = post_to(
            &client,
            &format!("https://{}/hook", endpoint.address()),
            AMPLE,
        )
        .await;
        assert_eq!(
            response.outcome,
            Outcome::Delivered,
            "{host}: {}",
            response.detail
        );
        assert_eq!(
            endpoint.requests()[0].header("host"),
            Some(endpoint.address().to_string().as_str())
        );
    }
}

#[actix_rt::test]
async fn http_and_https_at_the_same_host_and_port_share_no_connection() {
    let (folder, tls) = authority("localhost");
    let endpoint = Endpoint::start_tls(vec![respond(200, "", "")], tls);
    let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
    assert_eq!(
        post_to(&client, &url(&endpoint, "localhost"), AMPLE)
            .await
            .outcome,
        Outcome::Delivered
    );
    let plain = post_to(
        &client,
        &url(&endpoint, "localhost").replace("https", "http"),
        AMPLE,
    )
    .await;
    assert_ne!(plain.outcome, Outcome::Delivered);
    assert_eq!((endpoint.requests().len(), endpoint.connections()), (1, 2));
}

#[actix_rt::test]
async fn interim_responses_and_rejections_are_read_through_tls_too() {
    let (folder, tls) = authority("localhost");
    let say = |text: &str| Step::Say(text.as_bytes().to_vec());
    let interim = vec![
        say(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 2",
        ),
        Step::Pause(std::time::Duration::from_millis(20)),
        say("00 OK\r\ncontent-length: 2\r\n\r\nhi"),
    ];
    let endpoint = Endpoint::start_tls(vec![interim, respond(204, "", "")], tls);
    let client = WebhookClient::new(trusting(&folder.path().join("ca.pem")));
    for status in [200, 204] {
        let response = post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
        assert_eq!(response.status, Some(status), "{}", response.detail);
    }
    assert_eq!(endpoint.connections(), 1, "its connection is used again");
}

#[test]
fn a_certificate_without_its_own_key_is_refused_at_start() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let trust = TlsTrust::load(None).expect("without a file nothing can fail");
    authority.issue("shop").write(folder.path(), "shop");
    ClientCertificates::load(folder.path(), &trust).expect("a pair");
    std::fs::write(
        folder.path().join("shop.key"),
        authority.issue("shop").key.serialize_pem(),
    )
    .expect("written");
    let error = ClientCertificates::load(folder.path(), &trust)
        .expect_err("another key")
        .to_string();
    assert!(
        error.contains("shop.crt") && error.contains("KeyMismatch"),
        "{error}"
    );
    std::fs::remove_file(folder.path().join("shop.key")).expect("it was there");
    let error = ClientCertificates::load(folder.path(), &trust)
        .expect_err("no key")
        .to_string();
    assert!(error.contains("shop.key"), "{error}");
}
