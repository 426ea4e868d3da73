//! The control plane, for operators and for Azure's management clients.
//!
//! - [`arm`]: topics, domains, namespaces and event subscriptions under ARM's paths, with
//!   gridhook's own operations (`operate`, `test_filter`) below them;
//! - `declare`: applies a configuration file at the start;
//! - `replay`: sends stored events again; `retry`: sends pending ones before they are due;
//! - `dead_letters`: lists, redrives and purges dead letters;
//! - [`chaos`]: fault injection, only with `chaos.enabled`;
//! - `store`: check and backup of the running store;
//! - `top`: the figures of all event subscriptions; `tail`: a stream of events and outcomes;
//! - `clock`: the clock of the server, and its confirmation;
//! - `cluster`: the nodes of a cluster, and what each owns;
//! - `history`: the course of these figures in memory;
//! - `events`: the stored events of a topic;
//! - `jobs`: the replays and redrives of all event subscriptions;
//! - `server`: version, listeners, settings; `supervision`: restarts of actors;
//! - `editions`: the editions of the delivery policy; `simulate`: simulations of them;
//! - `session`: sessions of the dashboard;
//! - [`metrics`]: Prometheus metrics;
//! - [`health`]: liveness and readiness;
//! - `metadata`: the addresses that Azure's clients request first;
//! - `validate`: manual validation of endpoints;
//! - [`openapi`]: the OpenAPI document;
//! - [`uses`]: what bodies refer to, and who may use it;
//! - `tokens`: named tokens; `audit`: the trail of what operators did;
//! - `shares`: shares of callers in what is limited;
//! - [`request_id`]: the ids of requests;
//! - `shard`: the core of a shard, and what a change waits for;
//! - `placement`: which shards of a cluster serve a request; [`merge`]: the responses of several
//!   shards as one;
//! - [`auth`]: tokens and their roles; `permissions`: what they permit; `routes`: the table of
//!   paths, each with the role that it needs.
//!
//! Invariants: a response to a change is sent after the change is durable. A key, a token or the
//! query of an endpoint appears only in the response of the operation that returns it, and never in
//! the log.

pub mod admin_token;
pub mod arm;
mod audit;
pub mod auth;
pub mod chaos;
mod clock;
mod cluster;
mod dead_letters;
mod declare;
mod delivery_request;
mod editions;
mod error;
mod events;
mod explain;
pub mod health;
mod history;
mod jobs;
mod ledger;
mod ledger_line;
pub mod merge;
mod metadata;
pub mod metrics;
pub mod model;
pub mod newest_lines;
pub mod openapi;
mod operate;
mod permissions;
mod placement;
mod query;
mod random;
mod replay;
pub mod request_id;
mod response;
mod retry;
mod routes;
mod search;
mod server;
mod session;
mod shard;
mod shares;
#[cfg(feature = "simulate")]
mod simulate;
mod store;
mod supervision;
mod tail;
mod test_filter;
mod tokens;
mod top;
mod topic_filter;
mod trace;
pub mod uses;
mod validate;
mod windows;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use actix_web::{
    HttpRequest,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::{Next, from_fn},
    web,
};
use parking_lot::RwLock;
use tokio::sync::{Mutex, OwnedMutexGuard};

pub use self::{
    audit::PartRecord,
    chaos::injector::{ChaosTargets, DeadLetterHandle},
    cluster::{
        ClusterContext, ForwardCounters, StandbyAccess, StandbyContext, configure_front,
        configure_standby,
    },
    declare::{ApplyError, apply_declared},
    editions::EditionTables,
    error::AdminError,
    history::{FILE as HISTORY_FILE, record_history},
    placement::{Placement, ResponseMerge, SpreadScope, TopicName, placement, placement_of_body},
    routes::{GridhookRoute, Operation},
    shard::{FollowDelay, ShardOwners, ShardPlacement},
};
use self::{
    auth::AdminCaller,
    chaos::injector::FaultInjector,
    health::ServerHealth,
    metrics::{Exposition, MetricSources, MetricsAccess, SeriesLimits},
    model::Editions,
    response::{AdminResult, respond_json, respond_nothing},
};
use gridhook_api::server::SettingView;
use gridhook_clock::Clock;
use gridhook_compute::{Compute, ComputeCaller, Meter};
use gridhook_dead_letter::Redrives;
use gridhook_engine::control::{audit::AuditTrail, registry::Registry};
use gridhook_publish::auth::{
    bearer::TokenIssuer, failed_auth::FailedAuthLimiter, host::ReachedUrls,
};
use gridhook_repair::backup::Backups;
use gridhook_subscription::event_feed::SUBSCRIBERS_MAX;

