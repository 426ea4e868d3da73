//! Which subscriptions an event goes to, asked once per event.
//!
//! The filters' own index names the candidates, and each of these is asked; all of them look at one view of the event, so
//! that what one has read of it the next need not read again. A chunk is matched in parts ([`Matching`]), so that others on
//! the thread have their turn in between.

use std::sync::Arc;

use crate::{
    event::{Event, Seq, SubscriptionId},
    policy::filter,
    subscription::{DeliveryPlan, MatchedChunk, Matches, SubscriptionPositions},
};

/// What a candidate costs, in bytes of an event.
const CANDIDATE: usize = 256;

/// The filters of a topic's subscriptions.
#[derive(Debug, Default)]
pub struct TopicIndex {
    plans: Vec<Arc<DeliveryPlan>>,
    filters: filter::index::FilterIndex,
    roster: Arc<SubscriptionPositions>,
}

/// A chunk of which some events are matched.
#[derive(Debug)]
pub struct Matching {
    first: Seq,
    events: Vec<Event>,
    bytes: usize,
    matches: Matches,
    /// So many events are matched …
    done: usize,
    /// … and so many of these by nobody's filter.
    unmatched: u64,
}

impl TopicIndex {
    /// An index over these.
    pub fn new(plans: Vec<Arc<DeliveryPlan>>) -> Self {
        Self::default().renewed(plans)
    }

    /// An index over these, with what is still good of this one.
    #[must_use]
    pub fn renewed(&self, plans: Vec<Arc<DeliveryPlan>>) -> Self {
        let filters = self.filters.renewed(plans.iter().map(|plan| plan.filter()));
        let roster = SubscriptionPositions::new(plans.iter().map(|plan| (plan.record.number, plan.record.version)));
        Self { plans, filters, roster: Arc::new(roster) }
    }

    /// Begins to match a chunk's events, which lie behind one another. [`None`] where there are none.
    pub fn begin(&self, events: Vec<Event>, bytes: usize) -> Option<Matching> {
        let first = events.first()?.seq;
        Some(Matching { first, events, bytes, matches: Matches::default(), done: 0, unmatched: 0 })
    }

    /// Matches the next event. Answers what that cost, in bytes; [`None`] where all are matched.
    pub fn advance(&self, matching: &mut Matching) -> Option<usize> {
        let event = matching.events.get(matching.done)?;
        let view = self.filters.view(event);
        let candidates = self.filters.candidates(&view);
        let cost = event.wire_len() + CANDIDATE * (1 + candidates.len());
        let passes = |place: &usize| self.plans[*place].filter().passes(&view);
        let matched: Vec<u32> = candidates.into_iter().filter(passes).map(|place| place as u32).collect();
        matching.unmatched += u64::from(matched.is_empty());
        matching.matches.push(matched);
        matching.done += 1;
        Some(cost)
    }

    /// The chunk, the subscriptions that any of it goes to, and how many of its events go to nobody.
    pub fn end(&self, matching: Matching) -> (MatchedChunk, Vec<SubscriptionId>, u64) {
        let Matching { first, events, bytes, matches, unmatched, .. } = matching;
        let readers = matches.readers().map(|place| self.plans[place as usize].record.number).collect();
        (MatchedChunk { first, events, bytes, matched_for: Arc::clone(&self.roster), matches }, readers, unmatched)
    }
}
