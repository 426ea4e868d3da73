//! The ledger: the history of each event's delivery, found by event and by time.
//!
//! A line is stored twice. By time it is stored whole, one line for each request. By event it is
//! stored under its first event and is split at the end of each block of 4,096 sequences. So all
//! lines that cover an event begin in its block, and looking up an event reads one block, however
//! far apart the events of a request were.
//!
//! Lines that are written together share records, because a record costs more than a line: by event
//! those of a block, by time those of `RECORD_SPAN`. The key of a record is that of its first line.
//! Readers see lines and their keys only.
//!
//! Invariants: nothing is deleted here; if the ledger exceeds its size, the store drops its oldest
//! files, which contain both copies of their lines. A line never changes: the time of its writing
//! is in its key.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    time::Duration,
};

use super::{
    keys::{self, LineKey},
    records::{EncodedLine, EncodedLines, event_byte, ledger_lines, ledger_record},
};
use crate::{Batch, Family, Store, StoreError};
use gridhook_event::{Lane, Seq, SubscriptionKey, Timestamp};
use gridhook_policy::record::{LEDGER_BLOCK, LedgerEntry, LedgerLine, SeqRun};

/// The maximum time between the lines of a record by time. A reader begins this much earlier.
const RECORD_SPAN: Duration = Duration::from_secs(5);

/// The maximum number of lines in a record: about 8 KiB.
const RECORD_LINES: usize = 256;

/// A page of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage {
    /// The lines: those of a range of time in the order of time, those of an event in the order of
    /// their records.
    pub lines: Vec<LedgerLine>,
    /// The key at which the next page begins; [`None`] after the last page.
    pub next: Option<Vec<u8>>,
}

/// Adds the records of a subscription's lines to `batch`.
pub fn put_lines(batch: &mut Batch, subscription_key: SubscriptionKey, lines: &EncodedLines) {
    let mut lines_by_time: Vec<EncodedLine<'_>> =
        lines.for_subscription(subscription_key).collect();
    lines_by_time.sort_by_key(|line| by_time(&line.key));
    // A write that failed on a full disk may be there after all, beside its repetition.
    lines_by_time.dedup_by_key(|line| line.bytes);
    put_records(batch, &lines_by_time, keys::ledger_by_time, is_near);
    let parts;
    if !lines_by_time
        .iter()
        .all(|line| is_in_one_block(line.key.first, line.end))
    {
        parts = parts_of(&lines_by_time);
        lines_by_time = parts.for_subscription(subscription_key).collect();
    }
    lines_by_time.sort_by_key(|line| by_event(&line.key));
    put_records(batch, &lines_by_time, keys::ledger_key, is_in_block_of);
}

