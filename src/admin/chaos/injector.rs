//! What chaos has switched on, until when, and how often it did what.
//!
//! Invariants: everything that goes on has a number and an end; the end comes when its time is over, when somebody asks for
//! it, or when the server stops, whichever is first, and only once. Of what the whole server has one of (its journal, its
//! clock) the newer takes the place of the older.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;
use utoipa::ToSchema;

use crate::{
    admin::AdminError,
    chaos::{Inject, Pause},
    clock::Skew,
    control::registry::{self, FaultInjection, Registry},
    event::Timestamp,
    store::faults::StoreFaults,
    supervision::SupervisionHistory,
};

/// So many faults are on at once, at the most: more than people, or a schedule, keep in mind.
const ON_MAX: usize = 64;

/// What chaos reaches of the server beside its topics.
#[derive(Default)]
pub struct ChaosTargets {
    /// The journal's writes.
    pub faults: StoreFaults,
    /// The wall clock.
    pub skew: Skew,
    /// The answers of endpoints.
    pub response_faults: Arc<FaultInjection>,
    /// The actors that write dead letters, one for each store.
    pub dead_letters: Vec<DeadLetterHandle>,
}

/// The dead-letter actor of a store, as it is supervised and as it is reached.
pub struct DeadLetterHandle {
    /// The name of the store.
    pub store: String,
    /// Its lives.
    pub history: Arc<SupervisionHistory>,
    /// Sends it word; false where it does not live.
    pub inject: Box<dyn Fn(Inject) -> bool + Send + Sync>,
}

/// What goes on until it is ended.
pub(super) enum Fault {
    /// An actor does nothing; when this is dropped it goes on.
    Stall(watch::Sender<()>),
    /// The journal's writes wait.
    StallJournal,
    /// The journal's writes fail.
    FailWrites,
    /// Responses are disturbed.
    Responses,
    /// The wall clock is told wrong.
    Clock,
    /// An event kills.
    Poison { topic: String, subscription: String },
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

    /// Whether the server has only one of it.
    fn is_single(&self) -> bool {
        match self {
            Self::StallJournal | Self::FailWrites | Self::Clock => true,
            Self::Stall(_) | Self::Responses | Self::Poison { .. } => false,
        }
    }
}

/// An active fault.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosFault)]
pub struct ActiveFaults {
    number: u64,
    fault: &'static str,
    /// The fault as it was requested
    #[schema(value_type = Object)]
    request: Value,
    since: String,
    until: String,
}

impl ActiveFaults {
    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// Counts of what faults did since the server started.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ChaosCounters)]
pub struct InjectionCounters {
    pub(super) subscriptions_killed: u64,
    pub(super) topics_killed: u64,
    pub(super) dead_letters_killed: u64,
    pub(super) deliveries_killed: u64,
    pub(super) events_poisoned: u64,
    pub(super) actors_stalled: u64,
    pub(super) journal_stalls: u64,
    pub(super) clock_steps: u64,
    writes_stalled: u64,
    writes_failed: u64,
    responses_dropped: ResponseCount,
    responses_delayed: ResponseCount,
    responses_corrupted: ResponseCount,
}

/// Responses, and the events of their requests.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[schema(as = ChaosCount)]
struct ResponseCount {
    responses: u64,
    events: u64,
}

impl From<registry::FaultCount> for ResponseCount {
    fn from(registry::FaultCount { answers, events }: registry::FaultCount) -> Self {
        Self { responses: answers, events }
    }
}

/// `GET /chaos`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Chaos)]
pub struct ChaosReport {
    active: Vec<ActiveFaults>,
    injected: InjectionCounters,
}

/// The desk that chaos is ordered at.
pub struct FaultInjector {
    pub(in crate::admin) targets: ChaosTargets,
    state: Mutex<InjectorState>,
}

#[derive(Default)]
struct InjectorState {
    last: u64,
    on: BTreeMap<u64, (ActiveFaults, Fault)>,
    acts: InjectionCounters,
}

impl FaultInjector {
    pub(in crate::admin) fn new(targets: ChaosTargets) -> Self {
        Self { targets, state: Mutex::default() }
    }

