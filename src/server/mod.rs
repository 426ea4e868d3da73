//! Wiring, and the order of starting and stopping.
//!
//! Start: the addresses are bound and answer that the server starts (`starting`); the store is opened and recovered; the
//! actors of what is owed run before `/readyz` says so. Stop: clients that wait for events are answered, publishers are
//! refused after a second, what is in flight is finished (bounded), what was answered is flushed, and only then does the
//! process end. A second signal ends it at once.

mod blob_notifier;
mod chaos;
mod dead_letter_routing;
pub mod descriptors;
mod file_modes;
mod front;
mod issuer;
mod listener;
mod live_subscriptions;
pub mod memory;
mod reload;
mod service_notifier;
mod settings;
mod starting;
mod timekeeping;
mod tls;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix::Arbiter;
use actix_web::{dev::ServerHandle, web};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    dead_letter_routing::DeadLetterRouting,
    descriptors::DescriptorBudget,
    listener::{HttpListener, ListenerContext},
    live_subscriptions::LiveSubscriptions,
    service_notifier::ServiceNotifier,
    starting::Starting,
};
use crate::{
    admin::{self, ChaosTargets, Control, DeadLetterHandle, auth, health, metrics::MetricSources},
    cli::fsck::{accounts, store_options},
    config::{self, Config},
    control::{
        expiry, filter_versions,
        registry::{self, Registry},
    },
    dead_letter::{self, DeadLetterStores, Redrives},
    declared::{self, Declared},
    event::PartitionId,
    fanout::LOOK,
    journal::{self, Journal},
    publish::http::Publisher,
    pull::LockTokenSealer,
    repair::backup::Backups,
    store::{
        StoreError,
        chunk::Chunk,
        rocks::{RocksOptions, RocksStore, STORE},
    },
    subscription::{EndpointValidator, ReadBudget, SharedState, SubscriptionContext},
    supervision::{
        Lifeline, SupervisionHistory,
        actor_factory::{self, ActorHosts},
    },
    telemetry::{LogFilter, trace},
};

/// The exit status of a process whose store failed: what sysexits calls an I/O error.
const EX_IOERR: i32 = 74;

/// The exit status of a process that was told twice to stop.
const EX_AT_ONCE: i32 = 130;

/// How often it is asked whether everything in flight has landed.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// So long at the most publishers are still served after a signal.
const HAND_OVER: Duration = Duration::from_secs(1);

/// How often it is asked whether anybody has the store, at the end, when all threads are ending …
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// … and how many times at the most.
const CLOSE_POLLS: u32 = 5000;

/// Why the server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data folder or a socket.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] crate::store::rocks::OpenError),
    /// What the store has.
    #[error("{0}{advice}", advice = remedy(.0))]
    Journal(#[from] journal::Error),
    /// The control plane's records.
    #[error("{0}{advice}", advice = remedy_of(.0))]
    Registry(#[from] registry::Error),
    /// The stores of dead letters.
    #[error("the store {0} of dead letters: {1}")]
    Sink(String, dead_letter::sink::SinkError),
    /// The keys of the issuer of access tokens.
    #[error("auth.jwks: {0}")]
    Issuer(String),
    /// The file with what is to be there.
    #[error("server.apply: {0}")]
    Declared(#[from] crate::declared::DeclaredError),
    /// What it declares could not be made.
    #[error("server.apply: {0}")]
    Undone(#[from] admin::ApplyError),
    /// The system allows too few open files.
    #[error(
        "the system allows this process {limit} open files, and it needs at least {least}; raise the hard limit (ulimit -Hn, \
         LimitNOFILE= of a systemd unit)"
    )]
    Descriptors {
        /// How many it allows.
        limit: usize,
        /// How many are needed.
        least: usize,
    },
    /// The control group allows too little memory.
    #[error(
        "the control group of the process allows {limit} of memory, and these settings need at least {least}; raise the limit \
         (MemoryMax= of a systemd unit, resources.limits.memory of a container), or lower publish.request_bytes and \
         publish.event_bytes"
    )]
    Memory {
        /// How much it allows.
        limit: bytesize::ByteSize,
        /// How much is needed.
        least: bytesize::ByteSize,
    },
    /// Certificates.
    #[error(transparent)]
    Trust(#[from] crate::deliver::trust::TrustError),
}

/// What to do about a store that cannot be served.
/// Under a service manager with a runtime folder, the commands of the operators' group find the admin token there.
fn share_token(token: &auth::AdminToken) {
    let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty()) else { return };
    if let Err(error) = auth::share(token, std::path::Path::new(&folder)) {
        tracing::warn!(%error, "the admin token was not shared with the operators' group");
    }
}

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

