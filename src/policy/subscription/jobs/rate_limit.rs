//! A job's own rate limit in events per second, regardless of what the endpoint would accept.

use std::time::Duration;

use crate::{record::Rate, token_bucket::TokenBucket};
use gridhook_event::Timestamp;

/// How much of the rate accumulates while a job does not send. Less would split large batches.
const BURST: Duration = Duration::from_millis(250);

/// What a job's rate limit allows now.
#[derive(Debug)]
pub(super) struct RateLimit {
    rate: f64,
    bucket: TokenBucket,
}

impl RateLimit {
    /// For a job that starts or resumes.
    pub(super) fn new(rate: Rate, now: Timestamp) -> Self {
        // A rate of zero would stall forever.
        Self {
            rate: rate.max(Rate(1)).per_second(),
            bucket: TokenBucket::new(1.0, BURST, now),
        }
    }

    /// How many events may leave now.
    pub(super) fn free_events(&self, now: Timestamp) -> u32 {
        self.bucket.whole_tokens(self.rate, now)
    }

    /// When this number of events may leave, capped at the largest burst.
    pub(super) fn opens_at(&self, events: u32, now: Timestamp) -> Timestamp {
        self.bucket.opens_at(events, self.rate, now)
    }

    pub(super) fn take_events(&mut self, events: usize, now: Timestamp) {
        self.bucket.take_tokens(events as f64, self.rate, now);
    }
}
