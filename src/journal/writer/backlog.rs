//! How much of a partition's log waits for its slowest subscription, and what follows where that is too much.
//!
//! A backlog is a difference of two running byte counts: that of the log's end, which the writer knows, and that of the
//! lowest of the low marks, which it looks up in the chunk there. It is looked up only where what was found last would make
//! the backlog too large, and once for each place of the mark: a topic that keeps up costs nothing, and one that is full a
//! read for each step of its laggard.
//!
//! Invariants: a backlog is never taken for smaller than it is; only durable low marks count; a partition that nobody lags
//! behind in is never full, whatever its log keeps for replay or holds for those who are owed.

use super::GroupWriter;
use crate::{
    event::{PartitionId, Seq},
    journal::{
        BacklogFullPolicy, CrowdedPartition, Error,
        partition_state::{PartitionState, PassedEvents},
    },
    store::{Family, Store, StoreError, keys, log::chunk_of},
};

/// Where old events are let go, that begins at seven eighths of the bound, so that publishers need not wait for it …
const PRESSED: u64 = 7;

/// … and leaves six: each time an eighth goes, and not a trickle.
const KEPT: u64 = 6;

impl GroupWriter {
    /// Whether one more request may be appended to a partition.
    pub(super) fn admit(&mut self, id: PartitionId) -> Result<(), Error> {
        match self.look_at_backlog(id)? {
            Some(CrowdedPartition { laggard, is_full: true, .. }) => Err(Error::Backlog(laggard)),
            Some(CrowdedPartition { is_full: false, .. }) | None => Ok(()),
        }
    }

    /// Those that were crowded may not be any more.
    pub(super) fn look_at_crowds(&mut self, partitions: impl Iterator<Item = PartitionId>) -> Result<(), StoreError> {
        for id in partitions {
            if self.status.crowd(id).is_some() {
                self.look_at_backlog(id)?;
            }
        }
        Ok(())
    }

    fn look_at_backlog(&mut self, id: PartitionId) -> Result<Option<CrowdedPartition>, StoreError> {
        let crowd = self.crowd(id)?;
        if crowd != self.status.crowd(id) {
            self.status.set_crowd(id, crowd);
        }
        Ok(crowd)
    }

    fn crowd(&mut self, id: PartitionId) -> Result<Option<CrowdedPartition>, StoreError> {
        let (Some(bound), Some(partition)) = (self.options.limits.backlog, self.partitions.get_mut(&id)) else {
            return Ok(None);
        };
        let pressed = match bound.when_full {
            BacklogFullPolicy::Refuse => bound.bytes,
            BacklogFullPolicy::Expire => bound.bytes / 8 * PRESSED,
        };
        if partition.backlog() < pressed {
            return Ok(None);
        }
        let lows = self.lows.get(&id).into_iter().flatten();
        let Some((laggard, low)) = lows
            .map(|(whose, low)| (whose, low.own))
            .min_by_key(|(_, low)| *low)
            .filter(|(_, low)| *low < partition.next)
        else {
            partition.passed = PassedEvents { low: partition.next, bytes: partition.running.bytes };
            return Ok(None);
        };
        if partition.passed.low != low {
            let bytes = match bytes_before(&*self.store, id, partition, low) {
                // No smaller than it is: what was known last stands.
                Err(StoreError::Damaged(_)) => partition.passed.bytes,
                bytes => bytes?,
            };
            partition.passed = PassedEvents { low, bytes };
        }
        let bytes = partition.backlog();
        let keep = match bound.when_full {
            BacklogFullPolicy::Refuse => None,
            BacklogFullPolicy::Expire => Some(bound.bytes / 8 * KEPT),
        };
        let crowd = CrowdedPartition { laggard: *laggard, bytes, is_full: bytes >= bound.bytes, keep };
        Ok(Some(crowd).filter(|_| bytes >= pressed))
    }
}

/// How many bytes stand before the chunk with the event at `low`, or before the first one behind it.
fn bytes_before(store: &dyn Store, id: PartitionId, partition: &PartitionState, low: Seq) -> Result<u64, StoreError> {
    let begin = keys::log_of(id).start;
    let Some((key, value)) = store.last(Family::Log, &begin, &keys::log(id, low.plus(1)))? else {
        // What is there begins behind it: a log of a group that is not written yet, or of none.
        return Ok(partition.passed.bytes);
    };
    let chunk = chunk_of(&key, value)?;
    Ok(if chunk.end() > low { chunk.before.bytes } else { chunk.after().bytes })
}
