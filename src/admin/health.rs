//! Liveness and readiness probes; no token is needed.
//!
//! `/healthz` only shows that the process responds: a server that reads its store, or whose disk is full, must not be
//! restarted.
//! `/readyz` shows whether events are accepted, and if not, why. Neither shows names or numbers of resources.

use std::{
    fmt,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use crate::api::health::Liveness;
pub use crate::api::health::{Readiness, StartPhase};
use crate::{
    journal,
    store::damage::{DamageSummary, LogGap},
};
use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web,
};

/// The state that both probes report.
pub struct ServerHealth {
    phase: AtomicU8,
    /// The state of the journal, through a function, so that health has no handle that can write. Unset until the store is
    /// open.
    journal: OnceLock<Box<dyn Fn() -> journal::JournalState + Send + Sync>>,
    damage: OnceLock<Box<dyn Fn() -> DamageSummary + Send + Sync>>,
    /// The number of shards of a standby, and what returns those of which it knows no owner.
    ownerless: OnceLock<(usize, OwnerlessShards)>,
    step: Mutex<StartStep>,
}

/// Returns the shards without an owner.
type OwnerlessShards = Box<dyn Fn() -> Vec<usize> + Send + Sync>;

/// The current step of a start.
pub struct StartStep {
    what: &'static str,
    progress: Box<dyn Fn() -> Option<StepProgress> + Send + Sync>,
}

/// Progress of a step, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// Bytes that are read.
    pub done: u64,
    /// Bytes to read.
    pub of: u64,
}

impl StartStep {
    /// A step without progress.
    pub fn new(what: &'static str) -> Self {
        Self::with(what, || None)
    }

    /// A step whose progress `progress` returns.
    pub fn with(what: &'static str, progress: impl Fn() -> Option<StepProgress> + Send + Sync + 'static) -> Self {
        Self { what, progress: Box::new(progress) }
    }
}

impl fmt::Display for StartStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match (self.progress)() {
            Some(StepProgress { done, of }) => write!(f, ", {done} of {of} bytes"),
            None => Ok(()),
        }
    }
}

impl ServerHealth {
    /// The health of a server that is still recovering; `journal` returns the state of its journal.
    pub fn new(journal: impl Fn() -> journal::JournalState + Send + Sync + 'static) -> Self {
        let health = Self::starting();
        health.attach(journal);
        health
    }

    /// The health of a server whose store is not open yet.
    pub fn starting() -> Self {
        let step = Mutex::new(StartStep::new("the start begins"));
        let (journal, damage, ownerless) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { phase: AtomicU8::new(0), journal, damage, ownerless, step }
    }

    /// Attaches the journal when the store is open.
    pub fn attach(&self, journal: impl Fn() -> journal::JournalState + Send + Sync + 'static) {
        // A second call would attach the same.
        self.journal.set(Box::new(journal)).ok();
    }

    /// Attaches the damage of the store when it is open.
    pub fn attach_damage(&self, damage: impl Fn() -> DamageSummary + Send + Sync + 'static) {
        // A second call would attach the same.
        self.damage.set(Box::new(damage)).ok();
    }

    /// The server forwards requests to the owners of so many shards: it accepts events as long as one of them has an owner.
    /// `ownerless` returns those without one.
    pub fn stand_by(&self, shards: usize, ownerless: impl Fn() -> Vec<usize> + Send + Sync + 'static) {
        // A second call would attach the same.
        self.ownerless.set((shards, Box::new(ownerless))).ok();
        self.enter(StartPhase::Standby);
    }

