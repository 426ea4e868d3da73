//! Deletes files of the log that lie completely below a floor, on a thread of its own: each
//! deletion takes milliseconds, and after a long backlog every publisher would wait for dozens of
//! them.
//!
//! If a floor rose several times meanwhile, only the highest counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use rocksdb::DB;

use super::{read, rocksdb_error};
use crate::{Family, StoreError, keys};
use gridhook_event::{PartitionId, Seq, chunk};

type Failed = Mutex<Option<StoreError>>;

/// A handle to the thread. The thread runs as long as the store is open.
#[derive(Debug)]
pub(super) struct Trimmer {
    floors: Option<mpsc::Sender<(PartitionId, Seq)>>,
    failed: Arc<Failed>,
    thread: Option<JoinHandle<()>>,
}

impl Trimmer {
    pub(super) fn start(db: Arc<DB>) -> Self {
        let (floors, risen) = mpsc::channel();
        let failure = Arc::<Failed>::default();
        let failed_in_thread = Arc::clone(&failure);
        let thread = std::thread::Builder::new()
            .name("trim".to_owned())
            .spawn(move || run(&db, &risen, &failed_in_thread))
            .expect("a process that cannot start a thread cannot start");
        Self {
            floors: Some(floors),
            failed: failure,
            thread: Some(thread),
        }
    }

    /// Schedules deleting the files below `floor`. Returns the error of an earlier deletion, if
    /// there was one.
    pub(super) fn schedule_deletion(
        &self,
        partition: PartitionId,
        floor: Seq,
    ) -> Result<(), StoreError> {
        if let Some(error) = self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(error);
        }
        // If the thread panicked, compactions free the space later.
        self.floors
            .as_ref()
            .and_then(|floors| floors.send((partition, floor)).ok());
        Ok(())
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        self.floors = None;
        // The panic hook has logged a panic of the thread, and nothing depends on its unfinished
        // work.
        self.thread.take().and_then(|thread| thread.join().ok());
    }
}

fn run(db: &DB, risen: &mpsc::Receiver<(PartitionId, Seq)>, failed: &Failed) {
    while let Ok(first) = risen.recv() {
        let mut floors = BTreeMap::from([first]);
        floors.extend(risen.try_iter());
        for (partition, floor) in floors {
            match drop_files(db, partition, floor) {
                // The files are deleted with the next floor.
                Ok(()) | Err(StoreError::Full) => {}
                Err(error @ (StoreError::Damaged(_) | StoreError::Failed(_))) => {
                    failed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
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
