//! Damage of an open store: which events and which families cannot be read, and how reading
//! continues past it.
//!
//! RocksDB verifies the checksum of every block that it reads and refuses a damaged block. A block
//! contains a few dozen records. An iterator stops at it, but records in other blocks are still
//! readable.
//!
//! Invariants:
//! - A gap in the log is exact: it begins at the end of the last readable chunk and ends at the
//!   beginning of the next one. Chunks near a gap are looked up one by one, because an iterator
//!   stops at a damaged block of any file that it merges, while a lookup searches the newer files
//!   first.
//! - Damage is recorded before a reader continues past it.
//! - Recorded damage is forgotten only after a complete pass of the scrub (`journal::scrub`) did
//!   not find it again.
//! - Families that must be complete (cursors, the control plane's records) are never skipped over:
//!   reading them is an error, and the damage is recorded.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{Family, Store, StoreError, Visit, keys, layer::StoreLayer};
use gridhook_event::{PartitionId, Seq};

/// The known damage, and the progress of the scrub. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Damage(Arc<DamageShared>);

#[derive(Debug, Default)]
struct DamageShared {
    /// Whether any damage is known. Read at every read of the log.
    any: AtomicBool,
    known: Mutex<KnownDamage>,
    scrubbed: AtomicU64,
    passes: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownDamage {
    /// The number of the current pass of the scrub.
    pass: u64,
    /// The gaps by their first sequence: the end of each, and the pass that last found it.
    gaps: BTreeMap<(PartitionId, Seq), (Seq, u64)>,
    families: BTreeMap<Family, u64>,
}

/// A range of a partition's log that is missing or unreadable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogGap {
    pub partition: u32,
    pub first: u64,
    /// The number of missing sequences. Some of them may never have had an event.
    pub count: u64,
}

/// A summary of the known damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageSummary {
    pub gaps: Vec<LogGap>,
    /// The families with a damaged block in a table.
    pub families: Vec<Family>,
}

impl DamageSummary {
    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty() && self.families.is_empty()
    }

    /// The number of events that cannot be read, at most: some sequences never had an event.
    pub fn lost_events(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.count).sum()
    }
}

/// The progress of the scrub since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    pub bytes: u64,
    /// Complete passes over all tables.
    pub passes: u64,
}

impl Damage {
    pub fn read_summary(&self) -> DamageSummary {
        let damage = self.0.known.lock();
        let gaps = damage
            .gaps
            .iter()
            .map(|((partition, first), (end, _))| LogGap {
                partition: partition.0,
                first: first.0,
                count: end.0 - first.0,
            });
        DamageSummary {
            gaps: gaps.collect(),
            families: damage.families.keys().copied().collect(),
        }
    }

    pub fn scrub_progress(&self) -> Scrubbed {
        let DamageShared {
            scrubbed, passes, ..
        } = &*self.0;
        Scrubbed {
            bytes: scrubbed.load(Ordering::Relaxed),
            passes: passes.load(Ordering::Relaxed),
        }
    }

    /// The end of the gap that contains `at`.
    pub fn gap_end(&self, partition: PartitionId, at: Seq) -> Option<Seq> {
        if !self.0.any.load(Ordering::Acquire) {
            return None;
        }
        self.0
            .known
            .lock()
            .find_gap(partition, at)
            .map(|(_, end)| end)
            .filter(|end| *end > at)
    }

    /// Whether a gap ends at `at`, so that it may continue there.
    fn ends_at(&self, partition: PartitionId, at: Seq) -> bool {
        self.0
            .known
            .lock()
            .find_gap(partition, at)
            .is_some_and(|(_, end)| end == at)
    }

    /// Records that the events from `first` to before `end` cannot be read.
    pub fn record_loss(&self, partition: PartitionId, first: Seq, end: Seq) {
        let mut damage = self.0.known.lock();
        let pass = damage.pass;
        if damage
            .find_gap(partition, first)
            .is_some_and(|(_, behind)| end <= behind)
        {
            damage.confirm_gap(partition, first);
            return;
        }
        let begins = damage
            .find_gap(partition, first)
            .map_or(first, |(begins, _)| begins);
        let overlapping: Vec<_> = damage
            .gaps
            .range((partition, begins)..=(partition, end))
            .map(|(key, _)| *key)
            .collect();
        let mut upto = end;
        for key in overlapping {
            upto = damage
                .gaps
                .remove(&key)
                .map_or(upto, |(behind, _)| upto.max(behind));
        }
        damage.gaps.insert((partition, begins), (upto, pass));
        self.0.any.store(true, Ordering::Release);
        drop(damage);
        let partition = partition.0;
        let last = end.0 - 1;
        let events = end.0 - first.0;
        tracing::error!(
            partition,
            first = first.0,
            last,
            events,
            "events of a damaged store cannot be read"
        );
    }

