//! What became of the events: the totals of published events and of jobs, and outcomes by cause.

use super::jobs::Jobs;
use crate::record::{Counters, Cursor, OutcomeCounts, Traffic};
use gridhook_event::{Lane, Seq};

#[derive(Debug)]
pub(super) struct Totals {
    published: Counters,
    replayed: Counters,
    outcomes: OutcomeCounts,
    /// The first event of the subscription.
    began: Seq,
}

impl Totals {
    pub(super) fn from_cursor(cursor: &Cursor) -> Self {
        Self {
            published: cursor.counters,
            replayed: cursor.replayed,
            outcomes: cursor.counts.clone(),
            began: cursor.began,
        }
    }

    /// A cursor with these totals and nothing else.
    pub(super) fn to_cursor(&self) -> Cursor {
        Cursor {
            counters: self.published,
            replayed: self.replayed,
            began: self.began,
            counts: self.outcomes.clone(),
            ..Cursor::default()
        }
    }

    /// Number of published events that are pending.
    pub(super) fn pending(&self) -> u64 {
        self.published.pending
    }

    /// Counts an outcome of an event or a request of this lane. Jobs have counters of their own, in
    /// total and for each job.
    pub(super) fn update_counters(
        &mut self,
        lane: Lane,
        jobs: &mut Jobs,
        count: impl Fn(&mut Counters),
    ) {
        match Traffic::from_lane(lane) {
            Traffic::Live => count(&mut self.published),
            Traffic::Jobs => {
                count(&mut self.replayed);
                jobs.counters_mut(lane).into_iter().for_each(count);
            }
        }
    }

    pub(super) fn outcomes_mut(&mut self) -> &mut OutcomeCounts {
        &mut self.outcomes
    }
}