/// Adds records of sorted lines. Lines that follow the first one and fit to it share its record.
fn put_records(
    batch: &mut Batch,
    mut lines: &[EncodedLine<'_>],
    key: fn(LineKey) -> Vec<u8>,
    fits: fn(&LineKey, &LineKey) -> bool,
) {
    while let [first, following @ ..] = lines {
        let shares = |line: &&EncodedLine<'_>| fits(&first.key, &line.key);
        let (record, rest) = lines.split_at(
            1 + following
                .iter()
                .take(RECORD_LINES - 1)
                .take_while(shares)
                .count(),
        );
        batch.put(Family::Ledger, key(first.key), ledger_record(record));
        lines = rest;
    }
}

/// The key of a line. A line without events, which no record has, begins at 0.
fn key_of(
    subscription_key: SubscriptionKey,
    LedgerLine {
        lane,
        attempt,
        entry,
    }: &LedgerLine,
) -> LineKey {
    let first = entry.runs.first().map_or(Seq(0), |run| run.first);
    LineKey {
        subscription_key,
        lane: *lane,
        first,
        at: entry.at,
        attempt: *attempt,
        what: event_byte(&entry.what),
    }
}

/// The order of keys by time.
fn by_time(key: &LineKey) -> (Timestamp, Seq, Lane, u32, u8) {
    (key.at, key.first, key.lane, key.attempt, key.what)
}

/// The order of keys by event.
fn by_event(key: &LineKey) -> (Seq, Lane, Timestamp, u32, u8) {
    (key.first, key.lane, key.at, key.attempt, key.what)
}

/// Whether a line may be in a record by time that begins with `first`.
fn is_near(first: &LineKey, line: &LineKey) -> bool {
    line.at.since(first.at) <= RECORD_SPAN
}

/// Whether a line may be in a record by event that begins with `first`.
fn is_in_block_of(first: &LineKey, line: &LineKey) -> bool {
    line.first.0 / LEDGER_BLOCK == first.first.0 / LEDGER_BLOCK
}

fn is_line_in_one_block(line: &LedgerLine) -> bool {
    match &line.entry.runs[..] {
        [] => true,
        [first, .., last] => is_in_one_block(first.first, last.end_seq()),
        [only] => is_in_one_block(only.first, only.end_seq()),
    }
}

/// Whether the events of a line are in one block, as nearly always.
fn is_in_one_block(first: Seq, end: Seq) -> bool {
    first.0 / LEDGER_BLOCK == (end.0 - 1) / LEDGER_BLOCK
}

/// The lines, each split at the ends of blocks.
fn parts_of(lines: &[EncodedLine<'_>]) -> EncodedLines {
    let mut split = EncodedLines::default();
    for LedgerLine {
        lane,
        attempt,
        entry,
    } in lines.iter().map(EncodedLine::decode_line)
    {
        for runs in split_by_block(&entry.runs) {
            split.push_entry(
                lane,
                attempt,
                &LedgerEntry {
                    runs,
                    ..entry.clone()
                },
            );
        }
    }
    split
}

/// Splits the runs at the ends of blocks and returns a list for each block.
fn split_by_block(runs: &[SeqRun]) -> Vec<Vec<SeqRun>> {
    let mut parts: Vec<Vec<SeqRun>> = Vec::new();
    for run in runs {
        let mut at = run.first.0;
        let end = run.end_seq().0;
        while at < end {
            let upto = end.min((at / LEDGER_BLOCK + 1) * LEDGER_BLOCK);
            let run = SeqRun {
                first: Seq(at),
                count: (upto - at) as u32,
            };
            match parts
                .last_mut()
                .filter(|part| part[0].first.0 / LEDGER_BLOCK == at / LEDGER_BLOCK)
            {
                Some(part) => part.push(run),
                None => parts.push(vec![run]),
            }
            at = upto;
        }
    }
    parts
}

/// Whether the lines of a record match `key`, by event or by time.
pub fn matches_key(lines: &[LedgerLine], key: LineKey, is_by_event: bool) -> bool {
    let all: Vec<LineKey> = lines
        .iter()
        .map(|line| key_of(key.subscription_key, line))
        .collect();
    let is_whole = if is_by_event {
        all.is_sorted_by_key(by_event)
            && all.iter().all(|line| is_in_block_of(&key, line))
            && lines.iter().all(is_line_in_one_block)
    } else {
        all.is_sorted_by_key(by_time) && all.iter().all(|line| is_near(&key, line))
    };
    all.first() == Some(&key) && is_whole
}

/// The lines of an event from `from` on. Reads at most `scan_max` lines of its block, and the rest
/// of their last record.
pub fn read_event_lines(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    seq: Seq,
    from: Option<Vec<u8>>,
    scan_max: usize,
) -> Result<LedgerPage, StoreError> {
    let range = keys::ledger_upto(subscription_key, seq);
    let mut page = LedgerPage {
        lines: Vec::new(),
        next: None,
    };
    let mut scanned = 0;
    each_record(
        store,
        &from.unwrap_or(range.start)..&range.end,
        keys::parse_ledger,
        |key, _, lines| {
            if scanned >= scan_max {
                page.next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            scanned += lines.len();
            for line in lines
                .into_iter()
                .filter(|line| line.entry.contains_event(seq))
            {
                // A line that becomes a record during the scan may be met twice.
                if !page.lines.contains(&line) {
                    page.lines.push(line);
                }
            }
            ControlFlow::Continue(())
        },
    )?;
    Ok(page)
}

/// The lines in `range` for which `wanted` returns true: at most `max`. Reads at most `scan_max`
/// lines of the range, and the rest of their last record.
pub fn read_lines(
    store: &dyn Store,
    range: &Range<Vec<u8>>,
    max: usize,
    scan_max: usize,
    wanted: impl Fn(&LedgerEntry) -> bool,
) -> Result<LedgerPage, StoreError> {
    let mut page = LedgerPage {
        lines: Vec::new(),
        next: None,
    };
    // Lines that may come after lines of a later record.
    let mut waiting = BTreeMap::new();
    let mut scanned = 0;
    // Lines of the range may be in records that begin before it.
    let begin = keys::ledger_before(&range.start, RECORD_SPAN);
    each_record(
        store,
        &begin..&range.end,
        keys::parse_ledger_by_time,
        |record, key, lines| {
            if page
                .take_waiting(&mut waiting, Some(record), max)
                .is_break()
            {
                return ControlFlow::Break(());
            }
            if scanned >= scan_max {
                page.next = Some(record.max(&range.start).to_vec());
                return ControlFlow::Break(());
            }
            for line in lines {
                let at = keys::ledger_by_time(key_of(key.subscription_key, &line));
                if range.contains(&at) {
                    scanned += 1;
                    if wanted(&line.entry) {
                        waiting.insert(at, line);
                    }
                }
            }
            ControlFlow::Continue(())
        },
    )?;
    if page.next.is_none() {
        let _rest = page.take_waiting(&mut waiting, None, max);
    }
    Ok(page)
}

impl LedgerPage {
    /// Takes the waiting lines before `end`, up to `max` in all. Breaks if there is no room for
    /// what follows.
    fn take_waiting(
        &mut self,
        waiting: &mut BTreeMap<Vec<u8>, LedgerLine>,
        end: Option<&[u8]>,
        max: usize,
    ) -> ControlFlow<()> {
        while self.lines.len() < max {
            let next = waiting
                .first_entry()
                .filter(|next| end.is_none_or(|end| &next.key()[..] < end));
            let Some(next) = next else {
                return ControlFlow::Continue(());
            };
            self.lines.push(next.remove());
        }
        let waiting = waiting.keys().next().map(Vec::as_slice);
        self.next = waiting.into_iter().chain(end).min().map(<[u8]>::to_vec);
        ControlFlow::Break(())
    }
}

/// The time of a subscription's oldest line.
pub fn oldest_line_time(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
) -> Result<Option<Timestamp>, StoreError> {
    let mut oldest = None;
    let range = keys::ledger_between(subscription_key, Timestamp::default(), Timestamp::NEVER);
    store.scan(Family::Ledger, &range.start, &range.end, &mut |key, _| {
        oldest = keys::parse_ledger_by_time(key).map(|key| key.at);
        ControlFlow::Break(())
    })?;
    Ok(oldest)
}

/// Visits the records in `range`: the key as it is stored and parsed, and the lines.
fn each_record(
    store: &dyn Store,
    range: Range<&Vec<u8>>,
    parse: fn(&[u8]) -> Option<LineKey>,
    mut visit: impl FnMut(&[u8], LineKey, Vec<LedgerLine>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut bad = None;
    store.scan(
        Family::Ledger,
        range.start,
        range.end,
        &mut |stored, value| {
            let key = parse(stored);
            match (key, key.map(|key| ledger_lines(key, value))) {
                (Some(key), Some(Ok(lines))) => visit(stored, key, lines),
                (key, lines) => {
                    bad = Some(StoreError::damaged(format!(
                        "a ledger line cannot be decoded: {key:?} {lines:?}"
                    )));
                    ControlFlow::Break(())
                }
            }
        },
    )?;
    bad.map_or(Ok(()), Err)
}
