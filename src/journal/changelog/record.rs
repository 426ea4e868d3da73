//! The bytes of a changelog's records.
//!
//! ```text
//! record:       header | body | crc32 of all before it 4
//! header:       format 1 | kind 1 | epoch 8 | number 8 | part 2 | parts 2 | previous 4
//! FENCE body:   incarnation 8 | name of the node
//! GROUP body:   operation*, or a part of these bytes
//! RELEASE body: empty
//! operation:    kind 1 | family 1 | length of the key | key
//!     | length of the value | value, both for a put only
//! ```
//!
//! The number behind a field is its length in bytes. Numbers are big-endian, lengths of keys and
//! values are varints. The epoch is the sequence of the owner's `FENCE`,
//! and `number` counts the owner's records behind it, so no two owners write the same bytes. A
//! batch over the limit is a chain of parts.
//!
//! A record has the oldest format that has what it says. Format 2 has a `FENCE` that knows what is
//! before it. A cluster writes a format once all nodes that run read it (`cluster::records`).
//!
//! Invariants, which [`ChainHead::follow`] checks:
//! - `previous` is the checksum of everything before the record: a record that was changed, left
//!   out or added is noticed at the next one. A `FENCE` that is appended behind whatever is last
//!   cannot know it and has 0 there, and so has every one of format 1. The checksum of a `FENCE` is
//!   combined with that of the records before it.
//! - A record has the epoch of the last `FENCE`. A record of an earlier owner behind it is an
//!   error.
//! - The parts of a batch are behind each other. A `FENCE` ends a chain that is not complete, and
//!   its batch was never acknowledged.

use bytes::Bytes;

use gridhook_event::codec::{RecordReader, put_varint};
use gridhook_store::{Batch, Family, WriteOp, records::AppliedPosition};

/// The first format.
pub const FIRST_FORMAT: u8 = 1;

/// The newest format that this program reads and writes.
pub const NEWEST_FORMAT: u8 = FENCE_FORMAT;

/// The format in which a `FENCE` knows what is before it.
pub const FENCE_FORMAT: u8 = 2;

/// The bytes of a record before its body.
const HEADER: usize = 26;

/// The bytes of the checksum behind the body.
const CHECKSUM: usize = 4;

/// The bytes of a record without its body.
pub const OVERHEAD: usize = HEADER + CHECKSUM;

/// The bytes of a `FENCE` before the name of the node.
const INCARNATION: usize = 8;

/// The kinds of records.
const FENCE: u8 = 1;
const GROUP: u8 = 2;
const RELEASE: u8 = 3;

/// Why a record does not continue the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRecord {
    /// Its checksum or its form is wrong.
    #[error("it is damaged")]
    Damaged,
    /// A newer version of gridhook wrote it.
    #[error("it has format {0}, and this program knows the formats up to {NEWEST_FORMAT}")]
    Newer(u8),
    /// The records before it are not those that its writer knew.
    #[error("the records before it were changed")]
    Chain,
    /// Its epoch is not that of the last fence.
    #[error("it is of epoch {found}, and the epoch is {epoch}")]
    Epoch {
        /// The epoch of the record.
        found: u64,
        /// The epoch of the last fence.
        epoch: u64,
    },
    /// A record or a part of a batch is left out.
    #[error("a record before it is missing")]
    Gap,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A node takes the shard. Its epoch begins.
    Fence {
        /// A number of this start of the process.
        incarnation: u64,
        /// The name of the node.
        node: String,
        /// Whether it has the records before this one.
        has_previous: bool,
    },
    /// A batch, or a part of one.
    Group {
        /// The number of the part, from 1.
        part: u16,
        /// The number of parts of the batch.
        parts: u16,
        /// The encoded puts and deletes of this part.
        operations: Bytes,
    },
    /// The owner gives the shard up. Nothing of its epoch follows.
    Release,
}

/// A record of a shard's changelog. Its number and checksum show whether it continues the records
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The epoch; 0 in a `FENCE`, whose sequence is the epoch.
    pub epoch: u64,
    /// The number within the epoch; 0 in a `FENCE`.
    pub number: u64,
    /// The checksum of the records before it; 0 in a `FENCE` that does not know them.
    pub previous: u32,
    /// The content: a fence, operations or a release.
    pub body: Body,
}

impl Record {
    /// The record with which a node takes a shard, and the checksum of the records before it if it
    /// is known.
    pub fn fence(node: &str, incarnation: u64, previous: Option<u32>) -> Self {
        Self {
            epoch: 0,
            number: 0,
            previous: previous.unwrap_or_default(),
            body: Body::Fence {
                incarnation,
                node: node.to_owned(),
                has_previous: previous.is_some(),
            },
        }
    }

