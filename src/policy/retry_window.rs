//! Due times of pending deliveries: a bounded window of keys, while millions may be on disk.
//!
//! Invariants:
//! - Only durable keys are taken. The next attempt leaves once the outcome of the last one cannot
//!   be lost. An incarnation therefore never finds the same event in two requests, and what it
//!   fetches is what was decided.
//! - Each pending delivery due before the horizon is in the window, on its way to the disk, being
//!   fetched, ready, or in flight. Keys beyond the horizon are on disk only. An empty window, or
//!   one whose keys are all beyond the horizon, reads the disk.
//! - What was read may be older than decisions made while it was read. Deliveries that became
//!   pending meanwhile are added, those that ended are left out.
//! - A roomy window reads on until it has all keys. A caller with fewer pending deliveries than its
//!   capacity can look up all keys of a lane there. Keys that may not be sent now are skipped and
//!   block nothing.
//!
//! What it does not do: it holds no events and no records, only keys.

use std::{collections::BTreeSet, time::Duration};

use crate::record::DueKey;
use gridhook_event::{Lane, Seq, Timestamp};

/// 4,096 keys of 24 bytes. More would be read long before they are due.
pub const WINDOW: usize = 4096;

/// Capacity of a roomy window: about 3 MB.
pub const ROOMY: usize = 16 * WINDOW;

/// The next pending deliveries by due time, with the writes that the disk may not have yet.
#[derive(Debug)]
pub struct RetryWindow {
    longest: Duration,
    size: usize,
    /// Durable, and due before the horizon.
    keys: DueKeys,
    /// Keys from this one on are on disk only; [`None`] if all keys are here.
    horizon: Option<DueKey>,
    /// The first key of the read in progress.
    asked: Option<DueKey>,
    /// Not handed to the journal yet.
    unwritten: UnwrittenChange,
    /// In the write in progress.
    written: Option<Box<UnwrittenChange>>,
    /// On disk, but perhaps not yet when the read began.
    late: Option<Box<UnwrittenChange>>,
}

/// Due keys in their order, and by delivery. A damaged store may have several of one delivery.
#[derive(Debug, Default)]
struct DueKeys {
    keys: BTreeSet<DueKey>,
    by_delivery: DeliveryDues,
}

/// Deliveries, each with a due time.
type DeliveryDues = BTreeSet<(Lane, Seq, Timestamp)>;

impl DueKeys {
    fn insert(&mut self, key: DueKey) {
        self.by_delivery.insert((key.lane, key.seq, key.due));
        self.keys.insert(key);
    }

    fn remove(&mut self, key: &DueKey) {
        self.by_delivery.remove(&(key.lane, key.seq, key.due));
        self.keys.remove(key);
    }

    fn pop_last(&mut self) -> Option<DueKey> {
        let last = self.keys.pop_last()?;
        self.by_delivery.remove(&(last.lane, last.seq, last.due));
        Some(last)
    }

    fn append_later(&mut self, mut later: Self) {
        self.keys.append(&mut later.keys);
        self.by_delivery.append(&mut later.by_delivery);
    }
}

/// The first due time of a delivery.
fn due_of(dues: &DeliveryDues, (lane, seq): (Lane, Seq)) -> Option<Timestamp> {
    let all = (lane, seq, Timestamp::default())..=(lane, seq, Timestamp::NEVER);
    dues.range(all).next().map(|(_, _, due)| *due)
}

/// Changes that the disk, or what was read from it, may not include.
#[derive(Debug, Default)]
struct UnwrittenChange {
    pending: DueKeys,
    /// A delivery may have left from several due times.
    left: DeliveryDues,
}

/// What the window knows about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEntry {
    /// Pending, due at this time.
    Pending(Timestamp),
    /// Ended, but not durably yet.
    Left,
    /// Unknown here; it may be on disk.
    Nothing,
}

impl UnwrittenChange {
    fn append_later(&mut self, mut later: Self) {
        self.pending.append_later(later.pending);
        self.left.append(&mut later.left);
    }

    fn is_empty(&self) -> bool {
        self.pending.keys.is_empty() && self.left.is_empty()
    }

    /// Whether the delivery left from this due time.
    fn has_left(&self, DueKey { due, lane, seq }: DueKey) -> bool {
        self.left.contains(&(lane, seq, due))
    }
}

