//! The store on disk: RocksDB, configured so that acknowledged writes are either there or their
//! absence is an error.
//!
//! ```text
//! DATA/lock       an advisory lock, with the id of the process that holds it
//! DATA/rocksdb/   the store, with one column family for each family
//! DATA/watermark  the last acknowledged sequence number
//! DATA/spared     the families with a damaged table, which are not compacted
//! DATA/ballast    space that is freed when the disk is full
//! DATA/received/  a store of another node that takes the place of this one (`received`)
//! ```
//!
//! Invariants:
//! - Every write is synced before its result is returned, or, if the caller can read it again from
//!   elsewhere, before the watermark is stored.
//! - After a write failed for any reason other than space, nothing is written any more.
//! - A new store is made under another name and renamed, so it appears whole or not at all.
//! - A store is not opened if its format is newer, if it recovered less than was acknowledged, or
//!   if it is damaged. A full disk does not prevent opening.
//! - After a full disk it writes again by itself, unless RocksDB had to begin a write-ahead log
//!   then. Only another opening helps after that.
//!
//! A write that returned [`StoreError::Full`] is not in the store. If the process dies before
//! RocksDB has recovered from the full disk, the write may be there after all, like any write
//! without a response. If the batch was written again after the recovery, it may be in the log
//! twice; puts and deletes are idempotent, but a `due` key may come back without its pending
//! record. So a reader of `due` treats the pending record as the truth.

mod figures;
mod floors;
mod folder;
mod frozen;
mod open;
mod options;
mod pages;
mod read;
pub mod received;
mod trim;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use rocksdb::{
    ColumnFamily, DB, ErrorKind, ReadOptions, WriteBatch, WriteOptions, checkpoint::Checkpoint,
};

pub use self::folder::FolderLock;
use self::{
    floors::PartitionFloors,
    folder::DataFolder,
    pages::{Pages, PlannedWrite},
    trim::Trimmer,
};
pub use self::{
    frozen::ReadOnlyStore,
    open::{FROZEN, STORE},
    options::RocksOptions,
};
use super::watermark::Watermark;
use crate::{Batch, Family, Store, StoreError, Visit, WriteOp, figures::StoreFigures};
use gridhook_event::{PartitionId, Seq, Timestamp};

/// The version of the store's format that this program reads and writes. Format 2 has pages of
/// outcomes (`pages`).
pub const FORMAT: u32 = 2;

/// A key of `meta` that no record uses.
const PROBE: &[u8] = b"probe";

/// The bytes that a record takes in a batch besides key and value: kind, family and two lengths.
const OP_BYTES: usize = 12;

/// Why a store was not opened. It was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created, read or written.
    #[error("the data folder {} cannot be used: {source}; check its owner, its permissions and its \
        disk", folder.display())]
    Folder {
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has locked the folder.
    #[error(
        "the data folder {} is in use by process {process}; stop that process, or choose another \
         folder",
        folder.display()
    )]
    InUse {
        folder: PathBuf,
        /// The id of the process that holds the lock.
        process: String,
    },
    /// A newer version of gridhook wrote the store.
    #[error(
        "the store has format {found} and this program knows formats up to {known}; run the newer \
         program, or restore a backup of the older format"
    )]
    Newer {
        /// The format of the store.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// An older version of gridhook wrote the store, and it is opened read-only, so it cannot be
    /// migrated.
    #[error(
        "the store has format {found}, and is migrated to format {known} when a server of this \
         version opens it"
    )]
    Older {
        /// The format of the store.
        found: u32,
        /// The format that this program writes.
        known: u32,
    },
    #[error(
        "the store recovered up to change {recovered}, but changes up to {acknowledged} were \
         acknowledged: {} are missing; restore the missing files or a backup, or accept the loss \
         with gridhook restore --accept-loss", acknowledged - recovered
    )]
    Behind {
        /// The latest sequence number in RocksDB.
        recovered: u64,
        /// The latest acknowledged sequence number, from the watermark.
        acknowledged: u64,
    },
    /// The watermark is missing or damaged, so missing changes cannot be detected.
    #[error(
        "the watermark {} {problem}, so missing changes cannot be detected; restore that file, \
         restore a backup, or accept the loss with gridhook restore --accept-loss", file.display()
    )]
    NoWatermark {
        /// The path of the watermark.
        file: PathBuf,
        /// What is wrong with the watermark.
        problem: &'static str,
    },
    #[error(
        "the store is damaged; restore a backup, or accept the loss with gridhook restore \
         --accept-loss: {0}"
    )]
    Damaged(String),
    /// RocksDB's list of its files is damaged, without which none of them can be read.
    #[error(
        "the store is damaged, and nothing of it can be salvaged without CURRENT and the MANIFEST; \
         restore a backup: {0}"
    )]
    NoManifest(String),
    #[error("the disk of the data folder {} is full; free some space and start again", folder.display())]
    Full { folder: PathBuf },
    /// Any other error of RocksDB.
    #[error("the store cannot be opened: {0}")]
    Failed(String),
}

