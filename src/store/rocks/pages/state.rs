//! The outcomes that pages have, in memory, and the rules by which they become records.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, hash_map::Entry},
};

use bytes::Bytes;

use super::{Outcomes, PlannedPage, PlannedWrite};
use crate::{
    Batch, Family, keys,
    records::{EncodedLines, LinesMark, OutcomePage, PageCursor, PageEntry, StoredRecord},
};
use gridhook_event::{IdMap, SubscriptionKey};

/// An outcome becomes records after this many pages: a page is written every 10 to 40 ms, so within
/// 10 to 40 s. All pages are read at a start.
const PAGES: u64 = 1024;

/// The maximum size of all pages, approximately: half a buffer of RocksDB, so that many pages are
/// deleted before they are in a file.
const PAGES_BYTES: usize = 4 << 20;

/// The maximum number of lines in memory, approximately: about 3 MiB.
const MEMORY_LINES: usize = 1 << 17;

/// The number of lines of a subscription that become records at once: with more of them in a record
/// it hardly becomes cheaper.
const SUBSCRIPTION_LINES: u32 = 64;

/// The number of lines of one write that become records at once. Each line of a page is written
/// again later.
const WRITE_LINES: u32 = 16;

/// A write turns the outcomes of at most this many subscriptions into records, besides twice its
/// own number, so that it is not delayed.
const STORED_SUBSCRIPTIONS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct PagesState {
    /// The number of the last page.
    pub(super) last: u64,
    pub(super) unstored: IdMap<SubscriptionKey, Unstored>,
    /// The subscriptions in `unstored`, by their first page.
    pub(super) order: BTreeSet<(u64, SubscriptionKey)>,
    /// The pages that are not deleted, and their sizes.
    pub(super) pages: BTreeMap<u64, usize>,
    /// The pages whose writes are in progress.
    pub(super) writing: BTreeSet<u64>,
    pub(super) bytes: usize,
    lines: usize,
}

/// The outcomes of a subscription that pages have and records do not.
#[derive(Debug)]
pub(super) struct Unstored {
    /// The first page with outcomes of the subscription.
    first: u64,
    /// The last page with outcomes of the subscription.
    last: u64,
    pub(super) cursor: Option<Bytes>,
    pub(super) lines: EncodedLines,
    /// Whether a write in progress adds outcomes.
    pub(super) is_growing: bool,
    /// Whether a write that was refused, and may be there after all, has another cursor.
    pub(super) is_uncertain: bool,
    pub(super) storing: Option<Storing>,
}

/// A write in progress that stores the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storing {
    /// The end of the lines that it stores.
    lines: LinesMark,
    /// The first page since the write began, and whether one has a cursor.
    renewed: Option<u64>,
    has_cursor: bool,
}

/// A write that is being planned.
pub(super) struct Plan {
    number: u64,
    page_changes: Batch,
    /// The entries of the page, with whole cursors.
    entries: Vec<(PageEntry, Option<Bytes>)>,
    storing: Vec<SubscriptionKey>,
}

impl PagesState {
    pub(super) fn begin_plan(&mut self) -> Plan {
        self.last += 1;
        Plan {
            number: self.last,
            page_changes: Batch::default(),
            entries: Vec::new(),
            storing: Vec::new(),
        }
    }