/// Serves until a signal comes, and ends well.
pub fn run(mut config: Config, sources: config::SettingSources, log: LogFilter) -> Result<(), ServerError> {
    if let Some(limit) = memory::limit() {
        memory::fit(&mut config, limit)?;
    }
    let budget = descriptors::take(2 * cores() + workers(&config))?;
    let declared = declared(&config)?;
    file_modes::keep(&config).map_err(io_error("the data folder"))?;
    let mut opened = None;
    let served = actix_rt::System::new().block_on(serve(config, (sources, log), declared, budget, &mut opened));
    if let Some(store) = opened {
        close(store);
    }
    served
}

/// Reads every file that the settings name as a start does, and starts nothing.
///
/// # Errors
/// Where a server could not start with them.
pub fn check(config: &Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tls::listening(&config.server)?;
    let budget = descriptors::take(cores())?;
    settings::client(config, &[], &budget)?;
    issuer::check(config)?;
    Ok(())
}

/// Closes the store on this thread, when nobody else has it any more: RocksDB must not be in use on another thread, nor
/// be closed there, while the process ends and takes its globals down.
fn close(store: Arc<RocksStore>) {
    for _ in 0..CLOSE_POLLS {
        if Arc::strong_count(&store) == 1 {
            return;
        }
        std::thread::sleep(CLOSE_POLL);
    }
    tracing::warn!("the store is still in use at the end");
    // Then nobody closes it: the writer has ended what it does by itself, and its memory goes with the process.
    std::mem::forget(store);
}

/// What the operator's file declares, if there is one: read before anything is opened.
fn declared(config: &Config) -> Result<Option<Declared>, ServerError> {
    let load = |file: &PathBuf| declared::load(file, &declared::ResourceGroup::default(), &BTreeMap::new());
    Ok(config.server.apply.as_ref().map(load).transpose()?)
}

