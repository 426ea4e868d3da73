//! The active faults, and counters of injected ones.
//!
//! Invariants: every fault has a number and ends exactly once: after its duration, by `DELETE
//! /chaos`, or when the server stops. A new fault of the journal or of the clock replaces the
//! active one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use crate::{AdminError, AdminResult};
use gridhook_api::chaos::{ActiveFault, ChaosReport, InjectionCounters, ResponseCount};
use gridhook_chaos::{
    Inject, Pause,
    response_faults::{FaultCount, FaultCounts, FaultInjection},
};
use gridhook_clock::Skew;
use gridhook_engine::{control::registry::Registry, supervision::SupervisionHistory};
use gridhook_event::Timestamp;
use gridhook_store::faults::StoreFaults;

/// Maximum number of active faults.
const ACTIVE_MAX: usize = 64;

/// Targets of fault injection other than topics.
#[derive(Default)]
pub struct ChaosTargets {
    /// Faults of the journal's writes.
    pub faults: StoreFaults,
    /// The shift of the wall clock.
    pub skew: Skew,
    /// Faults of the responses of endpoints.
    pub response_faults: Arc<FaultInjection>,
    /// The actors that write dead letters, one for each store.
    pub dead_letters: Vec<DeadLetterHandle>,
}

/// The dead-letter actor of a store.
pub struct DeadLetterHandle {
    /// The name of the store.
    pub store: String,
    pub history: Arc<SupervisionHistory>,
    /// Injects a fault; false if the actor does not run.
    pub inject: Box<dyn Fn(Inject) -> bool + Send + Sync>,
}

/// A fault that lasts until it is ended.
pub(super) enum Fault {
    /// An actor is stalled until the sender is dropped.
    Stall(watch::Sender<()>),
    StallJournal,
    FailWrites,
    /// Responses are dropped, delayed or corrupted.
    Responses,
    /// The wall clock is stepped.
    Clock,
    /// An event ends each actor that processes it.
    Poison {
        topic: String,
        subscription: String,
    },
}

impl Fault {
    fn name(&self) -> &'static str {
        match self {
            Self::Stall(_) => "stall",
            Self::StallJournal => "stallJournal",
            Self::FailWrites => "failWrites",
            Self::Responses => "responses",
            Self::Clock => "clock",
            Self::Poison { .. } => "poison",
        }
    }

    /// Whether only one such fault can be active.
    fn is_single(&self) -> bool {
        match self {
            Self::StallJournal | Self::FailWrites | Self::Clock => true,
            Self::Stall(_) | Self::Responses | Self::Poison { .. } => false,
        }
    }
}

fn response_count(FaultCount { answers, events }: FaultCount) -> ResponseCount {
    ResponseCount {
        responses: answers,
        events,
    }
}

pub struct FaultInjector {
    pub(crate) targets: ChaosTargets,
    state: Mutex<InjectorState>,
}

#[derive(Default)]
struct InjectorState {
    last: u64,
    active: BTreeMap<u64, (ActiveFault, Fault)>,
    injected: InjectionCounters,
}

impl InjectorState {
    /// The number of the active fault that a new one replaces.
    fn number_to_replace(&self, fault: &Fault) -> Option<u64> {
        let mut active = self.active.iter();
        let (number, _) =
            active.find(|(_, (_, other))| fault.is_single() && other.name() == fault.name())?;
        Some(*number)
    }
}

impl FaultInjector {
    pub(crate) fn new(targets: ChaosTargets) -> Self {
        Self {
            targets,
            state: Mutex::default(),
        }
    }

    pub(super) fn count_fault(&self, counter: impl FnOnce(&mut InjectionCounters) -> &mut u64) {
        *counter(&mut self.state.lock().injected) += 1;
    }

    /// Starts a fault that lasts for `duration` from `now`, with `switch`, which receives its
    /// number. Ends the one that it replaces. Nothing else is changed if the limit is reached or
    /// `switch` fails.
    pub(super) fn start(
        &self,
        registry: &Registry,
        fault: Fault,
        what: Value,
        now: Timestamp,
        duration: Duration,
        switch: impl FnOnce(u64, &ChaosTargets) -> AdminResult<()>,
    ) -> AdminResult<ActiveFault> {
        let replaced = self.state.lock().number_to_replace(&fault);
        if let Some(number) = replaced {
            self.end_fault(registry, number);
        }
        let mut state = self.state.lock();
        if state.active.len() >= ACTIVE_MAX {
            return Err(AdminError::Conflict(format!(
                "{ACTIVE_MAX} faults are active; DELETE /chaos ends them."
            )));
        }
        state.last += 1;
        let number = state.last;
        let since = now.to_string();
        let until = now.after(duration).to_string();
        let active = ActiveFault {
            number,
            fault: fault.name().to_owned(),
            request: what,
            since,
            until,
        };
        // Under the lock, so that it cannot end before it starts. Behind the limit, so that a
        // refused fault changes nothing.
        switch(number, &self.targets)?;
        state.active.insert(number, (active.clone(), fault));
        Ok(active)
    }

    /// Ends the fault with this number, if it is active.
    pub(super) fn end_fault(&self, registry: &Registry, number: u64) {
        // Under the lock, so that an old fault does not end after its replacement starts.
        let mut state = self.state.lock();
        let Some((active, fault)) = state.active.remove(&number) else {
            return;
        };
        match fault {
            Fault::Stall(stalled) => drop(stalled),
            Fault::StallJournal => self.targets.faults.set_stalled(false),
            Fault::FailWrites => self.targets.faults.fail_writes(0),
            Fault::Responses => self.targets.response_faults.end_rule(number),
            Fault::Clock => self.targets.skew.set_ahead(Duration::ZERO),
            Fault::Poison {
                topic,
                subscription,
            } => registry.clear_faults(&topic, &subscription),
        }
        warn!(number, fault = active.fault.as_str(), "chaos: fault ended");
    }

    pub(crate) fn end_all(&self, registry: &Registry) {
        let numbers: Vec<u64> = self.state.lock().active.keys().copied().collect();
        for number in numbers {
            self.end_fault(registry, number);
        }
    }

    /// The active faults and the counters.
    pub(super) fn active_report(&self) -> ChaosReport {
        let ChaosTargets {
            faults,
            response_faults,
            ..
        } = &self.targets;
        let FaultCounts {
            dropped,
            delayed,
            corrupted,
        } = response_faults.fault_counts();
        let state = self.state.lock();
        // Failing writes are active until all of them have failed.
        let is_active =
            |fault: &Fault| !matches!(fault, Fault::FailWrites) || faults.remaining_failures() > 0;
        let active = state
            .active
            .values()
            .filter(|(_, fault)| is_active(fault))
            .map(|(active, _)| active.clone())
            .collect();
        let counters = InjectionCounters {
            writes_stalled: faults.stalled_writes(),
            writes_failed: faults.failed_writes(),
            responses_dropped: response_count(dropped),
            responses_delayed: response_count(delayed),
            responses_corrupted: response_count(corrupted),
            ..state.injected
        };
        ChaosReport {
            active,
            injected: counters,
        }
    }
}

/// A pause of an actor that ends when the sender is dropped, or after `limit`.
pub(super) fn pause_actor(limit: Duration) -> (watch::Sender<()>, Pause) {
    let (stalled, mut over) = watch::channel(());
    let pause = async move {
        // `changed` returns when the sender is dropped.
        tokio::time::timeout(limit, over.changed()).await.ok();
    };
    (stalled, Box::pin(pause))
}
