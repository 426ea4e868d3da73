//! The delivery policy: the decision when an event is sent, retried, held back or given up.
//!
//! [`Subscription`] is the state machine of one event subscription. It combines two parts:
//! [`endpoint::Endpoint`] decides whether the endpoint may be called now, and [`lane`] with
//! [`retry_window`] decides which events are next. [`retry`] computes the time of the next attempt,
//! [`batch`] the contents of a request, [`filter`] whether an event matches. The constants of
//! Azure's documented and observed behaviour are data ([`edition`]). [`record`] defines what is
//! stored.
//!
//! Invariants:
//! - The crate is pure: no clock, no random numbers, no I/O, no threads. The time and a source of
//!   jitter are arguments; each decision is returned as a value.
//! - The same inputs in the same order give the same decisions. Tests and `gridhook simulate`
//!   therefore run weeks of deliveries in seconds of virtual time.
//!
//! What it does not do: it sends no requests, writes no records and keeps no events beyond a
//! bounded read-ahead. The actor in `gridhook_subscription` executes the returned writes and
//! effects.

#![warn(missing_docs)]

pub mod backup;
pub mod batch;
pub mod condition;
pub mod dead_letter_store;
pub mod delivery_history;
pub mod edition;
pub mod endpoint;
pub mod explain;
pub mod filter;
pub mod lane;
pub mod order;
pub mod outcome;
pub mod property;
pub mod record;
pub mod retry;
pub mod retry_window;
mod subscription;
mod token_bucket;
pub mod transform;
pub mod validation;

pub use subscription::{
    Blocked, CoreStep, DetachedEvents, Effect, Input, OutgoingBatch, PullSettings, SendItem,
    Subscription, SubscriptionSettings, SubscriptionWrite,
};
