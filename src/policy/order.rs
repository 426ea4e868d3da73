//! Order by key: what a subscription sets. The state is part of the state machine of the
//! subscription.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::filter::{key::FilterKey, view::EventView};
use gridhook_event::Event;

/// The settings of an ordered subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSettings {
    /// Events with the same value here are delivered one after the other.
    pub key: FilterKey,
    /// Maximum events in flight, waiting for a retry or held back. At the limit nothing is sent for
    /// the first time.
    pub tracked_max: usize,
    /// Whether an event that would be given up blocks the later ones of its key, until an operator
    /// decides.
    pub blocks: bool,
    /// Whether a request has one event of a key at most: the destination may take some events of a
    /// request only.
    pub one_of_a_key: bool,
}

/// The hash of an order key, only in memory. Two keys with the same hash share one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderHash(pub u64);

impl OrderSettings {
    /// The order key of an event. [`None`] if the event has no text, number or boolean at the key:
    /// it is delivered without an order.
    pub fn hash(&self, event: &Event) -> Option<OrderHash> {
        Some(OrderHash::hash_value(
            &EventView::new(event).scalar_text(&self.key)?,
        ))
    }
}

impl OrderHash {
    /// The hash of the value of a key.
    pub fn hash_value(value: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(hasher.finish())
    }
}
