//! Deletes files of the log that lie completely below a floor, on a thread of its own: each
//! deletion takes milliseconds, and after a long backlog every publisher would wait for dozens of
//! them. Many files are deleted one by one, with a pause after each for the syncs of publishers.
//!
//! If a floor rose several times meanwhile, only the highest counts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rocksdb::{ColumnFamily, DB, Range};

use super::{read, rocksdb_error};
use crate::{Family, StoreError, keys, task_threads::TaskThreads};
use gridhook_event::{PartitionId, Seq, chunk};

/// The size of a part of the log, in bytes, that is deleted at once.
const DELETED_AT_ONCE: u64 = 64 << 20;

/// The pause after the deletion of a file, which takes some milliseconds.
const PAUSE: Duration = Duration::from_millis(50);

/// Deletes the files of the log below the floors. Its thread ends before it is dropped.
#[derive(Debug)]
pub(super) struct Trimmer {
    deletion: Arc<Deletion>,
    /// The thread; [`None`] once the trimmer is dropped.
    thread: Option<TaskThreads>,
}

#[derive(Debug)]
struct Deletion {
    db: Arc<DB>,
    /// The floors below which files are not deleted yet.
    floors: Mutex<BTreeMap<PartitionId, Seq>>,
    failed: Mutex<Option<StoreError>>,
    /// Whether the store closes. Files that are left are deleted with the next floor.
    is_stopping: AtomicBool,
}

impl Trimmer {
    pub(super) fn new(db: Arc<DB>) -> Self {
        Self {
            deletion: Arc::new(Deletion {
                db,
                floors: Mutex::default(),
                failed: Mutex::default(),
                is_stopping: AtomicBool::new(false),
            }),
            thread: Some(TaskThreads::new("trim", 1)),
        }
    }

    /// Schedules deleting the files below `floor`. Returns the error of an earlier deletion, if
    /// there was one.
    pub(super) fn schedule_deletion(
        &self,
        partition: PartitionId,
        floor: Seq,
    ) -> Result<(), StoreError> {
        if let Some(error) = self.deletion.failed.lock().take() {
            return Err(error);
        }
        let mut floors = self.deletion.floors.lock();
        let is_scheduled = !floors.is_empty();
        floors.insert(partition, floor);
        if let Some(thread) = self.thread.as_ref().filter(|_| !is_scheduled) {
            let deletion = Arc::clone(&self.deletion);
            thread.run(move || deletion.delete_files());
        }
        Ok(())
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        self.deletion.is_stopping.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(TaskThreads::join);
    }
}

impl Deletion {
    fn delete_files(&self) {
        let floors = std::mem::take(&mut *self.floors.lock());
        for (partition, floor) in floors {
            match self.drop_files(partition, floor) {
                // The files are deleted with the next floor.
                Ok(()) | Err(StoreError::Full) => {}
                Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => {
                    self.failed.lock().get_or_insert(error);
                }
            }
        }
    }

    fn drop_files(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        let log = self
            .db
            .cf_handle(Family::Log.name())
            .expect("every family was opened with the store");
        let first = keys::log_below(partition, floor).start;
        let Some(last) = find_last_key(&self.db, log, partition, floor)? else {
            return Ok(());
        };
        for file_end in list_file_ends(&self.db, log, &first, &last)? {
            if self.is_stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            delete_files_between(&self.db, log, &first, &file_end)?;
            thread::sleep(PAUSE);
        }
        delete_files_between(&self.db, log, &first, &last)
    }
}

/// The last key of the log below the floor whose file may be deleted; [`None`] if there is none.
fn find_last_key(
    db: &DB,
    log: &ColumnFamily,
    partition: PartitionId,
    floor: Seq,
) -> Result<Option<Vec<u8>>, StoreError> {
    let below = keys::log_below(partition, floor);
    // What is about to be deleted would only displace other blocks from the cache.
    let Some((key, chunk)) =
        read::last_record(db, log, read::uncached_options(), &below.start, &below.end)?
    else {
        return Ok(None);
    };
    let Some((_, first)) = keys::parse_log(&key) else {
        return Err(StoreError::Damaged(format!(
            "a key of the log cannot be parsed: {key:?}"
        )));
    };
    // The last chunk that begins below the floor may reach over it. Then it is kept.
    let end = match chunk::end_of(first, &chunk) {
        Some(end) if end <= floor => floor,
        Some(_) | None => first,
    };
    // The end of RocksDB's range is inclusive.
    let last = end.0.checked_sub(1);
    Ok(last.map(|last| keys::log(partition, Seq(last))))
}

/// The last keys of the files between two keys, in the order of the log; none of a part that may be
/// deleted at once. A list of all files of the store costs more than such a deletion.
fn list_file_ends(
    db: &DB,
    log: &ColumnFamily,
    first: &[u8],
    last: &[u8],
) -> Result<Vec<Vec<u8>>, StoreError> {
    let sizes = db.get_approximate_sizes_cf(log, &[Range::new(first, last)]);
    if sizes.iter().sum::<u64>() <= DELETED_AT_ONCE {
        return Ok(Vec::new());
    }
    let files = db.live_files().map_err(rocksdb_error)?;
    let mut ends = Vec::new();
    for file in files {
        let (Some(file_start), Some(file_end)) = (file.start_key, file.end_key) else {
            continue;
        };
        let is_in_log = file.column_family_name == Family::Log.name();
        if is_in_log && *file_start >= *first && *file_end <= *last {
            ends.push(file_end);
        }
    }
    ends.sort();
    Ok(ends)
}

/// Deletes the files whose keys are all between two keys, which are inclusive.
fn delete_files_between(
    db: &DB,
    log: &ColumnFamily,
    first: &[u8],
    last: &[u8],
) -> Result<(), StoreError> {
    db.delete_file_in_range_cf(log, first, last)
        .map_err(rocksdb_error)
}
