//! The newest events of a topic with the subscriptions that each one matches. Subscriptions that
//! keep up read from this cache instead of the disk.
//!
//! The topic's actor writes, its subscriptions read. A chunk records the subscriptions, with
//! version, that it was matched for. Any other subscription finds nothing here, and reads and
//! filters the log itself. So the cache can be cleared at any time.
//!
//! Events are dropped as soon as all subscriptions that match have read them, so that publishing
//! reuses the same memory, or when the memory limit is reached. A dropped stretch stays as a range
//! that subscriptions without a match in it may skip. Nothing is kept for subscriptions that lag:
//! they read the log.

mod matches;
mod stretch;

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use self::stretch::{EvictedRange, LogStretch};
pub use self::{
    matches::Matches,
    stretch::{MatchedChunk, SubscriptionPositions},
};
use gridhook_event::{Event, Seq, SubscriptionId};

/// The memory limit of all recent-events caches of the server together. Above it, the largest cache
/// loses its oldest events, so a topic with few events never pays for one with many.
#[derive(Debug)]
pub struct RecentBudget {
    used: AtomicUsize,
    bytes_max: usize,
    /// The caches that hold something.
    caches: Mutex<Vec<Weak<RecentEventsShared>>>,
}

impl RecentBudget {
    /// A budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            bytes_max,
            caches: Mutex::default(),
        }
    }

    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Drops the oldest events of the largest cache until the budget holds.
    fn make_room(&self) {
        while self.used_bytes() > self.bytes_max {
            let largest = {
                let mut caches = self.caches.lock();
                caches.retain(|cache| cache.upgrade().is_some_and(|cache| cache.stays_listed()));
                caches
                    .iter()
                    .filter_map(Weak::upgrade)
                    .max_by_key(|cache| cache.used_bytes())
            };
            let Some(largest) = largest else { return };
            // Drops several at once, so that the caches are not compared for each chunk.
            let enough = self.bytes_max - self.bytes_max / 8;
            let half = largest.used_bytes() / 2;
            let mut stretches = largest.stretches.lock();
            while self.used_bytes() > enough
                && (self.used_bytes() > self.bytes_max || largest.used_bytes() > half)
            {
                // A dropped range stays, so that the subscriptions that match nothing in it need
                // not read the log.
                match stretches
                    .queue
                    .iter()
                    .position(|stretch| matches!(stretch, LogStretch::Cached(..)))
                {
                    Some(oldest) => largest.evict_chunk(self, &mut stretches.queue, oldest),
                    None => match stretches.queue.pop_front() {
                        Some(oldest) => largest.give_back(self, oldest.memory_bytes()),
                        None => return,
                    },
                }
            }
        }
    }
}

/// Bounds of a read from the cache. The chunk that reaches either of them is read whole.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds {
    /// Number of matching events, about.
    pub events_max: usize,
    /// Bytes of the matching events, about.
    pub bytes_max: usize,
}

/// The part of the cache that one subscription reads at once.
#[derive(Debug)]
pub struct RecentSlice {
    /// The end of the range that was looked at.
    pub upto: Seq,
    /// Number of events in that range, whether they match or not.
    pub total: u64,
    pub events: Vec<Event>,
}

/// The newest events of a topic.
#[derive(Debug)]
pub struct RecentEvents {
    shared: Arc<RecentEventsShared>,
    budget: Arc<RecentBudget>,
}

#[derive(Debug, Default)]
struct LogStretches {
    /// Consecutive stretches, oldest first.
    queue: VecDeque<LogStretch>,
    last_matches: Option<LastMatches>,
}

/// The last match of each subscription. A subscription that is beyond it passes everything else at
/// once.
#[derive(Debug)]
struct LastMatches {
    matched_for: Arc<SubscriptionPositions>,
    /// All chunks from here on were matched for these subscriptions.
    first: Seq,
    /// For each position of a subscription, the end of the last chunk with a match.
    ends: Vec<Seq>,
}

impl LastMatches {
    fn new(chunk: &MatchedChunk) -> Self {
        let ends = vec![chunk.first; chunk.matched_for.all.len()];
        Self {
            matched_for: Arc::clone(&chunk.matched_for),
            first: chunk.first,
            ends,
        }
    }

    /// Whether nothing from `from` on matches the subscription.
    fn is_beyond(&self, subscription: SubscriptionId, version: u32, from: Seq) -> bool {
        let position = self.matched_for.position_of(subscription, version);
        self.first <= from && position.is_some_and(|position| self.ends[position as usize] <= from)
    }
}

