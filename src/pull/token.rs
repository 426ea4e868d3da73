//! Lock tokens: the lease of an event, sealed against forgery.
//!
//! A token contains the lease only, and the store does not keep it; the subscription decides
//! whether the lease still holds. Tokens survive restarts, because the key of the seal is in the
//! store.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::hmac;
use subtle::ConstantTimeEq;

use gridhook_event::{Lane, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::{Journal, MetaChange};
use gridhook_policy::record::lease::Lease;
use gridhook_store::keys::MetaKind;

/// The version of the layout, in the first byte.
const VERSION: u8 = 1;

/// The version of a token of a part of a spread topic, which has the number of the shard behind the
/// version.
const PART_VERSION: u8 = 2;

/// Version, partition, subscription, lane, sequence, attempt, time of the append.
const PAYLOAD_LEN: usize = 1 + 4 + 4 + 2 + 8 + 4 + 8;

/// The seal is truncated to 128 bits, which cannot be guessed.
const SEAL_LEN: usize = 16;

/// The name of the key's record.
const KEY: &str = "locks";

/// Creates and verifies lock tokens.
pub struct LockTokenSealer {
    key: hmac::Key,
    /// The number of the shard, in a cluster with several.
    shard: Option<u16>,
}

impl LockTokenSealer {
    pub fn new(key: &[u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            shard: None,
        }
    }

    /// Sets the number of the shard, in a cluster with several.
    #[must_use]
    pub fn with_shard(self, shard: usize) -> Self {
        Self {
            shard: u16::try_from(shard).ok(),
            ..self
        }
    }

    /// Uses the key of the store, or creates one there.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn load_or_create(journal: &Journal) -> Result<Self, journal::Error> {
        let stored_key = journal
            .reader_pool()
            .read_meta(MetaKind::Secret, KEY.to_owned())
            .await?;
        if let Some(key) = stored_key {
            let key = <&[u8; 32]>::try_from(&key[..]);
            return key
                .map(Self::new)
                .map_err(|_| journal::Error::Damaged("the key of lock tokens".to_owned()));
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| journal::Error::Damaged(format!("no randomness: {error}")))?;
        journal
            .write_meta_changes(vec![MetaChange::Put(
                MetaKind::Secret,
                KEY.to_owned(),
                Bytes::copy_from_slice(&key),
            )])
            .await?;
        Ok(Self::new(&key))
    }

    /// The token of a lease. That of a spread topic says the shard.
    pub fn seal_lease(
        &self,
        subscription_key: SubscriptionKey,
        lease: Lease,
        is_spread: bool,
    ) -> String {
        let mut token = sealed_bytes(self.shard.filter(|_| is_spread), subscription_key, lease);
        let seal = self.seal_of(&token);
        token.extend_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The lease of a valid token of this subscription; [`None`] for an invalid one.
    pub fn open(&self, subscription_key: SubscriptionKey, token: &str) -> Option<Lease> {
        self.read(token)
            .filter(|(of, _)| *of == subscription_key)
            .map(|(_, lease)| lease)
    }

    /// The subscription and the lease of a valid token.
    pub fn read(&self, token: &str) -> Option<(SubscriptionKey, Lease)> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (given, seal) = bytes.split_at_checked(bytes.len().checked_sub(SEAL_LEN)?)?;
        let good: bool = self.seal_of(given).ct_eq(seal).into();
        if !good {
            return None;
        }
        let (shard, payload) = match given.split_first()? {
            (&VERSION, payload) => (None, payload),
            (&PART_VERSION, payload) => (Some(self.shard?), payload.get(2..)?),
            _ => return None,
        };
        if payload.len() + 1 != PAYLOAD_LEN {
            return None;
        }
        let key = SubscriptionKey {
            partition: PartitionId(u32::try_from(parse_number(&payload[0..4])).ok()?),
            subscription: SubscriptionId(u32::try_from(parse_number(&payload[4..8])).ok()?),
        };
        let lease = Lease {
            lane: Lane(u16::try_from(parse_number(&payload[8..10])).ok()?),
            seq: Seq(parse_number(&payload[10..18])),
            attempt: u32::try_from(parse_number(&payload[18..22])).ok()?,
            appended: Timestamp(parse_number(&payload[22..30])),
        };
        // The comparison also covers the shard.
        (sealed_bytes(shard, key, lease) == given).then_some((key, lease))
    }

    /// The shard that a token of a spread topic says, which alone can verify it.
    pub fn part_of(token: &str) -> Option<usize> {
        let bytes = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .filter(|bytes| bytes.len() == PAYLOAD_LEN + 2 + SEAL_LEN)?;
        match bytes[..] {
            [PART_VERSION, high, low, ..] => Some(u16::from_be_bytes([high, low]).into()),
            _ => None,
        }
    }

    fn seal_of(&self, word: &[u8]) -> [u8; SEAL_LEN] {
        let mut seal = [0; SEAL_LEN];
        seal.copy_from_slice(&hmac::sign(&self.key, word).as_ref()[..SEAL_LEN]);
        seal
    }
}

/// A number of up to eight bytes, the highest first.
fn parse_number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sealed_bytes(shard: Option<u16>, subscription_key: SubscriptionKey, lease: Lease) -> Vec<u8> {
    let mut word = Vec::with_capacity(PAYLOAD_LEN + 2 + SEAL_LEN);
    match shard {
        None => word.push(VERSION),
        Some(shard) => {
            word.push(PART_VERSION);
            word.extend_from_slice(&shard.to_be_bytes());
        }
    }
    word.extend_from_slice(&subscription_key.partition.0.to_be_bytes());
    word.extend_from_slice(&subscription_key.subscription.0.to_be_bytes());
    word.extend_from_slice(&lease.lane.0.to_be_bytes());
    word.extend_from_slice(&lease.seq.0.to_be_bytes());
    word.extend_from_slice(&lease.attempt.to_be_bytes());
    word.extend_from_slice(&lease.appended.0.to_be_bytes());
    word
}
