//! Is it alive, and does it take events? For whoever restarts processes and whoever spreads load; no token is asked.
//!
//! `/healthz` says no more than that somebody answers: a server that reads its store, or waits for room on its disk, must not
//! be restarted.
//! `/readyz` says whether a publisher would be served, and if not, why. Neither tells names or numbers of what is kept.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    journal,
    store::damage::{DamageSummary, LogGap},
};

/// Where in its life the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartPhase {
    /// The store is being opened and read.
    Recovering,
    /// It takes events and delivers them.
    Serving,
    /// It finishes what is in flight.
    Stopping,
}

/// What the two answers are made of.
pub struct ServerHealth {
    phase: AtomicU8,
    /// Asked through a function: health needs one word of the journal and no handle that can write. Not there before the
    /// store is open.
    journal: OnceLock<Box<dyn Fn() -> journal::JournalState + Send + Sync>>,
    damage: OnceLock<Box<dyn Fn() -> DamageSummary + Send + Sync>>,
    step: Mutex<StartStep>,
}

/// What a start is doing, as it is told.
pub struct StartStep {
    what: &'static str,
    far: Box<dyn Fn() -> Option<StepProgress> + Send + Sync>,
}

/// How far it is with that, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// So much is done …
    pub done: u64,
    /// … of so much.
    pub of: u64,
}

impl StartStep {
    /// It does this.
    pub fn new(what: &'static str) -> Self {
        Self::with(what, || None)
    }

    /// It does this, and `far` tells how far it is.
    pub fn with(what: &'static str, far: impl Fn() -> Option<StepProgress> + Send + Sync + 'static) -> Self {
        Self { what, far: Box::new(far) }
    }
}

impl fmt::Display for StartStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match (self.far)() {
            Some(StepProgress { done, of }) => write!(f, ", {done} of {of} bytes"),
            None => Ok(()),
        }
    }
}

impl ServerHealth {
    /// Of a server that is still recovering; `journal` tells the state of its journal.
    pub fn new(journal: impl Fn() -> journal::JournalState + Send + Sync + 'static) -> Self {
        let vitals = Self::starting();
        vitals.attach(journal);
        vitals
    }

    /// Of a server whose store is not open yet.
    pub fn starting() -> Self {
        let step = Mutex::new(StartStep::new("the start begins"));
        Self { phase: AtomicU8::new(0), journal: OnceLock::new(), damage: OnceLock::new(), step }
    }

    /// The store is open: `journal` tells the state of its journal from now on.
    pub fn attach(&self, journal: impl Fn() -> journal::JournalState + Send + Sync + 'static) {
        // A second one would tell of the same.
        self.journal.set(Box::new(journal)).ok();
    }

    /// The store is open: `damage` tells what of it cannot be read.
    pub fn attach_damage(&self, damage: impl Fn() -> DamageSummary + Send + Sync + 'static) {
        // A second one would tell of the same.
        self.damage.set(Box::new(damage)).ok();
    }

    /// The start does this now.
    pub fn at(&self, step: StartStep) {
        tracing::info!(step = step.what, "starting");
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// The server is now in `phase`. It never goes back.
    pub fn enter(&self, phase: StartPhase) {
        let number = match phase {
            StartPhase::Recovering => 0,
            StartPhase::Serving => 1,
            StartPhase::Stopping => 2,
        };
        self.phase.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether events are taken now.
    pub fn readiness(&self) -> Readiness {
        let phase = self.phase();
        let damage = self.damage.get().map(|damage| damage()).unwrap_or_default();
        let mut readiness = match self.journal.get() {
            Some(journal) => Readiness::of(phase, &journal(), &damage),
            None => Readiness { journal: "opening", ..Readiness::of(phase, &journal::JournalState::Writable, &damage) },
        };
        if phase == StartPhase::Recovering
            && let Some(first) = readiness.problems.first_mut()
        {
            let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
            *first = format!("{first}: {step}").into();
        }
        readiness
    }

    fn alive(&self) -> Liveness {
        if self.phase() != StartPhase::Recovering {
            return Liveness { status: "ok", step: None, done_bytes: None, total_bytes: None };
        }
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let far = (step.far)();
        Liveness {
            status: "starting",
            step: Some(step.what),
            done_bytes: far.map(|far| far.done),
            total_bytes: far.map(|far| far.of),
        }
    }

    /// Where the server is.
    pub fn phase(&self) -> StartPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => StartPhase::Recovering,
            1 => StartPhase::Serving,
            _ => StartPhase::Stopping,
        }
    }
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether events are taken.
    pub ready: bool,
    /// Where in its life the server is.
    pub phase: StartPhase,
    /// The state of the journal in one word.
    pub journal: &'static str,
    /// Events that cannot be read because a table of the store is damaged. New events are taken all the same.
    #[serde(rename = "lostEvents")]
    pub lost_events: u64,
    /// Problems, in sentences
    pub problems: Vec<Cow<'static, str>>,
}

