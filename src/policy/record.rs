//! The records of a subscription (cursor, pending deliveries, dead letters, ledger) and the commands of operators.
//!
//! The state machine returns changes of records as [`RecordChange`]s. The journal turns each into a put or a delete,
//! and returns the records at recovery. The state machine's memory is a view of them.
//!
//! What it does not do: it defines no stored bytes. `crate::store` encodes the records.

mod counts;
pub mod job;
pub mod lease;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::counts::OutcomeCounts;
use self::{
    job::{Job, JobCommand, JobRefused},
    lease::LeaseStep,
};
use crate::{
    event::{Event, Lane, Seq, Timestamp},
    policy::outcome::{Failure, LastOutcome, Outcome, Reason},
};

/// How far a subscription has come: one small record, written once per group of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The open lanes: those with something left to read or without an outcome.
    pub lanes: Vec<LaneCursor>,
    /// The endpoint's health.
    pub health: Health,
    /// The stored part of the endpoint's pace.
    pub pace: PaceRecord,
    /// Whether the subscription is held, and why.
    pub held: Option<HeldBy>,
    /// Outcomes of the events passed so far.
    pub counters: Counters,
    /// Outcomes of the events that jobs passed, kept apart so that `counters` covers published events only.
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

/// A part of the log in which a version of the filter rejected each event without another entry of this lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredOut {
    /// The lane.
    pub lane: Lane,
    /// The version of the filter.
    pub version: u32,
    /// The first rejected event.
    pub first: Seq,
    /// The position after the last rejected event.
    pub end: Seq,
}

impl FilteredOut {
    /// The range as a ledger entry.
    pub fn line(&self, at: Timestamp) -> LedgerEntry {
        // A range covers at most one block and one read.
        let count = u32::try_from(self.end.0 - self.first.0).unwrap_or(u32::MAX);
        LedgerEntry { at, covers: vec![(self.first, count)], what: LedgerEvent::Filtered { version: self.version } }
    }
}

/// A lane's position in the log. Everything below `read` is passed except `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCursor {
    /// The lane.
    pub lane: Lane,
    /// The next event to read.
    pub read: Seq,
    /// The lane's end; [`None`] if it follows the log.
    pub end: Option<Seq>,
    /// Matching events sent for the first time, without an outcome. Ascending.
    pub open: Vec<Seq>,
    /// Events from `read` on that have an outcome, because an earlier incarnation sent them. Ascending.
    pub done: Vec<Seq>,
}

impl LaneCursor {
    /// The first event that this lane may still read.
    pub fn low(&self) -> Seq {
        self.open.first().copied().map_or(self.read, |open| open.min(self.read))
    }
}

impl Cursor {
    /// The first event that any lane may still read.
    pub fn low(&self) -> Option<Seq> {
        self.lanes.iter().map(LaneCursor::low).min()
    }

    /// The lanes of published events: all but those of jobs.
    pub fn own_lanes(&self) -> impl Iterator<Item = &LaneCursor> {
        self.lanes.iter().filter(|lane| !lane.lane.is_job())
    }

    /// The first event that any of these lanes may still read. What follows is the subscription's backlog.
    pub fn own_low(&self) -> Option<Seq> {
        self.own_lanes().map(LaneCursor::low).min()
    }
}

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The endpoint may be called.
    Healthy {
        /// Failed requests since the last success.
        failures: u32,
    },
    /// The endpoint is not called until `until`.
    Suspended {
        /// The failure that decided the duration.
        cause: Failure,
        /// When the suspension began.
        since: Timestamp,
        /// When one probe may be sent.
        until: Timestamp,
        /// Number of suspensions in a row; each one is longer.
        consecutive_suspensions: u32,
    },
    /// One request is in flight as a probe.
    Probing {
        /// The failure that caused the suspension.
        cause: Failure,
        /// When the suspension began.
        since: Timestamp,
        /// Number of suspensions in a row.
        consecutive_suspensions: u32,
    },
}

impl Default for Health {
    fn default() -> Self {
        Self::Healthy { failures: 0 }
    }
}

/// Why a subscription is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// By an operator.
    ByOperator,
    /// By a 410 response of the endpoint, if the subscription is configured to hold then.
    Gone,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByOperator => "operator",
            Self::Gone => "410",
        })
    }
}

/// A rate of requests per million seconds, an integer so that it is compared and stored exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// From requests per second.
    pub fn of(per_second: f64) -> Self {
        // The conversion saturates: negative and NaN become 0.
        Self((per_second * 1e6).round() as u64)
    }

    /// Requests per second.
    pub fn per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// The stored part of an endpoint's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceRecord {
    /// The rate of successes in the last healthy window; [`None`] before the first success.
    pub healthy: Option<Rate>,
    /// When a request failed last.
    pub failed: Option<Timestamp>,
    /// Whether a pace has applied since its last probation.
    pub paced: bool,
    /// No request is sent before: the endpoint requested it (`Retry-After`).
    pub not_before: Option<Timestamp>,
}

