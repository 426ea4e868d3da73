//! The record of the outcomes of one write: cursors and ledger lines of many subscriptions, which
//! have no records of their own yet.
//!
//! ```text
//! version 1 | ended | entries | entry*
//! entry: partition | subscription | flags 1 | stored, if flagged
//!     | length and cursor, or length and changes, if flagged
//!     | lines | length and lines, if there are any
//! changes: checksum of the cursor 4 | (bytes that stay | bytes that change | their new values)*
//! ```
//!
//! Everything but the flags, the cursor, its checksum and the lines is a varint. A cursor is a
//! whole record with its version. From one outcome to the next a few bytes of it change, and rarely
//! its length.

use bytes::Bytes;

use super::{EncodedLines, RecordLayout, take_u32};
use gridhook_event::{
    PartitionId, SubscriptionId, SubscriptionKey,
    codec::{RecordReader, put_varint},
};

const HAS_STORED: u8 = 1;
const HAS_CURSOR: u8 = 2;
const HAS_CHANGES: u8 = 4;

/// Changes with at most this many bytes between them are written as one.
const NEAR: usize = 2;

/// The outcomes of one write. The page's number is in its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomePage {
    /// Pages up to this number have nothing that is not in a record of its own.
    pub ended: u64,
    /// The entries, ascending: one for each subscription.
    pub entries: Vec<PageEntry>,
}

/// The part of a page that is about one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageEntry {
    pub subscription_key: SubscriptionKey,
    /// The subscription's entries in pages up to this number are in records of their own, which
    /// were written with this page.
    pub stored: Option<u64>,
    /// The subscription's cursor, if the page has a new one.
    pub cursor: Option<PageCursor>,
    pub lines: EncodedLines,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageCursor {
    Whole(Bytes),
    /// The changes since the subscription's cursor in the page before.
    Changes(Vec<u8>),
}

impl PageCursor {
    /// A cursor that follows `before`.
    pub fn new(before: Option<&Bytes>, cursor: &Bytes) -> Self {
        let Some(before) = before.filter(|before| before.len() == cursor.len()) else {
            return Self::Whole(cursor.clone());
        };
        let mut changes = Vec::with_capacity(cursor.len());
        changes.extend_from_slice(&crc32fast::hash(cursor).to_be_bytes());
        let mut rest_before = &before[..];
        let mut new = &cursor[..];
        while let Some(first) = first_change(rest_before, new) {
            let mut end = first + 1;
            while let Some(next) =
                (end..rest_before.len().min(end + NEAR + 1)).find(|at| rest_before[*at] != new[*at])
            {
                end = next + 1;
            }
            put_varint(&mut changes, first as u64);
            put_varint(&mut changes, (end - first) as u64);
            changes.extend_from_slice(&new[first..end]);
            (rest_before, new) = (&rest_before[end..], &new[end..]);
        }
        if changes.len() < cursor.len() {
            Self::Changes(changes)
        } else {
            Self::Whole(cursor.clone())
        }
    }

    /// The cursor after the page; [`None`] if the page follows another cursor than `before`.
    pub fn cursor_after(&self, before: Option<&Bytes>) -> Option<Bytes> {
        let changes = match self {
            Self::Whole(cursor) => return Some(cursor.clone()),
            Self::Changes(changes) => changes,
        };
        let mut reader = RecordReader::new(changes);
        let checksum = reader.u32()?;
        let mut cursor = before?.to_vec();
        let mut at = 0usize;
        while !reader.is_empty() {
            at = at.checked_add(usize::try_from(reader.varint()?).ok()?)?;
            let patch = take_field(&mut reader)?;
            let end = at.checked_add(patch.len())?;
            cursor.get_mut(at..end)?.copy_from_slice(patch);
            at = end;
        }
        (crc32fast::hash(&cursor) == checksum).then(|| cursor.into())
    }
}

/// The first byte that differs between two cursors of the same length.
fn first_change(old: &[u8], new: &[u8]) -> Option<usize> {
    // Most bytes stay, so words are compared first.
    let words = old.as_chunks::<8>().0;
    let others = new.as_chunks::<8>().0;
    let same = words
        .iter()
        .zip(others)
        .take_while(|(old, new)| old == new)
        .count()
        * 8;
    (same..old.len()).find(|at| old[*at] != new[*at])
}

impl RecordLayout for OutcomePage {
    const NAME: &'static str = "outcome page";

    fn write_fields(&self, out: &mut Vec<u8>) {
        let ascends = self
            .entries
            .is_sorted_by(|entry, next| entry.subscription_key < next.subscription_key);
        assert!(ascends, "the entries of a page do not ascend");
        put_varint(out, self.ended);
        put_varint(out, self.entries.len() as u64);
        for PageEntry {
            subscription_key,
            stored,
            cursor,
            lines,
        } in &self.entries
        {
            put_varint(out, subscription_key.partition.0.into());
            put_varint(out, subscription_key.subscription.0.into());
            let (flag, cursor) = match cursor {
                None => (0, None),
                Some(PageCursor::Whole(cursor)) => (HAS_CURSOR, Some(&cursor[..])),
                Some(PageCursor::Changes(changes)) => (HAS_CHANGES, Some(&changes[..])),
            };
            out.push(flag | if stored.is_some() { HAS_STORED } else { 0 });
            if let Some(stored) = stored {
                put_varint(out, *stored);
            }
            if let Some(cursor) = cursor {
                put_varint(out, cursor.len() as u64);
                out.extend_from_slice(cursor);
            }
            put_varint(out, lines.count.into());
            if lines.count > 0 {
                put_varint(out, lines.bytes.len() as u64);
                out.extend_from_slice(&lines.bytes);
            }
        }
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let newest_end = reader.varint()?;
        let mut entries: Vec<PageEntry> = Vec::new();
        for _ in 0..reader.varint()? {
            let partition = PartitionId(take_u32(reader)?);
            let subscription = SubscriptionId(take_u32(reader)?);
            let subscription_key = SubscriptionKey {
                partition,
                subscription,
            };
            entries
                .last()
                .is_none_or(|last| last.subscription_key < subscription_key)
                .then_some(())?;
            let flags = reader.u8()?;
            let stored_cursor = if flags & HAS_STORED == 0 {
                None
            } else {
                Some(reader.varint()?)
            };
            let cursor = match flags & !HAS_STORED {
                0 => None,
                HAS_CURSOR => Some(PageCursor::Whole(Bytes::copy_from_slice(take_field(
                    reader,
                )?))),
                HAS_CHANGES => Some(PageCursor::Changes(take_field(reader)?.to_vec())),
                _ => return None,
            };
            let mut lines = EncodedLines {
                count: take_u32(reader)?,
                bytes: Vec::new(),
            };
            if lines.count > 0 {
                lines.bytes.extend_from_slice(take_field(reader)?);
                lines.decode_lines()?;
            }
            entries.push(PageEntry {
                subscription_key,
                stored: stored_cursor,
                cursor,
                lines,
            });
        }
        Some(Self {
            ended: newest_end,
            entries,
        })
    }
}

fn take_field<'a>(reader: &mut RecordReader<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(reader.varint()?).ok()?;
    reader.take(length)
}