/// Reads a state or a figure of another part of the server.
pub type Source<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Number of locks that serialize changes.
const LOCKS: usize = 64;

/// The state of the control plane.
pub struct Control {
    registry: Arc<Registry>,
    clock: Clock,
    compute: Compute,
    editions: Editions,
    public_url: String,
    redrives: Option<Redrives>,
    /// Check and backup of the store.
    pub backups: Option<Arc<Backups>>,
    /// The limiter of failed authentication; other endpoints may share it.
    pub failed_auth: Arc<FailedAuthLimiter>,
    /// How a request to a listener of the operators finds the URL of the listener.
    pub reached: ReachedUrls,
    /// The issuer whose access tokens are accepted.
    pub operators: Option<TokenIssuer>,
    /// The metrics of the server.
    pub exposition: Exposition,
    fault_injector: FaultInjector,
    windows: windows::RecordedWindows,
    /// Whether operators can sign in to the dashboard.
    has_dashboard: bool,
    tails: shares::CallerShares,
    /// The record of what operators do.
    audit: Option<Arc<AuditTrail>>,
    history: history::Recorder,
    pub edition_tables: EditionTables,
    settings: RwLock<Vec<SettingView>>,
    /// Set for the core of a shard, which has others beside it in its process.
    pub shard: Option<ShardPlacement>,
    /// The rules by which callers may use resources that bodies refer to.
    pub uses: uses::UseRules,
    /// Whether deployments leave out the resources of other services.
    pub ignores_foreign: bool,
    locks: [Arc<Mutex<()>>; LOCKS],
}

impl Control {
    /// A control plane of `registry`, with these editions, whose clients use `public_url`.
    pub fn new(
        registry: Arc<Registry>,
        clock: Clock,
        editions: Editions,
        public_url: String,
    ) -> Self {
        let limits = SeriesLimits {
            subscriptions: 0,
            subscriptions_per_topic: 0,
            topics: 0,
        };
        let exposition = Exposition::new(
            MetricSources::default(),
            limits,
            MetricsAccess::Token(None),
            clock.now(),
        );
        Self {
            registry,
            clock,
            compute: Compute::default(),
            editions,
            public_url,
            redrives: None,
            backups: None,
            failed_auth: Arc::default(),
            reached: ReachedUrls::default(),
            operators: None,
            exposition,
            fault_injector: FaultInjector::new(ChaosTargets::default()),
            windows: windows::RecordedWindows::default(),
            has_dashboard: true,
            tails: shares::CallerShares::new(SUBSCRIBERS_MAX),
            audit: None,
            history: history::Recorder::default(),
            edition_tables: EditionTables::default(),
            settings: RwLock::default(),
            shard: None,
            uses: uses::UseRules::default(),
            ignores_foreign: false,
            locks: std::array::from_fn(|_| Arc::default()),
        }
    }

    /// Adds the operations on dead letters.
    #[must_use]
    pub fn with_dead_letters(self, redrives: Redrives) -> Self {
        Self {
            redrives: Some(redrives),
            ..self
        }
    }

    /// Sets the threads on which the control plane computes for operators.
    #[must_use]
    pub fn with_compute(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }

    /// Runs work of a caller on the threads for computations, within the caller's share.
    async fn compute_for<F>(
        &self,
        caller: &AdminCaller,
        work: impl FnOnce(Meter) -> F,
    ) -> AdminResult<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.compute.run(compute_caller(caller), work).await?)
    }

    /// Adds the targets of fault injection and supervision other than topics.
    #[must_use]
    pub fn with_chaos_targets(self, targets: ChaosTargets) -> Self {
        Self {
            fault_injector: FaultInjector::new(targets),
            ..self
        }
    }

    #[must_use]
    pub fn with_audit_trail(self, trail: AuditTrail) -> Self {
        Self {
            audit: Some(Arc::new(trail)),
            ..self
        }
    }

    /// Sets whether operators can sign in to the dashboard.
    #[must_use]
    pub fn with_dashboard(self, enabled: bool) -> Self {
        Self {
            has_dashboard: enabled,
            ..self
        }
    }

    /// Sets the settings in force that differ from the defaults, which `GET /server` shows.
    pub fn set_settings(&self, settings: Vec<SettingView>) {
        *self.settings.write() = settings;
    }

    /// Sets the access to `/metrics`.
    pub fn set_metrics_access(&self, readers: MetricsAccess) {
        self.exposition.set_readers(readers);
    }

    /// The topics, domains and namespaces.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Ends all faults, when the server stops.
    pub fn end_chaos(&self) {
        self.fault_injector.end_all(&self.registry);
    }

    /// The URL by which operators reach this server, without a slash at the end. A listener of
    /// their own has no public URL: `public_url` is the publishers'.
    fn operators_url(&self, request: &HttpRequest) -> String {
        let is_own_listener = request.app_data::<ListenerRole>() == Some(&ListenerRole::Operators);
        let reached = if is_own_listener {
            self.reached.reached_url(request)
        } else {
            None
        };
        reached.unwrap_or_else(|| self.public_url.trim_end_matches('/').to_owned())
    }

    /// The lock of changes of a topic: a change reads the record and writes the whole of it, so
    /// changes of one topic must not interleave. Topics share locks by hash, so that a slow change
    /// delays few others.
    async fn lock_topic(&self, topic_key: &str) -> OwnedMutexGuard<()> {
        let mut hasher = DefaultHasher::new();
        topic_key.hash(&mut hasher);
        let index = hasher.finish() % LOCKS as u64;
        Arc::clone(&self.locks[index as usize]).lock_owned().await
    }
}

/// The share of the threads that compute which a caller has.
fn compute_caller(caller: &AdminCaller) -> ComputeCaller {
    ComputeCaller::Operator(caller.identity().0.to_owned())
}

/// Whether the paths of fault injection exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosMode {
    Enabled,
    /// The paths do not exist.
    Disabled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// The control plane and the data plane.
    Both,
    Operators,
    /// The data plane: publishers, consumers and endpoints.
    Publishers,
}

/// Adds the probes while the server starts; every other request gets 503.
pub fn configure_starting(cfg: &mut web::ServiceConfig, health: web::Data<ServerHealth>) {
    cfg.app_data(health)
        .service(web::resource("/healthz").to(health::healthz))
        .service(web::resource("/readyz").to(health::readyz))
        .default_service(web::to(health::not_yet));
}

/// Adds the paths that a listener with this role serves. Requests have a [`Control`], an
/// [`admin_token::AdminToken`] and a [`ServerHealth`] in their app data.
pub fn configure(cfg: &mut web::ServiceConfig, chaos: ChaosMode, role: ListenerRole) {
    cfg.app_data(web::Data::new(openapi::OpenApiDocument::new(chaos)))
        .app_data(role)
        .app_data(web::Data::new(chaos));
    routes::configure_routes(cfg, chaos, role);
    if role == ListenerRole::Publishers {
        return;
    }
    let guarded = match chaos {
        ChaosMode::Enabled => "/{slashes:/*(?i:subscriptions|providers|tenants|chaos)}/{rest:.*}",
        ChaosMode::Disabled => "/{slashes:/*(?i:subscriptions|providers|tenants)}/{rest:.*}",
    };
    let paths = [guarded, "/{slashes:/*(?i:subscriptions|tenants)}"];
    cfg.service(
        web::resource(paths)
            .wrap(from_fn(authorize_arm_request))
            .to(arm::handle_request),
    );
}

async fn authorize_arm_request(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> actix_web::Result<ServiceResponse<BoxBody>> {
    let (access, target) = arm::required_access(&request);
    auth::authorize(access, target, request, next).await
}