impl RetryWindow {
    /// Only the first due time is known yet.
    ///
    /// No delivery waits for longer than `longest`. One that is due later was written before the
    /// clock was set back; it is taken as if it were due and rescheduled.
    pub fn from_first_due(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self {
            longest,
            size: WINDOW,
            keys: DueKeys::default(),
            horizon: next_due.map(DueKey::first_at),
            asked: None,
            unwritten: UnwrittenChange::default(),
            written: None,
            late: None,
        }
    }

    /// As [`RetryWindow::from_first_due`], with more capacity, reading all keys.
    pub fn recover_roomy(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self {
            size: ROOMY,
            ..Self::from_first_due(next_due, longest)
        }
    }

    /// The longest wait of a delivery.
    pub fn wait_max(&self) -> Duration {
        self.longest
    }

    /// Whether all pending keys are here.
    pub fn has_all(&self) -> bool {
        self.horizon.is_none()
    }

    /// Takes up to `max` durable keys of a lane, due or not.
    pub fn take_lane(&mut self, lane: Lane, max: usize) -> Vec<DueKey> {
        let keys: Vec<DueKey> = self
            .keys
            .keys
            .iter()
            .filter(|key| key.lane == lane)
            .take(max)
            .copied()
            .collect();
        for key in &keys {
            self.keys.remove(key);
        }
        keys
    }

    /// Adds a pending delivery. A previous key of it must have been removed with
    /// [`Self::remove_pending`].
    pub fn insert(&mut self, key: DueKey) {
        self.unwritten.left.remove(&(key.lane, key.seq, key.due));
        self.unwritten.pending.insert(key);
    }

    /// Removes a key, wherever it is.
    pub fn remove_pending(&mut self, key: DueKey) {
        self.keys.remove(&key);
        let boxed_changes = [&mut self.written, &mut self.late]
            .into_iter()
            .flatten()
            .map(|change| &mut **change);
        for ahead in std::iter::once(&mut self.unwritten).chain(boxed_changes) {
            ahead.pending.remove(&key);
        }
        self.unwritten.left.insert((key.lane, key.seq, key.due));
    }

    /// Whether this key was removed, and the removal is not in a write.
    pub fn has_left(&self, key: DueKey) -> bool {
        self.unwritten.has_left(key)
    }

    /// Changes that are not durable.
    fn unwritten_changes(&self) -> impl Iterator<Item = &UnwrittenChange> {
        std::iter::once(&self.unwritten).chain(self.written.as_deref())
    }

    /// What the window has of a delivery, as the last decision left it.
    pub fn find_pending(&self, key: (Lane, Seq)) -> WindowEntry {
        let durable_keys =
            std::iter::once(&self.keys).chain(self.late.as_deref().map(|late| &late.pending));
        let mut pending = self
            .unwritten_changes()
            .map(|ahead| &ahead.pending)
            .chain(durable_keys);
        if let Some(due) = pending.find_map(|keys| due_of(&keys.by_delivery, key)) {
            return WindowEntry::Pending(due);
        }
        // Removals that are durable are gone from the disk.
        let has_left = self
            .unwritten_changes()
            .any(|ahead| due_of(&ahead.left, key).is_some());
        if has_left {
            WindowEntry::Left
        } else {
            WindowEntry::Nothing
        }
    }

    /// Returns a key that was taken and not used.
    pub fn put_back(&mut self, key: DueKey) {
        if self.horizon.is_some_and(|horizon| key >= horizon) {
            return;
        }
        self.keys.insert(key);
        if self.keys.keys.len() > self.size {
            self.horizon = self.keys.pop_last();
        }
    }