/// The endpoint's state beyond its health, for people; not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointView {
    /// Its maximum rate; [`None`] without a pace or while it is suspended.
    pub rate: Option<Rate>,
    /// The rate of successes in its last healthy window.
    pub healthy_rate: Option<Rate>,
    /// Maximum requests in flight.
    pub concurrency: u32,
    /// Maximum events per request.
    pub events_max: u32,
}

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop sending.
    Hold,
    /// Resume sending.
    Resume,
    /// Probe a suspended endpoint now.
    Probe,
    /// Treat a suspended endpoint as healthy.
    Release,
    /// A command about a job.
    Job(JobCommand),
}

/// The two kinds of pending deliveries, which do not block each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Published events.
    Own,
    /// Events of jobs.
    Jobs,
}

impl Traffic {
    /// The kind of a lane's events.
    pub fn of(lane: Lane) -> Self {
        if lane.is_job() { Self::Jobs } else { Self::Own }
    }
}

/// Why a command does not apply in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRefused {
    /// The endpoint is not on probation.
    Healthy,
    /// A probe is in flight.
    Probing,
    /// The subscription is held.
    Held,
    /// The job refuses it.
    Job(JobRefused),
}

impl fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "the endpoint is healthy; only one on probation can be probed or released",
            Self::Probing => "a probe is on its way; wait for its answer, or release the endpoint",
            Self::Held => "the subscription is held; resume it first",
            Self::Job(refused) => return refused.fmt(f),
        })
    }
}

/// Outcomes of the events that the cursor passed. In every record `passed = filtered + matched` and `matched =
/// delivered + pending + dead_lettered + dropped + canceled`.
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
    /// Requests made.
    pub requests: u64,
    /// Of these, requests that failed.
    pub requests_failed: u64,
    /// Of the failed requests, those with a success after the response timeout.
    pub late: u64,
}

/// The pending record: an event that failed and will be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDelivery {
    /// Attempts made.
    pub attempts: u32,
    /// When the next one is due.
    pub due: Timestamp,
    /// The outcome of the last one.
    pub last: LastOutcome,
    /// The HTTP status of the last one, if there was one.
    pub status: Option<u16>,
    /// When the last one was made.
    pub tried: Timestamp,
    /// Start of the time to live, if it is not the append. In a job: when the job first sent or added it. For pull
    /// delivery: when a client first received it, from which renewals are limited. Where the schedule counts from the
    /// first attempt: when that was sent.
    pub received: Option<Timestamp>,
}

/// The key of a pending delivery in the order of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// The due time.
    pub due: Timestamp,
    /// The lane.
    pub lane: Lane,
    /// The event.
    pub seq: Seq,
}

impl DueKey {
    /// Before all keys due at this time or later.
    pub fn at(due: Timestamp) -> Self {
        Self { due, lane: Lane(0), seq: Seq(0) }
    }

    /// The next key in order.
    pub(super) fn next(self) -> Self {
        Self { seq: self.seq.plus(1), ..self }
    }
}

/// A pending or open event as stored.
#[derive(Clone, Debug)]
pub struct FetchedPending {
    /// The lane.
    pub lane: Lane,
    /// The event.
    pub seq: Seq,
    /// The pending record; [`None`] if there is none.
    pub pending: Option<PendingDelivery>,
    /// The event's content; [`None`] if the store does not have it.
    pub event: Option<Event>,
}

/// The record of an event that was given up and waits for the dead-letter destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterRecord {
    /// The reason.
    pub reason: Reason,
    /// Attempts made.
    pub attempts: u32,
    /// The outcome of the last one.
    pub outcome: LastOutcome,
    /// The HTTP status of the last one, if there was one.
    pub status: Option<u16>,
    /// When the journal appended the event.
    pub published: Timestamp,
    /// When the last attempt was made; [`None`] if there was none.
    pub tried: Option<Timestamp>,
    /// When it was given up.
    pub given_up: Timestamp,
}

/// Positions per block of the ledger. The history of an event is found in one block.
pub const LEDGER_BLOCK: u64 = 4096;

/// A ledger entry: what happened to these events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When.
    pub at: Timestamp,
    /// The events, as ascending runs of first event and length.
    pub covers: Vec<(Seq, u32)>,
    /// What happened.
    pub what: LedgerEvent,
}

/// A ledger entry with its lane and attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    /// The lane.
    pub lane: Lane,
    /// The attempt's number; 0 without an attempt.
    pub attempt: u32,
    /// The entry. If it was found by event, only the part in the event's block.
    pub entry: LedgerEntry,
}

