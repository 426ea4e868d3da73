//! The bytes of values: a version byte, and then the fields of the record, with small numbers as
//! varints.
//!
//! Invariants:
//! - A record is decoded as it was encoded.
//! - A decoder never panics and allocates at most a fixed multiple of its input, except for the
//!   runs of a cursor's open events, which have a limit of their own.
//! - Bytes after a record, an unknown byte and a list that does not ascend are [`DamagedRecord`],
//!   so damage is never decoded as a record.
//! - An encoder asserts what the decoder checks: a record that could not be decoded is never
//!   written.
//!
//! An unknown version is damage here, because a store of a newer format is refused when it is
//! opened.

mod applied;
mod counts;
mod cursor;
mod job;
mod lines;
mod page;
mod published_id;

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::lines::{EncodedLine, ledger_record};
pub use self::{
    applied::AppliedPosition,
    lines::{EncodedLines, LinesMark},
    page::{OutcomePage, PageCursor, PageEntry},
    published_id::{IdDigest, PublishedId},
};
use super::keys::LineKey;
use gridhook_event::{
    Lane, Seq, Timestamp,
    chunk::RunningTotals,
    codec::{RecordReader, put_varint},
};
use gridhook_policy::{
    outcome::{LastOutcome, Outcome, Reason, RequestHeads},
    record::{
        DeadLetterRecord, Excerpt, LedgerEntry, LedgerEvent, LedgerLine, PendingDelivery, SeqRun,
        lease::LeaseStep,
    },
};

/// A record cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of kind {0} is damaged")]
pub struct DamagedRecord(pub &'static str);

/// A value of the store: `Cursor`, `Job`, [`PendingDelivery`], [`DeadLetterRecord`],
/// [`LedgerEntry`], [`LedgerLines`], [`OutcomePage`], [`Excerpt`], [`FloorRecord`],
/// [`AppliedPosition`] or [`PublishedId`].
pub trait StoredRecord: Sized {
    /// Encodes the record.
    ///
    /// # Panics
    /// If the record is invalid: if a list does not ascend.
    fn encode(&self) -> Vec<u8>;

    fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord>;
}

/// The fields of a record, after its version.
trait RecordLayout: Sized {
    /// The name of the record in errors.
    const NAME: &'static str;

    /// The version that is written. Every change of what [`RecordLayout::write_fields`]
    /// writes is a new version, and a new line of the fixtures (`tests/journal/formats.txt`).
    const VERSION: u8 = 1;

    /// The oldest version that is read; once a version was released, at least the previous one.
    /// Records of older versions are written in the new version when they are next written, or by a
    /// migration of the store.
    const OLDEST: u8 = Self::VERSION;

    fn write_fields(&self, out: &mut Vec<u8>);

    /// Reads the fields of a record of `version`, which is between `OLDEST` and `VERSION`.
    fn read_fields(version: u8, reader: &mut RecordReader<'_>) -> Option<Self>;
}

impl<T: RecordLayout> StoredRecord for T {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(Self::VERSION);
        self.write_fields(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let mut reader = RecordReader::new(bytes);
        let version = reader
            .u8()
            .filter(|version| (Self::OLDEST..=Self::VERSION).contains(version));
        let version = version.ok_or(DamagedRecord(Self::NAME))?;
        Self::read_fields(version, &mut reader)
            .filter(|_| reader.is_empty())
            .ok_or(DamagedRecord(Self::NAME))
    }
}

/// The writer's state of a partition, stored because the log alone may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloorRecord {
    /// The first sequence of the log for every reader.
    pub floor: Seq,
    /// The sequence of the next event, unless the log continues beyond it.
    pub next: Seq,
    /// The totals of the log before `next`.
    pub running: RunningTotals,
    /// The time of the latest append before `next`.
    pub appended: Timestamp,
    /// The first event after the clock was last corrected: events before it may have later times.
    pub set_back: Option<Seq>,
}

impl FloorRecord {
    /// The floor of a deleted partition. Its record is kept for ever, so that the rest of its log
    /// is never read.
    pub const ABANDONED: Seq = Seq(u64::MAX);
}

impl RecordLayout for FloorRecord {
    const NAME: &'static str = "floor";
    /// Version 2 has `set_back`.
    const VERSION: u8 = 2;
    const OLDEST: u8 = 1;

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_varint(out, self.floor.0);
        put_varint(out, self.next.0);
        put_varint(out, self.running.count);
        put_varint(out, self.running.bytes);
        put_time(out, self.appended);
        // No event is at 0.
        put_varint(out, self.set_back.unwrap_or_default().0);
    }

    fn read_fields(version: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            floor: Seq(reader.varint()?),
            next: Seq(reader.varint()?),
            running: RunningTotals {
                count: reader.varint()?,
                bytes: reader.varint()?,
            },
            appended: take_time(reader)?,
            set_back: if version < 2 {
                None
            } else {
                Some(Seq(reader.varint()?)).filter(|seq| *seq > Seq(0))
            },
        })
    }
}