impl Readiness {
    /// What follows from the two.
    pub fn of(phase: StartPhase, journal: &journal::JournalState, damage: &DamageSummary) -> Self {
        let (journal, of_journal) = match journal {
            journal::JournalState::Writable => ("writable", None),
            journal::JournalState::Full => {
                ("full", Some("the disk of the data folder is full: publishers are refused until there is room"))
            }
            journal::JournalState::Closed => ("closed", Some("the journal is closed: nothing can be stored any more")),
        };
        let of_phase = match phase {
            StartPhase::Recovering => Some("the store is being read after the start"),
            StartPhase::Serving => None,
            StartPhase::Stopping => Some("the server is shutting down"),
        };
        let mut problems: Vec<_> = of_phase.into_iter().chain(of_journal).map(Cow::Borrowed).collect();
        let ready = problems.is_empty();
        problems.extend(of_damage(damage).into_iter().map(Cow::Owned));
        Self { ready, phase, journal, lost_events: damage.events(), problems }
    }
}

/// So many gaps are told one by one.
const GAPS_TOLD: usize = 20;

/// What of the store cannot be read, and what to do.
fn of_damage(damage: &DamageSummary) -> Vec<String> {
    let mut told: Vec<String> = damage
        .gaps
        .iter()
        .take(GAPS_TOLD)
        .map(|LogGap { partition, first, count }| {
            let last = first + count - 1;
            format!("lost to damage: {count} events, sequences {first} to {last} of partition {partition}")
        })
        .collect();
    if damage.gaps.len() > GAPS_TOLD {
        told.push(format!("lost to damage: {} more ranges of events", damage.gaps.len() - GAPS_TOLD));
    }
    let families: Vec<_> = damage.families.iter().map(|family| family.name()).collect();
    if !families.is_empty() {
        told.push(format!(
            "the store is damaged: a table of {} cannot be read in part; stop the server, and restore a backup or accept the \
             loss with gridhook restore --accept-loss",
            families.join(", ")
        ));
    }
    told
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Liveness {
    /// `starting` while the store is read, and `ok` from then on.
    status: &'static str,
    /// What the start is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'static str>,
    /// How many bytes it has done of that, where it can be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    done_bytes: Option<u64>,
    /// Of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
}

/// `GET /healthz`.
pub(super) async fn healthz(vitals: web::Data<ServerHealth>) -> HttpResponse {
    HttpResponse::Ok().json(vitals.alive())
}

/// `GET /readyz`.
pub(super) async fn readyz(vitals: web::Data<ServerHealth>) -> HttpResponse {
    let readiness = vitals.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    HttpResponse::build(status).json(readiness)
}

/// What everybody else is told while the server starts.
pub(super) async fn not_yet(vitals: web::Data<ServerHealth>) -> HttpResponse {
    let message = vitals.readiness().problems.join("; ");
    HttpResponse::ServiceUnavailable()
        .insert_header((header::RETRY_AFTER, "1"))
        .force_close()
        .json(serde_json::json!({"error": {"code": "ServerStarting", "message": message}}))
}
