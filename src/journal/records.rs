//! How values look on disk: a version byte, and then what is in the record, small numbers as varints.
//!
//! Invariants: a record that was written is read back as it was; a decoder never panics and never allocates more than
//! a fixed multiple of what it was given, but for the runs of a cursor's open events, which have a bound of
//! their own; bytes behind a record, a byte that stands for nothing and a list that does not ascend are
//! [`Damaged`], so that damage is told and not taken for a record.
//! Encoders assert the same properties that decoders check: a record that could not be read back is never written.
//!
//! A version byte that is unknown is damage here: a store of a later format was refused when it was opened.

mod cursor;
mod job;
mod tally;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    chunk::Running,
    codec::{Reader, put_varint},
};
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        outcome::{Outcome, Reason},
        record::{Dead, Entry, Excerpt, Owed, What, lease::LeaseStep},
    },
};

/// A record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of the kind {0} is damaged")]
pub struct Damaged(pub &'static str);

/// A value of the store: `Cursor`, `Job`, [`Owed`], [`Dead`], [`Entry`], [`Excerpt`] and [`Floor`].
pub trait Record: Sized {
    /// The record as it is stored.
    ///
    /// # Panics
    /// Where the record is not legal: where a list does not ascend.
    fn encode(&self) -> Vec<u8>;

    /// The record that `bytes` are.
    fn decode(bytes: &[u8]) -> Result<Self, Damaged>;
}

/// What follows the version.
trait Layout: Sized {
    /// What the record is called where it is damaged.
    const NAME: &'static str;

    /// The version of its format that is written: the first one, where it says nothing else. Whatever changes what
    /// [`Layout::put`] writes is a new version, and a line of the fixtures (`tests/journal/formats.txt`).
    const VERSION: u8 = 1;

    /// The oldest version that is read: the one before, at least, once a version was released. Records of it are written
    /// anew when they are written next, or by a migration of the store.
    const OLDEST: u8 = Self::VERSION;

    fn put(&self, out: &mut Vec<u8>);

    /// What a record of this version says: one of those from `OLDEST` to `VERSION`.
    fn take(version: u8, reader: &mut Reader<'_>) -> Option<Self>;
}

impl<T: Layout> Record for T {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(Self::VERSION);
        self.put(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8().filter(|version| (Self::OLDEST..=Self::VERSION).contains(version));
        let version = version.ok_or(Damaged(Self::NAME))?;
        Self::take(version, &mut reader).filter(|_| reader.is_empty()).ok_or(Damaged(Self::NAME))
    }
}

/// What the writer knows of a partition when nothing of its log may be left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Below it, the log does not exist for any reader.
    pub floor: Seq,
    /// The place of the next event, if the log has none at this place or later.
    pub next: Seq,
    /// What stands before `next`.
    pub running: Running,
    /// The latest append before `next`.
    pub appended: Timestamp,
}

impl Layout for Floor {
    const NAME: &'static str = "floor";

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.floor.0);
        put_varint(out, self.next.0);
        put_varint(out, self.running.count);
        put_varint(out, self.running.bytes);
        put_time(out, self.appended);
    }

    fn take(_: u8, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            floor: Seq(reader.varint()?),
            next: Seq(reader.varint()?),
            running: Running { count: reader.varint()?, bytes: reader.varint()? },
            appended: take_time(reader)?,
        })
    }
}

impl Layout for Owed {
    const NAME: &'static str = "owed";

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.attempts.into());
        put_time(out, self.due);
        out.push(self.last.byte());
        put_status(out, self.status);
        put_time(out, self.tried);
        put_time_or_none(out, self.received);
    }

    fn take(_: u8, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            attempts: take_u32(reader)?,
            due: take_time(reader)?,
            last: take_outcome(reader)?,
            status: take_status(reader)?,
            tried: take_time(reader)?,
            received: take_time_or_none(reader)?,
        })
    }
}

