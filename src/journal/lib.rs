//! The journal: the only writer of a running server's store.
//!
//! A [`Journal`] is a handle to a writer thread for each shard ([`Shards`]). A thread drains its
//! queue, makes one batch of what it finds, writes and **always syncs** it, and then replies to
//! every entry in order. A confirmed change survives `kill -9` and power loss. Any other change may
//! or may not have been written. The disk always holds a prefix of each queue's order, except that
//! events may be written before outcomes that were queued earlier.
//!
//! Invariants:
//! - Opening a subscription is an entry in the same queue as its appends. It fences every earlier
//!   incarnation: an append through an older [`SubscriptionOwner`] is not written and returns
//!   [`Error::Fenced`].
//! - The queue is bounded: a subscription has at most one append in it, and publishers need a
//!   permit for their bytes, which travels with the request. So sending never blocks.
//! - Each record has one shard, and only that shard's writer changes it.
//! - The writer alone assigns sequences and append times. Neither decreases within a partition.
//! - Reads run on threads of their own, in bounded slices (`reader`). Nothing here blocks an
//!   actor's thread, except methods that say so.
//! - A partition's floor moves only after every event below it that is still needed is copied to
//!   the family `carried` (`partition_state`).
//!
//! Not here: which changes a subscription makes. `policy` decides that.

#![warn(missing_docs)]

pub mod changelog;
mod entry;
pub mod figures;
mod handle;
mod id_lookups;
mod partition_state;
mod pending_result;
mod position;
mod queue;
mod reader;
pub mod replicated;
mod scrub;
mod shards;
mod status;
mod writer;

use std::time::Duration;

use bytes::Bytes;

use self::{
    entry::{DuplicateCheck, WriterEntry},
    handle::WriterHandle,
    status::WriterStatus,
};
pub use self::{
    handle::{Journal, WriterThreads},
    partition_state::{BacklogBound, BacklogFullPolicy, BacklogLimits},
    pending_result::PendingResult,
    position::LogPosition,
    reader::{EventRecords, MetaRecords, ReaderPool, WaitingDeadLetter},
    scrub::Scrub,
    shards::Shards,
    status::{CrowdedPartition, JournalState},
};
use gridhook_event::{
    Incarnation, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, chunk::Chunk,
};
use gridhook_policy::record::{Cursor, LedgerLine};
pub use gridhook_store::log::{LogEnd, LogSlice};
use gridhook_store::{StoreError, keys::MetaKind};

/// Why a call of the journal failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The disk is full and nothing was written. Writes succeed again once there is space.
    #[error("the disk of the data folder is full")]
    Full,
    /// A later incarnation of the same subscription was opened. Nothing was written.
    #[error("a later incarnation of this subscription owns its records")]
    Fenced,
    /// The partition or subscription does not exist, or no longer. Nothing was written.
    #[error("the partition or subscription does not exist")]
    Unknown,
    /// The backlog of the partition's slowest subscription, this one, is at its limit. Nothing was
    /// written.
    #[error("the backlog is at its limit because subscription {} lags behind", .0.0)]
    Backlog(SubscriptionId),
    /// A record is damaged. Nothing was changed.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The writer has ended. The change may or may not have been written.
    #[error("the journal is closed")]
    Closed,
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::Damaged(what) => Self::Damaged(what),
            // The writer ends the process because of this error; a reader can only report it.
            StoreError::Failed(what) => Self::Damaged(what),
        }
    }
}

/// Fixed while the journal runs.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// How long outcomes wait for more of them before they are written.
    pub outcome_delay: Duration,
    /// The size in bytes at which a group is complete.
    pub group_bytes: usize,
    /// The limits of each partition's log.
    pub limits: BacklogLimits,
    /// Decides which writer a partition has.
    pub shards: Shards,
}

/// Called with events after they are durable, in the order of each partition's log.
pub type AppendListener = Box<dyn Fn(PartitionId, Vec<Chunk>) + Send + Sync>;

/// Called with an error after which nothing may be written. A server ends its process.
pub type FatalHandler = Box<dyn Fn(&StoreError) + Send + Sync>;

/// A published request that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    /// The sequence of its first event.
    pub first: Seq,
    /// The time of the append.
    pub appended: Timestamp,
    /// The number of its events that were not stored, because they are duplicates.
    pub duplicates: u32,
}

/// A subscription's state when it was opened, and the right to change its records.
#[derive(Debug)]
pub struct OpenedSubscription {
    /// The right to change its records. Earlier rights are fenced.
    pub owner: SubscriptionOwner,
    /// As the earlier incarnations left it on disk.
    pub cursor: Cursor,
    /// The end of the log.
    pub end: Seq,
}

/// Keeps the log from a position on, as long as it exists.
#[derive(Debug)]
pub struct LogGuard {
    /// The first sequence that is kept.
    pub from: Seq,
    _token: writer::GuardToken,
}

/// The right to change a subscription's records, until a later incarnation is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct SubscriptionOwner {
    pub subscription_key: SubscriptionKey,
    pub incarnation: Incarnation,
}

/// A change of the control plane's records, or of partitions and subscriptions.
#[derive(Clone, Debug)]
pub enum MetaChange {
    /// Writes the record of this kind and name, in place of an earlier one.
    Put(MetaKind, String, Bytes),
    /// Deletes the record of this kind and name.
    Delete(MetaKind, String),
    /// Creates a partition with an empty log.
    CreatePartition(PartitionId),
    /// Creates a subscription that starts at this sequence, or at the beginning of the log if that
    /// is later. [`None`] starts it after the newest event.
    Subscribe(SubscriptionKey, Option<Seq>),
    /// Deletes a subscription: its pending deliveries are canceled and its records are deleted.
    Unsubscribe(SubscriptionKey),
    /// Deletes a partition and its log.
    DeletePartition(PartitionId),
}

/// One write of a subscription's dead-letter actor.
#[derive(Clone, Debug, Default)]
pub struct DeadLetterWrite {
    /// The name and value of its totals.
    pub totals: Option<(String, Bytes)>,
    /// Dead letters that are done. Their records are deleted, and their events too if nothing else
    /// needs them.
    pub done: Vec<DeadLetterKey>,
    /// Entries of the ledger. They are written in the same batch.
    pub notes: Vec<LedgerLine>,
}

/// The key of a waiting dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterKey {
    /// The due time of its file.
    pub due: Timestamp,
    /// The sequence of its event.
    pub seq: Seq,
    /// The lane of the delivery that was given up.
    pub lane: gridhook_event::Lane,
}

/// Called on the writer's thread when an append is done. It must be short and must not block.
pub type WriteCallback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The permit that a request holds until its events are durable. It is released by dropping it.
pub type Permit = Box<dyn Send>;
