//! Wiring: the order of start and stop.
//!
//! Start: the addresses are bound and `startup_responder` answers there; the store is opened and recovered; the actors of
//! subscriptions with pending deliveries run before `/readyz` returns 200. Stop: long polls are answered; publishers are
//! served for up to one second and then refused; requests in flight finish within `server.shutdown_wait`; the journal is
//! flushed. A second signal ends the process at once.

mod backup_schedule;
mod chaos;
mod dead_letter_routing;
pub mod descriptors;
mod error;
mod file_modes;
mod forward;
mod front;
mod issuer;
mod listener;
mod live_subscriptions;
mod local_topics;
pub mod memory;
mod node;
mod reload;
mod service_notifier;
mod settings;
mod shutdown;
mod startup;
mod startup_responder;
mod system_topic;
mod timekeeping;
mod tls;

use std::{collections::BTreeMap, io, net::TcpListener, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use actix::{Arbiter, ArbiterHandle};
use actix_web::web;

use self::{
    descriptors::DescriptorBudget,
    error::io_error,
    listener::{HttpListener, ListenerContext},
    node::{ClusterNode, EndGuard, Standing, Tenure, TenureEnd},
    reload::ReloadSignals,
    shutdown::StopSignals,
    startup::{Core, DeadLetterService},
    startup_responder::StartupResponder,
};
pub use self::{error::ServerError, settings::editions};
use crate::{
    admin::{self, ChaosTargets, health},
    cli::destination,
    clock::Clock,
    cluster::GivenUp,
    config::{self, Config},
    control::registry::Registry,
    declared::{self, Declared},
    deliver,
    fanout::CHECK_INTERVAL,
    journal::FatalHandler,
    pull::LockTokenSealer,
    store::{Store, rocks::RocksStore},
    subscription::SubscriptionContext,
    supervision::actor_factory::{self, ActorHosts},
    telemetry::LogFilter,
};

/// The interval between two checks whether the store is released at the end.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The number of these checks.
const CLOSE_POLLS: u32 = 5000;

/// Runs the server until a signal stops it.
///
/// # Errors
/// If the server cannot start, or cannot stop cleanly.
pub fn run(mut config: Config, sources: config::SettingSources, log: LogFilter) -> Result<(), ServerError> {
    if let Some(limit) = memory::limit() {
        memory::fit(&mut config, limit)?;
    }
    let budget = descriptors::take(2 * cores() + workers(&config))?;
    let declared = declared(&config)?;
    file_modes::keep(&config).map_err(io_error("the data folder"))?;
    let launch = Launch { config, sources, log, declared, budget };
    let mut kept = Kept::default();
    let served = loop {
        // All tasks of an ownership end with its system.
        match actix_rt::System::new().block_on(serve(&launch, &mut kept)) {
            Ok(Served::Ownership) => {}
            Ok(Served::All) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    drop(kept.node);
    if let Some(store) = kept.store {
        close(store);
    }
    served
}

/// Reads every file that the settings name, without starting a server.
///
/// # Errors
/// If a server could not start with these files.
pub fn check(config: &Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tls::listening(&config.server)?;
    let budget = descriptors::take(cores())?;
    settings::client(config, &[], &budget)?;
    issuer::check(config)?;
    destination::destination(&config.backup, None)?;
    Ok(())
}

/// Closes the store on this thread once no other thread holds it. RocksDB must not be used or closed on another thread
/// while the process destroys its globals.
fn close(store: Arc<RocksStore>) {
    for _ in 0..CLOSE_POLLS {
        if Arc::strong_count(&store) == 1 {
            return;
        }
        std::thread::sleep(CLOSE_POLL);
    }
    tracing::warn!("the store is still in use at the end");
    // Closing it here could race with its user. The writer has ended, so nothing is lost.
    std::mem::forget(store);
}

/// Reads the file of `server.apply` before anything is opened.
fn declared(config: &Config) -> Result<Option<Declared>, ServerError> {
    let load = |file: &PathBuf| declared::load(file, &declared::ResourceGroup::default(), &BTreeMap::new());
    Ok(config.server.apply.as_ref().map(load).transpose()?)
}

/// What stays when an ownership ends.
#[derive(Default)]
struct Kept {
    sockets: Vec<TcpListener>,
    store: Option<Arc<RocksStore>>,
    node: Option<ClusterNode>,
    /// Of a node. Another server is ended by a signal that arrives while it starts.
    signals: Option<StopSignals>,
}

/// What has ended.
enum Served {
    /// The ownership of a node of a cluster: it is a standby again.
    Ownership,
    /// The server.
    All,
}

/// The inputs of a start.
struct Launch {
    config: Config,
    sources: config::SettingSources,
    log: LogFilter,
    declared: Option<Declared>,
    budget: DescriptorBudget,
}

/// Runs the server: each line of the start is one step, in the order that the module's documentation gives. A node of a
/// cluster returns when its ownership has ended, too.
async fn serve(launch: &Launch, kept: &mut Kept) -> Result<Served, ServerError> {
    let Launch { config, sources, log, declared, budget } = launch;
    let (config, budget) = (config.clone(), *budget);
    // The first step, because a signal without a handler ends the process.
    let reload_signals = ReloadSignals::install().map_err(io_error("cannot handle signals"))?;
    let mut listener = HttpListener::open(&config, &mut kept.sockets)?;
    let health = web::Data::new(health::ServerHealth::starting());
    let mut responder = match &kept.node {
        Some(node) => {
            StartupResponder::stand_by(&listener, &config, &budget, node.standby(&config, &listener, &health)?)?
        }
        None => StartupResponder::begin(&listener, &config, &budget, health.clone())?,
    };
    let store = match &kept.store {
        Some(store) => Arc::clone(store),
        None => Arc::clone(kept.store.insert(startup::open_store(&config, &budget, &health).await?)),
    };
    let targets = ChaosTargets::default();
    let (written, on_failure, tenure): (Arc<dyn Store>, FatalHandler, _) = match &config.cluster {
        None => {
            node::check_unreplicated(&*store)?;
            (Arc::clone(&store) as _, Box::new(startup::exit_on_store_error), None)
        }
        Some(cluster) => {
            health.at(health::StartStep::new("following the changelog"));
            if kept.node.is_none() {
                let node = kept.node.insert(node::join(cluster, &config, Arc::clone(&store)).await?);
                responder.end().await;
                let standby = node.standby(&config, &listener, &health)?;
                responder = StartupResponder::stand_by(&listener, &config, &budget, standby)?;
            }
            listener::announce(&listener.own_url());
            let signals = match &mut kept.signals {
                Some(signals) => signals,
                None => kept.signals.insert(StopSignals::install()?),
            };
            let watchdog = startup::notify_standby(&listener.own_url());
            let standing = kept.node.as_mut().expect("it has joined").stand_by(&Clock::system(), signals).await?;
            watchdog.abort();
            match standing {
                Standing::Stopped => {
                    shutdown::end_at_next_signal()?;
                    health.enter(health::StartPhase::Stopping);
                    shutdown::serve_until_disconnected(&listener.counters()).await;
                    responder.end().await;
                    return Ok(Served::All);
                }
                Standing::Owner(tenure) => (Arc::clone(&tenure.store) as _, tenure.on_failure(), Some(tenure)),
            }
        }
    };

    health.at(health::StartStep::new("reading the records"));
    let owner = kept.node.as_ref().and_then(ClusterNode::owner_clock);
    let (clock, timekeeper) = startup::start_clock(&config, &targets, owner);
    if let (Some(tenure), Some(node)) = (&tenure, &kept.node) {
        node.share_time(tenure, clock.clone());
    }
    let started = clock.now();
    let token = startup::admin_token(&config)?;
    let cluster = kept.node.as_ref().map(|node| node.id.clone());
    let backups = startup::backups(&config, &budget, &store, &clock, cluster)?;
    let registry_cell = Arc::default();
    let (journal, writer) = startup::start_journal(&config, (written, on_failure), &targets, &clock, &registry_cell)?;
    let _scrub = journal.scrub(config.journal.scrub);
    let lease = tenure.as_ref().map(|tenure| tenure.lease.clone());
    let client = deliver::ClientOptions { lease, ..settings::client(&config, listener.addresses(), &budget)? };
    let rules = settings::rules(&config, &client, listener.addresses());
    let (registry, starts) = match Registry::recover(journal.clone(), rules, config.topic.recent_events_bytes) {
        Ok(recovered) => recovered,
        Err(error) => {
            journal.close();
            writer.join();
            return failed_start(error.into(), tenure.as_ref(), kept.node.as_ref(), responder).await;
        }
    };
    let registry = Arc::clone(registry_cell.get_or_init(|| Arc::new(registry)));
    let core = Core { config, clock, journal, registry };

    let certificates = kept.node.as_ref().map(|node| &*node.certificates).unwrap_or_default();
    let system_topic = startup::start_system_topic(&core, &client, &listener, certificates);
    let DeadLetterService { stores, routing, handles, lifeline: _lifeline } =
        startup::start_dead_letters(&core, system_topic.as_ref())?;
    let targets = ChaosTargets { dead_letters: handles, ..targets };
    let (tracer, exporter) = startup::start_tracing(&core, &listener)?;
    let failed_auth = Arc::new(settings::failed_auth_limiter(&core.config));
    let issuer::TokenAccess { gate, operators, keys } =
        issuer::gate(&core.config, &token, core.registry.tokens(), &client.trust, Arc::clone(&failed_auth))
            .map_err(|error| ServerError::Issuer(error.to_string()))?;
    let context = startup::subscription_context(&core, &client, &targets, &tracer, (routing, stores.clone()));
    let arbiters = Arbiters::start(cores());
    let notifier = startup::start_service_notifier(&arbiters);
    startup::start_validation(&core, client.clone(), &listener);
    startup::start_background_tasks(&core).await;
    actix_rt::spawn(actor_factory::run(starts, arbiters.hosts(context)));

    let publisher = startup::publisher(&core, gate, tracer.clone());
    startup::attach_topics(&core, &client, &publisher);
    startup::attach_journal(&health, &core.journal);
    let redrives = startup::resume_redrives(&core, &stores)?;
    let mut sources_of_metrics = startup::metric_sources(
        &core,
        &publisher,
        &listener,
        &client,
        &health,
        (tracer, system_topic.as_ref()),
        &backups,
    );
    let cluster = kept.node.as_ref().map(|node| node.plane.clone());
    sources_of_metrics.cluster.clone_from(&cluster);
    let exposition =
        settings::exposition(&core.config, sources_of_metrics, started).map_err(io_error("metrics.token"))?;
    let mut control = startup::control(&core, &listener, system_topic.as_ref())?
        .with_dead_letters(redrives)
        .with_tools(targets)
        .with_dashboard(core.config.server.dashboard);
    control.backups = Some(Arc::clone(&backups));
    (control.failed_auth, control.operators, control.exposition) = (failed_auth, operators, exposition);
    let control = web::Data::new(control);
    let written = async {
        startup::apply_declared(&control, declared.clone()).await?;
        Ok(LockTokenSealer::recover(&core.journal).await?)
    };
    let (written, is_stopped) = node::unless_ended(written, tenure.as_ref(), kept.signals.as_mut()).await;
    let tokens = match written {
        Ok(tokens) if !is_stopped => web::Data::new(tokens),
        written => {
            core.registry.close();
            core.journal.close();
            writer.join();
            match (written, &tenure, &mut kept.node) {
                (_, Some(tenure), Some(node)) if is_stopped => {
                    shutdown::end_at_next_signal()?;
                    node.leave();
                    node.give_up(tenure, GivenUp::Released).await;
                    node.left().await;
                    responder.end().await;
                    return Ok(Served::All);
                }
                (Err(error), tenure, node) => {
                    return failed_start(error, tenure.as_ref(), node.as_ref(), responder).await;
                }
                (Ok(_), ..) => unreachable!("only a node is stopped while it starts"),
            }
        }
    };
    actix_rt::spawn(admin::record_history(control.clone()));
    let reload = reload::Reload {
        sources: sources.clone(),
        log: log.clone(),
        token: token.clone(),
        control: control.clone(),
        certificate: listener.shown.clone(),
        identities: client.identities.clone(),
        trust: client.trust.clone(),
        keys,
    };
    let (control_plane, publishers) = (control.clone(), publisher.clone());
    let stall = tenure.as_ref().map(Tenure::watch_writes);
    let context = ListenerContext {
        control: control_plane,
        publisher: publishers,
        tokens,
        health: health.clone(),
        token,
        cluster,
        stall,
    };
    actix_rt::spawn(Rc::new(reload).run(reload_signals, core.config.clone()));
    if tenure.is_none() {
        responder.end().await;
    } else {
        // The next owner serves at once, beside connections that the former server still has.
        responder.pause().await;
        actix_rt::spawn(responder.end());
    }
    let (own_url, counters) = (listener.own_url(), listener.counters());
    if let (Some(_), Some(node)) = (&tenure, &kept.node) {
        listener.nodes = Some(node.listener_of_nodes()?);
    }
    let http = listener.serve(&core.config, &budget, context)?;
    let handle = http.handle();
    health.enter(health::StartPhase::Serving);
    startup::start_backups(&core, &backups);
    notifier.ready(&own_url);
    let serving = actix_rt::spawn(http);

    let end = tokio::select! {
        signaled = shutdown::wait_for_signal(&mut kept.signals) => signaled.map(|()| None)?,
        end = node::ended(tenure.as_ref()) => Some(end),
    };
    let _guard = tenure.as_ref().map(|tenure| EndGuard::begin(Arc::clone(&tenure.store)));
    if end.is_none() {
        health.enter(health::StartPhase::Stopping);
        notifier.stopping();
        kept.node.iter().for_each(ClusterNode::leave);
    }
    control.end_chaos();
    match (&tenure, &end) {
        (None, _) => {
            backup_schedule::stop(&backups).await;
            publisher.end_polls();
            shutdown::serve_until_disconnected(&counters).await;
            publisher.close();
            core.registry.close();
            shutdown::drain(&core.registry, core.config.server.shutdown_wait).await;
            handle.stop(true).await;
        }
        (Some(_), None | Some(TenureEnd::Asked)) => {
            backup_schedule::stop(&backups).await;
            publisher.end_polls();
            core.registry.close();
            // Publishers are served meanwhile: the next owner delivers what they send.
            shutdown::drain(&core.registry, core.config.server.shutdown_wait.min(node::DRAIN_MAX)).await;
            publisher.close();
        }
        (Some(tenure), Some(TenureEnd::Lost)) => {
            tenure.fence();
            // The next owner makes backups at the same destination.
            backup_schedule::stop(&backups).await;
            publisher.end_polls();
            publisher.close();
            core.registry.close();
        }
    }
    let settle = if tenure.is_some() { Duration::ZERO } else { core.config.server.shutdown_wait };
    if !stores.settle(settle).await {
        tracing::warn!("a dead-letter file is unfinished at the stop; the next start writes it again");
    }
    if tenure.is_none() {
        serving.await.map_err(|error| io_error("serving")(io::Error::other(error)))?.map_err(io_error("serving"))?;
    }
    timekeeper.save();
    core.journal.close();
    // A write may wait for the changelog, and a second signal is heard meanwhile.
    tokio::task::spawn_blocking(move || writer.join()).await.expect("joining threads does not panic");
    if let (Some(tenure), Some(node)) = (&tenure, &mut kept.node) {
        let why = match end {
            Some(TenureEnd::Lost) => GivenUp::Fenced,
            Some(TenureEnd::Asked) | None => {
                tenure.release().await;
                GivenUp::Released
            }
        };
        node.give_up(tenure, why).await;
        if end.is_none() {
            node.left().await;
        }
        handle.stop(false).await;
    }
    drop(arbiters);
    if let Some(exporter) = exporter {
        exporter.close();
    }
    if end.is_some() {
        tracing::info!("standby again");
        return Ok(Served::Ownership);
    }
    tracing::info!("stopped");
    Ok(Served::All)
}

/// What follows from a start that failed, once its journal has ended: a node that lost the store meanwhile is a standby again.
async fn failed_start(
    error: ServerError,
    tenure: Option<&Tenure>,
    node: Option<&ClusterNode>,
    responder: StartupResponder,
) -> Result<Served, ServerError> {
    let (Some(tenure), Some(node)) = (tenure, node) else { return Err(error) };
    if !tenure.is_lost() {
        return Err(error);
    }
    if tenure.is_asked() {
        tracing::info!("asked to give the store up while it started; standby again");
    } else {
        tracing::warn!(%error, "another node took the store while this one started; standby again");
    }
    responder.end().await;
    node.give_up(tenure, GivenUp::Fenced).await;
    Ok(Served::Ownership)
}

/// The threads of the actors. Dropping this stops every actor and joins the threads.
struct Arbiters(Vec<Arbiter>);

impl Arbiters {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| Arbiter::new()).collect())
    }

    fn handles(&self) -> Vec<ArbiterHandle> {
        self.0.iter().map(Arbiter::handle).collect()
    }

    fn hosts(&self, context: SubscriptionContext) -> ActorHosts {
        ActorHosts { arbiters: Arc::new(self.handles()), context: Arc::new(context), check_interval: CHECK_INTERVAL }
    }
}

impl Drop for Arbiters {
    fn drop(&mut self) {
        for arbiter in &self.0 {
            arbiter.stop();
        }
        for arbiter in self.0.drain(..) {
            if arbiter.join().is_err() {
                tracing::error!("an arbiter panicked");
            }
        }
    }
}

/// The number of threads that serve HTTP.
fn workers(config: &Config) -> usize {
    if config.server.workers == 0 { cores() } else { config.server.workers }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
