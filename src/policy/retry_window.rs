//! Due times of pending deliveries: a bounded window of keys, while millions may be on disk.
//!
//! Invariants:
//! - Only durable keys are taken. The next attempt leaves once the outcome of the last one cannot be lost. An
//!   incarnation therefore never finds the same event in two requests, and what it fetches is what was decided.
//! - Each pending delivery due before the horizon is in the window, on its way to the disk, being fetched, ready, or in
//!   flight. Beyond the horizon only the disk knows. An empty window, or one whose keys are all beyond the horizon,
//!   asks the disk.
//! - The disk's answer may be older than decisions made while it was read. Deliveries that became pending meanwhile are
//!   added, those that ended are left out.
//! - A roomy window reads on until it has all keys. A caller with fewer pending deliveries than its capacity can look
//!   up all keys of a lane there. Keys that may not be sent now are skipped and block nothing.
//!
//! What it does not do: it holds no events and no records, only keys.

use std::{collections::BTreeSet, time::Duration};

use crate::record::DueKey;
use gridhook_event::{Lane, Seq, Timestamp};

/// 4,096 keys of 24 bytes. More would be read long before they are due.
pub const WINDOW: usize = 4096;

/// Capacity of a roomy window: about 3 MB.
pub const ROOMY: usize = 16 * WINDOW;

/// The window.
#[derive(Debug)]
pub struct RetryWindow {
    longest: Duration,
    size: usize,
    /// Durable, and due before the horizon.
    keys: BTreeSet<DueKey>,
    /// From this key on only the disk knows; [`None`] if all keys are here.
    horizon: Option<DueKey>,
    /// The first key of the question in progress.
    asked: Option<DueKey>,
    /// Not handed to the journal yet.
    unwritten: UnwrittenChange,
    /// In the write in progress.
    written: UnwrittenChange,
    /// On disk, but perhaps not yet when the disk was asked.
    late: UnwrittenChange,
}

/// Changes that the disk, or its answer, may not include.
#[derive(Debug, Default)]
struct UnwrittenChange {
    pending: BTreeSet<DueKey>,
    left: BTreeSet<DueKey>,
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
    fn append(&mut self, mut later: Self) {
        self.pending.append(&mut later.pending);
        self.left.append(&mut later.left);
    }
}

impl RetryWindow {
    /// Only the first due time is known yet.
    ///
    /// No delivery waits for longer than `longest`. One that is due later was written before the clock was set back; it
    /// is taken as if it were due and rescheduled.
    pub fn recover(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self {
            longest,
            size: WINDOW,
            keys: BTreeSet::new(),
            horizon: next_due.map(DueKey::at),
            asked: None,
            unwritten: UnwrittenChange::default(),
            written: UnwrittenChange::default(),
            late: UnwrittenChange::default(),
        }
    }

    /// The same with more capacity, reading all keys.
    pub fn recover_roomy(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self { size: ROOMY, ..Self::recover(next_due, longest) }
    }

    /// The longest wait of a delivery.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether all pending keys are here.
    pub fn has_all(&self) -> bool {
        self.horizon.is_none()
    }

    /// Takes up to `max` durable keys of a lane, due or not.
    pub fn take_lane(&mut self, lane: Lane, max: usize) -> Vec<DueKey> {
        let keys: Vec<DueKey> = self.keys.iter().filter(|key| key.lane == lane).take(max).copied().collect();
        for key in &keys {
            self.keys.remove(key);
        }
        keys
    }

    /// Adds a pending delivery. A previous key of it must have been removed with [`Self::leave`].
    pub fn insert(&mut self, key: DueKey) {
        self.unwritten.left.remove(&key);
        self.unwritten.pending.insert(key);
    }

    /// Removes a key, wherever it is.
    pub fn leave(&mut self, key: DueKey) {
        self.keys.remove(&key);
        for ahead in [&mut self.unwritten, &mut self.written, &mut self.late] {
            ahead.pending.remove(&key);
        }
        self.unwritten.left.insert(key);
    }

    /// Whether this key was removed, and the removal is not in a write.
    pub fn has_left(&self, key: DueKey) -> bool {
        self.unwritten.left.contains(&key)
    }

    /// Looks up a delivery. It scans all keys, so use it for rare cases only.
    pub fn find(&self, (lane, seq): (Lane, Seq)) -> WindowEntry {
        let is_it = |key: &&DueKey| (key.lane, key.seq) == (lane, seq);
        let pending = [&self.unwritten.pending, &self.written.pending, &self.keys, &self.late.pending];
        if let Some(key) = pending.into_iter().flatten().find(is_it) {
            return WindowEntry::Pending(key.due);
        }
        // Removals that are durable are gone from the disk.
        let left = [&self.unwritten.left, &self.written.left];
        if left.into_iter().flatten().any(|key| is_it(&key)) { WindowEntry::Left } else { WindowEntry::Nothing }
    }

