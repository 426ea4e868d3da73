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
mod file_modes;
mod front;
mod issuer;
mod listener;
mod live_subscriptions;
mod local_topics;
pub mod memory;
mod reload;
mod service_notifier;
mod settings;
mod shutdown;
mod startup;
mod startup_responder;
mod system_topic;
mod timekeeping;
mod tls;

use std::{collections::BTreeMap, io, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use actix::{Arbiter, ArbiterHandle};
use actix_web::web;

pub use self::settings::editions;
use self::{
    descriptors::DescriptorBudget,
    listener::{HttpListener, ListenerContext},
    reload::ReloadSignals,
    startup::{Core, DeadLetterService},
    startup_responder::StartupResponder,
};
use crate::{
    admin::{self, ChaosTargets, health},
    cli::destination,
    config::{self, Config},
    control::registry::{self, Registry},
    dead_letter,
    declared::{self, Declared},
    fanout::CHECK_INTERVAL,
    journal,
    pull::LockTokenSealer,
    store::rocks::RocksStore,
    subscription::SubscriptionContext,
    supervision::actor_factory::{self, ActorHosts},
    telemetry::LogFilter,
};

/// The interval between two checks whether the store is released at the end.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The number of these checks.
const CLOSE_POLLS: u32 = 5000;

/// The server failed to start or to stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An I/O error of the data folder or a socket.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] crate::store::rocks::OpenError),
    /// The journal cannot be recovered.
    #[error("{0}{advice}", advice = remedy(.0))]
    Journal(#[from] journal::Error),
    /// The records of the control plane cannot be recovered.
    #[error("{0}{advice}", advice = remedy_of(.0))]
    Registry(#[from] registry::Error),
    /// A dead-letter store cannot be opened.
    #[error("dead_letter.stores.{0}: {1}")]
    Sink(String, dead_letter::sink::SinkError),
    /// The signing keys of the token issuer cannot be read.
    #[error("{0}")]
    Issuer(String),
    /// The configuration file of `server.apply` cannot be read.
    #[error("server.apply: {0}")]
    Declared(#[from] crate::declared::DeclaredError),
    /// A resource of that file cannot be created.
    #[error("server.apply: {0}")]
    Undone(#[from] admin::ApplyError),
    /// The limit of open files is too low.
    #[error(
        "the limit of open files is {limit}, and the server needs at least {least}; raise the hard limit (ulimit -Hn, or \
         LimitNOFILE= of a systemd unit)"
    )]
    Descriptors {
        /// The limit.
        limit: usize,
        /// The minimum.
        least: usize,
    },
    /// The memory limit of the control group is too low.
    #[error(
        "the memory limit of the control group is {limit}, and these settings need at least {least}; raise the limit \
         (MemoryMax= of a systemd unit, resources.limits.memory of a container), or lower publish.request_bytes and \
         publish.event_bytes"
    )]
    Memory {
        /// The limit.
        limit: bytesize::ByteSize,
        /// The minimum.
        least: bytesize::ByteSize,
    },
    /// The key of backups cannot be used.
    #[error("{0}")]
    Backup(String),
    /// The certificates cannot be loaded.
    #[error(transparent)]
    Trust(#[from] crate::deliver::trust::TrustError),
}

/// Advice for the operator of a store that cannot be served.
fn remedy(error: &journal::Error) -> &'static str {
    match error {
        journal::Error::Damaged(_) => "; restore a backup, or accept the loss with gridhook restore --accept-loss",
        _ => "",
    }
}

