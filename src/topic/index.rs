//! Which subscriptions an event goes to, asked once per event.
//!
//! The index narrows by event type first, because that is what most filters name; what is left is asked one by one.

use std::{collections::HashMap, sync::Arc};

use crate::{
    event::{Event, SubscriptionId},
    policy::filter::Filter,
    subscription::{Matched, Plan},
};

/// The filters of a topic's subscriptions.
#[derive(Debug, Default)]
pub struct Index {
    entries: Vec<Entry>,
    any_type: Vec<usize>,
    by_type: HashMap<String, Vec<usize>>,
    known: Arc<HashMap<SubscriptionId, u32>>,
}

#[derive(Debug)]
struct Entry {
    subscription: SubscriptionId,
    plan: Arc<Plan>,
}

impl Entry {
    fn filter(&self) -> &Filter {
        self.plan.filter()
    }
}

impl Index {
    /// An index over these.
    pub fn new(plans: Vec<Arc<Plan>>) -> Self {
        let mut index = Self::default();
        let mut known = HashMap::new();
        for (place, plan) in plans.into_iter().enumerate() {
            known.insert(plan.record.number, plan.record.version);
            match plan.filter().event_types() {
                None => index.any_type.push(place),
                Some(types) => {
                    for name in types {
                        let places: &mut Vec<usize> = index.by_type.entry(name.to_lowercase()).or_default();
                        if places.last() != Some(&place) {
                            places.push(place);
                        }
                    }
                }
            }
            index.entries.push(Entry { subscription: plan.record.number, plan });
        }
        index.known = Arc::new(known);
        index
    }

    /// Matches a chunk's events, which lie behind one another.
    pub fn matches(&self, events: Vec<Event>, bytes: usize) -> Option<Matched> {
        let first = events.first()?.seq;
        let mut matches: HashMap<SubscriptionId, Vec<u32>> = HashMap::new();
        for (index, event) in (0..).zip(&events) {
            let of_type =
                if self.by_type.is_empty() { None } else { self.by_type.get(&event.event_type().to_lowercase()) };
            for place in self.any_type.iter().chain(of_type.into_iter().flatten()) {
                let entry = &self.entries[*place];
                if entry.filter().matches(event) {
                    matches.entry(entry.subscription).or_default().push(index);
                }
            }
        }
        Some(Matched { first, events, bytes, matched_for: Arc::clone(&self.known), matches })
    }
}
