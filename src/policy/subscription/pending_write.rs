//! Changes that wait for the next write to the journal.
//!
//! Invariants:
//! - At most one write is in progress. Changes made meanwhile accumulate here, so that one cursor
//!   covers a group of outcomes, and there is always room for an outcome.
//! - A write contains the cursor as it stands after the write's other changes. They become durable
//!   together or not at all.
//! - An advance over filtered events alone is not urgent: it waits for other changes, for a bounded
//!   time.
//! - Events of a lane with the same outcome share one ledger entry, which lists their runs.
//! - Filtered events do not cost an entry per run or per write. For each lane the cursor holds one
//!   range from the first filtered event to the last; it becomes a ledger entry at the end of a
//!   ledger block. An event in the range without another entry of the lane was rejected by that
//!   version of the filter.
//!
//! What it does not do: it has neither keys nor bytes of records. `gridhook_store` encodes them.

use std::time::Duration;

use crate::{
    DetachedEvents, SubscriptionWrite,
    record::{
        Cursor, FilteredOut, LEDGER_BLOCK, LedgerEntry, LedgerEvent, RecordChange, SeqSet,
        WriteUrgency,
    },
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};

/// Maximum outcomes accumulated while a write is in progress. At the limit nothing is sent until
/// the write is durable. A crash sends unwritten requests again, and a write to a full disk can
/// take long.
const FINISHED_MAX: usize = 1024;

/// Maximum outcomes of a relaxed write. With more of them a longer wait would save little, and a
/// crash would repeat many requests.
const RELAXED_OUTCOMES: usize = 16;

/// Maximum changes accumulated in the same time: more than one slice of an overflowing log.
const CHANGES_MAX: usize = 8192;

/// Results wait for the next write once a write has this many changes, so that no other topic waits
/// for a wave of failures: with the largest batch behind them about 20,000 records.
const WRITE_CHANGES_MAX: usize = 4096;

/// A cursor that only passed filtered events is written after this many.
const FILTERED_MAX: u64 = 4096;

/// A cursor that only passed filtered events is written after this time at the latest. After a
/// crash before that, they are filtered again.
const FILTERED_WAIT: Duration = Duration::from_secs(5);

/// Maximum events given up by ranges in one write. Batches sent meanwhile wait for this write at
/// most. With a dead letter for each event it has about 200 KiB.
pub(super) const GIVEN_UP_MAX: usize = 1024;

/// Maximum runs in one ledger entry, and approximate maximum accumulated while a write is in
/// progress: 12 bytes each in memory.
const RUNS_MAX: usize = 1024;

/// The state of events that moved from one lane to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LaneMove {
    /// The move is on disk.
    #[default]
    Durable,
    /// The move is in the next write.
    Unwritten,
    /// The move is in the write in progress.
    Written,
}

/// Changes that are not written yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrite {
    changes: Vec<RecordChange>,
    finished: Vec<RequestId>,
    late: Vec<RequestId>,
    detached: Vec<(RequestId, DetachedEvents)>,
    is_urgent: bool,
    /// Whether the cursor has a change that must not wait for [`FILTERED_WAIT`].
    has_cursor_change: bool,
    /// Outcomes of runs of events, by lane and outcome.
    ranges: Vec<(Lane, LedgerEvent, SeqSet)>,
    given_up: usize,
    /// Whether more was to be given up than this write takes.
    is_exhausted: bool,
    lane_move: LaneMove,
    /// Ranges of filtered events that have no ledger entry yet; stored in the cursor.
    filtered_out: Vec<FilteredOut>,
    /// Ranges that become ledger entries with the next write.
    filtered_out_closed: Vec<FilteredOut>,
    filtered_count: u64,
    filtered_since: Option<Timestamp>,
    /// Whether a write is in progress.
    is_writing: bool,
    /// Whether the write in progress has only ledger entries and the cursor, so that nothing
    /// follows from its end.
    is_quiet: bool,
    /// Whether nothing may be written, because pending records are being read.
    is_frozen: bool,
}

impl PendingWrite {
    /// No changes, and the ranges of filtered events as recovered from the cursor.
    pub(super) fn from_filtered(filtered: &[FilteredOut]) -> Self {
        Self {
            filtered_out: filtered.to_vec(),
            ..Self::default()
        }
    }

    pub(super) fn push_change(&mut self, change: RecordChange) {
        self.changes.push(change);
    }

