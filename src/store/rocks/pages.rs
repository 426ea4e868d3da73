//! Pages of outcomes: the cursors and ledger lines of one write in one record.
//!
//! An outcome of a subscription is a cursor and a line of the ledger, which is found by event and
//! by time: three records, and a put of a small record costs more than its bytes. So a write puts
//! the outcomes of all its subscriptions into one page, and what a page has is kept in memory. A
//! subscription's last cursor and all of its lines become records once: after `PAGES` writes, or
//! earlier if there are many.
//!
//! Invariants:
//! - What a reader sees is as if each outcome had its records at once: [`Pages::find_cursor`] and
//!   [`Pages::scan_merged`] add what memory has. After a kill, [`Pages::load_pages`] reads it from
//!   the pages.
//! - A cursor may be what has changed since the one in the page before: both become records in the
//!   same write.
//! - A subscription's outcomes become records in one write with a page that says so, so that no
//!   line is written twice.
//! - Where a batch changes a cursor or a ledger record by its key, all of the batch is records, and
//!   so is what its subscriptions had in pages.
//! - While a write stores the records of a subscription, no other write does. Writers of several
//!   shards write at the same time, each the outcomes of its own subscriptions; any of them may
//!   store the records of any subscription.
//! - A page is deleted once all that it has is in records. A page that a full disk refused is
//!   numbered and deleted like any other, because it may be there after all.

mod state;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::atomic::Ordering,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use rocksdb::WriteOptions;

use self::state::{PagesState, Unstored};
use super::{RocksStore, rocksdb_error};
use crate::{
    Batch, Family, Store, StoreError, Visit, WriteOp, damage, keys,
    records::{EncodedLines, OutcomePage, PageEntry, StoredRecord},
};
use gridhook_event::SubscriptionKey;

/// The outcomes that are in pages and not in records of their own.
#[derive(Debug, Default)]
pub(super) struct Pages {
    state: Mutex<PagesState>,
    /// A write of records has ended.
    ended: Condvar,
}

/// A batch as it is written.
pub(super) struct PlannedWrite<'a> {
    /// The page with the outcomes of the batch, deletions of pages, and records of outcomes that
    /// leave pages. They are written before the batch.
    pub(super) page_changes: Batch,
    pub(super) batch: Cow<'a, Batch>,
    page: Option<PlannedPage>,
}

struct PlannedPage {
    number: u64,
    bytes: usize,
    /// The entries of the page, with whole cursors.
    added: Vec<(SubscriptionKey, Option<Bytes>, EncodedLines)>,
    /// Subscriptions whose records are stored.
    storing: Vec<SubscriptionKey>,
    /// Pages that are deleted, and their sizes.
    deleted: BTreeMap<u64, usize>,
}

/// The outcomes of one subscription in a batch.
#[derive(Default)]
struct Outcomes<'a> {
    cursor: Option<&'a Bytes>,
    lines: Cow<'a, EncodedLines>,
}

