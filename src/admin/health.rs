//! Liveness and readiness probes; no token is needed.
//!
//! `/healthz` only shows that the process responds: a server that reads its store, or whose disk is
//! full, must not be restarted. `/readyz` shows whether events are accepted, and if not, why.
//! Neither shows names or numbers of resources.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
};

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web,
};
use parking_lot::Mutex;

use crate::Source;
use gridhook_api::health::Liveness;
pub use gridhook_api::health::{Readiness, ShardReadiness, ShardState, StartPhase};
use gridhook_cluster::control_of;
use gridhook_escape::count_with_noun;
use gridhook_journal as journal;
use gridhook_store::damage::{DamageSummary, LogGap};

/// The phases by their numbers, in which a server goes through them.
const PHASES: [StartPhase; 4] = [
    StartPhase::Recovering,
    StartPhase::Standby,
    StartPhase::Serving,
    StartPhase::Stopping,
];

/// The problem of a node that is cut off from NATS.
const CUT_OFF: &str = "this node cannot use the NATS servers, and its log has the reason: it owns \
    nothing, and its copies may be old";

/// The problem of a store that no node owns.
const NO_OWNER: &str = "requests wait, because no node of the cluster owns the store";

/// The state that both probes report.
pub struct ServerHealth {
    phase: AtomicU8,
    /// The state of the journal, through a function, so that health has no handle that can write.
    /// Unset until the store is open.
    journal: OnceLock<Source<journal::JournalState>>,
    damage: OnceLock<Source<DamageSummary>>,
    /// The roles of this node of a cluster, by the number of the shard.
    shards: OnceLock<Source<Vec<NodeShard>>>,
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

/// The health of the core of a shard: that of its current run. Clones share it.
#[derive(Clone, Default)]
pub struct CoreHealth(Arc<Mutex<Option<web::Data<ServerHealth>>>>);

impl CoreHealth {
    pub fn begin_run(&self, health: web::Data<ServerHealth>) {
        *self.0.lock() = Some(health);
    }

    pub fn is_serving(&self) -> bool {
        let health = self.0.lock();
        health
            .as_ref()
            .is_some_and(|health| health.phase() == StartPhase::Serving)
    }

