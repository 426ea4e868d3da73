//! https: certificates are checked, and what is wrong with one is said.

use std::sync::Arc;

use gridhook::{
    deliver::{Client, Trust},
    policy::outcome::Outcome,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tempfile::TempDir;

use super::{AMPLE, BRIEF, eventually, options, post_to, trusting};
use crate::support::endpoint::{Endpoint, Step, answer};

/// An authority of the test's own, in a file, and a server's identity from it for `name`.
fn authority(name: &str) -> (TempDir, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let server =
        CertificateParams::new(vec![name.to_owned()]).expect("a name").signed_by(&key, &issuer).expect("signed");
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("an identity");
    (folder, Arc::new(config))
}

fn url(endpoint: &Endpoint, host: &str) -> String {
    format!("https://{host}:{}/hook", endpoint.address().port())
}

#[actix_rt::test]
async fn an_operators_own_authority_is_believed_and_connections_are_used_again() {
    let (folder, tls) = authority("localhost");
    let endpoint = Endpoint::start_tls(vec![answer(200, "", "safe"), answer(200, "", "still"), vec![Step::Hang]], tls);
    let client = Client::new(trusting(&folder.path().join("ca.pem")));
    for body in ["safe", "still"] {
        let answer = post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
        assert_eq!((answer.outcome, answer.status), (Outcome::Delivered, Some(200)), "{}", answer.detail);
        assert_eq!(answer.body, body);
    }
    assert_eq!(endpoint.connections(), 1);
    assert_eq!(post_to(&client, &url(&endpoint, "localhost"), BRIEF).await.outcome, Outcome::TimedOut);
}

#[actix_rt::test]
async fn an_unknown_authority_and_a_wrong_name_are_told_apart() {
    let (folder, tls) = authority("elsewhere.test");
    let endpoint = Endpoint::start_tls(vec![answer(200, "", "")], tls);
    let strangers = post_to(&Client::new(options()), &url(&endpoint, "127.0.0.1"), AMPLE).await;
    assert_eq!(strangers.outcome, Outcome::SocketError);
    assert!(strangers.detail.contains("no TLS with 127.0.0.1"), "{}", strangers.detail);
    assert!(strangers.detail.contains("UnknownIssuer"), "{}", strangers.detail);
    let client = Client::new(trusting(&folder.path().join("ca.pem")));
    let misnamed = post_to(&client, &url(&endpoint, "127.0.0.1"), AMPLE).await;
    assert_eq!(misnamed.outcome, Outcome::SocketError);
    assert!(misnamed.detail.contains("not valid for"), "{}", misnamed.detail);
    assert_eq!(endpoint.requests().len(), 0);
}

#[actix_rt::test]
async fn a_handshake_that_nobody_answers_is_a_timeout_that_says_so() {
    let endpoint = Endpoint::start(vec![answer(200, "", "")]);
    let answer = post_to(&Client::new(options()), &url(&endpoint, "127.0.0.1"), BRIEF).await;
    assert_eq!(answer.outcome, Outcome::TimedOut);
    assert!(answer.detail.contains("no TLS with 127.0.0.1"), "{}", answer.detail);
}

#[actix_rt::test]
async fn a_stale_tls_connection_costs_no_attempt() {
    for end in [Step::Reset, Step::Close] {
        let (folder, tls) = authority("localhost");
        let endpoint = Endpoint::start_tls(vec![answer(200, "", ""), vec![end], answer(202, "", "")], tls);
        let client = Client::new(trusting(&folder.path().join("ca.pem")));
        for status in [200, 202] {
            let answer = post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
            assert_eq!(answer.status, Some(status), "{}", answer.detail);
        }
        assert_eq!((endpoint.requests().len(), endpoint.connections()), (3, 2));
    }
}

#[actix_rt::test]
async fn idle_tls_connections_are_closed_too() {
    let (folder, tls) = authority("localhost");
    let endpoint = Endpoint::start_tls(vec![answer(200, "", "")], tls);
    let keep_alive = std::time::Duration::from_millis(20);
    let options = gridhook::deliver::Options { keep_alive, ..trusting(&folder.path().join("ca.pem")) };
    let client = Client::new(options);
    post_to(&client, &url(&endpoint, "localhost"), AMPLE).await;
    assert!(eventually(|| endpoint.closed() == 1).await);
    assert_eq!(post_to(&client, &url(&endpoint, "localhost"), AMPLE).await.status, Some(200));
}

#[test]
fn a_file_without_certificates_is_refused_at_start() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("empty.pem");
    assert!(Trust::load(Some(&path)).is_err(), "no file");
    std::fs::write(&path, "nothing").expect("written");
    assert!(Trust::load(Some(&path)).is_err(), "no certificate");
}
