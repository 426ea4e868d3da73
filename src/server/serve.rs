//! One run of the server: the phases of its start in order, and its end. The owner of a cluster's
//! store has a run for each ownership.
//!
//! Each phase is a struct with what later phases need of it. A start that fails, or that a signal
//! ends, closes what the phases before have opened.

mod stop;

use std::{rc::Rc, sync::Arc};

use actix_rt::task::JoinHandle;
use actix_web::web;

use self::stop::{RunEnd, Running};
use super::{
    Arbiters, Kept, Launch, ServerError, ShardCore,
    certificates::{self, ShownCertificates},
    client_address::ClientAddress,
    control_copy::FollowedControl,
    descriptors::DescriptorBudget,
    error::io_error,
    issuer::{self, KeySetSource, TokenAccess},
    listener::{self, HttpListener, ListenerContext},
    node::{self, Ownership, Standing, TenureEnd},
    reload::{Reload, ReloadSignals},
    running_server::RunningServer,
    service_notifier::ServiceNotifier,
    settings,
    shutdown::{self, StopSignals},
    startup::{self, Core, DeadLetterService},
    system_topic::{self, SystemTopic},
    timekeeping::Timekeeper,
    use_rules,
};
use gridhook_admin as admin;
use gridhook_admin::{
    ChaosTargets, Control, admin_token::AdminToken, health, metrics::MetricSources,
};
use gridhook_clock::Clock;
use gridhook_compute::Compute;
use gridhook_dead_letter::DeadLetterStores;
use gridhook_deliver::ClientOptions;
use gridhook_engine::{
    control::registry::{Registry, StartQueue},
    supervision::{Lifeline, actor_factory},
};
use gridhook_event::Timestamp;
use gridhook_journal::{FatalHandler, Scrub, WriterThreads};
use gridhook_metrics::ListenerCounters;
use gridhook_publish::{
    auth::{bearer::TokenIssuer, failed_auth::FailedAuthLimiter},
    http::Publisher,
};
use gridhook_pull::LockTokenSealer;
use gridhook_repair::backup::Backups;
use gridhook_store::{Store, rocks::RocksStore};
use gridhook_telemetry::trace::{TraceExporter, Tracer};

/// What has ended.
pub(super) enum Served {
    /// This run. Another one follows.
    Run,
    All,
}

/// Runs the server until a signal stops it, its ownership of a cluster's store has ended, or its
/// clock is set back.
pub(super) async fn run_server(launch: &Launch, kept: &mut Kept) -> Result<Served, ServerError> {
    // The first step, because a signal without a handler ends the process.
    let reload_signals = ReloadSignals::install().map_err(io_error("cannot handle signals"))?;
    let mut bound = Bound::open(launch, kept)?;
    // A signal that arrives while a server begins again stops it once it serves.
    let earlier_signals = kept.signals.take_if(|_| launch.config.cluster.is_none());
    let Some(OwnedStore {
        local,
        target,
        mut ownership,
    }) = OwnedStore::take_store(launch, kept, &mut bound).await?
    else {
        return bound.stop(kept).await;
    };
    let mut targets = ChaosTargets::default();
    let (recovered, starts) =
        match Recovered::read(launch, &bound, &local, target, &targets, ownership.as_ref()) {
            Ok(read) => read,
            Err(error) => {
                return bound
                    .abandon_start(ownership, StartEnd::Failed(error))
                    .await;
            }
        };
    let delivery = match Delivery::start(
        launch,
        &recovered,
        &bound,
        starts,
        &mut targets,
        ownership.as_ref(),
    )
    .await
    {
        Ok(delivery) => delivery,
        Err(error) => {
            return recovered
                .abandon_start(bound, ownership, StartEnd::Failed(error))
                .await;
        }
    };
    let control = match build_control(
        launch,
        &recovered,
        &delivery,
        &bound,
        &local,
        targets,
        ownership.as_ref(),
    ) {
        Ok(control) => control,
        Err(error) => {
            return recovered
                .abandon_start(bound, ownership, StartEnd::Failed(error))
                .await;
        }
    };
    let tokens = match write_first(&control, launch, &recovered, ownership.as_mut()).await {
        Ok(tokens) => web::Data::new(tokens),
        Err(end) => return recovered.abandon_start(bound, ownership, end).await,
    };
    actix_rt::spawn(admin::record_history(control.clone()));
    let reload = Rc::new(build_reload(
        launch, &recovered, &delivery, &bound, &control,
    ));
    actix_rt::spawn(reload.run(reload_signals, launch.config.clone()));
    // The service manager may stop the server as soon as it is ready.
    let mut stop_signals = match earlier_signals {
        Some(signals) => signals,
        None => StopSignals::install()?,
    };
    let listening = match Listening::begin(
        &recovered,
        &delivery,
        &control,
        bound,
        tokens,
        ownership.as_ref(),
    )
    .await
    {
        Ok(listening) => listening,
        Err(error) => {
            recovered.close(ownership.as_ref()).await;
            if let Some(ownership) = ownership {
                ownership.fail().await;
            }
            return Err(error);
        }
    };
    let timekeeper = Rc::clone(&recovered.timekeeper);
    let end = RunEnd::wait_for_end(ownership, &mut stop_signals, &timekeeper).await?;
    let running = Running {
        recovered,
        delivery,
        control,
        listening,
    };
    let outcome = running.stop(end).await?;
    if launch.config.cluster.is_none() {
        kept.signals = Some(stop_signals);
    }
    Ok(outcome)
}