    /// Puts outcomes into the page, or stores them as records; and stores what pages have had for
    /// long.
    pub(super) fn store_or_page(
        &mut self,
        plan: &mut Plan,
        outcomes: Vec<(SubscriptionKey, Outcomes<'_>)>,
    ) {
        let is_crowded = self.bytes > PAGES_BYTES || self.lines > MEMORY_LINES;
        let is_due = |first: u64| is_crowded || first.saturating_add(PAGES) <= plan.number;
        let due = self
            .order
            .iter()
            .take_while(|(first, _)| is_due(*first))
            .map(|(_, key)| *key);
        let due = due.filter(|key| self.unstored.get(key).is_some_and(|known| !known.is_busy()));
        let mut due: BTreeSet<SubscriptionKey> = due
            .take(STORED_SUBSCRIPTIONS + 2 * outcomes.len())
            .collect();
        for (subscription_key, outcomes) in outcomes {
            let mut unstored = self.unstored.get_mut(&subscription_key);
            let lines = outcomes.lines.line_count();
            let all_lines = unstored
                .as_ref()
                .map_or(0, |unstored| unstored.lines.line_count())
                .saturating_add(lines);
            let is_storing = unstored
                .as_ref()
                .is_some_and(|unstored| unstored.storing.is_some());
            let is_uncertain = unstored
                .as_ref()
                .is_some_and(|unstored| unstored.is_uncertain);
            let is_due = due.remove(&subscription_key)
                || lines >= WRITE_LINES
                || all_lines >= SUBSCRIPTION_LINES;
            if is_due && !is_storing {
                self.store_outcomes(plan, subscription_key, outcomes);
                continue;
            }
            if let Some(unstored) = &mut unstored {
                unstored.is_growing = true;
            }
            // Another write stores the cursor before, or it is not known for certain.
            let before = unstored
                .and_then(|unstored| unstored.cursor.as_ref())
                .filter(|_| !is_storing && !is_uncertain);
            let cursor = outcomes
                .cursor
                .map(|cursor| PageCursor::new(before, cursor));
            let entry = PageEntry {
                subscription_key,
                stored_page: None,
                cursor,
                lines: outcomes.lines.into_owned(),
            };
            plan.entries.push((entry, outcomes.cursor.cloned()));
        }
        due.into_iter()
            .for_each(|key| self.store_outcomes(plan, key, Outcomes::default()));
    }

    /// Stores outcomes as records, with all that pages have of the subscription.
    pub(super) fn store_outcomes(
        &mut self,
        plan: &mut Plan,
        subscription_key: SubscriptionKey,
        outcomes: Outcomes<'_>,
    ) {
        let mut cursor = outcomes.cursor.cloned();
        let mut lines = outcomes.lines;
        if let Some(known) = self.unstored.get_mut(&subscription_key) {
            known.storing = Some(Storing {
                lines: known.lines.current_mark(),
                renewed: None,
                has_cursor: false,
            });
            cursor = cursor.or_else(|| known.cursor.clone());
            let mut all = known.lines.clone();
            all.append_later(&lines);
            lines = Cow::Owned(all);
            plan.storing.push(subscription_key);
            let stored_page = Some(known.last);
            let lines = EncodedLines::default();
            plan.entries.push((
                PageEntry {
                    subscription_key,
                    stored_page,
                    cursor: None,
                    lines,
                },
                None,
            ));
        }
        plan.page_changes
            .put_outcome_records(subscription_key, cursor, &lines);
    }

    /// Adds the page and the deletes of pages that have ended.
    pub(super) fn finish_plan<'a>(
        &mut self,
        plan: Plan,
        batch: Cow<'a, Batch>,
    ) -> PlannedWrite<'a> {
        let Plan {
            number,
            mut page_changes,
            mut entries,
            storing,
        } = plan;
        if entries.is_empty() {
            return PlannedWrite {
                page_changes,
                batch,
                page: None,
            };
        }
        self.writing.insert(number);
        let needed = self
            .order
            .first()
            .map(|(first, _)| *first)
            .into_iter()
            .chain(self.writing.first().copied());
        let needed = needed.min().unwrap_or(number);
        let rest = self.pages.split_off(&needed);
        let old_pages = std::mem::replace(&mut self.pages, rest);
        for (number, bytes) in &old_pages {
            self.bytes -= bytes;
            page_changes.single_delete(Family::Cursor, keys::outcome_page(*number));
        }
        entries.sort_unstable_by_key(|(entry, _)| entry.subscription_key);
        let (entries, cursors): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let page = OutcomePage {
            newest_end: needed - 1,
            entries,
        };
        let value = page.encode();
        let bytes = value.len();
        page_changes.put(Family::Cursor, keys::outcome_page(number), value);
        let entries = page
            .entries
            .into_iter()
            .zip(cursors)
            .filter(|(entry, _)| entry.stored_page.is_none());
        let new_entries = entries
            .map(|(entry, cursor)| (entry.subscription_key, cursor, entry.lines))
            .collect();
        PlannedWrite {
            page_changes,
            batch,
            page: Some(PlannedPage {
                number,
                bytes,
                added: new_entries,
                storing,
                deleted: old_pages,
            }),
        }
    }

    /// Adds what a page has of a subscription.
    pub(super) fn add(
        &mut self,
        number: u64,
        subscription_key: SubscriptionKey,
        cursor: Option<Bytes>,
        lines: EncodedLines,
    ) {
        if cursor.is_none() && lines.line_count() == 0 {
            return;
        }
        self.lines += lines.line_count() as usize;
        match self.unstored.entry(subscription_key) {
            Entry::Vacant(entry) => {
                let first = number;
                let last = number;
                let unstored = Unstored {
                    first,
                    last,
                    cursor,
                    lines,
                    is_growing: false,
                    is_uncertain: false,
                    storing: None,
                };
                entry.insert(unstored);
                self.order.insert((number, subscription_key));
            }
            Entry::Occupied(entry) => {
                let unstored = entry.into_mut();
                (unstored.last, unstored.is_growing) = (number, false);
                unstored.is_uncertain &= cursor.is_none();
                if let Some(storing) = &mut unstored.storing {
                    storing.renewed.get_or_insert(number);
                    storing.has_cursor |= cursor.is_some();
                }
                unstored.cursor = cursor.or(unstored.cursor.take());
                unstored.lines.append_later(&lines);
            }
        }
    }

    /// Forgets the outcomes of a subscription that a write has stored: they are no longer in pages
    /// alone.
    pub(super) fn forget_stored(&mut self, subscription_key: SubscriptionKey) {
        let Some(known) = self.unstored.get_mut(&subscription_key) else {
            return;
        };
        let Some(storing) = known.storing.take() else {
            return;
        };
        self.order.remove(&(known.first, subscription_key));
        self.lines -= storing.lines.line_count() as usize;
        let Some(first) = storing.renewed else {
            self.unstored.remove(&subscription_key);
            return;
        };
        known.first = first;
        known.lines.remove_before(storing.lines);
        if !storing.has_cursor {
            known.cursor = None;
        }
        self.order.insert((first, subscription_key));
    }
}

impl Unstored {
    /// Whether a write in progress adds to it or stores it.
    pub(super) fn is_busy(&self) -> bool {
        self.is_growing || self.storing.is_some()
    }
}
