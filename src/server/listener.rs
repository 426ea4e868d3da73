//! The listeners of the server and the services behind them.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use actix_server::{Server, ServerBuilder};
use actix_web::web;
use rustls::ServerConfig;

use super::{
    ServerError,
    descriptors::DescriptorBudget,
    front::{ConnectionLimit, HeadTimeouts, ListenerSettings, RefusalSlots},
    io_error, tls, workers,
};
use crate::{
    admin::{self, ChaosMode, Control, ListenerRole, auth, health},
    config::Config,
    dashboard,
    metrics::ListenerCounters,
    publish::{self, http::Publisher},
    pull,
};

/// The time for a 503 of `startup_responder` to reach its client before the server takes over the sockets.
const INTERIM_WAIT: Duration = Duration::from_secs(1);

/// The state that all workers share.
pub(super) struct ListenerContext {
    pub(super) control: web::Data<Control>,
    pub(super) publisher: web::Data<Publisher>,
    pub(super) tokens: web::Data<pull::LockTokenSealer>,
    pub(super) health: web::Data<health::ServerHealth>,
    pub(super) token: auth::AdminToken,
}

/// The bound sockets: one for publishers and operators, or one for each.
pub(super) struct HttpListener {
    listener: (TcpListener, Arc<ListenerCounters>),
    admin: Option<(TcpListener, Arc<ListenerCounters>)>,
    tls: Option<ServerConfig>,
    /// The certificate in use, without TLS [`None`].
    pub(super) shown: Option<Arc<tls::ServerCertificate>>,
    /// The bound addresses.
    addresses: Vec<SocketAddr>,
    /// The URL that the server gives to others.
    pub(super) public_url: String,
}

impl HttpListener {
    /// Binds the addresses. Connections wait in the system's queue until a server accepts them.
    pub(super) fn open(config: &Config) -> Result<Self, ServerError> {
        let mut addresses = Vec::new();
        let mut bind = |address: SocketAddr| {
            let listener = TcpListener::bind(address).map_err(io_error(format!("cannot listen on {address}")))?;
            addresses.push(listener.local_addr().map_err(io_error("the address of a listener"))?);
            Ok::<_, ServerError>(listener)
        };
        let listener = (bind(config.server.listen)?, Arc::new(ListenerCounters::new("publishers")));
        let admin = config.server.admin_listen.map(bind).transpose()?;
        let admin = admin.map(|admin| (admin, Arc::new(ListenerCounters::new("operators"))));
        let (tls, shown) = tls::listening(&config.server)?.unzip();
        if let Some(shown) = &shown {
            actix_rt::spawn(tls::keep_fresh(Arc::downgrade(shown), config.server.tls_reload));
        }
        let mut listener = Self { listener, admin, tls, shown, addresses, public_url: String::new() };
        listener.public_url = match &config.server.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => listener.url(0),
        };
        Ok(listener)
    }

    /// The bound addresses. No endpoint may have one of them.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The URL of the publishers' listener.
    pub(super) fn own_url(&self) -> String {
        self.url(0)
    }

    /// The counters of each listener.
    pub(super) fn counters(&self) -> Vec<Arc<ListenerCounters>> {
        [Some(&self.listener), self.admin.as_ref()]
            .into_iter()
            .flatten()
            .map(|(_, counters)| Arc::clone(counters))
            .collect()
    }

    fn url(&self, index: usize) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.addresses[index])
    }

    /// Answers requests while the server starts.
    pub(super) fn serve_interim(
        &self,
        config: &Config,
        budget: &DescriptorBudget,
        health: web::Data<health::ServerHealth>,
    ) -> Result<Server, ServerError> {
        let mut server = ServerBuilder::new()
            .workers(1)
            .disable_signals()
            .shutdown_timeout(INTERIM_WAIT.as_secs())
            .max_concurrent_connections(usize::MAX);
        let refusal_slots = RefusalSlots::new(budget.refusals);
        let configure = move |cfg: &mut web::ServiceConfig| admin::configure_starting(cfg, health.clone());
        for (listener, counters) in [Some(&self.listener), self.admin.as_ref()].into_iter().flatten() {
            let listener = listener.try_clone().map_err(io_error("cannot listen"))?;
            let listener = (listener, Arc::clone(counters));
            let settings = listener_settings(config, listener, self.tls.clone(), (budget.inbound / 2, &refusal_slots));
            server = settings.add_to(server, configure.clone()).map_err(io_error("cannot listen"))?;
        }
        Ok(server.run())
    }

    /// Serves the bound sockets.
    pub(super) fn serve(
        self,
        config: &Config,
        budget: &DescriptorBudget,
        context: ListenerContext,
    ) -> Result<Server, ServerError> {
        let workers = workers(config);
        let operators_address = self.addresses[self.addresses.len() - 1];
        let (own_url, admin_url) = (self.own_url(), self.admin.as_ref().map(|_| self.url(1)));
        let ListenerContext { control, publisher, tokens, health, token } = context;
        let shared = ListenerShared {
            publisher,
            tokens,
            health,
            control,
            token: web::Data::new(token),
            dashboard: config.server.dashboard,
            chaos: if config.chaos.enabled { ChaosMode::Enabled } else { ChaosMode::Disabled },
        };
        let operators = if self.admin.is_some() { config.limits.admin_connections.min(budget.inbound / 4) } else { 0 };
        let connections = connections(config, budget.inbound - operators);
        let server = ServerBuilder::new()
            .workers(workers)
            .disable_signals()
            .shutdown_timeout(config.server.shutdown_wait.as_secs())
            // `ConnectionLimiter` counts instead, because it answers a rejected connection.
            .max_concurrent_connections(usize::MAX);
        let refusal_slots = RefusalSlots::new(budget.refusals);
        let role = if self.admin.is_some() { ListenerRole::Publishers } else { ListenerRole::Both };
        let mut server = add_listener(
            server,
            config,
            self.listener,
            self.tls.clone(),
            role,
            (connections, &refusal_slots),
            &shared,
        )?;
        if let Some(admin) = self.admin {
            server = add_listener(
                server,
                config,
                admin,
                self.tls,
                ListenerRole::Operators,
                (operators, &refusal_slots),
                &shared,
            )?;
        }
        let validation = if config.delivery.validate.enabled { "required" } else { "off" };
        tracing::info!(url = own_url, admin_url, workers, connections, endpoints = %config.delivery, validation, "listening");
        if let Some(url) = &admin_url {
            println!("the control plane is at {url}");
        }
        println!("gridhook listens on {own_url}");
        if shared.token.origin() == auth::TokenOrigin::Generated
            && config.server.dashboard
            && operators_address.ip().is_loopback()
        {
            println!("the dashboard is at {}{}", admin_url.unwrap_or(own_url), dashboard::PATH);
        }
        Ok(server.run())
    }
}

