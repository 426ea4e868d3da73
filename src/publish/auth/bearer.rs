//! Bearer tokens: a JWT that the configured issuer has signed for this server, a named token, or
//! the admin token.
//!
//! `jsonwebtoken` checks only the signature. Its own check of `exp` and `nbf` reads the clock and
//! ignores claims of a wrong type, so the claims are parsed strictly and compared here, with time
//! as an argument.
//!
//! Invariants: only asymmetric signatures are accepted (never `alg` `none` or `HS256`), and only
//! with a key of the issuer of that kind; critical header extensions are refused; `exp`, `iss` and
//! `aud` are required.
//!
//! What a token of the issuer permits follows from its claims ([`TokenIssuer::read_grants`]).
//! Without a rule for claims, every token of the issuer may publish and consume.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::Refusal;
use gridhook_engine::control::tokens::{self, ForwardedToken, Token, TokenProblem, Tokens};
use gridhook_event::{Timestamp, WallTime};
use gridhook_record::token::{Grant, ScopedResource, TokenRole};

/// The tolerated difference between the clocks of two machines.
const LEEWAY: Duration = Duration::from_secs(60);

/// Issuers have two or three keys, large ones a dozen.
const KEYS_MAX: usize = 100;

/// Maximum length of a token, in bytes. A usual token has one or two kilobytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Whether a text is the admin token, in constant time.
pub type AdminTokenCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Clone, Default)]
pub struct BearerAuth {
    /// The check for the admin token, if it may publish.
    pub operator: Option<AdminTokenCheck>,
    pub tokens: Option<Arc<Tokens>>,
    /// The issuer of accepted tokens.
    pub issuer: Option<TokenIssuer>,
}

/// The permission that a claim of an access token gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRule {
    /// The claim: `roles`, `scp`, `groups` or another.
    pub claim: String,
    /// The value that the claim must have or contain.
    pub value: String,
    pub grant: Grant,
}

/// The holder of an access token, by its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The display name, or else the subject.
    pub name: String,
    pub is_application: bool,
    /// The time from which the token is refused.
    pub expires: Timestamp,
}

/// An issuer of access tokens.
#[derive(Clone)]
pub struct TokenIssuer {
    /// The claim `iss` of the issuer's tokens.
    pub name: String,
    /// The values of the claim `aud` of tokens for this server.
    pub audiences: Vec<String>,
    pub keys: Arc<Keyring>,
    /// The permissions of the issuer's tokens; without a rule they may publish and consume.
    pub rules: Vec<ClaimRule>,
}

/// The reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerProblem {
    /// The token is not a JWT.
    Unreadable,
    Refused(&'static str),
    /// The key of the token is unknown, and the issuer may have new ones, which are being read.
    UnknownKey,
    /// The token is valid, but does not permit the request.
    Forbidden(TokenRole),
}

impl BearerProblem {
    /// The refusal that the publisher receives.
    pub(super) fn into_refusal(self, host: String) -> Refusal {
        match self {
            Self::Unreadable => Refusal::UnreadableToken,
            Self::Refused(why) => Refusal::NotAuthorized { host, why },
            Self::UnknownKey => Refusal::NoIssuerKeys,
            Self::Forbidden(needed) => Refusal::NotPermitted { host, needed },
        }
    }
}

#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    aud: Audience,
    exp: f64,
    nbf: Option<f64>,
    // Parsed leniently, because a token need not have them.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl BearerAuth {
    /// Whether the holder of `token` has this role for a resource. Returns a named token. Another
    /// node may have forwarded it with its record.
    pub fn authenticate_token(
        &self,
        token: &[u8],
        forwarded: Option<&ForwardedToken>,
        role: TokenRole,
        resource: &ScopedResource,
        wall: WallTime,
    ) -> Result<Option<Arc<Token>>, BearerProblem> {
        let token = std::str::from_utf8(token).map_err(|_| BearerProblem::Unreadable)?;
        if self
            .operator
            .as_ref()
            .is_some_and(|is_operator| is_operator(token))
        {
            return Ok(None);
        }
        let permits = |grants: &[Grant]| check_grants(grants, role, resource);
        if token.starts_with(tokens::PREFIX) {
            let named_token = match (forwarded, &self.tokens) {
                (Some(forwarded), _) => Some(forwarded.verify_text(token, wall)?),
                (None, Some(tokens)) => Some(tokens.find_token(token, wall)?),
                (None, None) => None,
            };
            if let Some(token) = named_token {
                return permits(token.grants()).map(|()| Some(token));
            }
        }
        let Some(issuer) = &self.issuer else {
            let readable = decode_header(token).is_ok();
            let why = "This server accepts no access tokens; its operator has configured no issuer";
            return Err(if readable {
                BearerProblem::Refused(why)
            } else {
                BearerProblem::Unreadable
            });
        };
        permits(&issuer.read_grants(token, wall)?.1).map(|()| None)
    }
}

