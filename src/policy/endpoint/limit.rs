//! How many requests at once: between one and the setting, as many as help.
//!
//! It counts requests, not events. While answers come as fast as they did before, and all places were in use, one more
//! is tried; where requests fail, or take longer than they used to, there were too many.
//!
//! Invariants:
//! - It rises only when it was reached, and the last request was as full as it can be: room that nobody used proves nothing.
//! - Latency is compared with that of batches of the same size, and learnt from successes only: a refusal at once, or a
//!   connection that hung, says nothing of how long the work takes.
//! - What is usual gets longer only while the endpoint is not pushed, or has one request at a time: else an endpoint that
//!   is slow because it is pushed would soon be taken for one that is slow by nature, and be pushed further.
//! - A request that left before the last decrease decreases nothing: what comes back in one volley is one sign.

use std::time::Duration;

use crate::event::Timestamp;

/// What a fresh endpoint gets at once, if the setting allows: as many as the setting's own default has, so that nobody is
/// slow because he is new.
const START: u32 = 16;

/// A failure leaves so much of the limit …
const AFTER_FAILURE: f64 = 0.7;

/// … and a rise of the latency so much: it is a weaker sign.
const AFTER_SLOWNESS: f64 = 0.9;

/// The latency has risen where the last answers took so many times what is usual …
const SLOW_TIMES: f32 = 2.0;

/// … and so much longer: what is short anyway varies by the machine's own noise.
const SLOW_MICROS: f32 = 10_000.0;

/// What is usual is the mean of about so many answers …
const USUAL: f32 = 64.0;

/// … and the last answers are about so many.
const LAST: f32 = 8.0;

/// What is usual is not known before so many answers.
const KNOWN: u16 = 32;

/// Batches of 1, 2 to 3, 4 to 7 … up to 4,096 and more events.
const CLASSES: usize = 13;

/// The limit.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    max: u32,
    limit: f64,
    /// Until the first sign of too many it doubles in a round; then it rises by one.
    doubling: bool,
    cut: Timestamp,
    /// Whether the last request was as full as it can be.
    full: bool,
    classes: [BatchLatency; CLASSES],
}

/// How long batches of one size take, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct BatchLatency {
    usual: f32,
    last: f32,
    count: u16,
}

impl AdaptiveLimit {
    /// For a fresh endpoint.
    pub(super) fn new(max: u32) -> Self {
        let max = max.max(1);
        Self {
            max,
            limit: f64::from(max.min(START)),
            doubling: true,
            cut: Timestamp::default(),
            full: false,
            classes: [BatchLatency::default(); CLASSES],
        }
    }

    /// For one that was on probation: as for a fresh one where a pace sees to it that it is not overrun, else from one on.
    /// What is usual for it stays known.
    pub(super) fn reset(&mut self, paced: bool, now: Timestamp) {
        self.limit = if paced { f64::from(self.max.min(START)) } else { 1.0 };
        self.doubling = true;
        self.cut = now;
    }

    /// So many at once.
    pub(super) fn get(&self) -> u32 {
        // Never below one and never above `max`.
        self.limit as u32
    }

    /// A request leaves, as full as it can be or not.
    pub(super) fn sent(&mut self, full: bool) {
        self.full = full;
    }

    /// A request with so many events that left at `sent` was taken; with it, `aloft` were on their way.
    pub(super) fn took(&mut self, events: usize, latency: Duration, sent: Timestamp, in_flight: usize, now: Timestamp) {
        let class = events.max(1).ilog2() as usize;
        let pushed = self.get() > 1 && 2 * in_flight > self.get() as usize;
        let slow = self.classes[class.min(CLASSES - 1)].learn(latency, pushed);
        if slow {
            self.shrink(AFTER_SLOWNESS, sent, now);
        } else if self.full && in_flight >= self.get() as usize {
            let step = if self.doubling { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + step).min(f64::from(self.max));
        }
    }

    /// A request that left at `sent` failed.
    pub(super) fn failed(&mut self, sent: Timestamp, now: Timestamp) {
        self.shrink(AFTER_FAILURE, sent, now);
    }

    fn shrink(&mut self, to: f64, sent: Timestamp, now: Timestamp) {
        if sent < self.cut {
            return;
        }
        self.limit = (self.limit * to).max(1.0);
        self.doubling = false;
        self.cut = now;
    }
}

impl BatchLatency {
    /// Learns from an answer: whether the last ones took longer than is usual.
    fn learn(&mut self, latency: Duration, pushed: bool) -> bool {
        let micros = latency.as_secs_f32() * 1e6;
        self.count = self.count.saturating_add(1);
        let count = f32::from(self.count);
        let known = self.count >= KNOWN;
        if !known || !pushed || micros < self.usual {
            self.usual += (micros - self.usual) / count.min(USUAL);
        }
        self.last += (micros - self.last) / count.min(LAST);
        known && self.last > self.usual * SLOW_TIMES + SLOW_MICROS
    }
}
