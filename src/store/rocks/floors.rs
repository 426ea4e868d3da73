//! The compaction filter: it removes chunks of the log, and blocks of ids, that lie completely
//! below their partition's floor, and published ids whose window of duplicate detection has ended.
//!
//! Invariants: a floor only rises; a removed record is below a floor that was durable before
//! [`PartitionFloors::raise_floor`] was called; a chunk that reaches over the floor, or that cannot
//! be read, is kept. Each compaction uses the floors as they were when it began; they can only have
//! risen since.

use std::{
    collections::HashMap,
    ffi::CStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use rocksdb::{
    CompactionDecision,
    compaction_filter::CompactionFilter,
    compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory},
};

use crate::{
    id_filter, keys,
    records::{FloorRecord, PublishedId, StoredRecord},
};
use gridhook_event::{PartitionId, Seq, Timestamp, chunk};

/// The floor of every partition that has one, and the time up to which windows of duplicate
/// detection have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionFloors {
    floors: Arc<RwLock<Arc<HashMap<PartitionId, Seq>>>>,
    ids_until: Arc<AtomicU64>,
}

impl PartitionFloors {
    /// Raises a floor. A lower one is ignored.
    pub(super) fn raise_floor(&self, partition: PartitionId, floor: Seq) {
        // Every change is one insert, so the map is consistent even if a thread panicked with the
        // lock.
        let mut floors = self.floors.write();
        let current = Arc::make_mut(&mut *floors).entry(partition).or_default();
        *current = floor.max(*current);
    }

    /// Published ids whose windows have ended at `now` may be removed.
    pub(super) fn expire_ids(&self, now: Timestamp) {
        self.ids_until.store(now.0, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Arc<HashMap<PartitionId, Seq>> {
        Arc::clone(&self.floors.read())
    }
}

impl CompactionFilterFactory for PartitionFloors {
    type Filter = FloorFilter;

    fn create(&mut self, _: CompactionFilterContext) -> FloorFilter {
        FloorFilter {
            floors: self.snapshot(),
            ids_until: Timestamp(self.ids_until.load(Ordering::Relaxed)),
        }
    }

    fn name(&self) -> &CStr {
        c"gridhook.floors"
    }
}

pub(super) struct FloorFilter {
    floors: Arc<HashMap<PartitionId, Seq>>,
    ids_until: Timestamp,
}

impl FloorFilter {
    fn decide_removal(&self, key: &[u8], value: &[u8]) -> Option<bool> {
        if let Some((partition, block)) = keys::parse_ids(key) {
            return Some(id_filter::end_of(block) <= *self.floors.get(&partition)?);
        }
        if let Some((partition, _)) = keys::parse_published_id(key) {
            return Some(
                self.floors.get(&partition) == Some(&FloorRecord::ABANDONED)
                    || PublishedId::decode(value).ok()?.until <= self.ids_until,
            );
        }
        let (partition, first) = keys::parse_log(key)?;
        let floor = *self.floors.get(&partition)?;
        // The key alone is enough for most chunks that are kept.
        Some(first < floor && chunk::end_of(first, value)? <= floor)
    }
}

impl CompactionFilter for FloorFilter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        match self.decide_removal(key, value) {
            Some(true) => CompactionDecision::Remove,
            Some(false) | None => CompactionDecision::Keep,
        }
    }

    fn name(&self) -> &CStr {
        c"gridhook.below-floor"
    }
}
