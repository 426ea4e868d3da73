//! Bloom filters of the event ids in each block of 4,096 sequences of a partition's log.
//!
//! ```text
//! version 1 | key 16 | bits 8192
//! ```
//!
//! The number after a field is its length in bytes.
//!
//! The writer builds a filter as it appends and writes it in the batch that completes the block. If
//! the process started in the middle of a block, another thread reads the first part of the block
//! from the log once the block is complete, and the filter is written then: once for each partition
//! and process. The open block, and one whose filter a crash has prevented, have none on disk and
//! are searched in the log.
//!
//! Invariants:
//! - A filter contains every id of its block. It has 16 bits for each id and sets 8 of them: about
//!   one in 1,700 other ids is a false positive.
//! - Each block has its own random, secret key, so a publisher cannot choose ids that are false
//!   positives more often.
//! - Memory is bounded: beyond `OPEN_MAX` open blocks, all are forgotten and are read from the log
//!   when they are complete.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::keys;
use crate::{Batch, Family, Store, StoreError, log::read_log};
use gridhook_event::{IdMap, PartitionId, Seq, chunk::Chunk, codec::RecordReader};
use gridhook_policy::record::LEDGER_BLOCK;

/// The version of the record.
const VERSION: u8 = 1;

/// 8 KiB: 16 bits for each of 4,096 ids, so that a bit's index is two bytes of a hash.
const BYTES: usize = 8192;

/// The length of version and key.
const HEAD: usize = 1 + 16;

/// The maximum number of open blocks: 32 MiB.
const OPEN_MAX: usize = 4096;

/// Bytes of the log that are read at once.
const SLICE_BYTES: usize = 1 << 20;

/// The block of an event.
pub fn block_of(seq: Seq) -> u64 {
    seq.0 / LEDGER_BLOCK
}

/// The sequence after the last event of a block.
pub fn end_of(block: u64) -> Seq {
    Seq(block.saturating_add(1).saturating_mul(LEDGER_BLOCK))
}

/// The Bloom filter of the ids in a block.
#[derive(Clone, Debug)]
pub struct IdFilter {
    key: [u8; 16],
    bits: Vec<u8>,
}

impl Default for IdFilter {
    /// An empty filter with a random key.
    fn default() -> Self {
        let random = || RandomState::new().build_hasher().finish().to_be_bytes();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&random());
        key[8..].copy_from_slice(&random());
        Self {
            key,
            bits: vec![0; BYTES],
        }
    }
}

impl IdFilter {
    pub fn insert(&mut self, id: &str) {
        for bit in self.bit_indexes(id) {
            self.bits[usize::from(bit >> 3)] |= 1 << (bit & 7);
        }
    }

    /// Whether an id may be in the block.
    pub fn may_have(&self, id: &str) -> bool {
        self.bit_indexes(id)
            .into_iter()
            .all(|bit| self.bits[usize::from(bit >> 3)] & 1 << (bit & 7) != 0)
    }

    fn bit_indexes(&self, id: &str) -> [u16; 8] {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(id.as_bytes());
        let hash = u128::from(hasher.finish128());
        std::array::from_fn(|index| (hash >> (16 * index)) as u16)
    }

    pub fn encode(&self) -> Vec<u8> {
        [&[VERSION], &self.key[..], &self.bits].concat()
    }

    /// Decodes a record; [`None`] if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = RecordReader::new(bytes);
        if reader.u8()? != VERSION || bytes.len() != HEAD + BYTES {
            return None;
        }
        let key = reader.take(16)?.try_into().ok()?;
        Some(Self {
            key,
            bits: reader.take(BYTES)?.to_vec(),
        })
    }
}

/// A block that is being filled.
#[derive(Debug)]
pub struct OpenBlock {
    pub block: u64,
    /// The filter contains the ids from this sequence on.
    from: Seq,
    ids: IdFilter,
}

impl OpenBlock {
    fn starting_at(seq: Seq) -> Self {
        Self {
            block: block_of(seq),
            from: seq,
            ids: IdFilter::default(),
        }
    }

    /// Whether the filter contains all ids of the block.
    fn is_whole(&self) -> bool {
        self.from <= Seq(self.block * LEDGER_BLOCK).max(Seq::FIRST)
    }

    /// Completes the filter with the ids that were appended before this process filled it.
    pub fn complete_filter(
        mut self,
        store: &dyn Store,
        id: PartitionId,
    ) -> Result<IdFilter, StoreError> {
        each_id(
            store,
            id,
            Seq(self.block * LEDGER_BLOCK),
            self.from,
            &mut |_, text| self.ids.insert(text),
        )?;
        Ok(self.ids)
    }
}

/// The open blocks, one for each partition that is appended to.
#[derive(Debug, Default)]
pub struct OpenBlocks {
    open: IdMap<PartitionId, OpenBlock>,
    /// Blocks that end in the batch, and whose first events the log has.
    partial: Vec<(PartitionId, OpenBlock)>,
}

impl OpenBlocks {
    /// Adds the ids of a chunk, and adds the filter of each block that it completes to `batch`. If
    /// `batch` is not written, [`OpenBlocks::forget_partition`] must be called.
    pub fn append_ids(&mut self, batch: &mut Batch, id: PartitionId, chunk: &Chunk) {
        let mut complete_blocks = Vec::new();
        let open = self
            .open
            .entry(id)
            .or_insert_with(|| OpenBlock::starting_at(chunk.first));
        let read = chunk.each_id(&mut |seq, text| {
            if block_of(seq) != open.block {
                complete_blocks.push(std::mem::replace(open, OpenBlock::starting_at(seq)));
            }
            open.ids.insert(text);
        });
        for open in complete_blocks {
            if open.is_whole() {
                batch.put(Family::Ids, keys::ids(id, open.block), open.ids.encode());
            } else {
                self.partial.push((id, open));
            }
        }
        if let Err(error) = read {
            tracing::warn!(partition = id.0, %error, "could not read the ids of a chunk");
        }
    }

