//! One actor for each topic: it matches each appended event once against the filters of all
//! subscriptions, keeps the newest events in a bounded cache
//! ([`gridhook_subscription::recent_events`]) and wakes the subscriptions that match.
//!
//! A domain is a topic here: one log and one actor, whose events each name a topic of the domain. A
//! wake is a hint: losing one costs latency, never an event. Publishing does not need the actor:
//! killing it delays deliveries and fails no publish.

mod actor;
pub mod index;
pub mod meter;

pub use self::actor::{CHECK_INTERVAL, TopicActor};
pub use gridhook_subscription::recent_events::{
    MatchedChunk, Matches, RecentBudget, RecentEvents, SubscriptionPositions,
};
