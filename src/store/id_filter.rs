//! Which event ids may be in which block of a partition's log: a Bloom filter for each 4,096 sequences.
//!
//! ```text
//! version 1 | key 16 | bits 8192
//! ```
//!
//! The writer makes it as it appends, and puts it into the batch that closes the block. What it does not know of a block,
//! because a process began in its midst, it reads from the log at that moment: once for each partition and process. So every
//! closed block has one, and the open block, of which nothing is on disk, is looked through.
//!
//! Invariants:
//! - No id of a block is missing from its filter. 16 bits for an id and 8 of them set: one in 1,700 others is taken for one.
//! - Each block has a key of its own, drawn by chance and told nobody: ids that a publisher made up on purpose are no more
//!   often taken for others than any.
//! - Memory is bounded: beyond `OPEN_MAX` blocks in the making are forgotten, and read from the log when they close.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
};

use bytes::Bytes;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::{chunk::Chunk, codec::RecordReader, keys};
use crate::{
    event::{PartitionId, Seq},
    policy::record::LEDGER_BLOCK,
    store::{Batch, Family, Store, StoreError, log::read_log},
};

/// The version of the record.
const VERSION: u8 = 1;

/// 8 KiB: 16 bits for each id, so that a place is two bytes of a hash.
const BYTES: usize = 8192;

/// Version and key.
const HEAD: usize = 1 + 16;

/// 32 MiB of blocks in the making.
const OPEN_MAX: usize = 4096;

/// So much of a block's log is read at once.
const SLICE_BYTES: usize = 1 << 20;

/// Which block an event is in.
pub fn block_of(seq: Seq) -> u64 {
    seq.0 / LEDGER_BLOCK
}

/// Behind the last event of a block.
pub fn end_of(block: u64) -> Seq {
    Seq(block.saturating_add(1).saturating_mul(LEDGER_BLOCK))
}

/// The ids of a block, as a filter.
#[derive(Clone, Debug)]
pub struct IdFilter {
    key: [u8; 16],
    bits: Vec<u8>,
}

impl Default for IdFilter {
    /// Of no events, with a key of its own.
    fn default() -> Self {
        let jitter = || RandomState::new().build_hasher().finish().to_be_bytes();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&jitter());
        key[8..].copy_from_slice(&jitter());
        Self { key, bits: vec![0; BYTES] }
    }
}

impl IdFilter {
    /// An id is among them.
    pub fn insert(&mut self, id: &str) {
        for place in self.places(id) {
            self.bits[usize::from(place >> 3)] |= 1 << (place & 7);
        }
    }

    /// Whether an id may be among them.
    pub fn may_have(&self, id: &str) -> bool {
        self.places(id).into_iter().all(|place| self.bits[usize::from(place >> 3)] & 1 << (place & 7) != 0)
    }

    fn places(&self, id: &str) -> [u16; 8] {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(id.as_bytes());
        let hash = u128::from(hasher.finish128());
        std::array::from_fn(|place| (hash >> (16 * place)) as u16)
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        [&[VERSION], &self.key[..], &self.bits].concat()
    }

    /// What `bytes` are; [`None`] where they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = RecordReader::new(bytes);
        if reader.u8()? != VERSION || bytes.len() != HEAD + BYTES {
            return None;
        }
        let key = reader.take(16)?.try_into().ok()?;
        Some(Self { key, bits: reader.take(BYTES)?.to_vec() })
    }
}

/// A block in the making.
#[derive(Debug)]
struct OpenBlock {
    block: u64,
    /// The ids from here on are in.
    from: Seq,
    ids: IdFilter,
}

/// The blocks in the making, one for each partition that is appended to.
#[derive(Debug, Default)]
pub(crate) struct OpenBlocks(HashMap<PartitionId, OpenBlock>);

impl OpenBlocks {
    /// Takes what is appended, and puts into `batch` the filter of each block that it closes. Nothing of it may be lost
    /// before [`OpenBlocks::forget`] is called.
    pub(crate) fn append(&mut self, store: &dyn Store, batch: &mut Batch, id: PartitionId, chunk: &Chunk) {
        let mut closed = Vec::new();
        let begin = |seq: Seq| OpenBlock { block: block_of(seq), from: seq, ids: IdFilter::default() };
        let open = self.0.entry(id).or_insert_with(|| begin(chunk.first));
        let read = chunk.each_id(&mut |seq, text| {
            if block_of(seq) != open.block {
                closed.push(std::mem::replace(open, begin(seq)));
            }
            open.ids.insert(text);
        });
        for open in closed {
            let block = open.block;
            match complete(store, id, open) {
                Ok(ids) => batch.put(Family::Ids, keys::ids(id, block), ids.encode()),
                // Whoever searches looks through a block without a filter.
                Err(error) => tracing::warn!(partition = id.0, block, %error, "a block of ids is not closed"),
            }
        }
        if let Err(error) = read {
            tracing::warn!(partition = id.0, %error, "the ids of a chunk cannot be read");
        }
    }