    /// Returns a key that was taken and not used.
    pub fn put_back(&mut self, key: DueKey) {
        if self.horizon.is_some_and(|horizon| key >= horizon) {
            return;
        }
        self.keys.insert(key);
        if self.keys.len() > self.size {
            self.horizon = self.keys.pop_last();
        }
    }

    /// Notes that all changes are in the write in progress.
    pub fn written(&mut self) {
        self.written.append(std::mem::take(&mut self.unwritten));
    }

    /// Notes that the write in progress is durable.
    pub fn durable(&mut self) {
        let written = std::mem::take(&mut self.written);
        if self.asked.is_some() {
            self.late.left.extend(written.left);
            let behind = written.pending.iter().filter(|key| self.horizon.is_some_and(|horizon| **key >= horizon));
            self.late.pending.extend(behind);
        }
        for key in written.pending {
            self.put_back(key);
        }
    }

    /// A lower bound of the first due time.
    pub fn first(&self) -> Option<Timestamp> {
        let ahead = [self.unwritten.pending.first(), self.written.pending.first()];
        let known = self.keys.first().copied().or(self.horizon);
        ahead.into_iter().flatten().copied().chain(known).min().map(|key| key.due)
    }

    /// When to take keys or ask the disk, if nothing happens before. Changes on their way to the disk wake the caller
    /// when they are durable.
    pub fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let horizon = self.horizon.filter(|_| self.asked.is_none());
        let out_of_range = self.keys.last().or(horizon.as_ref()).is_some_and(|key| self.is_out_of_range(key.due, now));
        if out_of_range {
            return Some(now);
        }
        self.keys.first().or(horizon.as_ref()).map(|key| key.due)
    }

    /// The same for a roomy window, for lanes that may send now.
    pub fn wakes_of(&self, now: Timestamp, may_go: impl Fn(Lane) -> bool) -> Option<Timestamp> {
        let first = self.keys.iter().find(|key| may_go(key.lane)).map(|key| key.due);
        let out_of_range = self.keys.iter().rev().take_while(|key| self.is_out_of_range(key.due, now));
        let out_of_range = out_of_range.map(|key| key.lane).any(&may_go);
        if out_of_range { Some(now) } else { first }
    }

    /// Whether a due time is later than any retry can be.
    pub fn is_out_of_range(&self, due: Timestamp, now: Timestamp) -> bool {
        due > self.latest(now)
    }

    /// The latest possible due time.
    pub fn latest(&self, now: Timestamp) -> Timestamp {
        now.after(self.longest)
    }

    /// Takes up to `max` keys that are due or out of range, of lanes that may send now.
    pub fn take(&mut self, now: Timestamp, max: usize, may_go: impl Fn(Lane) -> bool) -> Vec<DueKey> {
        let out_of_range = self.keys.iter().rev().take_while(|key| self.is_out_of_range(key.due, now));
        let due = self.keys.iter().take_while(|key| key.due <= now);
        let due: Vec<DueKey> = due.chain(out_of_range).filter(|key| may_go(key.lane)).take(max).copied().collect();
        for key in &due {
            self.keys.remove(key);
        }
        due
    }

    /// The first key to ask the disk for, if it is time to. At most one question is in progress.
    pub fn next_lookup(&mut self, now: Timestamp) -> Option<DueKey> {
        let room = self.keys.len() + 2 * WINDOW <= self.size;
        if self.asked.is_none() && (self.keys.is_empty() || room) {
            self.asked = self.horizon.filter(|from| room || from.due <= now || self.is_out_of_range(from.due, now));
            return self.asked;
        }
        None
    }

    /// Takes the disk's answer: the next keys, and whether there are no more. `engaged` tells which keys are being
    /// fetched, ready or in flight.
    pub fn answer(&mut self, keys: &[DueKey], all: bool, engaged: impl Fn(DueKey) -> bool) {
        let late = std::mem::take(&mut self.late);
        // If the window overflowed meanwhile, its horizon is now before the question.
        let Some(from) = self.asked.take().filter(|from| self.horizon == Some(*from)) else { return };
        self.horizon = if all { None } else { keys.last().map(|last| last.next()).or(Some(from)) };
        let is_left =
            |key: DueKey| [&self.unwritten, &self.written, &late].iter().any(|ahead| ahead.left.contains(&key));
        // They are added when they are durable.
        let comes = |key: DueKey| [&self.unwritten, &self.written].iter().any(|ahead| ahead.pending.contains(&key));
        let fresh = keys.iter().copied().filter(|key| !engaged(*key) && !is_left(*key) && !comes(*key));
        let fresh: Vec<DueKey> = fresh.chain(late.pending.iter().copied()).collect();
        for key in fresh {
            self.put_back(key);
        }
    }
}
