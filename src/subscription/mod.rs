//! Owed: an actor for each subscription, a thin shell around the pure core.
//!
//! [`SubscriptionActor`] is one life of a subscription. What must outlive it lies in its [`Slot`]: the requests that are on
//! their way, the answers that came back for them, the event that was in hand. The actor reads the newest events from the
//! topic's [`Tail`], older ones from the journal, and what it decides it has decided by `policy`.

mod actor;
mod clients;
mod delivery;
pub mod disturb;
pub mod explain;
pub mod greeter;
mod plan;
pub mod record;
mod room;
mod slot;
mod tail;
pub mod tap;
pub mod trace;
mod traced;
pub mod version;

pub use self::{
    actor::{FirstAct, PutAside, SubscriptionActor, Wake, World},
    greeter::{Greeter, Ticket},
    plan::{Delivery, Plan},
    room::{Ask, Grant, LetGo, Member, ReadBudget},
    slot::{Measured, Obeyed, PHASE_NAMES, Quarantined, Received, Report, Slot, State, Waiting},
    tail::{Budget, Matched, Matches, Roster, Tail},
    tap::{Heard, Listener, Tap},
};
