//! The crates that the tests of the policy need, by the names that the whole program has them
//! under.

pub use gridhook_clock as clock;
pub use gridhook_config as config;
pub use gridhook_deliver as deliver;
pub use gridhook_event as event;
pub use gridhook_journal as journal;
pub use gridhook_policy as policy;
pub use gridhook_repair as repair;
pub use gridhook_simulate as simulate;
pub use gridhook_storage as storage;
pub use gridhook_store as store;
