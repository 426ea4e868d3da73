//! A store in memory, for tests: it keeps synced and unsynced writes apart, and fails on request.
//!
//! Invariants:
//! - Acknowledged writes survive [`MemoryStore::crash`], unless a fault says otherwise. The "disk"
//!   always holds a prefix of the writes, in whole batches. After a write failed for any reason
//!   other than space, nothing is written any more.
//! - Unlike RocksDB it drops a partition's log at once ([`Store::drop_log`]), so that a read below
//!   the floor is detected.
//! - It enforces the rule of SingleDelete, which RocksDB does not check: a family with single
//!   deletes has no other deletes, and a key was put exactly once since its last delete.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use bytes::Bytes;
use gridhook::{
    event::{PartitionId, Seq, Timestamp, chunk},
    store::{
        Batch, Family, Store, StoreError, Visit, WriteOp, id_filter, keys,
        records::{PublishedId, StoredRecord},
    },
};
use parking_lot::{Condvar, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFault {
    /// The disk is full: nothing is written.
    Full,
    /// The sync fails: the batch may or may not be there after the next crash, and nothing is
    /// written any more.
    Failed,
    /// The disk lies: the write is acknowledged, but lost at a crash, unless a later successful
    /// write syncs it too.
    Lie,
}

/// A store in memory. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore(Arc<MemoryShared>);

#[derive(Debug, Default)]
struct MemoryShared {
    state: Mutex<MemoryState>,
    /// Notified when a write begins to wait, and when it may continue.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MemoryState {
    /// The state that readers see.
    current: Arc<MemoryTables>,
    /// The state after a crash.
    synced: MemoryTables,
    /// The unsynced batches, in order.
    unsynced: Vec<Batch>,
    faults: Vec<(Range<u64>, WriteFault)>,
    writes: u64,
    failed: Option<&'static str>,
    holds: u32,
    waiting: u32,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Makes the writes with the numbers `writes` (the first is 0) fail with `fault`. The last call
    /// for a number counts.
    pub(crate) fn fail(&self, writes: Range<u64>, fault: WriteFault) {
        self.state().faults.push((writes, fault));
    }

    /// The number of writes, including failed ones.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// The maximum number of batches that a crash would lose.
    pub(crate) fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// Makes writes wait until the returned guard is dropped.
    #[must_use]
    pub(crate) fn hold(&self) -> WriteHold {
        self.state().holds += 1;
        WriteHold(self.clone())
    }

    /// Ends this store and returns the one that exists after the crash: the synced writes, and the
    /// first `kept` of the unsynced batches. Later writes to this store fail, including waiting
    /// ones.
    pub(crate) fn crash(&self, kept: usize) -> Self {
        let mut state = self.state();
        state.failed = Some("the machine has crashed");
        let mut synced = state.synced.clone();
        for batch in state.unsynced.iter().take(kept) {
            synced.apply(batch);
        }
        self.0.changed.notify_all();
        let found = MemoryState {
            current: Arc::new(synced.clone()),
            synced,
            ..MemoryState::default()
        };
        Self(Arc::new(MemoryShared {
            state: Mutex::new(found),
            changed: Condvar::new(),
        }))
    }

    /// A panic with the lock is a bug of the test. Later calls should report more instead of
    /// hanging.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.state.lock()
    }

    fn tables(&self) -> Arc<MemoryTables> {
        Arc::clone(&self.state().current)
    }
}

/// Writes to the store wait as long as this exists.
#[derive(Debug)]
pub(crate) struct WriteHold(MemoryStore);

impl WriteHold {
    /// Blocks until a write waits.
    pub(crate) fn until_a_write_waits(&self) {
        let mut state = self.0.state();
        while state.waiting == 0 {
            self.0.0.changed.wait(&mut state);
        }
    }
}

impl Drop for WriteHold {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
        self.0.0.changed.notify_all();
    }
}

impl MemoryState {
    fn fault(&self, write: u64) -> Option<WriteFault> {
        self.faults
            .iter()
            .rev()
            .find(|(writes, _)| writes.contains(&write))
            .map(|(_, fault)| *fault)
    }

    fn sync(&mut self, batch: &Batch) {
        for earlier in std::mem::take(&mut self.unsynced) {
            self.synced.apply(&earlier);
        }
        self.synced.apply(batch);
    }
}

