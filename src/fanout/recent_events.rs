//! The newest events of a topic, with the subscriptions that each one matches: who keeps up reads here and not on the disk.
//!
//! The topic writes, its subscriptions read. A chunk knows which subscriptions it was matched for, in which version: a
//! subscription that is not among them finds nothing here and reads the log, filtering for itself. So a tail can be
//! forgotten at any moment.
//!
//! Events that everybody has read whose they are go at once, so that publishing runs in the same little memory again and
//! again. What is left of them is one stretch of the log that whoever had no part in it may pass unread. Nothing is kept for
//! subscriptions that lag: they read the log.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::event::{Event, Seq, SubscriptionId};

/// How many bytes all tails of the server may have together. Where they have more, the largest tail loses its oldest events:
/// a topic with little in memory never pays for one with much.
#[derive(Debug)]
pub struct RecentBudget {
    used: AtomicUsize,
    most: usize,
    /// Those that have had something.
    recent: Mutex<Vec<Weak<RecentEventsShared>>>,
}

impl RecentBudget {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most, recent: Mutex::default() }
    }

    /// How many they have.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes the oldest events from the largest tail, until there is room.
    fn make_room(&self) {
        while self.used() > self.most {
            let largest = {
                let mut tails = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
                tails.retain(|tail| tail.upgrade().is_some_and(|tail| tail.stays_listed()));
                tails.iter().filter_map(Weak::upgrade).max_by_key(|tail| tail.used())
            };
            let Some(largest) = largest else { return };
            // Some at once, so that the tails are not compared for each chunk.
            let (enough, half) = (self.most - self.most / 8, largest.used() / 2);
            let mut stretches = largest.stretches();
            while self.used() > enough && (self.used() > self.most || largest.used() > half) {
                let Some(oldest) = stretches.pop_front() else { return };
                largest.give_back(self, oldest.memory());
            }
        }
    }
}

/// The subscriptions that chunks are matched for: each with its place in [`Matches`], and the version that it has.
#[derive(Debug, Default)]
pub struct SubscriptionPositions {
    all: Vec<SubscriptionId>,
    places: HashMap<SubscriptionId, (u32, u32)>,
}

impl SubscriptionPositions {
    /// These, each with its version. The first has place 0.
    pub fn new(all: impl IntoIterator<Item = (SubscriptionId, u32)>) -> Self {
        let mut roster = Self::default();
        for ((subscription, version), place) in all.into_iter().zip(0..) {
            roster.all.push(subscription);
            roster.places.insert(subscription, (place, version));
        }
        roster
    }

    fn place(&self, subscription: SubscriptionId, version: u32) -> Option<u32> {
        self.places.get(&subscription).filter(|(_, known)| *known == version).map(|(place, _)| *place)
    }
}

/// A chunk of the log that was matched.
#[derive(Debug)]
pub struct MatchedChunk {
    /// The place of its first event.
    pub first: Seq,
    /// Its events, without a gap.
    pub events: Vec<Event>,
    /// Its length on disk.
    pub bytes: usize,
    /// The subscriptions it was matched for.
    pub matched_for: Arc<SubscriptionPositions>,
    /// Which of the events each of them gets.
    pub matches: Matches,
}

/// Which subscriptions each event of a chunk goes to. Events that follow one another often go to the same ones, and then they
/// share a set.
#[derive(Debug, Default)]
pub struct Matches {
    /// For each event, which of the sets.
    of: Vec<u32>,
    sets: Vec<PositionSet>,
    /// Those that any event goes to.
    all: Vec<u64>,
}

/// A set of places: a list where they are few, a bit for each where that is smaller.
#[derive(Debug, PartialEq, Eq)]
enum PositionSet {
    Few(Box<[u32]>),
    Many(Box<[u64]>),
}

