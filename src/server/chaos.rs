//! What chaos needs of the wiring.

use std::sync::Arc;

use crate::{
    admin::Tools,
    config::Config,
    journal::{fault::Faulty, store::Store},
};

/// The store as the journal gets it: itself, or behind the faults of chaos, where the settings switch that on.
pub(super) fn store(config: &Config, store: Arc<dyn Store>, tools: &Tools) -> Arc<dyn Store> {
    if config.chaos.enabled { Arc::new(Faulty::new(store, tools.faults.clone())) } else { store }
}