#[derive(Clone)]
struct ListenerShared {
    publisher: web::Data<Publisher>,
    tokens: web::Data<pull::LockTokenSealer>,
    health: web::Data<health::ServerHealth>,
    control: web::Data<Control>,
    token: web::Data<auth::AdminToken>,
    chaos: ChaosMode,
    dashboard: bool,
}

fn add_listener(
    server: ServerBuilder,
    config: &Config,
    listener: (TcpListener, Arc<ListenerCounters>),
    tls: Option<ServerConfig>,
    role: ListenerRole,
    slots: (usize, &RefusalSlots),
    shared: &ListenerShared,
) -> Result<ServerBuilder, ServerError> {
    let shared = shared.clone();
    let settings = listener_settings(config, listener, tls, slots);
    let configure = move |cfg: &mut web::ServiceConfig| {
        let ListenerShared { publisher, tokens, health, control, token, chaos, dashboard } = shared.clone();
        cfg.app_data(publisher).app_data(tokens);
        if role != ListenerRole::Operators {
            publish::http::configure(cfg);
            pull::http::configure(cfg);
        }
        admin::configure_side(cfg, control, token, health, chaos, role);
        if dashboard && role != ListenerRole::Publishers {
            dashboard::configure(cfg);
        }
        cfg.default_service(web::to(publish::http::not_found));
    };
    settings.add_to(server, configure).map_err(io_error("cannot listen"))
}

fn listener_settings(
    config: &Config,
    (listener, counters): (TcpListener, Arc<ListenerCounters>),
    tls: Option<ServerConfig>,
    (connections, refusal_slots): (usize, &RefusalSlots),
) -> ListenerSettings {
    let limits = &config.limits;
    ListenerSettings {
        listener,
        counters,
        refusal_slots: refusal_slots.clone(),
        tls,
        limit: ConnectionLimit {
            total: connections,
            of_address: limits.connections_per_address.min(connections),
            proxies: config.auth.trusted_proxies.clone(),
        },
        timeouts: HeadTimeouts { head: limits.head_wait, idle: limits.idle_wait, answer: limits.answer_wait },
    }
}

/// The maximum number of publishers' connections: the setting, or less if the descriptors do not suffice.
fn connections(config: &Config, most: usize) -> usize {
    let configured = config.limits.connections;
    if most < configured {
        tracing::warn!(configured, most, "limits.connections is reduced to fit the limit of open files");
    }
    most.min(configured)
}
