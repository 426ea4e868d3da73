//! What came back lately: how many requests were taken and how many failed, and at what rate they were taken.
//!
//! A ring of slots slides over the window, so that it needs the same memory at any load. What it says of the window is
//! exact but for one slot.
//!
//! Invariants: `sum` is the sum of the slots; the rate is that of the last success, so that an endpoint that hangs or
//! fails does not pull it down; a clock that stands still or goes back counts into the newest slot.

use std::time::Duration;

use crate::event::Timestamp;

/// A slot of the usual minute is five seconds: what falls out of the window at once is less than a tenth.
const SLOTS: usize = 12;

/// A rate over less than a second would call three requests in a burst a thousand in a second.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// Requests that came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCounts {
    /// Taken.
    pub(super) took: u32,
    /// Failed.
    pub(super) failed: u32,
}

impl RequestCounts {
    /// How many of them failed, from 0 to 1.
    pub(super) fn failed_share(self) -> f64 {
        f64::from(self.failed) / f64::from((self.took + self.failed).max(1))
    }
}

/// The window.
#[derive(Debug)]
pub(super) struct RequestWindow {
    slot_micros: u64,
    slots: [RequestCounts; SLOTS],
    sum: RequestCounts,
    /// The number of the newest slot, counted from the epoch; slots are written round and round.
    newest: u64,
    /// When it began to count; [`None`] before the first answer.
    began: Option<Timestamp>,
    /// Successes in a second, at the last success.
    rate: Option<f64>,
    /// Whether that is the rate of a whole window.
    whole: bool,
}

impl RequestWindow {
    /// Nothing came back yet.
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

    /// A request was taken.
    pub(super) fn took(&mut self, now: Timestamp) {
        let began = self.slide(now);
        let shared = self.newest as usize % SLOTS;
        self.slots[shared].took = self.slots[shared].took.saturating_add(1);
        self.sum.took = self.sum.took.saturating_add(1);
        let oldest = Timestamp((self.newest + 1).saturating_sub(SLOTS as u64) * self.slot_micros);
        let span = now.since(oldest.max(began)).max(SPAN_MIN);
        self.rate = Some(f64::from(self.sum.took) / span.as_secs_f64());
        self.whole = began < oldest;
    }

    /// A request failed: how many came back in the window, with it.
    pub(super) fn failed(&mut self, now: Timestamp) -> RequestCounts {
        self.slide(now);
        let shared = self.newest as usize % SLOTS;
        self.slots[shared].failed = self.slots[shared].failed.saturating_add(1);
        self.sum.failed = self.sum.failed.saturating_add(1);
        self.sum
    }

    /// Successes in a second, and whether they were measured over a whole window.
    pub(super) fn rate(&self) -> Option<(f64, bool)> {
        self.rate.map(|rate| (rate, self.whole))
    }

    /// Lets go what the window has passed; when it began to count.
    fn slide(&mut self, now: Timestamp) -> Timestamp {
        let shared = now.0 / self.slot_micros;
        let Some(began) = self.began else {
            self.newest = shared;
            self.began = Some(now);
            return now;
        };
        for passed in 0..shared.saturating_sub(self.newest).min(SLOTS as u64) {
            let left = std::mem::take(&mut self.slots[(self.newest + 1 + passed) as usize % SLOTS]);
            self.sum.took = self.sum.took.saturating_sub(left.took);
            self.sum.failed = self.sum.failed.saturating_sub(left.failed);
        }
        self.newest = self.newest.max(shared);
        began
    }
}