/// The part of a cache that the budget refers to.
#[derive(Debug, Default)]
struct RecentEventsShared {
    used: AtomicUsize,
    is_listed: AtomicBool,
    stretches: Mutex<LogStretches>,
    /// Lagging subscriptions, for which nothing is kept.
    laggards: Mutex<HashSet<SubscriptionId>>,
}

impl RecentEventsShared {
    fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn reserve_bytes(&self, budget: &RecentBudget, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        budget.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, budget: &RecentBudget, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An empty cache is listed again with its next chunk.
    fn stays_listed(&self) -> bool {
        let stays = self.used_bytes() > 0;
        self.is_listed.store(stays, Ordering::Relaxed);
        stays
    }

    /// Drops the events of the chunk at this index, and merges the rest with its neighbours.
    fn evict_chunk(&self, budget: &RecentBudget, stretches: &mut VecDeque<LogStretch>, at: usize) {
        let Some(LogStretch::Cached(chunk, readers)) = stretches.remove(at) else {
            return;
        };
        let before = at.checked_sub(1);
        let matched_for = Arc::clone(&chunk.matched_for);
        let is_merged = self.change_range(budget, stretches, before, &matched_for, |evicted| {
            evicted.extend(&chunk)
        });
        if !is_merged {
            let first = chunk.first;
            let matched_for = Arc::clone(&matched_for);
            let mut range = EvictedRange {
                first,
                end: first,
                matched_for,
                last_match_ends: Vec::new(),
            };
            range.extend(&chunk);
            let stretch = LogStretch::Evicted(range);
            self.reserve_bytes(budget, stretch.memory_bytes());
            stretches.insert(at, stretch);
        }
        self.give_back(budget, LogStretch::Cached(chunk, readers).memory_bytes());
        let evicted = if is_merged { before } else { Some(at) };
        let next = if is_merged { at } else { at + 1 };
        if stretches
            .get_mut(next)
            .is_some_and(|next| next.evicted_for(&matched_for).is_some())
            && let Some(next) = stretches.remove(next)
        {
            self.give_back(budget, next.memory_bytes());
            if let LogStretch::Evicted(later) = next {
                self.change_range(budget, stretches, evicted, &matched_for, |evicted| {
                    evicted.append_later(later)
                });
            }
        }
    }

    /// Changes the dropped range at this index, if there is one that was matched for these
    /// subscriptions.
    fn change_range(
        &self,
        budget: &RecentBudget,
        stretches: &mut VecDeque<LogStretch>,
        at: Option<usize>,
        matched_for: &Arc<SubscriptionPositions>,
        change: impl FnOnce(&mut EvictedRange),
    ) -> bool {
        let stretch = at.and_then(|at| stretches.get_mut(at));
        let Some(gone) = stretch.and_then(|stretch| stretch.evicted_for(matched_for)) else {
            return false;
        };
        let had = gone.memory_bytes();
        change(gone);
        // No change makes the range smaller, so this cannot underflow.
        self.reserve_bytes(budget, gone.memory_bytes() - had);
        true
    }
}

impl RecentEvents {
    pub fn new(budget: Arc<RecentBudget>) -> Self {
        Self {
            shared: Arc::default(),
            budget,
        }
    }

    /// Adds the next chunk. If it does not follow the last one, clears the cache first.
    pub fn push(&self, chunk: MatchedChunk) {
        let mut stretches = self.shared.stretches.lock();
        if stretches
            .queue
            .back()
            .is_some_and(|last| last.end_seq() != chunk.first)
        {
            self.forget_all(&mut stretches);
        }
        let LogStretches {
            queue,
            last_matches,
        } = &mut *stretches;
        let last_matches = match last_matches {
            Some(known) if Arc::ptr_eq(&known.matched_for, &chunk.matched_for) => known,
            other => other.insert(LastMatches::new(&chunk)),
        };
        let readers = {
            let laggards = self.shared.laggards.lock();
            let mut readers = 0;
            for position in chunk.matches.reader_positions() {
                let position = position as usize;
                last_matches.ends[position] = chunk.end_seq();
                if laggards.is_empty() || !laggards.contains(&chunk.matched_for.all[position]) {
                    readers += 1;
                }
            }
            readers
        };
        let stretch = LogStretch::Cached(chunk, readers);
        self.shared
            .reserve_bytes(&self.budget, stretch.memory_bytes());
        queue.push_back(stretch);
        if readers == 0 {
            self.shared
                .evict_chunk(&self.budget, queue, queue.len() - 1);
        }
        drop(stretches);
        if !self.shared.is_listed.load(Ordering::Relaxed)
            && !self.shared.is_listed.swap(true, Ordering::Relaxed)
        {
            let mut caches = self.budget.caches.lock();
            caches.push(Arc::downgrade(&self.shared));
        }
        self.budget.make_room();
    }

