//! The store on disk: RocksDB, set up so that what was acknowledged is there, or its absence is told.
//!
//! ```text
//! DATA/lock       our own advisory lock, with the process that holds it
//! DATA/rocksdb/   the store, one column family for each family
//! DATA/watermark  how much was acknowledged
//! DATA/spared     the families with a damaged table, which are not compacted
//! DATA/ballast    space that is given back when the disk is full
//! ```
//!
//! Invariants: every write is synced; after a write that failed for any reason but space nothing is written any more;
//! a store appears whole or not at all (it is made under another name); a store that is newer than this program, that
//! recovered less than was acknowledged or that is damaged is not opened. A full disk is no reason not to open.
//!
//! A write that was answered [`StoreError::Full`] is not in the store. If the process dies before RocksDB has healed, it
//! may be there after all, as for any write without an answer; a batch that was then written again after the healing
//! may stand twice in the log, which every `Put` and `Delete` survives. So a `due` key may come back without its owed
//! record once in a store's life: whoever reads it takes the owed record for the truth.

mod figures;
mod floors;
mod folder;
mod frozen;
mod open;
mod options;
mod read;
mod trim;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, ErrorKind, WriteBatch, WriteOptions, checkpoint::Checkpoint};

pub(crate) use self::folder::FolderLock;
use self::{floors::PartitionFloors, folder::DataFolder, trim::Trimmer};
pub use self::{
    frozen::ReadOnlyStore,
    open::{FROZEN, STORE},
    options::RocksOptions,
};
use super::watermark::Watermark;
use crate::{
    event::{PartitionId, Seq},
    store::{Batch, Family, Store, StoreError, Visit, WriteOp, figures::StoreFigures},
};

/// The version of the format that this program reads and writes.
pub const FORMAT: u32 = 1;

/// A key of `meta` that no record has.
const PROBE: &[u8] = b"probe";

/// What a record costs in a batch beside its key and its value: kind, family and two lengths.
const OP_BYTES: usize = 12;

/// Why a store was not opened. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made, read or written.
    #[error("the data folder {} cannot be used; look at its owner, its rights and its disk: {source}", folder.display())]
    Folder {
        /// The data folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "the data folder {} is in use by process {process}; stop that one first, or choose another folder",
        folder.display()
    )]
    InUse {
        /// The data folder.
        folder: PathBuf,
        /// The number of the process that holds it.
        process: String,
    },
    /// A later program wrote it.
    #[error(
        "the store has format {found} and this program knows formats up to {known}; run the newer program, or restore \
         a backup of the older format"
    )]
    Newer {
        /// The format of the store.
        found: u32,
        /// The latest format that this program knows.
        known: u32,
    },
    /// An earlier program wrote it, and it is only looked at.
    #[error(
        "the store has format {found}, and is migrated to format {known} when a server of this version starts on it"
    )]
    Older {
        /// The format of the store.
        found: u32,
        /// The format that this program writes.
        known: u32,
    },
    /// Acknowledged changes are missing.
    #[error(
        "the store recovered up to change {recovered}, but changes up to {acknowledged} were acknowledged: {} are \
         missing; bring the missing files back, restore a backup, or accept the loss with gridhook restore --accept-loss", acknowledged - recovered
    )]
    Behind {
        /// RocksDB's latest sequence number.
        recovered: u64,
        /// The latest that was acknowledged and noted.
        acknowledged: u64,
    },
    /// Whether anything is missing cannot be told.
    #[error(
        "the watermark {} {problem}, so it cannot be told whether the store is whole; bring that file back, restore a \
         backup, or accept what is missing with gridhook restore --accept-loss", file.display()
    )]
    NoWatermark {
        /// Where it should be.
        file: PathBuf,
        /// What is the matter with it.
        problem: &'static str,
    },
    /// The store is damaged.
    #[error(
        "the store is damaged and nothing of it was skipped; restore a backup, or accept the loss with gridhook restore --accept-loss: {0}"
    )]
    Damaged(String),
    /// No byte can be written.
    #[error("the disk of the data folder {} is full; free some space and start again", folder.display())]
    Full {
        /// The data folder.
        folder: PathBuf,
    },
    /// RocksDB refused for another reason.
    #[error("the store cannot be opened: {0}")]
    Failed(String),
}

