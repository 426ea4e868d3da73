//! The rate limits of a topic, in events and in bytes a second. Without a setting there is no
//! limit.
//!
//! Each is a token bucket of one second. A request is accepted while both buckets have tokens, and
//! then takes what it needs, on credit if necessary. So the number of events need not be known
//! before the body is read, and the largest request fits a small rate. A refused publisher is given
//! the time until the credit is repaid.
//!
//! A full bucket is not stored, so idle topics have none.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Refusal;
use gridhook_escape::count_with_noun;
use gridhook_event::{PartitionId, Timestamp};

/// The number of buckets at which full ones are removed. A bucket has 40 bytes.
const BUCKETS_KEPT: usize = 1024;

/// The rates of a topic; zero for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicRates {
    pub events_per_second: u64,
    /// Bytes of bodies a second.
    pub bytes_per_second: u64,
}

/// The buckets of all topics.
#[derive(Debug)]
pub(super) struct PublishThrottle {
    rates: TopicRates,
    buckets: Mutex<TopicBuckets>,
}

#[derive(Debug, Default)]
struct TopicBuckets {
    used: HashMap<PartitionId, UsedTokens>,
    /// The number of buckets at which full ones are removed next.
    removal_len: usize,
}

/// The used tokens of a bucket that have not returned.
#[derive(Clone, Copy, Debug)]
struct UsedTokens {
    events: f64,
    bytes: f64,
    at: Timestamp,
}

impl PublishThrottle {
    pub(super) fn new(rates: TopicRates) -> Self {
        Self {
            rates,
            buckets: Mutex::new(TopicBuckets {
                used: HashMap::new(),
                removal_len: BUCKETS_KEPT,
            }),
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.rates != TopicRates::default()
    }

    /// Checks whether the topic accepts a request now.
    pub(super) fn check_rate(&self, topic: PartitionId, now: Timestamp) -> Result<(), Refusal> {
        let Some(used) = self
            .buckets
            .lock()
            .used
            .get(&topic)
            .map(|used| used.refill_until(now, self.rates))
        else {
            return Ok(());
        };
        let events_wait = refill_seconds(used.events, self.rates.events_per_second);
        let bytes_wait = refill_seconds(used.bytes, self.rates.bytes_per_second);
        match events_wait.into_iter().chain(bytes_wait).reduce(f64::max) {
            None => Ok(()),
            // At that moment the bucket is still empty, so the next whole second.
            Some(wait) => Err(Refusal::Throttled {
                rates: self.rates.to_string(),
                seconds: wait as u32 + 1,
            }),
        }
    }

    /// Takes the tokens of a request.
    pub(super) fn take_tokens(
        &self,
        topic: PartitionId,
        events: u32,
        bytes: usize,
        now: Timestamp,
    ) {
        if !self.is_limited() {
            return;
        }
        let mut buckets = self.buckets.lock();
        if buckets.used.len() >= buckets.removal_len {
            let rates = self.rates;
            buckets
                .used
                .retain(|_, used| !used.refill_until(now, rates).is_nothing());
            buckets.removal_len = BUCKETS_KEPT.max(2 * buckets.used.len());
        }
        let tokens = buckets.used.entry(topic).or_insert(UsedTokens {
            events: 0.0,
            bytes: 0.0,
            at: now,
        });
        *tokens = tokens.refill_until(now, self.rates);
        tokens.events += f64::from(events);
        tokens.bytes += bytes as f64;
    }
}

impl UsedTokens {
    fn refill_until(self, now: Timestamp, rates: TopicRates) -> Self {
        let seconds = now.since(self.at).as_secs_f64();
        Self {
            events: refill_tokens(self.events, rates.events_per_second, seconds),
            bytes: refill_tokens(self.bytes, rates.bytes_per_second, seconds),
            at: now.max(self.at),
        }
    }

    fn is_nothing(self) -> bool {
        self.events <= 0.0 && self.bytes <= 0.0
    }
}

/// How long until a request is accepted again: the bucket holds one second, and tokens used beyond
/// that must return first. [`None`] if one is accepted now.
fn refill_seconds(used: f64, rate: u64) -> Option<f64> {
    if rate > 0 && used >= rate as f64 {
        Some(used / rate as f64 - 1.0)
    } else {
        None
    }
}

/// The used tokens after `seconds`. A rate of 0 has no limit, and so no used tokens.
fn refill_tokens(used: f64, rate: u64, seconds: f64) -> f64 {
    if rate == 0 {
        0.0
    } else {
        (used - seconds * rate as f64).max(0.0)
    }
}

impl std::fmt::Display for TopicRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let events = count_with_noun(self.events_per_second, "event");
        let bytes = count_with_noun(self.bytes_per_second, "byte");
        match (self.events_per_second, self.bytes_per_second) {
            (0, _) => write!(f, "{bytes} a second"),
            (_, 0) => write!(f, "{events} a second"),
            _ => write!(f, "{events} and {bytes} a second"),
        }
    }
}
