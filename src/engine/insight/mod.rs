//! What operators ask about events: why one waits, what became of one, and a feed of current
//! events.
//!
//! Reads only: shared state of subscriptions, the journal, and the pure functions of
//! `policy::explain` and `policy::delivery_history`.

pub mod event_finder;
pub mod trace;
