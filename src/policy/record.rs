//! What a subscription writes down: its cursor, what it owes, what it gave up, and the ledger of all it did; and what an
//! operator may ask of it.
//!
//! These are the words between the core and the journal. The core says them as [`RecordChange`]s; the journal turns each into
//! a put or a delete and gives the records back at recovery; the core's memory is a view of them. How they look on disk
//! is the journal's business.

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
    policy::outcome::{Outcome, Reason},
};

/// How far a subscription has come: one small record, written once for every group of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// One for each lane that is open. A lane is open while it has something to read.
    pub lanes: Vec<LaneCursor>,
    /// Whether the endpoint is called at all.
    pub health: Health,
    /// What is remembered of the endpoint's pace.
    pub pace: PaceRecord,
    /// Whether nothing shall be sent, and who said so.
    pub held: Option<HeldBy>,
    /// What became of the events passed so far.
    pub counters: Counters,
    /// What became of the events that jobs passed: a column of its own, so that the first one says what was published.
    pub replayed: Counters,
    /// The jobs that have not ended, in the order of their beginning.
    pub jobs: Vec<Job>,
    /// How many lanes were given to jobs so far, as far as it can be counted in a lane's number.
    pub jobs_begun: u16,
    /// When the first owed event falls due; [`None`] where nothing is owed.
    pub next_due: Option<Timestamp>,
    /// What the filter has stopped of late, before it is a line of the ledger: one for each lane at most.
    pub filtered_out: Vec<FilteredOut>,
    /// The first event that the subscription was there for.
    pub began: Seq,
    /// Of both columns: what failed and what was given up, by why.
    pub counts: OutcomeCounts,
}

/// A part of the log of which a version of the filter has stopped whatever has no other line in this lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredOut {
    /// Which lane.
    pub lane: Lane,
    /// Which version.
    pub version: u32,
    /// The first event that it stopped.
    pub first: Seq,
    /// Behind the last one.
    pub end: Seq,
}

impl FilteredOut {
    /// As a line of the ledger.
    pub fn line(&self, at: Timestamp) -> LedgerEntry {
        // A hull has no more than a block and what was passed at once.
        let count = u32::try_from(self.end.0 - self.first.0).unwrap_or(u32::MAX);
        LedgerEntry { at, covers: vec![(self.first, count)], what: LedgerEvent::Filtered { version: self.version } }
    }
}

/// A lane's place in the log. Everything below `read` is passed but for what is `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCursor {
    /// Which lane.
    pub lane: Lane,
    /// The next event to read.
    pub read: Seq,
    /// Where the lane ends; [`None`] for one that follows the log.
    pub end: Option<Seq>,
    /// Events that match and were sent for the first time, with no outcome yet: ascending.
    pub open: Vec<Seq>,
    /// Events from `read` on that have their outcome: an earlier life of the actor had sent them. Ascending.
    pub done: Vec<Seq>,
}

impl LaneCursor {
    /// The first event that this lane may still ask for.
    pub fn low(&self) -> Seq {
        self.open.first().copied().map_or(self.read, |open| open.min(self.read))
    }
}

impl Cursor {
    /// The first event that any lane may still ask for.
    pub fn low(&self) -> Option<Seq> {
        self.lanes.iter().map(LaneCursor::low).min()
    }

    /// The lanes that work off what is published, once: all but those of jobs.
    pub fn own_lanes(&self) -> impl Iterator<Item = &LaneCursor> {
        self.lanes.iter().filter(|lane| !lane.lane.is_job())
    }

    /// The first event that a lane of these may still ask for: what lies behind is the subscription's backlog.
    pub fn own_low(&self) -> Option<Seq> {
        self.own_lanes().map(LaneCursor::low).min()
    }
}

/// Whether an endpoint is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is; so many requests in a row have failed.
    Healthy {
        /// Requests that failed since the last success.
        failures: u32,
    },
    /// It is left alone until `until`.
    Suspended {
        /// The outcome that decided for how long.
        cause: Outcome,
        /// When it began.
        since: Timestamp,
        /// When one probe may go out.
        until: Timestamp,
        /// How many times in a row: each makes the wait longer.
        consecutive_suspensions: u32,
    },
    /// One request is on its way to find out.
    Probing {
        /// The outcome that began it.
        cause: Outcome,
        /// When the suspension began.
        since: Timestamp,
        /// How many times in a row it was suspended.
        consecutive_suspensions: u32,
    },
}

impl Default for Health {
    fn default() -> Self {
        Self::Healthy { failures: 0 }
    }
}

/// Who said that nothing shall be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// An operator.
    ByOperator,
    /// The endpoint, by 410, of a subscription that takes this word for the last.
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

/// A rate of requests: so many in a million seconds, so that it is compared and written exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// So many in a second.
    pub fn of(per_second: f64) -> Self {
        // What is negative or no number is 0, what is too large is the largest.
        Self((per_second * 1e6).round() as u64)
    }

    /// Requests in a second.
    pub fn per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// What is remembered of an endpoint's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceRecord {
    /// The rate of successes of the last healthy window; [`None`] where nothing ever succeeded.
    pub healthy: Option<Rate>,
    /// When a request failed last.
    pub failed: Option<Timestamp>,
    /// Whether it is called at a pace since its last probation.
    pub paced: bool,
    /// No request leaves before: the endpoint asked for it (`Retry-After`).
    pub not_before: Option<Timestamp>,
}