impl Layout for Dead {
    const NAME: &'static str = "dead";

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.reason.bytes());
        put_varint(out, self.attempts.into());
        out.push(self.outcome.byte());
        put_status(out, self.status);
        put_time(out, self.published);
        put_time_or_none(out, self.tried);
        put_time(out, self.given_up);
    }

    fn take(_: u8, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            reason: take_reason(reader)?,
            attempts: take_u32(reader)?,
            outcome: take_outcome(reader)?,
            status: take_status(reader)?,
            published: take_time(reader)?,
            tried: take_time_or_none(reader)?,
            given_up: take_time(reader)?,
        })
    }
}

/// The byte that a line of the ledger has in its key and in its record. A byte is never used again for something else.
pub fn what_byte(what: &What) -> u8 {
    match what {
        What::Filtered { .. } => 1,
        What::Attempted { .. } => 2,
        What::GivenUp { .. } => 3,
        What::Late { .. } => 4,
        What::Canceled => 5,
        What::Filed { .. } => 6,
        What::Lost { .. } => 7,
        What::Redriven { .. } => 8,
        What::Lease(LeaseStep::Received { .. }) => 9,
        What::Lease(LeaseStep::Renewed { .. }) => 10,
        What::Lease(LeaseStep::Acknowledged) => 11,
        What::Lease(LeaseStep::Released { .. }) => 12,
        What::Lease(LeaseStep::Expired) => 13,
    }
}

impl Layout for Entry {
    const NAME: &'static str = "ledger";

    /// A late answer says since the second whether it ended the events; since the third an attempt says when the next is
    /// and where its answer is kept, a giving up whether there is a dead letter, and a filter its version.
    const VERSION: u8 = 3;

    fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.at);
        out.push(what_byte(&self.what));
        put_what(out, &self.what);
        assert!(!self.covers.is_empty(), "a line of the ledger that covers no event");
        put_varint(out, self.covers.len() as u64);
        let mut end = 0;
        for (first, count) in &self.covers {
            assert!(*count > 0 && first.0 >= end, "the run at {first:?} does not ascend");
            put_varint(out, first.0 - end);
            put_varint(out, (*count).into());
            end = first.0.checked_add(u64::from(*count)).expect("sequences end far below 2^64");
        }
    }

    fn take(_: u8, reader: &mut Reader<'_>) -> Option<Self> {
        let at = take_time(reader)?;
        let what = take_what(reader)?;
        let mut covers = Vec::new();
        let mut end = 0u64;
        for _ in 0..reader.varint().filter(|runs| *runs > 0)? {
            let first = end.checked_add(reader.varint()?)?;
            let count = take_u32(reader).filter(|count| *count > 0)?;
            end = first.checked_add(count.into())?;
            covers.push((Seq(first), count));
        }
        Some(Self { at, covers, what })
    }
}

/// Bits of an attempt.
const HAS_NEXT: u8 = 1;
const HAS_EXCERPT: u8 = 2;

