//! Wiring: the order of start and stop.
//!
//! Start: the addresses are bound and an interim server responds there; the store is opened and
//! recovered; the actors of subscriptions with pending deliveries run before `/readyz` returns 200.
//! Stop: long polls return; publishers are served until they have disconnected, for a second at most
//! (by the owner of a cluster's store until its deliveries have finished), and then refused;
//! requests in flight finish within `server.shutdown_timeout`; the journal is flushed. A second
//! signal ends the process at once.

mod backup_schedule;
mod certificates;
mod chaos;
mod client_listeners;
mod control_copy;
pub mod core_dumps;
mod core_span;
mod dead_letter_routing;
pub mod descriptors;
mod error;
mod file_modes;
mod forward;
mod forward_error;
mod front;
mod issuer;
mod listener;
mod live_subscriptions;
mod local_store;
mod local_topics;
pub mod memory;
mod node;
mod recovery;
mod reload;
mod router;
mod running_server;
mod serve;
mod service_notifier;
mod settings;
mod shards;
mod shutdown;
mod startup;
mod system_topic;
mod timekeeping;
mod tls;
mod use_rules;

use std::{net::TcpListener, path::PathBuf, sync::Arc};

use actix::{Arbiter, ArbiterHandle};
use tracing::Span;

#[cfg(feature = "nats")]
pub use self::node::check::ClusterFindings;
use self::{
    client_listeners::ClientListeners,
    control_copy::{ControlCopy, FollowedControl, FollowingShards},
    descriptors::DescriptorBudget,
    error::io_error,
    local_store::LocalStore,
    node::ClusterNode,
    router::OtherShards,
    serve::{RunOutcome, run_server},
    service_notifier::ActorThreads,
    shutdown::StopSignals,
};
pub use self::{error::ServerError, settings::editions};
use gridhook_admin::health::CoreHealth;
use gridhook_compute::Compute;
use gridhook_config as config;
use gridhook_config::Config;
use gridhook_declared as declared;
use gridhook_declared::Declared;
use gridhook_engine::{
    control::registry::Registry, fanout::CHECK_INTERVAL, supervision::actor_factory::ActorHosts,
};
use gridhook_storage::destination;
use gridhook_store::rocks::RocksStore;
use gridhook_subscription::SubscriptionContext;
use gridhook_telemetry::LogFilter;

/// Runs the server until a signal stops it.
///
/// # Errors
/// If the server cannot start, or cannot stop cleanly.
pub fn run(
    mut config: Config,
    sources: config::SettingSources,
    log: LogFilter,
) -> Result<(), ServerError> {
    if let Some(limit) = memory::read_memory_limit() {
        memory::fit_budgets(&mut config, limit)?;
    }
    let declaration = read_declaration(&config)?;
    file_modes::restrict_modes(&config).map_err(io_error("the data folder"))?;
    shards::check_folder(&config)?;
    if !shards::has_all_stores(&config) {
        node::check_shards(&config)?;
    }
    let shards = config.cluster.as_ref().map_or(1, |cluster| cluster.shards);
    let inputs = ServerInputs {
        config,
        sources,
        log,
        declared: declaration,
    };
    if shards > 1 {
        return shards::run(&inputs, shards);
    }
    let threads = 2 * available_processors() + worker_threads(&inputs.config);
    let budget = descriptors::claim_descriptors(threads)?;
    let compute = Compute::new(settings::compute_limits(&inputs.config));
    let mut launch = Launch {
        inputs,
        budget,
        delivery_threads: available_processors(),
        threads: ActorThreads::default(),
        compute,
        core: None,
    };
    let mut state = ProcessState::default();
    let outcome = serve_until_stopped(&mut launch, &mut state);
    drop(state.node);
    if let Some(store) = state.store {
        store.close();
    }
    outcome
}

