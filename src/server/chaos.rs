//! What chaos needs of the wiring.

use std::sync::Arc;

use crate::{
    admin::ChaosTargets,
    config::Config,
    store::{Store, faults::FaultyStore},
};

/// The store as the journal gets it: itself, or behind the faults of chaos, where the settings switch that on.
pub(super) fn store(config: &Config, store: Arc<dyn Store>, tools: &ChaosTargets) -> Arc<dyn Store> {
    if config.chaos.enabled { Arc::new(FaultyStore::new(store, tools.faults.clone())) } else { store }
}
