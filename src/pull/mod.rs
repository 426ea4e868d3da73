//! Or fetched: clients come for the events of an event subscription, hold them under a lock, and say what they did.
//!
//! - [`http`] has the paths and the answers of receive, acknowledge, release, reject and renewLock.
//! - [`body`] reads what clients say and writes what they are told.
//! - [`Peer`] knows whether a client is still there, and was given its answer.
//! - [`LockTokenSealer`] makes and opens lock tokens.
//!
//! What a lock is, and when it is good, is decided by the subscription's core, as everything is; here are its HTTP clothes. A
//! client that waits is a place in its subscription's slot and a timer of its own.
//!
//! Absent on purpose: who may come. A namespace asks that of publishers and of consumers alike.

pub mod body;
pub mod http;
mod peer;
mod token;

pub use self::{peer::Peer, token::LockTokenSealer};
