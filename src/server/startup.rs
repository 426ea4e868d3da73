//! The steps of the phases of a start, in the order in which `serve` calls them.

use std::{
    io::{self, Write},
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix_web::web;

use super::{
    ServerError, certificates, chaos,
    client_listeners::ClientListeners,
    dead_letter_routing::DeadLetterRouting,
    io_error, issuer,
    local_topics::NamespaceTopics,
    memory,
    router::OtherShards,
    serve::{Bound, Delivery, JournalTarget, Recovered},
    settings,
    system_topic::SystemTopic,
    timekeeping::{self, Timekeeper},
};
use gridhook_admin as admin;
use gridhook_admin::{ChaosTargets, Control, admin_token, health, metrics::MetricSources};
use gridhook_clock::{Clock, OwnerClock};
use gridhook_compute::Compute;
use gridhook_config::{Config, Secret};
use gridhook_dead_letter::DeadLetterStores;
use gridhook_declared::Declared;
use gridhook_deliver::ClientOptions;
use gridhook_engine::control::{
    audit::{AuditLimits, AuditTrail},
    expiry, filter_versions,
    registry::{self, Registry},
    validation::EndpointValidator,
};
use gridhook_journal::{Journal, WriterThreads};
use gridhook_publish::{
    auth::{Authenticator, host::ReachedUrls},
    http::Publisher,
};
use gridhook_store::StoreError;
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
