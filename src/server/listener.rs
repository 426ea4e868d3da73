//! The addresses that the server listens on, and what is behind each.

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
    metrics::ListenerCounters,
    publish::{self, http::Publisher},
    pull,
};

/// Whoever is told to come again has this long to hear it before the real server takes over.
const MEANWHILE_WAIT: Duration = Duration::from_secs(1);

/// What all workers share.
pub(super) struct ListenerContext {
    pub(super) control: web::Data<Control>,
    pub(super) publisher: web::Data<Publisher>,
    pub(super) tokens: web::Data<pull::LockTokenSealer>,
    pub(super) health: web::Data<health::ServerHealth>,
    pub(super) token: auth::AdminToken,
}

/// Where publishers and operators come in.
pub(super) struct HttpListener {
    listener: (TcpListener, Arc<ListenerCounters>),
    admin: Option<(TcpListener, Arc<ListenerCounters>)>,
    tls: Option<ServerConfig>,
    /// The certificate that it shows.
    pub(super) shown: Option<Arc<tls::ServerCertificate>>,
    /// The addresses that it really has.
    addresses: Vec<SocketAddr>,
    /// The address that it gives.
    pub(super) public_url: String,
}

impl HttpListener {
    /// Whoever connects from now on waits until somebody is there.
    pub(super) fn open(config: &Config) -> Result<Self, ServerError> {
        let mut addresses = Vec::new();
        let mut bind = |address: SocketAddr| {
            let listener = TcpListener::bind(address).map_err(io_error(format!("cannot listen on {address}")))?;
            addresses.push(listener.local_addr().map_err(io_error("the address listened on"))?);
            Ok::<_, ServerError>(listener)
        };
        let listener = (bind(config.server.listen)?, Arc::new(ListenerCounters::new("publishers")));
        let admin = config.server.admin_listen.map(bind).transpose()?;
        let admin = admin.map(|admin| (admin, Arc::new(ListenerCounters::new("operators"))));
        let (tls, shown) = tls::listening(&config.server)?.unzip();
        if let Some(shown) = &shown {
            actix_rt::spawn(tls::keep_fresh(Arc::downgrade(shown), config.server.tls_reload));
        }
        let mut door = Self { listener, admin, tls, shown, addresses, public_url: String::new() };
        door.public_url = match &config.server.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => door.url(0),
        };
        Ok(door)
    }

    /// Where it listens: no endpoint may be there.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where publishers connect.
    pub(super) fn own_url(&self) -> String {
        self.url(0)
    }

    /// What is counted of them.
    pub(super) fn counters(&self) -> Vec<Arc<ListenerCounters>> {
        [Some(&self.listener), self.admin.as_ref()]
            .into_iter()
            .flatten()
            .map(|(_, counted)| Arc::clone(counted))
            .collect()
    }

    fn url(&self, place: usize) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.addresses[place])
    }

    /// Answers those who come before there is a server.
    pub(super) fn answer_meanwhile(
        &self,
        config: &Config,
        budget: &DescriptorBudget,
        vitals: web::Data<health::ServerHealth>,
    ) -> Result<Server, ServerError> {
        let mut server = ServerBuilder::new()
            .workers(1)
            .disable_signals()
            .shutdown_timeout(MEANWHILE_WAIT.as_secs())
            .max_concurrent_connections(usize::MAX);
        let told = RefusalSlots::new(budget.told);
        let configure = move |cfg: &mut web::ServiceConfig| admin::configure_starting(cfg, vitals.clone());
        for (listener, counted) in [Some(&self.listener), self.admin.as_ref()].into_iter().flatten() {
            let listener = listener.try_clone().map_err(io_error("cannot listen"))?;
            let listener = (listener, Arc::clone(counted));
            let entrance = entrance(config, listener, self.tls.clone(), (budget.inbound / 2, &told));
            server = entrance.add_to(server, configure.clone()).map_err(io_error("cannot listen"))?;
        }
        Ok(server.run())
    }

    /// Lets those in who wait.
    pub(super) fn serve(
        self,
        config: &Config,
        budget: &DescriptorBudget,
        behind: ListenerContext,
    ) -> Result<Server, ServerError> {
        let workers = workers(config);
        let (own_url, admin_url) = (self.own_url(), self.admin.as_ref().map(|_| self.url(1)));
        let ListenerContext { control, publisher, tokens, health: vitals, token } = behind;
        let shared = ListenerShared {
            publisher,
            tokens,
            health: vitals,
            control,
            token: web::Data::new(token),
            chaos: if config.chaos.enabled { ChaosMode::Enabled } else { ChaosMode::Disabled },
        };
        let operators = if self.admin.is_some() { config.limits.admin_connections.min(budget.inbound / 4) } else { 0 };
        let connections = connections(config, budget.inbound - operators);
        let server = ServerBuilder::new()
            .workers(workers)
            .disable_signals()
            .shutdown_timeout(config.server.shutdown_wait.as_secs())
            // The entrances count for themselves, and say so to whoever is one too many.
            .max_concurrent_connections(usize::MAX);
        let told = RefusalSlots::new(budget.told);
        let side = if self.admin.is_some() { ListenerRole::Others } else { ListenerRole::Both };
        let mut server = enter(server, config, self.listener, self.tls.clone(), side, (connections, &told), &shared)?;
        if let Some(admin) = self.admin {
            server = enter(server, config, admin, self.tls, ListenerRole::Operators, (operators, &told), &shared)?;
        }
        let validation = if config.delivery.validate.enabled { "asked first" } else { "called without being asked" };
        tracing::info!(url = own_url, admin_url, workers, connections, endpoints = %config.delivery, validation, "listening");
        if let Some(url) = admin_url {
            println!("the control plane is at {url}");
        }
        println!("gridhook listens on {own_url}");
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
}

