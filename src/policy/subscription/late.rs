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

use super::Subscription;
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        Effect, Flight, Item,
        due::Known,
        record::{Entry, What},
    },
};

/// Late successes that are not settled yet, in the order in which they were heard.
#[derive(Debug, Default)]
pub(super) struct Late {
    words: VecDeque<Arc<Flight>>,
    question: Question,
}

/// What the disk is asked about the first of them.
#[derive(Debug, Default)]
enum Question {
    #[default]
    None,
    /// To be asked.
    Ready(Vec<(Lane, Seq)>),
    /// Asked. What is decided about one of them meanwhile makes the answer stale.
    Asked { keys: Vec<(Lane, Seq)>, stale: bool },
}

impl Late {
    /// Something is decided about an obligation.
    pub(super) fn overtake(&mut self, key: (Lane, Seq)) {
        if let Question::Asked { keys, stale } = &mut self.question {
            *stale |= keys.contains(&key);
        }
    }

    /// The question that is to be asked now, once.
    pub(super) fn ask(&mut self) -> Option<Effect> {
        match std::mem::take(&mut self.question) {
            Question::Ready(keys) => {
                self.question = Question::Asked { keys: keys.clone(), stale: false };
                Some(Effect::ReadOwed(keys))
            }
            other @ (Question::None | Question::Asked { .. }) => {
                self.question = other;
                None
            }
        }
    }
}

impl Subscription {
    pub(super) fn on_late(&mut self, flight: Arc<Flight>, now: Timestamp) {
        if self.late.words.iter().all(|word| word.id != flight.id) {
            self.late.words.push_back(flight);
        }
        self.settle_late(now);
    }

    /// The disk says when the events that were asked for fall due, if they are owed at all.
    pub(super) fn on_owed_read(&mut self, found: &[(Lane, Seq, Option<Timestamp>)], now: Timestamp) {
        let Question::Asked { keys, stale } = &self.late.question else { return };
        // An answer to an earlier life's question, or to one about another word, has other keys.
        if !found.iter().map(|(lane, seq, _)| (*lane, *seq)).eq(keys.iter().copied()) {
            return;
        }
        let stale = *stale;
        self.late.question = Question::None;
        if !stale && let Some(flight) = self.late.words.pop_front() {
            let dues = found.iter().filter_map(|(lane, seq, due)| Some(((*lane, *seq), (*due)?))).collect();
            self.settle_word(&flight, &dues, now);
        }
        self.settle_late(now);
    }

    /// Settles what was heard, up to the first of which the disk must be asked.
    fn settle_late(&mut self, now: Timestamp) {
        while let (Question::None, Some(flight)) = (&self.late.question, self.late.words.front()) {
            let keys = flight.items.iter().map(Item::key);
            let mut unknown: Vec<(Lane, Seq)> = keys.collect();
            unknown.retain(|key| self.is_unknown(*key));
            if !unknown.is_empty() {
                self.late.question = Question::Ready(unknown);
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