    /// The readiness of a core that serves.
    pub fn readiness_of_serving(&self) -> Option<Readiness> {
        let health = self.0.lock().clone()?;
        (health.phase() == StartPhase::Serving).then(|| health.readiness())
    }
}

pub struct StartStep {
    what: &'static str,
    progress: Source<Option<StepProgress>>,
}

/// Progress of a step that reads files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
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
            Some(StepProgress {
                done_bytes,
                total_bytes,
            }) => write!(f, ", {done_bytes} of {total_bytes} bytes"),
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
            phase: AtomicU8::new(StartPhase::Recovering as u8),
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
        *self.step.lock() = step;
    }

    /// Enters `phase`. An earlier phase is ignored.
    pub fn enter_phase(&self, phase: StartPhase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }

    pub fn readiness(&self) -> Readiness {
        let phase = self.phase();
        let shards = || self.shards.get().map(|shards| shards()).unwrap_or_default();
        if phase == StartPhase::Standby {
            return node_readiness(shards());
        }
        let mut readiness = self.journal_readiness(phase);
        if phase != StartPhase::Serving {
            return readiness;
        }
        let shards = shards();
        let problem = if shards.iter().any(|shard| shard.is_cut_off) {
            CUT_OFF
        } else if shards.iter().any(|shard| !shard.has_owner) {
            NO_OWNER
        } else {
            return readiness;
        };
        readiness.ready = false;
        readiness.problems.insert(0, problem.to_owned());
        readiness
    }

    /// The readiness that follows from the journal, which need not be open.
    fn journal_readiness(&self, phase: StartPhase) -> Readiness {
        let damage = self.damage.get().map(|damage| damage()).unwrap_or_default();
        let stream = self.stream.get().map(String::as_str);
        let journal = self.journal.get().map(|journal| journal());
        let state = journal.unwrap_or(journal::JournalState::Writable);
        let mut readiness = readiness(phase, &state, stream, &damage);
        if journal.is_none() {
            readiness.journal = "opening".to_owned();
        }
        if phase == StartPhase::Recovering {
            let step = self.step.lock();
            // The first problem is that of the phase.
            readiness.problems[0] = format!("{}: {step}", readiness.problems[0]);
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
        let step = self.step.lock();
        let progress = (step.progress)();
        Liveness {
            status: "starting".to_owned(),
            step: Some(step.what.to_owned()),
            done_bytes: progress.map(|progress| progress.done_bytes),
            total_bytes: progress.map(|progress| progress.total_bytes),
        }
    }

    pub fn phase(&self) -> StartPhase {
        PHASES[usize::from(self.phase.load(Ordering::Relaxed))]
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

/// The readiness of a node of a cluster that has joined.
///
/// It is ready while it can serve or forward a request about any shard. One that is cut off from
/// NATS is not, nor one that owns all shards and can store nothing in any. Nor is one that still has
/// to catch up, or has failed, and serves nothing: the others serve its clients, and a rolling
/// upgrade waits for it.
pub(crate) fn node_readiness(shards: Vec<NodeShard>) -> Readiness {
    let node = NodeShards {
        control: control_of(shards.len()),
        shards,
    };
    let journals = || node.cores().map(|(_, core)| core.journal.as_str());
    let journal = journals()
        .find(|journal| *journal != "writable")
        .or_else(|| journals().next());
    let readiness_of = |number: usize| shard_readiness(number, &node.shards[number]);
    Readiness {
        ready: node.is_ready(),
        phase: if node.is_serving() {
            StartPhase::Serving
        } else {
            StartPhase::Standby
        },
        journal: journal.unwrap_or("following").to_owned(),
        lost_events: node.cores().map(|(_, core)| core.lost_events).sum(),
        problems: node.list_problems(),
        control_plane: node.control.map(readiness_of),
        shards: match node.control {
            None => Vec::new(),
            Some(control) => (0..control).map(readiness_of).collect(),
        },
    }
}

/// The shards of a node. The last one is the control plane, if there are several.
struct NodeShards {
    shards: Vec<NodeShard>,
    control: Option<usize>,
}

impl NodeShards {
    fn topic_shards(&self) -> &[NodeShard] {
        &self.shards[..self.control.unwrap_or(self.shards.len())]
    }

    /// The cores that serve, by the numbers of their shards.
    fn cores(&self) -> impl Iterator<Item = (usize, &Readiness)> {
        let shards = self.shards.iter().enumerate();
        shards.filter_map(|(number, shard)| Some((number, shard.core.as_ref()?)))
    }

    fn is_serving(&self) -> bool {
        self.topic_shards().iter().any(|shard| shard.core.is_some())
    }

    fn is_cut_off(&self) -> bool {
        self.shards.iter().any(|shard| shard.is_cut_off)
    }

    fn is_ready(&self) -> bool {
        let topic_shards = self.topic_shards();
        let has_owner = topic_shards.iter().any(|shard| shard.has_owner);
        let has_all_copies = !self.shards.iter().any(|shard| {
            shard.failure.is_some()
                || [ShardState::Fetching, ShardState::CatchingUp].contains(&shard.state)
        });
        let stores_nothing = topic_shards
            .iter()
            .all(|shard| shard.core.as_ref().is_some_and(|core| !core.ready));
        has_owner && (has_all_copies || self.is_serving()) && !self.is_cut_off() && !stores_nothing
    }

    fn list_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.is_cut_off() {
            problems.push(CUT_OFF.to_owned());
        }
        for (number, shard) in self.shards.iter().enumerate() {
            if let Some(cause) = &shard.failure {
                let name = self.describe_shard(number);
                problems.push(format!("this node cannot serve {name}: {cause}"));
            }
        }
        let is_ownerless =
            |number: usize, shard: &NodeShard| !shard.has_owner && self.control != Some(number);
        problems.extend(self.shard_problem(
            is_ownerless,
            "requests wait, because no node of the cluster owns these shards",
            NO_OWNER,
        ));
        problems.extend(self.shard_problem(
            |_, shard| shard.state == ShardState::Fetching,
            "this node fetches copies of these shards from their owners",
            "this node fetches a copy of the store from the owner",
        ));
        problems.extend(self.shard_problem(
            |_, shard| shard.state == ShardState::CatchingUp,
            "this node catches up with these shards",
            "this node catches up with the changelog",
        ));
        if self
            .control
            .is_some_and(|control| !self.shards[control].has_owner)
        {
            let problem = "changes wait, because no node of the cluster owns the control plane";
            problems.push(problem.to_owned());
        }
        for (number, core) in self.cores() {
            let name = self.describe_shard(number);
            problems.extend(
                core.problems
                    .iter()
                    .map(|problem| format!("{name}: {problem}")),
            );
        }
        problems
    }

    /// The problem of the shards that have it: a text for several, followed by their names, or the
    /// one for a cluster with one shard.
    fn shard_problem(
        &self,
        has_problem: impl Fn(usize, &NodeShard) -> bool,
        of_several: &str,
        of_one: &str,
    ) -> Option<String> {
        let mut names = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            if has_problem(number, shard) {
                names.push(match self.control {
                    Some(control) if control == number => "control".to_owned(),
                    _ => number.to_string(),
                });
            }
        }
        match (names.is_empty(), self.shards.len()) {
            (true, _) => None,
            (false, 1) => Some(of_one.to_owned()),
            (false, _) => Some(format!("{of_several}: {}", names.join(", "))),
        }
    }

    fn describe_shard(&self, number: usize) -> String {
        if self.control == Some(number) {
            "the control plane".to_owned()
        } else {
            format!("shard {number}")
        }
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
                let events = count_with_noun(count, "event");
                format!(
                    "lost to damage: {events}, sequences {first} to {last} of partition \
                     {partition}"
                )
            },
        )
        .collect();
    if damage.gaps.len() > GAPS_MAX {
        problems.push(format!(
            "lost to damage: events of {} ranges in all",
            damage.gaps.len()
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