#[derive(Debug)]
pub struct RocksStore {
    // Must be the first field: its thread ends before RocksDB is closed.
    trimmer: Trimmer,
    db: Arc<DB>,
    options: RocksOptions,
    writes: WriteModes,
    floors: PartitionFloors,
    pages: Pages,
    watermark: Mutex<Watermark>,
    /// The sequence number of RocksDB after the last acknowledged sync.
    acknowledged: AtomicU64,
    /// Whether the last write failed because the disk is full.
    full: AtomicBool,
    /// Whether there is neither a ballast file nor space for one.
    short: AtomicBool,
    /// The error after which the store takes no writes.
    failed: OnceLock<StoreError>,
    /// The families that are not compacted, because one of their tables is damaged.
    uncompacted: Mutex<BTreeSet<Family>>,
    // Must be the last field: the lock is released after RocksDB is closed.
    folder: DataFolder,
}

#[derive(Default)]
struct WriteModes {
    synced: WriteOptions,
    unsynced: WriteOptions,
    /// Whether something was written that is not synced.
    is_behind: AtomicBool,
    /// Whether the store is written unsynced at all. A synced write then proves nothing about later
    /// ones.
    is_replica: AtomicBool,
}

impl std::fmt::Debug for WriteModes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteModes")
    }
}

impl RocksStore {
    /// Opens the store in the data folder `folder`, or creates one if there is none.
    pub fn open(folder: &Path, options: &RocksOptions) -> Result<Self, OpenError> {
        open::open(folder, options)
    }

    /// Opens a copy of a damaged store in `folder`, recovers all that can be read, and returns its
    /// last sequence number.
    pub fn open_damaged(folder: &Path, options: &RocksOptions) -> Result<(Self, u64), OpenError> {
        open::open_damaged(folder, options)
    }