impl Matches {
    /// The next event goes to the subscriptions at these places, which ascend.
    pub fn push(&mut self, places: Vec<u32>) {
        for place in &places {
            let word = *place as usize / 64;
            if self.all.len() <= word {
                self.all.resize(word + 1, 0);
            }
            self.all[word] |= 1 << (place % 64);
        }
        let set = PositionSet::new(places);
        if self.sets.last() != Some(&set) {
            self.sets.push(set);
        }
        self.of.push(self.sets.len() as u32 - 1);
    }

    /// The subscriptions that get any of the events, by place.
    pub fn readers(&self) -> impl Iterator<Item = u32> {
        bits(&self.all)
    }

    /// Whether the subscription at `place` gets any.
    fn has(&self, place: u32) -> bool {
        has_bit(&self.all, place)
    }

    /// The events within `part` that the subscription at `place` gets.
    fn of(&self, place: u32, part: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        let mut last = None;
        part.filter(move |event| {
            let set = self.of[*event];
            match last {
                Some((known, is_in)) if known == set => is_in,
                Some(_) | None => {
                    let is_in = self.sets[set as usize].has(place);
                    last = Some((set, is_in));
                    is_in
                }
            }
        })
    }

    fn memory(&self) -> usize {
        let sets: usize = self.sets.iter().map(|set| size_of::<PositionSet>() + set.memory()).sum();
        sets + size_of_val(&self.of[..]) + size_of_val(&self.all[..])
    }
}

impl PositionSet {
    fn new(places: Vec<u32>) -> Self {
        let words = places.last().map_or(0, |last| *last as usize / 64 + 1);
        if size_of_val(&places[..]) <= words * size_of::<u64>() {
            return Self::Few(places.into());
        }
        let mut bits = vec![0; words];
        for place in places {
            bits[place as usize / 64] |= 1 << (place % 64);
        }
        Self::Many(bits.into())
    }

    fn has(&self, place: u32) -> bool {
        match self {
            Self::Few(places) => places.binary_search(&place).is_ok(),
            Self::Many(bits) => has_bit(bits, place),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Few(places) => size_of_val(&places[..]),
            Self::Many(bits) => size_of_val(&bits[..]),
        }
    }
}

fn has_bit(words: &[u64], place: u32) -> bool {
    words.get(place as usize / 64).is_some_and(|bits| bits & 1 << (place % 64) != 0)
}

fn bits(words: &[u64]) -> impl Iterator<Item = u32> {
    words
        .iter()
        .zip(0..)
        .flat_map(|(bits, word)| (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| word * 64 + bit))
}

impl MatchedChunk {
    fn end(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// What it takes in memory: small events are smaller than what says where their parts are, and who gets them.
    fn memory(&self) -> usize {
        self.bytes + self.events.len() * size_of::<Event>() + self.matches.memory()
    }

    fn readers(&self) -> impl Iterator<Item = SubscriptionId> {
        self.matches.readers().map(|place| self.matched_for.all[place as usize])
    }
}

/// A stretch of the log whose events have gone.
#[derive(Debug)]
struct EvictedRange {
    first: Seq,
    end: Seq,
    matched_for: Arc<SubscriptionPositions>,
    /// Up to where each of those was to read it who had a part in it.
    parts: HashMap<SubscriptionId, Seq>,
}

/// What an entry of such a map takes, with the room that the map keeps.
const PART: usize = 32;

#[derive(Debug)]
enum LogStretch {
    /// So many have not read it yet.
    Unread(MatchedChunk, usize),
    Gone(EvictedRange),
}

impl LogStretch {
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

    fn matched_for(&self) -> &Arc<SubscriptionPositions> {
        match self {
            Self::Unread(chunk, _) => &chunk.matched_for,
            Self::Gone(gone) => &gone.matched_for,
        }
    }

    /// What it takes in memory.
    fn memory(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Unread(chunk, _) => chunk.memory(),
                Self::Gone(gone) => gone.parts.len() * PART,
            }
    }