/// The store on disk.
#[derive(Debug)]
pub struct RocksStore {
    // First: its thread ends before RocksDB is closed.
    trimmer: Trimmer,
    db: Arc<DB>,
    options: RocksOptions,
    synced: SyncState,
    floors: PartitionFloors,
    watermark: Mutex<Watermark>,
    /// RocksDB's latest sequence number after the last acknowledged sync.
    acknowledged: AtomicU64,
    /// Whether the last write found no space.
    full: AtomicBool,
    /// Whether there is neither a ballast nor room for one.
    short: AtomicBool,
    /// What ended all writing.
    failed: OnceLock<StoreError>,
    /// The families that are not compacted, because a table of theirs is damaged.
    spared: Mutex<BTreeSet<Family>>,
    // Last: the lock is let go when RocksDB is closed.
    folder: DataFolder,
}

struct SyncState(WriteOptions);

impl std::fmt::Debug for SyncState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Synced")
    }
}

impl RocksStore {
    /// Opens the store in the data folder `folder`, or makes one where there is none.
    pub fn open(folder: &Path, options: &RocksOptions) -> Result<Self, OpenError> {
        open::open(folder, options)
    }

    /// Opens the copy of a damaged store in `folder`, of which everything is taken that can be read, and tells with which change
    /// it ends.
    pub(crate) fn open_damaged(folder: &Path, options: &RocksOptions) -> Result<(Self, u64), OpenError> {
        open::open_damaged(folder, options)
    }

    /// RocksDB's sequence number of what was written last.
    pub(crate) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// How many bytes may still be written to the disk of the data folder.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.folder.free_bytes().map_err(|error| of_io(&error))
    }

    /// Gives back at once what [`Store::drop_log`] would give back in time. It may take long.
    pub fn compact_log(&self) -> Result<(), StoreError> {
        let log = self.family(Family::Log);
        self.db.flush_cf(log).map_err(of_rocksdb)?;
        self.db.compact_range_cf(log, None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    /// What is in the store now, as a store that stands still, in the folder `to`, which must not be there. It costs a copy of
    /// the write-ahead log; all else are links, where `to` is on the same disk. Writers are not held up.
    ///
    /// A snapshot would not do: what compactions discard and what [`Store::drop_log`] drops is gone for snapshots too.
    pub fn freeze(&self, to: &Path) -> Result<ReadOnlyStore, OpenError> {
        let refuse = |error| open::of_store(to, error);
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let checkpoint = Checkpoint::new(&self.db).map_err(|error| refuse(of_rocksdb(error)))?;
        // Whatever the log has, no family is flushed for it: looking often would leave many small files.
        checkpoint.create_checkpoint_with_log_size(to, u64::MAX).map_err(|error| refuse(of_rocksdb(error)))?;
        ReadOnlyStore::at(to, acknowledged, &self.options, None)
    }

    fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("every family was opened with the store")
    }

    fn encode(&self, batch: &Batch) -> WriteBatch {
        let bytes = batch.0.iter().map(|op| {
            OP_BYTES
                + match op {
                    WriteOp::Put(_, key, value) => key.len() + value.len(),
                    WriteOp::Delete(_, key) | WriteOp::SingleDelete(_, key) => key.len(),
                }
        });
        let mut writes = WriteBatch::with_capacity_bytes(OP_BYTES + bytes.sum::<usize>());
        let families = Family::ALL.map(|family| self.family(family));
        for op in &batch.0 {
            match op {
                WriteOp::Put(family, key, value) => writes.put_cf(families[*family as usize], key, value),
                WriteOp::Delete(family, key) => writes.delete_cf(families[*family as usize], key),
                WriteOp::SingleDelete(family, key) => writes.single_delete_cf(families[*family as usize], key),
            }
        }
        writes
    }

    /// Asks whether a full disk has room again: on a quiet server nothing else would. What is deleted never was.
    fn probe(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.delete(Family::Meta, PROBE.to_vec());
        self.write(&batch)
    }

    /// Takes note of a write that failed, and makes room if that was the reason.
    fn refuse(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Full => {
                self.full.store(true, Ordering::Release);
                self.short.store(true, Ordering::Release);
                // Where it cannot be removed there is nothing better to do: space has to come from elsewhere.
                if let Err(error) = self.folder.drop_ballast() {
                    tracing::warn!(%error, "the ballast could not be removed");
                }
                StoreError::Full
            }
            StoreError::Damaged(what) => {
                // A compaction met with a damaged table: the next start leaves those of its family as they are.
                self.set_spared(|spared| spared.extend(self.families_of(&what)));
                self.failed.get_or_init(|| StoreError::Damaged(what)).clone()
            }
            StoreError::Failed(_) => self.failed.get_or_init(|| error).clone(),
        }
    }

    /// The family whose table an error of RocksDB names; all, where it names none.
    fn families_of(&self, what: &str) -> Vec<Family> {
        let tables = self.db.live_files().unwrap_or_default();
        let named = tables.iter().find(|table| what.contains(table.name.trim_start_matches('/')));
        let family = named.and_then(|table| Family::ALL.into_iter().find(|of| of.name() == table.column_family_name));
        family.map_or_else(|| Family::ALL.to_vec(), |family| vec![family])
    }

    /// Changes which families' tables are left as they are, now and at the next start.
    fn set_spared(&self, change: impl FnOnce(&mut BTreeSet<Family>)) {
        let mut spared = self.spared.lock().unwrap_or_else(PoisonError::into_inner);
        let before = spared.clone();
        change(&mut spared);
        for family in before.symmetric_difference(&spared) {
            let is_spared = spared.contains(family).to_string();
            let set = self.db.set_options_cf(self.family(*family), &[(options::SPARE, &is_spared)]);
            if let Err(error) = set {
                tracing::warn!(family = family.name(), %error, "compactions of a damaged family go on");
            }
        }
        if before != *spared
            && let Err(error) = self.folder.note_spared(&spared)
        {
            tracing::warn!(%error, "which tables are damaged could not be written down");
        }
    }
}

