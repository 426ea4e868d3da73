//! Checks, repairs, copies and salvages stores that no server writes.
//!
//! - `fsck` checks every rule of the records and repairs what can be repaired without loss.
//! - `backup` copies a store, also that of a running server, and restores a copy.
//! - `seed` reads the store of a node whose cluster is lost, for a new one to go on with it.
//! - `salvage` makes a consistent store of a damaged one and reports what is lost (`gridhook
//!   restore --accept-loss`).
//!
//! Invariants: a check only reads; a backup or a restored store appears whole or not at all; a
//! damaged folder is never written.
//!
//! Not here: migrating formats (`store::migrate`) and detecting damage while a server runs
//! (`journal`, `store::damage`).

pub mod backup;
pub mod fsck;
pub mod salvage;
pub mod seed;
