//! A store in memory, for tests: it keeps what was synced apart from what was not, and fails where it is told to.
//!
//! Invariants: what an honest store acknowledged survives [`Memory::crash`]; what is on the "disk" is always a prefix of
//! what was written, in whole batches; after a write that failed for any reason but space nothing is written any more.
//! Unlike RocksDB it drops a partition's log at once ([`Store::drop_log`]), so that a reader below the floor shows, and
//! it insists on the rule of SingleDelete: a family whose records are taken away by it sees no other delete, and a key
//! was put exactly once since it was last taken away. RocksDB would break that rule in silence.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{
    chunk, ids, keys,
    store::{Batch, Family, Op, Store, StoreError, Visit},
};
use crate::event::{PartitionId, Seq};

/// What a write is to meet with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no space: nothing is written.
    Full,
    /// The sync fails: whether the batch is there shows after the next crash, and nothing is written any more.
    Failed,
    /// The disk lies: the write is acknowledged, and lost at a crash, unless a later honest write syncs it too.
    Lie,
}

/// A store in memory. A clone is another handle of the same store.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when a write begins to wait, and when it may go on.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What readers see.
    current: Arc<Tables>,
    /// What would be left after a crash.
    synced: Tables,
    /// What was written since, in order.
    unsynced: Vec<Batch>,
    faults: Vec<(Range<u64>, Fault)>,
    writes: u64,
    failed: Option<&'static str>,
    holds: u32,
    waiting: u32,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The writes with the numbers `writes` (the first ever is 0) meet with `fault`. What was said last holds.
    pub fn fail(&self, writes: Range<u64>, fault: Fault) {
        self.state().faults.push((writes, fault));
    }

    /// How many writes were asked for, those that failed among them.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// How many batches would be lost at a crash, at most.
    pub fn unsynced(&self) -> usize {
        self.state().unsynced.len()
    }

    /// From now on writes wait until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.state().holds += 1;
        Hold(self.clone())
    }

    /// Ends this store and gives the one that is found after the crash: what was synced, and the first `kept` of the
    /// batches that were not. Writes to this one fail from now on, those that wait among them.
    pub fn crash(&self, kept: usize) -> Self {
        let mut state = self.state();
        state.failed = Some("the machine has crashed");
        let mut synced = state.synced.clone();
        for batch in state.unsynced.iter().take(kept) {
            synced.apply(batch);
        }
        self.0.changed.notify_all();
        let found = State { current: Arc::new(synced.clone()), synced, ..State::default() };
        Self(Arc::new(Shared { state: Mutex::new(found), changed: Condvar::new() }))
    }

    /// A panic under the lock is a broken rule of a test's own; later calls shall tell more, not hang.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.state().current)
    }
}

/// As long as it lives, writes to its store wait.
#[derive(Debug)]
pub struct Hold(Memory);

impl Hold {
    /// Waits until a write waits.
    pub fn until_a_write_waits(&self) {
        let mut state = self.0.state();
        while state.waiting == 0 {
            state = self.0.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
        self.0.0.changed.notify_all();
    }
}

impl State {
    fn fault(&self, write: u64) -> Option<Fault> {
        self.faults.iter().rev().find(|(writes, _)| writes.contains(&write)).map(|(_, fault)| *fault)
    }

    fn sync(&mut self, batch: &Batch) {
        for earlier in std::mem::take(&mut self.unsynced) {
            self.synced.apply(&earlier);
        }
        self.synced.apply(batch);
    }
}

impl Store for Memory {
    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut state = self.state();
        let fault = state.fault(state.writes);
        state.writes += 1;
        state.waiting += 1;
        self.0.changed.notify_all();
        while state.holds > 0 && state.failed.is_none() {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        if let Some(failed) = state.failed {
            return Err(StoreError::Failed(failed.to_owned()));
        }
        match fault {
            Some(Fault::Full) => return Err(StoreError::Full),
            Some(Fault::Failed) => {
                state.unsynced.push(batch.clone());
                state.failed = Some("an earlier sync failed");
                return Err(StoreError::Failed("the sync failed".to_owned()));
            }
            Some(Fault::Lie) => state.unsynced.push(batch.clone()),
            None => state.sync(batch),
        }
        Arc::make_mut(&mut state.current).apply(batch);
        Ok(())
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.state().current.of(family).records.get(key).map(|record| record.value.clone()))
    }

    fn scan(&self, family: Family, from: &[u8], upper: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        // As they stand now, and without the lock: what is visited may call the store again.
        let tables = self.tables();
        for (key, value) in tables.of(family).range(from, upper) {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, family: Family, lower: &[u8], upper: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        let tables = self.tables();
        let last = tables.of(family).range(lower, upper).next_back();
        Ok(last.map(|(key, value)| (key.to_vec(), value.clone())))
    }

    fn drop_log(&self, partition: PartitionId, floor: Seq) -> Result<(), StoreError> {
        let mut state = self.state();
        state.synced.drop_log(partition, floor);
        Arc::make_mut(&mut state.current).drop_log(partition, floor);
        Ok(())
    }

    /// There is no file to write it to: what a lying store loses is for its tests to find.
    fn is_short_of_space(&self) -> bool {
        false
    }

    fn close(&self) -> Result<(), StoreError> {
        self.note_watermark()
    }

    fn note_watermark(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The families.
#[derive(Clone, Debug, Default)]
struct Tables([Table; Family::ALL.len()]);

#[derive(Clone, Debug, Default)]
struct Table {
    records: BTreeMap<Vec<u8>, Record>,
    /// How its records are taken away.
    removal: Option<Removal>,
}

#[derive(Clone, Debug)]
struct Record {
    value: Bytes,
    /// How often it was put since it was last taken away.
    puts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Delete,
    Single,
}

impl Tables {
    fn of(&self, family: Family) -> &Table {
        &self.0[family as usize]
    }

    fn apply(&mut self, batch: &Batch) {
        for op in &batch.0 {
            match op {
                Op::Put(family, key, value) => self.0[*family as usize].put(key, value),
                Op::Delete(family, key) => {
                    let table = &mut self.0[*family as usize];
                    table.removes(Removal::Delete, *family);
                    table.records.remove(key);
                }
                Op::SingleDelete(family, key) => {
                    let table = &mut self.0[*family as usize];
                    table.removes(Removal::Single, *family);
                    let puts = table.records.remove(key).map_or(0, |record| record.puts);
                    assert_eq!(puts, 1, "a SingleDelete in {family:?} of {key:?}, which was put {puts} times");
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
            keys::parse_ids(key).is_none_or(|(of, block)| of != partition || ids::end_of(block) > floor)
        });
    }
}

impl Table {
    fn put(&mut self, key: &[u8], value: &Bytes) {
        match self.records.get_mut(key) {
            Some(record) => {
                record.value = value.clone();
                record.puts += 1;
            }
            None => {
                self.records.insert(key.to_vec(), Record { value: value.clone(), puts: 1 });
            }
        }
    }

    fn removes(&mut self, removal: Removal, family: Family) {
        let known = *self.removal.get_or_insert(removal);
        assert_eq!(known, removal, "{family:?} sees both Delete and SingleDelete");
    }

    fn range(&self, from: &[u8], upper: &[u8]) -> impl DoubleEndedIterator<Item = (&[u8], &Bytes)> {
        // A range that ends before it begins is empty, as it is in RocksDB.
        let from = from.min(upper);
        let range = self.records.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(upper)));
        range.map(|(key, record)| (&key[..], &record.value))
    }
}
