//! Duplicate detection: a publish request is stored without the events whose ids were accepted within the window.
//!
//! Invariants:
//! - The record of an id is in the batch of its event, so after a crash both are there or neither is.
//! - Requests of one group know each other's ids, although none of them is written yet. If the group is not written, all
//!   of them are refused, and none of their ids is known.
//! - Nothing is kept in memory beyond a group.

use std::collections::HashMap;

use super::{CommitGroup, GroupWriter};
use crate::{DuplicateCheck, Error};
use gridhook_event::{PartitionId, Timestamp, chunk::SealedChunk};
use gridhook_store::{
    Family, StoreError, keys,
    records::{PublishedId, StoredRecord},
};

/// The ids of a group, by key.
pub(super) type GroupIds = HashMap<Vec<u8>, PublishedId>;

impl GroupWriter {
    /// Removes the duplicates from a request that is appended to `partition` at `now`. Returns the rest, and the number of
    /// duplicates.
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
        let (mut next, mut found, mut keep) = (partition.next, GroupIds::new(), Vec::with_capacity(check.ids.len()));
        for digest in &check.ids {
            let key = keys::published_id(id, *digest);
            let known = match found.get(&key).or_else(|| group.ids.get(&key)) {
                Some(known) => Some(*known),
                None => self.published_id(&key)?,
            };
            let known = known.filter(|known| is_paused || known.is_known(now, check.window));
            keep.push(known.is_none());
            let record = match known {
                Some(known) => PublishedId { duplicates: known.duplicates + 1, last: Some(now), ..known },
                None => PublishedId::new(next, now, check.window),
            };
            next = next.plus(known.is_none().into());
            found.insert(key, record);
        }
        let duplicates = keep.iter().filter(|keep| !**keep).count() as u32;
        let mut rest = chunks;
        if duplicates > 0 {
            let (mut kept, mut keep) = (Vec::new(), &keep[..]);
            for chunk in rest {
                let (these, others) = keep.split_at(chunk.count as usize);
                kept.extend(chunk.keep(these).map_err(|error| Error::Damaged(error.to_string()))?);
                keep = others;
            }
            rest = kept;
        }
        group.ids.extend(found);
        Ok((rest, duplicates))
    }

    /// The record of an id. One that cannot be read counts as missing: an event that arrives twice is better than one that
    /// is lost.
    fn published_id(&self, key: &[u8]) -> Result<Option<PublishedId>, Error> {
        let read = self.store.get(Family::PublishedIds, key);
        let read = read
            .and_then(|value| value.map(|value| PublishedId::decode(&value).map_err(StoreError::damaged)).transpose());
        match read {
            Err(StoreError::Damaged(what)) => {
                self.note_damage(Family::PublishedIds, &what);
                Ok(None)
            }
            read => Ok(read?),
        }
    }
}