/// The addresses are bound, and something answers there.
pub(super) struct Bound {
    pub(super) address: ClientAddress,
    pub(super) health: web::Data<health::ServerHealth>,
    /// The process of the core of a shard has them itself.
    sockets: Option<ClientSockets>,
}

/// The listeners for clients, and what answers there until the server serves.
struct ClientSockets {
    listener: HttpListener,
    responder: RunningServer,
}

/// Why a start ends before the server serves.
enum StartEnd {
    /// A signal stops the process.
    Signal,
    /// The ownership of a node has ended.
    Tenure(TenureEnd),
    /// It has failed, perhaps because another node has taken the store.
    Failed(ServerError),
}

impl Bound {
    fn open(launch: &Launch, kept: &mut Kept) -> Result<Self, ServerError> {
        let Launch {
            config,
            budget,
            core,
            ..
        } = launch;
        let health = web::Data::new(health::ServerHealth::starting());
        if let Some(core) = core {
            core.health.begin_run(health.clone());
            return Ok(Self {
                address: core.address.clone(),
                health,
                sockets: None,
            });
        }
        let listener = HttpListener::open(config, &mut kept.sockets)?;
        let address = listener.client_address();
        let responder = match &kept.node {
            Some(node) => {
                let standby = node.build_standby(config, &address, &health)?;
                listener.serve_standby(config, budget, standby)?
            }
            None => listener.serve_interim(config, budget, health.clone())?,
        };
        Ok(Self {
            address,
            health,
            sockets: Some(ClientSockets {
                listener,
                responder,
            }),
        })
    }

    /// Ends the process of a standby, whose clients are served meanwhile.
    async fn stop(self, kept: &mut Kept) -> Result<Served, ServerError> {
        let signals = kept.signals.as_ref();
        signals.map(StopSignals::end_at_next).transpose()?;
        self.health.enter_phase(health::StartPhase::Stopping);
        if let Some(ClientSockets {
            responder,
            listener,
        }) = self.sockets
        {
            shutdown::serve_until_disconnected(&self.address.counters).await;
            // New clients are refused while requests in flight finish.
            kept.sockets.clear();
            drop(listener);
            responder.stop().await;
        }
        Ok(Served::All)
    }

