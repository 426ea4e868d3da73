//! Owed: an actor for each subscription, a thin shell around the pure core.
//!
//! [`SubscriptionActor`] is one life of a subscription. What must outlive it lies in its [`SharedState`]: the requests that are on
//! their way, the answers that came back for them, the event that was in hand. The actor reads the newest events from the
//! topic's [`RecentEvents`], older ones from the journal, and what it decides it has decided by `policy`.

mod actor;
mod clients;
mod delivery;
pub mod event_feed;
pub mod explain;
mod plan;
mod read_budget;
mod recent_events;
pub mod record;
pub mod response_faults;
mod shared_state;
mod spans;
pub mod trace;
pub mod validation;
pub mod version;

pub use self::{
    actor::{PoisonEvents, RecoveryDone, SubscriptionActor, SubscriptionContext, Wake},
    event_feed::{EventFeed, FeedEvent, FeedSubscriber},
    plan::{DeliveryContext, DeliveryPlan},
    read_budget::{BudgetMember, GrantRequest, LetGo, ReadBudget, ReadGrant},
    recent_events::{MatchedChunk, Matches, RecentBudget, RecentEvents, SubscriptionPositions},
    shared_state::{
        CommandResult, PHASE_NAMES, QuarantinedEvents, Received, SharedState, SharedStateMessage, SubscriptionMeasures,
        SubscriptionState, WaitingClient,
    },
    validation::{EndpointValidator, ValidationCode},
};
