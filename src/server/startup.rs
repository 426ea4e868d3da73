//! The steps of the phases of a start, in the order in which `serve` calls them.

use std::{
    io::{self, Write},
    path::PathBuf,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix_web::web;

use super::{
    Launch, ServerError, backup_schedule, certificates, chaos,
    client_listeners::ClientListeners,
    dead_letter_routing::{DeadLetterActorFactory, DeadLetterRouting},
    descriptors::DescriptorBudget,
    file_modes, io_error, issuer,
    live_subscriptions::LiveSubscriptions,
    local_store::LocalStore,
    local_topics::NamespaceTopics,
    memory, recovery,
    router::OtherShards,
    serve::{Bound, Delivery, JournalTarget, Recovered},
    service_notifier::{ActorThreads, ServiceNotifier},
    settings,
    system_topic::SystemTopic,
    timekeeping::{self, Timekeeper},
};
use gridhook_admin as admin;
use gridhook_admin::{
    ChaosTargets, Control, DeadLetterHandle, admin_token, health, metrics::MetricSources,
};
use gridhook_clock::{Clock, OwnerClock};
use gridhook_compute::Compute;
use gridhook_config::{Config, Secret};
use gridhook_dead_letter as dead_letter;
use gridhook_dead_letter::{DeadLetterStores, Redrives, sink::FileFence};
use gridhook_declared::Declared;
use gridhook_deliver::ClientOptions;
use gridhook_engine::{
    control::{
        audit::{AuditLimits, AuditTrail},
        expiry, filter_versions,
        registry::{self, Registry},
        validation::EndpointValidator,
    },
    supervision::{Lifeline, SupervisionHistory, supervise_actor},
};
use gridhook_journal as journal;
use gridhook_journal::{Journal, WriterThreads};
use gridhook_publish::{
    auth::{Authenticator, host::ReachedUrls},
    http::Publisher,
};
use gridhook_repair::backup::Backups;
use gridhook_storage::{destination::backup_destination, record_decoders, store_options};
use gridhook_store::{
    StoreError,
    rocks::{RocksOptions, RocksStore, STORE},
};
use gridhook_subscription::{ReadBudget, SharedState, SubscriptionContext};
use gridhook_telemetry::trace::{self, TraceExporter, Tracer};

/// The exit status after an error of the store: `EX_IOERR` of `sysexits.h`.
const EX_IOERR: i32 = 74;

/// The interval of saving the clock and of returning free memory.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The parts that every later step needs.
pub(super) struct ServerParts {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) journal: Journal,
    pub(super) registry: Arc<Registry>,
    pub(super) compute: Compute,
}

/// Opens the store on a blocking thread, because the interim server runs on this one.
pub(super) async fn open_store(
    config: &Config,
    budget: &DescriptorBudget,
    health: &health::ServerHealth,
) -> Result<Arc<LocalStore>, ServerError> {
    let folder = config.server.data_dir.clone();
    let options = rocks_options(config, budget);
    let store = folder.join(STORE);
    health.set_step(health::StartStep::with_progress(
        "opening the store",
        move || recovery::recovery_progress(&store),
    ));
    let opening = tokio::task::spawn_blocking(move || LocalStore::open(&folder, options));
    let result = opening
        .await
        .map_err(|error| io_error("opening the store")(io::Error::other(error)))?;
    let store = Arc::new(result?);
    file_modes::narrow_modes(&config.server.data_dir).map_err(io_error("the data folder"))?;
    Ok(store)
}

/// A store that cannot be opened, of a shard beside others.
pub(super) fn build_unopened_store(
    config: &Config,
    budget: &DescriptorBudget,
    error: &ServerError,
) -> LocalStore {
    let options = rocks_options(config, budget);
    LocalStore::unopened(&config.server.data_dir, options, error.to_string())
}

