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
    /// The writer syncs without waiting for others.
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

/// One change of a subscription's records. All changes of a write are atomic. Those of one delivery
/// are applied in order, and the last one decides whether its event is still needed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum RecordChange {
    /// The whole cursor, in place of the stored one.
    Cursor(Box<Cursor>),
    /// An event is pending, newly or still, and due at `pending.due`.
    Defer {
        lane: Lane,
        seq: Seq,
        pending: PendingDelivery,
        /// Its previous due time, if it was pending already.
        was_due: Option<Timestamp>,
    },
    /// An event is no longer pending.
    Settle {
        lane: Lane,
        seq: Seq,
        /// The due time of its record, which is part of the record's key.
        was_due: Timestamp,
    },
    /// An event is dead-lettered; its file is due at `due`.
    DeadLetter {
        lane: Lane,
        seq: Seq,
        /// When the file is due.
        due: Timestamp,
        dead: DeadLetterRecord,
    },
    /// Dead letters become pending deliveries again.
    Redrive(Box<RedrivePage>),
    /// A job has ended and is no longer in the cursor.
    JobEnded(Box<Job>),
    /// An entry for the ledger.
    Note {
        lane: Lane,
        /// The attempt's number; 0 without an attempt.
        attempt: u32,
        /// The entry, stored under its first event.
        entry: LedgerEntry,
    },
    /// An excerpt of a response to a failed request.
    StoreExcerpt { key: ExcerptKey, excerpt: Excerpt },
}
