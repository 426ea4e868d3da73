//! The ledger: the history of each event's delivery, found by event and by time.
//!
//! A line is stored twice. By time it is stored whole, one line for each request. By event it is stored under its first
//! event and is split at the end of each block of 4,096 sequences. So all lines that cover an event begin in its block,
//! and looking up an event reads one block, however far apart the events of a request were.
//!
//! Invariants: nothing is deleted here; if the ledger exceeds its size, the store drops its oldest files, which contain
//! both copies of their lines. A line never changes: the time of its writing is in its key.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    keys::{self, LineKey},
    records::{StoredRecord, event_byte},
};
use crate::{
    event::{Lane, Seq, SubscriptionKey, Timestamp},
    policy::record::{LEDGER_BLOCK, LedgerEntry, LedgerLine},
    store::{Batch, Family, Store, StoreError},
};

/// A page of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage {
    /// The lines, in order.
    pub lines: Vec<LedgerLine>,
    /// The key at which the next page begins; [`None`] after the last page.
    pub next: Option<Vec<u8>>,
}

/// Adds a line to `batch`.
pub(crate) fn put(batch: &mut Batch, subscription_key: SubscriptionKey, lane: Lane, attempt: u32, entry: &LedgerEntry) {
    let Some((first, _)) = entry.covers.first() else { return };
    let key = LineKey { subscription_key, lane, first: *first, at: entry.at, attempt, what: event_byte(&entry.what) };
    let whole = Bytes::from(entry.encode());
    if is_in_one_block(&entry.covers) {
        batch.put(Family::Ledger, keys::ledger(key), whole.clone());
    } else {
        for covers in parts(&entry.covers) {
            let part = LineKey { first: covers[0].0, ..key };
            batch.put(Family::Ledger, keys::ledger(part), LedgerEntry { covers, ..entry.clone() }.encode());
        }
    }
    batch.put(Family::Ledger, keys::ledger_by_time(key), whole);
}

/// Whether all runs are in one block, as for nearly every line.
fn is_in_one_block(covers: &[(Seq, u32)]) -> bool {
    let mut blocks = covers.iter().flat_map(|(first, count)| {
        [first.0 / LEDGER_BLOCK, (first.0 + u64::from(count.saturating_sub(1))) / LEDGER_BLOCK]
    });
    let Some(block) = blocks.next() else { return true };
    blocks.all(|other| other == block)
}

/// Splits the runs at the ends of blocks and returns a list for each block.
fn parts(covers: &[(Seq, u32)]) -> Vec<Vec<(Seq, u32)>> {
    let mut parts: Vec<Vec<(Seq, u32)>> = Vec::new();
    for (first, count) in covers {
        let (mut at, end) = (first.0, first.0 + u64::from(*count));
        while at < end {
            let upto = end.min((at / LEDGER_BLOCK + 1) * LEDGER_BLOCK);
            let run = (Seq(at), (upto - at) as u32);
            match parts.last_mut().filter(|part| part[0].0.0 / LEDGER_BLOCK == at / LEDGER_BLOCK) {
                Some(part) => part.push(run),
                None => parts.push(vec![run]),
            }
            at = upto;
        }
    }
    parts
}

/// Whether a line matches `key`, by event or by time.
pub(crate) fn is_at(entry: &LedgerEntry, key: LineKey, by_event: bool) -> bool {
    let first = entry.covers.first().map(|(first, _)| *first);
    let in_one_block = || parts(&entry.covers).len() == 1;
    (event_byte(&entry.what), entry.at, first) == (key.what, key.at, Some(key.first)) && (!by_event || in_one_block())
}

/// Whether a line covers an event.
fn covers(entry: &LedgerEntry, seq: Seq) -> bool {
    let behind = entry.covers.partition_point(|(first, _)| *first <= seq);
    behind.checked_sub(1).is_some_and(|run| {
        let (first, count) = entry.covers[run];
        seq.0 - first.0 < u64::from(count)
    })
}

/// The lines of an event from `from` on. Reads at most `looks` lines of its block.
pub(crate) fn of_event(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    seq: Seq,
    from: Option<Vec<u8>>,
    looks: usize,
) -> Result<LedgerPage, StoreError> {
    let range = keys::ledger_upto(subscription_key, seq);
    let from = from.unwrap_or(range.start);
    collect(store, &from, &range.end, looks, usize::MAX, keys::parse_ledger, |entry| covers(entry, seq))
}

/// The lines in `range` for which `wanted` returns true: at most `max`. Reads at most `looks` lines.
pub(crate) fn between(
    store: &dyn Store,
    range: &std::ops::Range<Vec<u8>>,
    max: usize,
    looks: usize,
    wanted: impl Fn(&LedgerEntry) -> bool,
) -> Result<LedgerPage, StoreError> {
    collect(store, &range.start, &range.end, looks, max, keys::parse_ledger_by_time, wanted)
}

/// The time of a subscription's oldest line.
pub(crate) fn oldest(store: &dyn Store, subscription_key: SubscriptionKey) -> Result<Option<Timestamp>, StoreError> {
    let mut oldest = None;
    let range = keys::ledger_between(subscription_key, Timestamp::default(), Timestamp::NEVER);
    store.scan(Family::Ledger, &range.start, &range.end, &mut |key, _| {
        oldest = keys::parse_ledger_by_time(key).map(|key| key.at);
        ControlFlow::Break(())
    })?;
    Ok(oldest)
}

fn collect(
    store: &dyn Store,
    from: &[u8],
    upper: &[u8],
    looks: usize,
    max: usize,
    parse: fn(&[u8]) -> Option<LineKey>,
    wanted: impl Fn(&LedgerEntry) -> bool,
) -> Result<LedgerPage, StoreError> {
    let mut page = LedgerPage { lines: Vec::new(), next: None };
    let mut seen = 0;
    let mut bad = None;
    store.scan(Family::Ledger, from, upper, &mut |key, value| {
        if seen == looks || page.lines.len() == max {
            page.next = Some(key.to_vec());
            return ControlFlow::Break(());
        }
        seen += 1;
        match (parse(key), LedgerEntry::decode(value)) {
            (Some(LineKey { lane, attempt, .. }), Ok(entry)) => {
                if wanted(&entry) {
                    page.lines.push(LedgerLine { lane, attempt, entry });
                }
                ControlFlow::Continue(())
            }
            (key, entry) => {
                bad = Some(StoreError::damaged(format!("a ledger line cannot be decoded: {key:?} {entry:?}")));
                ControlFlow::Break(())
            }
        }
    })?;
    bad.map_or(Ok(page), Err)
}