/// The options of the store, with as many open tables as the descriptors allow.
fn rocks_options(config: &Config, budget: &DescriptorBudget) -> RocksOptions {
    RocksOptions {
        open_tables: budget.open_tables_max(),
        is_beside_others: config
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.shards > 1),
        ..store_options(&config.journal)
    }
}

/// Starts the clock and the task that saves it for the next process. `owner` is the clock of the
/// owner before.
pub(super) fn start_clock(
    config: &Config,
    targets: &ChaosTargets,
    owner: Option<OwnerClock>,
) -> (Clock, Rc<Timekeeper>) {
    let (clock, timekeeper) = timekeeping::start_clock(config, targets.skew.clone(), owner);
    let timekeeper = Rc::new(timekeeper);
    actix_rt::spawn(run_periodic_upkeep(Rc::clone(&timekeeper)));
    (clock, timekeeper)
}

/// Saves the clock and returns free memory at each [`UPKEEP_INTERVAL`], in one task: on an idle
/// machine a wake costs more than the work.
async fn run_periodic_upkeep(timekeeper: Rc<Timekeeper>) {
    loop {
        timekeeper.observe_clock();
        memory::return_free_pages();
        actix_rt::time::sleep(UPKEEP_INTERVAL).await;
    }
}

/// Reads or creates the admin token, and prints where a new one is.
pub(super) fn load_admin_token(config: &Config) -> Result<admin_token::AdminToken, ServerError> {
    let data_dir = &config.server.data_dir;
    let configured_token = config.server.admin_token.as_ref().map(Secret::expose);
    let token = admin_token::load_or_create(configured_token, data_dir)
        .map_err(io_error("the admin token"))?;
    if let admin_token::TokenOrigin::Generated = token.origin() {
        println!(
            "the admin token is in {}",
            admin_token::token_path(data_dir).display()
        );
    }
    share_token(&token);
    Ok(token)
}

/// Writes the admin token to the runtime folder of the service manager, where there is one. The
/// commands of the operators' group read it there.
pub(super) fn share_token(token: &admin_token::AdminToken) {
    let Some(folder) = std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty())
    else {
        return;
    };
    if let Err(error) = admin_token::share_with_group(token, std::path::Path::new(&folder)) {
        tracing::warn!(%error, "the admin token was not shared with the operators' group");
    }
}

/// The node that makes backups of a cluster's store.
pub(super) struct BackupOwner {
    /// The identifier of the cluster.
    pub(super) cluster_id: String,
    pub(super) fence: FileFence,
}

/// Prepares backups. On a node they belong to its cluster. They hold the store weakly, so that a
/// backup does not delay the end of the process.
pub(super) fn build_backups(
    config: &Config,
    budget: &DescriptorBudget,
    store: &Arc<RocksStore>,
    clock: &Clock,
    owner: Option<BackupOwner>,
    process_dir: Option<PathBuf>,
) -> Result<Arc<Backups>, ServerError> {
    let (cluster_id, fence) = owner
        .map(|BackupOwner { cluster_id, fence }| (cluster_id, fence))
        .unzip();
    let data_dir = config.server.data_dir.clone();
    let destination = backup_destination(&config.backup, None)?;
    let destination = destination.map(|destination| destination.with_fence(fence));
    let backups = Backups::new(
        Arc::downgrade(store),
        data_dir,
        rocks_options(config, budget),
        record_decoders(),
        clock.clone(),
    );
    // Whichever node is the owner makes the backups of a cluster.
    let backups = backups
        .with_process_dir(process_dir)
        .with_destination(destination)
        .owned_by(cluster_id);
    let rate = config
        .cluster
        .as_ref()
        .map_or(u64::MAX, |cluster| cluster.copy_rate);
    Ok(Arc::new(backups.with_transfer_rate(rate)))
}