    /// The last append to a partition was not written.
    pub fn forget_partition(&mut self, id: PartitionId) {
        self.open.remove(&id);
        self.partial.retain(|(of, _)| *of != id);
    }

    /// The appends were written. Returns the blocks that ended with them and are to be completed
    /// from the log.
    pub fn take_completed(&mut self) -> Vec<(PartitionId, OpenBlock)> {
        if self.open.len() > OPEN_MAX {
            self.open.clear();
        }
        std::mem::take(&mut self.partial)
    }
}

/// The first event of a block, from `floor` on, whose id is missing in its filter.
pub fn find_missed(
    store: &dyn Store,
    id: PartitionId,
    block: u64,
    ids: &IdFilter,
    floor: Seq,
) -> Result<Option<Seq>, StoreError> {
    let mut first_missing = None;
    each_id(
        store,
        id,
        floor.max(Seq(block * LEDGER_BLOCK)),
        end_of(block),
        &mut |seq, text| {
            if first_missing.is_none() && !ids.may_have(text) {
                first_missing = Some(seq);
            }
        },
    )?;
    Ok(first_missing)
}

/// Visits the ids of the log from `from` to before `end`.
fn each_id(
    store: &dyn Store,
    id: PartitionId,
    from: Seq,
    end: Seq,
    visit: &mut dyn FnMut(Seq, &str),
) -> Result<(), StoreError> {
    let mut at = from;
    while at < end {
        let slice = read_log(store, id, at, end, SLICE_BYTES)?;
        for chunk in &slice.chunks {
            let ids = chunk.each_id(&mut |seq, text: &str| {
                if (at..end).contains(&seq) {
                    visit(seq, text);
                }
            });
            ids.map_err(StoreError::damaged)?;
        }
        at = slice.upto.max(at.plus(1));
    }
    Ok(())
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundIds {
    /// The sequences of the events with the id, ascending.
    pub seqs: Vec<Seq>,
    /// The end of the range that was searched.
    pub upto: Seq,
}

/// The maximum number of blocks in one search.
const BLOCKS_MAX: usize = 1024;

/// The maximum bytes of the log that one search reads.
const SEARCH_BYTES: usize = 8 << 20;

/// Searches for an id in the log of a partition from `from` to `end`, or to the limits of one
/// search.
pub fn find_id(
    store: &dyn Store,
    partition: PartitionId,
    wanted: &str,
    from: Seq,
    end: Seq,
) -> Result<FoundIds, StoreError> {
    let mut matches = FoundIds {
        seqs: Vec::new(),
        upto: from,
    };
    let mut blocks = 0;
    let mut bytes = 0;
    while matches.upto < end && blocks < BLOCKS_MAX && bytes < SEARCH_BYTES {
        let at = matches.upto;
        let behind = end_of(block_of(at)).min(end);
        blocks += 1;
        let ids = store.get(Family::Ids, &keys::ids(partition, block_of(at)))?;
        let ids = ids
            .map(|ids| {
                IdFilter::decode(&ids).ok_or_else(|| {
                    StoreError::damaged("the id filter of a block cannot be decoded")
                })
            })
            .transpose()?;
        if ids.is_some_and(|ids| !ids.may_have(wanted)) {
            matches.upto = behind;
            continue;
        }
        let slice = read_log(store, partition, at, behind, SLICE_BYTES)?;
        for chunk in &slice.chunks {
            bytes += chunk.bytes_len();
            let ids = chunk.each_id(&mut |seq, text: &str| {
                if (at..behind).contains(&seq) && text == wanted {
                    matches.seqs.push(seq);
                }
            });
            ids.map_err(StoreError::damaged)?;
        }
        matches.upto = slice.upto.max(at.plus(1));
    }
    Ok(matches)
}

/// Searches for an id among the carried events of a partition from `from` to `floor`, or to the
/// limits of one search.
pub fn find_carried(
    store: &dyn Store,
    partition: PartitionId,
    wanted: &str,
    from: Seq,
    floor: Seq,
) -> Result<FoundIds, StoreError> {
    let mut matches = FoundIds {
        seqs: Vec::new(),
        upto: floor,
    };
    let mut bytes = 0;
    let mut bad = None;
    store.scan(
        Family::Carried,
        &keys::carried(partition, from),
        &keys::carried(partition, floor),
        &mut |key, value| {
            let Some((_, seq)) = keys::parse_carried(key) else {
                return std::ops::ControlFlow::Continue(());
            };
            if bytes >= SEARCH_BYTES {
                matches.upto = seq;
                return std::ops::ControlFlow::Break(());
            }
            bytes += value.len();
            let chunk = Chunk::decode(seq, Bytes::copy_from_slice(value));
            let read = chunk.and_then(|chunk| {
                chunk.each_id(&mut |seq, text| {
                    if text == wanted {
                        matches.seqs.push(seq);
                    }
                })
            });
            match read {
                Ok(()) => std::ops::ControlFlow::Continue(()),
                Err(error) => {
                    bad = Some(StoreError::damaged(error));
                    std::ops::ControlFlow::Break(())
                }
            }
        },
    )?;
    bad.map_or(Ok(matches), Err)
}
