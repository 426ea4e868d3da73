//! The records of a cluster in memory, with the faults of a remote store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use gridhook::cluster::records::{RecordError, RecordStore, StoredRecord};
use parking_lot::Mutex;

/// The records. Clones share them, and each has faults of its own.
#[derive(Clone, Default)]
pub(crate) struct MemoryRecords {
    shared: Arc<Mutex<StoredRecords>>,
    pub(crate) faults: Arc<Faults>,
}

/// The faults of one node.
#[derive(Default)]
pub(crate) struct Faults {
    /// Whether the node reaches nothing.
    pub(crate) is_cut: AtomicBool,
    /// Whether the node reads from a server that fell behind.
    pub(crate) is_behind: AtomicBool,
    /// Whether the node's writes are carried out, but their responses are lost.
    pub(crate) loses_answers: AtomicBool,
    /// The number of writes that were carried out.
    pub(crate) writes: AtomicU64,
}

#[derive(Default)]
struct StoredRecords {
    records: BTreeMap<String, (Bytes, u64)>,
    /// The old records that a server returns after it fell behind.
    old: Option<BTreeMap<String, (Bytes, u64)>>,
    revision: u64,
}

impl MemoryRecords {
    /// A handle for another node on the same records.
    pub(crate) fn for_other(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            faults: Arc::default(),
        }
    }

    /// Makes a server fall behind: from now on it shows the present records.
    pub(crate) fn fall_behind(&self) {
        let mut shared = self.shared.lock();
        shared.old = Some(shared.records.clone());
    }

    /// Restores the records from a backup that was made when a server fell behind.
    pub(crate) fn restore(&self) {
        let mut shared = self.shared.lock();
        shared.records = shared.old.take().expect("a server that fell behind");
        let revisions = shared.records.values().map(|(_, revision)| *revision);
        shared.revision = revisions.max().unwrap_or_default();
    }

    /// All records, as a node without faults reads them.
    pub(crate) fn all(&self) -> Vec<StoredRecord> {
        shown(&self.shared.lock().records)
    }

    /// The records that this node reads now.
    pub(crate) fn get(&self) -> Result<Vec<StoredRecord>, RecordError> {
        if self.faults.is_cut.load(Ordering::Relaxed) {
            return Err(RecordError::Unavailable("cut off".to_owned()));
        }
        let shared = self.shared.lock();
        let old = shared
            .old
            .as_ref()
            .filter(|_| self.faults.is_behind.load(Ordering::Relaxed));
        Ok(shown(old.unwrap_or(&shared.records)))
    }

    /// Writes a record, as this node can now.
    pub(crate) fn set(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        if self.faults.is_cut.load(Ordering::Relaxed) {
            return Err(RecordError::Unavailable("cut off".to_owned()));
        }
        let mut shared = self.shared.lock();
        if shared.records.get(key).map_or(0, |(_, revision)| *revision) != revision {
            return Err(RecordError::Conflict);
        }
        shared.revision += 1;
        let revision = shared.revision;
        shared.records.insert(key.to_owned(), (value, revision));
        self.faults.writes.fetch_add(1, Ordering::Relaxed);
        if self.faults.loses_answers.load(Ordering::Relaxed) {
            return Err(RecordError::Unavailable("the answer was lost".to_owned()));
        }
        Ok(revision)
    }
}

fn shown(records: &BTreeMap<String, (Bytes, u64)>) -> Vec<StoredRecord> {
    let stored = |(key, (value, revision)): (&String, &(Bytes, u64))| StoredRecord {
        key: key.clone(),
        value: value.clone(),
        revision: *revision,
        written: format!("2026-01-01T00:00:00.{revision:09}Z"),
    };
    records.iter().map(stored).collect()
}

impl RecordStore for MemoryRecords {
    async fn read(&self) -> Result<Vec<StoredRecord>, RecordError> {
        tokio::task::yield_now().await;
        self.get()
    }

    async fn write(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        tokio::task::yield_now().await;
        self.set(key, value, revision)
    }
}
