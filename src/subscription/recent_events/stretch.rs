//! A stretch of the log in the cache: a matched chunk, or the range that is left of dropped ones.

use std::sync::Arc;

use crate::recent_events::Matches;
use gridhook_event::{Event, EventBlock, IdMap, Seq, SubscriptionId};

/// The subscriptions that a chunk was matched for, each with its position in [`Matches`] and its
/// version.
#[derive(Debug, Default)]
pub struct SubscriptionPositions {
    pub(super) all: Vec<SubscriptionId>,
    by_subscription: IdMap<SubscriptionId, (u32, u32)>,
}

impl SubscriptionPositions {
    /// Assigns positions in this order, from 0.
    pub fn new(all: impl IntoIterator<Item = (SubscriptionId, u32)>) -> Self {
        let mut positions = Self::default();
        for ((subscription, version), position) in all.into_iter().zip(0..) {
            positions.all.push(subscription);
            positions
                .by_subscription
                .insert(subscription, (position, version));
        }
        positions
    }

    pub(super) fn position_of(&self, subscription: SubscriptionId, version: u32) -> Option<u32> {
        self.by_subscription
            .get(&subscription)
            .filter(|(_, known)| *known == version)
            .map(|(position, _)| *position)
    }
}

/// A matched chunk of the log.
#[derive(Debug)]
pub struct MatchedChunk {
    /// The sequence of the chunk's first event.
    pub first: Seq,
    pub events: Vec<Event>,
    /// The memory of the events' record, in bytes.
    pub bytes: usize,
    /// The subscriptions that the chunk was matched for.
    pub matched_for: Arc<SubscriptionPositions>,
    /// The events that each subscription gets.
    pub matches: Matches,
}

impl MatchedChunk {
    pub(super) fn end_seq(&self) -> Seq {
        self.first.plus(self.events.len() as u64)
    }

    /// Memory use. For small events, the offsets of their parts and the match sets are larger than
    /// the bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + EventBlock::memory_of_events(self.events.len()) + self.matches.memory_bytes()
    }

    pub(super) fn readers(&self) -> impl Iterator<Item = SubscriptionId> {
        self.matches
            .reader_positions()
            .map(|position| self.matched_for.all[position as usize])
    }
}

/// A stretch of the log whose events were dropped.
#[derive(Debug)]
pub(super) struct EvictedRange {
    pub(super) first: Seq,
    pub(super) end: Seq,
    pub(super) matched_for: Arc<SubscriptionPositions>,
    /// For each position of a subscription, the end of its last match; 0 without a match.
    pub(super) last_match_ends: Vec<Seq>,
}

impl EvictedRange {
    /// Extends the range by a chunk that follows it.
    pub(super) fn extend(&mut self, chunk: &MatchedChunk) {
        self.end = chunk.end_seq();
        for position in chunk.matches.reader_positions() {
            let position = position as usize;
            if self.last_match_ends.len() <= position {
                self.last_match_ends.resize(position + 1, Seq(0));
            }
            self.last_match_ends[position] = self.end;
        }
    }

    /// Appends the range that follows it.
    pub(super) fn append_later(&mut self, later: Self) {
        self.end = later.end;
        if self.last_match_ends.len() < later.last_match_ends.len() {
            self.last_match_ends
                .resize(later.last_match_ends.len(), Seq(0));
        }
        for (end, later) in self.last_match_ends.iter_mut().zip(later.last_match_ends) {
            *end = (*end).max(later);
        }
    }

    /// Whether the subscription at `position` has a match behind `upto`.
    pub(super) fn has_match(&self, position: u32, upto: Seq) -> bool {
        self.last_match_ends
            .get(position as usize)
            .is_some_and(|end| upto < *end)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.last_match_ends.capacity() * size_of::<Seq>()
    }
}

#[derive(Debug)]
pub(super) enum LogStretch {
    /// A cached chunk, with the number of subscriptions that have not read it yet.
    Cached(MatchedChunk, usize),
    Evicted(EvictedRange),
}

impl LogStretch {
    pub(super) fn first_seq(&self) -> Seq {
        match self {
            Self::Cached(chunk, _) => chunk.first,
            Self::Evicted(range) => range.first,
        }
    }

    pub(super) fn end_seq(&self) -> Seq {
        match self {
            Self::Cached(chunk, _) => chunk.end_seq(),
            Self::Evicted(range) => range.end,
        }
    }

    pub(super) fn matched_for(&self) -> &Arc<SubscriptionPositions> {
        match self {
            Self::Cached(chunk, _) => &chunk.matched_for,
            Self::Evicted(gone) => &gone.matched_for,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Cached(chunk, _) => chunk.memory_bytes(),
                Self::Evicted(range) => range.memory_bytes(),
            }
    }

    /// The dropped range, if it was matched for the same subscriptions.
    pub(super) fn evicted_for(
        &mut self,
        matched_for: &Arc<SubscriptionPositions>,
    ) -> Option<&mut EvictedRange> {
        match self {
            Self::Evicted(gone) if Arc::ptr_eq(&gone.matched_for, matched_for) => Some(gone),
            Self::Evicted(_) | Self::Cached(..) => None,
        }
    }
}
