//! What is to be written: what was decided since the last write left.
//!
//! Invariants:
//! - At most one write is on its way. What happens meanwhile gathers here, so that the cursor is written once for a group
//!   of outcomes, and an outcome always finds room.
//! - A write has the cursor as it stands after all the changes with it: both become durable, or neither.
//! - What the filter passed is no promise: it waits for company, but not for ever.

use std::time::Duration;

use crate::{
    event::{FlightId, Lane, Seq, Timestamp},
    policy::{
        Write,
        lane::Skipped,
        record::{Change, Cursor, Entry, What},
    },
};

/// While a write is on its way, so many more outcomes are gathered at most; then nothing is sent until it is durable. On a
/// full disk that may be long, and a crash repeats what was not written.
const LANDED_MAX: usize = 1024;

/// So many changes are gathered at most in the same time: more than one slice of a log that is given up.
const CHANGES_MAX: usize = 8192;

/// A cursor that passed nothing but filtered events is written when it passed so many …
const FILTERED_MAX: u64 = 4096;

/// … or after so long: until then a crash would only filter them again.
const FILTERED_WAIT: Duration = Duration::from_secs(5);

/// What was changed and is not on its way to the journal yet.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    changes: Vec<Change>,
    landed: Vec<FlightId>,
    late: Vec<FlightId>,
    struck: Vec<(FlightId, (Lane, Seq))>,
    urgent: bool,
    /// Whether the cursor says something that should not wait for the filtered ones' time.
    cursor: bool,
    filtered: Vec<(Lane, Skipped)>,
    filtered_count: u64,
    filtered_since: Option<Timestamp>,
    /// Whether a write is on its way.
    writing: bool,
}

impl Gathered {
    /// A change.
    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// A line of the ledger.
    pub(super) fn note(&mut self, lane: Lane, attempt: u32, entry: Entry) {
        self.change(Change::Note { lane, attempt, entry });
    }

    /// The cursor says something new.
    pub(super) fn cursor(&mut self) {
        self.cursor = true;
    }

    /// The cursor says something that should not wait for company.
    pub(super) fn cursor_now(&mut self) {
        self.cursor();
        self.urgent = true;
    }

    /// A flight has its outcome.
    pub(super) fn land(&mut self, flight: FlightId) {
        self.landed.push(flight);
        self.cursor();
    }

    /// A late answer is settled.
    pub(super) fn late(&mut self, flight: FlightId) {
        self.late.push(flight);
        self.cursor();
    }

    /// A flight carries this no longer.
    pub(super) fn strike(&mut self, flight: FlightId, key: (Lane, Seq)) {
        self.struck.push((flight, key));
    }

    /// The lane passed events that the filter did not let through.
    pub(super) fn skip(&mut self, lane: Lane, skipped: Skipped, now: Timestamp) {
        self.filtered_count += skipped.count;
        self.filtered_since.get_or_insert(now);
        match self.filtered.last_mut() {
            Some((last, run)) if *last == lane && run.first.plus(run.count) == skipped.first => {
                run.count += skipped.count;
            }
            Some(_) | None => self.filtered.push((lane, skipped)),
        }
    }

    /// Whether so much is unwritten that no more should be done before it is written.
    pub(super) fn is_ahead(&self) -> bool {
        self.writing && (self.landed.len() >= LANDED_MAX || self.changes.len() >= CHANGES_MAX)
    }

    /// When there is something to write if nothing happens before.
    pub(super) fn wakes(&self) -> Option<Timestamp> {
        self.filtered_since.filter(|_| !self.writing).map(|since| since.after(FILTERED_WAIT))
    }

    /// Whether there is something to write now. Never while a write is on its way.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let filtered = self.filtered_count >= FILTERED_MAX || self.wakes().is_some_and(|at| at <= now);
        !self.writing && (self.cursor || filtered || !self.changes.is_empty())
    }

    /// Takes all of it; it is on its way from now on.
    pub(super) fn take(&mut self, cursor: Cursor, now: Timestamp) -> Write {
        let Self { mut changes, landed, late, struck, urgent, filtered, .. } =
            std::mem::replace(self, Self { writing: true, ..Self::default() });
        for (lane, Skipped { first, count }) in filtered {
            let covers = vec![(first, u32::try_from(count).unwrap_or(u32::MAX))];
            changes.push(Change::Note { lane, attempt: 0, entry: Entry { at: now, covers, what: What::Filtered } });
        }
        changes.push(Change::Cursor(Box::new(cursor)));
        Write { changes, landed, late, struck, urgent }
    }

    /// What was on its way is on the disk.
    pub(super) fn durable(&mut self) {
        self.writing = false;
    }
}