async fn serve(
    config: Config,
    (written, log): (config::SettingSources, LogFilter),
    declared: Option<Declared>,
    budget: DescriptorBudget,
    opened: &mut Option<Arc<RocksStore>>,
) -> Result<(), ServerError> {
    // Heard from here on: a signal that nobody hears would end the process.
    let signals = reload::ReloadSignals::install().map_err(io_error("cannot hear signals"))?;
    let door = HttpListener::open(&config)?;
    let vitals = web::Data::new(health::ServerHealth::starting());
    let starting = Starting::begin(&door, &config, &budget, vitals.clone())?;
    let store = Arc::clone(opened.insert(open(&config, &budget, &vitals).await?));
    vitals.at(health::StartStep::new("the records are read"));
    let tools = ChaosTargets::default();
    let (clock, timekeeper) = timekeeping::begin(&config, tools.skew.clone());
    let (started, timekeeper) = (clock.now(), Rc::new(timekeeper));
    actix_rt::spawn(Rc::clone(&timekeeper).run());
    let data_dir = &config.server.data_dir;
    let configured = config.server.admin_token.as_ref().map(crate::config::Secret::expose);
    let token = auth::admin_token(configured, data_dir).map_err(io_error("the admin token"))?;
    if let auth::TokenOrigin::Made = token.origin() {
        println!("the admin token is in {}", auth::token_path(data_dir).display());
    }
    share_token(&token);

    let (options, of_store) = (rocks_options(&config, &budget), Arc::downgrade(&store));
    let backups = Backups::new(of_store, data_dir.clone(), options, accounts(), clock.clone());
    let registry: Arc<OnceLock<Arc<Registry>>> = Arc::default();
    let hears = Arc::clone(&registry);
    let listener = move |partition: PartitionId, chunks: Vec<Chunk>| {
        if let Some(registry) = hears.get() {
            registry.appended(partition, chunks);
        }
    };
    let (journal, writer) = Journal::start(
        chaos::store(&config, store, &tools),
        clock.clone(),
        settings::journal_options(&config),
        Box::new(listener),
        Box::new(fatal),
    )?;
    let _scrub = journal.scrub(config.journal.scrub);
    let client = settings::client(&config, door.addresses(), &budget)?;
    let (sockets, world_client) = (client.sockets.clone(), client.clone());
    let rules = settings::rules(&config, &client.identities, door.addresses());
    let (recovered, starts) = Registry::recover(journal.clone(), rules, config.topic.tail_bytes)?;
    let recovered = Arc::clone(registry.get_or_init(|| Arc::new(recovered)));

    let notifier = blob_notifier::of(&config, &recovered, &journal);
    let sinks = settings::sinks(&config)?;
    let graves = DeadLetterRouting { registry: Arc::clone(&recovered), places: config.dead_letter.places.clone() };
    let options = dead_letter::WriterOptions::default();
    let (stores, lifeline) =
        (DeadLetterStores::new(&journal, &clock, sinks, (graves.aim(), notifier), options), Lifeline::new());
    for (subscription_key, due) in journal.reads().all_dead()? {
        if let Some(shared) = recovered.shared(subscription_key) {
            graves.notify_stores(&stores, &shared, due);
        }
    }
    let mut dead_letters = Vec::new();
    for (name, letters) in stores.all() {
        let (store, history, reached) = (name.to_owned(), Arc::new(SupervisionHistory::default()), letters.clone());
        let kept = dead_letter_routing::keep(
            store.clone(),
            letters.clone(),
            Arc::clone(&history),
            clock.clone(),
            lifeline.held(),
        );
        actix_rt::spawn(kept);
        let suffer = Box::new(move |suffer| reached.inject(suffer));
        dead_letters.push(DeadLetterHandle { store, history, inject: suffer });
    }
    let tools = ChaosTargets { dead_letters, ..tools };

    let (tracer, exporter) = trace::start(&config.telemetry, clock.clone(), door.public_url.clone())
        .map_err(io_error("the thread that exports traces"))?
        .unzip();
    let tracer = tracer.unwrap_or_default();
    let strangers = Arc::new(settings::failed_auth_limiter(&config));
    let issuer::TokenAccess { gate, operators, keys } =
        issuer::gate(&config, &token, &client.trust, Arc::clone(&strangers))
            .map_err(|error| ServerError::Issuer(error.to_string()))?;
    let told = stores.clone();
    let put_aside = Arc::new(move |shared: &SharedState, due| graves.notify_stores(&told, shared, due));
    let world = SubscriptionContext {
        journal: journal.clone(),
        clock: clock.clone(),
        client: client.clone(),
        put_aside,
        response_faults: Arc::clone(&tools.response_faults),
        tracer: tracer.clone(),
        feed: Arc::clone(recovered.feed()),
        read_budget: ReadBudget::new(config.limits.read_bytes),
    };
    let arbiters = Arbiters::start(cores());
    let notifier = Rc::new(ServiceNotifier::of_environment());
    actix_rt::spawn(Rc::clone(&notifier).watch(arbiters.0.iter().map(Arbiter::handle).collect()));
    let handles = Arc::new(arbiters.0.iter().map(Arbiter::handle).collect());
    let hosts = ActorHosts { arbiters: handles, world: Arc::new(world), look: LOOK };
    let manners = settings::validation_settings(&config, door.public_url.clone());
    recovered.greet_with(EndpointValidator::new(client, clock.clone(), manners));
    // What expired while the server was down sends nothing any more, but its farewell.
    if !clock.holds_expiry() {
        expiry::sweep(&recovered, clock.now()).await;
    }
    actix_rt::spawn(memory::give_back());
    actix_rt::spawn(expiry::run(Arc::clone(&recovered), clock.clone()));
    actix_rt::spawn(filter_versions::run(Arc::clone(&recovered), journal.clone()));
    actix_rt::spawn(actor_factory::run(starts, hosts));

    let limits = settings::publish_limits(&config);
    let publisher = Publisher::new(Arc::clone(&recovered), journal.clone(), clock.clone(), limits, gate);
    let spans = settings::spans(tracer.clone());
    let publisher = web::Data::new(publisher.traced_by(tracer));
    {
        let journal = journal.clone();
        let damage = journal.damage().clone();
        vitals.attach_damage(move || damage.seen());
        vitals.attach(move || journal.state());
    }
    let roster = LiveSubscriptions { registry: Arc::clone(&recovered), limits: settings::publish_limits(&config) };
    let redrives = Redrives::new(journal.clone(), clock.clone(), stores.clone(), Arc::new(roster));
    redrives.resume()?;
    let of_ready = vitals.clone();
    let counted = door.counted();
    let sources = MetricSources {
        journal: Some(journal.clone()),
        publisher: Some(publisher.clone()),
        listeners: counted.clone(),
        clock: Some(clock.clone()),
        sockets: Some(Box::new(move || (sockets.free() as u64, sockets.waiting() as u64))),
        ready: Some(Box::new(move || of_ready.readiness().ready)),
        spans,
    };
    let exposition = settings::exposition(&config, sources, started).map_err(io_error("metrics.token"))?;
    let control = Control::new(Arc::clone(&recovered), clock, settings::editions(&config), door.public_url.clone())
        .with_dead_letters(redrives)
        .with_backups(backups)
        .guarded_by(strangers)
        .operated_by(operators)
        .with_metrics(exposition)
        .with_tools(tools);
    let control = web::Data::new(control);
    if let Some(declared) = declared
        && let Err(undone) = admin::declare(&control, &declared).await
    {
        recovered.close();
        journal.close();
        writer.join();
        return Err(undone.into());
    }
    let tokens = web::Data::new(LockTokenSealer::recover(&journal).await?);
    let behind = ListenerContext {
        control: control.clone(),
        publisher: publisher.clone(),
        tokens,
        health: vitals.clone(),
        token,
    };
    let own_url = door.own_url();
    let reload = reload::Reload {
        sources: written,
        log,
        token: behind.token.clone(),
        control: control.clone(),
        certificate: door.shown.clone(),
        identities: world_client.identities.clone(),
        trust: world_client.trust.clone(),
        keys,
    };
    actix_rt::spawn(Rc::new(reload).run(signals, config.clone()));
    starting.end().await;
    let http = door.serve(&config, &budget, behind)?;
    let handle = http.handle();
    vitals.enter(health::StartPhase::Serving);
    notifier.ready(&own_url);
    let serving = actix_rt::spawn(http);
    wait_for_a_signal().await?;

    vitals.enter(health::StartPhase::Stopping);
    notifier.stopping();
    control.end_chaos();
    publisher.end_polls();
    let open = || counted.iter().map(|listener| listener.open.get()).sum::<u64>();
    hand_over(open).await;
    publisher.close();
    recovered.close();
    drain(&recovered, config.server.shutdown_wait, handle).await;
    if !stores.settle(config.server.shutdown_wait).await {
        tracing::warn!("stopping with a dead-letter file in hand: it will be written again");
    }
    serving.await.map_err(|error| io_error("serving")(io::Error::other(error)))?.map_err(io_error("serving"))?;
    timekeeper.note();
    journal.close();
    writer.join();
    drop(arbiters);
    if let Some(exporter) = exporter {
        exporter.close();
    }
    tracing::info!("stopped");
    Ok(())
}