    pub(super) fn push_entry(&mut self, lane: Lane, attempt: u32, entry: LedgerEntry) {
        self.push_change(RecordChange::Note {
            lane,
            attempt,
            entry,
        });
    }

    /// Notes a change of the cursor.
    pub(super) fn write_cursor_soon(&mut self) {
        self.has_cursor_change = true;
    }

    /// Notes a change of the cursor that is written at once.
    pub(super) fn write_cursor_now(&mut self) {
        self.write_cursor_soon();
        self.is_urgent = true;
    }

    /// Notes that a request's outcome is settled.
    pub(super) fn finish_request(&mut self, request: RequestId) {
        self.finished.push(request);
        self.write_cursor_soon();
    }

    /// Notes that a late success is settled.
    pub(super) fn settle_late_response(&mut self, request: RequestId) {
        self.late.push(request);
        self.write_cursor_soon();
    }

    /// Notes that a request no longer carries these events.
    pub(super) fn detach_events(&mut self, request: RequestId, events: DetachedEvents) {
        self.detached.push((request, events));
    }

    /// Notes events of a lane that the filter rejected.
    pub(super) fn skip_filtered(
        &mut self,
        lane: Lane,
        version: u32,
        skipped: &SeqSet,
        now: Timestamp,
    ) {
        let (Some(first), Some(end)) = (skipped.first_seq(), skipped.end_seq()) else {
            return;
        };
        self.filtered_count += skipped.event_count();
        self.filtered_since.get_or_insert(now);
        match self
            .filtered_out
            .iter_mut()
            .find(|filtered| filtered.lane == lane && filtered.version == version)
        {
            Some(filtered) => filtered.end = filtered.end.max(end),
            None => {
                self.close_filtered_out(|filtered| filtered.lane == lane);
                self.filtered_out.push(FilteredOut {
                    lane,
                    version,
                    first,
                    end,
                });
            }
        }
        // A range ends with its ledger block, so that it never covers more than one block.
        self.close_filtered_out(|filtered| {
            filtered.first.0 / LEDGER_BLOCK != filtered.end.0 / LEDGER_BLOCK
        });
    }

    /// Ends the ranges of a lane that is finished or continues elsewhere.
    pub(super) fn close_lane(&mut self, lane: Lane) {
        self.close_filtered_out(|filtered| filtered.lane == lane);
    }

    fn close_filtered_out(&mut self, is_closed: impl Fn(&FilteredOut) -> bool) {
        self.filtered_out_closed.extend(
            self.filtered_out
                .extract_if(.., |filtered| is_closed(filtered)),
        );
    }

    /// The ranges that have no ledger entry after the next write.
    pub(super) fn filtered_out(&self) -> &[FilteredOut] {
        &self.filtered_out
    }

    /// Notes events of a lane that are given up in order and without an attempt; `what` is
    /// [`LedgerEvent::GivenUp`].
    pub(super) fn give_up(
        &mut self,
        lane: Lane,
        what: LedgerEvent,
        events: impl IntoIterator<Item = Seq>,
    ) {
        self.give_up_runs(lane, what, events.into_iter().collect());
    }

    /// As [`PendingWrite::give_up`], for runs of events.
    pub(super) fn give_up_runs(&mut self, lane: Lane, what: LedgerEvent, events: SeqSet) {
        self.given_up += usize::try_from(events.event_count()).unwrap_or(usize::MAX);
        self.merge_runs(lane, what, events);
        self.write_cursor_soon();
    }

    /// Counts events that end in the next write without a request.
    pub(super) fn reserve_ended(&mut self, events: usize) {
        self.given_up += events;
    }

    /// How many of `events` may be given up before the next write. If not all of them, the end of
    /// that write wakes the subscription for the others.
    pub(super) fn limit_give_ups(&mut self, events: usize) -> usize {
        let room = GIVEN_UP_MAX.saturating_sub(self.given_up);
        self.is_exhausted |= events > room;
        events.min(room)
    }

    /// Notes that events move from one lane to another. They may be sent only once the move is
    /// durable. Otherwise the next incarnation would find them in flight in a lane that it does not
    /// have.
    pub(super) fn move_events(&mut self) {
        self.lane_move = LaneMove::Unwritten;
        self.write_cursor_now();
    }

    /// Whether events moved from one lane to another and the move is not durable.
    pub(super) fn moves_events(&self) -> bool {
        self.lane_move != LaneMove::Durable
    }

