//! Where in a log something begins: by bisection, in as many reads as a place has bits at the most.
//!
//! A chunk knows when it was appended and what stands before it, and neither ever decreases in a partition. So whatever is
//! asked of the one or the other has one place where the answer turns, and no chunk but those on the way there is read.
//! Sequences may have gaps, several chunks may have the same time, the log begins at its floor, and what a store still has
//! below that is looked at by nobody.

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

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Where.
    pub at: Seq,
    /// When the event there was appended; [`None`] at the end.
    pub appended: Option<Timestamp>,
}

/// The first place from the floor up to `end` whose chunk `is_passed` does not hold for; it holds for none behind it.
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

/// The same from `floor` on, whatever the floor is.
pub(super) fn between(
    store: &dyn Store,
    partition: PartitionId,
    floor: Seq,
    end: Seq,
    is_passed: impl Fn(&Chunk) -> bool,
) -> Result<LogPosition, StoreError> {
    let lowest = keys::log_of(partition).start;
    let mut found = LogPosition { at: end, appended: None };
    // Below `low` all is passed, from `high` on nothing is, or what is cannot be read.
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