/// Starts scheduled backups, where the settings have a schedule.
pub(super) fn start_backups(parts: &ServerParts, backups: &Arc<Backups>) {
    if let Some(schedule) = parts.config.backup.schedule {
        actix_rt::spawn(backup_schedule::run(
            Arc::clone(backups),
            schedule,
            parts.clock.clone(),
        ));
    }
}

/// Recovers the journal and starts its writer. Appended events go to the registry of `registry`,
/// once it is set.
pub(super) fn start_journal(
    config: &Config,
    target: JournalTarget,
    targets: &ChaosTargets,
    clock: &Clock,
    registry: &Arc<OnceLock<Arc<Registry>>>,
) -> Result<(Journal, WriterThreads), ServerError> {
    let registry = Arc::clone(registry);
    let JournalTarget { store, on_failure } = target;
    let store = chaos::wrap_store(config, store, targets);
    let options = settings::journal_options(config);
    Ok(Journal::start(
        store,
        clock.clone(),
        options,
        Box::new(move |partition, chunks| {
            if let Some(registry) = registry.get() {
                registry.pass_on_chunks(partition, chunks);
            }
        }),
        on_failure,
    )?)
}

/// Ends the process. A failed sync must not be repeated: the kernel may have dropped the pages that
/// it could not write.
pub(super) fn exit_on_store_error(error: &StoreError) {
    // Not `eprintln`, which panics where standard error is closed.
    writeln!(
        io::stderr(),
        "gridhook: the store failed, and nothing more may be written: {error}"
    )
    .ok();
    std::process::exit(EX_IOERR);
}

/// The dead-letter stores and their actors.
pub(super) struct DeadLetterService {
    pub(super) stores: DeadLetterStores,
    pub(super) routing: DeadLetterRouting,
    pub(super) handles: Vec<DeadLetterHandle>,
    /// The actors run as long as this is held.
    pub(super) lifeline: Lifeline,
}

/// Starts one actor for each dead-letter store, and routes the dead letters of the journal to them.
pub(super) fn start_dead_letters(
    parts: &ServerParts,
    system_topic: Option<&Arc<SystemTopic>>,
    fence: Option<&FileFence>,
) -> Result<DeadLetterService, ServerError> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        ..
    } = parts;
    let notifier = system_topic.map(SystemTopic::notifier);
    let sinks = settings::open_sinks(config)?.into_iter();
    let sinks = sinks.map(|(name, sink)| (name, sink.with_fence(fence.cloned())));
    let sinks: Vec<_> = sinks.collect();
    let routing = DeadLetterRouting {
        registry: Arc::clone(registry),
        named_stores: config.dead_letter.named_stores.clone(),
    };
    let options = dead_letter::WriterOptions::default();
    let stores = DeadLetterStores::new(
        journal,
        clock,
        sinks,
        routing.target_lookup(),
        notifier,
        options,
    );
    let lifeline = Lifeline::new();
    for (subscription_key, due) in journal.reader_pool().all_dead()? {
        if let Some(shared) = registry.shared_state(subscription_key) {
            routing.notify_stores(&stores, &shared, due);
        }
    }
    let mut handles = Vec::new();
    for (name, dead_letters) in stores.list_stores() {
        let store = name.to_owned();
        let history = Arc::new(SupervisionHistory::default());
        let target = dead_letters.clone();
        let factory = DeadLetterActorFactory {
            store: store.clone(),
            dead_letters: dead_letters.clone(),
            history: Arc::clone(&history),
            clock: clock.clone(),
        };
        actix_rt::spawn(supervise_actor(factory, lifeline.new_watch()));
        let inject = Box::new(move |fault| target.inject_fault(fault));
        handles.push(DeadLetterHandle {
            store,
            history,
            inject,
        });
    }
    Ok(DeadLetterService {
        stores,
        routing,
        handles,
        lifeline,
    })
}

