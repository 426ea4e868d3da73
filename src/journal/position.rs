//! Binary search for a position in a log.
//!
//! A chunk stores its time of append and the totals before it. Both never decrease within a partition, so a condition
//! on them has one position at which it changes, and only the chunks on the search path are read. Sequences may have
//! gaps, several chunks may have the same time, and chunks below the floor are ignored.

use crate::{
    event::{PartitionId, Seq, Timestamp},
    store::{
        Family, Store, StoreError,
        chunk::Chunk,
        keys,
        log::{chunk_of, walk},
        records::{FloorRecord, StoredRecord},
    },
};

/// A position in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The sequence.
    pub at: Seq,
    /// The time of append of the event there; [`None`] at the end of the log.
    pub appended: Option<Timestamp>,
}

/// The first position, from the floor to `end`, whose chunk does not satisfy `is_passed`. No later chunk may satisfy
/// it.
pub(super) fn position(
    store: &dyn Store,
    partition: PartitionId,
    end: Seq,
    is_passed: impl Fn(&Chunk) -> bool,
) -> Result<LogPosition, StoreError> {
    let floor = store.get(Family::Meta, &keys::floor(partition))?;
    let floor = floor
        .map(|floor| FloorRecord::decode(&floor))
        .transpose()
        .map_err(StoreError::damaged)?
        .unwrap_or_default()
        .floor;
    between(store, partition, floor, end, is_passed)
}

/// Like [`position`], with a given floor.
pub(super) fn between(
    store: &dyn Store,
    partition: PartitionId,
    floor: Seq,
    end: Seq,
    is_passed: impl Fn(&Chunk) -> bool,
) -> Result<LogPosition, StoreError> {
    let lowest = keys::log_of(partition).start;
    let mut found = LogPosition { at: end, appended: None };
    // All chunks below `low` are passed. From `high` on, none is passed, or all are unreadable.
    let (mut low, mut high) = (floor, end);
    while low < high {
        let middle = Seq(low.0 + (high.0 - low.0) / 2);
        let last = store.last(Family::Log, &lowest, &keys::log(partition, middle.plus(1)));
        let chunk = match last.and_then(|last| last.map(|(key, value)| chunk_of(&key, value)).transpose()) {
            Err(StoreError::Damaged(_)) if store.damage().is_some() => {
                let next = walk::next_chunk(store, partition, middle, high)?;
                if next.is_none() {
                    high = middle;
                    continue;
                }
                next
            }
            chunk => chunk?,
        };
        match chunk {
            Some(chunk) if chunk.end() > low && !is_passed(&chunk) => {
                found = LogPosition { at: chunk.first.max(low), appended: Some(chunk.appended) };
                high = found.at.min(middle);
            }
            Some(chunk) => low = chunk.end().max(middle.plus(1)),
            None => low = middle.plus(1),
        }
    }
    Ok(found)
}
