//! Negative controls for the tests of the stores: a faulty store breaks one guarantee at a time,
//! and the checks of the guarantees must detect it. Without a fault all checks pass.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{
    event::{PartitionId, Seq},
    store::{
        Batch, Family, Store, StoreError,
        keys::{self, MetaKind},
        layer,
        rocks::{RocksOptions, RocksStore},
        watermark::Watermark,
    },
};

use super::{chunk, copy_folder, keys_in, log_in, scratch};
use crate::support::{
    disk::Mount,
    memory_store::{MemoryStore, WriteFault},
};

/// A fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// A write is acknowledged and kept in memory until the next one.
    AcknowledgeBeforeTheWrite,
    /// One family of a batch with several is not written.
    ForgetAFamily,
    /// The watermark is never stored.
    NeverNote,
    /// The watermark is stored before its writes are synced.
    NoteTooEarly,
    /// A write to a full disk is acknowledged.
    SayThatAFullDiskHasWritten,
    /// A full disk is reported as a fatal error.
    CallAFullDiskAFailure,
    /// A failed sync is retried and then reported as successful.
    TryAFailedSyncAgain,
    /// The log is removed above its floor, too.
    DropAboveTheFloor,
}

/// The fault, and the check that must detect it.
const LIES: [(Lie, Promise); 8] = [
    (
        Lie::AcknowledgeBeforeTheWrite,
        acknowledged_writes_survive_a_kill,
    ),
    (Lie::ForgetAFamily, acknowledged_writes_survive_a_kill),
    (Lie::NeverNote, a_log_that_was_cut_is_refused),
    (Lie::NoteTooEarly, acknowledged_writes_survive_a_kill),
    (
        Lie::SayThatAFullDiskHasWritten,
        a_full_disk_loses_nothing_and_heals,
    ),
    (
        Lie::CallAFullDiskAFailure,
        a_full_disk_loses_nothing_and_heals,
    ),
    (
        Lie::TryAFailedSyncAgain,
        nothing_is_written_behind_a_failed_sync,
    ),
    (Lie::DropAboveTheFloor, a_floor_takes_nothing_above_it),
];

/// The check of a guarantee. It panics if the guarantee is broken, and returns whether it could run
/// here.
type Promise = fn(Option<Lie>) -> bool;

/// A store with a fault.
struct Liar<S> {
    store: S,
    watermark: PathBuf,
    lie: Option<Lie>,
    kept_back: Mutex<Option<Batch>>,
}

impl<S: Store> Liar<S> {
    fn new(store: S, folder: &Path, lie: Option<Lie>) -> Self {
        let watermark = folder.join("watermark");
        Self {
            store,
            watermark,
            lie,
            kept_back: Mutex::default(),
        }
    }
}

impl<S: Store> layer::StoreLayer for Liar<S> {
    type Inner = S;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        match self.lie {
            Some(Lie::AcknowledgeBeforeTheWrite) => {
                let before = self.kept_back.lock().replace(batch.clone());
                before.map_or(Ok(()), |before| self.store.write(&before))
            }
            Some(Lie::ForgetAFamily) => {
                let mut batch = batch.clone();
                batch
                    .0
                    .retain(|op| !matches!(op, gridhook::store::WriteOp::Put(Family::Pending, ..)));
                self.store.write(&batch)
            }
            Some(Lie::SayThatAFullDiskHasWritten) => match self.store.write(batch) {
                Err(StoreError::Full) => Ok(()),
                response => response,
            },
            Some(Lie::CallAFullDiskAFailure) => match self.store.write(batch) {
                Err(StoreError::Full) => Err(StoreError::Failed("no space".to_owned())),
                response => response,
            },
            Some(Lie::TryAFailedSyncAgain) => match self.store.write(batch) {
                Err(StoreError::Failed(_)) => Ok(()),
                response => response,
            },
            Some(Lie::NeverNote | Lie::NoteTooEarly | Lie::DropAboveTheFloor) | None => {
                self.store.write(batch)
            }
        }
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        let more = if self.lie == Some(Lie::DropAboveTheFloor) {
            10
        } else {
            0
        };
        self.store.drop_log(partition, floor.plus(more))
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        match self.lie {
            Some(Lie::NeverNote) => Ok(()),
            Some(Lie::NoteTooEarly) => {
                Watermark::create(&self.watermark, 1_000_000).expect("a watermark");
                Ok(())
            }
            _ => self.store.note_watermark(),
        }
    }
}

/// Two records of two families, in one batch.
fn write(store: &impl Store, number: u32) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    batch.put(
        Family::Meta,
        keys::meta_key(MetaKind::Job, &number.to_be_bytes()),
        vec![number as u8; 30_000],
    );
    batch.put(Family::Pending, number.to_be_bytes().to_vec(), vec![1]);
    store.write(&batch)
}