/// Starts the export of traces, where the settings name a collector.
pub(super) fn start_tracing(
    parts: &ServerParts,
    address: &ClientListeners,
) -> Result<(Tracer, Option<TraceExporter>), ServerError> {
    let (tracer, exporter) = trace::start(
        &parts.config.telemetry,
        parts.clock.clone(),
        address.public_url.clone(),
    )
    .map_err(io_error("the thread that exports traces"))?
    .unzip();
    Ok((tracer.unwrap_or_default(), exporter))
}

pub(super) fn build_subscription_context(
    parts: &ServerParts,
    client: &ClientOptions,
    targets: &ChaosTargets,
    tracer: &Tracer,
    routing: DeadLetterRouting,
    stores: DeadLetterStores,
) -> SubscriptionContext {
    SubscriptionContext {
        journal: parts.journal.clone(),
        clock: parts.clock.clone(),
        client: client.clone(),
        on_dead_letter: Arc::new(move |shared: &SharedState, due| {
            routing.notify_stores(&stores, shared, due)
        }),
        response_faults: Arc::clone(&targets.response_faults),
        tracer: tracer.clone(),
        feed: Arc::clone(parts.registry.feed()),
        read_budget: ReadBudget::new(parts.config.limits.read_bytes),
        compute: parts.compute.clone(),
    }
}

/// Reports a standby, or a node whose cores have these threads, to the service manager, and serves
/// its watchdog until the task is aborted.
pub(super) fn notify_standby(url: &str, threads: ActorThreads) -> tokio::task::JoinHandle<()> {
    let notifier = Rc::new(ServiceNotifier::from_environment());
    notifier.notify_ready(url);
    actix_rt::spawn(notifier.ping_watchdog(threads))
}

/// Connects to the service manager and starts its watchdog. The core of a shard leaves that to its
/// process.
pub(super) fn start_service_notifier(launch: &Launch) -> Rc<ServiceNotifier> {
    if launch.core.is_some() {
        return Rc::new(ServiceNotifier::disabled());
    }
    let notifier = Rc::new(ServiceNotifier::from_environment());
    actix_rt::spawn(Rc::clone(&notifier).ping_watchdog(launch.threads.clone()));
    notifier
}

pub(super) fn start_validation(
    parts: &ServerParts,
    client: ClientOptions,
    address: &ClientListeners,
) {
    let settings = settings::validation_settings(&parts.config, address.public_url.clone());
    parts.registry.set_validator(EndpointValidator::new(
        client,
        parts.clock.clone(),
        settings,
    ));
}

/// Starts the deletion of event subscriptions that have expired.
pub(super) async fn start_expiry(parts: &ServerParts) {
    let ServerParts {
        clock, registry, ..
    } = parts;
    // Before the actors start, so that a subscription that expired meanwhile sends no event but its
    // deletion event.
    if !clock.expiry_is_paused() {
        expiry::delete_expired(registry, clock.now()).await;
    }
    actix_rt::spawn(expiry::run(Arc::clone(registry), clock.clone()));
}

/// Starts the removal of versions of filters that no event needs any more.
pub(super) fn start_filter_version_sweep(parts: &ServerParts) {
    let ServerParts {
        journal, registry, ..
    } = parts;
    actix_rt::spawn(filter_versions::run(Arc::clone(registry), journal.clone()));
}

pub(super) fn build_publisher(
    parts: &ServerParts,
    gate: Authenticator,
    tracer: Tracer,
) -> web::Data<Publisher> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        compute,
    } = parts;
    let limits = settings::publish_limits(config);
    let publisher = Publisher::new(
        Arc::clone(registry),
        journal.clone(),
        clock.clone(),
        limits,
        gate,
    );
    web::Data::new(publisher.with_tracer(tracer).with_compute(compute.clone()))
}

/// Lets event subscriptions deliver to the topics of namespaces.
pub(super) fn attach_topics(
    parts: &ServerParts,
    client: &ClientOptions,
    publisher: &web::Data<Publisher>,
    others: Option<OtherShards>,
) {
    let registry = Arc::downgrade(&parts.registry);
    let publisher = Arc::downgrade(&publisher.clone().into_inner());
    client.topics.get_or_init(|| {
        Arc::new(NamespaceTopics {
            registry,
            publisher,
            others,
        })
    });
}

