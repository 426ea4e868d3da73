//! Finds the subscriptions that an event goes to, once per event.
//!
//! The filter index returns candidates, and each candidate's filter is evaluated; a few filters are all evaluated. All
//! filters share one view of the event, so each part of the event is parsed once. A chunk is matched in parts ([`Matching`]), so that other actors on
//! the thread run in between.

use std::{cell::LazyCell, sync::Arc};

use gridhook_event::{Event, Seq, SubscriptionId};
use gridhook_policy::filter;
use gridhook_subscription::{
    DeliveryPlan,
    recent_events::{MatchedChunk, Matches, SubscriptionPositions},
};

/// The cost of a candidate, in bytes of an event.
const CANDIDATE: usize = 256;

/// So few filters are evaluated without a look into the index, which costs as much.
const INDEXED: usize = 4;

/// The filters of a topic's subscriptions.
#[derive(Debug, Default)]
pub struct TopicIndex {
    plans: Vec<Arc<DeliveryPlan>>,
    filters: filter::index::FilterIndex,
    positions: Arc<SubscriptionPositions>,
}

/// A chunk that is partly matched.
#[derive(Debug)]
pub struct Matching {
    first: Seq,
    events: Vec<Event>,
    bytes: usize,
    matches: Matches,
    /// The positions of the last matched event.
    matched: Vec<u32>,
    /// Matched events.
    done: usize,
    /// Matched events that no filter passed.
    unmatched: u64,
}

impl TopicIndex {
    /// Builds an index over these plans.
    pub fn new(plans: Vec<Arc<DeliveryPlan>>) -> Self {
        Self::default().renewed(plans)
    }

    /// Builds an index over these plans and reuses what is still valid of this one.
    #[must_use]
    pub fn renewed(&self, plans: Vec<Arc<DeliveryPlan>>) -> Self {
        let filters = self.filters.renewed(plans.iter().map(|plan| plan.filter()));
        let positions = SubscriptionPositions::new(plans.iter().map(|plan| (plan.record.number, plan.record.version)));
        Self { plans, filters, positions: Arc::new(positions) }
    }

    /// Begins to match consecutive events of a chunk. [`None`] if there are none.
    pub fn begin(&self, events: Vec<Event>, bytes: usize) -> Option<Matching> {
        let first = events.first()?.seq;
        let matches = Matches::with_room(events.len(), self.plans.len());
        let matched = Vec::with_capacity(self.plans.len().min(INDEXED));
        Some(Matching { first, events, bytes, matches, matched, done: 0, unmatched: 0 })
    }

    /// Matches the next event. Returns the cost in bytes; [`None`] once all are matched.
    pub fn advance(&self, matching: &mut Matching) -> Option<usize> {
        let event = matching.events.get(matching.done)?;
        let view = LazyCell::new(|| self.filters.view(event));
        let passes = |position: &usize| self.plans[*position].filter().passes_view(event, || &*view);
        let (positions, matched) = (0..self.plans.len(), &mut matching.matched);
        matched.clear();
        let candidates = if positions.len() <= INDEXED {
            matched.extend(positions.clone().filter(passes).map(|position| position as u32));
            positions.len()
        } else {
            let candidates = self.filters.candidates(&view);
            matched.extend(candidates.iter().copied().filter(passes).map(|position| position as u32));
            candidates.len()
        };
        matching.unmatched += u64::from(matched.is_empty());
        matching.matches.push(matched);
        matching.done += 1;
        Some(event.wire_len() + CANDIDATE * (1 + candidates))
    }

    /// Returns the chunk, the subscriptions that get any of its events, and the number of events without a
    /// subscription.
    pub fn end(&self, matching: Matching) -> (MatchedChunk, Vec<SubscriptionId>, u64) {
        let Matching { first, events, bytes, matches, unmatched, .. } = matching;
        let readers = matches.readers().map(|position| self.plans[position as usize].record.number).collect();
        (MatchedChunk { first, events, bytes, matched_for: Arc::clone(&self.positions), matches }, readers, unmatched)
    }
}
