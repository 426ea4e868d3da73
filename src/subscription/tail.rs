//! The newest events of a topic, with the subscriptions that each one matches: who keeps up reads here and not on the disk.
//!
//! The topic writes, its subscriptions read. A chunk knows which subscriptions it was matched for, in which version: a
//! subscription that is not among them finds nothing here and reads the log, filtering for itself. So a tail can be
//! forgotten at any moment.
//!
//! Events that everybody has read whose they are go at once, so that publishing runs in the same little memory again and
//! again. What is left of them is one stretch of the log that whoever had no part in it may pass unread.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::event::{Event, Seq, SubscriptionId};

/// How many bytes all tails of the server may have together.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    most: usize,
}

impl Budget {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    /// How many they have.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// A chunk of the log that was matched.
#[derive(Debug)]
pub struct Matched {
    /// The place of its first event.
    pub first: Seq,
    /// Its events, without a gap.
    pub events: Vec<Event>,
    /// Its length on disk.
    pub bytes: usize,
    /// The subscriptions it was matched for, and the version that each had.
    pub matched_for: Arc<HashMap<SubscriptionId, u32>>,
    /// Which of the events each of them gets; none where it is missing.
    pub matches: HashMap<SubscriptionId, Vec<u32>>,
}

impl Matched {
    fn end(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// What it takes in memory: small events are smaller than what says where their parts are.
    fn memory(&self) -> usize {
        self.bytes + self.events.len() * size_of::<Event>()
    }
}

/// A stretch of the log whose events have gone.
#[derive(Debug)]
struct Gone {
    first: Seq,
    end: Seq,
    matched_for: Arc<HashMap<SubscriptionId, u32>>,
    /// Up to where each of those was to read it who had a part in it.
    parts: HashMap<SubscriptionId, Seq>,
}

#[derive(Debug)]
enum Stretch {
    /// So many have not read it yet.
    Unread(Matched, usize),
    Gone(Gone),
}

impl Stretch {
    fn first(&self) -> Seq {
        match self {
            Self::Unread(chunk, _) => chunk.first,
            Self::Gone(gone) => gone.first,
        }
    }

    fn end(&self) -> Seq {
        match self {
            Self::Unread(chunk, _) => chunk.end(),
            Self::Gone(gone) => gone.end,
        }
    }

    fn matched_for(&self) -> &Arc<HashMap<SubscriptionId, u32>> {
        match self {
            Self::Unread(chunk, _) => &chunk.matched_for,
            Self::Gone(gone) => &gone.matched_for,
        }
    }

    /// What its events take in memory.
    fn memory(&self) -> usize {
        match self {
            Self::Unread(chunk, _) => chunk.memory(),
            Self::Gone(_) => 0,
        }
    }

    /// What has gone, where it was matched for the same subscriptions.
    fn gone_for(&mut self, matched_for: &Arc<HashMap<SubscriptionId, u32>>) -> Option<&mut Gone> {
        match self {
            Self::Gone(gone) if Arc::ptr_eq(&gone.matched_for, matched_for) => Some(gone),
            Self::Gone(_) | Self::Unread(..) => None,
        }
    }
}

/// A part of the tail, for one subscription.
#[derive(Debug)]
pub struct Found {
    /// Everything below was looked at.
    pub upto: Seq,
    /// How many events that is.
    pub total: u64,
    /// Those that match.
    pub events: Vec<Event>,
}

/// The newest events of a topic.
#[derive(Debug)]
pub struct Tail {
    stretches: Mutex<VecDeque<Stretch>>,
    budget: Arc<Budget>,
}

impl Tail {
    /// An empty tail.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { stretches: Mutex::default(), budget }
    }

