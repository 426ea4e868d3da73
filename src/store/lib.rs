//! The store: records on disk and everything that knows their bytes.
//!
//! A [`Store`] holds sorted records, one family for each [`Family`], and writes batches atomically
//! and synced. RocksDB implements it (`rocks`); tests have an implementation in memory. `keys`,
//! `records`, `ledger`, `id_filter` and [`gridhook_event::chunk`] define the bytes of keys and
//! values, each value with a version. `figures` are its measurements. `log` reads a partition's
//! log, `damage` records what cannot be read and lets reads continue past it, `migrate` upgrades a
//! store of an older format, `watermark` detects a store that lost acknowledged writes, `layer` is
//! a store above another one, `faults` injects failing writes, and `task_threads` runs what blocks.
//!
//! Invariants:
//! - A write that returned `Ok` survives `kill -9` and power loss.
//! - Damage is reported, never silently skipped.
//! - A decoder never panics, whatever the bytes are.
//!
//! Not here: what is written, in which order and by which owner. `journal` decides that while a
//! server runs, `repair` while none does. This crate imports neither.

pub mod damage;
pub mod faults;
pub mod figures;
pub mod id_filter;
pub mod keys;
pub mod layer;
pub mod ledger;
pub mod log;
pub mod migrate;
pub mod records;
pub mod rocks;
pub mod task_threads;
pub mod watermark;

use std::{borrow::Cow, ops::ControlFlow};

use bytes::Bytes;

use crate::{damage::Damage, figures::StoreFigures, records::EncodedLines};
use gridhook_event::{PartitionId, Seq, SubscriptionKey, Timestamp};

/// A family of records: a column family of RocksDB with its own form of keys ([`keys`]) and its own
/// settings (`rocks::options`). Records of a changelog name a family by the position of its
/// variant: a new one goes to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Topics, subscriptions, keys, jobs, and the floor of each partition.
    Meta,
    /// The events of each partition, in chunks.
    Log,
    /// The read position and state of each subscription, and pages of outcomes that are not in
    /// records yet.
    Cursor,
    /// Deliveries that failed and are retried.
    Pending,
    /// The due times of pending deliveries, in order.
    Due,
    /// Events below the floor that a pending delivery or a dead letter still needs.
    Carried,
    /// Events that must stay readable because they wait to be written as dead letters.
    Pin,
    /// Dead letters that wait to be written to their destination.
    Dead,
    /// The ledger: the history of each event's delivery.
    Ledger,
    /// Excerpts of responses to failed requests.
    Excerpt,
    /// Bloom filters of the event ids in each block of the log.
    Ids,
    /// The ids that were published to topics with duplicate detection.
    PublishedIds,
}

impl Family {
    /// All families, in the order of their variants.
    pub const ALL: [Self; 12] = [
        Self::Meta,
        Self::Log,
        Self::Cursor,
        Self::Pending,
        Self::Due,
        Self::Carried,
        Self::Pin,
        Self::Dead,
        Self::Ledger,
        Self::Excerpt,
        Self::Ids,
        Self::PublishedIds,
    ];

    /// The name of the family's column family. A name is stored and never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Log => "log",
            Self::Cursor => "cursor",
            Self::Pending => "owed",
            Self::Due => "due",
            Self::Carried => "held",
            Self::Pin => "pin",
            Self::Dead => "dead",
            Self::Ledger => "ledger",
            Self::Excerpt => "excerpt",
            Self::Ids => "ids",
            Self::PublishedIds => "published_ids",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// Writes a record, over an existing one.
    Put(Family, Vec<u8>, Bytes),
    Delete(Family, Vec<u8>),
    /// Deletes a record that was written exactly once since it was last deleted.
    SingleDelete(Family, Vec<u8>),
    /// Writes the cursor of a subscription, if there is a new one, and lines of its ledger: the
    /// same records as [`Batch::without_outcomes`] has. A store may write those of many
    /// subscriptions together, and as records later.
    Outcomes(SubscriptionKey, Option<Bytes>, EncodedLines),
}

impl WriteOp {
    /// The family and the key of the record that it changes; [`None`] for outcomes.
    pub fn family_and_key(&self) -> Option<(Family, &[u8])> {
        match self {
            Self::Put(family, key, _)
            | Self::Delete(family, key)
            | Self::SingleDelete(family, key) => Some((*family, key)),
            Self::Outcomes(..) => None,
        }
    }
}

/// Operations that are written together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch(pub Vec<WriteOp>);

impl Batch {
    pub fn put(&mut self, family: Family, key: Vec<u8>, value: impl Into<Bytes>) {
        self.0.push(WriteOp::Put(family, key, value.into()));
    }