    /// Notes that all changes are in the write in progress.
    pub fn begin_write(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten);
        if !unwritten.is_empty() {
            self.written.get_or_insert_default().append_later(unwritten);
        }
    }

    /// Notes that the write in progress is durable.
    pub fn finish_write(&mut self) {
        let Some(written) = self.written.take() else {
            return;
        };
        let UnwrittenChange { pending, left } = *written;
        if self.asked.is_some() {
            let late = self.late.get_or_insert_default();
            late.left.extend(left);
            let behind = pending
                .keys
                .iter()
                .filter(|key| self.horizon.is_some_and(|horizon| **key >= horizon));
            behind.for_each(|key| late.pending.insert(*key));
        }
        for key in pending.keys {
            self.put_back(key);
        }
    }

    /// A lower bound of the first due time.
    pub fn first_due(&self) -> Option<Timestamp> {
        let ahead = self
            .unwritten_changes()
            .filter_map(|ahead| ahead.pending.keys.first());
        let first_key = self.keys.keys.first().copied().or(self.horizon);
        ahead.copied().chain(first_key).min().map(|key| key.due)
    }

    /// When to take keys or ask the disk, if nothing happens before. Changes on their way to the
    /// disk wake the caller when they are durable.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let horizon = self.horizon.filter(|_| self.asked.is_none());
        let out_of_range = self
            .keys
            .keys
            .last()
            .or(horizon.as_ref())
            .is_some_and(|key| self.is_out_of_range(key.due, now));
        if out_of_range {
            return Some(now);
        }
        self.keys
            .keys
            .first()
            .or(horizon.as_ref())
            .map(|key| key.due)
    }

    /// As [`RetryWindow::next_wake`], for a roomy window and lanes that may send now.
    pub fn wakes_of(&self, now: Timestamp, may_go: impl Fn(Lane) -> bool) -> Option<Timestamp> {
        let first = self
            .keys
            .keys
            .iter()
            .find(|key| may_go(key.lane))
            .map(|key| key.due);
        let out_of_range = self
            .keys
            .keys
            .iter()
            .rev()
            .take_while(|key| self.is_out_of_range(key.due, now));
        let out_of_range = out_of_range.map(|key| key.lane).any(&may_go);
        if out_of_range { Some(now) } else { first }
    }

    /// Whether a due time is later than any retry can be.
    pub fn is_out_of_range(&self, due: Timestamp, now: Timestamp) -> bool {
        due > self.latest_due(now)
    }

    /// The latest possible due time.
    pub fn latest_due(&self, now: Timestamp) -> Timestamp {
        now.after(self.longest)
    }

    /// Takes up to `max` keys that are due or out of range, of lanes that may send now.
    pub fn take_due(
        &mut self,
        now: Timestamp,
        max: usize,
        may_go: impl Fn(Lane) -> bool,
    ) -> Vec<DueKey> {
        let out_of_range = self
            .keys
            .keys
            .iter()
            .rev()
            .take_while(|key| self.is_out_of_range(key.due, now));
        let due = self.keys.keys.iter().take_while(|key| key.due <= now);
        let due: Vec<DueKey> = due
            .chain(out_of_range)
            .filter(|key| may_go(key.lane))
            .take(max)
            .copied()
            .collect();
        for key in &due {
            self.keys.remove(key);
        }
        due
    }

    /// The first key to ask the disk for, if it is time to. At most one question is in progress.
    pub fn next_lookup(&mut self, now: Timestamp) -> Option<DueKey> {
        let room = self.keys.keys.len() + 2 * WINDOW <= self.size;
        if self.asked.is_none() && (self.keys.keys.is_empty() || room) {
            self.asked = self
                .horizon
                .filter(|from| room || from.due <= now || self.is_out_of_range(from.due, now));
            return self.asked;
        }
        None
    }

    /// Adds the next keys, read from disk. `all`: the disk has no more. `engaged` returns whether a
    /// key is being fetched, ready or in flight.
    pub fn add_stored(&mut self, keys: &[DueKey], all: bool, engaged: impl Fn(DueKey) -> bool) {
        let late = self.late.take().unwrap_or_default();
        // If the window overflowed meanwhile, its horizon is now before the question.
        let Some(from) = self.asked.take().filter(|from| self.horizon == Some(*from)) else {
            return;
        };
        self.horizon = if all {
            None
        } else {
            keys.last().map(|last| last.next()).or(Some(from))
        };
        let is_left = |key: DueKey| {
            late.has_left(key) || self.unwritten_changes().any(|ahead| ahead.has_left(key))
        };
        // They are added when they are durable.
        let comes = |key: DueKey| {
            self.unwritten_changes()
                .any(|ahead| ahead.pending.keys.contains(&key))
        };
        let fresh = keys
            .iter()
            .copied()
            .filter(|key| !engaged(*key) && !is_left(*key) && !comes(*key));
        let fresh: Vec<DueKey> = fresh.chain(late.pending.keys.iter().copied()).collect();
        for key in fresh {
            self.put_back(key);
        }
    }
}