/// Lets `/readyz` report the state of the journal and the damage it has found.
pub(super) fn attach_journal(health: &health::ServerHealth, journal: &Journal) {
    let damage = journal.known_damage().clone();
    let journal = journal.clone();
    health.attach_damage(move || damage.read_summary());
    health.attach_journal(move || journal.writer_state());
}

/// Resumes the redrives that the last process had not finished.
pub(super) fn resume_redrives(
    parts: &ServerParts,
    stores: &DeadLetterStores,
) -> Result<Redrives, journal::Error> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        ..
    } = parts;
    let subscriptions = LiveSubscriptions {
        registry: Arc::clone(registry),
        limits: settings::publish_limits(config),
    };
    let redrives = Redrives::new(
        journal.clone(),
        clock.clone(),
        stores.clone(),
        Arc::new(subscriptions),
    );
    redrives.resume_redrives()?;
    Ok(redrives)
}

/// The sources of `/metrics`, without the cluster.
pub(super) fn build_metric_sources(
    recovered: &Recovered,
    delivery: &Delivery,
    bound: &Bound,
) -> MetricSources {
    let Recovered {
        parts,
        client,
        backups,
        ..
    } = recovered;
    let Delivery {
        publisher,
        tracer,
        system_topic,
        certificates,
        ..
    } = delivery;
    let Bound {
        address, health, ..
    } = bound;
    let sockets = client.sockets.clone();
    let health = health.clone();
    let backups = Arc::clone(backups);
    let interval = parts
        .config
        .backup
        .schedule
        .map(|schedule| schedule.interval());
    MetricSources {
        journal: Some(parts.journal.clone()),
        publisher: Some(publisher.clone()),
        listeners: address.counters.clone(),
        clock: Some(parts.clock.clone()),
        sockets: Some(Box::new(move || {
            (
                sockets.available_permits() as u64,
                sockets.waiting_count() as u64,
            )
        })),
        ready: Some(Box::new(move || health.readiness().ready)),
        spans: settings::span_counts(tracer.clone()),
        backups: Some(Box::new(move || Some((backups.read_figures()?, interval)))),
        system_events: system_topic.as_ref().map(|topic| Arc::clone(&topic.events)),
        certificates: Some(certificates::certificate_expiries(Arc::clone(certificates))),
        cluster: None,
    }
}

/// The control plane, without its optional parts.
pub(super) fn build_control(
    parts: &ServerParts,
    address: &ClientListeners,
    system_topic: Option<&Arc<SystemTopic>>,
) -> Result<Control, registry::Error> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        compute,
    } = parts;
    let limits = AuditLimits {
        records: config.journal.audit_records,
        retention: config.journal.audit_retention,
    };
    let trail = AuditTrail::recover(
        journal.clone(),
        limits,
        system_topic.map(|topic| Arc::clone(&topic.events)),
    )?;
    let editions = settings::editions(config);
    let public_url = address.public_url.clone();
    let control = Control::new(Arc::clone(registry), clock.clone(), editions, public_url);
    let mut control = control
        .with_audit_trail(trail)
        .with_compute(compute.clone());
    control.edition_tables = settings::edition_tables(config);
    control.ignores_foreign = config.deployments.ignore_foreign;
    control.reached = ReachedUrls {
        proxies: config.auth.trusted_proxies.clone(),
        names: issuer::server_names(config),
    };
    Ok(control)
}

/// Creates what the file of `server.apply` declares.
pub(super) async fn apply_declared(
    control: &Control,
    declared: Option<Declared>,
) -> Result<(), ServerError> {
    if let Some(declared) = declared {
        admin::apply_declared(control, &declared).await?;
    }
    Ok(())
}
