//! Is it alive, and does it take events? For whoever restarts processes and whoever spreads load; no token is asked.
//!
//! `/healthz` says no more than that somebody answers: a server that waits for room on its disk must not be restarted.
//! `/readyz` says whether a publisher would be served, and if not, why. Neither tells names or numbers of what is kept.

use std::sync::atomic::{AtomicU8, Ordering};

use actix_web::{HttpResponse, http::StatusCode, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::journal;

/// Where in its life the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The store is being opened and read.
    Recovering,
    /// It takes events and delivers them.
    Serving,
    /// It finishes what is in flight.
    Stopping,
}

/// What the two answers are made of.
pub struct Vitals {
    phase: AtomicU8,
    // Asked through a function: health needs one word of the journal and no handle that can write.
    journal: Box<dyn Fn() -> journal::State + Send + Sync>,
}

impl Vitals {
    /// Of a server that is still recovering; `journal` tells the state of its journal.
    pub fn new(journal: impl Fn() -> journal::State + Send + Sync + 'static) -> Self {
        Self { phase: AtomicU8::new(0), journal: Box::new(journal) }
    }

    /// The server is now in `phase`. It never goes back.
    pub fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Recovering => 0,
            Phase::Serving => 1,
            Phase::Stopping => 2,
        };
        self.phase.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether events are taken now.
    pub fn readiness(&self) -> Readiness {
        Readiness::of(self.phase(), &(self.journal)())
    }

    /// Where the server is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Recovering,
            1 => Phase::Serving,
            _ => Phase::Stopping,
        }
    }
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether events are taken.
    pub ready: bool,
    /// Where in its life the server is.
    pub phase: Phase,
    /// The state of the journal in one word.
    pub journal: &'static str,
    /// What is wrong, in sentences.
    pub problems: Vec<&'static str>,
}

impl Readiness {
    /// What follows from the two.
    pub fn of(phase: Phase, journal: &journal::State) -> Self {
        let (journal, of_journal) = match journal {
            journal::State::Writable => ("writable", None),
            journal::State::Full => {
                ("full", Some("the disk of the data folder is full: publishers are refused until there is room"))
            }
            journal::State::Closed => ("closed", Some("the journal is closed: nothing can be stored any more")),
        };
        let of_phase = match phase {
            Phase::Recovering => Some("the store is being read after the start"),
            Phase::Serving => None,
            Phase::Stopping => Some("the server is shutting down"),
        };
        let problems: Vec<_> = of_phase.into_iter().chain(of_journal).collect();
        Self { ready: problems.is_empty(), phase, journal, problems }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Alive {
    status: &'static str,
}

/// `GET /healthz`.
pub(super) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Alive { status: "ok" })
}

/// `GET /readyz`.
pub(super) async fn readyz(vitals: web::Data<Vitals>) -> HttpResponse {
    let readiness = vitals.readiness();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    HttpResponse::build(status).json(readiness)
}