/// How an endpoint is, for people, beside its health: what is not written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointView {
    /// The rate that it is called with at most; [`None`] where it has no pace, or is left alone.
    pub rate: Option<Rate>,
    /// The rate of successes of its last healthy window.
    pub healthy_rate: Option<Rate>,
    /// Requests on their way at once, at most.
    pub concurrency: u32,
    /// Events in a request, at most.
    pub events_max: u32,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send nothing.
    Hold,
    /// Send again.
    Resume,
    /// Probe a suspended endpoint now, without waiting for its time.
    Probe,
    /// A suspended endpoint is healthy from now on.
    Release,
    /// About a job.
    Job(JobCommand),
}

/// Which of two parts of what a subscription owes: neither stands in the other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// What was published for it.
    Own,
    /// What jobs have it have once more.
    Jobs,
}

impl Traffic {
    /// Which part a lane belongs to.
    pub fn of(lane: Lane) -> Self {
        if lane.is_job() { Self::Jobs } else { Self::Own }
    }
}

/// Why a command has no sense as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRefused {
    /// The endpoint is not on probation.
    Healthy,
    /// The probe is on its way.
    Probing,
    /// The subscription is held.
    Held,
    /// A job says so.
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

/// What became of the events that the cursor passed. Both equations of the design hold in every record:
/// `passed = filtered + matched` and `matched = delivered + pending + dead_lettered + dropped + canceled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events the cursor passed.
    pub passed: u64,
    /// Of these, events that the filter did not let through.
    pub filtered: u64,
    /// Of these, events that it did.
    pub matched: u64,
    /// Matched events that the endpoint took.
    pub delivered: u64,
    /// Matched events that are owed: as many as there are owed records.
    pub pending: u64,
    /// Matched events that were given up and put aside for the dead-letter destination.
    pub dead_lettered: u64,
    /// Matched events that were given up without a destination.
    pub dropped: u64,
    /// Matched events that ended with the subscription.
    pub canceled: u64,
    /// Requests made.
    pub requests: u64,
    /// Of these, requests that failed.
    pub requests_failed: u64,
    /// Of the failed ones, requests that were answered with success after all, too late to count as one.
    pub late: u64,
}

/// An event that was tried and failed, and will be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDelivery {
    /// Attempts made.
    pub attempts: u32,
    /// When the next one is due.
    pub due: Timestamp,
    /// How the last one ended.
    pub last: Outcome,
    /// The status that it ended with, if there was one.
    pub status: Option<u16>,
    /// When the last one was made.
    pub tried: Timestamp,
    /// From when on its time to live counts, where that is not its append: when it was first sent, or put in, by a job. Of
    /// what is pulled, when a client first received it: from then on renewals count. Where the retry schedule counts from
    /// the first attempt, when that left.
    pub received: Option<Timestamp>,
}

/// The place of an owed event in the order of falling due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// When.
    pub due: Timestamp,
    /// For which lane.
    pub lane: Lane,
    /// Which event.
    pub seq: Seq,
}

impl DueKey {
    /// Before every key that falls due then or later.
    pub fn at(due: Timestamp) -> Self {
        Self { due, lane: Lane(0), seq: Seq(0) }
    }

    /// The next key in order.
    pub(super) fn next(self) -> Self {
        Self { seq: self.seq.plus(1), ..self }
    }
}

/// An owed or open event, as the store has it.
#[derive(Clone, Debug)]
pub struct FetchedPending {
    /// For which lane.
    pub lane: Lane,
    /// Which event.
    pub seq: Seq,
    /// What is owed; [`None`] where there is no such record.
    pub pending: Option<PendingDelivery>,
    /// The event; [`None`] where the store does not have it.
    pub event: Option<Event>,
}

/// An event that was given up and waits to be written to the dead-letter destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterRecord {
    /// Why.
    pub reason: Reason,
    /// Attempts really made.
    pub attempts: u32,
    /// How the last one ended.
    pub outcome: Outcome,
    /// The status that it ended with, if there was one.
    pub status: Option<u16>,
    /// When the journal took the event.
    pub published: Timestamp,
    /// When the last attempt was made; [`None`] where there was none.
    pub tried: Option<Timestamp>,
    /// When it was given up.
    pub given_up: Timestamp,
}

/// So many sequences are a block of the ledger: whoever asks what became of an event looks at the lines of one block.
pub const LEDGER_BLOCK: u64 = 4096;

/// A line of the ledger: what became of these events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When.
    pub at: Timestamp,
    /// The events it speaks of, ascending, first and count of each run.
    pub covers: Vec<(Seq, u32)>,
    /// What happened.
    pub what: LedgerEvent,
}

/// A line of the ledger, and whose it is within its subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    /// Of which lane.
    pub lane: Lane,
    /// The attempt's number; 0 where there was none.
    pub attempt: u32,
    /// The line; of one that was found by its event, the part that is in the event's block.
    pub entry: LedgerEntry,
}

