//! What is to be written: what was decided since the last write left.
//!
//! Invariants:
//! - At most one write is on its way. What happens meanwhile gathers here, so that the cursor is written once for a group
//!   of outcomes, and an outcome always finds room.
//! - A write has the cursor as it stands after all the changes with it: both become durable, or neither.
//! - What the filter passed is no promise: it waits for company, but not for ever.
//! - Where the same became of many events of a lane, one line of the ledger covers their runs.
//! - What the filter stopped costs no line for each run of it, and none for each write: one hull for each lane grows from
//!   the first such event to the last, in the cursor, and becomes a line when it leaves a block of the ledger. Whatever in
//!   it has no other line of the lane was stopped by that version of the filter.

use std::time::Duration;

use crate::{
    event::{Lane, RequestId, Seq, Timestamp},
    policy::{
        SubscriptionWrite,
        record::{Cursor, FilteredOut, LEDGER_BLOCK, LedgerEntry, LedgerEvent, RecordChange},
        runs::SeqRuns,
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

/// So many events are given up by ranges in one write at most: what is sent beside them waits for no more than this, and a
/// write with a dead letter for each of them has some 200 KiB.
pub(super) const GIVEN_UP_MAX: usize = 1024;

/// So many runs at most are in a line of the ledger, and about so many are gathered while a write is on its way: 12 bytes
/// each in memory.
const RUNS_MAX: usize = 1024;

/// Where events are that went from one lane to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LaneMove {
    /// On the disk, in their lane.
    #[default]
    Durable,
    /// In the next write.
    Gathered,
    /// In the write that is on its way.
    Written,
}

/// What was changed and is not on its way to the journal yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrite {
    changes: Vec<RecordChange>,
    landed: Vec<RequestId>,
    late: Vec<RequestId>,
    struck: Vec<(RequestId, (Lane, Seq))>,
    urgent: bool,
    /// Whether the cursor says something that should not wait for the filtered ones' time.
    cursor: bool,
    /// What became of runs of events, for each lane and each end that they had.
    ranges: Vec<(Lane, LedgerEvent, SeqRuns)>,
    given_up: usize,
    moved: LaneMove,
    /// What the filter stopped and is not a line yet; in the cursor.
    filtered_out: Vec<FilteredOut>,
    /// Of these, what is a line with the next write.
    filtered_out_closed: Vec<FilteredOut>,
    filtered_count: u64,
    filtered_since: Option<Timestamp>,
    /// Whether a write is on its way.
    writing: bool,
}

impl PendingWrite {
    /// Nothing was changed; what the filter stopped is as it was written down.
    pub(super) fn recover(sifted: &[FilteredOut]) -> Self {
        Self { filtered_out: sifted.to_vec(), ..Self::default() }
    }

    /// A change.
    pub(super) fn change(&mut self, change: RecordChange) {
        self.changes.push(change);
    }

