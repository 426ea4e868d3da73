//! What the counters count, by why: so that "how many failed" and "of what" are in one record and cannot disagree.
//!
//! Published events and jobs' are together here: what an endpoint answers does not depend on why it was asked.

use std::collections::BTreeMap;

use crate::policy::{
    outcome::{Outcome, Reason},
    record::lease::StepKind,
};

/// How often what ended why. What is not in it did not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Requests that failed, and locks of clients that expired.
    pub failed: BTreeMap<Outcome, u64>,
    /// Events that were put aside for the dead-letter destination.
    pub dead_lettered: BTreeMap<Reason, u64>,
    /// Events that were given up without one.
    pub dropped: BTreeMap<Reason, u64>,
    /// Steps of what clients pull, each for one event.
    pub leases: BTreeMap<StepKind, u64>,
}

impl OutcomeCounts {
    /// A request ended so, and that is no success.
    pub(in crate::policy) fn fail(&mut self, outcome: Outcome) {
        *self.failed.entry(outcome).or_default() += 1;
    }

    /// An event was given up, and put aside or not.
    pub(in crate::policy) fn give_up(&mut self, reason: Reason, put_aside: bool) {
        let of = if put_aside { &mut self.dead_lettered } else { &mut self.dropped };
        *of.entry(reason).or_default() += 1;
    }

    /// So many events were given up, and none was put aside.
    pub(in crate::policy) fn drop_all(&mut self, reason: Reason, events: u64) {
        *self.dropped.entry(reason).or_default() += events;
    }

    /// So many events went a step.
    pub(in crate::policy) fn lease(&mut self, step: StepKind, events: u64) {
        *self.leases.entry(step).or_default() += events;
    }
}
