//! What chaos needs of the wiring, and what an operator hears of a wall clock that was set.

use std::{sync::Arc, time::Duration};

use crate::{
    admin::Tools,
    clock::Clock,
    config::Config,
    journal::{fault::Faulty, store::Store},
};

/// How often it is asked whether the wall clock was set.
const LOOK: Duration = Duration::from_secs(1);

/// The store as the journal gets it: itself, or behind the faults of chaos, where the settings switch that on.
pub(super) fn store(config: &Config, store: Arc<dyn Store>, tools: &Tools) -> Arc<dyn Store> {
    if config.chaos.enabled { Arc::new(Faulty::new(store, tools.faults.clone())) } else { store }
}

/// Says so where the wall clock was set, by somebody or by chaos. Runs until the server ends.
pub(super) async fn tell_steps(clock: Clock) {
    loop {
        tokio::time::sleep(LOOK).await;
        // A step shows when the time is asked for.
        clock.now();
        if let Some(step) = clock.take_step() {
            tracing::warn!(wall = %step.wall, expected = %step.expected, "the wall clock was set; time follows it slowly");
        }
    }
}
