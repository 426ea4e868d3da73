//! When owed events fall due: a bounded window of keys over what may be millions on disk.
//!
//! Invariants:
//! - A key is taken only when it is durable: the next attempt leaves when the outcome of the last one can not be lost, so
//!   that a later life never meets two flights with the same event, and what is fetched is what was decided.
//! - Every owed event that falls due before the horizon is in the window, is on its way to the disk, is being fetched, is
//!   ready, or is in flight; behind the horizon the disk knows. A window whose keys are all behind the horizon asks.
//! - The disk's answer may be older than what was decided while it was on its way: what was owed meanwhile is added, what
//!   was owed no more is left out.
//! - A roomy window reads on until it has all there is: those who owe no more than it has room for, can look a lane's keys
//!   up in it. What may not be sent now is passed over there, and does not stand in anybody's way.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::record::DueKey,
};

/// 4,096 keys of 24 bytes: more would only be read again before their time.
pub const WINDOW: usize = 4096;

/// A roomy window has so many, some 3 MB of them.
pub const ROOMY: usize = 16 * WINDOW;

/// The window.
#[derive(Debug)]
pub struct RetryWindow {
    longest: Duration,
    size: usize,
    /// Durable and before the horizon.
    keys: BTreeSet<DueKey>,
    /// From here on the disk knows; [`None`] where it knows of nothing that is not here.
    horizon: Option<DueKey>,
    /// From where the disk was asked, while it has not answered.
    asked: Option<DueKey>,
    /// Not handed to the journal yet.
    gathered: UnwrittenChange,
    /// Handed to the journal, perhaps on the disk.
    written: UnwrittenChange,
    /// On the disk, perhaps not when it was asked.
    late: UnwrittenChange,
}

/// What the disk, or an answer of it, does not know.
#[derive(Debug, Default)]
struct UnwrittenChange {
    pending: BTreeSet<DueKey>,
    left: BTreeSet<DueKey>,
}

/// What the window knows of an obligation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEntry {
    /// It falls due then.
    Pending(Timestamp),
    /// It is owed no more, and that is not durable yet.
    Left,
    /// Nothing: the disk may.
    Nothing,
}

impl UnwrittenChange {
    fn append(&mut self, mut later: Self) {
        self.pending.append(&mut later.pending);
        self.left.append(&mut later.left);
    }
}

impl RetryWindow {
    /// Nothing is known yet but when the first event falls due, if any does.
    ///
    /// No event waits for longer than `longest`: one that falls due later than that was written down by a clock that has
    /// been set back since. It is taken like one that is due, to be given another time.
    pub fn recover(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self {
            longest,
            size: WINDOW,
            keys: BTreeSet::new(),
            horizon: next_due.map(DueKey::at),
            asked: None,
            gathered: UnwrittenChange::default(),
            written: UnwrittenChange::default(),
            late: UnwrittenChange::default(),
        }
    }

    /// The same with more room, which reads all there is.
    pub fn recover_roomy(next_due: Option<Timestamp>, longest: Duration) -> Self {
        Self { size: ROOMY, ..Self::recover(next_due, longest) }
    }

    /// Whether the disk knows of nothing that is owed and not here.
    pub fn has_all(&self) -> bool {
        self.horizon.is_none()
    }

    /// Takes up to `max` keys of a lane that are on the disk, whenever they fall due.
    pub fn take_lane(&mut self, lane: Lane, max: usize) -> Vec<DueKey> {
        let keys: Vec<DueKey> = self.keys.iter().filter(|key| key.lane == lane).take(max).copied().collect();
        for key in &keys {
            self.keys.remove(key);
        }
        keys
    }

    /// An event is owed from now on, or still. Where it was owed before, that key has been left.
    pub fn insert(&mut self, key: DueKey) {
        self.gathered.left.remove(&key);
        self.gathered.pending.insert(key);
    }

    /// A key is owed no more, wherever it is.
    pub fn leave(&mut self, key: DueKey) {
        self.keys.remove(&key);
        for ahead in [&mut self.gathered, &mut self.written, &mut self.late] {
            ahead.pending.remove(&key);
        }
        self.gathered.left.insert(key);
    }

    /// What is known of an obligation here. Looks at every key: for what is rare.
    pub fn find(&self, (lane, seq): (Lane, Seq)) -> WindowEntry {
        let is_it = |key: &&DueKey| (key.lane, key.seq) == (lane, seq);
        let owed = [&self.gathered.pending, &self.written.pending, &self.keys, &self.late.pending];
        if let Some(key) = owed.into_iter().flatten().find(is_it) {
            return WindowEntry::Pending(key.due);
        }
        // What is left and durable, the disk does not have any more.
        let left = [&self.gathered.left, &self.written.left];
        if left.into_iter().flatten().any(|key| is_it(&key)) { WindowEntry::Left } else { WindowEntry::Nothing }
    }