    /// Records that a block of a table of `family` cannot be read. Returns whether this is new.
    pub fn record_damaged_block(&self, family: Family, what: &str) -> bool {
        let mut damage = self.0.known.lock();
        let pass = damage.pass;
        let is_new = damage.families.insert(family, pass).is_none();
        self.0.any.store(true, Ordering::Release);
        drop(damage);
        if is_new {
            tracing::error!(
                family = family.name(),
                what,
                "a table of the store is damaged; stop the server and restore a backup, or accept \
                 the loss with gridhook restore --accept-loss"
            );
        }
        is_new
    }

    pub fn count_scrubbed(&self, bytes: u64) {
        self.0.scrubbed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins a pass over all tables.
    pub fn begin_pass(&self) {
        self.0.known.lock().pass += 1;
    }

    /// Ends a pass: damage that it did not find again is forgotten. Returns the families that are
    /// readable again.
    pub fn end_pass(&self) -> Vec<Family> {
        let mut damage = self.0.known.lock();
        let pass = damage.pass;
        damage.gaps.retain(|_, (_, last_seen)| *last_seen == pass);
        let whole = damage
            .families
            .extract_if(.., |_, last_seen| *last_seen != pass)
            .map(|(family, _)| family)
            .collect();
        let any = !damage.gaps.is_empty() || !damage.families.is_empty();
        self.0.any.store(any, Ordering::Release);
        self.0.passes.fetch_add(1, Ordering::Relaxed);
        whole
    }
}

impl KnownDamage {
    /// The gap that contains `at` or ends there.
    fn find_gap(&self, partition: PartitionId, at: Seq) -> Option<(Seq, Seq)> {
        let ((of, first), (end, _)) = self.gaps.range(..=(partition, at)).next_back()?;
        (*of == partition && *end >= at).then_some((*first, *end))
    }

    fn confirm_gap(&mut self, partition: PartitionId, at: Seq) {
        let pass = self.pass;
        if let Some((_, (_, last_seen))) = self.gaps.range_mut(..=(partition, at)).next_back() {
            *last_seen = pass;
        }
    }
}

/// Whether `at` directly follows a gap.
pub(super) fn follows_gap(store: &dyn Store, partition: PartitionId, at: Seq) -> bool {
    store
        .damage()
        .is_some_and(|damage| damage.ends_at(partition, at))
}

/// A store that records damage. [`Store::scan`] continues past it, except in families that must be
/// complete. All other reads return the error: the scrub needs it ([`Store::scan_uncached`]), and a
/// read of one record has nothing to continue with.
pub struct TolerantStore {
    store: Arc<dyn Store>,
    damage: Damage,
}

impl TolerantStore {
    pub fn new(store: Arc<dyn Store>, damage: Damage) -> Self {
        Self { store, damage }
    }

    fn record_damage<T>(
        &self,
        family: Family,
        read: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(what)) = &read {
            self.note_damage(family, what);
        }
        read
    }

    fn note_damage(&self, family: Family, what: &str) {
        if self.damage.record_damaged_block(family, what) {
            self.inner().set_compaction_paused(family, true);
        }
    }
}

/// Whether a scan may skip unreadable records. Readers of the log report gaps themselves, and due
/// times can be rebuilt from the pending deliveries.
fn is_passed_over(family: Family) -> bool {
    match family {
        Family::Meta | Family::Cursor | Family::Log | Family::Due => false,
        Family::Pending
        | Family::Carried
        | Family::Pin
        | Family::Dead
        | Family::Ledger
        | Family::Excerpt
        | Family::Ids
        | Family::PublishedIds => true,
    }
}