impl RecordLayout for PendingDelivery {
    const NAME: &'static str = "pending";

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_varint(out, self.attempts.into());
        put_time(out, self.due);
        out.push(self.last.to_byte());
        put_status(out, self.status);
        put_time(out, self.tried);
        put_time_or_none(out, self.received);
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            attempts: take_u32(reader)?,
            due: take_time(reader)?,
            last: take_last_outcome(reader)?,
            status: take_status(reader)?,
            tried: take_time(reader)?,
            received: take_time_or_none(reader)?,
        })
    }
}

impl RecordLayout for DeadLetterRecord {
    const NAME: &'static str = "dead";

    fn write_fields(&self, out: &mut Vec<u8>) {
        out.extend(self.reason.to_bytes());
        put_varint(out, self.attempts.into());
        out.push(self.outcome.to_byte());
        put_status(out, self.status);
        put_time(out, self.published);
        put_time_or_none(out, self.tried);
        put_time(out, self.given_up);
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            reason: take_reason(reader)?,
            attempts: take_u32(reader)?,
            outcome: take_last_outcome(reader)?,
            status: take_status(reader)?,
            published: take_time(reader)?,
            tried: take_time_or_none(reader)?,
            given_up: take_time(reader)?,
        })
    }
}

/// The byte of a ledger line's kind, in its key and in its record. A byte is never reused.
pub fn event_byte(what: &LedgerEvent) -> u8 {
    match what {
        LedgerEvent::Filtered { .. } => 1,
        LedgerEvent::Attempted { .. } => 2,
        LedgerEvent::GivenUp { .. } => 3,
        LedgerEvent::Late { .. } => 4,
        LedgerEvent::Canceled => 5,
        LedgerEvent::Filed { .. } => 6,
        LedgerEvent::Lost { .. } => 7,
        LedgerEvent::Redriven { .. } => 8,
        LedgerEvent::Lease(LeaseStep::Received { .. }) => 9,
        LedgerEvent::Lease(LeaseStep::Renewed { .. }) => 10,
        LedgerEvent::Lease(LeaseStep::Acknowledged) => 11,
        LedgerEvent::Lease(LeaseStep::Released { .. }) => 12,
        LedgerEvent::Lease(LeaseStep::Expired) => 13,
    }
}

impl RecordLayout for LedgerEntry {
    const NAME: &'static str = "ledger";

    /// Since version 2, a late response has whether it settled the events. Since version 3, an
    /// attempt has the time of the next one and its response excerpt, an event that was given up
    /// has whether it is a dead letter, and a filter has its version.
    const VERSION: u8 = 3;

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_time(out, self.at);
        out.push(event_byte(&self.what));
        put_event(out, &self.what);
        assert!(!self.runs.is_empty(), "a ledger line must cover an event");
        put_varint(out, self.runs.len() as u64);
        let mut end = 0;
        for SeqRun { first, count } in self.runs.iter().copied() {
            assert!(
                count > 0 && first.0 >= end,
                "the run at {first:?} does not ascend"
            );
            put_varint(out, first.0 - end);
            put_varint(out, count.into());
            end = first
                .0
                .checked_add(count.into())
                .expect("sequences end far below 2^64");
        }
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let at = take_time(reader)?;
        let what = take_event(reader)?;
        let mut runs = Vec::new();
        take_runs(reader, |run| runs.push(run))?;
        Some(Self { at, runs, what })
    }
}

