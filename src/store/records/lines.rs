//! Ledger lines as they are stored, encoded once: a page of outcomes and the records of the ledger
//! have the same bytes.

use super::{
    RecordLayout, RecordReader, put_varint, take_event, take_line, take_runs, take_time, take_u32,
};
use crate::keys::LineKey;
use gridhook_event::{Lane, Seq, SubscriptionKey};
use gridhook_policy::record::{LedgerEntry, LedgerLine};

/// Ledger lines, encoded, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedLines {
    pub(super) count: u32,
    pub(super) bytes: Vec<u8>,
}

/// A line of [`EncodedLines`], and what decides its place among others.
#[derive(Clone, Copy, Debug)]
pub struct EncodedLine<'a> {
    pub key: LineKey,
    /// The end of the line's events.
    pub end: Seq,
    pub bytes: &'a [u8],
    /// The part of `bytes` that is the entry, without lane and attempt.
    entry: &'a [u8],
}

impl EncodedLines {
    pub fn line_count(&self) -> u32 {
        self.count
    }

    pub fn push(
        &mut self,
        LedgerLine {
            lane,
            attempt,
            entry,
        }: &LedgerLine,
    ) {
        self.push_entry(*lane, *attempt, entry);
    }

    /// Adds a line of these parts, unless it has no events.
    pub fn push_entry(&mut self, lane: Lane, attempt: u32, entry: &LedgerEntry) {
        if entry.runs.is_empty() {
            return;
        }
        self.count += 1;
        self.bytes.reserve(LINE_BYTES);
        put_varint(&mut self.bytes, lane.0.into());
        put_varint(&mut self.bytes, attempt.into());
        entry.write_fields(&mut self.bytes);
    }

    pub fn append_later(&mut self, later: &Self) {
        self.count += later.count;
        self.bytes.extend_from_slice(&later.bytes);
    }

    pub fn remove_before(&mut self, mark: LinesMark) {
        self.count -= mark.count;
        self.bytes.drain(..mark.bytes);
    }

    /// The end of the lines so far.
    pub fn current_mark(&self) -> LinesMark {
        LinesMark {
            count: self.count,
            bytes: self.bytes.len(),
        }
    }

    /// The lines. [`None`] if they cannot be decoded, which [`OutcomePage`](super::OutcomePage)'s
    /// decoder has excluded.
    pub fn decode_lines(&self) -> Option<Vec<LedgerLine>> {
        let mut reader = RecordReader::new(&self.bytes);
        let mut lines = Vec::new();
        for _ in 0..self.count {
            lines.push(take_line(&mut reader)?);
        }
        reader.is_empty().then_some(lines)
    }

    /// The lines, as those of a subscription.
    pub fn for_subscription(
        &self,
        subscription_key: SubscriptionKey,
    ) -> impl Iterator<Item = EncodedLine<'_>> {
        let mut reader = RecordReader::new(&self.bytes);
        // The bytes were encoded here, or decoded when a page was read.
        let mut next =
            move || EncodedLine::take(subscription_key, &mut reader).expect("lines can be decoded");
        (0..self.count).map(move |_| next())
    }
}

impl From<Vec<LedgerLine>> for EncodedLines {
    fn from(lines: Vec<LedgerLine>) -> Self {
        let mut lines_out = Self::default();
        lines.iter().for_each(|line| lines_out.push(line));
        lines_out
    }
}

impl<'a> EncodedLine<'a> {
    fn take(subscription_key: SubscriptionKey, reader: &mut RecordReader<'a>) -> Option<Self> {
        let rest = reader.rest();
        let lane = Lane(u16::try_from(reader.varint()?).ok()?);
        let attempt = take_u32(reader)?;
        let from_entry = reader.rest();
        let at = take_time(reader)?;
        let what = *reader.rest().first()?;
        take_event(reader)?;
        let mut first = None;
        let mut end = Seq(0);
        take_runs(reader, |run| {
            first.get_or_insert(run.first);
            end = run.end_seq();
        })?;
        let key = LineKey {
            subscription_key,
            lane,
            first: first?,
            at,
            attempt,
            what,
        };
        let after = reader.rest().len();
        let bytes = &rest[..rest.len() - after];
        let entry = &from_entry[..from_entry.len() - after];
        Some(Self {
            key,
            end,
            bytes,
            entry,
        })
    }

    pub fn decode_line(&self) -> LedgerLine {
        take_line(&mut RecordReader::new(self.bytes)).expect("lines can be decoded")
    }
}

/// The record of lines that share one.
pub fn ledger_record(lines: &[EncodedLine<'_>]) -> Vec<u8> {
    let mut record =
        Vec::with_capacity(RECORD_BYTES + lines.iter().map(|line| line.bytes.len()).sum::<usize>());
    if let [line] = lines {
        record.push(LedgerEntry::VERSION);
        record.extend_from_slice(line.entry);
    } else {
        record.push(super::LedgerLines::VERSION);
        put_varint(&mut record, lines.len() as u64);
        lines
            .iter()
            .for_each(|line| record.extend_from_slice(line.bytes));
    }
    record
}

/// A position between two lines.
#[derive(Clone, Copy, Debug)]
pub struct LinesMark {
    count: u32,
    bytes: usize,
}

impl LinesMark {
    /// The number of lines before it.
    pub fn line_count(self) -> u32 {
        self.count
    }
}

/// The bytes of a usual line, at most.
const LINE_BYTES: usize = 32;

/// The version and the number of lines of a record, at most.
const RECORD_BYTES: usize = 4;
