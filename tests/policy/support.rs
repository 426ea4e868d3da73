//! The common helpers that tests of the policy use.

#[path = "../support/chunks.rs"]
pub(crate) mod chunks;
#[path = "../support/events.rs"]
pub(crate) mod events;
#[path = "../support/memory_store.rs"]
pub(crate) mod memory_store;
#[path = "../support/needs.rs"]
pub(crate) mod needs;
#[path = "../support/trims.rs"]
pub(crate) mod trims;