impl LedgerLine {
    /// Where the answer to the attempt is kept that it speaks of.
    pub fn excerpt_key(&self) -> Option<ExcerptKey> {
        match self.entry.what {
            LedgerEvent::Attempted { status, excerpt: Some(hash), .. } => {
                Some(ExcerptKey::new(self.entry.at, status, hash))
            }
            _ => None,
        }
    }
}

/// What a line of the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// This version of the filter stopped them: all that have no other line in the lane.
    Filtered {
        /// Which version of the subscription.
        version: u32,
    },
    /// A request with them ended so.
    Attempted {
        /// How.
        outcome: Outcome,
        /// With which status.
        status: Option<u16>,
        /// After how long.
        latency: Duration,
        /// When they will be tried again; [`None`] where that was the last request.
        next: Option<Timestamp>,
        /// Where what the endpoint said is kept ([`Excerpt`]), if it is.
        excerpt: Option<u64>,
    },
    /// They were given up.
    GivenUp {
        /// Why.
        reason: Reason,
        /// Whether they wait for the dead-letter destination; dropped where not.
        put_aside: bool,
    },
    /// A request with them was answered with success, after it had been given up as timed out.
    Late {
        /// Whether that ended them as delivered. If not, they had ended before: they were given up, or a later request
        /// with them was faster.
        settled: bool,
    },
    /// They were owed when the subscription was deleted.
    Canceled,
    /// They were written to the dead-letter destination.
    Filed {
        /// Into which file.
        file: Arc<str>,
    },
    /// The dead-letter destination did not take them, and nobody waits any more.
    Lost {
        /// Why.
        why: Arc<str>,
    },
    /// A client that pulls did this with them.
    Lease(LeaseStep),
    /// They were dead letters and are sent again.
    Redriven {
        /// In which lane.
        into: Lane,
    },
}

/// What an endpoint said to a request that failed, or what stood in the way: kept once in a minute for each status and
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Whether it is the endpoint's own answer.
    pub answered: bool,
    /// Its first bytes.
    pub said: Bytes,
}

/// Where an [`Excerpt`] is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcerptKey {
    /// Minutes since 1970.
    pub minute: u32,
    /// The status of the answer; 0 where there was none.
    pub status: u16,
    /// Of what it says.
    pub hash: u64,
}

impl ExcerptKey {
    /// Of a request that ended then.
    pub fn new(at: Timestamp, status: Option<u16>, hash: u64) -> Self {
        // There are minutes enough until the year 10000.
        let minute = u32::try_from(at.0 / 60_000_000).unwrap_or(u32::MAX);
        Self { minute, status: status.unwrap_or(0), hash }
    }
}

/// A page of dead letters that a redrive takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivePage {
    /// The lane of the redrive.
    pub lane: Lane,
    /// They: each place once.
    pub dead_letters: Vec<RedrivenEvent>,
    /// How far the redrive has come with them, as it writes it down.
    pub progress: Bytes,
    /// The account of dead letters after it, and its name, where any of them waited.
    pub account: Option<(String, Bytes)>,
    /// Whether there are no more to come.
    pub drained: bool,
}

/// A dead letter that is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivenEvent {
    /// The place of its event.
    pub seq: Seq,
    /// When its file was due and for which lane it was given up, where it waited.
    pub waited: Option<(Timestamp, Seq, Lane)>,
    /// Its event, where the store does not have it at this place.
    pub event: Option<Bytes>,
}

/// One change of a subscription's records. What is changed together is written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// The cursor, whole.
    Cursor(Box<Cursor>),
    /// An event is owed, from now on or still, and falls due at `pending.due`.
    Defer {
        /// For which lane.
        lane: Lane,
        /// Which event.
        seq: Seq,
        /// The record.
        pending: PendingDelivery,
        /// When it fell due before, if it was owed already.
        was_due: Option<Timestamp>,
    },
    /// An event is owed no more.
    Settle {
        /// For which lane.
        lane: Lane,
        /// Which event.
        seq: Seq,
        /// When it fell due.
        was_due: Timestamp,
    },
    /// An event is put aside, to be written to the dead-letter destination when `due`.
    PutAside {
        /// For which lane.
        lane: Lane,
        /// Which event.
        seq: Seq,
        /// When the file is due.
        due: Timestamp,
        /// The record.
        dead: DeadLetterRecord,
    },
    /// Dead letters are taken back: those that waited wait no more, and their events are at the places that are owed.
    TakeBack(Box<RedrivePage>),
    /// A job has ended: it is no longer in the cursor.
    JobEnded(Box<Job>),
    /// A line of the ledger.
    Note {
        /// For which lane.
        lane: Lane,
        /// The attempt's number; 0 where there was none.
        attempt: u32,
        /// The line. It stands under its first event.
        entry: LedgerEntry,
    },
    /// What an endpoint said to a request that failed.
    Keep {
        /// Where.
        key: ExcerptKey,
        /// What.
        excerpt: Excerpt,
    },
}
