//! The engine: which topics and event subscriptions exist, and the actors that match and supervise.

pub mod control;
pub mod fanout;
pub mod insight;
pub mod supervision;