fn check_grants(
    grants: &[Grant],
    role: TokenRole,
    resource: &ScopedResource,
) -> Result<(), BearerProblem> {
    let has_role = |grant: &Grant| grant.role == role || grant.role == TokenRole::Admin;
    let mut grants = grants.iter().filter(|grant| has_role(grant));
    if grants.any(|grant| grant.covers_resource(Some(resource))) {
        Ok(())
    } else {
        Err(BearerProblem::Forbidden(role))
    }
}

impl From<TokenProblem> for BearerProblem {
    fn from(problem: TokenProblem) -> Self {
        Self::Refused(match problem {
            TokenProblem::Unknown => "The token does not exist, or was revoked",
            TokenProblem::Expired => "The token has expired",
        })
    }
}

impl ClaimRule {
    /// Whether the claim has the value: as its text, as a word of its text (`scp`), or as an item
    /// of its list.
    fn matches_claims(&self, claims: &Map<String, Value>) -> bool {
        match claims.get(&self.claim) {
            Some(Value::String(text)) => {
                *text == self.value || text.split(' ').any(|word| word == self.value)
            }
            Some(Value::Array(list)) => list.iter().any(|item| item.as_str() == Some(&self.value)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                false
            }
        }
    }
}

impl TokenIssuer {
    /// The holder of `token`, and what it permits.
    pub fn read_grants(
        &self,
        token: &str,
        wall: WallTime,
    ) -> Result<(TokenHolder, Vec<Grant>), BearerProblem> {
        let TokenClaims {
            exp,
            others: claims,
            ..
        } = self.verify_token(token, wall)?;
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let holder = TokenHolder {
            name: ["preferred_username", "upn", "sub"]
                .into_iter()
                .find_map(text)
                .unwrap_or_default()
                .to_owned(),
            is_application: text("idtyp") == Some("app"),
            // The conversion saturates: a claim may have any number.
            expires: Timestamp(((exp + LEEWAY.as_secs_f64()) * 1e6) as u64),
        };
        let grants = self
            .rules
            .iter()
            .filter(|rule| rule.matches_claims(&claims))
            .map(|rule| rule.grant.clone());
        let has_only_admin_rules = self
            .rules
            .iter()
            .all(|rule| rule.grant.role == TokenRole::Admin);
        let usual = [TokenRole::Publish, TokenRole::Consume]
            .into_iter()
            .filter(|_| has_only_admin_rules)
            .map(Grant::for_server);
        Ok((holder, grants.chain(usual).collect()))
    }

    fn verify_token(&self, token: &str, wall: WallTime) -> Result<TokenClaims, BearerProblem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(BearerProblem::Unreadable);
        }
        let header = decode_header(token).map_err(|_| BearerProblem::Unreadable)?;
        check_extensions(token)?;
        let key = self.keys.find_key(header.kid.as_deref(), header.alg)?;
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        let claims = decode::<TokenClaims>(token, &key.key, &validation)
            .map_err(|error| match error.kind() {
                jsonwebtoken::errors::ErrorKind::InvalidSignature => {
                    BearerProblem::Refused("The access token's signature is invalid")
                }
                _ => BearerProblem::Refused(
                    "The access token lacks one of the claims exp, iss and aud, or cannot be read",
                ),
            })?
            .claims;
        self.check_claims(&claims, wall)?;
        Ok(claims)
    }

    /// A final slash does not matter.
    fn has_audience(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let mut audiences = self.audiences.iter();
        audiences.any(|audience| audience.trim_end_matches('/') == name)
    }

    fn check_claims(&self, claims: &TokenClaims, wall: WallTime) -> Result<(), BearerProblem> {
        let now = wall.since_epoch().as_secs_f64();
        let leeway = LEEWAY.as_secs_f64();
        if now >= claims.exp + leeway {
            return Err(BearerProblem::Refused("The access token has expired"));
        }
        if claims.nbf.is_some_and(|begin| begin > now + leeway) {
            return Err(BearerProblem::Refused("The access token is not valid yet"));
        }
        if claims.iss != self.name {
            return Err(BearerProblem::Refused(
                "The access token is of another issuer",
            ));
        }
        let is_for_us = match &claims.aud {
            Audience::One(audience) => self.has_audience(audience),
            Audience::Several(audiences) => audiences.iter().any(|name| self.has_audience(name)),
        };
        if is_for_us {
            Ok(())
        } else {
            Err(BearerProblem::Refused(
                "The access token is for another audience",
            ))
        }
    }
}

/// A public key and its algorithm.
struct PublicKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The public keys of an issuer, which can be replaced at any time.
#[derive(Default)]
pub struct Keyring {
    keys: RwLock<Vec<Arc<PublicKey>>>,
    /// The number of reads, and that of the last read that was too long ago.
    reads: AtomicU64,
    outdated_reads: AtomicU64,
    missing: Notify,
}

