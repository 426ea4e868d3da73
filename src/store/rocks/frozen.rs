//! A read-only store: a data folder without a server, a backup, or a checkpoint of a running store.
//!
//! Opening changes nothing on disk: records that a killed process left in the write-ahead log are
//! recovered in memory. Format, families and watermark are checked as a server checks them.

use std::path::Path;

use bytes::Bytes;
use rocksdb::{Cache, ColumnFamily, ColumnFamilyDescriptor, DB, ReadOptions};

use super::{
    OpenError, RocksOptions,
    floors::PartitionFloors,
    folder::FolderLock,
    open::{self, STORE},
    options,
    pages::Pages,
    read, rocksdb_error,
};
use crate::{
    Batch, Family, Store, StoreError, Visit, damage,
    watermark::{self, WatermarkValue},
};
use gridhook_event::{PartitionId, Seq};

/// A store that is opened read-only.
#[derive(Debug)]
pub struct ReadOnlyStore {
    db: DB,
    pages: Pages,
    // Must be the last field: the lock is released after RocksDB is closed.
    _lock: Option<FolderLock>,
}

impl ReadOnlyStore {
    /// Opens the store in the data folder or the backup `folder`. Fails if a server has it, and
    /// never creates one.
    pub fn open(folder: &Path, wanted: &RocksOptions) -> Result<Self, OpenError> {
        let lock = FolderLock::open_existing(folder)?;
        let file = folder.join("watermark");
        let of_folder = |source| OpenError::Folder {
            folder: folder.to_owned(),
            source,
        };
        let acknowledged = match watermark::read(&file).map_err(of_folder)? {
            WatermarkValue::Whole(sequence) => sequence,
            WatermarkValue::Missing => {
                return Err(OpenError::NoWatermark {
                    file,
                    problem: "is missing",
                });
            }
            WatermarkValue::Damaged => {
                return Err(OpenError::NoWatermark {
                    file,
                    problem: "is damaged",
                });
            }
        };
        if !folder.join(STORE).try_exists().map_err(of_folder)? {
            return Err(OpenError::Behind {
                recovered: 0,
                acknowledged,
            });
        }
        Self::open_at(&folder.join(STORE), acknowledged, wanted, lock)
    }

    /// Opens RocksDB's folder `store`, which must contain all changes up to `acknowledged`.
    pub fn open_at(
        store: &Path,
        acknowledged: u64,
        wanted: &RocksOptions,
        lock: Option<FolderLock>,
    ) -> Result<Self, OpenError> {
        let refuse = |error| open::open_error(store, error);
        let opened = open_db(store, wanted);
        let db = opened.map_err(|error| open::rocksdb_open_error(store, error))?;
        let last_sequence = db.latest_sequence_number();
        if last_sequence < acknowledged {
            return Err(OpenError::Behind {
                recovered: last_sequence,
                acknowledged,
            });
        }
        let frozen = Self {
            db,
            pages: Pages::default(),
            _lock: lock,
        };
        match open::check_format(&frozen, store) {
            // A store of format 1 has no pages, and is read like any other.
            Ok(()) | Err(OpenError::Older { found: 1, .. }) => {}
            Err(error) => return Err(error),
        }
        frozen.load_pages().map_err(refuse)?;
        open::check_families(store)?;
        Ok(frozen)
    }

    /// Reads the pages of outcomes that can be read. A check reports the others.
    fn load_pages(&self) -> Result<(), StoreError> {
        self.pages
            .load_pages(|visit| damage::scan_readable_pages(self, visit), |_| Ok(()))
    }

    /// The sequence number of the last change that the store contains.
    pub fn last_sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// [`None`] for a family that an older program did not create.
    fn column_family(&self, family: Family) -> Option<&ColumnFamily> {
        self.db.cf_handle(family.name())
    }
}

fn open_db(store: &Path, wanted: &RocksOptions) -> Result<DB, StoreError> {
    let of_all = options::store_options(wanted).map_err(rocksdb_error)?;
    let cache = Cache::new_lru_cache(wanted.cache_bytes);
    let mut families = Vec::new();
    for name in DB::list_cf(&of_all, store).map_err(rocksdb_error)? {
        let ours = Family::ALL.into_iter().find(|family| family.name() == name);
        let options = match ours {
            // Nothing is compacted here, so the filter needs no floors.
            Some(family) => {
                options::family_options(family, wanted, &cache, &PartitionFloors::default())
                    .map_err(rocksdb_error)?
            }
            None => options::unused_family_options(),
        };
        families.push(ColumnFamilyDescriptor::new(name, options));
    }
    DB::open_cf_descriptors_read_only(&of_all, store, families, false).map_err(rocksdb_error)
}

impl Store for ReadOnlyStore {
    fn write(&self, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Failed(
            "the store was opened read-only".to_owned(),
        ))
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match (
            self.pages.find_cursor(family, key),
            self.column_family(family),
        ) {
            (None, Some(family)) => read::get(&self.db, family, key),
            (cursor, _) => Ok(cursor),
        }
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let Some(found) = self.column_family(family) else {
            return Ok(());
        };
        self.pages.scan_merged(family, from, upper, visit, |visit| {
            read::scan_records(&self.db, found, ReadOptions::default(), from, upper, visit)
        })
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        let Some(found) = self.column_family(family) else {
            return Ok(None);
        };
        let last = read::last_record(&self.db, found, ReadOptions::default(), lower, upper)?;
        Ok(self.pages.last_record(family, lower, upper, last))
    }

    fn drop_log(&self, _: PartitionId, _: Seq) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn is_full_despite_space(&self) -> bool {
        false
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
