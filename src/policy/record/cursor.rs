//! The cursor of a subscription: how far each lane has come, and the totals of what became of the
//! events.

use crate::record::{
    ASKED, BLOCKING, Health, HeldBy, LedgerEntry, LedgerEvent, OutcomeCounts, PaceRecord, SeqRun,
    SeqSet, job::Job,
};
use gridhook_event::{Lane, Seq, Timestamp};

/// How far a subscription has come: one small record, written once per group of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The open lanes: those with something left to read or without an outcome.
    pub lanes: Vec<LaneCursor>,
    /// Stored, so that a restart does not end a suspension.
    pub health: Health,
    /// The stored part of the endpoint's pace.
    pub pace: PaceRecord,
    /// Whether the subscription is held, and why.
    pub held: Option<HeldBy>,
    /// Outcomes of the events passed so far.
    pub counters: Counters,
    /// Outcomes of the events that jobs passed, kept apart so that `counters` covers published
    /// events only.
    pub replayed: Counters,
    /// The jobs that have not ended, in the order of their start.
    pub jobs: Vec<Job>,
    /// Number of lanes assigned to jobs so far, modulo the range of a lane's number.
    pub jobs_begun: u16,
    /// When the first pending delivery is due; [`None`] if nothing is pending.
    pub next_due: Option<Timestamp>,
    /// Recent ranges of filtered events without a ledger entry: at most one per lane.
    pub filtered_out: Vec<FilteredOut>,
    /// The first event of the subscription.
    pub began: Seq,
    /// Failures and events given up, by cause, including jobs.
    pub counts: OutcomeCounts,
}

/// A part of the log in which a version of the filter rejected each event without another entry of
/// this lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct FilteredOut {
    pub lane: Lane,
    /// The version of the filter.
    pub version: u32,
    pub first: Seq,
    /// The position after the last rejected event.
    pub end: Seq,
}

impl FilteredOut {
    /// The range as a ledger entry.
    pub fn to_ledger_entry(&self, at: Timestamp) -> LedgerEntry {
        // A range covers at most one block and one read.
        let count = u32::try_from(self.end.0 - self.first.0).unwrap_or(u32::MAX);
        LedgerEntry {
            at,
            runs: vec![SeqRun {
                first: self.first,
                count,
            }],
            what: LedgerEvent::Filtered {
                version: self.version,
            },
        }
    }
}

/// The maximum number of events that a lane has sent for the first time and that have no outcome.
/// At the limit it sends no more.
pub const OPEN_EVENTS_MAX: usize = 1 << 18;

/// A lane's position in the log. Everything below `read` is passed except `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct LaneCursor {
    pub lane: Lane,
    /// The next event to read.
    pub read: Seq,
    /// The lane's end; [`None`] if it follows the log.
    pub end: Option<Seq>,
    /// Matching events sent for the first time, without an outcome.
    pub open: SeqSet,
    /// Events from `read` on that have an outcome, because an earlier incarnation sent them.
    pub done: SeqSet,
}

impl LaneCursor {
    /// A lane that has sent nothing.
    pub fn new(lane: Lane, read: Seq, end: Option<Seq>) -> Self {
        Self {
            lane,
            read,
            end,
            open: SeqSet::default(),
            done: SeqSet::default(),
        }
    }

    /// Whether the lane has yet to read this event, and it has no outcome.
    pub fn is_unread(&self, seq: Seq) -> bool {
        self.read <= seq && self.end.is_none_or(|end| seq < end) && !self.done.contains(seq)
    }

    /// The first event that this lane may still read.
    pub fn first_unread(&self) -> Seq {
        self.open
            .first_seq()
            .map_or(self.read, |open| open.min(self.read))
    }
}

impl Cursor {
    /// The first event that any lane may still read.
    pub fn first_unread(&self) -> Option<Seq> {
        self.lanes.iter().map(LaneCursor::first_unread).min()
    }

    /// When the first retry is due. Events that are held back, block their key or leave at once
    /// have no time.
    pub fn next_retry(&self) -> Option<Timestamp> {
        self.next_due
            .filter(|due| (ASKED.0 + 1..BLOCKING.0).contains(&due.0))
    }

    /// The lanes of published events: all but those of jobs.
    pub fn own_lanes(&self) -> impl Iterator<Item = &LaneCursor> {
        self.lanes.iter().filter(|lane| !lane.lane.is_job())
    }

    /// The first event that any of these lanes may still read. What follows is the subscription's
    /// backlog.
    pub fn own_low(&self) -> Option<Seq> {
        self.own_lanes().map(LaneCursor::first_unread).min()
    }
}

/// Outcomes of the events that the cursor passed. In every record `passed = filtered + matched` and
/// `matched = delivered + pending + dead_lettered + dropped + canceled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that the cursor passed.
    pub passed: u64,
    /// Of these, events rejected by the filter.
    pub filtered: u64,
    /// Of these, events that match the filter.
    pub matched: u64,
    /// Matched events that the endpoint accepted.
    pub delivered: u64,
    /// Matched events that are pending: as many as there are pending records.
    pub pending: u64,
    /// Matched events that were given up and dead-lettered.
    pub dead_lettered: u64,
    /// Matched events that were given up without a dead-letter destination.
    pub dropped: u64,
    /// Matched events that ended with the subscription.
    pub canceled: u64,
    /// Requests that were sent, and receives of clients, whatever their outcome.
    pub requests: u64,
    /// Of these, requests that failed.
    pub requests_failed: u64,
    /// Of the failed requests, those with a success after the response timeout.
    pub late: u64,
}
