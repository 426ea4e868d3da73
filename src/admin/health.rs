//! Liveness and readiness probes; no token is needed.
//!
//! `/healthz` only shows that the process responds: a server that reads its store, or whose disk is
//! full, must not be restarted. `/readyz` shows whether events are accepted, and if not, why.
//! Neither shows names or numbers of resources.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web,
};
use gridhook_api::health::Liveness;
pub use gridhook_api::health::{Readiness, ShardReadiness, ShardState, StartPhase};
use gridhook_cluster::control_of;
use gridhook_journal as journal;
use gridhook_store::damage::{DamageSummary, LogGap};

/// The state that both probes report.
pub struct ServerHealth {
    phase: AtomicU8,
    /// The state of the journal, through a function, so that health has no handle that can write.
    /// Unset until the store is open.
    journal: OnceLock<Box<dyn Fn() -> journal::JournalState + Send + Sync>>,
    damage: OnceLock<Box<dyn Fn() -> DamageSummary + Send + Sync>>,
    /// The roles of this node of a cluster, by the number of the shard.
    shards: OnceLock<Box<dyn Fn() -> Vec<NodeShard> + Send + Sync>>,
    /// The stream that the journal appends to first. It is full before the data folder is.
    stream: OnceLock<String>,
    step: Mutex<StartStep>,
}

/// The role of this node of a cluster for one shard.
#[derive(Clone, Debug)]
pub struct NodeShard {
    pub state: ShardState,
    /// Whether a living node owns the shard.
    pub has_owner: bool,
    /// The readiness of this node's core, if it serves.
    pub core: Option<Readiness>,
    /// Why the node cannot serve the shard before an operator has acted.
    pub failure: Option<String>,
    /// Whether the node has not reached NATS for so long that other nodes may own what it owned.
    pub is_cut_off: bool,
}

/// The problem of a node that is cut off from NATS.
const CUT_OFF: &str = "this node cannot reach the NATS servers: it owns nothing, and its copies may \
    be old";

/// The health of the core of a shard: that of its current run. Clones share it.
#[derive(Clone, Default)]
pub struct CoreHealth(Arc<Mutex<Option<web::Data<ServerHealth>>>>);

impl CoreHealth {
    pub fn begin_run(&self, health: web::Data<ServerHealth>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    pub fn is_serving(&self) -> bool {
        let health = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        health
            .as_ref()
            .is_some_and(|health| health.phase() == StartPhase::Serving)
    }

    /// The readiness of a core that serves.
    pub fn readiness_of_serving(&self) -> Option<Readiness> {
        let health = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        (health.phase() == StartPhase::Serving).then(|| health.readiness())
    }
}

pub struct StartStep {
    what: &'static str,
    progress: Box<dyn Fn() -> Option<StepProgress> + Send + Sync>,
}

/// Progress of a step, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Total number of bytes to read.
    pub of: u64,
}

impl StartStep {
    /// A step that reports no progress.
    pub fn new(what: &'static str) -> Self {
        Self::with_progress(what, || None)
    }

    /// A step whose progress `progress` returns.
    pub fn with_progress(
        what: &'static str,
        progress: impl Fn() -> Option<StepProgress> + Send + Sync + 'static,
    ) -> Self {
        Self {
            what,
            progress: Box::new(progress),
        }
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
        health.attach_journal(journal);
        health
    }

    /// The health of a server whose store is not open yet.
    pub fn starting() -> Self {
        let step = Mutex::new(StartStep::new("the start begins"));
        let journal = OnceLock::new();
        let damage = OnceLock::new();
        let shards = OnceLock::new();
        let stream = OnceLock::new();
        Self {
            phase: AtomicU8::new(0),
            journal,
            damage,
            shards,
            stream,
            step,
        }
    }

    /// Attaches the journal when the store is open.
    pub fn attach_journal(
        &self,
        journal: impl Fn() -> journal::JournalState + Send + Sync + 'static,
    ) {
        // A second call would attach the same.
        self.journal.set(Box::new(journal)).ok();
    }

    /// Attaches the damage of the store when it is open.
    pub fn attach_damage(&self, damage: impl Fn() -> DamageSummary + Send + Sync + 'static) {
        // A second call would attach the same.
        self.damage.set(Box::new(damage)).ok();
    }

    /// The journal appends to the stream of this name first.
    pub fn attach_stream(&self, stream: String) {
        // A second call would attach the same.
        self.stream.set(stream).ok();
    }

    /// The server is a node of a cluster, and forwards requests to owners. `shards` returns what it
    /// is for each shard.
    pub fn stand_by(&self, shards: impl Fn() -> Vec<NodeShard> + Send + Sync + 'static) {
        // A second call would attach the same.
        self.shards.set(Box::new(shards)).ok();
        self.enter_phase(StartPhase::Standby);
    }

