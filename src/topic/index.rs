//! Which subscriptions an event goes to, asked once per event.
//!
//! The filters' own index names the candidates, and each of these is asked; all of them look at one view of the event, so
//! that what one has read of it the next need not read again.

use std::{collections::HashMap, sync::Arc};

use crate::{
    event::{Event, SubscriptionId},
    policy::filter::{self, view::View},
    subscription::{Matched, Plan},
};

/// The filters of a topic's subscriptions.
#[derive(Debug, Default)]
pub struct Index {
    plans: Vec<Arc<Plan>>,
    filters: filter::index::Index,
    known: Arc<HashMap<SubscriptionId, u32>>,
}

impl Index {
    /// An index over these.
    pub fn new(plans: Vec<Arc<Plan>>) -> Self {
        let filters = filter::index::Index::new(plans.iter().map(|plan| plan.filter()));
        let known = plans.iter().map(|plan| (plan.record.number, plan.record.version)).collect();
        Self { plans, filters, known: Arc::new(known) }
    }

    /// Matches a chunk's events, which lie behind one another; and how many of them nobody's filter matches.
    pub fn matches(&self, events: Vec<Event>, bytes: usize) -> Option<(Matched, u64)> {
        let first = events.first()?.seq;
        let mut matches: HashMap<SubscriptionId, Vec<u32>> = HashMap::new();
        let mut unmatched = 0;
        for (index, event) in (0..).zip(&events) {
            let view = View::new(event);
            let mut is_matched = false;
            for place in self.filters.candidates(&view) {
                let plan = &self.plans[place];
                if plan.filter().passes(&view) {
                    matches.entry(plan.record.number).or_default().push(index);
                    is_matched = true;
                }
            }
            unmatched += u64::from(!is_matched);
        }
        Some((Matched { first, events, bytes, matched_for: Arc::clone(&self.known), matches }, unmatched))
    }
}
