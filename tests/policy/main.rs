//! The tests of the policy, as a binary of their own (`Cargo.toml`).

#[path = "mod.rs"]
mod policy;
#[path = "../spec/mod.rs"]
mod spec;
#[allow(dead_code, reason = "the tests of the whole program use the rest")]
mod support;
