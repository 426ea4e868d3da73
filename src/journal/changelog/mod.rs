//! The changelog of a shard: an ordered, replicated list of the batches that its owner writes.
//!
//! A [`Changelog`] appends a record only behind the record that the caller expects to be the last
//! one. That makes it the fence between two owners: a new owner appends a `FENCE` behind the last
//! record that it has read, and finally one without an expectation if the living owner is always
//! faster. From then on every append of the old one fails. `record` defines the bytes, `nats` keeps
//! them in a stream of NATS JetStream; [`replicated`](super::replicated) makes a store of them.
//!
//! Invariants:
//! - Sequences begin at 1 and have no gaps. A record never changes.
//! - An append that returned a sequence survives the loss of a minority of the log's servers.
//! - An append that returned [`ChangelogError::Unavailable`] may or may not have been made, and may
//!   still be made later.
//!
//! Not here: whether a record follows from the one before it. The log takes any bytes; `record`
//! checks them.

#[cfg(feature = "nats")]
pub mod nats;
pub mod record;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Why a call of a changelog failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangelogError {
    /// The last record is another one than was expected. Nothing was appended.
    #[error("the changelog has another last record than expected")]
    WrongLast,
    /// There is no such log. Nothing was appended.
    #[error("the changelog does not exist")]
    Missing,
    /// The log is at its limit of bytes. Nothing was appended.
    #[error("the changelog is full")]
    Full,
    /// The log does not take this record, and will not take it later.
    #[error("the changelog refused a record: {0}")]
    Refused(String),
    /// No response came, or the servers have no majority. The record may or may not have been
    /// appended.
    #[error("the changelog cannot be reached: {0}")]
    Unavailable(String),
}

/// The records that a log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangelogBounds {
    /// The sequence of the first record, or of the next one if there is none.
    pub first: u64,
    /// The sequence of the last record that was ever appended; 0 before the first one.
    pub last: u64,
    /// The size of its records.
    pub bytes: u64,
    /// The number of servers that should have it and do not follow.
    pub missing_replicas: u64,
}

/// A record that the log has acknowledged, by its sequence and the epoch of its owner. A log that
/// ends below it has lost records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMark {
    /// The sequence; 0 for none.
    pub position: u64,
    /// The sequence of its owner's fence; 0 if that is not known, as of older releases.
    pub epoch: u64,
}

impl StreamMark {
    /// Moves behind another mark of the same log.
    pub fn raise(&mut self, other: Self) {
        if other.position > self.position {
            *self = other;
        }
    }

    /// Whether no log can have had both records: the later epoch begins below the other record.
    pub fn contradicts(self, other: Self) -> bool {
        let is_below = |earlier: Self, later: Self| {
            earlier.epoch > 0 && earlier.epoch < later.epoch && earlier.position >= later.epoch
        };
        is_below(self, other) || is_below(other, self)
    }
}

/// What the copies of a log have found that it acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownMarks {
    /// The last record.
    pub highest: StreamMark,
    /// Two records that no log can have had.
    pub conflict: Option<[StreamMark; 2]>,
}

/// A replicated log. Its calls block, up to a time limit of the implementation.
pub trait Changelog: Send + Sync + 'static {
    /// Appends `record` and returns its sequence: only if `expected` is the sequence of the last
    /// record, or, without an expectation, behind whatever is last.
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError>;

    /// The first and the last sequence.
    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError>;

    /// Reads up to `most` records from `from` on, without gaps: fewer at the end of the log or of
    /// the time limit, and none if the record at `from` is not there.
    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError>;

    /// Removes the oldest records through the sequence `through`, but the newest ones that have
    /// `keep_bytes` together, and the last one.
    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError>;

    /// What is known of records that it acknowledged.
    fn known_marks(&self) -> KnownMarks {
        KnownMarks::default()
    }
}
