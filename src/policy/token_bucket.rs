//! A token bucket: what may leave at a rate, which its owner knows. A burst bounds what accumulates
//! while nothing leaves.

use std::time::Duration;

use gridhook_event::Timestamp;

/// Tolerance of the sum of tokens.
const ROUNDING: f64 = 1e-6;

#[derive(Debug)]
pub(super) struct TokenBucket {
    tokens: f64,
    filled: Timestamp,
    burst: Duration,
}

impl TokenBucket {
    /// A bucket with these tokens, in which as much accumulates as `burst` adds.
    pub(super) fn new(tokens: f64, burst: Duration, now: Timestamp) -> Self {
        Self {
            tokens,
            filled: now,
            burst,
        }
    }

    fn tokens_max(&self, rate: f64) -> f64 {
        (rate * self.burst.as_secs_f64()).max(1.0)
    }

    fn tokens(&self, rate: f64, now: Timestamp) -> f64 {
        (self.tokens + rate * now.since(self.filled).as_secs_f64()).min(self.tokens_max(rate))
    }

    pub(super) fn whole_tokens(&self, rate: f64, now: Timestamp) -> u32 {
        // A burst is far below the range of the type.
        (self.tokens(rate, now) + ROUNDING) as u32
    }

    /// When it has this number of tokens, capped at the largest burst.
    pub(super) fn opens_at(&self, tokens: u32, rate: f64, now: Timestamp) -> Timestamp {
        let lacking =
            f64::from(tokens).min(self.tokens_max(rate)) - ROUNDING - self.tokens(rate, now);
        if lacking <= 0.0 {
            return now;
        }
        // Rounded up by a microsecond, so that the token is complete by then.
        now.after(Duration::from_secs_f64(lacking / rate))
            .after(Duration::from_micros(1))
    }

    /// Takes tokens that may be missing; then the next taker waits for them, too.
    pub(super) fn take_tokens(&mut self, tokens: f64, rate: f64, now: Timestamp) {
        self.tokens = self.tokens(rate, now) - tokens;
        self.filled = self.filled.max(now);
    }

    pub(super) fn forgive_debt(&mut self) {
        self.tokens = self.tokens.max(0.0);
    }
}
