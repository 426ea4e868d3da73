//! The tests of the policy, as a binary of their own (`Cargo.toml`).
#![expect(
    clippy::disallowed_methods,
    reason = "a test compares what large batches cost by the real clock"
)]

#[path = "mod.rs"]
mod policy;
#[path = "../spec/mod.rs"]
mod spec;
#[allow(dead_code, reason = "the tests of the whole program use the rest")]
mod support;