impl Pages {
    /// Reads the pages of a store. `unreadable` decides what follows from a page that cannot be
    /// decoded.
    pub(super) fn load_pages(
        &self,
        scan: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
        mut unreadable: impl FnMut(String) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut pages = BTreeMap::new();
        let mut result = Ok(());
        scan(&mut |key, value| {
            match (keys::parse_outcome_page(key), OutcomePage::decode(value)) {
                (Some(number), Ok(page)) => _ = pages.insert(number, (page, value.len())),
                (number, page) => {
                    result = unreadable(format!(
                        "a page of outcomes is damaged: {number:?} {page:?}"
                    ))
                }
            }
            if result.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        result?;
        let mut state = self.lock_state();
        let newest_end = pages
            .values()
            .map(|(page, _)| page.newest_end)
            .max()
            .unwrap_or(0);
        let mut entries = BTreeMap::<SubscriptionKey, Vec<(u64, PageEntry)>>::new();
        for (number, (page, bytes)) in pages {
            state.last = number;
            state.bytes += bytes;
            state.pages.insert(number, bytes);
            for entry in page.entries.into_iter().filter(|_| number > newest_end) {
                let parts = entries.entry(entry.subscription_key).or_default();
                parts.retain(|(of, _)| entry.stored_page.is_none_or(|stored| *of > stored));
                parts.push((number, entry));
            }
        }
        for (
            number,
            PageEntry {
                subscription_key,
                cursor,
                lines,
                ..
            },
        ) in entries.into_values().flatten()
        {
            let before = state
                .unstored
                .get(&subscription_key)
                .and_then(|known| known.cursor.as_ref());
            let after = cursor.as_ref().map(|cursor| cursor.cursor_after(before));
            if after == Some(None) {
                unreadable(format!(
                    "a page before page {number} of outcomes is missing"
                ))?;
            }
            state.add(number, subscription_key, after.flatten(), lines);
        }
        Ok(())
    }

    /// The cursor under a key, if it is in a page.
    pub(super) fn find_cursor(&self, family: Family, key: &[u8]) -> Option<Bytes> {
        let key = (family == Family::Cursor)
            .then(|| keys::parse_cursor(key))
            .flatten()?;
        self.lock_state().unstored.get(&key)?.cursor.clone()
    }

    /// The last record of a range, of which `last` is in no page.
    pub(super) fn last_record(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
        last: Option<(Vec<u8>, Bytes)>,
    ) -> Option<(Vec<u8>, Bytes)> {
        let page_record = self.records_in_range(family, lower, upper).pop_last();
        // Of two with the same key, that of a page is the newer one.
        let is_newer =
            |(key, _): &(Vec<u8>, Bytes)| last.as_ref().is_none_or(|(last, _)| key >= last);
        page_record.filter(is_newer).or(last)
    }

    /// Visits the records of a range that `scan` visits, and those that pages have.
    pub(super) fn scan_merged(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
        scan: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // Before the scan: a record that is stored meanwhile is met twice, and not never.
        let mut page_records = self
            .records_in_range(family, from, upper)
            .into_iter()
            .peekable();
        if page_records.peek().is_none() {
            return scan(visit);
        }
        let mut is_ended = false;
        scan(&mut |key, value| {
            while let Some((page_key, value)) =
                page_records.next_if(|(page_key, _)| &page_key[..] < key)
            {
                if visit(&page_key, &value).is_break() {
                    is_ended = true;
                    return ControlFlow::Break(());
                }
            }
            // The cursor of a page is the newer one.
            let is_newer = family == Family::Cursor
                && page_records
                    .peek()
                    .is_some_and(|(page_key, _)| &page_key[..] == key);
            if is_newer {
                return ControlFlow::Continue(());
            }
            let flow = visit(key, value);
            is_ended = flow.is_break();
            flow
        })?;
        while !is_ended && let Some((key, value)) = page_records.next() {
            is_ended = visit(&key, &value).is_break();
        }
        Ok(())
    }

    /// The records of a range that pages have.
    fn records_in_range(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
    ) -> BTreeMap<Vec<u8>, Bytes> {
        let mut records = BTreeMap::new();
        if !has_outcomes(family) {
            return records;
        }
        let state = self.lock_state();
        let only_key =
            keys::subscription_of(from).filter(|one| keys::subscription_of(upper) == Some(*one));
        let candidates: Vec<(&SubscriptionKey, &Unstored)> = match &only_key {
            Some(only_key) => state.unstored.get_key_value(only_key).into_iter().collect(),
            None => state.unstored.iter().collect(),
        };
        for (key, candidates) in candidates {
            let mut batch = Batch::default();
            match family {
                Family::Ledger => batch.put_outcome_records(*key, None, &candidates.lines),
                _ => batch.put_outcome_records(
                    *key,
                    candidates.cursor.clone(),
                    &EncodedLines::default(),
                ),
            }
            for op in batch.0 {
                if let WriteOp::Put(_, key, value) = op
                    && (from..upper).contains(&&key[..])
                {
                    records.insert(key, value);
                }
            }
        }
        records
    }

    /// Decides how a batch is written. Each plan ends with [`Pages::finish_write`] or
    /// [`Pages::cancel_write`].
    pub(super) fn plan_write<'a>(&self, batch: &'a Batch) -> PlannedWrite<'a> {
        let mut has_records = false;
        let mut has_any = false;
        for op in &batch.0 {
            has_any |= matches!(op, WriteOp::Outcomes(..));
            has_records |= op
                .family_and_key()
                .is_some_and(|(family, _)| has_outcomes(family));
        }
        if has_records {
            return self.plan_records(batch.without_outcomes());
        }
        if !has_any {
            return PlannedWrite {
                page_changes: Batch::default(),
                batch: Cow::Borrowed(batch),
                page: None,
            };
        }
        let mut state = self.lock_state();
        let mut plan = state.begin_plan();
        state.store_or_page(&mut plan, outcomes_of(batch));
        state.finish_plan(plan, Cow::Borrowed(batch))
    }