    /// Ends a start whose journal has ended. A node that has lost the store meanwhile is a standby
    /// again.
    async fn abandon_start(
        self,
        ownership: Option<Ownership<'_>>,
        end: StartEnd,
    ) -> Result<Served, ServerError> {
        let Some(ownership) = ownership else {
            return match end {
                StartEnd::Failed(error) => Err(error),
                StartEnd::Signal | StartEnd::Tenure(_) => Ok(Served::All),
            };
        };
        match end {
            StartEnd::Signal => {
                ownership.signals.end_at_next()?;
                ownership.leave_cluster().await;
                if let Some(ClientSockets { responder, .. }) = self.sockets {
                    responder.stop().await;
                }
                return Ok(Served::All);
            }
            StartEnd::Tenure(TenureEnd::Asked) => {
                tracing::info!("asked to give the store up while it started; standby again");
                ownership.release().await;
            }
            StartEnd::Tenure(TenureEnd::Lost) => {
                tracing::warn!("another node took the store while this one started; standby again");
                ownership.give_up_store().await;
            }
            StartEnd::Failed(error) if ownership.tenure.is_lost() => {
                tracing::warn!(%error, "another node took the store while this one started; \
                    standby again");
                ownership.give_up_store().await;
            }
            StartEnd::Failed(error) => {
                ownership.fail().await;
                return Err(error);
            }
        }
        if let Some(ClientSockets { responder, .. }) = self.sockets {
            responder.pause().await;
            responder.stop_soon().await;
        }
        Ok(Served::Run)
    }
}

/// The store that this process owns.
struct OwnedStore<'a> {
    local: Arc<RocksStore>,
    target: JournalTarget,
    ownership: Option<Ownership<'a>>,
}

pub(super) struct JournalTarget {
    /// The local store. A node writes to the changelog before.
    pub(super) store: Arc<dyn Store>,
    pub(super) on_failure: FatalHandler,
}

impl<'a> OwnedStore<'a> {
    /// Opens the store, and waits for the ownership of that of a cluster; [`None`] if a signal ends
    /// the wait.
    async fn take_store(
        launch: &Launch,
        kept: &'a mut Kept,
        bound: &mut Bound,
    ) -> Result<Option<Self>, ServerError> {
        let Launch { config, budget, .. } = launch;
        let store = match &kept.store {
            Some(store) => Arc::clone(store),
            None => Arc::clone(
                kept.store
                    .insert(startup::open_store(config, budget, &bound.health).await?),
            ),
        };
        let Some(cluster) = &config.cluster else {
            let local = store.open_store();
            node::check_unreplicated(&*local)?;
            let target = JournalTarget {
                store: Arc::clone(&local) as _,
                on_failure: Box::new(startup::exit_on_store_error),
            };
            return Ok(Some(Self {
                local,
                target,
                ownership: None,
            }));
        };
        bound
            .health
            .set_step(health::StartStep::new("following the changelog"));
        let node = match kept.node.take() {
            Some(node) => node,
            None => {
                let node = node::join_alone(cluster, config, Arc::clone(&store)).await?;
                if let Some(ClientSockets {
                    listener,
                    responder,
                }) = &mut bound.sockets
                {
                    responder.end().await;
                    let standby = node.build_standby(config, &bound.address, &bound.health)?;
                    *responder = listener.serve_standby(config, budget, standby)?;
                }
                node
            }
        };
        let node = kept.node.insert(node);
        bound.health.attach_stream(node.stream_name());
        let signals = match kept.signals.take() {
            Some(signals) => signals,
            None => StopSignals::install()?,
        };
        let signals = kept.signals.insert(signals);
        let watchdog = launch.core.is_none().then(|| {
            listener::announce_url(&bound.address.own_url);
            startup::notify_standby(&bound.address.own_url, launch.threads.clone())
        });
        let standing = node.stand_by(&Clock::system(), signals).await?;
        watchdog.iter().for_each(JoinHandle::abort);
        Ok(match standing {
            Standing::Stopped => None,
            Standing::Owner(tenure) => {
                let target = JournalTarget {
                    store: Arc::clone(&tenure.store) as _,
                    on_failure: tenure.on_failure(),
                };
                Some(Self {
                    local: store.open_store(),
                    target,
                    ownership: Some(Ownership {
                        tenure,
                        node,
                        signals,
                    }),
                })
            }
        })
    }
}

