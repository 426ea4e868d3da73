//! The adaptive concurrency limit: between one request and the configured maximum, as many as the
//! endpoint handles well.
//!
//! It counts requests, not events. While all of it is used and latency stays as it was, the limit
//! is raised. If requests fail or latency rises, it is lowered.
//!
//! Invariants:
//! - It is raised only if it was reached and the last request was as full as possible: unused
//!   capacity proves nothing.
//! - Latency is compared between batches of similar size, and learned from successes only: an
//!   immediate rejection or a timeout says nothing about the time that the work takes.
//! - The usual latency rises only while the limit is not reached, or is one. Otherwise an endpoint
//!   that is slow because of its load would be taken for slow by nature, and be loaded further.
//! - A request sent before the last decrease does not decrease the limit again: a volley of
//!   failures counts once.

use std::time::Duration;

use gridhook_event::Timestamp;

/// The limit for a new endpoint, if the setting allows: a new endpoint is neither slow nor flooded.
const START: u32 = 16;

/// A failure reduces the limit to this share.
const AFTER_FAILURE: f64 = 0.7;

/// Slowness reduces the limit to this share. It is a weaker sign than a failure.
const AFTER_SLOWNESS: f64 = 0.9;

/// Latency has risen if the last responses took this many times the usual latency.
const SLOW_TIMES: f32 = 2.0;

/// Latency has risen only if it is this much longer, too: short latencies vary by noise.
const SLOW_MICROS: f32 = 10_000.0;

/// The usual latency is a moving average of about this many responses.
const USUAL_RESPONSES: f32 = 64.0;

/// The last latency is a moving average of about this many responses.
const LAST_RESPONSES: f32 = 8.0;

/// Minimum responses before the usual latency is known.
const KNOWN_RESPONSES_MIN: u16 = 32;

/// Size classes: batches of 1, 2 to 3, 4 to 7 … up to 4,096 and more events.
const CLASSES: usize = 13;

#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    max: u32,
    limit: f64,
    /// The limit doubles per round until the first decrease; then it rises by one per round.
    doubling: bool,
    /// When the limit was last lowered.
    lowered: Timestamp,
    /// Whether the last request was as full as possible.
    full: bool,
    /// Up to the largest class so far: most subscriptions send one event at a time.
    classes: Vec<BatchLatency>,
}

/// Latency of batches of one size class, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct BatchLatency {
    usual: f32,
    last: f32,
    count: u16,
}

/// The limit for a new endpoint whose setting is `max`.
pub fn limit_of_new(max: u32) -> u32 {
    max.clamp(1, START)
}

impl AdaptiveLimit {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max: max.max(1),
            limit: f64::from(limit_of_new(max)),
            doubling: true,
            lowered: Timestamp::default(),
            full: false,
            classes: Vec::new(),
        }
    }

    /// Resets the limit after probation: to that of a new endpoint if a pace protects it, otherwise
    /// to one request. The usual latency is kept.
    pub(super) fn reset_after_probation(&mut self, paced: bool, now: Timestamp) {
        self.limit = if paced {
            f64::from(self.max.min(START))
        } else {
            1.0
        };
        self.doubling = true;
        self.lowered = now;
    }

    pub(super) fn get(&self) -> u32 {
        // Between one and `max`.
        self.limit as u32
    }

    /// Records that a request was sent. `full`: with as many events as a request may have.
    pub(super) fn record_sent(&mut self, full: bool) {
        self.full = full;
    }

    /// Notes that a request sent at `sent` with this many events succeeded, while `in_flight`
    /// requests including it were in flight.
    pub(super) fn record_success(
        &mut self,
        events: usize,
        latency: Duration,
        sent: Timestamp,
        in_flight: usize,
        now: Timestamp,
    ) {
        let class = (events.max(1).ilog2() as usize).min(CLASSES - 1);
        if class >= self.classes.len() {
            self.classes.reserve_exact(class + 1 - self.classes.len());
            self.classes.resize_with(class + 1, BatchLatency::default);
        }
        let is_pushed = self.get() > 1 && 2 * in_flight > self.get() as usize;
        let slow = self.classes[class].learn_latency(latency, is_pushed);
        if slow {
            self.shrink_limit(AFTER_SLOWNESS, sent, now);
        } else if self.full && in_flight >= self.get() as usize {
            let step = if self.doubling { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + step).min(f64::from(self.max));
        }
    }

    /// Notes that a request sent at `sent` failed.
    pub(super) fn record_failure(&mut self, sent: Timestamp, now: Timestamp) {
        self.shrink_limit(AFTER_FAILURE, sent, now);
    }

    fn shrink_limit(&mut self, to: f64, sent: Timestamp, now: Timestamp) {
        if sent < self.lowered {
            return;
        }
        self.limit = (self.limit * to).max(1.0);
        self.doubling = false;
        self.lowered = now;
    }
}

impl BatchLatency {
    /// Learns from a response. Returns whether the last latency is above the usual one.
    fn learn_latency(&mut self, latency: Duration, pushed: bool) -> bool {
        let micros = latency.as_secs_f32() * 1e6;
        self.count = self.count.saturating_add(1);
        let count = f32::from(self.count);
        let is_known = self.count >= KNOWN_RESPONSES_MIN;
        if !is_known || !pushed || micros < self.usual {
            self.usual += (micros - self.usual) / count.min(USUAL_RESPONSES);
        }
        self.last += (micros - self.last) / count.min(LAST_RESPONSES);
        is_known && self.last > self.usual * SLOW_TIMES + SLOW_MICROS
    }
}
