//! Reading the log of a partition from any store, around damage.
//!
//! A slice is bounded in bytes. Where an iterator stops at a damaged block, chunks are looked up
//! one by one (`walk`), so that only the events in damaged blocks are lost.

pub mod walk;

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::{Family, Store, StoreError, keys};
use gridhook_event::{
    Event, PartitionId, Seq,
    chunk::{Chunk, RunningTotals},
};

/// The end of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The sequence of the next event.
    pub next: Seq,
    /// Count and bytes of all events before it.
    pub running: RunningTotals,
}

/// A slice of a partition's log.
#[derive(Clone, Debug)]
pub struct LogSlice {
    /// The chunks, in order. The first may begin before the slice.
    pub chunks: Vec<Chunk>,
    /// End of the range that was read.
    pub upto: Seq,
    /// Whether the whole range is unreadable because of damage. Then there are no chunks, and the
    /// range is recorded in [`Damage`](crate::damage::Damage).
    pub is_missing: bool,
}

/// Reads a slice of the log from `from` to before `end`: about `bytes_max` bytes, and at least one
/// chunk.
///
/// If the store records damage, the slice ends before the first unreadable chunk. If it starts at
/// one, the slice is the gap.
pub fn read_log(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> Result<LogSlice, StoreError> {
    let Some(damage) = store.damage() else {
        let (slice, read) = scan_log(store, partition, from, end, bytes_max);
        return read.map(|()| slice);
    };
    if let Some(upto) = damage.gap_end(partition, from) {
        return Ok(LogSlice {
            chunks: Vec::new(),
            upto: upto.min(end),
            is_missing: true,
        });
    }
    let (slice, read) = scan_log(store, partition, from, end, bytes_max);
    match read {
        Ok(()) => Ok(slice),
        Err(StoreError::Damaged(_)) => match slice.chunks.last().map(Chunk::end_seq) {
            Some(upto) => Ok(LogSlice {
                upto: upto.min(end).max(from),
                ..slice
            }),
            None => walk::read_chunkwise(store, partition, from, end, bytes_max),
        },
        Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
    }
}

/// Reads with an iterator. Returns the chunks before an error as well as the error.
fn scan_log(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    end: Seq,
    bytes_max: usize,
) -> (LogSlice, Result<(), StoreError>) {
    let mut slice = LogSlice {
        chunks: Vec::new(),
        upto: end,
        is_missing: false,
    };
    let result = scan_chunks(store, partition, from, bytes_max, &mut slice);
    (slice, result)
}

/// Adds the chunks from `from` to the end of the slice. Lowers that end where they have
/// `bytes_max`.
fn scan_chunks(
    store: &dyn Store,
    partition: PartitionId,
    from: Seq,
    bytes_max: usize,
    LogSlice { chunks, upto, .. }: &mut LogSlice,
) -> Result<(), StoreError> {
    let end = *upto;
    let mut bytes = 0;
    let mut failure = None;
    let before = keys::log_of(partition).start;
    if let Some((key, value)) = store.last(Family::Log, &before, &keys::log(partition, from))? {
        let chunk = decode_chunk(&key, value)?;
        if chunk.end_seq() > from {
            bytes += chunk.bytes_len();
            chunks.push(chunk);
        }
    }
    store.scan(
        Family::Log,
        &keys::log(partition, from),
        &keys::log(partition, end),
        &mut |key, value| {
            if bytes >= bytes_max
                && let Some(last) = chunks.last()
            {
                *upto = last.end_seq();
                return ControlFlow::Break(());
            }
            match decode_chunk(key, Bytes::copy_from_slice(value)) {
                Ok(chunk) => {
                    bytes += chunk.bytes_len();
                    chunks.push(chunk);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        },
    )?;
    failure.map_or(Ok(()), Err)
}

/// Decodes a record of [`Family::Log`].
pub fn decode_chunk(key: &[u8], value: Bytes) -> Result<Chunk, StoreError> {
    let (_, first) = keys::parse_log(key)
        .ok_or_else(|| StoreError::damaged("a key of the log cannot be parsed"))?;
    Chunk::decode(first, value).map_err(StoreError::damaged)
}

/// Finds events by sequence: in the log, or else in [`Family::Carried`]. It keeps the chunk that it
/// read last, because events that are looked up together are often in the same chunk.
pub struct EventFinder<'a> {
    store: &'a dyn Store,
    partition: PartitionId,
    last: Vec<Event>,
    /// Whether reads leave the block cache as it is.
    skips_cache: bool,
}

impl<'a> EventFinder<'a> {
    pub fn new(store: &'a dyn Store, partition: PartitionId) -> Self {
        Self {
            store,
            partition,
            last: Vec::new(),
            skips_cache: false,
        }
    }

    /// Finds events without filling the block cache: for a caller that reads each chunk once.
    pub fn without_cache(store: &'a dyn Store, partition: PartitionId) -> Self {
        Self {
            skips_cache: true,
            ..Self::new(store, partition)
        }
    }

    /// Finds the event at `seq`. The event owns its bytes, so that one small event does not keep a
    /// whole chunk in memory.
    pub fn find_event(&mut self, seq: Seq) -> Result<Option<Event>, StoreError> {
        let range_of = |events: &[Event]| Some((events.first()?.seq, events.last()?.seq));
        if range_of(&self.last).is_none_or(|(first, last)| seq < first || last < seq) {
            self.last = self.read(seq)?;
        }
        let position = self.last.binary_search_by_key(&seq, |event| event.seq);
        Ok(position
            .ok()
            .map(|index| self.last[index].detach_from_chunk()))
    }

    fn read(&self, seq: Seq) -> Result<Vec<Event>, StoreError> {
        let range = keys::log_of(self.partition).start..keys::log(self.partition, seq.plus(1));
        let last_record = if self.skips_cache {
            self.store
                .last_uncached(Family::Log, &range.start, &range.end)
        } else {
            self.store.last(Family::Log, &range.start, &range.end)
        };
        let last_chunk = match last_record.and_then(|record| {
            record
                .map(|(key, value)| decode_chunk(&key, value))
                .transpose()
        }) {
            // An iterator also stops at damage in a neighbouring block, so look the chunk up by its
            // key.
            Err(StoreError::Damaged(what)) => {
                let is_lost = self
                    .store
                    .damage()
                    .is_some_and(|damage| damage.gap_end(self.partition, seq).is_some());
                let chunk = if is_lost {
                    None
                } else {
                    walk::chunk_containing(self.store, self.partition, seq)?
                };
                if chunk.is_none() && !self.is_carried(seq) {
                    return Err(StoreError::Damaged(what));
                }
                chunk
            }
            last_record => last_record?,
        };
        let chunk = match last_chunk {
            Some(chunk) if chunk.end_seq() > seq => Some(chunk),
            Some(_) | None => match self
                .store
                .get(Family::Carried, &keys::carried(self.partition, seq))?
            {
                Some(event) => Some(Chunk::decode(seq, event).map_err(StoreError::damaged)?),
                None => None,
            },
        };
        chunk.map_or(Ok(Vec::new()), |chunk| {
            chunk.decode_events().map_err(StoreError::damaged)
        })
    }

    fn is_carried(&self, seq: Seq) -> bool {
        matches!(
            self.store
                .get(Family::Carried, &keys::carried(self.partition, seq)),
            Ok(Some(_))
        )
    }

    /// Like [`EventFinder::find_event`], but if the store records damage, an unreadable event is
    /// recorded and returned as [`None`].
    pub fn find_if_readable(&mut self, seq: Seq) -> Result<Option<Event>, StoreError> {
        match (self.find_event(seq), self.store.damage()) {
            (Err(StoreError::Damaged(_)), Some(damage)) => {
                if !seq.is_apart() {
                    damage.record_loss(self.partition, seq, seq.plus(1));
                }
                Ok(None)
            }
            (found, _) => found,
        }
    }
}