/// The number of batches with both records.
fn written(store: &impl Store) -> usize {
    let range = keys::meta_of(MetaKind::Job);
    let jobs = keys_in(store, Family::Meta, &range.start, &range.end).len();
    jobs.min(keys_in(store, Family::Pending, &[0], &[0xff]).len())
}

fn open(folder: &Path) -> RocksStore {
    RocksStore::open(folder, &RocksOptions::default()).expect("a store that is whole")
}

// --- the promises ---

/// The folder of a server that was killed after fifty writes.
fn copy_of_fifty_writes(lie: Option<Lie>) -> tempfile::TempDir {
    let folder = scratch();
    let killed = scratch();
    let store = Liar::new(open(folder.path()), folder.path(), lie);
    for number in 0..50 {
        write(&store, number).expect("there is room");
    }
    store.note_watermark().expect("noted");
    copy_folder(folder.path(), killed.path()).expect("copied");
    killed
}

fn acknowledged_writes_survive_a_kill(lie: Option<Lie>) -> bool {
    let killed = copy_of_fifty_writes(lie);
    assert_eq!(written(&open(killed.path())), 50);
    true
}

fn a_log_that_was_cut_is_refused(lie: Option<Lie>) -> bool {
    let killed = copy_of_fifty_writes(lie);
    let files = fs::read_dir(killed.path().join("rocksdb"))
        .expect("a store")
        .map(|entry| entry.expect("an entry").path());
    let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let log = logs
        .max_by_key(|path| fs::metadata(path).map_or(0, |log| log.len()))
        .expect("a log");
    let log = fs::OpenOptions::new().write(true).open(log).expect("a log");
    log.set_len(log.metadata().expect("a length").len() / 2)
        .expect("cut");
    let opened = RocksStore::open(killed.path(), &RocksOptions::default());
    assert!(
        opened.is_err(),
        "it was opened with {} of 50",
        opened.map_or(0, |store| written(&store))
    );
    true
}

fn a_full_disk_loses_nothing_and_heals(lie: Option<Lie>) -> bool {
    let Some(disk) = Mount::tmpfs(96) else {
        return false;
    };
    let folder = disk.path().join("data");
    let store = Liar::new(open(&folder), &folder, lie);
    let filler = disk.fill(3 << 20);
    let mut acknowledged = 0;
    let mut refused = false;
    for number in 0..3000 {
        match write(&store, number) {
            Ok(()) => acknowledged += 1,
            Err(StoreError::Full) => {
                refused = true;
                break;
            }
            Err(error) => panic!("a process would end over a full disk: {error}"),
        }
    }
    assert_eq!(
        written(&store),
        acknowledged,
        "what was acknowledged is there"
    );
    assert!(refused, "the disk never filled");
    fs::remove_file(filler).expect("removed");
    // RocksDB checks for free space every five seconds.
    let healed = (0..600).any(|_| {
        thread::sleep(Duration::from_millis(50));
        write(&store, 3000).is_ok()
    });
    assert!(healed, "it did not heal");
    true
}

fn nothing_is_written_behind_a_failed_sync(lie: Option<Lie>) -> bool {
    let memory = MemoryStore::new();
    memory.fail(5..6, WriteFault::Failed);
    let store = Liar::new(memory.clone(), Path::new(""), lie);
    let acknowledged = (0..10)
        .filter(|number| write(&store, *number).is_ok())
        .count();
    let found = written(&memory.crash(0));
    assert_eq!(found, acknowledged, "what was acknowledged is there");
    true
}

fn a_floor_takes_nothing_above_it(lie: Option<Lie>) -> bool {
    let folder = scratch();
    let rocks = Arc::new(open(folder.path()));
    let store = Liar::new(Arc::clone(&rocks), folder.path(), lie);
    for first in (1..200).step_by(10) {
        let mut batch = Batch::default();
        batch.put(
            Family::Log,
            keys::log(PartitionId(1), Seq(first)),
            chunk(10, 4096),
        );
        store.write(&batch).expect("there is room");
    }
    store.drop_log(PartitionId(1), Seq(101)).expect("dropped");
    rocks.compact_log().expect("compacted");
    assert_eq!(
        log_in(&store, 1),
        (101..200).step_by(10).collect::<Vec<_>>()
    );
    true
}

#[test]
fn every_lie_of_a_store_is_found_out() {
    let mut caught = 0;
    let mut tried = 0;
    for (lie, promise) in LIES {
        if !promise(None) {
            continue;
        }
        tried += 1;
        match catch_unwind(AssertUnwindSafe(|| promise(Some(lie)))) {
            Ok(_) => println!("{lie:?}: NOT caught"),
            Err(_) => {
                println!("{lie:?}: caught");
                caught += 1;
            }
        }
    }
    println!("caught {caught} of {tried}");
    assert_eq!(caught, tried, "a lie was not noticed");
}