    pub fn delete(&mut self, family: Family, key: Vec<u8>) {
        self.0.push(WriteOp::Delete(family, key));
    }

    /// Adds a delete of a record that was written exactly once.
    pub fn single_delete(&mut self, family: Family, key: Vec<u8>) {
        self.0.push(WriteOp::SingleDelete(family, key));
    }

    /// Adds the cursor of a subscription, if there is a new one, and lines of its ledger.
    pub fn put_outcomes(
        &mut self,
        subscription_key: SubscriptionKey,
        cursor: Option<Bytes>,
        lines: EncodedLines,
    ) {
        if cursor.is_some() || lines.line_count() > 0 {
            self.0
                .push(WriteOp::Outcomes(subscription_key, cursor, lines));
        }
    }

    /// Adds the records of outcomes.
    pub fn put_outcome_records(
        &mut self,
        subscription_key: SubscriptionKey,
        cursor: Option<Bytes>,
        lines: &EncodedLines,
    ) {
        if let Some(cursor) = cursor {
            self.put(Family::Cursor, keys::cursor(subscription_key), cursor);
        }
        ledger::put_lines(self, subscription_key, lines);
    }

    /// The batch with puts and deletes of records alone.
    pub fn without_outcomes(&self) -> Cow<'_, Self> {
        if !self.0.iter().any(|op| matches!(op, WriteOp::Outcomes(..))) {
            return Cow::Borrowed(self);
        }
        let mut records = Self::default();
        for op in &self.0 {
            match op {
                WriteOp::Outcomes(of, cursor, lines) => {
                    records.put_outcome_records(*of, cursor.clone(), lines)
                }
                WriteOp::Put(..) | WriteOp::Delete(..) | WriteOp::SingleDelete(..) => {
                    records.0.push(op.clone())
                }
            }
        }
        Cow::Owned(records)
    }
}

/// Why a call of a store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full and nothing was written. Writes succeed again once there is space, or, if
    /// [`Store::is_full_despite_space`] stays, after the next opening.
    #[error("the disk of the data folder is full")]
    Full,
    /// A record, or the store itself, is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Any other failure. The batch may or may not have been written, so the process must end.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    pub fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}

/// A visitor of a scan. It receives each record's key and value.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A store. Any thread reads, and sees every write that returned before its call began. Several
/// threads may write, each to keys of its own.
pub trait Store: Send + Sync + 'static {
    /// Writes all of `batch` and syncs it. After an `Ok` it survives `kill -9` and power loss.
    fn write(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Writes all of `batch` like [`Store::write`], and syncs it later: with
    /// [`Store::note_watermark`], or with the next write that syncs. For a store whose writes can
    /// be read again from elsewhere.
    fn write_unsynced(&self, batch: &Batch) -> Result<(), StoreError> {
        self.write(batch)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Reads these records, in the same order.
    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        keys.iter().map(|key| self.get(family, key)).collect()
    }

    /// Visits the records from `from` (included) to `upper` (excluded) in ascending order, until
    /// `visit` breaks.
    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;

    /// Reads the last record from `lower` (included) to `upper` (excluded).
    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError>;

    /// Allows the store to free the log of `partition` below `floor`. The caller has stored the
    /// floor durably, and nothing reads below it any more.
    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError>;

    /// Allows the store to remove the ids whose windows of duplicate detection have ended at `now`.
    fn expire_ids(&self, _now: Timestamp) {}

    /// Whether free space is low. Publishers are then refused, so that the remaining space is left
    /// for writes that free some.
    fn is_short_of_space(&self) -> bool;

    /// Whether the last write failed for lack of space, although the disk has some by now.
    fn is_full_despite_space(&self) -> bool;

    /// Syncs what was written unsynced and stores the watermark, if it changed. Called once a
    /// second.
    fn note_watermark(&self) -> Result<(), StoreError>;

    /// Measurements for the metrics endpoint, if the store has any.
    fn figures(&self) -> Option<StoreFigures> {
        None
    }

    /// Like [`Store::scan`], without filling the block cache: for a caller that reads everything
    /// once.
    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.scan(family, from, upper, visit)
    }

    /// Like [`Store::last`], without filling the block cache.
    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.last(family, lower, upper)
    }

    /// Turns compactions of `family` off if `is_paused`, and on otherwise. They are off while one
    /// of its tables is damaged: compacting that table would fail and stop all writing.
    fn set_compaction_paused(&self, _family: Family, _is_paused: bool) {}

    /// The record of damage, if this store tolerates damage; otherwise [`None`].
    fn damage(&self) -> Option<&Damage> {
        None
    }

    /// Stops the store's background work. Nothing may be written afterwards.
    fn close(&self) -> Result<(), StoreError>;
}