    /// Adds the next chunk. Where it does not follow the last one, what was there is forgotten.
    pub fn push(&self, chunk: Matched) {
        let mut stretches = self.stretches();
        if stretches.back().is_some_and(|last| last.end() != chunk.first) {
            self.forget(&mut stretches);
        }
        self.budget.used.fetch_add(chunk.memory(), Ordering::Relaxed);
        let readers = chunk.matches.len();
        stretches.push_back(Stretch::Unread(chunk, readers));
        if readers == 0 {
            let last = stretches.len() - 1;
            self.let_go(&mut stretches, last);
        }
        while self.budget.used.load(Ordering::Relaxed) > self.budget.most {
            match stretches.pop_front() {
                Some(oldest) => self.budget.used.fetch_sub(oldest.memory(), Ordering::Relaxed),
                None => break,
            };
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.forget(&mut self.stretches());
    }

    /// Forgets what everybody has passed.
    pub fn pass(&self, low: Seq) {
        let mut stretches = self.stretches();
        while let Some(oldest) = stretches.pop_front_if(|oldest| oldest.end() <= low) {
            self.budget.used.fetch_sub(oldest.memory(), Ordering::Relaxed);
        }
    }

    /// From `from` up to `end` or as far as there is, up to about `events_max` events that match. [`None`] where the log must
    /// be read instead.
    ///
    /// Whoever reads without an end does so once: when all whom a chunk matches have, its events go.
    pub fn read(
        &self,
        subscription: SubscriptionId,
        version: u32,
        from: Seq,
        end: Option<Seq>,
        events_max: usize,
    ) -> Option<Found> {
        let mut stretches = self.stretches();
        let mut at = stretches.partition_point(|stretch| stretch.end() <= from);
        let mut found = Found { upto: from, total: 0, events: Vec::new() };
        while let Some(stretch) = stretches.get_mut(at) {
            let known = stretch.matched_for().get(&subscription) == Some(&version);
            let upto = end.map_or(stretch.end(), |end| end.min(stretch.end()));
            if !known || stretch.first() > found.upto || found.upto >= upto || found.events.len() >= events_max {
                break;
            }
            let mut is_read = false;
            match stretch {
                Stretch::Gone(gone) if gone.parts.get(&subscription).is_some_and(|part| found.upto < *part) => break,
                Stretch::Gone(_) => {}
                Stretch::Unread(chunk, readers) => {
                    let part = found.upto.0 - chunk.first.0..upto.0 - chunk.first.0;
                    if let Some(matches) = chunk.matches.get(&subscription) {
                        let wanted = matches.iter().filter(|index| part.contains(&u64::from(**index)));
                        found.events.extend(wanted.map(|index| chunk.events[*index as usize].clone()));
                        *readers -= usize::from(end.is_none());
                        is_read = *readers == 0;
                    }
                }
            }
            found.total += upto.0 - found.upto.0;
            found.upto = upto;
            if is_read {
                self.let_go(&mut stretches, at);
                at = stretches.partition_point(|stretch| stretch.end() <= upto);
            } else {
                at += 1;
            }
        }
        (found.total > 0).then_some(found)
    }

    /// The events of the chunk at this place go; what is left of it joins its neighbours.
    fn let_go(&self, stretches: &mut VecDeque<Stretch>, at: usize) {
        let Some(Stretch::Unread(chunk, _)) = stretches.remove(at) else { return };
        self.budget.used.fetch_sub(chunk.memory(), Ordering::Relaxed);
        let (end, known) = (chunk.end(), &chunk.matched_for);
        let parts = chunk.matches.keys().map(|subscription| (*subscription, end));
        let before = at.checked_sub(1).and_then(|before| stretches.get_mut(before));
        let behind = match before.and_then(|before| before.gone_for(known)) {
            Some(gone) => {
                gone.end = end;
                gone.parts.extend(parts);
                at
            }
            None => {
                let gone = Gone { first: chunk.first, end, matched_for: Arc::clone(known), parts: parts.collect() };
                stretches.insert(at, Stretch::Gone(gone));
                at + 1
            }
        };
        let follows = stretches.get_mut(behind).is_some_and(|next| next.gone_for(known).is_some());
        if let Some(Stretch::Gone(next)) = follows.then(|| stretches.remove(behind)).flatten()
            && let Some(gone) = stretches.get_mut(behind - 1).and_then(|before| before.gone_for(known))
        {
            gone.end = next.end;
            gone.parts.extend(next.parts);
        }
    }

    fn stretches(&self) -> MutexGuard<'_, VecDeque<Stretch>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, stretches: &mut VecDeque<Stretch>) {
        let bytes: usize = stretches.drain(..).map(|stretch| stretch.memory()).sum();
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clear();
    }
}
