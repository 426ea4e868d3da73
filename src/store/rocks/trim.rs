//! Deletes files of the log that lie completely below a floor, on a thread of its own: each
//! deletion takes milliseconds, and after a long backlog every publisher would wait for dozens of
//! them.
//!
//! If a floor rose several times meanwhile, only the highest counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rocksdb::DB;

use super::{read, rocksdb_error};
use crate::{Family, StoreError, keys, task_threads::TaskThreads};
use gridhook_event::{PartitionId, Seq, chunk};

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
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trimmer {
    pub(super) fn new(db: Arc<DB>) -> Self {
        Self {
            deletion: Arc::new(Deletion {
                db,
                floors: Mutex::default(),
                failed: Mutex::default(),
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
        if let Some(error) = locked(&self.deletion.failed).take() {
            return Err(error);
        }
        let mut floors = locked(&self.deletion.floors);
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
        self.thread.take().into_iter().for_each(TaskThreads::join);
    }
}

impl Deletion {
    fn delete_files(&self) {
        let floors = std::mem::take(&mut *locked(&self.floors));
        for (partition, floor) in floors {
            match drop_files(&self.db, partition, floor) {
                // The files are deleted with the next floor.
                Ok(()) | Err(StoreError::Full) => {}
                Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => {
                    locked(&self.failed).get_or_insert(error);
                }
            }
        }
    }
}

fn drop_files(db: &DB, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
    let log = db
        .cf_handle(Family::Log.name())
        .expect("every family was opened with the store");
    let below = keys::log_below(partition, floor);
    // What is about to be deleted would only displace other blocks from the cache.
    let Some((key, chunk)) =
        read::last_record(db, log, read::uncached_options(), &below.start, &below.end)?
    else {
        return Ok(());
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
    let Some(last) = end.0.checked_sub(1) else {
        return Ok(());
    };
    let last = keys::log(partition, Seq(last));
    db.delete_file_in_range_cf(log, below.start, last)
        .map_err(rocksdb_error)
}
