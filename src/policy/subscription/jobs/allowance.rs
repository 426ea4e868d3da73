//! A job's own rate: so many events in a second at the most, whatever the endpoint would take.

use std::time::Duration;

use crate::{event::Timestamp, policy::record::Rate};

/// So much of a job's rate can gather while it does not send: less would make small batches of large ones.
const BURST: Duration = Duration::from_millis(250);

/// What a job's own rate leaves it.
#[derive(Debug)]
pub(super) struct Allowance {
    rate: f64,
    events: f64,
    filled: Timestamp,
}

impl Allowance {
    /// For a job that has just begun, or gone on.
    pub(super) fn new(rate: Rate, now: Timestamp) -> Self {
        // A rate of nothing at all would stall for ever.
        Self { rate: rate.max(Rate(1)).per_second(), events: 1.0, filled: now }
    }

    fn most(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(1.0)
    }

    /// How many events may leave now, and a part of the next.
    pub(super) fn events(&self, now: Timestamp) -> f64 {
        (self.events + self.rate * now.since(self.filled).as_secs_f64()).min(self.most())
    }

    /// When so many events may leave: as many as it can ever allow at once, if that is fewer.
    pub(super) fn opens(&self, events: u32, now: Timestamp) -> Timestamp {
        let lacking = f64::from(events).min(self.most()) - self.events(now) - 1e-6;
        if lacking <= 0.0 {
            now
        } else {
            now.after(Duration::from_secs_f64(lacking / self.rate)).after(Duration::from_micros(1))
        }
    }

    /// So many leave.
    pub(super) fn take(&mut self, events: usize, now: Timestamp) {
        self.events = self.events(now) - events as f64;
        self.filled = self.filled.max(now);
    }
}
