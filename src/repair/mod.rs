//! Stores that no server is writing: check them, mend them, copy them, and take what is left of a damaged one.

pub mod backup;
pub mod fsck;
pub mod salvage;
