//! Fault injection below the journal.

use std::sync::Arc;

use gridhook_admin::ChaosTargets;
use gridhook_config::Config;
use gridhook_store::{Store, faults::FaultyStore};

/// Wraps the store in [`FaultyStore`] where `chaos.enabled` is set.
pub(super) fn wrap_store(
    config: &Config,
    store: Arc<dyn Store>,
    targets: &ChaosTargets,
) -> Arc<dyn Store> {
    if config.chaos.enabled {
        Arc::new(FaultyStore::new(store, targets.faults.clone()))
    } else {
        store
    }
}
