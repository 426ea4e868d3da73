//! Backlogs: how much of a partition's log waits for its slowest subscription, and what happens at
//! the limit.
//!
//! A backlog is the difference of two running byte counts: that of the end of the log, which the
//! writer knows, and that of the lowest low watermark, which is in the chunk there. The chunk is
//! read only if the last known count would make the backlog too large, and once for each value of
//! the watermark: a topic whose subscriptions keep up costs nothing, and a full one costs a read
//! for each step of its slowest subscription.
//!
//! Invariants: a backlog is never underestimated; only durable low watermarks count; a partition
//! whose subscriptions have all read it is never full, whatever its log keeps for replay or for
//! pending deliveries.

use super::GroupWriter;
use crate::{
    BacklogFullPolicy, CrowdedPartition, Error, Journal, WriterEntry,
    partition_state::{PartitionState, PassedEvents},
};
use gridhook_event::{PartitionId, Seq};
use gridhook_store::{Family, Store, StoreError, keys, log::decode_chunk};

/// Expiry of old events begins at seven eighths of the limit, so that publishers need not wait for
/// it.
const EXPIRE_FROM: u64 = 7;

/// Expiry reduces the backlog to six eighths of the limit, so that an eighth expires at once
/// instead of single events.
const EXPIRE_TO: u64 = 6;

impl Journal {
    /// Limits the backlog of a partition to one of `parts` equal parts of the limit: it is that of
    /// a spread topic.
    pub fn divide_backlog(&self, partition: PartitionId, parts: u32) {
        self.writer_for(partition)
            .queue
            .send_entry(WriterEntry::DivideBacklog {
                partition,
                parts: parts.max(1),
            });
    }
}

impl GroupWriter {
    /// Fails if the backlog of a partition is at its limit.
    pub(super) fn check_backlog(&mut self, id: PartitionId) -> Result<(), Error> {
        match self.update_backlog(id)? {
            Some(CrowdedPartition {
                laggard,
                is_full: true,
                ..
            }) => Err(Error::Backlog(laggard)),
            Some(CrowdedPartition { is_full: false, .. }) | None => Ok(()),
        }
    }

    /// Updates partitions that were at or near their limit.
    pub(super) fn update_crowded(
        &mut self,
        partitions: impl Iterator<Item = PartitionId>,
    ) -> Result<(), StoreError> {
        for id in partitions {
            if self.status.crowded_partition(id).is_some() {
                self.update_backlog(id)?;
            }
        }
        Ok(())
    }

    fn update_backlog(&mut self, id: PartitionId) -> Result<Option<CrowdedPartition>, StoreError> {
        let crowding = self.measure_backlog(id)?;
        if crowding != self.status.crowded_partition(id) {
            self.status.set_crowded_partition(id, crowding);
        }
        Ok(crowding)
    }

    fn measure_backlog(&mut self, id: PartitionId) -> Result<Option<CrowdedPartition>, StoreError> {
        let (Some(bound), Some(partition)) =
            (self.options.limits.backlog, self.partitions.get_mut(&id))
        else {
            return Ok(None);
        };
        let parts = self.backlog_parts.get(&id).copied().unwrap_or(1);
        let most = bound.bytes / u64::from(parts);
        let threshold = match bound.when_full {
            BacklogFullPolicy::Refuse => most,
            BacklogFullPolicy::Expire => most / 8 * EXPIRE_FROM,
        };
        if partition.backlog_bytes() < threshold {
            return Ok(None);
        }
        let lows = self.lows.get(&id).into_iter().flatten();
        let Some((laggard, low)) = lows
            .map(|(subscription, low)| (subscription, low.own))
            .min_by_key(|(_, low)| *low)
            .filter(|(_, low)| *low < partition.next)
        else {
            partition.passed = PassedEvents {
                low: partition.next,
                bytes: partition.running.bytes,
            };
            return Ok(None);
        };
        if partition.passed.low != low {
            let bytes = match bytes_before(&*self.store, id, partition, low) {
                // The last known count never underestimates the backlog.
                Err(StoreError::Damaged(_)) => partition.passed.bytes,
                bytes => bytes?,
            };
            partition.passed = PassedEvents { low, bytes };
        }
        let bytes = partition.backlog_bytes();
        let keep = match bound.when_full {
            BacklogFullPolicy::Refuse => None,
            BacklogFullPolicy::Expire => Some(most / 8 * EXPIRE_TO),
        };
        let crowding = CrowdedPartition {
            laggard: *laggard,
            bytes,
            is_full: bytes >= most,
            keep,
        };
        Ok(Some(crowding).filter(|_| bytes >= threshold))
    }
}

/// The bytes of the log before the chunk that contains `low`, or before the next chunk.
fn bytes_before(
    store: &dyn Store,
    id: PartitionId,
    partition: &PartitionState,
    low: Seq,
) -> Result<u64, StoreError> {
    let begin = keys::log_of(id).start;
    let Some((key, value)) = store.last(Family::Log, &begin, &keys::log(id, low.plus(1)))? else {
        // The log begins after `low`, is empty, or is not written yet.
        return Ok(partition.passed.bytes);
    };
    let chunk = decode_chunk(&key, value)?;
    Ok(if chunk.end_seq() > low {
        chunk.before.bytes
    } else {
        chunk.totals_after().bytes
    })
}