    /// What has gone, where it was matched for the same subscriptions.
    fn evicted_for(&mut self, matched_for: &Arc<SubscriptionPositions>) -> Option<&mut EvictedRange> {
        match self {
            Self::Gone(gone) if Arc::ptr_eq(&gone.matched_for, matched_for) => Some(gone),
            Self::Gone(_) | Self::Unread(..) => None,
        }
    }
}

/// A part of the tail, for one subscription.
#[derive(Debug)]
pub struct RecentSlice {
    /// Everything below was looked at.
    pub upto: Seq,
    /// How many events that is.
    pub total: u64,
    /// Those that match.
    pub events: Vec<Event>,
}

/// The newest events of a topic.
#[derive(Debug)]
pub struct RecentEvents {
    shared: Arc<RecentEventsShared>,
    budget: Arc<RecentBudget>,
}

/// What the budget knows of a tail.
#[derive(Debug, Default)]
struct RecentEventsShared {
    used: AtomicUsize,
    is_listed: AtomicBool,
    stretches: Mutex<VecDeque<LogStretch>>,
    /// Subscriptions for which nothing is kept.
    laggards: Mutex<HashSet<SubscriptionId>>,
}

impl RecentEventsShared {
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, budget: &RecentBudget, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        budget.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, budget: &RecentBudget, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An empty one is listed again with its next chunk.
    fn stays_listed(&self) -> bool {
        let stays = self.used() > 0;
        self.is_listed.store(stays, Ordering::Relaxed);
        stays
    }