    /// Sets the current step of the start.
    pub fn at(&self, step: StartStep) {
        tracing::info!(step = step.what, "starting");
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// Enters `phase`. An earlier phase is ignored.
    pub fn enter(&self, phase: StartPhase) {
        let number = match phase {
            StartPhase::Recovering => 0,
            StartPhase::Standby => 1,
            StartPhase::Serving => 2,
            StartPhase::Stopping => 3,
        };
        self.phase.fetch_max(number, Ordering::Relaxed);
    }

    /// The present readiness.
    pub fn readiness(&self) -> Readiness {
        let phase = self.phase();
        let damage = self.damage.get().map(|damage| damage()).unwrap_or_default();
        let mut readiness = match self.journal.get() {
            Some(journal) => Readiness::of(phase, &journal(), &damage),
            None => Readiness {
                journal: "opening".to_owned(),
                ..Readiness::of(phase, &journal::JournalState::Writable, &damage)
            },
        };
        if phase == StartPhase::Standby {
            "following".clone_into(&mut readiness.journal);
            let (shards, ownerless) =
                self.ownerless.get().map(|(shards, ownerless)| (*shards, ownerless())).unwrap_or_default();
            readiness.ready &= ownerless.len() < shards;
            if shards > 1 && !ownerless.is_empty() {
                let ownerless: Vec<_> = ownerless.iter().map(ToString::to_string).collect();
                let what = format!("no node of the cluster owns these shards: {}", ownerless.join(", "));
                readiness.problems.push(format!("{what}; requests for them wait for one"));
            } else if ownerless.len() == shards {
                readiness.problems.push("no node of the cluster owns the store: requests wait for one".to_owned());
            }
        }
        if phase == StartPhase::Recovering
            && let Some(first) = readiness.problems.first_mut()
        {
            let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
            *first = format!("{first}: {step}");
        }
        readiness
    }

    fn liveness(&self) -> Liveness {
        if self.phase() != StartPhase::Recovering {
            return Liveness { status: "ok".to_owned(), step: None, done_bytes: None, total_bytes: None };
        }
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = (step.progress)();
        Liveness {
            status: "starting".to_owned(),
            step: Some(step.what.to_owned()),
            done_bytes: progress.map(|progress| progress.done),
            total_bytes: progress.map(|progress| progress.of),
        }
    }

    /// The present phase.
    pub fn phase(&self) -> StartPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => StartPhase::Recovering,
            1 => StartPhase::Standby,
            2 => StartPhase::Serving,
            _ => StartPhase::Stopping,
        }
    }
}

impl Readiness {
    /// The readiness that follows from phase, journal and damage.
    pub fn of(phase: StartPhase, journal: &journal::JournalState, damage: &DamageSummary) -> Self {
        let (journal, of_journal) = match journal {
            journal::JournalState::Writable => ("writable", None),
            journal::JournalState::Full => {
                ("full", Some("the disk of the data folder is full: publishes are refused until there is space"))
            }
            journal::JournalState::Closed => ("closed", Some("the journal is closed: nothing can be stored any more")),
        };
        let of_phase = match phase {
            StartPhase::Recovering => Some("the store is being read after the start"),
            StartPhase::Standby | StartPhase::Serving => None,
            StartPhase::Stopping => Some("the server is shutting down"),
        };
        let mut problems: Vec<_> = of_phase.into_iter().chain(of_journal).map(str::to_owned).collect();
        let ready = problems.is_empty();
        problems.extend(of_damage(damage));
        Self { ready, phase, journal: journal.to_owned(), lost_events: damage.events(), problems }
    }
}

/// Maximum number of listed gaps.
const GAPS_MAX: usize = 20;

/// The damage of the store, and what to do about it.
fn of_damage(damage: &DamageSummary) -> Vec<String> {
    let mut problems: Vec<String> = damage
        .gaps
        .iter()
        .take(GAPS_MAX)
        .map(|LogGap { partition, first, count }| {
            let last = first + count - 1;
            format!("lost to damage: {count} events, sequences {first} to {last} of partition {partition}")
        })
        .collect();
    if damage.gaps.len() > GAPS_MAX {
        problems.push(format!("lost to damage: {} more ranges of events", damage.gaps.len() - GAPS_MAX));
    }
    let families: Vec<_> = damage.families.iter().map(|family| family.name()).collect();
    if !families.is_empty() {
        problems.push(format!(
            "the store is damaged: a table of {} cannot be read in part; stop the server, and restore a backup or accept the \
             loss with gridhook restore --accept-loss",
            families.join(", ")
        ));
    }
    problems
}

/// `GET /healthz`.
pub(super) async fn healthz(health: web::Data<ServerHealth>) -> HttpResponse {
    HttpResponse::Ok().json(health.liveness())
}

/// `GET /readyz`.
pub(super) async fn readyz(health: web::Data<ServerHealth>) -> HttpResponse {
    let readiness = health.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    HttpResponse::build(status).json(readiness)
}

/// The response to all other requests while the server starts.
pub(super) async fn not_yet(health: web::Data<ServerHealth>) -> HttpResponse {
    let message = health.readiness().problems.join("; ");
    HttpResponse::ServiceUnavailable()
        .insert_header((header::RETRY_AFTER, "1"))
        .force_close()
        .json(serde_json::json!({"error": {"code": "ServerStarting", "message": message}}))
}