/// Runs the server once for each ownership of the store (once without a cluster), and again after
/// the clock was set back, until the process stops.
fn serve_until_stopped(launch: &mut Launch, state: &mut ProcessState) -> Result<(), ServerError> {
    loop {
        // All tasks of a run end with its system, and so do the times that they hold.
        let system =
            actix_rt::System::with_tokio_rt(|| core_span::spanned_runtime(Span::current()));
        match system.block_on(run_server(launch, state)) {
            Ok(RunOutcome::RunAgain) => {
                let ServerInputs {
                    config, sources, ..
                } = &mut launch.inputs;
                reload::refresh(config, sources)
            }
            Ok(RunOutcome::ProcessEnds) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Everything that is wrong with the set-up of the cluster that the settings name. Blocks.
#[cfg(feature = "nats")]
pub fn examine_cluster(config: &Config) -> Option<ClusterFindings> {
    let cluster = config.cluster.as_ref()?;
    Some(node::check::examine_cluster(cluster, config))
}

/// The names of the nodes of the cluster of the settings that run. Blocks for `cluster.expiry`.
///
/// # Errors
/// If the records of the cluster cannot be read.
pub fn living_nodes(config: &Config) -> Result<Vec<String>, ServerError> {
    node::list_living_nodes(config)
}

/// Reads every file that the settings name, without starting a server.
///
/// # Errors
/// If a server could not start with these files.
pub fn check_files(config: &Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tls::listener_tls(&config.server)?;
    let budget = descriptors::claim_descriptors(available_processors())?;
    let client = settings::client_options(config, &[], &budget)?;
    use_rules::read(config, client.connections)?;
    issuer::check_issuer(config)?;
    destination::backup_destination(&config.backup, None)?;
    Ok(())
}

/// Reads the file of `server.apply` before anything is opened.
fn read_declaration(config: &Config) -> Result<Option<Declared>, ServerError> {
    let Some(file) = &config.server.apply else {
        return Ok(None);
    };
    let options = declared::TemplateOptions::at_time(gridhook_clock::Clock::system().now().0);
    Ok(Some(declared::load_complete(
        file,
        &declared::ResourceGroup::default(),
        &options,
    )?))
}

/// What a process, or the core of a shard, keeps between two runs of the server.
#[derive(Default)]
struct ProcessState {
    sockets: Vec<TcpListener>,
    store: Option<Arc<LocalStore>>,
    node: Option<ClusterNode>,
    /// [`None`] during the first start of a server without a cluster: a signal then ends the process.
    signals: Option<StopSignals>,
}

/// What a process is started with, or the core of a shard.
#[derive(Clone)]
struct ServerInputs {
    config: Config,
    sources: config::SettingSources,
    log: LogFilter,
    declared: Option<Declared>,
}

/// The inputs of a start.
struct Launch {
    inputs: ServerInputs,
    budget: DescriptorBudget,
    /// The number of threads of the actors. With 0 they run on that of the core.
    delivery_threads: usize,
    threads: ActorThreads,
    /// The cores of a process share it: a part of `limits.compute_bytes` has no room for the
    /// expansion of a template.
    compute: Compute,
    /// Set for the core of a shard, which has others beside it in its process.
    core: Option<ShardCore>,
}

/// State that the core of a shard receives from its process.
struct ShardCore {
    address: ClientListeners,
    /// The health that `/readyz` of the process returns for the shard.
    health: CoreHealth,
    others: OtherShards,
    /// The node's copy of the control plane.
    control_copy: ControlCopy,
    /// The data folder of the process.
    process_dir: PathBuf,
}

impl ShardCore {
    /// Whether the core has the control plane, and no events.
    fn has_control(&self) -> bool {
        self.others.own == self.others.shards()
    }

    /// Begins to follow the control plane.
    async fn follow_control(&self, registry: Arc<Registry>) -> FollowedControl {
        let OtherShards { own, .. } = self.others;
        FollowedControl::begin(
            self.control_copy.clone(),
            registry,
            own,
            self.others.shards(),
        )
        .await
    }

    /// The place of this core among the shards. Its own store is `store`.
    fn placement(&self, store: &Arc<RocksStore>) -> gridhook_admin::ShardPlacement {
        let owners = self.has_control().then(|| {
            Box::new(FollowingShards {
                others: self.others.clone(),
                copy: self.control_copy.clone(),
                store: Arc::clone(store),
            }) as _
        });
        gridhook_admin::ShardPlacement {
            own: self.others.own,
            shards: self.others.shards(),
            owners,
        }
    }
}

/// The threads of the actors. Dropping this stops those that it has started, with their actors, and
/// joins them.
struct Arbiters {
    handles: Vec<(u64, ArbiterHandle)>,
    started: Vec<Arbiter>,
    threads: ActorThreads,
}

impl Arbiters {
    /// Starts threads. With a count of 0, actors run on this one until its system ends.
    fn start(count: usize, threads: &ActorThreads) -> Self {
        let start_arbiter = |_| {
            let span = Span::current();
            Arbiter::with_tokio_rt(move || core_span::spanned_runtime(span))
        };
        let started: Vec<Arbiter> = (0..count).map(start_arbiter).collect();
        let mut handles: Vec<ArbiterHandle> = started.iter().map(Arbiter::handle).collect();
        if handles.is_empty() {
            handles.push(Arbiter::current());
        }
        Self {
            handles: handles
                .into_iter()
                .map(|handle| (threads.add(handle.clone()), handle))
                .collect(),
            started,
            threads: threads.clone(),
        }
    }

    fn actor_hosts(&self, context: SubscriptionContext) -> ActorHosts {
        let handles = self.handles.iter().map(|(_, handle)| handle.clone());
        ActorHosts {
            arbiters: Arc::new(handles.collect()),
            context: Arc::new(context),
            check_interval: CHECK_INTERVAL,
        }
    }
}

impl Drop for Arbiters {
    fn drop(&mut self) {
        for (number, _) in &self.handles {
            self.threads.remove(*number);
        }
        for arbiter in &self.started {
            arbiter.stop();
        }
        for arbiter in self.started.drain(..) {
            if arbiter.join().is_err() {
                tracing::error!("an arbiter panicked");
            }
        }
    }
}

/// The number of threads that serve HTTP.
fn worker_threads(config: &Config) -> usize {
    if config.server.workers == 0 {
        available_processors()
    } else {
        config.server.workers
    }
}

fn available_processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