/// Reads the runs of a line.
fn take_runs(reader: &mut RecordReader<'_>, mut each: impl FnMut(SeqRun)) -> Option<()> {
    let mut end = 0u64;
    for _ in 0..reader.varint().filter(|runs| *runs > 0)? {
        let first = end.checked_add(reader.varint()?)?;
        let count = take_u32(reader).filter(|count| *count > 0)?;
        end = first.checked_add(count.into())?;
        each(SeqRun {
            first: Seq(first),
            count,
        });
    }
    Some(())
}

/// Ledger lines of a subscription that share a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLines<'a>(pub Cow<'a, [LedgerLine]>);

impl RecordLayout for LedgerLines<'_> {
    const NAME: &'static str = "ledger";

    /// Up to version 3, a record is a [`LedgerEntry`]. Both share the version byte: the next
    /// version of either is 5.
    const VERSION: u8 = 4;

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        self.0.iter().for_each(|line| put_line(out, line));
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let mut lines = Vec::new();
        for _ in 0..reader.varint().filter(|lines| *lines > 0)? {
            lines.push(take_line(reader)?);
        }
        Some(Self(lines.into()))
    }
}

fn put_line(
    out: &mut Vec<u8>,
    LedgerLine {
        lane,
        attempt,
        entry,
    }: &LedgerLine,
) {
    put_varint(out, lane.0.into());
    put_varint(out, (*attempt).into());
    entry.write_fields(out);
}

/// Reads a line, which has no version of its own: a new form of it is a new version of
/// [`LedgerLines`] and of [`OutcomePage`].
fn take_line(reader: &mut RecordReader<'_>) -> Option<LedgerLine> {
    let lane = Lane(u16::try_from(reader.varint()?).ok()?);
    let attempt = take_u32(reader)?;
    Some(LedgerLine {
        lane,
        attempt,
        entry: LedgerEntry::read_fields(LedgerEntry::VERSION, reader)?,
    })
}

/// The lines of a record of the ledger. A record of one line has its lane and its attempt in its
/// key.
pub fn ledger_lines(
    LineKey { lane, attempt, .. }: LineKey,
    value: &[u8],
) -> Result<Vec<LedgerLine>, DamagedRecord> {
    if value.first() == Some(&LedgerLines::VERSION) {
        return Ok(LedgerLines::decode(value)?.0.into_owned());
    }
    LedgerEntry::decode(value).map(|entry| {
        vec![LedgerLine {
            lane,
            attempt,
            entry,
        }]
    })
}

const HAS_NEXT: u8 = 1;
const HAS_EXCERPT: u8 = 2;

