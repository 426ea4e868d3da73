//! Counts of outcomes by cause, in the same record as the totals, so that the two cannot disagree.
//!
//! Published events and jobs are counted together, because an endpoint's responses do not depend on
//! the difference.

use std::collections::BTreeMap;

use crate::{
    outcome::{Outcome, Reason},
    record::lease::StepKind,
};

/// Counts by cause. A missing key means zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Failed requests, and expired locks of pull clients.
    pub failed: BTreeMap<Outcome, u64>,
    /// Events that were given up and have a dead letter.
    pub dead_lettered: BTreeMap<Reason, u64>,
    /// Events that were given up without a dead-letter destination.
    pub dropped: BTreeMap<Reason, u64>,
    /// Steps of pull delivery, one per event.
    pub leases: BTreeMap<StepKind, u64>,
}

impl OutcomeCounts {
    /// Counts one failed request, whatever its number of events.
    pub fn count_failure(&mut self, outcome: Outcome) {
        *self.failed.entry(outcome).or_default() += 1;
    }

    /// Counts an event that was given up, dead-lettered or not.
    pub fn give_up(&mut self, reason: Reason, dead_lettered: bool) {
        let of = if dead_lettered {
            &mut self.dead_lettered
        } else {
            &mut self.dropped
        };
        *of.entry(reason).or_default() += 1;
    }

    /// Counts events that were dropped.
    pub fn drop_all(&mut self, reason: Reason, events: u64) {
        *self.dropped.entry(reason).or_default() += events;
    }

    /// Counts a step of pull delivery for a number of events.
    pub fn count_lease_step(&mut self, step: StepKind, events: u64) {
        *self.leases.entry(step).or_default() += events;
    }
}