    /// The sequence number of the last write.
    pub fn last_sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// The free bytes on the disk of the data folder.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.folder
            .free_bytes()
            .map_err(|error| store_io_error(&error))
    }

    /// Frees at once the space that [`Store::drop_log`] frees over time. It may take long.
    pub fn compact_log(&self) -> Result<(), StoreError> {
        self.compact_family(Family::Log)
    }

    /// Rewrites the tables of a family, without the records that may be removed. It may take long.
    pub fn compact_family(&self, family: Family) -> Result<(), StoreError> {
        let family = self.column_family(family);
        self.db.flush_cf(family).map_err(rocksdb_error)?;
        self.db
            .compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    /// Makes a checkpoint of the store in the folder `to`, which must not exist, and opens it
    /// read-only. The write-ahead log is copied; all other files are hard links if `to` is on the
    /// same disk. Writes are not blocked.
    ///
    /// A snapshot would not do: records that a compaction filter or [`Store::drop_log`] removes are
    /// gone for snapshots too.
    pub fn freeze_to(&self, to: &Path) -> Result<ReadOnlyStore, OpenError> {
        let refuse = |error| open::open_error(to, error);
        let sequence = self.acknowledged.load(Ordering::Acquire);
        let checkpoint = Checkpoint::new(&self.db).map_err(|error| refuse(rocksdb_error(error)))?;
        // Never flush for a checkpoint: frequent checkpoints would leave many small files.
        checkpoint
            .create_checkpoint_with_log_size(to, u64::MAX)
            .map_err(|error| refuse(rocksdb_error(error)))?;
        ReadOnlyStore::open_at(to, sequence, &self.options, None)
    }

    fn column_family(&self, family: Family) -> &ColumnFamily {
        self.db
            .cf_handle(family.name())
            .expect("every family was opened with the store")
    }

    fn encode_write(&self, write: &PlannedWrite<'_>) -> WriteBatch {
        let PlannedWrite {
            page_changes,
            batch,
            ..
        } = write;
        // A memtable finds the position of a key faster from the one before it. The order of
        // changes of one key stays.
        let mut ops: Vec<(Family, &[u8], &WriteOp)> =
            Vec::with_capacity(page_changes.0.len() + batch.0.len());
        let all = page_changes.0.iter().chain(&batch.0);
        // Outcomes have no key of their own: they are in the page.
        ops.extend(all.filter_map(|op| op.family_and_key().map(|(family, key)| (family, key, op))));
        ops.sort_by_key(|(family, key, _)| (*family, *key));
        let bytes = ops
            .iter()
            .map(|(_, key, op)| OP_BYTES + key.len() + value_len(op));
        let mut writes = WriteBatch::with_capacity_bytes(OP_BYTES + bytes.sum::<usize>());
        // A family is found by its name, and a batch has few of them.
        for ops in ops.chunk_by(|(family, ..), (next, ..)| family == next) {
            let family = self.column_family(ops[0].0);
            for (_, _, op) in ops {
                match op {
                    WriteOp::Put(_, key, value) => writes.put_cf(family, key, value),
                    WriteOp::Delete(_, key) => writes.delete_cf(family, key),
                    WriteOp::SingleDelete(_, key) => writes.single_delete_cf(family, key),
                    WriteOp::Outcomes(..) => unreachable!("outcomes have no key"),
                }
            }
        }
        writes
    }

    fn write_with(&self, batch: &Batch, mode: &WriteOptions) -> Result<(), StoreError> {
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        if batch.0.is_empty() {
            return Ok(());
        }
        self.write_planned(self.pages.plan_write(batch), mode)
    }

    /// Syncs what was written unsynced. After a failed sync the kernel may have dropped pages that
    /// a later one reports as synced, so every error ends the writing, also that of a full disk.
    fn sync_unsynced(&self) -> Result<(), StoreError> {
        if self.writes.is_behind.swap(false, Ordering::AcqRel) {
            let written = self.db.latest_sequence_number();
            let result = match self.failed.get() {
                Some(failed) => Err(failed.clone()),
                None => self.db.flush_wal(true).map_err(|error| {
                    self.record_failed_write(StoreError::Failed(error.to_string()))
                }),
            };
            if result.is_err() {
                self.writes.is_behind.store(true, Ordering::Release);
            }
            result?;
            self.acknowledged.fetch_max(written, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Tests whether a full disk has space again; on an idle server nothing else would write. It
    /// deletes a key that never existed.
    fn probe_space(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.delete(Family::Meta, PROBE.to_vec());
        self.write(&batch)
    }

    /// Tests whether a full disk has space again, and makes the ballast where there is space for
    /// it.
    fn check_space(&self) -> Result<(), StoreError> {
        if self.full.load(Ordering::Acquire) {
            match self.probe_space() {
                // The disk is still full.
                Err(StoreError::Full) => self.short.store(true, Ordering::Release),
                result => result?,
            }
        }
        if !self.full.load(Ordering::Acquire) {
            let has_space = self
                .folder
                .ensure_ballast()
                .map_err(|error| store_io_error(&error))?;
            self.short.store(!has_space, Ordering::Release);
        }
        Ok(())
    }

    /// Records a failed write. If the disk is full, frees the ballast.
    fn record_failed_write(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Full => {
                self.full.store(true, Ordering::Release);
                self.short.store(true, Ordering::Release);
                // If the ballast cannot be removed, space must come from elsewhere.
                if let Err(error) = self.folder.drop_ballast() {
                    tracing::warn!(%error, "could not remove the ballast");
                }
                StoreError::Full
            }
            StoreError::Damaged(what) => {
                // A compaction read a damaged table. After the next start its family is not
                // compacted.
                self.change_uncompacted(|families| families.extend(self.families_of(&what)));
                self.failed
                    .get_or_init(|| StoreError::Damaged(what))
                    .clone()
            }
            StoreError::Failed(_) => self.failed.get_or_init(|| error).clone(),
        }
    }

    /// The family whose table an error of RocksDB names; all families, if it names none.
    fn families_of(&self, what: &str) -> Vec<Family> {
        let tables = self.db.live_files().unwrap_or_default();
        let damaged_table = tables
            .iter()
            .find(|table| what.contains(table.name.trim_start_matches('/')));
        let family = damaged_table.and_then(|table| {
            Family::ALL
                .into_iter()
                .find(|of| of.name() == table.column_family_name)
        });
        family.map_or_else(|| Family::ALL.to_vec(), |family| vec![family])
    }

    /// Changes the set of families that are not compacted, now and after the next start.
    fn change_uncompacted(&self, change: impl FnOnce(&mut BTreeSet<Family>)) {
        let mut families = self.uncompacted.lock();
        let before = families.clone();
        change(&mut families);
        for family in before.symmetric_difference(&families) {
            let is_paused = families.contains(family);
            let option = (options::NO_COMPACTIONS, &*is_paused.to_string());
            let result = self
                .db
                .set_options_cf(self.column_family(*family), &[option]);
            if let Err(error) = result {
                tracing::warn!(family = family.name(), is_paused, %error, "could not change \
                    whether a family is compacted");
            }
        }
        if before != *families
            && let Err(error) = self.folder.store_uncompacted(&families)
        {
            tracing::warn!(%error, "could not store which families have damaged tables");
        }
    }
}

fn value_len(op: &WriteOp) -> usize {
    match op {
        WriteOp::Put(_, _, value) => value.len(),
        WriteOp::Delete(..) | WriteOp::SingleDelete(..) | WriteOp::Outcomes(..) => 0,
    }
}

impl Store for RocksStore {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.write_with(batch, &self.writes.synced)?;
        if !batch.0.is_empty() {
            // `written` may include a write of another thread. If every write is synced, that one
            // is on disk, because RocksDB counts a write after its sync. If some are not
            // (`is_replica`, set before the first of them), only `sync_unsynced` knows.
            let written = self.db.latest_sequence_number();
            if self.writes.is_replica.load(Ordering::Acquire) {
                self.writes.is_behind.store(true, Ordering::Release);
            } else {
                self.acknowledged.fetch_max(written, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    fn write_unsynced(&self, batch: &Batch) -> Result<(), StoreError> {
        self.writes.is_replica.store(true, Ordering::Release);
        self.write_with(batch, &self.writes.unsynced)?;
        // Behind the write: a sync of another thread may or may not have included it.
        self.writes.is_behind.store(true, Ordering::Release);
        Ok(())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.pages.find_cursor(family, key) {
            Some(cursor) => Ok(Some(cursor)),
            None => read::get(&self.db, self.column_family(family), key),
        }
    }

    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        if family == Family::Cursor {
            // The latest ones are in memory.
            return keys.iter().map(|key| self.get(family, key)).collect();
        }
        read::get_all(&self.db, self.column_family(family), keys)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.pages.scan_merged(family, from, upper, visit, |visit| {
            read::scan_records(
                &self.db,
                self.column_family(family),
                ReadOptions::default(),
                from,
                upper,
                visit,
            )
        })
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        let last = read::last_record(
            &self.db,
            self.column_family(family),
            ReadOptions::default(),
            lower,
            upper,
        )?;
        Ok(self.pages.last_record(family, lower, upper, last))
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.pages.scan_merged(family, from, upper, visit, |visit| {
            read::scan_records(
                &self.db,
                self.column_family(family),
                read::uncached_options(),
                from,
                upper,
                visit,
            )
        })
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        let last = read::last_record(
            &self.db,
            self.column_family(family),
            read::uncached_options(),
            lower,
            upper,
        )?;
        Ok(self.pages.last_record(family, lower, upper, last))
    }

    fn set_compaction_paused(&self, family: Family, is_paused: bool) {
        self.change_uncompacted(|families| {
            let _is_changed = if is_paused {
                families.insert(family)
            } else {
                families.remove(&family)
            };
        });
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        self.floors.raise_floor(partition, floor);
        self.trimmer.schedule_deletion(partition, floor)
    }

    fn expire_ids(&self, now: Timestamp) {
        self.floors.expire_ids(now);
    }

    /// Computed when the store is opened, when a write fails and at each [`Store::note_watermark`].
    fn is_short_of_space(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    fn is_full_despite_space(&self) -> bool {
        let is_full = self.full.load(Ordering::Acquire);
        is_full && self.folder.has_space_to_write().unwrap_or(false)
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        self.sync_unsynced()?;
        let sequence = self.acknowledged.load(Ordering::Acquire);
        // The file's state changes only after its write was synced, so it is consistent even if a
        // thread panicked with the lock.
        let mut watermark = self.watermark.lock();
        watermark
            .store_sequence(sequence)
            .map_err(|error| store_io_error(&error))?;
        drop(watermark);
        self.check_space()
    }

    fn figures(&self) -> Option<StoreFigures> {
        Some(self.read_figures())
    }

    /// RocksDB's background threads outlive every handle. At the end of the process they would use
    /// freed memory.
    fn close(&self) -> Result<(), StoreError> {
        self.note_watermark()?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

/// RocksDB reports a full disk only in the text of its error.
fn rocksdb_error(error: rocksdb::Error) -> StoreError {
    let text = error.to_string();
    if text.contains("No space left on device") {
        return StoreError::Full;
    }
    match error.kind() {
        ErrorKind::Corruption => StoreError::Damaged(text),
        _ => StoreError::Failed(text),
    }
}

fn store_io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::Full,
        _ => StoreError::Failed(error.to_string()),
    }
}