    fn merge_runs(&mut self, lane: Lane, what: LedgerEvent, runs: SeqSet) {
        // A ledger line covers at least one event.
        if runs.is_empty() {
            return;
        }
        match self
            .ranges
            .iter_mut()
            .find(|(range_lane, range_event, _)| *range_lane == lane && *range_event == what)
        {
            Some((_, _, range_runs)) => range_runs.append_later(runs),
            None => self.ranges.push((lane, what, runs)),
        }
    }

    /// Whether so much is unwritten that nothing more is done before the next write.
    pub(super) fn is_ahead(&self) -> bool {
        let is_full = self.finished.len() >= FINISHED_MAX || self.changes.len() >= CHANGES_MAX;
        (self.is_writing || self.is_frozen) && (is_full || self.count_runs() >= RUNS_MAX)
    }

    fn count_runs(&self) -> usize {
        let ranges = self.ranges.iter();
        ranges.map(|(_, _, runs)| runs.runs().len()).sum()
    }

    /// Whether results wait for the end of the next write.
    pub(super) fn is_full(&self) -> bool {
        self.changes.len() >= WRITE_CHANGES_MAX
    }

    /// When there is something to write if nothing happens before.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.filtered_since
            .filter(|_| !self.is_writing && !self.is_frozen)
            .map(|since| since.after(FILTERED_WAIT))
    }

    /// Whether there is something to write now. Never while a write is in progress.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let has_filtered =
            self.filtered_count >= FILTERED_MAX || self.next_wake().is_some_and(|at| at <= now);
        !self.is_writing
            && !self.is_frozen
            && (self.has_cursor_change || has_filtered || !self.changes.is_empty())
    }

    /// Starts or ends a time in which nothing is written.
    pub(super) fn set_frozen(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Whether a write is in progress.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Whether something waits for the end of the write in progress.
    pub(super) fn is_awaited(&self) -> bool {
        let is_next =
            || self.has_cursor_change || self.filtered_since.is_some() || !self.changes.is_empty();
        self.is_writing && (!self.is_quiet || is_next())
    }

    /// Takes all changes as the write in progress. `has_followers`: something follows from its end
    /// in any case.
    pub(super) fn begin_write(
        &mut self,
        cursor: Box<Cursor>,
        moved_by_commands: Option<u64>,
        has_followers: bool,
        now: Timestamp,
    ) -> SubscriptionWrite {
        let is_quiet = self.lane_move == LaneMove::Durable
            && !self.is_exhausted
            && (self.late.is_empty() && self.detached.is_empty())
            && self
                .changes
                .iter()
                .all(|change| matches!(change, RecordChange::Note { .. }));
        let lane_move = if self.lane_move == LaneMove::Unwritten {
            LaneMove::Written
        } else {
            self.lane_move
        };
        let filtered_ranges = std::mem::take(&mut self.filtered_out);
        let Self {
            mut changes,
            finished,
            late,
            detached,
            is_urgent,
            ranges,
            filtered_out_closed: closed,
            ..
        } = std::mem::replace(
            self,
            Self {
                is_writing: true,
                is_quiet,
                lane_move,
                filtered_out: filtered_ranges,
                ..Self::default()
            },
        );
        for range in closed {
            changes.push(note_without_attempt(range.lane, range.to_ledger_entry(now)));
        }
        for (lane, what, runs) in ranges {
            for part in runs.into_runs().chunks(RUNS_MAX) {
                let entry = LedgerEntry {
                    at: now,
                    runs: part.to_vec(),
                    what: what.clone(),
                };
                changes.push(note_without_attempt(lane, entry));
            }
        }
        changes.push(RecordChange::Cursor(cursor));
        let urgency = if is_urgent {
            WriteUrgency::Now
        } else if is_quiet && !has_followers && finished.len() <= RELAXED_OUTCOMES {
            WriteUrgency::Relaxed
        } else {
            WriteUrgency::Usual
        };
        SubscriptionWrite {
            changes,
            finished,
            late,
            detached,
            moved_by_commands,
            urgency,
        }
    }

    /// Notes that the write in progress is durable.
    pub(super) fn finish_write(&mut self) {
        self.is_writing = false;
        if self.lane_move == LaneMove::Written {
            self.lane_move = LaneMove::Durable;
        }
    }
}

fn note_without_attempt(lane: Lane, entry: LedgerEntry) -> RecordChange {
    RecordChange::Note {
        lane,
        attempt: 0,
        entry,
    }
}
