//! Recent outcomes of requests: numbers of successes and failures in a sliding window, and the rate
//! of successes.
//!
//! The window is a ring of slots, so its memory is constant at any load. Its counts are exact to
//! one slot.
//!
//! Invariants: `sum` is the sum of the slots. The rate is that of the last success, so an endpoint
//! that hangs or fails does not lower it. A clock that stands still or goes back counts into the
//! newest slot.

use std::time::Duration;

use gridhook_event::Timestamp;

/// Twelve slots of five seconds for a window of a minute: less than a tenth leaves the window at
/// once.
const SLOTS: usize = 12;

/// Minimum span of a rate. Over less, a burst of three requests would count as a thousand per
/// second.
const SPAN_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    pub(super) accepted: u32,
    pub(super) failed: u32,
}

impl RequestCounts {
    /// The share of failures, from 0 to 1.
    pub(super) fn failed_share(self) -> f64 {
        f64::from(self.failed) / f64::from((self.accepted + self.failed).max(1))
    }
}

#[derive(Debug)]
pub(super) struct RequestWindow {
    slot_micros: u64,
    slots: [RequestCounts; SLOTS],
    sum: RequestCounts,
    /// The number of the newest slot, counted from the epoch; slots are reused in turn.
    newest: u64,
    /// When counting started; [`None`] before the first response.
    began: Option<Timestamp>,
    /// Successes per second, as of the last success.
    rate: Option<f64>,
    /// Whether the rate covers a whole window.
    whole: bool,
}

impl RequestWindow {
    pub(super) fn new(window: Duration) -> Self {
        let micros = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        Self {
            slot_micros: (micros / SLOTS as u64).max(1),
            slots: [RequestCounts::default(); SLOTS],
            sum: RequestCounts::default(),
            newest: 0,
            began: None,
            rate: None,
            whole: false,
        }
    }

    pub(super) fn count_success(&mut self, now: Timestamp) {
        let began = self.slide_window(now);
        let slot = self.newest as usize % SLOTS;
        self.slots[slot].accepted = self.slots[slot].accepted.saturating_add(1);
        self.sum.accepted = self.sum.accepted.saturating_add(1);
        let oldest = Timestamp((self.newest + 1).saturating_sub(SLOTS as u64) * self.slot_micros);
        let span = now.since(oldest.max(began)).max(SPAN_MIN);
        self.rate = Some(f64::from(self.sum.accepted) / span.as_secs_f64());
        self.whole = began < oldest;
    }

    /// Counts a failure. Returns the counts of the window including it.
    pub(super) fn count_failure(&mut self, now: Timestamp) -> RequestCounts {
        self.slide_window(now);
        let slot = self.newest as usize % SLOTS;
        self.slots[slot].failed = self.slots[slot].failed.saturating_add(1);
        self.sum.failed = self.sum.failed.saturating_add(1);
        self.sum
    }

    /// Successes per second, and whether they cover a whole window.
    pub(super) fn success_rate(&self) -> Option<(f64, bool)> {
        self.rate.map(|rate| (rate, self.whole))
    }

    /// Moves the window forward. Returns when counting started.
    fn slide_window(&mut self, now: Timestamp) -> Timestamp {
        let slot = now.0 / self.slot_micros;
        let Some(began) = self.began else {
            self.newest = slot;
            self.began = Some(now);
            return now;
        };
        for passed in 0..slot.saturating_sub(self.newest).min(SLOTS as u64) {
            let left = std::mem::take(&mut self.slots[(self.newest + 1 + passed) as usize % SLOTS]);
            self.sum.accepted = self.sum.accepted.saturating_sub(left.accepted);
            self.sum.failed = self.sum.failed.saturating_sub(left.failed);
        }
        self.newest = self.newest.max(slot);
        began
    }
}
