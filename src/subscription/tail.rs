//! The newest events of a topic, with the subscriptions that each one matches: who keeps up reads here and not on the disk.
//!
//! The topic writes, its subscriptions read. A chunk knows which subscriptions it was matched for, in which version: a
//! subscription that is not among them finds nothing here and reads the log, filtering for itself. So a tail can be
//! forgotten at any moment.

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
    chunks: Mutex<VecDeque<Arc<Matched>>>,
    budget: Arc<Budget>,
}

impl Tail {
    /// An empty tail.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { chunks: Mutex::default(), budget }
    }

    /// Adds the next chunk. Where it does not follow the last one, what was there is forgotten.
    pub fn push(&self, chunk: Matched) {
        let mut chunks = self.chunks();
        if chunks.back().is_some_and(|last| last.end() != chunk.first) {
            self.forget(&mut chunks);
        }
        self.budget.used.fetch_add(chunk.bytes, Ordering::Relaxed);
        chunks.push_back(Arc::new(chunk));
        while self.budget.used.load(Ordering::Relaxed) > self.budget.most {
            match chunks.pop_front() {
                Some(oldest) => self.budget.used.fetch_sub(oldest.bytes, Ordering::Relaxed),
                None => break,
            };
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.forget(&mut self.chunks());
    }

    /// Forgets what everybody has passed.
    pub fn pass(&self, low: Seq) {
        let mut chunks = self.chunks();
        while let Some(oldest) = chunks.pop_front_if(|oldest| oldest.end() <= low) {
            self.budget.used.fetch_sub(oldest.bytes, Ordering::Relaxed);
        }
    }

    /// From `from` up to `end` or as far as there is, up to about `events_max` events that match. [`None`] where the log must
    /// be read instead.
    pub fn read(
        &self,
        subscription: SubscriptionId,
        version: u32,
        from: Seq,
        end: Option<Seq>,
        events_max: usize,
    ) -> Option<Found> {
        let chunks = self.chunks();
        let begin = chunks.partition_point(|chunk| chunk.end() <= from);
        let mut found = Found { upto: from, total: 0, events: Vec::new() };
        for chunk in chunks.range(begin..) {
            let known = chunk.matched_for.get(&subscription) == Some(&version);
            let upto = end.map_or(chunk.end(), |end| end.min(chunk.end()));
            if !known || chunk.first > found.upto || found.upto >= upto || found.events.len() >= events_max {
                break;
            }
            let part = found.upto.0 - chunk.first.0..upto.0 - chunk.first.0;
            let matches = chunk.matches.get(&subscription).map_or(&[][..], Vec::as_slice);
            let wanted = matches.iter().filter(|index| part.contains(&u64::from(**index)));
            found.events.extend(wanted.map(|index| chunk.events[*index as usize].clone()));
            found.total += part.end - part.start;
            found.upto = upto;
        }
        (found.total > 0).then_some(found)
    }

    fn chunks(&self) -> MutexGuard<'_, VecDeque<Arc<Matched>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, chunks: &mut VecDeque<Arc<Matched>>) {
        let bytes: usize = chunks.drain(..).map(|chunk| chunk.bytes).sum();
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clear();
    }
}