impl Store for RocksStore {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        if batch.0.is_empty() {
            return Ok(());
        }
        let writes = self.encode(batch);
        self.db.write_opt(writes, &self.synced.0).map_err(|error| self.refuse(of_rocksdb(error)))?;
        self.folder.check_writable().map_err(|error| self.refuse(StoreError::Failed(error.to_string())))?;
        self.full.store(false, Ordering::Release);
        self.acknowledged.store(self.db.latest_sequence_number(), Ordering::Release);
        Ok(())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        read::get(&self.db, self.family(family), key)
    }

    fn scan(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        read::scan(&self.db, self.family(family), from, upper, visit)
    }

    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        read::last(&self.db, self.family(family), lower, upper)
    }

    fn scan_apart(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        read::scan_apart(&self.db, self.family(family), from, upper, visit)
    }

    fn spare(&self, family: Family, on: bool) {
        self.set_spared(|spared| {
            let _changed = if on { spared.insert(family) } else { spared.remove(&family) };
        });
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        self.floors.raise(partition, floor);
        self.trimmer.raise(partition, floor)
    }

    /// Looked at when the store is opened, when a write fails and with each [`Store::note_watermark`].
    fn is_short_of_space(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        // The file's state changes only after its write was synced: it is whole whoever panicked.
        let mut watermark = self.watermark.lock().unwrap_or_else(PoisonError::into_inner);
        watermark.note(acknowledged).map_err(|error| of_io(&error))?;
        if self.full.load(Ordering::Acquire) {
            match self.probe() {
                // No room yet, which is nothing new.
                Err(StoreError::Full) => self.short.store(true, Ordering::Release),
                probed => probed?,
            }
        }
        if !self.full.load(Ordering::Acquire) {
            let room = self.folder.take_ballast().map_err(|error| of_io(&error))?;
            self.short.store(!room, Ordering::Release);
        }
        Ok(())
    }

    fn figures(&self) -> Option<StoreFigures> {
        Some(self.ask_figures())
    }

    /// RocksDB's own threads outlive every handle that a reader may still have; at the end of the process they would find
    /// what they work with gone.
    fn close(&self) -> Result<(), StoreError> {
        self.note_watermark()?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

/// RocksDB keeps "no space" apart inside, and tells it only by its text.
fn of_rocksdb(error: rocksdb::Error) -> StoreError {
    let text = error.to_string();
    if text.contains("No space left on device") {
        return StoreError::Full;
    }
    match error.kind() {
        ErrorKind::Corruption => StoreError::Damaged(text),
        _ => StoreError::Failed(text),
    }
}

fn of_io(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::Full,
        _ => StoreError::Failed(error.to_string()),
    }
}