    /// A line of the ledger.
    pub(super) fn note(&mut self, lane: Lane, attempt: u32, entry: LedgerEntry) {
        self.change(RecordChange::Note { lane, attempt, entry });
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
    pub(super) fn land(&mut self, request: RequestId) {
        self.landed.push(request);
        self.cursor();
    }

    /// A late answer is settled.
    pub(super) fn late(&mut self, request: RequestId) {
        self.late.push(request);
        self.cursor();
    }

    /// A flight carries this no longer.
    pub(super) fn strike(&mut self, request: RequestId, key: (Lane, Seq)) {
        self.struck.push((request, key));
    }

    /// The lane passed events that the filter did not let through.
    pub(super) fn skip(&mut self, lane: Lane, version: u32, skipped: &SeqRuns, now: Timestamp) {
        let (Some(first), Some(end)) = (skipped.first(), skipped.end()) else { return };
        self.filtered_count += skipped.count();
        self.filtered_since.get_or_insert(now);
        match self.filtered_out.iter_mut().find(|sifted| sifted.lane == lane && sifted.version == version) {
            Some(sifted) => sifted.end = sifted.end.max(end),
            None => {
                self.close_filtered_out(|sifted| sifted.lane == lane);
                self.filtered_out.push(FilteredOut { lane, version, first, end });
            }
        }
        // A block that is full is closed at once, so that a hull has no more than it passed since.
        self.close_filtered_out(|sifted| sifted.first.0 / LEDGER_BLOCK != sifted.end.0 / LEDGER_BLOCK);
    }

    /// A lane is at its end, or goes on elsewhere: what the filter stopped in it is a line.
    pub(super) fn close_lane(&mut self, lane: Lane) {
        self.close_filtered_out(|sifted| sifted.lane == lane);
    }

    fn close_filtered_out(&mut self, is_closed: impl Fn(&FilteredOut) -> bool) {
        self.filtered_out_closed.extend(self.filtered_out.extract_if(.., |sifted| is_closed(sifted)));
    }

    /// What the filter stopped and is not a line when the next write is there.
    pub(super) fn filtered_out(&self) -> &[FilteredOut] {
        &self.filtered_out
    }

    /// The lane gave these events up, in order, without an attempt; `why` is [`LedgerEvent::GivenUp`].
    pub(super) fn give_up(&mut self, lane: Lane, why: LedgerEvent, events: impl IntoIterator<Item = Seq>) {
        self.give_up_runs(lane, why, events.into_iter().collect());
    }

    /// The same of runs of events.
    pub(super) fn give_up_runs(&mut self, lane: Lane, why: LedgerEvent, events: SeqRuns) {
        self.given_up += usize::try_from(events.count()).unwrap_or(usize::MAX);
        self.cover(lane, why, events);
        self.cursor();
    }

    /// So many events more have ended in the next write without a request.
    pub(super) fn spend(&mut self, events: usize) {
        self.given_up += events;
    }

    /// How many more events may be given up by ranges before the next write leaves.
    pub(super) fn may_give_up(&self) -> usize {
        GIVEN_UP_MAX.saturating_sub(self.given_up)
    }

    /// Events went from one lane to another: nothing of it may be sent before that is durable, or a later life would find
    /// them in flight in a lane that it does not have.
    pub(super) fn move_events(&mut self) {
        self.moved = LaneMove::Gathered;
        self.cursor_now();
    }

    /// Whether events went from one lane to another and that is not durable.
    pub(super) fn moves_events(&self) -> bool {
        self.moved != LaneMove::Durable
    }

    fn cover(&mut self, lane: Lane, what: LedgerEvent, runs: SeqRuns) {
        match self.ranges.iter_mut().find(|(of, became, _)| *of == lane && *became == what) {
            Some((_, _, known)) => known.append(runs),
            None => self.ranges.push((lane, what, runs)),
        }
    }

    /// Whether so much is unwritten that no more should be done before it is written.
    pub(super) fn is_ahead(&self) -> bool {
        let runs = || self.ranges.iter().map(|(_, _, runs)| runs.len()).sum::<usize>();
        let full = self.landed.len() >= LANDED_MAX || self.changes.len() >= CHANGES_MAX;
        self.writing && (full || runs() >= RUNS_MAX)
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
    pub(super) fn take(&mut self, cursor: Cursor, now: Timestamp) -> SubscriptionWrite {
        let moved = if self.moved == LaneMove::Gathered { LaneMove::Written } else { self.moved };
        let sifted = std::mem::take(&mut self.filtered_out);
        let Self { mut changes, landed, late, struck, urgent, ranges, filtered_out_closed: sifted_closed, .. } =
            std::mem::replace(self, Self { writing: true, moved, filtered_out: sifted, ..Self::default() });
        for sifted in sifted_closed {
            changes.push(RecordChange::Note { lane: sifted.lane, attempt: 0, entry: sifted.line(now) });
        }
        for (lane, what, runs) in ranges {
            for covers in runs.into_covers().chunks(RUNS_MAX) {
                let entry = LedgerEntry { at: now, covers: covers.to_vec(), what: what.clone() };
                changes.push(RecordChange::Note { lane, attempt: 0, entry });
            }
        }
        changes.push(RecordChange::Cursor(Box::new(cursor)));
        SubscriptionWrite { changes, landed, late, struck, urgent }
    }

    /// What was on its way is on the disk.
    pub(super) fn durable(&mut self) {
        self.writing = false;
        if self.moved == LaneMove::Written {
            self.moved = LaneMove::Durable;
        }
    }
}