    /// Sets the current step of the start.
    pub fn set_step(&self, step: StartStep) {
        tracing::info!(step = step.what, "starting");
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// Enters `phase`. An earlier phase is ignored.
    pub fn enter_phase(&self, phase: StartPhase) {
        let number = match phase {
            StartPhase::Recovering => 0,
            StartPhase::Standby => 1,
            StartPhase::Serving => 2,
            StartPhase::Stopping => 3,
        };
        self.phase.fetch_max(number, Ordering::Relaxed);
    }

    pub fn readiness(&self) -> Readiness {
        let phase = self.phase();
        let damage = self.damage.get().map(|damage| damage()).unwrap_or_default();
        let stream = self.stream.get().map(String::as_str);
        let mut readiness = match self.journal.get() {
            Some(journal) => readiness(phase, &journal(), stream, &damage),
            None => Readiness {
                journal: "opening".to_owned(),
                ..readiness(phase, &journal::JournalState::Writable, stream, &damage)
            },
        };
        if phase == StartPhase::Serving
            && let Some(shards) = self.shards.get()
            && shards().iter().any(|shard| shard.is_cut_off)
        {
            readiness.ready = false;
            readiness.problems.insert(0, CUT_OFF.to_owned());
        }
        if phase == StartPhase::Standby {
            return node_readiness(self.shards.get().map(|shards| shards()).unwrap_or_default());
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
            return Liveness {
                status: "ok".to_owned(),
                step: None,
                done_bytes: None,
                total_bytes: None,
            };
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

    pub fn phase(&self) -> StartPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => StartPhase::Recovering,
            1 => StartPhase::Standby,
            2 => StartPhase::Serving,
            _ => StartPhase::Stopping,
        }
    }
}

/// The readiness that follows from phase, journal and damage. `stream` is the one that the journal
/// appends to first, in a cluster.
pub fn readiness(
    phase: StartPhase,
    journal: &journal::JournalState,
    stream: Option<&str>,
    damage: &DamageSummary,
) -> Readiness {
    let (journal, of_journal) = match journal {
        journal::JournalState::Writable => ("writable", None),
        journal::JournalState::Full => (
            "full",
            Some(match stream {
                None => {
                    "the disk of the data folder is full: publishes are refused until there is \
                    space"
                        .to_owned()
                }
                Some(stream) => format!(
                    "the stream {stream} in NATS is full: publishes are refused until the nodes \
                     that are down were started, or forgotten (gridhook help cluster)"
                ),
            }),
        ),
        journal::JournalState::Closed => (
            "closed",
            Some("the journal is closed: nothing can be stored any more".to_owned()),
        ),
    };
    let of_phase = match phase {
        StartPhase::Recovering => Some("the store is being read after the start"),
        StartPhase::Standby | StartPhase::Serving => None,
        StartPhase::Stopping => Some("the server is shutting down"),
    };
    let of_phase = of_phase.map(str::to_owned);
    let mut problems: Vec<String> = of_phase.into_iter().chain(of_journal).collect();
    let ready = problems.is_empty();
    problems.extend(damage_messages(damage));
    let lost_events = damage.lost_events();
    Readiness {
        ready,
        phase,
        journal: journal.to_owned(),
        lost_events,
        problems,
        shards: Vec::new(),
        control_plane: None,
    }
}

fn shard_name(number: usize, is_control: bool) -> String {
    if is_control {
        "control".to_owned()
    } else {
        number.to_string()
    }
}

fn describe_shard(number: usize, is_control: bool) -> String {
    if is_control {
        "the control plane".to_owned()
    } else {
        format!("shard {number}")
    }
}

/// The readiness of a node of a cluster that has joined.
///
/// It is ready while it can serve or forward a request about any shard. One that is cut off from
/// NATS is not, nor one that owns all shards and can store nothing in any. Nor is one that still has
/// to catch up, or has failed, and serves nothing: the others serve its clients, and a rolling
/// upgrade waits for it.
pub(crate) fn node_readiness(shards: Vec<NodeShard>) -> Readiness {
    let control = control_of(shards.len());
    let is_control = |number: usize| control == Some(number);
    let name = |number| shard_name(number, is_control(number));
    let describe = |number| describe_shard(number, is_control(number));
    let numbers = |of: &[NodeShard], is_one: fn(&NodeShard) -> bool| {
        let numbers = of.iter().enumerate().filter(|(_, shard)| is_one(shard));
        numbers.map(|(number, _)| name(number)).collect::<Vec<_>>()
    };
    let topic_shards = &shards[..control.unwrap_or(shards.len())];
    let is_serving = topic_shards.iter().any(|shard| shard.core.is_some());
    let has_owner = topic_shards.iter().any(|shard| shard.has_owner);
    let ownerless = numbers(topic_shards, |shard| !shard.has_owner);
    let is_unruled = control.is_some_and(|control| !shards[control].has_owner);
    let fetched = numbers(&shards, |shard| shard.state == ShardState::Fetching);
    let missed = numbers(&shards, |shard| shard.state == ShardState::CatchingUp);
    let failed = shards.iter().any(|shard| shard.failure.is_some());
    let is_cut_off = shards.iter().any(|shard| shard.is_cut_off);
    let is_full = |shard: &NodeShard| shard.core.as_ref().is_some_and(|core| !core.ready);
    let takes_none = topic_shards.iter().all(is_full);
    let has_all = fetched.is_empty() && missed.is_empty() && !failed;
    let mut problems = Vec::new();
    if is_cut_off {
        problems.push(CUT_OFF.to_owned());
    }
    for (number, shard) in shards.iter().enumerate() {
        if let Some(cause) = &shard.failure {
            let name = describe(number);
            problems.push(format!("this node cannot serve {name}: {cause}"));
        }
    }
    for (numbers, of_several, of_one) in [
        (
            &ownerless,
            "requests wait, because no node of the cluster owns these shards",
            "requests wait, because no node of the cluster owns the store",
        ),
        (
            &fetched,
            "this node fetches copies of these shards from their owners",
            "this node fetches a copy of the store from the owner",
        ),
        (
            &missed,
            "this node catches up with these shards",
            "this node catches up with the changelog",
        ),
    ] {
        match (numbers.is_empty(), shards.len()) {
            (true, _) => {}
            (false, 1) => problems.push(of_one.to_owned()),
            (false, _) => problems.push(format!("{of_several}: {}", numbers.join(", "))),
        }
    }
    if is_unruled {
        problems
            .push("changes wait, because no node of the cluster owns the control plane".to_owned());
    }
    let cores = shards
        .iter()
        .enumerate()
        .filter_map(|(number, shard)| Some((number, shard.core.as_ref()?)));
    problems.extend(cores.clone().flat_map(|(shard, core)| {
        core.problems
            .iter()
            .map(move |one| format!("{}: {one}", describe(shard)))
    }));
    let journals: Vec<&str> = cores.clone().map(|(_, core)| &*core.journal).collect();
    let journal = journals
        .iter()
        .find(|journal| **journal != "writable")
        .or(journals.first());
    Readiness {
        ready: has_owner && (has_all || is_serving) && !is_cut_off && !takes_none,
        phase: if is_serving {
            StartPhase::Serving
        } else {
            StartPhase::Standby
        },
        journal: journal.map_or_else(|| "following".to_owned(), |journal| (*journal).to_owned()),
        lost_events: cores.map(|(_, core)| core.lost_events).sum(),
        problems,
        control_plane: control.map(|number| shard_readiness(number, &shards[number])),
        shards: match control {
            None => Vec::new(),
            Some(_) => topic_shards
                .iter()
                .enumerate()
                .map(|(number, shard)| shard_readiness(number, shard))
                .collect(),
        },
    }
}

fn shard_readiness(number: usize, shard: &NodeShard) -> ShardReadiness {
    ShardReadiness {
        shard: number,
        state: shard.state,
        has_owner: shard.has_owner,
        cause: shard.failure.clone(),
    }
}

/// Maximum number of listed gaps.
const GAPS_MAX: usize = 20;

/// The damage of the store, and what to do about it.
fn damage_messages(damage: &DamageSummary) -> Vec<String> {
    let mut problems: Vec<String> = damage
        .gaps
        .iter()
        .take(GAPS_MAX)
        .map(
            |LogGap {
                 partition,
                 first,
                 count,
             }| {
                let last = first + count - 1;
                let plural = if *count == 1 { "" } else { "s" };
                format!(
                    "lost to damage: {count} event{plural}, sequences {first} to {last} of \
                     partition {partition}"
                )
            },
        )
        .collect();
    if damage.gaps.len() > GAPS_MAX {
        problems.push(format!(
            "lost to damage: {} more ranges of events",
            damage.gaps.len() - GAPS_MAX
        ));
    }
    let families: Vec<_> = damage.families.iter().map(|family| family.name()).collect();
    if !families.is_empty() {
        problems.push(format!(
            "the store is damaged: a table of {} cannot be read in part; stop the server, and \
             restore a backup or accept the loss with gridhook restore --accept-loss",
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
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    HttpResponse::build(status).json(readiness)
}

/// The response to all other requests while the server starts.
pub(super) async fn not_yet(health: web::Data<ServerHealth>) -> HttpResponse {
    let message = health.readiness().problems.join("; ");
    HttpResponse::ServiceUnavailable()
        .insert_header((header::RETRY_AFTER, "1"))
        .force_close()
        .json(serde_json::json!({
            "error": {"code": "ServerStarting", "message": message, "details": []}
        }))
}