fn enter(
    server: ServerBuilder,
    config: &Config,
    listener: (TcpListener, Arc<ListenerCounters>),
    tls: Option<ServerConfig>,
    side: ListenerRole,
    places: (usize, &RefusalSlots),
    shared: &ListenerShared,
) -> Result<ServerBuilder, ServerError> {
    let shared = shared.clone();
    let entrance = entrance(config, listener, tls, places);
    let configure = move |cfg: &mut web::ServiceConfig| {
        let ListenerShared { publisher, tokens, health: vitals, control, token, chaos } = shared.clone();
        cfg.app_data(publisher).app_data(tokens);
        if side != ListenerRole::Operators {
            publish::http::configure(cfg);
            pull::http::configure(cfg);
        }
        admin::configure_side(cfg, control, token, vitals, chaos, side);
        cfg.default_service(web::to(publish::http::not_found));
    };
    entrance.add_to(server, configure).map_err(io_error("cannot listen"))
}

fn entrance(
    config: &Config,
    (listener, counted): (TcpListener, Arc<ListenerCounters>),
    tls: Option<ServerConfig>,
    (connections, told): (usize, &RefusalSlots),
) -> ListenerSettings {
    let limits = &config.limits;
    ListenerSettings {
        listener,
        counted,
        told: told.clone(),
        tls,
        places: ConnectionLimit {
            total: connections,
            of_address: limits.connections_per_address.min(connections),
            proxies: config.auth.trusted_proxies.clone(),
        },
        waits: HeadTimeouts { head: limits.head_wait, idle: limits.idle_wait, answer: limits.answer_wait },
    }
}

/// How many publishers may connect: as many as the settings say, where there are descriptors for them.
fn connections(config: &Config, most: usize) -> usize {
    let asked = config.limits.connections;
    if most < asked {
        tracing::warn!(asked, most, "fewer connections than limits.connections: the system allows few open files");
    }
    most.min(asked)
}