    /// Plans a batch of records: what pages have of its subscriptions becomes records before it.
    fn plan_records<'a>(&self, batch: Cow<'a, Batch>) -> PlannedWrite<'a> {
        let mut state = self.lock_state();
        let mut keys_changed = BTreeSet::new();
        if !state.unstored.is_empty() {
            let keys = batch
                .0
                .iter()
                .filter_map(WriteOp::family_and_key)
                .filter(|(family, _)| has_outcomes(*family));
            keys_changed.extend(keys.filter_map(|(_, key)| keys::subscription_of(key)));
        }
        while keys_changed
            .iter()
            .any(|key| state.unstored.get(key).is_some_and(Unstored::is_busy))
        {
            self.ended.wait(&mut state);
        }
        let mut plan = state.begin_plan();
        for key in keys_changed
            .into_iter()
            .filter(|key| state.unstored.contains_key(key))
            .collect::<Vec<_>>()
        {
            state.store_outcomes(&mut plan, key, Outcomes::default());
        }
        state.finish_plan(plan, batch)
    }

    /// Plans a write of all that pages have, as records.
    pub(super) fn plan_all(&self) -> PlannedWrite<'static> {
        let mut state = self.lock_state();
        let mut plan = state.begin_plan();
        let all: Vec<SubscriptionKey> = state.order.iter().map(|(_, key)| *key).collect();
        all.into_iter()
            .for_each(|key| state.store_outcomes(&mut plan, key, Outcomes::default()));
        state.finish_plan(plan, Cow::Owned(Batch::default()))
    }

    /// The planned write is durable.
    pub(super) fn finish_write(&self, write: PlannedWrite<'_>) {
        let Some(page) = write.page else { return };
        let mut state = self.lock_state();
        state.writing.remove(&page.number);
        for key in &page.storing {
            state.forget_stored(*key);
        }
        for (key, cursor, lines) in page.added {
            state.add(page.number, key, cursor, lines);
        }
        state.pages.insert(page.number, page.bytes);
        state.bytes += page.bytes;
        drop(state);
        self.ended.notify_all();
    }

    /// The planned write was refused.
    pub(super) fn cancel_write(&self, write: PlannedWrite<'_>) {
        let Some(page) = write.page else { return };
        let mut state = self.lock_state();
        state.writing.remove(&page.number);
        for key in &page.storing {
            if let Some(known) = state.unstored.get_mut(key) {
                (known.storing, known.is_uncertain) = (None, true);
            }
        }
        for (key, ..) in &page.added {
            if let Some(known) = state.unstored.get_mut(key) {
                (known.is_growing, known.is_uncertain) = (false, true);
            }
        }
        state.bytes += page.deleted.values().sum::<usize>();
        state.pages.extend(page.deleted);
        // The page may be there after all.
        state.pages.insert(page.number, 0);
        drop(state);
        self.ended.notify_all();
    }

    /// The state changes only where nothing can panic in between.
    fn lock_state(&self) -> MutexGuard<'_, PagesState> {
        self.state.lock()
    }
}

impl RocksStore {
    pub(super) fn write_planned(
        &self,
        planned: PlannedWrite<'_>,
        mode: &WriteOptions,
    ) -> Result<(), StoreError> {
        let written = self
            .db
            .write_opt(self.encode_write(&planned), mode)
            .map_err(rocksdb_error);
        let check = || self.folder.check_writable();
        let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
        if let Err(error) = written.and_then(|()| check().map_err(failed)) {
            self.pages.cancel_write(planned);
            return Err(self.record_failed_write(error));
        }
        self.pages.finish_write(planned);
        self.full.store(false, Ordering::Release);
        Ok(())
    }

    /// Reads the pages of outcomes.
    pub(super) fn load_pages(&self) -> Result<(), StoreError> {
        let range = keys::outcome_pages();
        let scan =
            |visit: &mut Visit<'_>| self.scan(Family::Cursor, &range.start, &range.end, visit);
        self.pages
            .load_pages(scan, |what| Err(StoreError::Damaged(what)))
    }

    /// Reads the pages of outcomes that can be read, and makes records of what they have.
    pub(super) fn store_readable_pages(&self) -> Result<(), StoreError> {
        self.pages
            .load_pages(|visit| damage::scan_readable_pages(self, visit), |_| Ok(()))?;
        self.write_planned(self.pages.plan_all(), &self.writes.synced)
    }
}

/// Whether records of this family may be written in pages.
fn has_outcomes(family: Family) -> bool {
    matches!(family, Family::Cursor | Family::Ledger)
}

/// The outcomes of a batch, of each subscription together.
fn outcomes_of(batch: &Batch) -> Vec<(SubscriptionKey, Outcomes<'_>)> {
    let mut ops: Vec<&WriteOp> = batch
        .0
        .iter()
        .filter(|op| outcomes_key(op).is_some())
        .collect();
    ops.sort_by_key(|op| outcomes_key(op));
    let mut all: Vec<(SubscriptionKey, Outcomes<'_>)> = Vec::with_capacity(ops.len());
    for op in ops {
        let WriteOp::Outcomes(key, cursor, lines) = op else {
            continue;
        };
        match all.last_mut().filter(|(last, _)| last == key) {
            Some((_, outcomes)) => {
                outcomes.cursor = cursor.as_ref().or(outcomes.cursor);
                outcomes.lines.to_mut().append_later(lines);
            }
            None => all.push((
                *key,
                Outcomes {
                    cursor: cursor.as_ref(),
                    lines: Cow::Borrowed(lines),
                },
            )),
        }
    }
    all
}

fn outcomes_key(op: &WriteOp) -> Option<SubscriptionKey> {
    match op {
        WriteOp::Outcomes(key, ..) => Some(*key),
        WriteOp::Put(..) | WriteOp::Delete(..) | WriteOp::SingleDelete(..) => None,
    }
}
