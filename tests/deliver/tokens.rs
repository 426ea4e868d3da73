//! Access tokens of the server: when they are fetched, on a clock of the test.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::FutureExt;
use gridhook::{
    deliver::{
        ClientOptions,
        assertion::IdentityCertificate,
        identity::{IdentityProof, ServerIdentity, TokenAudience, TokenSource},
        resource::Connections,
    },
    event::WallTime,
};
use serde_json::json;
use tempfile::TempDir;

use super::options;
use crate::support::{
    certificates::{Authority, IssuedRsa},
    endpoint::{Endpoint, Received, Script, respond},
};

/// The start of the test.
const START: WallTime = WallTime(1_000_000_000);

fn issued(token: &str, seconds: u64) -> Script {
    let body = json!({"token_type": "Bearer", "expires_in": seconds, "access_token": token});
    respond(200, "content-type: application/json\r\n", &body.to_string())
}

/// The tokens of an issuer for one application.
fn source(issuer: &Endpoint, folder: &TempDir) -> TokenSource {
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "s3cret").expect("written");
    source_with(issuer, IdentityProof::Secret(secret))
}

fn source_with(issuer: &Endpoint, proof: IdentityProof) -> TokenSource {
    let identity = ServerIdentity::new(
        &format!("http://{}/token", issuer.address()),
        "gridhook",
        proof,
    );
    let connections = Connections::new(Vec::new(), Some(identity), Vec::new());
    let audience = TokenAudience {
        tenant: None,
        application: "api://orders".to_owned(),
    };
    TokenSource::new(
        &ClientOptions {
            connections,
            ..options()
        },
        &audience,
    )
    .expect("an identity")
}

#[actix_rt::test]
async fn a_token_is_replaced_ahead_of_its_end_and_kept_while_the_issuer_is_down() {
    let folder = TempDir::new().expect("a folder");
    let down = || respond(503, "", "");
    let issuer = Endpoint::start(vec![
        issued("one", 3600),
        down(),
        down(),
        issued("two", 3600),
    ]);
    let source = source(&issuer, &folder);
    let at = |seconds| START.after(Duration::from_secs(seconds));
    let (first, is_new) = source.get_token(None, START).await.expect("a token");
    assert!(is_new);
    // Five minutes before the end, and not earlier.
    for (seconds, requests) in [(3299, 1), (3301, 2), (3320, 2), (3332, 3), (3350, 3)] {
        let (token, is_new) = source.get_token(None, at(seconds)).await.expect("a token");
        assert!(
            Arc::ptr_eq(&token, &first) && !is_new,
            "at {seconds} s the old one is good"
        );
        assert_eq!(
            issuer.requests().len(),
            requests,
            "at {seconds} s; one try in 30 s"
        );
    }
    let (second, is_new) = source.get_token(None, at(3400)).await.expect("a token");
    assert!(is_new && !Arc::ptr_eq(&second, &first));
    assert_eq!(issuer.requests().len(), 4);
}

#[actix_rt::test]
async fn a_refresh_that_its_caller_gives_up_leaves_the_old_token_in_use() {
    let folder = TempDir::new().expect("a folder");
    let issuer = Endpoint::start(vec![issued("one", 3600), issued("two", 3600)]);
    let source = source(&issuer, &folder);
    let at = |seconds| START.after(Duration::from_secs(seconds));
    let (first, _) = source.get_token(None, START).await.expect("a token");
    // Polled once: the request to the issuer has begun, and cannot have ended.
    assert!(
        source.get_token(None, at(3301)).now_or_never().is_none(),
        "it waits for the issuer"
    );
    let (token, is_new) = source.get_token(None, at(3302)).await.expect("a token");
    assert!(
        Arc::ptr_eq(&token, &first) && !is_new,
        "no second try within 30 s"
    );
    let (token, is_new) = source.get_token(None, at(3332)).await.expect("a token");
    assert!(is_new && !Arc::ptr_eq(&token, &first));
}

#[actix_rt::test]
async fn a_short_token_is_replaced_after_four_fifths_and_none_is_used_beyond_its_end() {
    let folder = TempDir::new().expect("a folder");
    let issuer = Endpoint::start(vec![
        issued("one", 100),
        issued("two", 100),
        respond(503, "", ""),
    ]);
    let source = source(&issuer, &folder);
    let at = |seconds| START.after(Duration::from_secs(seconds));
    for (seconds, is_expected) in [(0, true), (79, false), (81, true), (150, false)] {
        let (_, is_new) = source.get_token(None, at(seconds)).await.expect("a token");
        assert_eq!(is_new, is_expected, "at {seconds} s");
    }
    let missing = source
        .get_token(None, at(182))
        .await
        .expect_err("it ended at 181 s");
    assert_eq!(
        missing.to_string(),
        "no access token for the endpoint: the response is 503 (no error code)"
    );
}

#[actix_rt::test]
async fn a_certificate_is_read_for_each_token_and_must_fit_its_key() {
    let folder = TempDir::new().expect("a folder");
    let issuer = Endpoint::start(vec![issued("one", 100), issued("two", 100)]);
    let path = |name: &str| folder.path().join(name);
    let files = IdentityCertificate {
        certificate: path("id.crt"),
        key: path("id.key"),
    };
    let authority = Authority::new();
    let rsa = authority.issue_rsa("gridhook");
    rsa.write(folder.path(), "id");
    assert_eq!(
        files.end_entity().expect("a certificate").as_ref(),
        rsa.der.as_ref()
    );
    let source = source_with(&issuer, IdentityProof::Certificate(files.clone()));
    source.get_token(None, START).await.expect("a token");

    // Another certificate is used at once; one that does not fit its key is refused without a
    // request. Paths are shown to the operator, not to readers of attempts.
    let other = authority.issue_rsa("other");
    other.write(folder.path(), "id");
    source
        .get_token(None, START.after(Duration::from_secs(81)))
        .await
        .expect("a token");
    let prints: Vec<String> = issuer.requests().iter().map(thumbprint).collect();
    let expected: Vec<String> = [&rsa, &other].map(IssuedRsa::thumbprint).to_vec();
    assert_eq!(prints, expected);
    std::fs::write(path("id.crt"), authority.issue("gridhook").pem).expect("written");
    let problem = source
        .get_token(None, START.after(Duration::from_secs(200)))
        .await
        .expect_err("no token");
    assert_eq!(
        problem.to_string(),
        "no access token for the endpoint: delivery.identity_certificate_file or \
         delivery.identity_key_file cannot be used"
    );
    let problem = files.end_entity().expect_err("no pair").to_string();
    assert!(problem.contains("id.crt"), "{problem}");
    authority.issue("gridhook").write(folder.path(), "id");
    let problem = files.end_entity().expect_err("no RSA key").to_string();
    assert!(
        problem.ends_with("id.key: the key is not an RSA key, which issuers of tokens need"),
        "{problem}"
    );
    assert_eq!(issuer.requests().len(), 2);
}

/// The claims of an assertion about the certificate.
fn thumbprint(request: &Received) -> String {
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(&request.body)
        .into_owned()
        .collect();
    let head = form["client_assertion"]
        .split('.')
        .next()
        .expect("a head")
        .to_owned();
    let head = URL_SAFE_NO_PAD.decode(head).expect("base64url");
    let head: serde_json::Value = serde_json::from_slice(&head).expect("JSON");
    head["x5t#S256"].as_str().expect("a thumbprint").to_owned()
}
