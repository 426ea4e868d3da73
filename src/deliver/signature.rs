//! Signatures of requests, as defined by Standard Webhooks.
//!
//! The signed content is `id.timestamp.body`: `v1` is HMAC-SHA256 with a shared secret (`whsec_`),
//! `v1a` is ed25519 with a private key (`whsk_`; the receiver has the public key). With several
//! secrets, the header has several signatures, and one valid signature is enough. So a secret is
//! rotated without a gap: add the new one, update the receiver, remove the old one.
//!
//! Invariants:
//! - The signed bytes are the sent bytes.
//! - The id is the same for every attempt of the same events, and unique across all stores:
//!   receivers deduplicate by it. It contains no `.`, so that the parts of the signed content are
//!   unambiguous.
//! - The timestamp is that of the attempt, because receivers reject old ones.
//! - No message and no log contains a secret.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use ring::{
    digest, hmac,
    signature::{Ed25519KeyPair, KeyPair as _},
};

use super::request::OutgoingRequest;
use gridhook_event::{Event, WallTime};

/// Ten: a rotation needs two, and servers accept a header of ten signatures.
pub const SECRETS_MAX: usize = 10;

/// The bounds of the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The length of an ed25519 seed. The public key may follow it.
const SEED_BYTES: usize = 32;

/// Why the secrets cannot be used. The error never contains them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    #[error("signing.secrets has {0} entries; expected 1 to {SECRETS_MAX}")]
    Count(usize),
    #[error(
        "signing.secrets[{0}] cannot be used; expected whsec_ and the base64 of 24 to 64 random \
         bytes, or whsk_ and the base64 of an ed25519 key"
    )]
    Secret(usize),
}

enum SigningKey {
    Shared(hmac::Key),
    Own(Box<Ed25519KeyPair>),
}

pub struct Signer(Vec<SigningKey>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({} hidden)", self.0.len())
    }
}

impl Signer {
    /// Signs with each of `secrets`, in this order.
    ///
    /// # Errors
    /// If there are none, too many, or an invalid one.
    pub fn new<'a>(
        secrets: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Self, SigningKeyError> {
        if !(1..=SECRETS_MAX).contains(&secrets.len()) {
            return Err(SigningKeyError::Count(secrets.len()));
        }
        secrets
            .enumerate()
            .map(|(index, secret)| parse_key(secret).ok_or(SigningKeyError::Secret(index)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Adds id, timestamp and signatures to the request that carries `events`.
    pub fn sign_request(&self, outgoing: &mut OutgoingRequest, events: &[Event], wall: WallTime) {
        self.sign_message(outgoing, message_id(events, &[]), wall);
    }

    /// Adds id, timestamp and signatures to any request.
    pub fn sign_message(&self, outgoing: &mut OutgoingRequest, id: String, wall: WallTime) {
        let seconds = wall.since_epoch().as_secs();
        let signatures = self.signatures(&id, seconds, &outgoing.body);
        outgoing.headers.push(("webhook-id", id.into()));
        outgoing
            .headers
            .push(("webhook-timestamp", seconds.to_string().into()));
        outgoing
            .headers
            .push(("webhook-signature", signatures.into()));
    }

    /// The signatures of a message, separated by spaces.
    pub fn signatures(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let content = [
            id.as_bytes(),
            b".",
            seconds.to_string().as_bytes(),
            b".",
            body,
        ]
        .concat();
        let entries = self.0.iter().map(|key| match key {
            SigningKey::Shared(key) => format!("v1,{}", STANDARD.encode(hmac::sign(key, &content))),
            SigningKey::Own(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(&content))),
        });
        entries.collect::<Vec<_>>().join(" ")
    }
}

fn parse_key(secret: &str) -> Option<SigningKey> {
    if let Some(text) = secret.strip_prefix("whsec_") {
        let bytes = STANDARD
            .decode(text)
            .ok()
            .filter(|bytes| SECRET_BYTES.contains(&bytes.len()))?;
        return Some(SigningKey::Shared(hmac::Key::new(
            hmac::HMAC_SHA256,
            &bytes,
        )));
    }
    let bytes = STANDARD.decode(secret.strip_prefix("whsk_")?).ok()?;
    let (seed, public) = bytes.split_at_checked(SEED_BYTES)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
    let whole = public.is_empty() || public == pair.public_key().as_ref();
    whole.then(|| SigningKey::Own(Box::new(pair)))
}

/// The id of a message, derived from position, append time and id of its events, and from `salt`.
pub(super) fn message_id(events: &[Event], salt: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in salt {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    for event in events {
        let id = event.id();
        context.update(&event.seq.0.to_be_bytes());
        context.update(&event.appended.0.to_be_bytes());
        context.update(&(id.len() as u64).to_be_bytes());
        context.update(id.as_bytes());
    }
    // 128 bits make collisions negligible.
    format!("msg_{}", HEXLOWER.encode(&context.finish().as_ref()[..16]))
}