impl Store for MemoryStore {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut state = self.state();
        let fault = state.fault(state.writes);
        state.writes += 1;
        state.waiting += 1;
        self.0.changed.notify_all();
        while state.holds > 0 && state.failed.is_none() {
            self.0.changed.wait(&mut state);
        }
        state.waiting -= 1;
        if let Some(failed) = state.failed {
            return Err(StoreError::Failed(failed.to_owned()));
        }
        match fault {
            Some(WriteFault::Full) => return Err(StoreError::Full),
            Some(WriteFault::Failed) => {
                state.unsynced.push(batch.clone());
                state.failed = Some("an earlier sync failed");
                return Err(StoreError::Failed("the sync failed".to_owned()));
            }
            Some(WriteFault::Lie) => state.unsynced.push(batch.clone()),
            None => state.sync(batch),
        }
        Arc::make_mut(&mut state.current).apply(batch);
        Ok(())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self
            .state()
            .current
            .table(family)
            .records
            .get(key)
            .map(|record| record.value.clone()))
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        // A snapshot, without the lock: the visitor may call the store.
        let tables = self.tables();
        for (key, value) in tables.table(family).range(from, upper) {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        let tables = self.tables();
        let last = tables.table(family).range(lower, upper).next_back();
        Ok(last.map(|(key, value)| (key.to_vec(), value.clone())))
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        let mut state = self.state();
        state.synced.drop_log(partition, floor);
        Arc::make_mut(&mut state.current).drop_log(partition, floor);
        Ok(())
    }

    fn expire_ids(&self, now: Timestamp) {
        let mut state = self.state();
        state.synced.expire_ids(now);
        Arc::make_mut(&mut state.current).expire_ids(now);
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn is_full_despite_space(&self) -> bool {
        false
    }

    fn close(&self) -> Result<(), StoreError> {
        self.note_watermark()
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
struct MemoryTables([MemoryTable; Family::ALL.len()]);

#[derive(Clone, Debug, Default)]
struct MemoryTable {
    records: BTreeMap<Vec<u8>, MemoryRecord>,
    /// The kind of the table's deletes.
    removal: Option<RangeRemoval>,
}

#[derive(Clone, Debug)]
struct MemoryRecord {
    value: Bytes,
    /// The number of puts since its last delete.
    puts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeRemoval {
    Delete,
    Single,
}

impl MemoryTables {
    fn table(&self, family: Family) -> &MemoryTable {
        &self.0[family as usize]
    }

    fn apply(&mut self, batch: &Batch) {
        for op in &batch.without_outcomes().0 {
            match op {
                WriteOp::Outcomes(..) => panic!("these are records"),
                WriteOp::Put(family, key, value) => self.0[*family as usize].put(key, value),
                WriteOp::Delete(family, key) => {
                    let table = &mut self.0[*family as usize];
                    table.removes(RangeRemoval::Delete, *family);
                    table.records.remove(key);
                }
                WriteOp::SingleDelete(family, key) => {
                    let table = &mut self.0[*family as usize];
                    table.removes(RangeRemoval::Single, *family);
                    let puts = table.records.remove(key).map_or(0, |record| record.puts);
                    assert_eq!(
                        puts, 1,
                        "a SingleDelete in {family:?} of {key:?}, which was put {puts} times"
                    );
                }
            }
        }
    }

    fn drop_log(&mut self, partition: PartitionId, floor: Seq) {
        let below = keys::log_below(partition, floor);
        let gone = |key: &[u8], value: &[u8]| {
            let (_, first) = keys::parse_log(key)?;
            Some(chunk::end_of(first, value)? <= floor)
        };
        let table = &mut self.0[Family::Log as usize];
        let gone: Vec<_> = table
            .range(&below.start, &below.end)
            .filter(|(key, value)| gone(key, value) == Some(true))
            .map(|(key, _)| key.to_vec())
            .collect();
        for key in gone {
            table.records.remove(&key);
        }
        let ids = &mut self.0[Family::Ids as usize].records;
        ids.retain(|key, _| {
            keys::parse_ids(key)
                .is_none_or(|(of, block)| of != partition || id_filter::end_of(block) > floor)
        });
    }
}

impl MemoryTables {
    fn expire_ids(&mut self, now: Timestamp) {
        let ids = &mut self.0[Family::PublishedIds as usize].records;
        ids.retain(|_, record| {
            PublishedId::decode(&record.value).is_ok_and(|published| published.until > now)
        });
    }
}

impl MemoryTable {
    fn put(&mut self, key: &[u8], value: &Bytes) {
        match self.records.get_mut(key) {
            Some(record) => {
                record.value = value.clone();
                record.puts += 1;
            }
            None => {
                self.records.insert(
                    key.to_vec(),
                    MemoryRecord {
                        value: value.clone(),
                        puts: 1,
                    },
                );
            }
        }
    }

    fn removes(&mut self, removal: RangeRemoval, family: Family) {
        let known = *self.removal.get_or_insert(removal);
        assert_eq!(
            known, removal,
            "{family:?} sees both Delete and SingleDelete"
        );
    }

    fn range(&self, from: &[u8], upper: &[u8]) -> impl DoubleEndedIterator<Item = (&[u8], &Bytes)> {
        // A range that ends before it begins is empty, as in RocksDB.
        let from = from.min(upper);
        let range = self.records.range::<[u8], _>((
            std::ops::Bound::Included(from),
            std::ops::Bound::Excluded(upper),
        ));
        range.map(|(key, record)| (&key[..], &record.value))
    }
}
