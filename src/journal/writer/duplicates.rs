//! Duplicate detection: a publish request is stored without the events whose ids were accepted
//! within the window.
//!
//! The records of the ids are looked up before a request comes here
//! ([`IdLookups`](crate::id_lookups::IdLookups)).
//!
//! Invariants:
//! - The record of an id is in the batch of its event, so after a crash both are there or neither
//!   is.
//! - Requests of one group know each other's ids, although none of them is written yet. If the
//!   group is not written, all of them are refused, and none of their ids is known.
//! - What was written since a lookup began counts before its result. The latest ids are in memory,
//!   of a bounded number; for a lookup that began before these, the writer reads the records again.

use std::collections::{HashMap, VecDeque};

use super::{CommitGroup, GroupWriter};
use crate::{DuplicateCheck, Error};
use gridhook_event::{PartitionId, Timestamp, chunk::SealedChunk};
use gridhook_store::{
    Family, StoreError, keys,
    records::{IdDigest, PublishedId, StoredRecord},
};

/// The number of written ids in memory: those of most of a second at a high rate, with about 200
/// bytes each.
const RECENT_MAX: usize = 32_768;

type IdKey = (PartitionId, IdDigest);

pub(super) type GroupIds = HashMap<IdKey, PublishedId>;

/// The ids that were written last, each with the version that it was written with.
#[derive(Debug, Default)]
pub(super) struct RecentIds {
    /// The number of writes with ids.
    version: u64,
    /// The first version of which all ids are here.
    complete_from: u64,
    ids: HashMap<IdKey, (u64, PublishedId)>,
    order: VecDeque<(u64, IdKey)>,
}

impl RecentIds {
    /// Adds the ids of a write. Returns its version.
    pub(super) fn add(&mut self, ids: GroupIds) -> u64 {
        self.version += 1;
        for (key, known) in ids {
            self.ids.insert(key, (self.version, known));
            self.order.push_back((self.version, key));
        }
        while self.order.len() > RECENT_MAX
            && let Some((version, key)) = self.order.pop_front()
        {
            self.complete_from = version + 1;
            if self
                .ids
                .get(&key)
                .is_some_and(|(latest, _)| *latest == version)
            {
                self.ids.remove(&key);
            }
        }
        self.version
    }

    /// The record of an id, of which a lookup at `version` has found `known`. [`None`] if the
    /// lookup is too old.
    fn resolve_id(
        &self,
        key: &IdKey,
        version: u64,
        known: Option<PublishedId>,
    ) -> Option<Option<PublishedId>> {
        match self.ids.get(key) {
            Some((_, latest)) => Some(Some(*latest)),
            None => (self.complete_from <= version + 1).then_some(known),
        }
    }
}

impl GroupWriter {
    /// Removes the duplicates from a request that is appended to `partition` at `now`. Returns the
    /// rest, and the number of duplicates.
    pub(super) fn remove_duplicates(
        &self,
        group: &mut CommitGroup,
        id: PartitionId,
        chunks: Vec<SealedChunk>,
        check: &DuplicateCheck,
        now: Timestamp,
    ) -> Result<(Vec<SealedChunk>, u32), Error> {
        let partition = self.partitions.get(&id).ok_or(Error::Unknown)?;
        let now = partition.append_time(&self.clock, now);
        // While the clock may be wrong, nothing ends by age, and no record is removed.
        let is_paused = self.clock.expiry_is_paused();
        let mut next = partition.next;
        let mut group_ids = GroupIds::new();
        let mut keep = Vec::with_capacity(check.ids.len());
        for (index, digest) in check.ids.iter().enumerate() {
            let key = (id, *digest);
            let previous = match group_ids.get(&key).or_else(|| group.ids.get(&key)) {
                Some(known) => Some(*known),
                None => self.find_published(&key, check, index)?,
            };
            let previous =
                previous.filter(|previous| is_paused || previous.is_known(now, check.window));
            keep.push(previous.is_none());
            let record = match previous {
                Some(previous) => PublishedId {
                    duplicates: previous.duplicates + 1,
                    last: Some(now),
                    ..previous
                },
                None => PublishedId::new(next, now, check.window),
            };
            next = next.plus(previous.is_none().into());
            group_ids.insert(key, record);
        }
        let duplicates = keep.iter().filter(|keep| !**keep).count() as u32;
        let mut rest = chunks;
        if duplicates > 0 {
            let mut kept = Vec::new();
            let mut keep = &keep[..];
            for chunk in rest {
                let (these, others) = keep.split_at(chunk.count as usize);
                kept.extend(
                    chunk
                        .keep_events(these)
                        .map_err(|error| Error::Damaged(error.to_string()))?,
                );
                keep = others;
            }
            rest = kept;
        }
        group.ids.extend(group_ids);
        Ok((rest, duplicates))
    }

    /// The record of the id of an event.
    fn find_published(
        &self,
        key: &IdKey,
        check: &DuplicateCheck,
        index: usize,
    ) -> Result<Option<PublishedId>, Error> {
        let lookup = check.known.as_ref().and_then(|known| {
            let record = known.records.get(index).copied()?;
            self.recent_ids.resolve_id(key, known.version, record)
        });
        match lookup {
            Some(record) => Ok(record),
            None => self.published_id(&keys::published_id(key.0, key.1)),
        }
    }

    /// The record of an id. One that cannot be read counts as missing: an event that arrives twice
    /// is better than one that is lost.
    fn published_id(&self, key: &[u8]) -> Result<Option<PublishedId>, Error> {
        let read = self.store.get(Family::PublishedIds, key);
        let read = read.and_then(|value| {
            value
                .map(|value| PublishedId::decode(&value).map_err(StoreError::damaged))
                .transpose()
        });
        match read {
            Err(StoreError::Damaged(what)) => {
                self.note_damage(Family::PublishedIds, &what);
                Ok(None)
            }
            read => Ok(read?),
        }
    }
}
