//! The ledger: what happened to which events, with excerpts of responses.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    outcome::{Outcome, Reason, RequestHeads},
    record::{SeqRun, lease::LeaseStep},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Positions per block of the ledger. The history of an event is found in one block.
pub const LEDGER_BLOCK: u64 = 4096;

/// A ledger entry: what happened to these events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct LedgerEntry {
    /// When the outcome was decided, not when it was written.
    pub at: Timestamp,
    /// The events, as ascending runs.
    pub runs: Vec<SeqRun>,
    pub what: LedgerEvent,
}

impl LedgerEntry {
    /// The sum of all runs.
    pub fn event_count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }

    /// Whether it is about this event.
    pub fn contains_event(&self, seq: Seq) -> bool {
        let behind = self.runs.partition_point(|run| run.first <= seq);
        behind
            .checked_sub(1)
            .is_some_and(|index| seq < self.runs[index].end_seq())
    }
}

/// A ledger entry with its lane and attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct LedgerLine {
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
            LedgerEvent::Attempted {
                status,
                excerpt: Some(hash),
                ..
            } => Some(ExcerptKey::new(self.entry.at, status, hash)),
            _ => None,
        }
    }
}

/// What a ledger entry records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum LedgerEvent {
    /// This version of the filter rejected each of the events without another entry of the lane.
    Filtered {
        /// The version of the subscription.
        version: u32,
    },
    /// A request with them ended.
    Attempted {
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
    /// No attempt follows.
    GivenUp {
        reason: Reason,
        /// Whether they were dead-lettered. Otherwise they were dropped.
        dead_lettered: bool,
    },
    /// A success of a request arrived after the response timeout.
    Late {
        /// Whether it delivered them. Otherwise they had ended before: given up, or delivered by a
        /// later request.
        settled: bool,
    },
    /// They were pending when the subscription was deleted.
    Canceled,
    /// They were written to the dead-letter destination.
    Filed {
        /// Path of the file below the destination.
        file: Arc<str>,
    },
    /// The dead-letter destination did not accept them, and there are no more tries.
    Lost {
        /// The error of the last try.
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

/// An excerpt of the response to a failed request, or the error: stored once per minute for each
/// status and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Whether it is a response of the endpoint.
    pub has_response: bool,
    /// The first bytes of the response's body, or the text of the error.
    pub content: Bytes,
    /// The heads of the first request with this response in the minute.
    pub heads: Option<Box<RequestHeads>>,
}

/// The key of an [`Excerpt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcerptKey {
    /// The minute in which a response of this kind first came, since 1970.
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
        Self {
            minute,
            status: status.unwrap_or(0),
            hash,
        }
    }
}
