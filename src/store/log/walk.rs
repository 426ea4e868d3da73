//! Reads the log chunk by chunk, each with a lookup by its key, to get around damaged blocks that
//! stop an iterator.

use super::{LogSlice, decode_chunk};
use crate::{Family, Store, StoreError, damage, keys};
use gridhook_event::{PartitionId, Seq, chunk::Chunk};

/// An upper bound of the events in a chunk. The search for the chunk of an event goes back no
/// further.
const CHUNK_EVENTS_MAX: u64 = 8192;

/// The maximum number of sequences that one slice looks up. In a table with a damaged index no
/// chunk is readable, so the search for the next one must be bounded.
pub const LOOKUPS_MAX: u64 = 16_384;

/// The result of looking up the chunk that starts at a sequence.
enum ChunkLookup {
    Chunk(Chunk),
    Nothing,
    Damaged,
}

/// Reads a slice of the log as [`super::read_log`] does. A gap is a slice of its own.
pub(super) fn read_chunkwise(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> Result<LogSlice, StoreError> {
    let mut chunks = Vec::new();
    let mut bytes = 0;
    let mut at = from;
    if let Some(chunk) = chunk_containing(store, partition, from)? {
        (at, bytes) = (chunk.end_seq(), chunk.bytes_len());
        chunks.push(chunk);
    }
    while at < end && (bytes < bytes_max || chunks.is_empty()) {
        match look_up(store, partition, at)? {
            ChunkLookup::Chunk(chunk) => {
                (at, bytes) = (chunk.end_seq(), bytes + chunk.bytes_len());
                chunks.push(chunk);
            }
            ChunkLookup::Nothing | ChunkLookup::Damaged if chunks.is_empty() => {
                return find_gap(store, partition, from, end);
            }
            ChunkLookup::Nothing | ChunkLookup::Damaged => break,
        }
    }
    Ok(LogSlice {
        chunks,
        upto: at.min(end).max(from),
        is_missing: false,
    })
}

/// Returns the gap that starts at `from` and ends at the next readable chunk.
fn find_gap(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
) -> Result<LogSlice, StoreError> {
    // Missing chunks without damage were accepted as lost by an earlier repair.
    let mut is_missing = damage::follows_gap(store, partition, from);
    let mut at = from;
    while at < end && at.0 - from.0 < LOOKUPS_MAX {
        match look_up(store, partition, at)? {
            ChunkLookup::Chunk(_) => break,
            ChunkLookup::Nothing => {}
            ChunkLookup::Damaged => is_missing = true,
        }
        at = at.plus(1);
    }
    if is_missing && let Some(damage) = store.damage() {
        damage.record_loss(partition, from, at);
    }
    Ok(LogSlice {
        chunks: Vec::new(),
        upto: at,
        is_missing,
    })
}

/// Finds the chunk that contains `seq`.
pub(super) fn chunk_containing(
    store: &dyn Store,
    partition: PartitionId,
    seq: Seq,
) -> Result<Option<Chunk>, StoreError> {
    for first in (seq.0.saturating_sub(CHUNK_EVENTS_MAX)..=seq.0)
        .rev()
        .map(Seq)
    {
        if let ChunkLookup::Chunk(chunk) = look_up(store, partition, first)? {
            return Ok(Some(chunk).filter(|chunk| chunk.end_seq() > seq));
        }
    }
    Ok(None)
}

/// Finds the first chunk that starts at `from` or later, before `end`.
pub fn next_chunk(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
) -> Result<Option<Chunk>, StoreError> {
    for first in (from.0..end.0).take(LOOKUPS_MAX as usize).map(Seq) {
        if let ChunkLookup::Chunk(chunk) = look_up(store, partition, first)? {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

fn look_up(
    store: &dyn Store,
    partition: PartitionId,
    first: Seq,
) -> Result<ChunkLookup, StoreError> {
    let key = keys::log(partition, first);
    match store
        .get(Family::Log, &key)
        .and_then(|value| value.map(|value| decode_chunk(&key, value)).transpose())
    {
        Ok(Some(chunk)) => Ok(if chunk.decode_events().is_ok() {
            ChunkLookup::Chunk(chunk)
        } else {
            ChunkLookup::Damaged
        }),
        Ok(None) => Ok(ChunkLookup::Nothing),
        Err(StoreError::Damaged(_)) => Ok(ChunkLookup::Damaged),
        Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
    }
}
