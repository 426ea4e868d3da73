//! The control plane: what operators and Azure's own management clients say to the server.
//!
//! - [`arm`]: topics, domains and event subscriptions under ARM's paths, with the operators' verbs ([`operate`],
//!   `test_filter`) below them;
//! - `declare`: what a file declares, made so at the start;
//! - `replay`: what is stored, sent once more;
//! - `dead_letters`: what was given up, looked through, sent again and purged;
//! - [`chaos`]: parts broken on purpose, only where it is switched on;
//! - `store`: the store looked at, and backed up, while it runs;
//! - `top`: the figures of all event subscriptions at once; `tail`: what happens, as it happens;
//! - `clock`: what time it is, and whether the wall clock is right;
//! - `supervision`: which actors died, why, and how soon they were at work again;
//! - [`metrics`]: figures, for those who watch;
//! - [`health`]: alive? ready?
//! - `validate`: the manual way of the handshake, for endpoints;
//! - [`openapi`]: all of this and the publishers' endpoint, described for machines;
//! - [`auth`]: everything but the last three wants the admin token, or a token of the issuer with the admin role.
//!
//! Invariants: an answer that says that something was changed is given after the change is durable; a key, a token or
//! the query of an endpoint is told only by the call that is there for it, and is never logged.

pub mod arm;
pub mod auth;
pub mod chaos;
mod clock;
mod dead_letters;
mod declare;
mod error;
mod explain;
mod gridhook_path;
pub mod health;
mod ledger;
mod ledger_line;
pub mod metrics;
pub mod model;
pub mod openapi;
pub mod operate;
mod replay;
mod store;
mod supervision;
mod tail;
mod test_filter;
mod top;
mod trace;
mod validate;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use actix_web::{HttpRequest, HttpResponse, guard, middleware::from_fn, web};
use tokio::sync::{Mutex, MutexGuard};

use self::{
    auth::{AdminCaller, AdminToken},
    chaos::injector::FaultInjector,
    health::ServerHealth,
    metrics::{Exposition, MetricSources, MetricsAccess, SeriesLimits},
    model::{Editions, system_data},
};
pub use self::{
    chaos::injector::{ChaosTargets, DeadLetterHandle},
    declare::{ApplyError, declare},
    error::AdminError,
    gridhook_path::GridhookPath,
};
use crate::{
    clock::Clock,
    control::{record::subscription::SystemData, registry::Registry},
    dead_letter::Redrives,
    publish::auth::{bearer::Operators, failed_auth::FailedAuthLimiter},
    repair::backup::Backups,
};

/// More changes than this at the same time are not asked for by people, nor by their scripts.
const TURNS: usize = 64;

/// What the control plane works with.
pub struct Control {
    registry: Arc<Registry>,
    clock: Clock,
    editions: Editions,
    public_url: String,
    redrives: Option<Redrives>,
    backups: Option<Arc<Backups>>,
    failed_auth: Arc<FailedAuthLimiter>,
    operators: Option<Operators>,
    exposition: Exposition,
    queue: FaultInjector,
    samples: top::RateSamples,
    turns: [Mutex<()>; TURNS],
}

impl Control {
    /// A control plane of `registry`, for topics that follow one of `editions` and are reached at `public_url`.
    pub fn new(registry: Arc<Registry>, clock: Clock, editions: Editions, public_url: String) -> Self {
        let (queue, turns) = (FaultInjector::new(ChaosTargets::default()), std::array::from_fn(|_| Mutex::new(())));
        let (redrives, backups, failed_auth) = (None, None, Arc::default());
        let bounds = SeriesLimits { subscriptions: 0, subscriptions_per_topic: 0, topics: 0 };
        let exposition = Exposition::new(MetricSources::default(), bounds, MetricsAccess::Token(None), clock.now());
        Self {
            registry,
            clock,
            editions,
            public_url,
            redrives,
            backups,
            failed_auth,
            operators: None,
            exposition,
            queue,
            samples: top::RateSamples::default(),
            turns,
        }
    }

    /// The same, with dead letters to look through and to send again.
    #[must_use]
    pub fn with_dead_letters(self, redrives: Redrives) -> Self {
        Self { redrives: Some(redrives), ..self }
    }

    /// The same, with a store to look at and to back up.
    #[must_use]
    pub fn with_backups(self, backups: Backups) -> Self {
        Self { backups: Some(Arc::new(backups)), ..self }
    }

    /// The same, where those who fail are known from elsewhere.
    #[must_use]
    pub fn guarded_by(self, failed_auth: Arc<FailedAuthLimiter>) -> Self {
        Self { failed_auth, ..self }
    }

    /// The same, where access tokens of an issuer operate the server too.
    #[must_use]
    pub fn operated_by(self, operators: Option<Operators>) -> Self {
        Self { operators, ..self }
    }

    /// The same, with figures of more than topics.
    #[must_use]
    pub fn with_metrics(self, exposition: Exposition) -> Self {
        Self { exposition, ..self }
    }

    /// The same, with what supervision and chaos reach of the server beside its topics.
    #[must_use]
    pub fn with_tools(self, tools: ChaosTargets) -> Self {
        Self { queue: FaultInjector::new(tools), ..self }
    }

    /// From now on these may read figures.
    pub fn let_read_metrics(&self, readers: MetricsAccess) {
        self.exposition.set_readers(readers);
    }

    /// Whatever goes on for chaos ends: the server stops.
    pub fn end_chaos(&self) {
        self.queue.end_all(&self.registry);
    }