/// The records of the store are read, and the journal writes.
pub(super) struct Recovered {
    pub(super) core: Core,
    writer: WriterThreads,
    timekeeper: Rc<Timekeeper>,
    started: Timestamp,
    token: AdminToken,
    pub(super) backups: Arc<Backups>,
    pub(super) client: ClientOptions,
    budget: DescriptorBudget,
    _scrub: Scrub,
}

impl Recovered {
    fn read(
        launch: &Launch,
        bound: &Bound,
        local: &Arc<RocksStore>,
        target: JournalTarget,
        targets: &ChaosTargets,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<(Self, StartQueue), ServerError> {
        let Launch { config, budget, .. } = launch;
        let Bound {
            address, health, ..
        } = bound;
        health.set_step(health::StartStep::new("reading the records"));
        let last = ownership.and_then(|ownership| ownership.node.owner_clock());
        let (clock, timekeeper) = startup::start_clock(config, targets, last);
        if let Some(ownership) = ownership {
            ownership.node.share_time(&ownership.tenure, clock.clone());
        }
        let start = clock.now();
        let token = startup::admin_token(config)?;
        let cluster = ownership.map(|ownership| ownership.node.id.clone());
        let process_dir = launch.core.as_ref().map(|core| core.process_dir.clone());
        let lease = ownership.map(|ownership| ownership.tenure.lease.clone());
        let fence = ownership.map(|ownership| ownership.tenure.file_fence());
        let backups =
            startup::build_backups(config, budget, local, &clock, cluster, fence, process_dir)?;
        let client = ClientOptions {
            lease,
            ..settings::client_options(config, &address.bound, budget)?
        };
        let rules = settings::registry_rules(config, &client, &address.bound);
        let appended_to = Arc::default();
        let (journal, writer) =
            startup::start_journal(config, target, targets, &clock, &appended_to)?;
        let scrub = journal.start_scrub(config.journal.scrub);
        let (registry, starts) = match Registry::load_from_journal(
            journal.clone(),
            rules,
            config.topic.recent_events_bytes,
        ) {
            Ok(recovered) => recovered,
            Err(error) => {
                journal.close();
                writer.join_all();
                return Err(error.into());
            }
        };
        let registry = Arc::clone(appended_to.get_or_init(|| Arc::new(registry)));
        let compute = Compute::new(settings::compute_limits(config));
        let core = Core {
            config: config.clone(),
            clock,
            journal,
            registry,
            compute,
        };
        Ok((
            Self {
                core,
                writer,
                timekeeper,
                started: start,
                token,
                backups,
                client,
                budget: *budget,
                _scrub: scrub,
            },
            starts,
        ))
    }

    async fn abandon_start(
        self,
        bound: Bound,
        ownership: Option<Ownership<'_>>,
        end: StartEnd,
    ) -> Result<Served, ServerError> {
        self.close(ownership.as_ref()).await;
        bound.abandon_start(ownership, end).await
    }

    /// Ends the journal of a start that is abandoned.
    async fn close(self, ownership: Option<&Ownership<'_>>) {
        let Self { core, writer, .. } = self;
        core.registry.close();
        core.journal.close();
        let end = async {
            // A write may wait for the changelog.
            tokio::task::spawn_blocking(move || writer.join_all())
                .await
                .expect("joining threads does not panic");
        };
        match ownership {
            None => end.await,
            Some(ownership) => ownership.end_writes(end).await,
        }
    }
}

/// The actors that deliver, and what publishers call.
pub(super) struct Delivery {
    pub(super) certificates: ShownCertificates,
    pub(super) system_topic: Option<Arc<SystemTopic>>,
    stores: DeadLetterStores,
    /// The actors of dead-letter stores run as long as this is held.
    _lifeline: Lifeline,
    pub(super) tracer: Tracer,
    exporter: Option<TraceExporter>,
    failed_auth: Arc<FailedAuthLimiter>,
    /// The issuer of operators' access tokens.
    operators: Option<TokenIssuer>,
    keys: Option<Rc<KeySetSource>>,
    arbiters: Arbiters,
    notifier: Rc<ServiceNotifier>,
    pub(super) publisher: web::Data<Publisher>,
    /// Of the core of a shard that follows the control plane.
    followed: Option<FollowedControl>,
}

impl Delivery {
    async fn start(
        launch: &Launch,
        recovered: &Recovered,
        bound: &Bound,
        starts: StartQueue,
        targets: &mut ChaosTargets,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<Self, ServerError> {
        let Recovered {
            core,
            client,
            token,
            ..
        } = recovered;
        let Bound {
            address, health, ..
        } = bound;
        let of_node = ownership
            .map(|ownership| &*ownership.node.certificates)
            .unwrap_or_default();
        let certificates = certificates::in_use(&core.config, address, of_node, &client.identities);
        let others = launch.core.as_ref().map(|core| core.others.clone());
        let has_control = launch.core.as_ref().is_some_and(ShardCore::has_control);
        let system_topic = if has_control {
            None
        } else {
            system_topic::start(core, Arc::clone(&certificates), others.as_ref())
        };
        let fence = ownership.map(|ownership| ownership.tenure.file_fence());
        let DeadLetterService {
            stores,
            routing,
            handles,
            lifeline,
        } = startup::start_dead_letters(core, system_topic.as_ref(), fence.as_ref())?;
        targets.dead_letters = handles;
        let (tracer, exporter) = startup::start_tracing(core, address)?;
        let failed_auth = Arc::new(settings::failed_auth_limiter(&core.config));
        let TokenAccess {
            gate,
            operators,
            keys,
        } = issuer::build_gates(
            &core.config,
            &address.public_url,
            token,
            core.registry.tokens(),
            &client.trust,
            Arc::clone(&failed_auth),
        )
        .map_err(|error| ServerError::Issuer(error.to_string()))?;
        let context =
            startup::subscription_context(core, client, targets, &tracer, routing, stores.clone());
        let arbiters = Arbiters::start(launch.arbiters, &launch.threads);
        let notifier = startup::start_service_notifier(launch);
        let followed = match launch.core.as_ref().filter(|core| !core.has_control()) {
            Some(shard) => Some(shard.follow_control(Arc::clone(&core.registry)).await),
            None => {
                if let Some(ownership) = ownership.filter(|_| has_control) {
                    core.registry.note_cluster(&ownership.node.id).await?;
                }
                startup::start_validation(core, client.clone(), address);
                startup::start_expiry(core).await;
                None
            }
        };
        startup::start_background_tasks(core);
        actix_rt::spawn(actor_factory::run(starts, arbiters.actor_hosts(context)));
        let publisher = startup::build_publisher(core, gate, tracer.clone());
        startup::attach_topics(core, client, &publisher, others);
        startup::attach_journal(health, &core.journal);
        Ok(Self {
            certificates,
            system_topic,
            stores,
            _lifeline: lifeline,
            tracer,
            exporter,
            failed_auth,
            operators,
            keys,
            arbiters,
            notifier,
            publisher,
            followed,
        })
    }
}

/// The control plane with all its parts. Redrives that the last process had not finished go on.
fn build_control(
    launch: &Launch,
    recovered: &Recovered,
    delivery: &Delivery,
    bound: &Bound,
    local: &Arc<RocksStore>,
    targets: ChaosTargets,
    ownership: Option<&Ownership<'_>>,
) -> Result<web::Data<Control>, ServerError> {
    let Recovered {
        core,
        backups,
        started,
        ..
    } = recovered;
    let redrives = startup::resume_redrives(core, &delivery.stores)?;
    let cluster = ownership.map(|ownership| ownership.node.cluster_context.clone());
    let sources = MetricSources {
        cluster,
        ..startup::metric_sources(recovered, delivery, bound)
    };
    let exposition = settings::metrics_exposition(&core.config, sources, *started)
        .map_err(io_error("metrics.token"))?;
    let mut control = startup::build_control(core, &bound.address, delivery.system_topic.as_ref())?
        .with_dead_letters(redrives)
        .with_tools(targets)
        .with_dashboard(core.config.server.dashboard);
    if core.config.server.dashboard {
        control = control.with_history_file(core.config.server.data_dir.join(admin::HISTORY_FILE));
    }
    control.backups = Some(Arc::clone(backups));
    control.failed_auth = Arc::clone(&delivery.failed_auth);
    control.operators.clone_from(&delivery.operators);
    control.exposition = exposition;
    control.uses = use_rules::read(&core.config, recovered.client.connections.clone())?;
    control.shard = launch.core.as_ref().map(|core| core.describe(local));
    Ok(web::Data::new(control))
}

/// The first writes: what `server.apply` declares, and the key of lock tokens. A node may be
/// stopped, or lose the store, meanwhile.
async fn write_first(
    control: &Control,
    launch: &Launch,
    recovered: &Recovered,
    ownership: Option<&mut Ownership<'_>>,
) -> Result<LockTokenSealer, StartEnd> {
    let written = async {
        startup::apply_declared(control, launch.declared.clone()).await?;
        let tokens = LockTokenSealer::load_or_create(&recovered.core.journal).await?;
        Ok(match &launch.core {
            Some(core) => tokens.with_shard(core.others.own),
            None => tokens,
        })
    };
    match ownership {
        None => written.await.map_err(StartEnd::Failed),
        Some(ownership) => {
            let written = ownership.unless_ended(written).await;
            written
                .map_err(|end| end.map_or(StartEnd::Signal, StartEnd::Tenure))?
                .map_err(StartEnd::Failed)
        }
    }
}

fn build_reload(
    launch: &Launch,
    recovered: &Recovered,
    delivery: &Delivery,
    bound: &Bound,
    control: &web::Data<Control>,
) -> Reload {
    Reload {
        sources: launch.sources.clone(),
        log: launch.log.clone(),
        token: recovered.token.clone(),
        control: control.clone(),
        certificate: bound.address.shown.clone(),
        identities: recovered.client.identities.clone(),
        trust: recovered.client.trust.clone(),
        keys: delivery.keys.clone(),
    }
}

/// The server on the bound sockets.
struct Listening {
    health: web::Data<health::ServerHealth>,
    counters: Vec<Arc<ListenerCounters>>,
    http: RunningServer,
}

impl Listening {
    /// Takes the sockets over from the server that answered meanwhile.
    async fn begin(
        recovered: &Recovered,
        delivery: &Delivery,
        control: &web::Data<Control>,
        bound: Bound,
        tokens: web::Data<LockTokenSealer>,
        ownership: Option<&Ownership<'_>>,
    ) -> Result<Self, ServerError> {
        let Bound {
            address,
            health,
            sockets,
        } = bound;
        let context = ListenerContext {
            control: control.clone(),
            publisher: delivery.publisher.clone(),
            followed: delivery.followed.clone(),
            tokens,
            health: health.clone(),
            token: recovered.token.clone(),
            cluster: ownership.map(|ownership| ownership.node.cluster_context.clone()),
            stall: ownership.map(|ownership| ownership.tenure.watch_writes()),
        };
        let nodes = ownership
            .map(|ownership| ownership.node.listener_of_nodes())
            .transpose()?;
        let config = &recovered.core.config;
        let budget = &recovered.budget;
        let http = match sockets {
            Some(ClientSockets {
                mut listener,
                responder,
            }) => {
                match &nodes {
                    None => responder.end().await,
                    // A standby forwards what it still accepts.
                    Some(_) => responder.hand_over().await,
                }
                listener.nodes = nodes;
                listener.serve_sockets(config, budget, context)?
            }
            None => {
                let nodes = nodes.expect("the core of a shard serves as its owner");
                nodes.serve_sockets(config, budget, context)?
            }
        };
        health.enter_phase(health::StartPhase::Serving);
        if let Some(Ownership { node, .. }) = ownership {
            tracing::info!(
                shard = node.shard(),
                topics = recovered.core.registry.list_topics().len(),
                "this node serves the shard"
            );
        }
        startup::start_backups(&recovered.core, &recovered.backups);
        delivery.notifier.notify_ready(&address.own_url);
        Ok(Self {
            health,
            counters: address.counters,
            http,
        })
    }
}
