//! Owed: an actor for each subscription, a thin shell around the pure core.
//!
//! [`SubscriptionActor`] is one life of a subscription. What must outlive it lies in its [`SharedState`]: the requests that are on
//! their way, the answers that came back for them, the event that was in hand. The actor reads the newest events from the
//! topic's [`RecentEvents`], older ones from the journal, and what it decides it has decided by `policy`.

mod actor;
pub(crate) mod clients;
mod delivery;
pub(crate) mod plan;
mod read_budget;
pub(crate) mod shared_state;
mod spans;

pub use self::{
    actor::{PoisonEvents, RecoveryDone, SubscriptionActor, SubscriptionContext, Wake},
    plan::{DeliveryContext, DeliveryPlan},
    read_budget::{BudgetMember, GrantRequest, LetGo, ReadBudget, ReadGrant},
    shared_state::{
        CommandResult, PHASE_NAMES, QuarantinedEvents, Received, SharedState, SharedStateMessage, SubscriptionMeasures,
        SubscriptionState, WaitingClient,
    },
};
pub use crate::{
    control::validation::{EndpointValidator, ValidationCode},
    fanout::recent_events::{MatchedChunk, Matches, RecentBudget, RecentEvents, SubscriptionPositions},
    insight::event_feed::{EventFeed, FeedEvent, FeedSubscriber},
};