    /// What is recorded of a change by `caller` now. `before` is what it changes, with what was recorded of that.
    fn stamp(&self, caller: &AdminCaller, before: Option<Option<&SystemData>>) -> Option<SystemData> {
        Some(system_data::changed(caller.identity(), self.clock.now(), before))
    }

    /// A change reads what is there and writes the whole: one at a time for each topic. A turn is shared by topics at
    /// random, so that one slow change holds up few others.
    async fn turn(&self, topic_key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        topic_key.hash(&mut hasher);
        let index = hasher.finish() % TURNS as u64;
        self.turns[index as usize].lock().await
    }
}

/// Whether parts may be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosMode {
    /// They may.
    Enabled,
    /// There is no such path.
    Disabled,
}

/// What is served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// Everything.
    Both,
    /// What operators ask.
    Operators,
    /// What publishers and endpoints ask.
    Others,
}

/// Adds the control plane to an application. The three are shared by all workers.
pub fn configure(
    cfg: &mut web::ServiceConfig,
    control: web::Data<Control>,
    token: web::Data<AdminToken>,
    vitals: web::Data<ServerHealth>,
    chaos: ChaosMode,
) {
    configure_side(cfg, control, token, vitals, chaos, ListenerRole::Both);
}

/// Adds what is told while the server starts: how it is, and to everybody else that it is not there yet.
pub fn configure_starting(cfg: &mut web::ServiceConfig, vitals: web::Data<ServerHealth>) {
    cfg.app_data(vitals)
        .service(web::resource(GridhookPath::Healthz.template()).to(health::healthz))
        .service(web::resource(GridhookPath::Readyz.template()).to(health::readyz))
        .default_service(web::to(health::not_yet));
}

/// Adds one side of it.
pub fn configure_side(
    cfg: &mut web::ServiceConfig,
    control: web::Data<Control>,
    token: web::Data<AdminToken>,
    vitals: web::Data<ServerHealth>,
    chaos: ChaosMode,
    side: ListenerRole,
) {
    cfg.app_data(control)
        .app_data(token)
        .app_data(vitals)
        .app_data(web::Data::new(openapi::OpenApiDocument::new(chaos)));
    for path in GridhookPath::all(chaos).filter(|path| path.is_at(side)) {
        let resource =
            web::resource(path.template()).default_service(web::to(move |request: HttpRequest| async move {
                let method = request.method().to_string();
                Err::<HttpResponse, _>(AdminError::Method { method, allowed: path.methods() })
            }));
        let route = web::route().guard(guard::fn_guard(move |asked| path.methods().contains(&asked.head().method)));
        match path {
            GridhookPath::Healthz => cfg.service(resource.route(route.to(health::healthz))),
            GridhookPath::Readyz => cfg.service(resource.route(route.to(health::readyz))),
            GridhookPath::Document => cfg.service(resource.route(route.to(openapi::answer))),
            GridhookPath::Validate => cfg.service(resource.route(route.to(validate::answer))),
            GridhookPath::CheckStore => {
                cfg.service(resource.route(route.to(store::check)).wrap(from_fn(auth::require)))
            }
            GridhookPath::BackUpStore => {
                cfg.service(resource.route(route.to(store::back_up)).wrap(from_fn(auth::require)))
            }
            GridhookPath::Metrics => {
                cfg.service(resource.route(route.to(metrics::scrape)).wrap(from_fn(auth::require_metrics_access)))
            }
            GridhookPath::Supervision => {
                cfg.service(resource.route(route.to(supervision::report)).wrap(from_fn(auth::require)))
            }
            GridhookPath::Clock => cfg.service(resource.route(route.to(clock::answer)).wrap(from_fn(auth::require))),
            GridhookPath::Top => cfg.service(resource.route(route.to(top::report)).wrap(from_fn(auth::require))),
            GridhookPath::Tail => cfg.service(resource.route(route.to(tail::tail)).wrap(from_fn(auth::require))),
            GridhookPath::Chaos => {
                let read = web::get().to(chaos::report);
                let end = web::delete().to(chaos::end);
                cfg.service(resource.route(read).route(end).wrap(from_fn(auth::require)))
            }
            GridhookPath::Stall => cfg.service(resource.route(route.to(chaos::stall)).wrap(from_fn(auth::require))),
            GridhookPath::Writes => cfg.service(resource.route(route.to(chaos::writes)).wrap(from_fn(auth::require))),
            GridhookPath::Responses => {
                cfg.service(resource.route(route.to(chaos::responses)).wrap(from_fn(auth::require)))
            }
            GridhookPath::ChaosClock => {
                cfg.service(resource.route(route.to(chaos::clock)).wrap(from_fn(auth::require)))
            }
            GridhookPath::Kill => cfg.service(resource.route(route.to(chaos::kill)).wrap(from_fn(auth::require))),
            GridhookPath::Poison => cfg.service(resource.route(route.to(chaos::poison)).wrap(from_fn(auth::require))),
        };
    }
    if side == ListenerRole::Others {
        return;
    }
    // Also what is no path of ours says so only to whoever has the token.
    let guarded = match chaos {
        ChaosMode::Enabled => "/{slashes:/*(?i:subscriptions|providers|tenants|chaos)}/{rest:.*}",
        ChaosMode::Disabled => "/{slashes:/*(?i:subscriptions|providers|tenants)}/{rest:.*}",
    };
    cfg.service(
        web::resource([guarded, "/{slashes:/*(?i:subscriptions|tenants)}"])
            .wrap(from_fn(auth::require))
            .to(arm::answer),
    );
}
