//! Access tokens are valid if the issuer signed them, for this server, in time.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use expect_test::expect;
use gridhook::{
    event::WallTime,
    publish::auth::bearer::{AdminTokenCheck, BearerAuth, BearerProblem, Keyring, TokenIssuer},
    record::token::{ScopedResource, TokenRole},
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::{rsa::PublicKeyComponents, signature::RsaKeyPair};
use serde_json::{Value, json};

const NOW: u64 = 1_615_410_176;

/// A private key of the tests.
const RSA: &[u8] = include_bytes!("../data/issuer.rsa.der");

/// An issuer: its private keys, and the public keys that it serves.
pub(crate) struct Signer {
    ec: rcgen::KeyPair,
}

impl Signer {
    pub(crate) fn new() -> Self {
        Self {
            ec: rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key"),
        }
    }

    /// The set of public keys, with some unusable ones.
    pub(crate) fn set(&self) -> Value {
        let point = self.ec.public_key_raw();
        let (x, y) = point[1..].split_at(32);
        let rsa = RsaKeyPair::from_der(RSA).expect("a key");
        let rsa: PublicKeyComponents<Vec<u8>> = rsa.public().into();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [
            {"kty": "oct", "kid": "shared", "k": text(b"a secret that everybody has"), "alg": "HS256"},
            {"kty": "EC", "kid": "ec", "use": "sig", "crv": "P-256", "x": text(x), "y": text(y)},
            {"kty": "RSA", "kid": "rsa", "alg": "RS256", "n": text(&rsa.n), "e": text(&rsa.e)},
            {"kty": "RSA", "kid": "secrets", "use": "enc", "n": text(&rsa.n), "e": text(&rsa.e)},
            {"kty": "of the future", "kid": "x"},
        ]})
    }

    pub(crate) fn sign(&self, kid: Option<&str>, algorithm: Algorithm, claims: &Value) -> String {
        let header = Header {
            kid: kid.map(str::to_owned),
            ..Header::new(algorithm)
        };
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(&self.ec.serialize_der()),
            Algorithm::HS256 => EncodingKey::from_secret(b"a secret that everybody has"),
            _ => EncodingKey::from_rsa_der(RSA),
        };
        encode(&header, claims, &key).expect("a token")
    }
}

fn claims() -> Value {
    json!({"iss": "https://issuer/", "aud": "https://eventgrid.azure.net", "exp": NOW + 300, "nbf": NOW - 300, "sub": "x"})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

pub(crate) fn bearer(signer: &Signer) -> BearerAuth {
    let keys = Arc::new(Keyring::default());
    assert_eq!(
        keys.replace_keys(signer.set().to_string().as_bytes())
            .expect("keys"),
        2
    );
    let operator: AdminTokenCheck = Arc::new(|token| token == "swordfish");
    let (name, audiences) = (
        "https://issuer/".to_owned(),
        vec!["https://eventgrid.azure.net/".to_owned()],
    );
    BearerAuth {
        operator: Some(operator),
        tokens: None,
        issuer: Some(TokenIssuer {
            name,
            audiences,
            keys,
            rules: Vec::new(),
        }),
    }
}

fn verdict(bearer: &BearerAuth, token: &str) -> &'static str {
    let anything = ScopedResource::default();
    match bearer.authenticate_token(
        token.as_bytes(),
        None,
        TokenRole::Publish,
        &anything,
        WallTime(NOW * 1_000_000),
    ) {
        Ok(_) => "good",
        Err(BearerProblem::Unreadable) => "unreadable",
        Err(BearerProblem::Refused(why)) => why,
        Err(BearerProblem::UnknownKey) => "try again",
        Err(BearerProblem::Forbidden(_)) => "forbidden",
    }
}

#[test]
fn a_token_of_the_issuer_is_good() {
    let signer = Signer::new();
    let bearer = bearer(&signer);
    let good = |kid, algorithm, claims: &Value| {
        assert_eq!(
            verdict(&bearer, &signer.sign(kid, algorithm, claims)),
            "good",
            "{claims}"
        );
    };
    good(Some("ec"), Algorithm::ES256, &claims());
    good(Some("rsa"), Algorithm::RS256, &claims());
    // Without a name there is one key of that kind.
    good(None, Algorithm::ES256, &claims());
    good(Some("ec"), Algorithm::ES256, &without("nbf"));
    good(
        Some("ec"),
        Algorithm::ES256,
        &with("aud", json!(["a", "https://eventgrid.azure.net/"])),
    );
    // Clocks differ a little.
    good(Some("ec"), Algorithm::ES256, &with("exp", json!(NOW - 59)));
    good(
        Some("ec"),
        Algorithm::ES256,
        &with("nbf", json!(NOW as f64 + 59.5)),
    );
    assert_eq!(verdict(&bearer, "swordfish"), "good");
}