/// A key set cannot be used. The last keys stay in use.
#[derive(Debug, thiserror::Error)]
pub enum UnusableKeySet {
    /// The response is not a JSON Web Key Set.
    #[error("it is not a JSON Web Key Set: {0}")]
    NotKeys(#[from] serde_json::Error),
    /// The set has no key for signatures.
    #[error("it has no signing key; expected RSA, P-256, P-384 or Ed25519")]
    Empty,
    #[error("it has {0} keys; expected at most {KEYS_MAX}")]
    TooMany(usize),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl Keyring {
    /// Replaces the keys with those of a JSON Web Key Set, and returns their number. Keys of
    /// unknown kinds are ignored, as the standard requires.
    pub fn replace_keys(&self, set: &[u8]) -> Result<usize, UnusableKeySet> {
        let KeySet { keys } = serde_json::from_slice(set)?;
        if keys.len() > KEYS_MAX {
            return Err(UnusableKeySet::TooMany(keys.len()));
        }
        let keys: Vec<_> = keys
            .into_iter()
            .filter_map(PublicKey::read)
            .map(Arc::new)
            .collect();
        if keys.is_empty() {
            return Err(UnusableKeySet::Empty);
        }
        let count = keys.len();
        *self.keys.write() = keys;
        self.reads.fetch_add(1, Ordering::Release);
        Ok(count)
    }

    /// The number of the last read.
    pub fn last_read(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    /// Notes that the issuer may have other keys by now than those of this read. Until the next one, a
    /// token with an unknown key is not refused for good: clients do not repeat a request after 401.
    pub fn note_outdated(&self, read: u64) {
        self.outdated_reads.fetch_max(read, Ordering::AcqRel);
    }

    /// Waits for a token with an unknown key, which may mean that the issuer has new keys.
    pub async fn wait_for_unknown_key(&self) {
        self.missing.notified().await;
    }

    fn find_key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<PublicKey>, BearerProblem> {
        let keys = self.keys.read();
        let mut fitting = keys
            .iter()
            .filter(|key| key.algorithms.contains(&algorithm));
        let matching_key = match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            // Without a key id, only a single matching key is unambiguous.
            None => fitting.next().filter(|_| fitting.next().is_none()),
        };
        matching_key.cloned().ok_or_else(|| {
            self.missing.notify_one();
            if self.last_read() <= self.outdated_reads.load(Ordering::Acquire) {
                return BearerProblem::UnknownKey;
            }
            BearerProblem::Refused(
                "The access token is signed with a key that the issuer does not have",
            )
        })
    }
}

impl PublicKey {
    fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        if jwk
            .common
            .public_key_use
            .as_ref()
            .is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
        {
            return None;
        }
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => vec![
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                EllipticCurve::P521 | EllipticCurve::Ed25519 => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            // With a symmetric key a verifier could also sign.
            AlgorithmParameters::OctetKeyPair(_) | AlgorithmParameters::OctetKey(_) => return None,
        };
        if let Some(only) = jwk.common.key_algorithm {
            let only = accepted_algorithm(only);
            algorithms.retain(|algorithm| Some(*algorithm) == only);
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self {
            id: jwk.common.key_id,
            algorithms,
            key,
        })
    }
}

/// The algorithm that a key's `alg` names; [`None`] for one that is not accepted.
fn accepted_algorithm(named: KeyAlgorithm) -> Option<Algorithm> {
    match named {
        KeyAlgorithm::ES256 => Some(Algorithm::ES256),
        KeyAlgorithm::ES384 => Some(Algorithm::ES384),
        KeyAlgorithm::RS256 => Some(Algorithm::RS256),
        KeyAlgorithm::RS384 => Some(Algorithm::RS384),
        KeyAlgorithm::RS512 => Some(Algorithm::RS512),
        KeyAlgorithm::PS256 => Some(Algorithm::PS256),
        KeyAlgorithm::PS384 => Some(Algorithm::PS384),
        KeyAlgorithm::PS512 => Some(Algorithm::PS512),
        KeyAlgorithm::EdDSA => Some(Algorithm::EdDSA),
        // With a symmetric algorithm a verifier could also sign.
        KeyAlgorithm::HS256 | KeyAlgorithm::HS384 | KeyAlgorithm::HS512 => None,
        KeyAlgorithm::RSA1_5 | KeyAlgorithm::RSA_OAEP | KeyAlgorithm::RSA_OAEP_256 => None,
    }
}

/// Refuses headers that `jsonwebtoken` ignores: `crit` names extensions that must be understood,
/// and none is supported (RFC 7515, 4.1.11); `b64: false` means another signed payload (RFC 7797,
/// 3), which a JWT must not have.
fn check_extensions(token: &str) -> Result<(), BearerProblem> {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD
        .decode(header)
        .map_err(|_| BearerProblem::Unreadable)?;
    let extensions: Extensions =
        serde_json::from_slice(&header).map_err(|_| BearerProblem::Unreadable)?;
    if extensions.crit.is_some() {
        return Err(BearerProblem::Refused(
            "The access token's header has 'crit', and no extension is understood here",
        ));
    }
    match extensions.b64 {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(_) => Err(BearerProblem::Refused(
            "The access token's header has 'b64', which may only be true",
        )),
    }
}

#[derive(Deserialize)]
struct Extensions {
    #[serde(default, deserialize_with = "deserialize_present")]
    crit: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    b64: Option<Value>,
}

/// Distinguishes a present `null` from an absent member.
fn deserialize_present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