    pub fn clear(&self) {
        self.forget_all(&mut self.shared.stretches.lock());
    }

    /// Drops what all subscriptions have passed.
    pub fn drop_passed(&self, low: Seq) {
        let mut stretches = self.shared.stretches.lock();
        while let Some(oldest) = stretches
            .queue
            .pop_front_if(|oldest| oldest.end_seq() <= low)
        {
            self.shared.give_back(&self.budget, oldest.memory_bytes());
        }
    }

    /// Sets the subscriptions that lag. Nothing is kept for them: chunks that only they match are
    /// dropped, and chunks that end at or below `low`, which all others have read.
    pub fn set_laggards(&self, laggards: HashSet<SubscriptionId>, low: Seq) {
        let mut stretches = self.shared.stretches.lock();
        let stretches = &mut stretches.queue;
        let mut at = 0;
        while let Some(stretch) = stretches.get(at) {
            let is_needed = match stretch {
                LogStretch::Cached(chunk, _) => {
                    chunk.end_seq() > low
                        && chunk.readers().any(|reader| !laggards.contains(&reader))
                }
                LogStretch::Evicted(_) => true,
            };
            if is_needed {
                at += 1;
            } else {
                let end = stretch.end_seq();
                self.shared.evict_chunk(&self.budget, stretches, at);
                at = stretches.partition_point(|stretch| stretch.end_seq() <= end);
            }
        }
        *self.shared.laggards.lock() = laggards;
    }

    /// Reads from `from` up to `end`, or to the end of the cache, about `events_max` matching
    /// events or `bytes_max` bytes: the chunk that reaches either is read whole. [`None`] if the
    /// log must be read instead.
    ///
    /// A subscription reads without an end only once: when all subscriptions that a chunk matches
    /// have read it, its events are dropped.
    pub fn read(
        &self,
        subscription: SubscriptionId,
        version: u32,
        from: Seq,
        end: Option<Seq>,
        ReadBounds {
            events_max,
            bytes_max,
        }: ReadBounds,
    ) -> Option<RecentSlice> {
        let mut stretches = self.shared.stretches.lock();
        let LogStretches {
            queue: stretches,
            last_matches,
        } = &mut *stretches;
        let mut slice = RecentSlice {
            upto: from,
            total: 0,
            events: Vec::new(),
        };
        let last = stretches.back()?.end_seq();
        if last_matches
            .as_ref()
            .is_some_and(|known| known.is_beyond(subscription, version, from))
        {
            slice.upto = end.map_or(last, |end| end.min(last)).max(from);
            slice.total = slice.upto.0 - from.0;
            return (slice.total > 0).then_some(slice);
        }
        let mut at = stretches.partition_point(|stretch| stretch.end_seq() <= from);
        let mut bytes = 0;
        while let Some(stretch) = stretches.get_mut(at) {
            let Some(position) = stretch.matched_for().position_of(subscription, version) else {
                break;
            };
            let upto = end.map_or(stretch.end_seq(), |end| end.min(stretch.end_seq()));
            let is_enough = slice.events.len() >= events_max || bytes >= bytes_max;
            if stretch.first_seq() > slice.upto || slice.upto >= upto || is_enough {
                break;
            }
            let mut is_read = false;
            match stretch {
                LogStretch::Evicted(gone) if gone.has_match(position, slice.upto) => break,
                LogStretch::Evicted(_) => {}
                LogStretch::Cached(chunk, readers) => {
                    if chunk.matches.matches_any(position) {
                        let within = |seq: Seq| (seq.0 - chunk.first.0) as usize;
                        for index in chunk
                            .matches
                            .matches_within(position, within(slice.upto)..within(upto))
                        {
                            bytes += chunk.events[index].wire_len();
                            slice.events.push(chunk.events[index].clone());
                        }
                        *readers -= usize::from(end.is_none());
                        is_read = *readers == 0;
                    }
                }
            }
            slice.total += upto.0 - slice.upto.0;
            slice.upto = upto;
            if is_read {
                self.shared.evict_chunk(&self.budget, stretches, at);
                at = stretches.partition_point(|stretch| stretch.end_seq() <= upto);
            } else {
                at += 1;
            }
        }
        (slice.total > 0).then_some(slice)
    }

    fn forget_all(&self, stretches: &mut LogStretches) {
        stretches.last_matches = None;
        let bytes: usize = stretches
            .queue
            .drain(..)
            .map(|stretch| stretch.memory_bytes())
            .sum();
        self.shared.give_back(&self.budget, bytes);
    }
}

impl Drop for RecentEvents {
    fn drop(&mut self) {
        self.clear();
    }
}
