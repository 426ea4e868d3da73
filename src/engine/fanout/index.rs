//! Finds the subscriptions that an event goes to, once per event.
//!
//! The filter index returns candidates, and each candidate's filter is evaluated; a few filters are
//! all evaluated. The filters of a block of candidates share one view of the event, so each part of
//! the event is parsed once for each block. A chunk is matched in parts ([`Matching`]), and an
//! event with long texts or many candidates is, too, so that other actors on the thread run in
//! between.

use std::{cell::LazyCell, sync::Arc};

use gridhook_event::{Event, Seq, SubscriptionId};
use gridhook_policy::filter::{self, index::TextScan};
use gridhook_subscription::{
    DeliveryPlan,
    recent_events::{MatchedChunk, Matches, SubscriptionPositions},
};

/// The cost of a candidate, in bytes of an event.
const CANDIDATE: usize = 256;

/// Up to this number of filters all are evaluated: a look into the index would cost as much.
const INDEXED: usize = 4;

/// Number of candidates that are evaluated without a pause, which takes some milliseconds.
const BLOCK: usize = 512;

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
    /// The positions that match the event that is being matched.
    matched: Vec<u32>,
    /// The progress of the event that is being matched.
    progress: EventProgress,
    done: usize,
    /// Events that match no subscription.
    unmatched: u64,
}

/// The progress of matching one event.
#[derive(Debug, Default)]
struct EventProgress {
    is_begun: bool,
    /// The search of strings, if it is made in parts.
    scan: Option<TextScan>,
    /// The positions of the candidates, once they are known.
    candidates: Option<Vec<usize>>,
    /// The number of evaluated candidates.
    evaluated: usize,
}

/// A block of candidates whose filters were evaluated.
struct EvaluatedBlock {
    /// The number of candidates.
    evaluated: usize,
    is_last: bool,
}

impl TopicIndex {
    /// Builds an index over these plans.
    pub fn new(plans: Vec<Arc<DeliveryPlan>>) -> Self {
        Self::default().rebuild(plans)
    }

    /// Builds an index over these plans and reuses what is still valid of this one.
    #[must_use]
    pub fn rebuild(&self, plans: Vec<Arc<DeliveryPlan>>) -> Self {
        let filters = self.filters.rebuild(plans.iter().map(|plan| plan.filter()));
        let positions = SubscriptionPositions::new(
            plans
                .iter()
                .map(|plan| (plan.record.number, plan.record.version)),
        );
        Self {
            plans,
            filters,
            positions: Arc::new(positions),
        }
    }

    /// Begins to match consecutive events of a chunk. [`None`] if there are none.
    pub fn begin_matching(&self, events: Vec<Event>, bytes: usize) -> Option<Matching> {
        let first = events.first()?.seq;
        let matches = Matches::with_room(events.len(), self.plans.len());
        let matched = Vec::with_capacity(self.plans.len().min(INDEXED));
        let progress = EventProgress::default();
        Some(Matching {
            first,
            events,
            bytes,
            matches,
            matched,
            progress,
            done: 0,
            unmatched: 0,
        })
    }

    /// Matches the next event, or a part of it. Returns the cost in bytes; [`None`] once all are
    /// matched.
    pub fn match_next(&self, matching: &mut Matching) -> Option<usize> {
        let Matching {
            events,
            matched,
            progress,
            ..
        } = matching;
        let event = events.get(matching.done)?;
        if !progress.is_begun {
            progress.is_begun = true;
            progress.scan = self.filters.begin_scan(event);
            if progress.scan.is_some() {
                return Some(event.wire_len() + CANDIDATE);
            }
        }
        if let Some(cost) = progress
            .scan
            .as_mut()
            .and_then(|scan| self.filters.advance_scan(scan))
        {
            return Some(cost);
        }
        let block = self.evaluate_block(event, progress, matched);
        let cost = event.wire_len() + CANDIDATE * (1 + block.evaluated);
        if block.is_last {
            matching.unmatched += u64::from(matched.is_empty());
            matching.matches.push(matched);
            matched.clear();
            *progress = EventProgress::default();
            matching.done += 1;
        }
        Some(cost)
    }

    /// Evaluates the filters of the next candidates.
    fn evaluate_block(
        &self,
        event: &Event,
        progress: &mut EventProgress,
        matched: &mut Vec<u32>,
    ) -> EvaluatedBlock {
        let EventProgress {
            scan,
            candidates,
            evaluated,
            ..
        } = progress;
        let view = LazyCell::new(|| self.filters.searched_view(event, scan.as_ref()));
        let passes = |position: &usize| {
            self.plans[*position]
                .filter()
                .matches_lazy_view(event, || &*view)
        };
        let all = 0..self.plans.len();
        if all.len() <= INDEXED {
            matched.extend(all.clone().filter(passes).map(|position| position as u32));
            return EvaluatedBlock {
                evaluated: all.len(),
                is_last: true,
            };
        }
        let candidates = candidates.get_or_insert_with(|| self.filters.find_candidates(&view));
        let rest = &candidates[*evaluated..];
        let block = &rest[..rest.len().min(BLOCK)];
        matched.extend(
            block
                .iter()
                .copied()
                .filter(passes)
                .map(|position| position as u32),
        );
        *evaluated += block.len();
        EvaluatedBlock {
            evaluated: block.len(),
            is_last: block.len() == rest.len(),
        }
    }

    /// Returns the chunk, the subscriptions that get any of its events, and the number of events
    /// without a subscription.
    pub fn finish_matching(&self, matching: Matching) -> (MatchedChunk, Vec<SubscriptionId>, u64) {
        let Matching {
            first,
            events,
            bytes,
            matches,
            unmatched,
            ..
        } = matching;
        let readers = matches
            .reader_positions()
            .map(|position| self.plans[position as usize].record.number)
            .collect();
        (
            MatchedChunk {
                first,
                events,
                bytes,
                matched_for: Arc::clone(&self.positions),
                matches,
            },
            readers,
            unmatched,
        )
    }
}
