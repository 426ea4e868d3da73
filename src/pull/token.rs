//! Lock tokens: the lease of an event, sealed against forgery.
//!
//! A token contains the lease only, and the store does not keep it; the subscription decides whether the lease still holds.
//! Tokens survive restarts, because the key of the seal is in the store.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::hmac;
use subtle::ConstantTimeEq;

use crate::{
    event::{Lane, Seq, SubscriptionKey, Timestamp},
    journal::{self, Journal, MetaChange},
    policy::record::lease::Lease,
    store::keys::MetaKind,
};

/// The version of the layout, in the first byte.
const VERSION: u8 = 1;

/// Version, partition, subscription, lane, sequence, attempt, time of the append.
const PAYLOAD_LEN: usize = 1 + 4 + 4 + 2 + 8 + 4 + 8;

/// The seal is truncated to 128 bits, which cannot be guessed.
const SEAL_LEN: usize = 16;

/// The name of the key's record.
const KEY: &str = "locks";

/// Creates and verifies lock tokens.
pub struct LockTokenSealer {
    key: hmac::Key,
}

impl LockTokenSealer {
    /// Uses this key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// Uses the key of the store, or creates one there.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn recover(journal: &Journal) -> Result<Self, journal::Error> {
        let known = journal.reads().all_meta(MetaKind::Secret)?.into_iter().find(|(name, _)| name == KEY);
        if let Some((_, key)) = known {
            let key = <&[u8; 32]>::try_from(&key[..]);
            return key.map(Self::new).map_err(|_| journal::Error::Damaged("the key of lock tokens".to_owned()));
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| journal::Error::Damaged(format!("no randomness: {error}")))?;
        journal.change(vec![MetaChange::Put(MetaKind::Secret, KEY.to_owned(), Bytes::copy_from_slice(&key))]).await?;
        Ok(Self::new(&key))
    }

    /// The token of a lease.
    pub fn seal(&self, subscription_key: SubscriptionKey, lease: Lease) -> String {
        let mut token = sealed_bytes(subscription_key, lease);
        let seal = self.seal_of(&token);
        token.extend_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The lease of a valid token of this subscription; [`None`] for an invalid one.
    pub fn open(&self, subscription_key: SubscriptionKey, token: &str) -> Option<Lease> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() == PAYLOAD_LEN + SEAL_LEN)?;
        let (given, seal) = bytes.split_at(PAYLOAD_LEN);
        let good: bool = self.seal_of(given).ct_eq(seal).into();
        if !good {
            return None;
        }
        let number =
            |at: usize, len: usize| given[at..at + len].iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let lease = Lease {
            lane: Lane(u16::try_from(number(9, 2)).ok()?),
            seq: Seq(number(11, 8)),
            attempt: u32::try_from(number(19, 4)).ok()?,
            appended: Timestamp(number(23, 8)),
        };
        // The comparison also covers the subscription and the version.
        (sealed_bytes(subscription_key, lease) == given).then_some(lease)
    }

    fn seal_of(&self, word: &[u8]) -> [u8; SEAL_LEN] {
        let mut seal = [0; SEAL_LEN];
        seal.copy_from_slice(&hmac::sign(&self.key, word).as_ref()[..SEAL_LEN]);
        seal
    }
}

fn sealed_bytes(subscription_key: SubscriptionKey, lease: Lease) -> Vec<u8> {
    let mut word = Vec::with_capacity(PAYLOAD_LEN + SEAL_LEN);
    word.push(VERSION);
    word.extend_from_slice(&subscription_key.partition.0.to_be_bytes());
    word.extend_from_slice(&subscription_key.subscription.0.to_be_bytes());
    word.extend_from_slice(&lease.lane.0.to_be_bytes());
    word.extend_from_slice(&lease.seq.0.to_be_bytes());
    word.extend_from_slice(&lease.attempt.to_be_bytes());
    word.extend_from_slice(&lease.appended.0.to_be_bytes());
    word
}
