//! Binary search for a position in a log.
//!
//! A chunk stores its time of append and the totals before it. Both never decrease within a
//! partition, so a condition on them has one position at which it changes, and only the chunks on
//! the search path are read. Sequences may have gaps, several chunks may have the same time, and
//! chunks below the floor are ignored.
//!
//! Times decrease once where a wrong clock was corrected ([`FloorRecord::set_back`]). An event
//! before that place is at least as old as the first one behind it, whatever its own time says.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use gridhook_event::{PartitionId, Seq, Timestamp, chunk::Chunk};
use gridhook_store::{
    Family, Store, StoreError, keys,
    log::{decode_chunk, walk},
    records::{FloorRecord, StoredRecord},
};

/// A place in a partition's log, which may be its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The sequence of the event there, or of the next one that is appended.
    pub at: Seq,
    /// The time of append of the event there; [`None`] at the end of the log.
    pub appended: Option<Timestamp>,
}

/// The first position, from the floor to `end`, that was appended at `time` or later.
pub(super) fn find_position_since(
    store: &dyn Store,
    partition: PartitionId,
    end: Seq,
    time: Timestamp,
) -> Result<LogPosition, StoreError> {
    let FloorRecord {
        floor, set_back, ..
    } = floor_record(store, partition)?;
    first_event_since(store, partition, floor..end, set_back, time)
}

/// Like [`find_position_since`], with a given floor and the place where the clock was corrected.
pub(super) fn first_event_since(
    store: &dyn Store,
    partition: PartitionId,
    range: Range<Seq>,
    set_back: Option<Seq>,
    time: Timestamp,
) -> Result<LogPosition, StoreError> {
    let is_passed = |chunk: &Chunk| chunk.appended < time;
    let Some(split) = set_back.filter(|split| range.contains(split)) else {
        return find_position_from(store, partition, range.start, range.end, is_passed);
    };
    let is_first_passed =
        first_chunk(store, partition, split..range.end)?.is_some_and(|chunk| is_passed(&chunk));
    if !is_first_passed {
        let position = find_position_from(store, partition, range.start, split, is_passed)?;
        if position.appended.is_some() {
            return Ok(position);
        }
    }
    find_position_from(store, partition, split, range.end, is_passed)
}

/// The first chunk in a range; [`None`] if it has none, or one that cannot be read.
fn first_chunk(
    store: &dyn Store,
    partition: PartitionId,
    range: Range<Seq>,
) -> Result<Option<Chunk>, StoreError> {
    let start = keys::log(partition, range.start);
    let end = keys::log(partition, range.end);
    let mut first = None;
    let result = store.scan(Family::Log, &start, &end, &mut |key, value| {
        first = decode_chunk(key, Bytes::copy_from_slice(value)).ok();
        ControlFlow::Break(())
    });
    match result {
        Ok(()) => Ok(first),
        Err(StoreError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first position, from the floor to `end`, whose chunk does not satisfy `is_passed`. No later
/// chunk may satisfy it.
pub(super) fn find_position(
    store: &dyn Store,
    partition: PartitionId,
    end: Seq,
    is_passed: impl Fn(&Chunk) -> bool,
) -> Result<LogPosition, StoreError> {
    find_position_from(
        store,
        partition,
        floor_record(store, partition)?.floor,
        end,
        is_passed,
    )
}

fn floor_record(store: &dyn Store, partition: PartitionId) -> Result<FloorRecord, StoreError> {
    let record = store.get(Family::Meta, &keys::floor_key(partition))?;
    let record = record
        .map(|record| FloorRecord::decode(&record))
        .transpose()
        .map_err(StoreError::damaged)?;
    Ok(record.unwrap_or_default())
}

/// Like [`find_position`], with a given floor.
pub(super) fn find_position_from(
    store: &dyn Store,
    partition: PartitionId,
    floor: Seq,
    end: Seq,
    is_passed: impl Fn(&Chunk) -> bool,
) -> Result<LogPosition, StoreError> {
    let lowest = keys::log_of(partition).start;
    let mut position = LogPosition {
        at: end,
        appended: None,
    };
    // All chunks below `low` are passed. From `high` on, none is passed, or all are unreadable.
    let mut low = floor;
    let mut high = end;
    while low < high {
        let middle = Seq(low.0 + (high.0 - low.0) / 2);
        let last = store.last(Family::Log, &lowest, &keys::log(partition, middle.plus(1)));
        let chunk = match last.and_then(|last| {
            last.map(|(key, value)| decode_chunk(&key, value))
                .transpose()
        }) {
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
            Some(chunk) if chunk.end_seq() > low && !is_passed(&chunk) => {
                position = LogPosition {
                    at: chunk.first.max(low),
                    appended: Some(chunk.appended),
                };
                high = position.at.min(middle);
            }
            Some(chunk) => low = chunk.end_seq().max(middle.plus(1)),
            None => low = middle.plus(1),
        }
    }
    Ok(position)
}