fn remedy_of(error: &registry::Error) -> &'static str {
    match error {
        registry::Error::Journal(error) => remedy(error),
        _ => "",
    }
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    |source| ServerError::Io { what, source }
}

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
    let mut opened = None;
    let launch = Launch { config, sources, log, declared, budget };
    let served = actix_rt::System::new().block_on(serve(launch, &mut opened));
    if let Some(store) = opened {
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

/// The inputs of a start.
struct Launch {
    config: Config,
    sources: config::SettingSources,
    log: LogFilter,
    declared: Option<Declared>,
    budget: DescriptorBudget,
}

/// Runs the server: each line of the start is one step, in the order that the module's documentation gives.
async fn serve(launch: Launch, opened: &mut Option<Arc<RocksStore>>) -> Result<(), ServerError> {
    let Launch { config, sources, log, declared, budget } = launch;
    // The first step, because a signal without a handler ends the process.
    let reload_signals = ReloadSignals::install().map_err(io_error("cannot handle signals"))?;
    let listener = HttpListener::open(&config)?;
    let health = web::Data::new(health::ServerHealth::starting());
    let responder = StartupResponder::begin(&listener, &config, &budget, health.clone())?;
    let store = Arc::clone(opened.insert(startup::open_store(&config, &budget, &health).await?));

    health.at(health::StartStep::new("reading the records"));
    let targets = ChaosTargets::default();
    let (clock, timekeeper) = startup::start_clock(&config, &targets);
    let started = clock.now();
    let token = startup::admin_token(&config)?;
    let backups = startup::backups(&config, &budget, &store, &clock)?;
    let registry_cell = Arc::default();
    let (journal, writer) = startup::start_journal(&config, store, &targets, &clock, &registry_cell)?;
    let _scrub = journal.scrub(config.journal.scrub);
    let client = settings::client(&config, listener.addresses(), &budget)?;
    let rules = settings::rules(&config, &client, listener.addresses());
    let (registry, starts) = Registry::recover(journal.clone(), rules, config.topic.recent_events_bytes)?;
    let registry = Arc::clone(registry_cell.get_or_init(|| Arc::new(registry)));
    let core = Core { config, clock, journal, registry };

    let system_topic = startup::start_system_topic(&core, &client, &listener);
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
    let sources_of_metrics = startup::metric_sources(
        &core,
        &publisher,
        &listener,
        &client,
        &health,
        (tracer, system_topic.as_ref()),
        &backups,
    );
    let exposition =
        settings::exposition(&core.config, sources_of_metrics, started).map_err(io_error("metrics.token"))?;
    let mut control = startup::control(&core, &listener, system_topic.as_ref())?
        .with_dead_letters(redrives)
        .with_tools(targets)
        .with_dashboard(core.config.server.dashboard);
    control.backups = Some(Arc::clone(&backups));
    (control.failed_auth, control.operators, control.exposition) = (failed_auth, operators, exposition);
    let control = web::Data::new(control);
    if let Err(error) = startup::apply_declared(&control, declared).await {
        core.registry.close();
        core.journal.close();
        writer.join();
        return Err(error);
    }
    actix_rt::spawn(admin::record_history(control.clone()));
    let reload = reload::Reload {
        sources,
        log,
        token: token.clone(),
        control: control.clone(),
        certificate: listener.shown.clone(),
        identities: client.identities.clone(),
        trust: client.trust.clone(),
        keys,
    };
    let tokens = web::Data::new(LockTokenSealer::recover(&core.journal).await?);
    let (control_plane, publishers) = (control.clone(), publisher.clone());
    let context =
        ListenerContext { control: control_plane, publisher: publishers, tokens, health: health.clone(), token };
    actix_rt::spawn(Rc::new(reload).run(reload_signals, core.config.clone()));
    responder.end().await;
    let (own_url, counters) = (listener.own_url(), listener.counters());
    let http = listener.serve(&core.config, &budget, context)?;
    let handle = http.handle();
    health.enter(health::StartPhase::Serving);
    startup::start_backups(&core, &backups);
    notifier.ready(&own_url);
    let serving = actix_rt::spawn(http);

    shutdown::wait_for_signal().await?;

    health.enter(health::StartPhase::Stopping);
    notifier.stopping();
    control.end_chaos();
    backup_schedule::stop(&backups).await;
    publisher.end_polls();
    shutdown::serve_until_disconnected(&counters).await;
    publisher.close();
    core.registry.close();
    shutdown::drain(&core.registry, core.config.server.shutdown_wait, handle).await;
    if !stores.settle(core.config.server.shutdown_wait).await {
        tracing::warn!("a dead-letter file is unfinished at the stop; the next start writes it again");
    }
    serving.await.map_err(|error| io_error("serving")(io::Error::other(error)))?.map_err(io_error("serving"))?;
    timekeeper.save();
    core.journal.close();
    writer.join();
    drop(arbiters);
    if let Some(exporter) = exporter {
        exporter.close();
    }
    tracing::info!("stopped");
    Ok(())
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
