//! What is decided, and nothing else: when an event is sent, held back or given up.
//!
//! Pure: no clock, no chance, no I/O, no actor. Time and chance are arguments; what is to be done comes out as values.
//! [`Subscription`] is the machine; it has two halves, [`endpoint::Endpoint`] (may anything be sent?) and the work
//! ([`lane`], [`retry_window`]: what is there to send?), and asks [`retry`] and [`batch`] the two questions that are tables. Its
//! tables are data ([`edition`]); its words on disk are [`record`].

pub mod batch;
pub mod dead_letter_store;
pub mod delivery_history;
pub mod edition;
pub mod endpoint;
pub mod explain;
pub mod filter;
pub mod lane;
pub mod outcome;
pub mod property;
pub mod record;
pub mod retry;
pub mod retry_window;
pub mod runs;
mod subscription;
pub mod validation;

pub use subscription::{
    CoreStep, Effect, Input, OutgoingBatch, PullSettings, SendItem, Subscription, SubscriptionSettings,
    SubscriptionWrite,
};
