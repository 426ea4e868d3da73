//! A job's own rate limit in events per second, regardless of what the endpoint would accept.

use std::time::Duration;

use crate::{event::Timestamp, policy::record::Rate};

/// How much of the rate accumulates while a job does not send. Less would split large batches.
const BURST: Duration = Duration::from_millis(250);

/// What a job's rate limit allows now.
#[derive(Debug)]
pub(super) struct RateLimit {
    rate: f64,
    events: f64,
    filled: Timestamp,
}

impl RateLimit {
    /// For a job that starts or resumes.
    pub(super) fn new(rate: Rate, now: Timestamp) -> Self {
        // A rate of zero would stall forever.
        Self { rate: rate.max(Rate(1)).per_second(), events: 1.0, filled: now }
    }

    fn most(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(1.0)
    }

    /// How many events may leave now, as a fraction.
    pub(super) fn events(&self, now: Timestamp) -> f64 {
        (self.events + self.rate * now.since(self.filled).as_secs_f64()).min(self.most())
    }

    /// When this number of events may leave, capped at the largest burst.
    pub(super) fn opens(&self, events: u32, now: Timestamp) -> Timestamp {
        let lacking = f64::from(events).min(self.most()) - self.events(now) - 1e-6;
        if lacking <= 0.0 {
            now
        } else {
            now.after(Duration::from_secs_f64(lacking / self.rate)).after(Duration::from_micros(1))
        }
    }

    /// Notes that events leave.
    pub(super) fn take(&mut self, events: usize, now: Timestamp) {
        self.events = self.events(now) - events as f64;
        self.filled = self.filled.max(now);
    }
}