    /// A key that was taken is given back: nothing was done about it.
    pub fn put_back(&mut self, key: DueKey) {
        if self.horizon.is_some_and(|horizon| key >= horizon) {
            return;
        }
        self.keys.insert(key);
        if self.keys.len() > self.size {
            self.horizon = self.keys.pop_last();
        }
    }

    /// All that was decided so far is on its way to the disk.
    pub fn written(&mut self) {
        self.written.append(std::mem::take(&mut self.gathered));
    }

    /// All that was on its way is on the disk.
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

    /// When the first event falls due, as far as is known: never later than it does.
    pub fn first(&self) -> Option<Timestamp> {
        let ahead = [self.gathered.pending.first(), self.written.pending.first()];
        let known = self.keys.first().copied().or(self.horizon);
        ahead.into_iter().flatten().copied().chain(known).min().map(|key| key.due)
    }

    /// When there is something to take or to ask for, if nothing happens before. What is on its way to the disk comes
    /// with the word that it is there.
    pub fn wakes(&self, now: Timestamp) -> Option<Timestamp> {
        let horizon = self.horizon.filter(|_| self.asked.is_none());
        let strayed = self.keys.last().or(horizon.as_ref()).is_some_and(|key| self.is_out_of_range(key.due, now));
        if strayed {
            return Some(now);
        }
        self.keys.first().or(horizon.as_ref()).map(|key| key.due)
    }

    /// The same for a roomy window, of the lanes that may be sent now.
    pub fn wakes_of(&self, now: Timestamp, may_go: impl Fn(Lane) -> bool) -> Option<Timestamp> {
        let first = self.keys.iter().find(|key| may_go(key.lane)).map(|key| key.due);
        let strayed = self.keys.iter().rev().take_while(|key| self.is_out_of_range(key.due, now));
        let strayed = strayed.map(|key| key.lane).any(&may_go);
        if strayed { Some(now) } else { first }
    }

    /// Whether no event can have been told to wait until then.
    pub fn is_out_of_range(&self, due: Timestamp, now: Timestamp) -> bool {
        due > self.latest(now)
    }

    /// When an event falls due at the latest.
    pub fn latest(&self, now: Timestamp) -> Timestamp {
        now.after(self.longest)
    }

    /// Takes up to `max` keys that are due, and those that have strayed, of the lanes that may be sent now.
    pub fn take(&mut self, now: Timestamp, max: usize, may_go: impl Fn(Lane) -> bool) -> Vec<DueKey> {
        let strayed = self.keys.iter().rev().take_while(|key| self.is_out_of_range(key.due, now));
        let due = self.keys.iter().take_while(|key| key.due <= now);
        let due: Vec<DueKey> = due.chain(strayed).filter(|key| may_go(key.lane)).take(max).copied().collect();
        for key in &due {
            self.keys.remove(key);
        }
        due
    }

    /// From which key on the disk is to be asked, if it is time to: at most one such question is open.
    pub fn next_lookup(&mut self, now: Timestamp) -> Option<DueKey> {
        let room = self.keys.len() + 2 * WINDOW <= self.size;
        if self.asked.is_none() && (self.keys.is_empty() || room) {
            self.asked = self.horizon.filter(|from| room || from.due <= now || self.is_out_of_range(from.due, now));
            return self.asked;
        }
        None
    }

    /// The disk's answer: the next keys, and whether there are no more. `engaged` are those that are being fetched, ready
    /// or in flight.
    pub fn answer(&mut self, keys: &[DueKey], all: bool, engaged: impl Fn(DueKey) -> bool) {
        let late = std::mem::take(&mut self.late);
        // Where the window has run over meanwhile, its horizon is an earlier one than that of the question.
        let Some(from) = self.asked.take().filter(|from| self.horizon == Some(*from)) else { return };
        self.horizon = if all { None } else { keys.last().map(|last| last.next()).or(Some(from)) };
        let is_left =
            |key: DueKey| [&self.gathered, &self.written, &late].iter().any(|ahead| ahead.left.contains(&key));
        // Those come with the word that they are on the disk.
        let comes = |key: DueKey| [&self.gathered, &self.written].iter().any(|ahead| ahead.pending.contains(&key));
        let fresh = keys.iter().copied().filter(|key| !engaged(*key) && !is_left(*key) && !comes(*key));
        let fresh: Vec<DueKey> = fresh.chain(late.pending.iter().copied()).collect();
        for key in fresh {
            self.put_back(key);
        }
    }
}
