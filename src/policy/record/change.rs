//! Changes of records, which the journal writes.

use std::time::Duration;

use bytes::Bytes;

use crate::record::{
    Cursor, DeadLetterRecord, Excerpt, ExcerptKey, LedgerEntry, PendingDelivery, job::Job,
};
use gridhook_event::{Lane, Seq, Timestamp};

/// A page of dead letters that a redrive sends again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedrivePage {
    /// The lane of the redrive.
    pub lane: Lane,
    /// The dead letters, each position once.
    pub dead_letters: Vec<RedrivenEvent>,
    /// The progress of the redrive, as stored bytes.
    pub progress: Bytes,
    /// The key and value of the new dead-letter totals, if any dead letter of the page waited.
    pub totals: Option<(String, Bytes)>,
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

/// How soon a write must be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteUrgency {
    /// Nothing waits for it: it may wait longer for others than usual.
    Relaxed,
    /// It waits a moment for others.
    #[default]
    Usual,
    /// At once.
    Now,
}

/// How many times the usual delay a relaxed write waits for others. A crash repeats the requests
/// whose outcomes wait.
const RELAXED_DELAYS: u32 = 4;

impl WriteUrgency {
    /// How long such a write waits for others, given the usual delay.
    pub fn delay_max(self, usual: Duration) -> Duration {
        match self {
            Self::Relaxed => usual.saturating_mul(RELAXED_DELAYS),
            Self::Usual => usual,
            Self::Now => Duration::ZERO,
        }
    }
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
