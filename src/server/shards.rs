//! A node of a cluster with several shards: one process with a core for each.
//!
//! A core is a server without clients: a store in `DATA/shards/NUMBER`, a changelog, a claim, and a
//! run of `serve` for each ownership, on a thread with an actix system of its own. This module has
//! what a process has once: the listener for nodes, whose threads serve the requests to all cores
//! (`front::served_shards`); the listeners for clients, which forward each request to the owner of
//! its shard, also if that is a core of this process (`router`); the membership in the cluster;
//! signals and the service manager; the limits that the cores share.
//!
//! The last core has the control plane. The others follow this node's copy of it (`control_copy`).
//!
//! Invariants:
//! - The events of a topic or domain are in one core (`cluster::shard_of`), those of a spread topic
//!   in all but that with the control plane.
//! - A core fails alone: this node does not claim its shard any more, and reports the failure. The
//!   process ends when all cores have failed.
//! - The stores are closed on the main thread, when no other thread uses them.

use std::{
    fs::{self, File},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use actix_web::web;
use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tracing::Span;

use super::{
    Launch, ProcessState, ServerError, ServerInputs, ShardCore, available_processors,
    client_listeners::ClientListeners,
    control_copy::ControlCopy,
    core_span,
    descriptors::{self, ProcessThreads, SharedBudget},
    forward::ForwardTimes,
    io_error,
    listener::{self, Front, HttpListener},
    local_store::{self, LocalStore},
    memory,
    node::{self, ClusterNode, Joined},
    reload::ReloadSignals,
    router::{OtherShards, ShardRouter},
    running_server::RunningServer,
    serve_until_stopped,
    service_notifier::{self, ActorThreads, ServiceNotifier},
    settings,
    shutdown::{self, StopSignals},
    worker_threads,
};
use gridhook_admin::health::{CoreHealth, ServerHealth, StartPhase, StartStep};
use gridhook_cluster::membership::{Membership, MembershipEnd};
use gridhook_compute::Compute;
use gridhook_config::{Config, ObjectStoreConfig, count_with_control};
use gridhook_policy::dead_letter_store::StoreKind;
use gridhook_store::rocks::STORE;

/// The folder of the stores in the data folder.
pub(super) const FOLDER: &str = "shards";

/// A core whose thread has ended.
struct EndedCore {
    shard: usize,
    outcome: Result<(), ServerError>,
    node: Option<ClusterNode>,
    /// Whether the core ended before the process stopped.
    has_failed: bool,
}

impl EndedCore {
    /// Records that this node does not serve the shard any more.
    fn note_failure(&mut self) {
        self.has_failed = true;
        let cause = match &self.outcome {
            Ok(()) => "its core has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        let cause = format!("{cause}; restart the node once that is mended");
        if let Some(node) = &self.node {
            node.fail(cause);
        }
    }
}

/// Refuses a data folder with the stores of another number of shards.
pub(super) fn check_folder(config: &Config) -> Result<(), ServerError> {
    let shards = config.cluster.as_ref().map_or(1, |cluster| cluster.shards);
    let data_dir = &config.server.data_dir;
    let folder = data_dir.join(FOLDER);
    if shards > 1 && data_dir.join(STORE).exists() {
        let content = "the store of a server with one shard";
        return Err(foreign_folder_error(data_dir, content, shards));
    }
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io_error(folder.display().to_string()))?,
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<usize>().ok());
    match numbers.max() {
        Some(_) if shards == 1 => {
            let content = "the stores of a node with several shards";
            Err(foreign_folder_error(data_dir, content, shards))
        }
        Some(most) if most >= count_with_control(shards) => {
            let content = format!("the stores of a node with {most} shards");
            Err(foreign_folder_error(data_dir, &content, shards))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether the data folder has the stores of all shards.
pub(super) fn has_all_stores(config: &Config) -> bool {
    let data_dir = &config.server.data_dir;
    match config.cluster.as_ref().map_or(1, |cluster| cluster.shards) {
        1 => data_dir.join(STORE).exists(),
        shards => (0..count_with_control(shards))
            .all(|shard| data_dir.join(FOLDER).join(shard.to_string()).exists()),
    }
}

fn foreign_folder_error(folder: &Path, content: &str, shards: usize) -> ServerError {
    let folder = folder.display();
    ServerError::Folder(format!(
        "the data folder {folder} has {content}, and cluster.shards is {shards}; use another folder"
    ))
}

/// Runs a node until a signal stops it.
///
/// # Errors
/// If no core can start, or one cannot stop cleanly.
pub(super) fn run(inputs: &ServerInputs, shards: usize) -> Result<(), ServerError> {
    let front_threads = worker_threads(&inputs.config);
    // Most machines have fewer processors than shards.
    let delivery_threads = available_processors() / shards;
    let cores = count_with_control(shards);
    let limit = descriptors::raise_limit();
    let threads = ProcessThreads {
        cores,
        front: front_threads + available_processors(),
        // A core has one more: its own.
        of_core: delivery_threads + 1,
    };
    let budget = SharedBudget::with_limit(limit, threads)?;
    tracing::info!(
        limit,
        shards,
        connections = budget.front.inbound,
        node_connections = budget.node_connections,
        store = budget.core.store,
        requests = budget.core.outbound,
        "file descriptors divided"
    );
    let folder = inputs.config.server.data_dir.join(FOLDER);
    make_folders(&inputs.config.server.data_dir, &folder)
        .map_err(io_error(folder.display().to_string()))?;
    make_backup_folder(&inputs.config);
    let mut stores = Vec::new();
    let plan = CorePlan {
        shards,
        cores,
        delivery_threads,
        folder: &folder,
        budget,
        compute: Compute::new(settings::compute_limits(&inputs.config)),
    };
    // The stores are opened on as many threads as there are cores, which end soon after that.
    let system = actix_rt::System::with_tokio_rt(|| core_span::spanned_runtime(Span::none()));
    let outcome = system.block_on(serve_cores(inputs, &plan, &mut stores));
    stores.iter().for_each(|store| store.close());
    outcome
}

/// What the cores of a process are started with.
struct CorePlan<'a> {
    /// The number of shards with topics.
    shards: usize,
    /// The number of cores: one for each shard with topics, and one for the control plane.
    cores: usize,
    /// The number of threads of each core that deliver; 0: its own thread does.
    delivery_threads: usize,
    /// The folder of the stores.
    folder: &'a Path,
    budget: SharedBudget,
    /// Computes for all cores.
    compute: Compute,
}

impl CorePlan<'_> {
    fn build_launch(&self, inputs: &ServerInputs, shard: usize, threads: ActorThreads) -> Launch {
        let mut inputs = inputs.clone();
        let config = &mut inputs.config;
        config.server.data_dir = self.folder.join(shard.to_string());
        memory::divide_budgets(config, self.shards);
        if let Some(store) = &mut config.backup.store {
            store.address.path.push(format!("shard-{shard}"));
        }
        let has_control = shard == self.shards;
        inputs.declared = inputs.declared.filter(|_| has_control);
        Launch {
            inputs,
            budget: self.budget.core,
            delivery_threads: self.delivery_threads,
            threads,
            compute: self.compute.clone(),
            core: None,
        }
    }
}

/// Serves clients and starts the cores, until a signal stops the process or all cores have ended.
async fn serve_cores(
    inputs: &ServerInputs,
    plan: &CorePlan<'_>,
    stores: &mut Vec<Arc<LocalStore>>,
) -> Result<(), ServerError> {
    // The first step, because a signal without a handler ends the process.
    let _signals = ReloadSignals::install().map_err(io_error("cannot handle signals"))?;
    let mut running = RunningCores::start(inputs, plan, stores).await?;
    let failed_cores = running.wait_for_signal_or_failures(plan.cores).await?;
    running.stop(failed_cores, plan.cores).await
}

/// The cores of a process, and what it serves to clients.
struct RunningCores {
    health: web::Data<ServerHealth>,
    address: ClientListeners,
    listener: HttpListener,
    responder: RunningServer,
    watchdog: JoinHandle<()>,
    signals: StopSignals,
    membership: Membership,
    member: JoinHandle<MembershipEnd>,
    /// Tells the cores that the process stops.
    stop: watch::Sender<bool>,
    ended_cores: mpsc::UnboundedReceiver<EndedCore>,
}

impl RunningCores {
    async fn start(
        inputs: &ServerInputs,
        plan: &CorePlan<'_>,
        stores: &mut Vec<Arc<LocalStore>>,
    ) -> Result<Self, ServerError> {
        let config = &inputs.config;
        let cluster = config
            .cluster
            .as_ref()
            .expect("a server without a cluster has one shard");
        let listener = HttpListener::open(config, &mut Vec::new())?;
        let address = listener.client_listeners();
        let health = web::Data::new(ServerHealth::starting());
        let interim = listener.serve_interim(config, &plan.budget.front, health.clone())?;
        let threads = ActorThreads::default();
        let mut launches: Vec<Launch> = (0..plan.cores)
            .map(|shard| plan.build_launch(inputs, shard, threads.clone()))
            .collect();
        open_stores(&launches, &health, stores).await?;
        health.set_step(StartStep::new("following the changelogs"));
        let Joined { nodes, member } = node::join(cluster, config, stores.clone()).await?;
        // The interim server would go on to say that the node starts, after `announce_url` has said
        // that it listens.
        interim.end().await;
        let cores: Vec<CoreHealth> = nodes.iter().map(|_| CoreHealth::default()).collect();
        let context = node::become_standby(&nodes, &cores, inputs, &address, &health)?;
        let times = ForwardTimes::from_config(config);
        let forwarders = nodes.iter().zip(&cores);
        let forwarders = forwarders
            .map(|(node, core)| node.build_forwarder(times, Some(core.clone())))
            .collect();
        let control = nodes.last().expect("the control plane has a node");
        let control_copy = ControlCopy::begin(control).await;
        let router = ShardRouter::new(forwarders, control_copy.clone(), config);
        for (shard, (launch, health)) in launches.iter_mut().zip(cores).enumerate() {
            launch.core = Some(ShardCore {
                address: address.clone(),
                health,
                others: OtherShards::new(&router, shard),
                control_copy: control_copy.clone(),
                process_dir: config.server.data_dir.clone(),
            });
        }
        let front = Front {
            context,
            router,
            nodes: control.listener_of_nodes()?,
        };
        let responder = listener.serve_front(config, &plan.budget, front)?;
        listener::announce_url(&address.own_url);
        let signals = StopSignals::install()?;
        let watchdog = service_notifier::notify_standby(&address.own_url, threads);
        let membership = nodes[0].process.membership.clone();
        let stop = watch::Sender::new(false);
        let ended_cores = start_cores(launches, nodes, stores, &stop);
        Ok(Self {
            health,
            address,
            listener,
            responder,
            watchdog,
            signals,
            membership,
            member,
            stop,
            ended_cores,
        })
    }

    /// Waits for a signal, or until all cores have failed. Returns the cores that have failed by
    /// then.
    async fn wait_for_signal_or_failures(
        &mut self,
        cores: usize,
    ) -> Result<Vec<EndedCore>, ServerError> {
        let mut failed_cores = Vec::new();
        while failed_cores.len() < cores {
            let core = tokio::select! {
                result = shutdown::begin_stop_on_signal(&mut self.signals) => {
                    result.map(|()| None)?
                }
                core = self.ended_cores.recv() => core,
            };
            let Some(mut core) = core else { break };
            core.note_failure();
            failed_cores.push(core);
        }
        Ok(failed_cores)
    }

    /// Stops the cores of which these have failed, and then the server for clients.
    async fn stop(mut self, mut ends: Vec<EndedCore>, cores: usize) -> Result<(), ServerError> {
        let are_all_failed = ends.len() == cores;
        self.health.enter_phase(StartPhase::Stopping);
        ServiceNotifier::from_environment().notify_stopping();
        self.stop.send_replace(true);
        self.membership.begin_leave();
        let other_ends = async {
            while let Some(core) = self.ended_cores.recv().await {
                ends.push(core);
            }
        };
        // Clients are served meanwhile: by the cores until their ends, then by the next owners.
        tokio::join!(
            shutdown::serve_until_disconnected(&self.address.counters),
            other_ends
        );
        let nodes: Vec<ClusterNode> = ends
            .iter_mut()
            .filter_map(|core| core.node.take())
            .collect();
        node::wait_until_left(self.member, &nodes).await;
        // New clients are refused while requests in flight finish.
        drop(self.listener);
        self.responder.stop().await;
        self.watchdog.abort();
        for core in ends {
            // A core that failed before was reported then; others have served on without it.
            if are_all_failed || !core.has_failed {
                core.outcome.map_err(|error| ServerError::Shard {
                    shard: core.shard,
                    error: Box::new(error),
                })?;
            }
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Opens the stores of all cores. A core whose store does not open fails alone, unless none opens.
async fn open_stores(
    launches: &[Launch],
    health: &web::Data<ServerHealth>,
    stores: &mut Vec<Arc<LocalStore>>,
) -> Result<(), ServerError> {
    let openings = launches
        .iter()
        .map(|core| local_store::open_store(&core.inputs.config, &core.budget, health));
    // RocksDB needs some megabytes to open a store. The allocator keeps those of each thread.
    let in_turn = stream::iter(openings).buffered(available_processors());
    let results: Vec<_> = in_turn.collect().await;
    let has_any = results.iter().any(Result::is_ok);
    for (result, core) in results.into_iter().zip(launches) {
        let store = match result {
            Err(error) if has_any => Arc::new(local_store::build_unopened_store(
                &core.inputs.config,
                &core.budget,
                &error,
            )),
            result => result?,
        };
        stores.push(store);
    }
    Ok(())
}

/// Starts a thread for each core. The channel ends with the last one.
fn start_cores(
    launches: Vec<Launch>,
    nodes: Vec<ClusterNode>,
    stores: &[Arc<LocalStore>],
    stop: &watch::Sender<bool>,
) -> mpsc::UnboundedReceiver<EndedCore> {
    let (end_sender, ended_cores) = mpsc::unbounded_channel();
    for (shard, ((mut launch, node), store)) in
        launches.into_iter().zip(nodes).zip(stores).enumerate()
    {
        let end_sender = end_sender.clone();
        let mut state = ProcessState {
            store: Some(Arc::clone(store)),
            node: Some(node),
            signals: Some(StopSignals::Core(stop.subscribe())),
            ..ProcessState::default()
        };
        let thread = std::thread::Builder::new().name(format!("shard-{shard}"));
        thread
            .spawn(move || {
                let _span = tracing::error_span!("core", shard).entered();
                // A process that has ended does not receive it.
                end_sender
                    .send(run_core(shard, &mut launch, &mut state))
                    .ok();
            })
            .expect("a process that cannot start a thread cannot start");
    }
    ended_cores
}

/// Serves a shard to its end, which is a failure if its thread panics.
fn run_core(shard: usize, launch: &mut Launch, state: &mut ProcessState) -> EndedCore {
    let serve = AssertUnwindSafe(|| serve_until_stopped(launch, state));
    let panic_error = || io_error("its thread")(io::Error::other("it panicked"));
    let outcome = catch_unwind(serve).unwrap_or_else(|_| Err(panic_error()));
    EndedCore {
        shard,
        outcome,
        node: state.node.take(),
        has_failed: false,
    }
}

fn make_folders(data_dir: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    File::open(folder)?.sync_all()?;
    File::open(data_dir)?.sync_all()
}

/// Makes the folder of backups, as a server with one shard does. Each core has one in it.
fn make_backup_folder(config: &Config) {
    let Some(ObjectStoreConfig { address, .. }) = &config.backup.store else {
        return;
    };
    if address.kind == StoreKind::Folder {
        // A backup that fails for it logs the error.
        fs::create_dir(Path::new("/").join(address.path.join("/"))).ok();
    }
}