impl StoreLayer for TolerantStore {
    type Inner = dyn Store;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.record_damage(family, self.inner().get(family, key))
    }

    fn get_all(&self, family: Family, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.record_damage(family, self.inner().get_all(family, keys))
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if !is_passed_over(family) {
            return self.record_damage(family, self.inner().scan(family, from, upper, visit));
        }
        scan_past(self.inner(), family, from, upper, visit, &mut |what| {
            // The damage is recorded, and the scan continues with the rest.
            self.note_damage(family, &what);
        })
    }

    fn last(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.record_damage(family, self.inner().last(family, lower, upper))
    }

    fn damage(&self) -> Option<&Damage> {
        Some(&self.damage)
    }

    fn scan_uncached(
        &self,
        family: Family,
        from: &[u8],
        upper: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.record_damage(
            family,
            self.inner().scan_uncached(family, from, upper, visit),
        )
    }

    fn last_uncached(
        &self,
        family: Family,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
        self.record_damage(family, self.inner().last_uncached(family, lower, upper))
    }
}

/// Visits the pages of outcomes that can be read.
pub(crate) fn scan_readable_pages(
    store: &dyn Store,
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    let range = keys::outcome_pages();
    scan_past(
        store,
        Family::Cursor,
        &range.start,
        &range.end,
        visit,
        &mut |_| {},
    )
}

/// Like [`Store::scan`], but continues past unreadable blocks. Calls `missing` for each of them.
pub fn scan_past(
    store: &dyn Store,
    family: Family,
    from: &[u8],
    upper: &[u8],
    visit: &mut Visit<'_>,
    missing: &mut dyn FnMut(String),
) -> Result<(), StoreError> {
    let mut from = from.to_vec();
    let mut last = Vec::new();
    loop {
        last.clear();
        let result = store.scan(family, &from, upper, &mut |key, value| {
            last.clear();
            last.extend_from_slice(key);
            visit(key, value)
        });
        let Err(StoreError::Damaged(what)) = result else {
            return result;
        };
        missing(what);
        if !last.is_empty() {
            // The least key after it.
            last.push(0);
            from.clone_from(&last);
        }
        match next_readable(store, family, &from, upper)? {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

fn pad_key(key: &[u8], width: usize) -> Vec<u8> {
    let mut padded = key.to_vec();
    padded.resize(width, 0);
    padded
}

/// Whether a scan from `key` reads its first record.
fn starts_readable(
    store: &dyn Store,
    family: Family,
    key: &[u8],
    upper: &[u8],
) -> Result<bool, StoreError> {
    match store.scan(family, key, upper, &mut |_, _| ControlFlow::Break(())) {
        Ok(()) => Ok(true),
        Err(StoreError::Damaged(_)) => Ok(false),
        Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
    }
}

/// Longer than every key except those of `meta`. For longer keys the result is only less exact.
const KEY_MAX: usize = 48;

/// Approximately the least key, from `from` on, at which a scan can read again; [`None`] if nothing
/// up to `upper` can be read.
pub fn next_readable(
    store: &dyn Store,
    family: Family,
    from: &[u8],
    upper: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let is_readable = |key: &[u8]| starts_readable(store, family, key, upper);
    let width = from.len().max(upper.len()).max(KEY_MAX);
    let mut low = pad_key(from, width);
    let mut high = pad_key(upper, width);
    // Steps grow exponentially, because a block may contain one key or thousands. Then a binary
    // search finds the end of the block.
    for bit in 0..width * 8 {
        let start = pad_key(from, width);
        let Some(next) = plus_bit(&start, bit).filter(|next| *next < high) else {
            break;
        };
        if is_readable(&next)? {
            high = next;
            break;
        }
        low = next;
    }
    loop {
        let middle = mean_key(&low, &high);
        if middle <= low {
            break;
        }
        if is_readable(&middle)? {
            high = middle
        } else {
            low = middle
        }
    }
    Ok((high < pad_key(upper, width)).then_some(high))
}

/// `number + 2^bit`, both big-endian; [`None`] on overflow.
fn plus_bit(number: &[u8], bit: usize) -> Option<Vec<u8>> {
    let mut sum = number.to_vec();
    let mut index = number.len().checked_sub(1 + bit / 8)?;
    let (first, mut carry) = sum[index].overflowing_add(1 << (bit % 8));
    sum[index] = first;
    while carry {
        index = index.checked_sub(1)?;
        (sum[index], carry) = sum[index].overflowing_add(1);
    }
    Some(sum)
}

/// The mean of two numbers of the same length.
fn mean_key(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut sum = vec![0; low.len()];
    let mut carry = 0;
    for index in (0..low.len()).rev() {
        let digit = u16::from(low[index]) + u16::from(high[index]) + carry;
        sum[index] = digit as u8;
        carry = digit >> 8;
    }
    for digit in &mut sum {
        let wide = (carry << 8) | u16::from(*digit);
        *digit = (wide >> 1) as u8;
        carry = wide & 1;
    }
    sum
}