    fn stretches(&self) -> MutexGuard<'_, VecDeque<LogStretch>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn laggards(&self) -> MutexGuard<'_, HashSet<SubscriptionId>> {
        self.laggards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentEvents {
    /// An empty tail.
    pub fn new(budget: Arc<RecentBudget>) -> Self {
        Self { shared: Arc::default(), budget }
    }

    /// Adds the next chunk. Where it does not follow the last one, what was there is forgotten.
    pub fn push(&self, chunk: MatchedChunk) {
        let mut stretches = self.shared.stretches();
        if stretches.back().is_some_and(|last| last.end() != chunk.first) {
            self.forget(&mut stretches);
        }
        let readers = {
            let laggards = self.shared.laggards();
            chunk.readers().filter(|reader| laggards.is_empty() || !laggards.contains(reader)).count()
        };
        let stretch = LogStretch::Unread(chunk, readers);
        self.shared.take(&self.budget, stretch.memory());
        stretches.push_back(stretch);
        if readers == 0 {
            let last = stretches.len() - 1;
            self.let_go(&mut stretches, last);
        }
        drop(stretches);
        if !self.shared.is_listed.load(Ordering::Relaxed) && !self.shared.is_listed.swap(true, Ordering::Relaxed) {
            let mut tails = self.budget.recent.lock().unwrap_or_else(PoisonError::into_inner);
            tails.push(Arc::downgrade(&self.shared));
        }
        self.budget.make_room();
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.forget(&mut self.shared.stretches());
    }

    /// Forgets what everybody has passed.
    pub fn pass(&self, low: Seq) {
        let mut stretches = self.shared.stretches();
        while let Some(oldest) = stretches.pop_front_if(|oldest| oldest.end() <= low) {
            self.shared.give_back(&self.budget, oldest.memory());
        }
    }

    /// These subscriptions lag: nothing is kept for them from now on, and of what is there nothing below `low`, which everybody
    /// else has read, nor what goes to nobody else. They read the log.
    pub fn lag(&self, laggards: HashSet<SubscriptionId>, low: Seq) {
        let mut stretches = self.shared.stretches();
        let mut at = 0;
        while let Some(stretch) = stretches.get(at) {
            let is_needed = match stretch {
                LogStretch::Unread(chunk, _) => {
                    chunk.end() > low && chunk.readers().any(|reader| !laggards.contains(&reader))
                }
                LogStretch::Gone(_) => true,
            };
            if is_needed {
                at += 1;
            } else {
                let end = stretch.end();
                self.let_go(&mut stretches, at);
                at = stretches.partition_point(|stretch| stretch.end() <= end);
            }
        }
        *self.shared.laggards() = laggards;
    }

    /// From `from` up to `end` or as far as there is, up to about `events_max` events that match and about `bytes_max` bytes of
    /// them. [`None`] where the log must be read instead.
    ///
    /// Whoever reads without an end does so once: when all whom a chunk matches have, its events go.
    pub fn read(
        &self,
        subscription: SubscriptionId,
        version: u32,
        from: Seq,
        end: Option<Seq>,
        (events_max, bytes_max): (usize, usize),
    ) -> Option<RecentSlice> {
        let mut stretches = self.shared.stretches();
        let mut at = stretches.partition_point(|stretch| stretch.end() <= from);
        let mut found = RecentSlice { upto: from, total: 0, events: Vec::new() };
        let mut bytes = 0;
        while let Some(stretch) = stretches.get_mut(at) {
            let Some(place) = stretch.matched_for().place(subscription, version) else { break };
            let upto = end.map_or(stretch.end(), |end| end.min(stretch.end()));
            let is_enough = found.events.len() >= events_max || bytes >= bytes_max;
            if stretch.first() > found.upto || found.upto >= upto || is_enough {
                break;
            }
            let mut is_read = false;
            match stretch {
                LogStretch::Gone(gone) if gone.parts.get(&subscription).is_some_and(|part| found.upto < *part) => break,
                LogStretch::Gone(_) => {}
                LogStretch::Unread(chunk, readers) => {
                    if chunk.matches.has(place) {
                        let within = |seq: Seq| (seq.0 - chunk.first.0) as usize;
                        for index in chunk.matches.of(place, within(found.upto)..within(upto)) {
                            bytes += chunk.events[index].wire_len();
                            found.events.push(chunk.events[index].clone());
                        }
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
    fn let_go(&self, stretches: &mut VecDeque<LogStretch>, at: usize) {
        let Some(LogStretch::Unread(chunk, readers)) = stretches.remove(at) else { return };
        let gone = EvictedRange {
            first: chunk.first,
            end: chunk.end(),
            matched_for: Arc::clone(&chunk.matched_for),
            parts: chunk.readers().map(|subscription| (subscription, chunk.end())).collect(),
        };
        self.shared.give_back(&self.budget, LogStretch::Unread(chunk, readers).memory());
        let after = stretches.get_mut(at).and_then(|next| next.evicted_for(&gone.matched_for)).is_some();
        let next = if after { stretches.remove(at) } else { None };
        let at = self.join(stretches, at, LogStretch::Gone(gone));
        if let Some(next) = next {
            self.shared.give_back(&self.budget, next.memory());
            self.join(stretches, at, next);
        }
    }

    /// Puts what has gone behind what stands before `at`, or into it. Answers the place behind.
    fn join(&self, stretches: &mut VecDeque<LogStretch>, at: usize, stretch: LogStretch) -> usize {
        let LogStretch::Gone(gone) = stretch else { return at };
        let before = at.checked_sub(1).and_then(|before| stretches.get_mut(before));
        if let Some(LogStretch::Gone(before)) = before
            && Arc::ptr_eq(&before.matched_for, &gone.matched_for)
        {
            let had = before.parts.len();
            before.end = gone.end;
            before.parts.extend(gone.parts);
            let more = before.parts.len() - had;
            self.shared.take(&self.budget, more * PART);
            return at;
        }
        let stretch = LogStretch::Gone(gone);
        self.shared.take(&self.budget, stretch.memory());
        stretches.insert(at, stretch);
        at + 1
    }

    fn forget(&self, stretches: &mut VecDeque<LogStretch>) {
        let bytes: usize = stretches.drain(..).map(|stretch| stretch.memory()).sum();
        self.shared.give_back(&self.budget, bytes);
    }
}

impl Drop for RecentEvents {
    fn drop(&mut self) {
        self.clear();
    }
}
