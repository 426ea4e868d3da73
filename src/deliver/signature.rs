//! Signatures by which a receiver knows who sent, as Standard Webhooks has them.
//!
//! What is signed is `id.timestamp.body`: `v1` with HMAC-SHA256 under a secret that both know (`whsec_`), `v1a` with
//! ed25519 under a key that only the sender has (`whsk_`; the receiver knows its public half). With several secrets there
//! are several signatures in the header, and one that is verified is enough: so a secret is changed without a gap, by
//! adding the new one, telling the receiver, and taking the old one away.
//!
//! Invariants:
//! - The bytes that are signed are the bytes that are sent.
//! - The id is the same at every attempt of the same events, and of no others, in this store or any other: receivers
//!   forget what they have seen by it. It has no `.`, so that nothing can move between the parts of what is signed.
//! - The timestamp is that of the attempt, because receivers refuse old ones.
//! - No message and no log has a secret.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    digest, hmac,
    signature::{Ed25519KeyPair, KeyPair as _},
};

use super::request::OutgoingRequest;
use crate::event::{Event, Timestamp};

/// Ten: what is being changed needs two, and a header of ten signatures is still taken by every server.
pub const SECRETS_MAX: usize = 10;

/// Shorter ones can be guessed, longer ones gain nothing: the specification's own bounds.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// An ed25519 seed; a key may have its public half behind it.
const SEED_BYTES: usize = 32;

/// Why nothing can be signed with these secrets. The secrets themselves are not repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// None, or too many.
    #[error("signing.secrets has {0} entries; allowed are 1 to {SECRETS_MAX}")]
    Count(usize),
    /// One of them is none.
    #[error(
        "signing.secrets[{0}] cannot be used; allowed are whsec_ and the base64 of 24 to 64 random bytes, or whsk_ and \
         the base64 of an ed25519 key"
    )]
    Secret(usize),
}

enum SigningKey {
    Shared(hmac::Key),
    Own(Box<Ed25519KeyPair>),
}

/// Signs requests.
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
    /// Where there are none, too many, or one that is none.
    pub fn new<'a>(secrets: impl ExactSizeIterator<Item = &'a str>) -> Result<Self, SigningKeyError> {
        if !(1..=SECRETS_MAX).contains(&secrets.len()) {
            return Err(SigningKeyError::Count(secrets.len()));
        }
        secrets
            .enumerate()
            .map(|(place, secret)| key(secret).ok_or(SigningKeyError::Secret(place)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Adds id, timestamp and signatures to the request that carries `events`.
    pub fn sign(&self, outgoing: &mut OutgoingRequest, events: &[Event], now: Timestamp) {
        let id = message_id(events);
        let seconds = now.since(Timestamp::default()).as_secs();
        let signatures = self.signatures(&id, seconds, &outgoing.body);
        outgoing.headers.push(("webhook-id", id.into()));
        outgoing.headers.push(("webhook-timestamp", seconds.to_string().into()));
        outgoing.headers.push(("webhook-signature", signatures.into()));
    }

    /// The signatures of a message, with a space between.
    pub fn signatures(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let content = [id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", body].concat();
        let signed = self.0.iter().map(|key| match key {
            SigningKey::Shared(key) => format!("v1,{}", STANDARD.encode(hmac::sign(key, &content))),
            SigningKey::Own(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(&content))),
        });
        signed.collect::<Vec<_>>().join(" ")
    }
}

fn key(secret: &str) -> Option<SigningKey> {
    if let Some(text) = secret.strip_prefix("whsec_") {
        let bytes = STANDARD.decode(text).ok().filter(|bytes| SECRET_BYTES.contains(&bytes.len()))?;
        return Some(SigningKey::Shared(hmac::Key::new(hmac::HMAC_SHA256, &bytes)));
    }
    let bytes = STANDARD.decode(secret.strip_prefix("whsk_")?).ok()?;
    let (seed, public) = bytes.split_at_checked(SEED_BYTES)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
    let whole = public.is_empty() || public == pair.public_key().as_ref();
    whole.then(|| SigningKey::Own(Box::new(pair)))
}

/// What makes these events these: where they stand, when the journal took them, and their own ids.
fn message_id(events: &[Event]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for event in events {
        let id = event.id();
        context.update(&event.seq.0.to_be_bytes());
        context.update(&event.appended.0.to_be_bytes());
        context.update(&(id.len() as u64).to_be_bytes());
        context.update(id.as_bytes());
    }
    let hash = context.finish();
    // 128 bits: no two messages share them by chance.
    let start = hash.as_ref().iter().take(16);
    start.fold("msg_".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}
