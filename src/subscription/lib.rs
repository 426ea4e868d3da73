//! One actor for each subscription: clock, journal and requests around the pure core in
//! `policy::subscription`, which decides.
//!
//! A [`SubscriptionActor`] is one incarnation. What outlives it is in [`SharedState`]: requests in
//! flight, their results, and the current event. The actor reads the newest events from the topic's
//! [`RecentEvents`](crate::recent_events::RecentEvents) and older ones from the journal. `policy`
//! makes every decision.

mod actor;
mod delivery;
pub mod endpoint_wait;
pub mod event_feed;
pub mod plan;
mod read_budget;
pub mod recent_events;
pub mod shared_state;
mod slice;
mod spans;
pub mod timers;
mod transformation;
pub mod turns;

pub use self::{
    actor::{DeadLetterDue, RecoveryDone, SubscriptionActor, SubscriptionContext},
    endpoint_wait::EndpointWaits,
    plan::{DeliveryContext, DeliveryPlan, PlanError, RECEIVED_BYTES},
    read_budget::{BudgetMember, GrantRequest, ReadBudget, ReadGrant, ReleaseCallback},
    shared_state::{
        CommandResult, PHASE_NAMES, QuarantinedEvents, Received, SharedState, SharedStateMessage,
        SubscriptionMeasures, SubscriptionState, WaitingClient,
    },
    slice::{SliceRead, filter_slice},
};