    fn format(&self) -> u8 {
        match self.body {
            Body::Fence {
                has_previous: true, ..
            } => FENCE_FORMAT,
            Body::Fence { .. } | Body::Group { .. } | Body::Release => FIRST_FORMAT,
        }
    }

    /// Encodes it in the oldest format that can express it.
    pub fn encode(&self) -> Bytes {
        let (kind, part, parts) = match &self.body {
            Body::Fence { .. } => (FENCE, 0, 0),
            Body::Group { part, parts, .. } => (GROUP, *part, *parts),
            Body::Release => (RELEASE, 0, 0),
        };
        let mut out = Vec::with_capacity(OVERHEAD + self.body_len());
        out.extend_from_slice(&[self.format(), kind]);
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&part.to_be_bytes());
        out.extend_from_slice(&parts.to_be_bytes());
        out.extend_from_slice(&self.previous.to_be_bytes());
        match &self.body {
            Body::Fence {
                incarnation, node, ..
            } => {
                out.extend_from_slice(&incarnation.to_be_bytes());
                out.extend_from_slice(node.as_bytes());
            }
            Body::Group { operations, .. } => out.extend_from_slice(operations),
            Body::Release => {}
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out.into()
    }

    fn body_len(&self) -> usize {
        match &self.body {
            Body::Fence { node, .. } => INCARNATION + node.len(),
            Body::Group { operations, .. } => operations.len(),
            Body::Release => 0,
        }
    }

    /// [`BrokenRecord::Damaged`] if the checksum at the end is wrong.
    pub fn decode(bytes: &Bytes) -> Result<Self, BrokenRecord> {
        let body_end = bytes
            .len()
            .checked_sub(CHECKSUM)
            .ok_or(BrokenRecord::Damaged)?;
        if crc_of(bytes) != Some(crc32fast::hash(&bytes[..body_end])) {
            return Err(BrokenRecord::Damaged);
        }
        if bytes[0] > NEWEST_FORMAT {
            return Err(BrokenRecord::Newer(bytes[0]));
        }
        let record =
            Self::read_fields(bytes, body_end).filter(|record| record.format() == bytes[0]);
        record.ok_or(BrokenRecord::Damaged)
    }

    fn read_fields(bytes: &Bytes, body_end: usize) -> Option<Self> {
        let mut reader = RecordReader::new(&bytes[1..body_end]);
        let kind = reader.u8()?;
        let epoch = reader.u64()?;
        let number = reader.u64()?;
        let part = reader.u16()?;
        let parts = reader.u16()?;
        let previous = reader.u32()?;
        let is_fence = kind == FENCE;
        let has_previous = bytes[0] >= FENCE_FORMAT;
        let is_unknown = is_fence && !has_previous;
        if (epoch == 0) != is_fence || (number == 0) != is_fence || (is_unknown && previous != 0) {
            return None;
        }
        let body = match kind {
            FENCE => {
                let incarnation = reader.u64()?;
                let node = std::str::from_utf8(&bytes[HEADER + INCARNATION..body_end])
                    .ok()?
                    .to_owned();
                Body::Fence {
                    incarnation,
                    node,
                    has_previous,
                }
            }
            GROUP if (1..=parts).contains(&part) => Body::Group {
                part,
                parts,
                operations: bytes.slice(HEADER..body_end),
            },
            RELEASE if reader.is_empty() => Body::Release,
            _ => return None,
        };
        Some(Self {
            epoch,
            number,
            previous,
            body,
        })
    }
}

/// The checksum at the end of a record.
fn crc_of(record: &[u8]) -> Option<u32> {
    record.last_chunk().map(|crc| u32::from_be_bytes(*crc))
}

/// The end of the part of a log that was checked, and the parts of a batch that is not complete
/// there.
#[derive(Clone, Debug, Default)]
pub struct ChainHead {
    /// The position of the last record that was checked.
    pub position: AppliedPosition,
    parts: Vec<Bytes>,
}

/// What follows from a record.
#[derive(Debug)]
pub enum Followed {
    /// A batch is complete and is applied.
    Batch(Batch),
    /// The position alone moves: a fence or a release.
    Position,
    /// The batch has more parts.
    Part,
}

impl ChainHead {
    /// Begins with the record after `position`.
    pub fn at(position: AppliedPosition) -> Self {
        Self {
            position,
            parts: Vec::new(),
        }
    }