    /// What was appended to a partition last is not on the disk.
    pub(crate) fn forget(&mut self, id: PartitionId) {
        self.0.remove(&id);
    }

    /// What was appended is on the disk.
    pub(crate) fn written(&mut self) {
        if self.0.len() > OPEN_MAX {
            self.0.clear();
        }
    }
}

/// The block with what was appended to it before its making began.
fn complete(
    store: &dyn Store,
    id: PartitionId,
    OpenBlock { block, from, mut ids }: OpenBlock,
) -> Result<IdFilter, StoreError> {
    each_id(store, id, Seq(block * LEDGER_BLOCK), from, &mut |_, text| ids.insert(text))?;
    Ok(ids)
}

/// The first event of a block from `floor` on whose id is not in its filter.
pub(crate) fn missed(
    store: &dyn Store,
    id: PartitionId,
    block: u64,
    ids: &IdFilter,
    floor: Seq,
) -> Result<Option<Seq>, StoreError> {
    let mut missed = None;
    each_id(store, id, floor.max(Seq(block * LEDGER_BLOCK)), end_of(block), &mut |seq, text| {
        if missed.is_none() && !ids.may_have(text) {
            missed = Some(seq);
        }
    })?;
    Ok(missed)
}

/// The ids of the log from `from` to before `end`.
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
            let mut look = |seq: Seq, text: &str| {
                if (at..end).contains(&seq) {
                    visit(seq, text);
                }
            };
            chunk.each_id(&mut look).map_err(StoreError::damaged)?;
        }
        at = slice.upto.max(at.plus(1));
    }
    Ok(())
}

/// Where events with an id are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundIds {
    /// Their places, ascending.
    pub seqs: Vec<Seq>,
    /// Everything below was looked at.
    pub upto: Seq,
}

/// So many blocks are asked in one look …
const BLOCKS_MAX: usize = 1024;

/// … and so much of the log is looked through.
const LOOK_BYTES: usize = 8 << 20;

/// Looks for an id in the log of a partition from `from` on, up to `end` or as far as one look goes.
pub(crate) fn find(
    store: &dyn Store,
    id: PartitionId,
    wanted: &str,
    from: Seq,
    end: Seq,
) -> Result<FoundIds, StoreError> {
    let mut found = FoundIds { seqs: Vec::new(), upto: from };
    let (mut blocks, mut bytes) = (0, 0);
    while found.upto < end && blocks < BLOCKS_MAX && bytes < LOOK_BYTES {
        let at = found.upto;
        let behind = end_of(block_of(at)).min(end);
        blocks += 1;
        let ids = store.get(Family::Ids, &keys::ids(id, block_of(at)))?;
        let ids = ids
            .map(|ids| IdFilter::decode(&ids).ok_or_else(|| StoreError::damaged("the ids of a block")))
            .transpose()?;
        if ids.is_some_and(|ids| !ids.may_have(wanted)) {
            found.upto = behind;
            continue;
        }
        let slice = read_log(store, id, at, behind, SLICE_BYTES)?;
        for chunk in &slice.chunks {
            bytes += chunk.bytes_len();
            let mut look = |seq: Seq, text: &str| {
                if (at..behind).contains(&seq) && text == wanted {
                    found.seqs.push(seq);
                }
            };
            chunk.each_id(&mut look).map_err(StoreError::damaged)?;
        }
        found.upto = slice.upto.max(at.plus(1));
    }
    Ok(found)
}

/// Looks for an id among the held events of a partition from `from` on, up to `floor` or as far as one look goes.
pub(crate) fn find_held(
    store: &dyn Store,
    id: PartitionId,
    wanted: &str,
    from: Seq,
    floor: Seq,
) -> Result<FoundIds, StoreError> {
    let mut found = FoundIds { seqs: Vec::new(), upto: floor };
    let (mut bytes, mut bad) = (0, None);
    store.scan(Family::Held, &keys::held(id, from), &keys::held(id, floor), &mut |key, value| {
        let Some((_, seq)) = keys::parse_held(key) else { return std::ops::ControlFlow::Continue(()) };
        if bytes >= LOOK_BYTES {
            found.upto = seq;
            return std::ops::ControlFlow::Break(());
        }
        bytes += value.len();
        let held = Chunk::decode(seq, Bytes::copy_from_slice(value));
        let read =
            held.and_then(|held| held.each_id(&mut |seq, text| found.seqs.extend((text == wanted).then_some(seq))));
        match read {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(error) => {
                bad = Some(StoreError::damaged(error));
                std::ops::ControlFlow::Break(())
            }
        }
    })?;
    bad.map_or(Ok(found), Err)
}
