//! A success that came after the response wait: its events were deferred meanwhile, and perhaps sent again.
//!
//! Invariants:
//! - What is still owed is delivered by it, wherever it is by now: on the disk, in the window, being fetched, ready, or in
//!   another flight, which carries it no longer. What has ended stays as it ended: whichever success is first counts.
//! - It is settled whole, in one write: a later life that hears it again either finds all of it done, or nothing.
//! - It says nothing of the endpoint's health, speed or places: the request was counted as the failure that it was.
//! - A failure that comes late is never heard here.
//!
//! To take a record away one must know when it falls due. Where memory does not (the window is bounded), the disk is
//! asked; an answer that was overtaken by a decision is asked for again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    Subscription,
    question::{Question, Word},
};
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Flight, Item,
        due::Known,
        record::{Entry, Owed, What},
    },
};

/// Late successes that are not settled yet, in the order in which they were heard.
#[derive(Debug, Default)]
pub(super) struct Late {
    words: VecDeque<Arc<Flight>>,
    question: Question,
}

impl Late {
    /// What is asked of the disk.
    pub(super) fn question(&mut self) -> &mut Question {
        &mut self.question
    }
}

impl Subscription {
    pub(super) fn on_late(&mut self, flight: Arc<Flight>, now: Timestamp) {
        if self.late.words.iter().all(|word| word.id != flight.id) {
            self.late.words.push_back(flight);
        }
        self.settle_late(now);
    }

    /// The disk says what it has of the events that were asked for, if they are owed at all.
    pub(super) fn on_owed_read(&mut self, found: &[(Lane, Seq, Option<Owed>)], now: Timestamp) {
        let Some(word) = self.late.question.answer(found) else { return };
        if word == Word::Good
            && let Some(flight) = self.late.words.pop_front()
        {
            let dues = found.iter().filter_map(|(lane, seq, owed)| Some(((*lane, *seq), owed.as_ref()?.due))).collect();
            self.settle_word(&flight, &dues, now);
        }
        self.settle_late(now);
    }

    /// Settles what was heard, up to the first of which the disk must be asked.
    fn settle_late(&mut self, now: Timestamp) {
        while let (false, Some(flight)) = (self.late.question.is_open(), self.late.words.front()) {
            let keys = flight.items.iter().map(Item::key);
            let mut unknown: Vec<(Lane, Seq)> = keys.collect();
            unknown.retain(|key| self.is_unknown(*key));
            if !unknown.is_empty() {
                self.late.question.put(unknown);
            } else if let Some(flight) = self.late.words.pop_front() {
                self.settle_word(&flight, &BTreeMap::new(), now);
            }
        }
    }

    /// Whether only the disk knows what became of an obligation.
    fn is_unknown(&mut self, key: (Lane, Seq)) -> bool {
        let queue = self.queue(key.0);
        let known = queue.engaged().any(|engaged| engaged == key) || queue.due.find(key) != Known::Nothing;
        !known && !self.aloft().any(|item| item.key() == key)
    }

    fn settle_word(&mut self, flight: &Flight, dues: &BTreeMap<(Lane, Seq), Timestamp>, now: Timestamp) {
        let (mut settled, mut ended) = (Vec::new(), Vec::new());
        for item in &flight.items {
            match self.take_back(*item, dues) {
                Some(owed) => {
                    self.deliver(owed);
                    settled.push(item.seq);
                }
                None => ended.push(item.seq),
            }
        }
        self.gathered.late(flight.id);
        let Some(first) = flight.items.first() else { return };
        self.count(first.lane, |counters| counters.late += 1);
        for (seqs, settled) in [(settled, true), (ended, false)] {
            if !seqs.is_empty() {
                let entry = Entry { at: now, covers: super::settle::covers(seqs), what: What::Late { settled } };
                self.gathered.note(first.lane, first.attempts + 1, entry);
            }
        }
    }

    /// Takes an obligation from where it is, so that it can be settled. [`None`] where it has ended.
    fn take_back(&mut self, item: Item, dues: &BTreeMap<(Lane, Seq), Timestamp>) -> Option<Item> {
        let key = item.key();
        for (id, flight) in &mut self.flights {
            if let Some(place) = flight.items.iter().position(|aloft| aloft.key() == key) {
                self.gathered.strike(*id, key);
                return Some(Arc::make_mut(flight).items.remove(place));
            }
        }
        let queue = self.queue(item.lane);
        if let Some(found) = queue.take_out(item) {
            return Some(found);
        }
        let due = match queue.due.find(key) {
            Known::Owed(due) => Some(due),
            Known::Left => None,
            Known::Nothing => dues.get(&key).copied(),
        };
        due.map(|due| Item { due: Some(due), ..item })
    }
}