/// Threads with actors. They end, and all actors on them, when this is dropped.
struct Arbiters(Vec<Arbiter>);

impl Arbiters {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| Arbiter::new()).collect())
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

/// Publishers are still served for a moment after `/readyz` has turned, so that whoever spreads load can send them elsewhere;
/// where nobody is connected it is over at once.
async fn hand_over(open: impl Fn() -> u64) {
    let alone = async {
        while open() > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    // Whoever is connected then is refused and told to come again.
    tokio::time::timeout(HAND_OVER, alone).await.ok();
}

/// Waits until what is in flight has landed, but no longer than `most`; the HTTP server answers meanwhile.
async fn drain(registry: &Registry, most: Duration, http: ServerHandle) {
    let landed = async {
        while registry.in_flight() > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    if tokio::time::timeout(most, landed).await.is_err() {
        tracing::warn!(in_flight = registry.in_flight(), "stopping with requests in flight: they will be repeated");
    }
    http.stop(true).await;
}

async fn wait_for_a_signal() -> Result<(), ServerError> {
    let hear = |kind| signal(kind).map_err(io_error("cannot hear signals"));
    let (mut terminate, mut interrupt) = (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    next_signal(&mut terminate, &mut interrupt).await;
    tracing::info!("stopping: publishers are served for a second at the most, what is in flight is finished");
    actix_rt::spawn(async move {
        next_signal(&mut terminate, &mut interrupt).await;
        tracing::warn!("stopping at once");
        std::process::exit(EX_AT_ONCE);
    });
    Ok(())
}

async fn next_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// A failed sync must not be tried again: the kernel may have forgotten what it could not write.
fn fatal(error: &StoreError) {
    // Where it cannot be told, it ends all the same: `eprintln` would panic.
    writeln!(io::stderr(), "gridhook: the store failed, and nothing more may be written: {error}").ok();
    std::process::exit(EX_IOERR);
}

/// Opens the store, on a thread that may wait: the server that answers meanwhile needs this one.
async fn open(
    config: &Config,
    budget: &DescriptorBudget,
    vitals: &health::ServerHealth,
) -> Result<Arc<RocksStore>, ServerError> {
    let (folder, options) = (config.server.data_dir.clone(), rocks_options(config, budget));
    let store = folder.join(STORE);
    vitals.at(health::StartStep::with("the store is opened", move || starting::replayed(&store)));
    let opened = tokio::task::spawn_blocking(move || RocksStore::open(&folder, &options)).await;
    let opened = opened.map_err(|error| io_error("opening the store")(io::Error::other(error)))?;
    let store = Arc::new(opened?);
    file_modes::narrow(&config.server.data_dir).map_err(io_error("the data folder"))?;
    Ok(store)
}

/// How the server opens its store: with as many tables as there are descriptors for.
fn rocks_options(config: &Config, budget: &DescriptorBudget) -> RocksOptions {
    RocksOptions { open_tables: budget.tables(), ..store_options(&config.journal) }
}

/// Threads that serve HTTP.
fn workers(config: &Config) -> usize {
    if config.server.workers == 0 { cores() } else { config.server.workers }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