fn put_event(out: &mut Vec<u8>, what: &LedgerEvent) {
    match what {
        LedgerEvent::Filtered { version } => put_varint(out, (*version).into()),
        LedgerEvent::Attempted {
            outcome,
            status,
            latency,
            next,
            excerpt,
        } => {
            out.push(outcome.to_byte());
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
        LedgerEvent::GivenUp {
            reason,
            dead_lettered,
        } => {
            out.extend(reason.to_bytes());
            out.push((*dead_lettered).into());
        }
        LedgerEvent::Late { settled } => out.push((*settled).into()),
        LedgerEvent::Filed { file: text } | LedgerEvent::Lost { why: text } => put_text(out, text),
        LedgerEvent::Redriven { into } => put_varint(out, into.0.into()),
        LedgerEvent::Lease(
            LeaseStep::Received { until }
            | LeaseStep::Renewed { until }
            | LeaseStep::Released { until },
        ) => put_time(out, *until),
        LedgerEvent::Canceled
        | LedgerEvent::Lease(LeaseStep::Acknowledged | LeaseStep::Expired) => {}
    }
}

fn take_event(reader: &mut RecordReader<'_>) -> Option<LedgerEvent> {
    Some(match reader.u8()? {
        1 => LedgerEvent::Filtered {
            version: take_u32(reader)?,
        },
        2 => {
            let outcome = take_outcome(reader)?;
            let status = take_status(reader)?;
            let latency = Duration::from_micros(reader.varint()?);
            let flags = reader
                .u8()
                .filter(|flags| flags & !(HAS_NEXT | HAS_EXCERPT) == 0)?;
            let next = if flags & HAS_NEXT == 0 {
                None
            } else {
                Some(take_time(reader)?)
            };
            let excerpt = if flags & HAS_EXCERPT == 0 {
                None
            } else {
                Some(reader.u64()?)
            };
            LedgerEvent::Attempted {
                outcome,
                status,
                latency,
                next,
                excerpt,
            }
        }
        3 => LedgerEvent::GivenUp {
            reason: take_reason(reader)?,
            dead_lettered: take_bool(reader)?,
        },
        4 => LedgerEvent::Late {
            settled: take_bool(reader)?,
        },
        5 => LedgerEvent::Canceled,
        6 => LedgerEvent::Filed {
            file: take_text(reader)?,
        },
        7 => LedgerEvent::Lost {
            why: take_text(reader)?,
        },
        8 => LedgerEvent::Redriven {
            into: Lane(u16::try_from(reader.varint()?).ok()?),
        },
        9 => LedgerEvent::Lease(LeaseStep::Received {
            until: take_time(reader)?,
        }),
        10 => LedgerEvent::Lease(LeaseStep::Renewed {
            until: take_time(reader)?,
        }),
        11 => LedgerEvent::Lease(LeaseStep::Acknowledged),
        12 => LedgerEvent::Lease(LeaseStep::Released {
            until: take_time(reader)?,
        }),
        13 => LedgerEvent::Lease(LeaseStep::Expired),
        _ => return None,
    })
}

impl RecordLayout for Excerpt {
    const NAME: &'static str = "excerpt";
    /// Version 2 has `heads`.
    const VERSION: u8 = 2;
    const OLDEST: u8 = 1;

    fn write_fields(&self, out: &mut Vec<u8>) {
        out.push(self.has_response.into());
        put_varint(out, self.content.len() as u64);
        out.extend_from_slice(&self.content);
        out.push(self.heads.is_some().into());
        if let Some(RequestHeads { request, response }) = self.heads.as_deref() {
            put_text(out, request);
            put_text(out, response);
        }
    }

    fn read_fields(version: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let has_response = take_bool(reader)?;
        let length = usize::try_from(reader.varint()?).ok()?;
        let content = Bytes::copy_from_slice(reader.take(length)?);
        let has_heads = version >= 2 && take_bool(reader)?;
        let heads = if has_heads {
            Some(Box::new(RequestHeads {
                request: take_text(reader)?.to_string(),
                response: take_text(reader)?.to_string(),
            }))
        } else {
            None
        };
        Some(Self {
            has_response,
            content,
            heads,
        })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(reader: &mut RecordReader<'_>) -> Option<Arc<str>> {
    let length = usize::try_from(reader.varint()?).ok()?;
    std::str::from_utf8(reader.take(length)?)
        .ok()
        .map(Arc::from)
}

fn take_bool(reader: &mut RecordReader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&at.0.to_be_bytes());
}

fn take_time(reader: &mut RecordReader<'_>) -> Option<Timestamp> {
    reader.u64().map(Timestamp)
}

fn put_time_or_none(out: &mut Vec<u8>, at: Option<Timestamp>) {
    out.push(at.is_some().into());
    if let Some(at) = at {
        put_time(out, at);
    }
}

fn take_time_or_none(reader: &mut RecordReader<'_>) -> Option<Option<Timestamp>> {
    match reader.u8()? {
        0 => Some(None),
        1 => take_time(reader).map(Some),
        _ => None,
    }
}

fn put_status(out: &mut Vec<u8>, status: Option<u16>) {
    put_varint(out, status.map_or(0, |status| u64::from(status) + 1));
}

fn take_status(reader: &mut RecordReader<'_>) -> Option<Option<u16>> {
    match reader.varint()?.checked_sub(1) {
        None => Some(None),
        Some(status) => u16::try_from(status).ok().map(Some),
    }
}

fn take_u32(reader: &mut RecordReader<'_>) -> Option<u32> {
    u32::try_from(reader.varint()?).ok()
}

fn take_outcome(reader: &mut RecordReader<'_>) -> Option<Outcome> {
    reader.u8().and_then(Outcome::from_byte)
}

fn take_last_outcome(reader: &mut RecordReader<'_>) -> Option<LastOutcome> {
    reader.u8().and_then(LastOutcome::from_byte)
}

fn take_reason(reader: &mut RecordReader<'_>) -> Option<Reason> {
    Reason::from_bytes([reader.u8()?, reader.u8()?])
}