fn put_what(out: &mut Vec<u8>, what: &What) {
    match what {
        What::Filtered { version } => put_varint(out, (*version).into()),
        What::Attempted { outcome, status, latency, next, excerpt } => {
            out.push(outcome.byte());
            put_status(out, *status);
            put_varint(out, u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
            let flag = |is_there, flag| if is_there { flag } else { 0 };
            out.push(flag(next.is_some(), HAS_NEXT) | flag(excerpt.is_some(), HAS_EXCERPT));
            if let Some(next) = next {
                put_time(out, *next);
            }
            if let Some(excerpt) = excerpt {
                out.extend_from_slice(&excerpt.to_be_bytes());
            }
        }
        What::GivenUp { reason, put_aside } => {
            out.extend(reason.bytes());
            out.push((*put_aside).into());
        }
        What::Late { settled } => out.push((*settled).into()),
        What::Filed { file: text } | What::Lost { why: text } => put_text(out, text),
        What::Redriven { into } => put_varint(out, into.0.into()),
        What::Lease(LeaseStep::Received { until } | LeaseStep::Renewed { until } | LeaseStep::Released { until }) => {
            put_time(out, *until)
        }
        What::Canceled | What::Lease(LeaseStep::Acknowledged | LeaseStep::Expired) => {}
    }
}

fn take_what(reader: &mut Reader<'_>) -> Option<What> {
    Some(match reader.u8()? {
        1 => What::Filtered { version: take_u32(reader)? },
        2 => {
            let (outcome, status) = (take_outcome(reader)?, take_status(reader)?);
            let latency = Duration::from_micros(reader.varint()?);
            let flags = reader.u8().filter(|flags| flags & !(HAS_NEXT | HAS_EXCERPT) == 0)?;
            let next = if flags & HAS_NEXT == 0 { None } else { Some(take_time(reader)?) };
            let excerpt = if flags & HAS_EXCERPT == 0 { None } else { Some(reader.u64()?) };
            What::Attempted { outcome, status, latency, next, excerpt }
        }
        3 => What::GivenUp { reason: take_reason(reader)?, put_aside: take_bool(reader)? },
        4 => What::Late { settled: take_bool(reader)? },
        5 => What::Canceled,
        6 => What::Filed { file: take_text(reader)? },
        7 => What::Lost { why: take_text(reader)? },
        8 => What::Redriven { into: Lane(u16::try_from(reader.varint()?).ok()?) },
        9 => What::Lease(LeaseStep::Received { until: take_time(reader)? }),
        10 => What::Lease(LeaseStep::Renewed { until: take_time(reader)? }),
        11 => What::Lease(LeaseStep::Acknowledged),
        12 => What::Lease(LeaseStep::Released { until: take_time(reader)? }),
        13 => What::Lease(LeaseStep::Expired),
        _ => return None,
    })
}

impl Layout for Excerpt {
    const NAME: &'static str = "excerpt";

    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.answered.into());
        put_varint(out, self.said.len() as u64);
        out.extend_from_slice(&self.said);
    }

    fn take(_: u8, reader: &mut Reader<'_>) -> Option<Self> {
        let answered = take_bool(reader)?;
        let length = usize::try_from(reader.varint()?).ok()?;
        Some(Self { answered, said: Bytes::copy_from_slice(reader.take(length)?) })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(reader: &mut Reader<'_>) -> Option<Arc<str>> {
    let length = usize::try_from(reader.varint()?).ok()?;
    std::str::from_utf8(reader.take(length)?).ok().map(Arc::from)
}

fn take_bool(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&at.0.to_be_bytes());
}

fn take_time(reader: &mut Reader<'_>) -> Option<Timestamp> {
    reader.u64().map(Timestamp)
}

fn put_time_or_none(out: &mut Vec<u8>, at: Option<Timestamp>) {
    out.push(at.is_some().into());
    if let Some(at) = at {
        put_time(out, at);
    }
}

fn take_time_or_none(reader: &mut Reader<'_>) -> Option<Option<Timestamp>> {
    match reader.u8()? {
        0 => Some(None),
        1 => take_time(reader).map(Some),
        _ => None,
    }
}

fn put_status(out: &mut Vec<u8>, status: Option<u16>) {
    put_varint(out, status.map_or(0, |status| u64::from(status) + 1));
}

fn take_status(reader: &mut Reader<'_>) -> Option<Option<u16>> {
    match reader.varint()?.checked_sub(1) {
        None => Some(None),
        Some(status) => u16::try_from(status).ok().map(Some),
    }
}

fn take_u32(reader: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(reader.varint()?).ok()
}

fn take_outcome(reader: &mut Reader<'_>) -> Option<Outcome> {
    reader.u8().and_then(Outcome::of_byte)
}

fn take_reason(reader: &mut Reader<'_>) -> Option<Reason> {
    Reason::of_bytes([reader.u8()?, reader.u8()?])
}
