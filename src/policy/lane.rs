//! A lane's place in the log: what was read and waits to be sent, what was sent and waits for its outcome.
//!
//! Invariants: an event below `read` is passed (filtered, settled or owed) unless it is open; what is ready is not passed,
//! so that forgetting it costs nothing but another read. An event is counted when the lane passes it, and only then:
//! the filtered ones before a ready event together with it.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    event::{Event, Lane, Seq},
    policy::{
        Item,
        batch::{self, Limits, Ready},
        filter::key::Key,
        property::Group,
        record::LaneCursor,
    },
};

/// A lane.
#[derive(Debug)]
pub struct Reading {
    lane: Lane,
    end: Option<Seq>,
    /// The next event to read from the log.
    head: Seq,
    /// Read, matching, unsent; each with the filtered events directly before it.
    ready: VecDeque<Ready>,
    skipped: VecDeque<Skipped>,
    /// The filtered events behind the last ready one.
    tail: Skipped,
    /// Sent for the first time, no outcome yet.
    open: BTreeSet<Seq>,
    /// Have their outcome although the lane has yet to pass them: an earlier life sent them.
    done: BTreeSet<Seq>,
    asked: bool,
}

/// A run of events that the filter did not let through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The first of them.
    pub first: Seq,
    /// How many.
    pub count: u64,
}

impl Reading {
    /// The lane as it was written down.
    pub fn recover(cursor: &LaneCursor) -> Self {
        Self {
            lane: cursor.lane,
            end: cursor.end,
            head: cursor.read,
            ready: VecDeque::new(),
            skipped: VecDeque::new(),
            tail: Skipped::default(),
            open: cursor.open.iter().copied().collect(),
            done: cursor.done.iter().copied().collect(),
            asked: false,
        }
    }

    /// Which lane it is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The lane as it is to be written down.
    pub fn cursor(&self) -> LaneCursor {
        let read = self.read();
        let open = self.open.iter().copied().collect();
        let done = self.done.range(read..).copied().collect();
        LaneCursor { lane: self.lane, read, end: self.end, open, done }
    }

    /// Everything below is passed, unless it is open.
    pub fn read(&self) -> Seq {
        match (self.skipped.front(), self.ready.front()) {
            (Some(skipped), _) if skipped.count > 0 => skipped.first,
            (_, Some(ready)) => ready.item.seq,
            (_, None) if self.tail.count > 0 => self.tail.first,
            (_, None) => self.head,
        }
    }

    /// How many events are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// From where the log is to be read, if it has more before `end` and nobody is reading: one question at a time.
    pub fn ask(&mut self, end: Seq) -> Option<Seq> {
        let end = self.end.map_or(end, |own| own.min(end));
        if self.asked || self.head >= end {
            return None;
        }
        self.asked = true;
        Some(self.head)
    }

    /// Whether the log has more for this lane before `end`.
    pub fn is_behind(&self, end: Seq) -> bool {
        !self.ready.is_empty() || self.head < self.end.map_or(end, |own| own.min(end))
    }

    /// The log's answer to a question from `from`: everything up to `upto`, of which `events` match. `total` counts all.
    /// An answer to a question that was withdrawn meanwhile is ignored. `grouping` says what divides batches.
    pub fn answer(&mut self, from: Seq, upto: Seq, total: u64, events: Vec<Event>, grouping: &[Key]) {
        if !self.asked || from != self.head {
            return;
        }
        self.asked = false;
        let mut next = from;
        let mut others = total.saturating_sub(events.len() as u64);
        for event in events {
            // Gaps hold nothing: what lies between two matching events is at most their distance, and at most what is left.
            let between = event.seq.0.saturating_sub(next.0).min(others);
            others -= between;
            let mut skipped = std::mem::take(&mut self.tail);
            if skipped.count == 0 {
                skipped.first = next;
            }
            skipped.count += between;
            next = event.seq.plus(1);
            if self.open.contains(&event.seq) || self.done.contains(&event.seq) {
                self.tail = skipped;
                continue;
            }
            let item = Item { lane: self.lane, seq: event.seq, appended: event.appended, attempts: 0, due: None };
            self.skipped.push_back(skipped);
            let group = Group::of(grouping, &event);
            self.ready.push_back(Ready { item, event, last: None, group });
        }
        if self.tail.count == 0 {
            self.tail.first = next;
        }
        self.tail.count += others;
        self.head = upto;
    }

    /// The filtered events that are passed by now, because nothing ready stands before them.
    pub fn pass_skipped(&mut self) -> Option<Skipped> {
        let passed = match self.skipped.front_mut() {
            Some(skipped) => std::mem::take(skipped),
            None => std::mem::take(&mut self.tail),
        };
        if !self.done.is_empty() {
            self.done = self.done.split_off(&self.read());
        }
        Some(passed).filter(|passed| passed.count > 0)
    }

    /// Takes the next batch to send; its events are open from now on.
    pub fn take(&mut self, limits: Limits) -> Vec<Ready> {
        let places = batch::pick(&self.ready, limits);
        self.leave_skipped(&places);
        let batch = batch::remove(&mut self.ready, &places);
        for ready in &batch {
            self.open.insert(ready.item.seq);
        }
        batch
    }

    /// An event that is taken from behind others leaves the filtered ones before it to those behind it: what is passed is
    /// passed in order.
    fn leave_skipped(&mut self, places: &[usize]) {
        let in_order = places.iter().zip(0..).take_while(|(place, index)| **place == *index).count();
        for place in places[in_order..].iter().rev() {
            let Some(left) = self.skipped.remove(*place).filter(|left| left.count > 0) else { continue };
            let next = self.skipped.get_mut(*place).unwrap_or(&mut self.tail);
            *next = Skipped { first: left.first, count: left.count + next.count };
        }
        for _ in in_order..places.len() {
            self.skipped.push_front(Skipped::default());
        }
    }

    /// The filtered events before each event of the batch just taken.
    pub fn drain_skipped(&mut self, batch: usize) -> Vec<Skipped> {
        self.skipped.drain(..batch).filter(|skipped| skipped.count > 0).collect()
    }

    /// An event is open although nothing here took it: an earlier life did, or nobody shall. One that has its outcome
    /// stays as it is.
    pub fn adopt(&mut self, seq: Seq) {
        self.forget_ready();
        if seq >= self.read() && !self.done.contains(&seq) {
            self.open.insert(seq);
        }
    }

    /// An open event has its outcome. False where it was not open: its outcome has been counted.
    pub fn finish(&mut self, seq: Seq) -> bool {
        let open = self.open.remove(&seq);
        if open && seq >= self.read() {
            self.done.insert(seq);
        }
        open
    }

    /// The events that are open.
    pub fn open(&self) -> &BTreeSet<Seq> {
        &self.open
    }

    /// Forgets what is ready: it will be read again. A question that is open is withdrawn.
    pub fn forget_ready(&mut self) {
        self.head = self.read();
        self.ready.clear();
        self.skipped.clear();
        self.tail = Skipped::default();
        self.asked = false;
    }
}