/// A token with this header, as it stands, that is signed properly.
fn with_header(signer: &Signer, header: &str) -> String {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!(
        "{}.{}",
        text(header.as_bytes()),
        text(claims().to_string().as_bytes())
    );
    let key = EncodingKey::from_ec_der(&signer.ec.serialize_der());
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::ES256)
        .expect("a signature");
    format!("{message}.{signature}")
}

#[test]
fn a_header_that_asks_for_what_is_not_understood_is_refused() {
    let signer = Signer::new();
    let bearer = bearer(&signer);
    let critical = "The access token's header has 'crit', and no extension is understood here";
    let unencoded = "The access token's header has 'b64', which may only be true";
    for (more, expected) in [
        ("", "good"),
        (r#","typ":"JWT","b64":true,"x":[1]"#, "good"),
        (r#","crit":["b64"],"b64":true"#, critical),
        (r#","crit":["exp"],"exp":1"#, critical),
        (r#","crit":[]"#, critical),
        (r#","crit":null"#, critical),
        (r#","crit":"x""#, critical),
        (r#","b64":false"#, unencoded),
        (r#","b64":null"#, unencoded),
        (r#","b64":"true""#, unencoded),
        (r#","crit":["b64"],"b64":false"#, critical),
        // Which of two would count?
        (r#","b64":false,"b64":true"#, "unreadable"),
        (r#","crit":["x"],"crit":[]"#, "unreadable"),
    ] {
        let token = with_header(&signer, &format!(r#"{{"alg":"ES256","kid":"ec"{more}}}"#));
        assert_eq!(verdict(&bearer, &token), expected, "{more}");
    }
}

#[test]
fn a_key_that_names_an_algorithm_is_good_for_that_one_alone() {
    let signer = Signer::new();
    let rsa = [
        ("RS256", Algorithm::RS256),
        ("RS384", Algorithm::RS384),
        ("RS512", Algorithm::RS512),
        ("PS256", Algorithm::PS256),
        ("PS384", Algorithm::PS384),
        ("PS512", Algorithm::PS512),
    ];
    let others = [
        "HS256",
        "HS384",
        "HS512",
        "ES256",
        "ES384",
        "EdDSA",
        "RSA1_5",
        "RSA-OAEP",
        "RSA-OAEP-256",
    ];
    for named in rsa.map(|(named, _)| named).into_iter().chain(others) {
        let bearer = bearer(&signer);
        let mut set = signer.set();
        let key = set["keys"]
            .as_array_mut()
            .expect("keys")
            .iter_mut()
            .find(|key| key["kid"] == "rsa")
            .expect("it is there");
        key["alg"] = named.into();
        let keys = &bearer.issuer.as_ref().expect("there is one").keys;
        keys.replace_keys(set.to_string().as_bytes()).expect("keys");
        let good: Vec<&str> = rsa
            .into_iter()
            .filter(|(_, algorithm)| {
                verdict(&bearer, &signer.sign(Some("rsa"), *algorithm, &claims())) == "good"
            })
            .map(|(name, _)| name)
            .collect();
        let expected: Vec<&str> = rsa
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| *name == named)
            .collect();
        assert_eq!(good, expected, "{named}");
    }
}

#[test]
fn every_other_token_is_refused() {
    let signer = Signer::new();
    let bearer = bearer(&signer);
    let es = |claims: &Value| signer.sign(Some("ec"), Algorithm::ES256, claims);
    let stranger = Signer::new().sign(Some("ec"), Algorithm::ES256, &claims());
    let unsigned = format!(
        "{}.{}.",
        URL_SAFE_NO_PAD.encode(br#"{"alg":"none"}"#),
        URL_SAFE_NO_PAD.encode(claims().to_string())
    );
    let tokens = [
        ("expired", es(&with("exp", json!(NOW - 61)))),
        ("not yet", es(&with("nbf", json!(NOW + 61)))),
        ("without exp", es(&without("exp"))),
        ("exp is text", es(&with("exp", json!("4000000000")))),
        ("nbf is text", es(&with("nbf", json!("4000000000")))),
        ("exp is null", es(&with("exp", Value::Null))),
        ("without iss", es(&without("iss"))),
        ("other iss", es(&with("iss", json!("https://issuer")))),
        ("without aud", es(&without("aud"))),
        (
            "other aud",
            es(&with("aud", json!("https://storage.azure.com"))),
        ),
        ("no aud at all", es(&with("aud", json!([])))),
        ("of a stranger", stranger),
        (
            "unknown key",
            signer.sign(Some("new"), Algorithm::ES256, &claims()),
        ),
        (
            "key of another kind",
            signer.sign(Some("ec"), Algorithm::RS256, &claims()),
        ),
        (
            "another algorithm than the key's",
            signer.sign(Some("rsa"), Algorithm::RS512, &claims()),
        ),
        (
            "a key that is not for signing",
            signer.sign(Some("secrets"), Algorithm::RS256, &claims()),
        ),
        (
            "a shared secret",
            signer.sign(Some("shared"), Algorithm::HS256, &claims()),
        ),
        ("unsigned", unsigned),
        ("no token", "swordfishes".to_owned()),
        ("nothing", String::new()),
        ("too long", "a".repeat(20_000)),
    ];
    let lines: Vec<_> = tokens
        .iter()
        .map(|(what, token)| format!("{what}: {}", verdict(&bearer, token)))
        .collect();
    expect![[r#"
        expired: The access token has expired
        not yet: The access token is not valid yet
        without exp: The access token lacks one of the claims exp, iss and aud, or cannot be read
        exp is text: The access token lacks one of the claims exp, iss and aud, or cannot be read
        nbf is text: The access token lacks one of the claims exp, iss and aud, or cannot be read
        exp is null: The access token lacks one of the claims exp, iss and aud, or cannot be read
        without iss: The access token lacks one of the claims exp, iss and aud, or cannot be read
        other iss: The access token is of another issuer
        without aud: The access token lacks one of the claims exp, iss and aud, or cannot be read
        other aud: The access token is for another audience
        no aud at all: The access token is for another audience
        of a stranger: The access token's signature is invalid
        unknown key: The access token is signed with a key that the issuer does not have
        key of another kind: The access token is signed with a key that the issuer does not have
        another algorithm than the key's: The access token is signed with a key that the issuer does not have
        a key that is not for signing: The access token is signed with a key that the issuer does not have
        a shared secret: The access token is signed with a key that the issuer does not have
        unsigned: unreadable
        no token: unreadable
        nothing: unreadable
        too long: unreadable"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn without_an_issuer_the_operator_alone_comes_in() {
    let signer = Signer::new();
    let bearer = BearerAuth {
        issuer: None,
        ..bearer(&signer)
    };
    assert_eq!(verdict(&bearer, "swordfish"), "good");
    assert_eq!(verdict(&bearer, "sword.fish.es"), "unreadable");
    let token = signer.sign(Some("ec"), Algorithm::ES256, &claims());
    assert_eq!(
        verdict(&bearer, &token),
        "This server accepts no access tokens; its operator has configured no issuer"
    );
    assert_eq!(verdict(&BearerAuth::default(), "swordfish"), "unreadable");
}

#[test]
fn new_keys_take_the_place_of_the_old_and_nonsense_does_not() {
    let old = Signer::new();
    let new = Signer::new();
    let bearer = bearer(&old);
    let keys = &bearer.issuer.as_ref().expect("an issuer").keys;
    let many = json!({"keys": vec![json!({"kty": "x"}); 101]}).to_string();
    for nonsense in [
        "",
        "{}",
        r#"{"keys":[]}"#,
        r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#,
        &many,
    ] {
        assert!(
            keys.replace_keys(nonsense.as_bytes()).is_err(),
            "{nonsense}"
        );
    }
    let token = |signer: &Signer| signer.sign(Some("ec"), Algorithm::ES256, &claims());
    assert_eq!(
        [
            verdict(&bearer, &token(&old)),
            verdict(&bearer, &token(&new))
        ],
        ["good", "The access token's signature is invalid"]
    );
    keys.replace_keys(new.set().to_string().as_bytes())
        .expect("keys");
    assert_eq!(
        [
            verdict(&bearer, &token(&old)),
            verdict(&bearer, &token(&new))
        ],
        ["The access token's signature is invalid", "good"]
    );
}

/// Clients do not repeat a request after 401.
#[test]
fn a_token_with_an_unknown_key_is_not_refused_for_good_before_the_keys_are_read() {
    let signer = Signer::new();
    let mut bearer = bearer(&signer);
    let issuer = bearer.issuer.as_mut().expect("an issuer");
    let keys = Arc::new(Keyring::default());
    issuer.keys = Arc::clone(&keys);
    let token = signer.sign(Some("ec"), Algorithm::ES256, &claims());
    let newer = signer.sign(Some("new"), Algorithm::ES256, &claims());
    assert_eq!(verdict(&bearer, &token), "try again", "nothing was read");
    keys.replace_keys(signer.set().to_string().as_bytes())
        .expect("keys");
    assert_eq!(verdict(&bearer, &token), "good");
    let refusal = "The access token is signed with a key that the issuer does not have";
    assert_eq!(verdict(&bearer, &newer), refusal, "it was just read");
    let first_read = keys.last_read();
    keys.note_outdated(first_read);
    assert_eq!(verdict(&bearer, &token), "good");
    assert_eq!(verdict(&bearer, &newer), "try again");
    keys.replace_keys(signer.set().to_string().as_bytes())
        .expect("keys");
    keys.note_outdated(first_read);
    assert_eq!(verdict(&bearer, &newer), refusal, "it was read again");
}