    /// Counts an act.
    pub(super) fn count(&self, act: impl FnOnce(&mut InjectionCounters) -> &mut u64) {
        *act(&mut self.state().acts) += 1;
    }

    /// Lets something go on, which `switch` switches on, under its number. What it takes the place of ends.
    pub(super) fn start(
        &self,
        registry: &Registry,
        fault: Fault,
        what: Value,
        until: (Timestamp, Duration),
        switch: impl FnOnce(u64, &ChaosTargets),
    ) -> Result<ActiveFaults, AdminError> {
        let older = |state: &InjectorState| {
            let same = |(_, (_, on)): &(&u64, &(ActiveFaults, Fault))| fault.is_single() && on.name() == fault.name();
            state.on.iter().find(same).map(|(number, _)| *number)
        };
        let older = older(&self.state());
        if let Some(number) = older {
            self.end(registry, number);
        }
        let mut state = self.state();
        if state.on.len() >= ON_MAX {
            return Err(AdminError::Conflict(format!("{ON_MAX} faults are on already; DELETE /chaos ends them.")));
        }
        state.last += 1;
        let number = state.last;
        let (now, most) = until;
        let (since, until) = (now.to_string(), now.after(most).to_string());
        let on = ActiveFaults { number, fault: fault.name(), request: what, since, until };
        state.on.insert(number, (on.clone(), fault));
        // Under the lock, so that nobody ends it before it has begun.
        switch(number, &self.targets);
        Ok(on)
    }

    /// Ends what has this number, if it is on still.
    pub(super) fn end(&self, registry: &Registry, number: u64) {
        // Under the lock, so that the end of the old does not come after the beginning of the new.
        let mut state = self.state();
        let Some((on, fault)) = state.on.remove(&number) else { return };
        match fault {
            Fault::Stall(stalled) => drop(stalled),
            Fault::StallJournal => self.targets.faults.stall(false),
            Fault::FailWrites => self.targets.faults.fail(0),
            Fault::Responses => self.targets.response_faults.end(number),
            Fault::Clock => self.targets.skew.ahead(Duration::ZERO),
            Fault::Poison { topic, subscription } => registry.clear_faults(&topic, &subscription),
        }
        warn!(number, fault = on.fault, "chaos: a fault ends");
    }

    /// Ends everything.
    pub(in crate::admin) fn end_all(&self, registry: &Registry) {
        let numbers: Vec<u64> = self.state().on.keys().copied().collect();
        for number in numbers {
            self.end(registry, number);
        }
    }

    /// What is on, and what was done.
    pub(super) fn report(&self) -> ChaosReport {
        let ChaosTargets { faults, response_faults: disturbance, .. } = &self.targets;
        let registry::FaultCounts { dropped, delayed, corrupted } = disturbance.counts();
        let state = self.state();
        // Those are on until all of them have failed.
        let is_on = |fault: &Fault| !matches!(fault, Fault::FailWrites) || faults.failing() > 0;
        let on = state.on.values().filter(|(_, fault)| is_on(fault)).map(|(on, _)| on.clone()).collect();
        let acts = InjectionCounters {
            writes_stalled: faults.stalled(),
            writes_failed: faults.failed(),
            responses_dropped: dropped.into(),
            responses_delayed: delayed.into(),
            responses_corrupted: corrupted.into(),
            ..state.acts
        };
        ChaosReport { active: on, injected: acts }
    }

    fn state(&self) -> MutexGuard<'_, InjectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What lets an actor do nothing, and the pause that ends with it, or after `most`.
pub(super) fn pause(most: Duration) -> (watch::Sender<()>, Pause) {
    let (stalled, mut over) = watch::channel(());
    let pause = async move {
        // Over when its time is, or when nobody holds the other end any more.
        tokio::time::timeout(most, over.changed()).await.ok();
    };
    (stalled, Box::pin(pause))
}
