//! The log where an iterator cannot go: chunk by chunk, each looked up by its key, around what is damaged.

use super::{LogSlice, chunk_of};
use crate::{
    event::{PartitionId, Seq},
    store::{Family, Store, StoreError, chunk::Chunk, damage, keys},
};

/// More events than any chunk has: whoever looks for the chunk that an event is in goes back no further.
const CHUNK_EVENTS_MAX: u64 = 8192;

/// So many places are looked at in one slice: a table whose index is damaged has no more readable chunks at all.
pub(crate) const LOOKS_MAX: u64 = 16_384;

/// What is at a place of the log.
enum WalkPosition {
    Chunk(Chunk),
    Nothing,
    Damaged,
}

/// A slice of the log from `from` on, as [`super::read_log`] reads it: a gap is a slice of its own.
pub(crate) fn walk(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> Result<LogSlice, StoreError> {
    let (mut chunks, mut bytes, mut at) = (Vec::new(), 0, from);
    if let Some(chunk) = around(store, partition, from)? {
        (at, bytes) = (chunk.end(), chunk.bytes_len());
        chunks.push(chunk);
    }
    while at < end && (bytes < bytes_max || chunks.is_empty()) {
        match look(store, partition, at)? {
            WalkPosition::Chunk(chunk) => {
                (at, bytes) = (chunk.end(), bytes + chunk.bytes_len());
                chunks.push(chunk);
            }
            WalkPosition::Nothing | WalkPosition::Damaged if chunks.is_empty() => {
                return gap(store, partition, from, end);
            }
            WalkPosition::Nothing | WalkPosition::Damaged => break,
        }
    }
    Ok(LogSlice { chunks, upto: at.min(end).max(from), is_missing: false })
}

/// From `from` on nothing can be read, up to the next place with a readable chunk.
fn gap(store: &dyn Store, partition: PartitionId, from: Seq, end: Seq) -> Result<LogSlice, StoreError> {
    // What is in no log, without any damage, was accepted as lost before.
    let mut is_missing = damage::follows_gap(store, partition, from);
    let mut at = from;
    while at < end && at.0 - from.0 < LOOKS_MAX {
        match look(store, partition, at)? {
            WalkPosition::Chunk(_) => break,
            WalkPosition::Nothing => {}
            WalkPosition::Damaged => is_missing = true,
        }
        at = at.plus(1);
    }
    if is_missing && let Some(damage) = store.damage() {
        damage.lose(partition, from, at);
    }
    Ok(LogSlice { chunks: Vec::new(), upto: at, is_missing })
}

/// The chunk that `seq` is in.
pub(crate) fn around(store: &dyn Store, partition: PartitionId, seq: Seq) -> Result<Option<Chunk>, StoreError> {
    for first in (seq.0.saturating_sub(CHUNK_EVENTS_MAX)..=seq.0).rev().map(Seq) {
        if let WalkPosition::Chunk(chunk) = look(store, partition, first)? {
            return Ok(Some(chunk).filter(|chunk| chunk.end() > seq));
        }
    }
    Ok(None)
}

/// The first chunk that begins at `from` or behind it, before `end`.
pub(crate) fn next_chunk(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
) -> Result<Option<Chunk>, StoreError> {
    for first in (from.0..end.0).take(LOOKS_MAX as usize).map(Seq) {
        if let WalkPosition::Chunk(chunk) = look(store, partition, first)? {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

fn look(store: &dyn Store, partition: PartitionId, first: Seq) -> Result<WalkPosition, StoreError> {
    let key = keys::log(partition, first);
    match store.get(Family::Log, &key).and_then(|value| value.map(|value| chunk_of(&key, value)).transpose()) {
        Ok(Some(chunk)) => Ok(if chunk.events().is_ok() { WalkPosition::Chunk(chunk) } else { WalkPosition::Damaged }),
        Ok(None) => Ok(WalkPosition::Nothing),
        Err(StoreError::Damaged(_)) => Ok(WalkPosition::Damaged),
        Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
    }
}
