//! Pull delivery: clients receive events of an event subscription under a lock, and settle them.
//!
//! - [`http`] has the routes of receive, acknowledge, release, reject and renewLock.
//! - [`body`] parses requests and builds responses.
//! - [`Peer`] tracks whether a client is connected and received its response.
//! - [`LockTokenSealer`] creates and verifies lock tokens.
//! - [`parts`] is pull delivery from a spread topic. [`node`] receives for another node from those
//!   parts that this process serves.
//!
//! The subscription's core decides about locks; this module translates to HTTP. A waiting client
//! costs an entry in the subscription's shared state and a timer.
//!
//! Not here: authentication. A namespace authenticates publishers and consumers in the same way
//! (`publish::auth`).

pub mod body;
pub mod http;
pub mod node;
pub mod parts;
mod peer;
mod poll;
mod polls;
mod token;

pub use self::{
    peer::Peer,
    polls::{NodePolls, OpenPoll},
    token::LockTokenSealer,
};
