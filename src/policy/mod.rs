//! What is decided, and nothing else: when an event is sent, held back or given up.
//!
//! Pure: no clock, no chance, no I/O, no actor. Time and chance are arguments; what is to be done comes out as values.
//! [`Subscription`] is the machine; it has two halves, [`endpoint::Endpoint`] (may anything be sent?) and the work
//! ([`lane`], [`due`]: what is there to send?), and asks [`retry`] and [`batch`] the two questions that are tables. Its
//! tables are data ([`edition`]); its words on disk are [`record`].

pub mod batch;
pub mod due;
pub mod edition;
pub mod endpoint;
pub mod explain;
pub mod filter;
pub mod lane;
pub mod outcome;
pub mod place;
pub mod property;
pub mod record;
pub mod retry;
pub mod runs;
pub mod story;
mod subscription;
pub mod validation;

pub use subscription::{Effect, Flight, Input, Item, Pull, Settings, Step, Subscription, Write};
