//! The store: records on disk and everything that knows their bytes.
//!
//! A [`Store`] holds eleven sorted families of records ([`Family`]) and writes batches atomically and synced. RocksDB
//! implements it (`rocks`); tests have an implementation in memory. `keys`, `records`, `chunk`, `ledger` and
//! `id_filter` define the bytes of keys and values, each value with a version. `log` reads a partition's log, `damage`
//! records what cannot be read and lets reads continue past it, `migrate` upgrades a store of an older format,
//! `watermark` detects a store that lost acknowledged writes, and `faults` injects failing writes.
//!
//! Invariants:
//! - A write that returned `Ok` survives `kill -9` and power loss.
//! - Damage is reported, never silently skipped.
//! - A decoder never panics, whatever the bytes are.
//!
//! Not here: what is written, in which order and by which owner. `journal` decides that while a server runs, `repair`
//! while none does. This module imports neither.

pub mod chunk;
pub mod codec;
pub mod damage;
pub mod faults;
pub mod figures;
pub mod id_filter;
pub mod keys;
pub mod ledger;
pub mod log;
pub mod migrate;
pub mod records;
pub mod rocks;
pub mod watermark;
use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;

use crate::{
    event::{PartitionId, Seq},
    store::{damage::Damage, figures::StoreFigures},
};

/// A family of records. Each has its own key form (`journal::keys`) and its own settings in RocksDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Topics, subscriptions, keys, jobs, the floor of each partition.
    Meta,
    /// The events, in chunks.
    Log,
    /// How far each subscription has come.
    Cursor,
    /// Events that were tried and failed.
    Pending,
    /// The order in which these fall due.
    Due,
    /// Events below the floor that somebody still asks for.
    Held,
    /// Events that must stay readable though nobody owes them: they wait to be written as dead letters.
    Pin,
    /// What is to be written to a dead-letter destination.
    Dead,
    /// What became of events.
    Ledger,
    /// What endpoints said.
    Excerpt,
    /// Which ids may be in which block of the log.
    Ids,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Meta,
        Self::Log,
        Self::Cursor,
        Self::Pending,
        Self::Due,
        Self::Held,
        Self::Pin,
        Self::Dead,
        Self::Ledger,
        Self::Excerpt,
        Self::Ids,
    ];

    /// Its name in RocksDB.
    pub fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Log => "log",
            Self::Cursor => "cursor",
            Self::Pending => "owed",
            Self::Due => "due",
            Self::Held => "held",
            Self::Pin => "pin",
            Self::Dead => "dead",
            Self::Ledger => "ledger",
            Self::Excerpt => "excerpt",
            Self::Ids => "ids",
        }
    }
}

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// Puts a record in place of what was there.
    Put(Family, Vec<u8>, Bytes),
    /// Takes a record away.
    Delete(Family, Vec<u8>),
    /// Takes away a record that was put exactly once since it was last taken away.
    SingleDelete(Family, Vec<u8>),
}

/// What is written together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch(pub Vec<WriteOp>);

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, family: Family, key: Vec<u8>, value: impl Into<Bytes>) {
        self.0.push(WriteOp::Put(family, key, value.into()));
    }

    /// Adds a delete.
    pub fn delete(&mut self, family: Family, key: Vec<u8>) {
        self.0.push(WriteOp::Delete(family, key));
    }

    /// Adds a delete of what was put exactly once.
    pub fn single_delete(&mut self, family: Family, key: Vec<u8>) {
        self.0.push(WriteOp::SingleDelete(family, key));
    }
}

/// Why a store did not do as it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; it will work again when there is room.
    #[error("the disk of the data folder is full")]
    Full,
    /// A record, or the store itself, is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Anything else. What was being written may or may not be there: the process must end.
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}

/// What a scan tells of each record: its key and its value.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A store. One thread writes; any thread reads, and sees what was written before its call began.
pub trait Store: Send + Sync + 'static {
    /// Writes all of `batch` and syncs it. After an `Ok` it survives `kill -9` and power loss.
    fn write(&self, batch: &Batch) -> Result<(), StoreError>;

    /// One record.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// The records from `from` (with it) up to `upper` (without it), ascending, until `visit` breaks off.
    fn scan(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// The last record from `lower` (with it) up to `upper` (without it).
    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, StoreError>;

    /// The log of `partition` below `floor` is read by nobody any more, and that is durable: its space may be had back.
    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError>;

    /// Whether there is little room left: publishers should wait, so that what there is is left to those who free some.
    fn is_short_of_space(&self) -> bool;

    /// Once a second: a moment to write down how much was acknowledged, if that has changed.
    fn note_watermark(&self) -> Result<(), StoreError>;

    /// What it says of itself, for those who watch; nothing where it has nothing to say.
    fn figures(&self) -> Option<StoreFigures> {
        None
    }

    /// The same as [`Store::scan`], for whoever reads everything once: what others read again and again stays in memory.
    fn scan_apart(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.scan(family, from, upper, visit)
    }

    /// Whether the tables of `family` are left as they are from now on, because one of them is damaged: to merge it with
    /// others would fail, and end all writing.
    fn spare(&self, _family: Family, _on: bool) {}

    /// Where it is noted what cannot be read; [`None`] for a store of which nothing is passed over.
    fn damage(&self) -> Option<&Damage> {
        None
    }

    /// A clean stop: nothing is written any more, and what the store does by itself ends, so that the process may.
    fn close(&self) -> Result<(), StoreError>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        (**self).write(batch)
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        (**self).get(family, key)
    }

    fn scan(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        (**self).scan(family, from, upper, visit)
    }

    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        (**self).last(family, lower, upper)
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        (**self).drop_log(partition, floor)
    }

    fn is_short_of_space(&self) -> bool {
        (**self).is_short_of_space()
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        (**self).note_watermark()
    }

    fn figures(&self) -> Option<StoreFigures> {
        (**self).figures()
    }

    fn scan_apart(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        (**self).scan_apart(family, from, upper, visit)
    }

    fn spare(&self, family: Family, on: bool) {
        (**self).spare(family, on);
    }

    fn damage(&self) -> Option<&Damage> {
        (**self).damage()
    }

    fn close(&self) -> Result<(), StoreError> {
        (**self).close()
    }
}