    /// Checks the next record, and moves to its position. Nothing changes if it is broken.
    pub fn follow(&mut self, bytes: &Bytes) -> Result<Followed, BrokenRecord> {
        let record = Record::decode(bytes)?;
        let next = position_after(self.position, bytes, &record);
        match record.body {
            Body::Fence { has_previous, .. } => {
                if has_previous && record.previous != self.position.chain {
                    return Err(BrokenRecord::Chain);
                }
                *self = Self::at(next);
                return Ok(Followed::Position);
            }
            Body::Group { .. } | Body::Release => self.check(&record)?,
        }
        let Body::Group {
            part,
            parts,
            operations,
        } = record.body
        else {
            *self = Self::at(next);
            return Ok(Followed::Position);
        };
        if part < parts {
            self.parts.push(operations);
            self.position = next;
            return Ok(Followed::Part);
        }
        let batch = if self.parts.is_empty() {
            decode_batch(&operations)
        } else {
            self.parts.push(operations);
            let whole = decode_batch(&self.parts.concat().into());
            self.parts.pop();
            whole
        };
        let batch = batch.ok_or(BrokenRecord::Damaged)?;
        *self = Self::at(next);
        Ok(Followed::Batch(batch))
    }

    /// Checks what the owner of the epoch wrote.
    fn check(&self, record: &Record) -> Result<(), BrokenRecord> {
        let AppliedPosition {
            chain,
            epoch,
            number,
            ..
        } = self.position;
        if record.epoch != epoch {
            return Err(BrokenRecord::Epoch {
                found: record.epoch,
                epoch,
            });
        }
        let part = match record.body {
            Body::Group { part, .. } => usize::from(part) - 1,
            Body::Fence { .. } | Body::Release => 0,
        };
        if record.number != number + 1 || part != self.parts.len() {
            return Err(BrokenRecord::Gap);
        }
        if record.previous != chain {
            Err(BrokenRecord::Chain)
        } else {
            Ok(())
        }
    }
}

/// The position of `record`, whose bytes are `bytes`, if it is the next one after `position`.
pub fn position_after(position: AppliedPosition, bytes: &[u8], record: &Record) -> AppliedPosition {
    let crc = crc_of(bytes).unwrap_or_default();
    let sequence = position.sequence + 1;
    match record.body {
        Body::Fence { .. } => {
            let chain =
                crc32fast::hash(&[position.chain.to_be_bytes(), crc.to_be_bytes()].concat());
            AppliedPosition {
                sequence,
                chain,
                epoch: sequence,
                number: 0,
            }
        }
        Body::Group { .. } => AppliedPosition {
            sequence,
            chain: crc,
            epoch: record.epoch,
            number: record.number,
        },
        // A release leaves no epoch that a record could have.
        Body::Release => AppliedPosition {
            sequence,
            chain: crc,
            epoch: 0,
            number: record.number,
        },
    }
}

/// Whether `bytes` can be the last record before `position`. Of a `FENCE`, the next record tells.
pub fn ends_at(bytes: &Bytes, position: AppliedPosition) -> bool {
    match Record::decode(bytes) {
        Ok(Record {
            body: Body::Fence { .. },
            ..
        }) => position.epoch == position.sequence,
        Ok(_) => crc_of(bytes) == Some(position.chain),
        Err(_) => false,
    }
}

/// The kinds of operations.
const PUT: u8 = 1;
const DELETE: u8 = 2;
const SINGLE_DELETE: u8 = 3;

/// Encodes the operations of a batch.
pub fn encode_batch(batch: &Batch) -> Bytes {
    let mut out = Vec::new();
    for operation in &batch.without_outcomes().0 {
        let (kind, (family, key), value) = match operation {
            WriteOp::Put(family, key, value) => (PUT, (*family, &key[..]), Some(value)),
            WriteOp::Delete(family, key) => (DELETE, (*family, &key[..]), None),
            WriteOp::SingleDelete(family, key) => (SINGLE_DELETE, (*family, &key[..]), None),
            // These are records by now.
            WriteOp::Outcomes(..) => continue,
        };
        out.extend_from_slice(&[kind, family as u8]);
        for bytes in std::iter::once(key).chain(value.map(|value| &value[..])) {
            put_varint(&mut out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
    out.into()
}

/// Decodes the operations of a batch.
pub fn decode_batch(bytes: &Bytes) -> Option<Batch> {
    let mut reader = RecordReader::new(bytes);
    let mut batch = Batch::default();
    while !reader.is_empty() {
        let kind = reader.u8()?;
        let family = *Family::ALL.get(usize::from(reader.u8()?))?;
        let mut field = || {
            let len = usize::try_from(reader.varint()?).ok()?;
            reader.take(len)
        };
        let key = field()?.to_vec();
        match kind {
            PUT => batch.put(family, key, bytes.slice_ref(field()?)),
            DELETE => batch.delete(family, key),
            SINGLE_DELETE => batch.single_delete(family, key),
            _ => return None,
        }
    }
    Some(batch)
}
