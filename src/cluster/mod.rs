//! Sharing shards among the nodes of a cluster: who is alive (`lease`), and which shard a node takes or gives up
//! (`balance`).
//!
//! Both are pure: what a node has read and the time are arguments. Nothing here reads a store or a clock, and no server
//! uses it yet.
//!
//! These rules decide who *should* own a shard. That no two nodes ever write to one is the fence of its changelog
//! (`journal::changelog`), whatever is decided here.

pub mod balance;
pub mod lease;