impl LedgerLine {
    /// The key of the excerpt of the response that it mentions.
    pub fn excerpt_key(&self) -> Option<ExcerptKey> {
        match self.entry.what {
            LedgerEvent::Attempted { status, excerpt: Some(hash), .. } => {
                Some(ExcerptKey::new(self.entry.at, status, hash))
            }
            _ => None,
        }
    }
}

/// What a ledger entry records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// This version of the filter rejected each of the events without another entry of the lane.
    Filtered {
        /// The version of the subscription.
        version: u32,
    },
    /// A request with them ended.
    Attempted {
        /// The outcome.
        outcome: Outcome,
        /// The HTTP status, if any.
        status: Option<u16>,
        /// The duration of the request.
        latency: Duration,
        /// When they are tried again; [`None`] if that was the last request.
        next: Option<Timestamp>,
        /// The hash of the response's [`Excerpt`], if one is stored.
        excerpt: Option<u64>,
    },
    /// They were given up.
    GivenUp {
        /// The reason.
        reason: Reason,
        /// Whether they were dead-lettered. Otherwise they were dropped.
        dead_lettered: bool,
    },
    /// A success of a request arrived after the response timeout.
    Late {
        /// Whether it delivered them. Otherwise they had ended before: given up, or delivered by a later request.
        settled: bool,
    },
    /// They were pending when the subscription was deleted.
    Canceled,
    /// They were written to the dead-letter destination.
    Filed {
        /// The file.
        file: Arc<str>,
    },
    /// The dead-letter destination did not accept them, and there are no more tries.
    Lost {
        /// The error.
        why: Arc<str>,
    },
    /// A step of pull delivery.
    Lease(LeaseStep),
    /// They were dead letters and are sent again.
    Redriven {
        /// The lane of the redrive.
        into: Lane,
    },
}

/// An excerpt of the response to a failed request, or the error: stored once per minute for each status and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Whether it is a response of the endpoint.
    pub answered: bool,
    /// Its first bytes.
    pub said: Bytes,
}

/// The key of an [`Excerpt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcerptKey {
    /// Minutes since 1970.
    pub minute: u32,
    /// The HTTP status; 0 without a response.
    pub status: u16,
    /// The hash of the content.
    pub hash: u64,
}

impl ExcerptKey {
    /// The key for a request that ended at this time.
    pub fn new(at: Timestamp, status: Option<u16>, hash: u64) -> Self {
        // The range suffices until the year 10000.
        let minute = u32::try_from(at.0 / 60_000_000).unwrap_or(u32::MAX);
        Self { minute, status: status.unwrap_or(0), hash }
    }
}

/// A page of dead letters that a redrive sends again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivePage {
    /// The lane of the redrive.
    pub lane: Lane,
    /// The dead letters, each position once.
    pub dead_letters: Vec<RedrivenEvent>,
    /// The progress of the redrive, as stored bytes.
    pub progress: Bytes,
    /// The new counters of dead letters and their key, if any letter of the page waited.
    pub account: Option<(String, Bytes)>,
    /// Whether this is the last page.
    pub drained: bool,
}

/// A dead letter that is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivenEvent {
    /// The position of its event.
    pub seq: Seq,
    /// The due time of its file, its position and its lane, if it was waiting.
    pub waited: Option<(Timestamp, Seq, Lane)>,
    /// Its event, if the store does not have it at this position.
    pub event: Option<Bytes>,
}

/// One change of a subscription's records. All changes of a write are atomic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Replaces the cursor.
    Cursor(Box<Cursor>),
    /// An event is pending, newly or still, and due at `pending.due`.
    Defer {
        /// The lane.
        lane: Lane,
        /// The event.
        seq: Seq,
        /// The record.
        pending: PendingDelivery,
        /// Its previous due time, if it was pending already.
        was_due: Option<Timestamp>,
    },
    /// An event is no longer pending.
    Settle {
        /// The lane.
        lane: Lane,
        /// The event.
        seq: Seq,
        /// Its due time.
        was_due: Timestamp,
    },
    /// An event is dead-lettered; its file is due at `due`.
    DeadLetter {
        /// The lane.
        lane: Lane,
        /// The event.
        seq: Seq,
        /// When the file is due.
        due: Timestamp,
        /// The record.
        dead: DeadLetterRecord,
    },
    /// Dead letters become pending deliveries again.
    Redrive(Box<RedrivePage>),
    /// A job has ended and is no longer in the cursor.
    JobEnded(Box<Job>),
    /// A ledger entry.
    Note {
        /// The lane.
        lane: Lane,
        /// The attempt's number; 0 without an attempt.
        attempt: u32,
        /// The entry, stored under its first event.
        entry: LedgerEntry,
    },
    /// An excerpt of a response to a failed request.
    StoreExcerpt {
        /// The key.
        key: ExcerptKey,
        /// The excerpt.
        excerpt: Excerpt,
    },
}
