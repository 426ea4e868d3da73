//! The listeners of the server: which sockets are bound, who may connect to them, and which server
//! responds there. `services` has what they serve, and `nodes` the listener for nodes.

mod nodes;
mod services;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use actix_server::ServerBuilder;
use actix_web::web;
use rustls::ServerConfig;
use tokio::signal::unix::{SignalKind, signal};

use self::services::ListenerRoutes;
pub(super) use self::{nodes::NodeListener, services::ListenerContext};
use super::{
    ServerError,
    client_listeners::ClientListeners,
    descriptors::{DescriptorBudget, SharedBudget},
    forward::Forwarder,
    front::{
        ConnectionLimit, HeadTimeouts, ListenerSettings, ServerConnections, hop::ListenerSide,
    },
    io_error,
    router::ShardRouter,
    running_server::RunningServer,
    tls, worker_threads,
};
use gridhook_admin as admin;
use gridhook_admin::{ListenerRole, StandbyContext, admin_token, health};
use gridhook_config::Config;
use gridhook_dashboard as dashboard;
use gridhook_metrics::ListenerCounters;

/// The time for a 503 of the interim server to reach its client once the server has taken over the
/// sockets.
const INTERIM_WAIT: Duration = Duration::from_secs(1);

struct BoundSocket {
    listener: TcpListener,
    counters: Arc<ListenerCounters>,
}

/// The maximum numbers of connections.
struct ConnectionShares {
    publishers: usize,
    operators: usize,
}

/// The bound sockets: one for publishers and operators, or one for each.
pub(super) struct HttpListener {
    listener: BoundSocket,
    admin: Option<BoundSocket>,
    tls: Option<ServerConfig>,
    /// The certificate in use, without TLS [`None`].
    shown: Option<Arc<tls::ReloadableCertificate>>,
    addresses: Vec<SocketAddr>,
    /// The URL that the server gives to others.
    public_url: String,
    /// The listener for the nodes of a cluster. An owner serves it, and a node with several shards
    /// always.
    pub(super) nodes: Option<NodeListener>,
}

pub(super) struct Standby {
    pub(super) context: StandbyContext,
    pub(super) forwarder: Forwarder,
}

/// What the listeners of a node with several shards serve.
pub(super) struct Front {
    pub(super) context: StandbyContext,
    pub(super) router: ShardRouter,
    pub(super) nodes: NodeListener,
}

impl BoundSocket {
    fn new(listener: TcpListener, name: &'static str) -> Self {
        Self {
            listener,
            counters: Arc::new(ListenerCounters::new(name)),
        }
    }

    fn try_clone(&self) -> Result<Self, ServerError> {
        let listener = self
            .listener
            .try_clone()
            .map_err(io_error("cannot listen"))?;
        Ok(Self {
            listener,
            counters: Arc::clone(&self.counters),
        })
    }
}

/// Binds an address, or uses its socket of `sockets` again. Adds the bound address to `addresses`.
fn bind_address(
    address: SocketAddr,
    sockets: &mut Vec<TcpListener>,
    addresses: &mut Vec<SocketAddr>,
) -> Result<TcpListener, ServerError> {
    if sockets.len() == addresses.len() {
        let socket =
            TcpListener::bind(address).map_err(io_error(format!("cannot listen on {address}")))?;
        sockets.push(socket);
    }
    let listener = sockets[addresses.len()]
        .try_clone()
        .map_err(io_error("a listener"))?;
    let bound_address = listener.local_addr();
    addresses.push(bound_address.map_err(io_error("the address of a listener"))?);
    Ok(listener)
}

impl HttpListener {
    /// Binds the addresses. Connections wait in the system's queue until a server accepts them.
    ///
    /// A socket of `sockets` is used again, and a new one is added. So an address is bound as long
    /// as the process runs.
    pub(super) fn open(
        config: &Config,
        sockets: &mut Vec<TcpListener>,
    ) -> Result<Self, ServerError> {
        let mut addresses = Vec::new();
        let mut bind = |address| bind_address(address, sockets, &mut addresses);
        let listener = BoundSocket::new(bind(config.server.listen)?, "publishers");
        let admin = config.server.admin_listen.map(bind).transpose()?;
        let admin = admin.map(|admin| BoundSocket::new(admin, "operators"));
        let (tls, shown) = tls::listener_tls(&config.server)?.unzip();
        if let Some(shown) = &shown {
            // A standby does not reload all that an owner does.
            let hangup = config
                .cluster
                .is_some()
                .then(|| signal(SignalKind::hangup()))
                .transpose();
            let hangup = hangup.map_err(io_error("cannot handle signals"))?;
            actix_rt::spawn(tls::keep_fresh(
                Arc::downgrade(shown),
                config.server.tls_reload,
                hangup,
            ));
        }
        let mut listener = Self {
            listener,
            admin,
            tls,
            shown,
            addresses,
            public_url: String::new(),
            nodes: None,
        };
        listener.public_url = match &config.server.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => listener.listener_url(0),
        };
        Ok(listener)
    }

    /// The addresses and counters of these listeners, for the rest of the server.
    pub(super) fn client_listeners(&self) -> ClientListeners {
        ClientListeners {
            bound: self.addresses.clone(),
            public_url: self.public_url.clone(),
            own_url: self.own_url(),
            shown: self.shown.clone(),
            counters: self.listener_counters(),
        }
    }

    /// The URL of the publishers' listener.
    pub(super) fn own_url(&self) -> String {
        self.listener_url(0)
    }

    pub(super) fn listener_counters(&self) -> Vec<Arc<ListenerCounters>> {
        [Some(&self.listener), self.admin.as_ref()]
            .into_iter()
            .flatten()
            .map(|socket| Arc::clone(&socket.counters))
            .collect()
    }

    fn listener_url(&self, index: usize) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "https" } else { "http" },
            self.addresses[index]
        )
    }

    /// The maximum numbers of connections: the settings, or less if there are not so many
    /// descriptors.
    fn connection_shares(&self, config: &Config, most: usize) -> ConnectionShares {
        let operators = if self.admin.is_some() {
            config.limits.admin_connections.min(most / 4)
        } else {
            0
        };
        ConnectionShares {
            publishers: (most - operators).min(config.limits.connections),
            operators,
        }
    }

    /// Serves requests while the server starts: `/healthz` and `/readyz` report the progress, every
    /// other request receives 503 with `Retry-After`.
    pub(super) fn serve_interim(
        &self,
        config: &Config,
        budget: &DescriptorBudget,
        health: web::Data<health::ServerHealth>,
    ) -> Result<RunningServer, ServerError> {
        let configure =
            move |cfg: &mut web::ServiceConfig, _| admin::configure_starting(cfg, health.clone());
        let server = new_server_builder(1, INTERIM_WAIT);
        self.serve_beside(
            config,
            budget,
            server,
            ServerConnections::new(budget.refusals),
            configure,
        )
    }

    /// Forwards requests to the owner of the store.
    pub(super) fn serve_standby(
        &self,
        config: &Config,
        budget: &DescriptorBudget,
        Standby { context, forwarder }: Standby,
    ) -> Result<RunningServer, ServerError> {
        let is_divided = self.admin.is_some();
        let configure = move |cfg: &mut web::ServiceConfig, side| {
            admin::configure_standby(cfg, &context, role_of(is_divided, side));
            forwarder.configure(cfg, side);
        };
        let server = new_server_builder(worker_threads(config), config.server.shutdown_timeout);
        let connections = ServerConnections::new(budget.refusals);
        self.serve_beside(config, budget, server, connections, configure)
    }

    /// Serves the sockets of a node with several shards, and its listener for nodes.
    pub(super) fn serve_front(
        &self,
        config: &Config,
        budget: &SharedBudget,
        Front {
            context,
            router,
            nodes,
        }: Front,
    ) -> Result<RunningServer, ServerError> {
        let is_divided = self.admin.is_some();
        let has_dashboard = config.server.dashboard;
        let server = new_server_builder(worker_threads(config), config.server.shutdown_timeout);
        let connections = ServerConnections::new(budget.front.refusals);
        let server = nodes.add_to(server, config, budget.node_connections, &connections)?;
        self.serve_beside(
            config,
            &budget.front,
            server,
            connections,
            move |cfg, side| {
                let role = role_of(is_divided, side);
                if has_dashboard && role != ListenerRole::Publishers {
                    cfg.app_data(dashboard::session::ServesPage);
                }
                let owner = router.clone();
                admin::configure_front(cfg, &context, role, move || owner.owns_any());
                router.configure(cfg, side);
            },
        )
    }

    /// Serves the sockets until another server takes them over.
    fn serve_beside(
        &self,
        config: &Config,
        budget: &DescriptorBudget,
        server: ServerBuilder,
        connections: ServerConnections,
        configure: impl Fn(&mut web::ServiceConfig, ListenerSide) + Clone + Send + Sync + 'static,
    ) -> Result<RunningServer, ServerError> {
        // The rest is for the connections to the owner, or for the server that takes over.
        let shares = self.connection_shares(config, budget.inbound / 2);
        self.serve_shares(config, &shares, server, connections, configure)
    }

    /// Serves the sockets with these numbers of connections.
    fn serve_shares(
        &self,
        config: &Config,
        shares: &ConnectionShares,
        mut server: ServerBuilder,
        server_connections: ServerConnections,
        configure: impl Fn(&mut web::ServiceConfig, ListenerSide) + Clone + Send + Sync + 'static,
    ) -> Result<RunningServer, ServerError> {
        let publishers = Some((&self.listener, ListenerSide::Publishers, shares.publishers));
        let operators = self
            .admin
            .as_ref()
            .map(|admin| (admin, ListenerSide::Operators, shares.operators));
        for (socket, side, connections) in publishers.into_iter().chain(operators) {
            let connections = ConnectionMaxima {
                total: connections,
                of_address: if side == ListenerSide::Operators {
                    share_of_operator(connections)
                } else {
                    connections
                },
            };
            let settings = listener_settings(
                config,
                socket.try_clone()?,
                self.tls.clone(),
                connections,
                &server_connections,
            );
            let configure = configure.clone();
            let configure = move |cfg: &mut web::ServiceConfig| configure(cfg, side);
            server = settings
                .add_to(server, Arc::new(configure))
                .map_err(io_error("cannot listen"))?;
        }
        Ok(RunningServer::start(server.run(), server_connections))
    }

    pub(super) fn serve_sockets(
        mut self,
        config: &Config,
        budget: &DescriptorBudget,
        context: ListenerContext,
    ) -> Result<RunningServer, ServerError> {
        let workers = worker_threads(config);
        let operators_address = self.addresses[self.addresses.len() - 1];
        let own_url = self.own_url();
        let admin_url = self.admin.as_ref().map(|_| self.listener_url(1));
        // Requests that other nodes forward have a part of their own.
        let node_connections = if self.nodes.is_some() {
            budget.inbound / 2
        } else {
            0
        };
        let shares = self.connection_shares(config, budget.inbound - node_connections);
        let connections = shares.publishers;
        if connections < config.limits.connections {
            let configured_limit = config.limits.connections;
            tracing::warn!(
                configured_limit,
                connections,
                "limits.connections is reduced to fit the limit of open files"
            );
        }
        let mut server = new_server_builder(workers, config.server.shutdown_timeout);
        let server_connections = ServerConnections::new(budget.refusals);
        if let Some(nodes) = self.nodes.take() {
            server = nodes.add_to(server, config, node_connections, &server_connections)?;
        }
        let is_generated = context.token.origin() == admin_token::TokenOrigin::Generated;
        let is_divided = self.admin.is_some();
        let routes = ListenerRoutes::new(config);
        let configure = move |cfg: &mut web::ServiceConfig, side| {
            context.add_to(cfg);
            routes.configure(cfg, role_of(is_divided, side));
        };
        let running = self.serve_shares(config, &shares, server, server_connections, configure)?;
        let validation = if config.delivery.validate.enabled {
            "required"
        } else {
            "off"
        };
        tracing::info!(
            url = own_url,
            admin_url,
            workers,
            connections,
            endpoints = %config.delivery,
            validation,
            "listening"
        );
        if let Some(url) = &admin_url {
            println!("the control plane is at {url}");
        }
        announce_url(&own_url);
        if is_generated && config.server.dashboard && operators_address.ip().is_loopback() {
            println!(
                "the dashboard is at {}{}",
                admin_url.unwrap_or(own_url),
                dashboard::PATH
            );
        }
        Ok(running)
    }
}

fn new_server_builder(workers: usize, stop_wait: Duration) -> ServerBuilder {
    ServerBuilder::new()
        .workers(workers)
        .disable_signals()
        .shutdown_timeout(stop_wait.as_secs())
        // `ConnectionLimiter` counts instead, because it responds on a rejected connection.
        .max_concurrent_connections(usize::MAX)
}

fn role_of(is_divided: bool, side: ListenerSide) -> ListenerRole {
    match (is_divided, side) {
        (false, _) => ListenerRole::Both,
        (true, ListenerSide::Publishers) => ListenerRole::Publishers,
        (true, ListenerSide::Operators) => ListenerRole::Operators,
    }
}

/// Tells the operator where the server is.
pub(super) fn announce_url(url: &str) {
    println!("gridhook listens on {url}");
}

/// The maximum numbers of connections of a listener.
#[derive(Clone, Copy)]
struct ConnectionMaxima {
    total: usize,
    /// Of one address.
    of_address: usize,
}

impl ConnectionMaxima {
    /// One address may have all of them.
    fn without_share(total: usize) -> Self {
        Self {
            total,
            of_address: total,
        }
    }
}

/// The maximum of the operators' connections that one address can have, so that another operator
/// can still connect.
fn share_of_operator(connections: usize) -> usize {
    connections - connections / 4
}

fn listener_settings(
    config: &Config,
    BoundSocket { listener, counters }: BoundSocket,
    tls: Option<ServerConfig>,
    maxima: ConnectionMaxima,
    server_connections: &ServerConnections,
) -> ListenerSettings {
    let limits = &config.limits;
    ListenerSettings {
        listener,
        counters,
        connections: server_connections.clone(),
        tls,
        limit: ConnectionLimit {
            total: maxima.total,
            of_address: limits.connections_per_address.min(maxima.of_address),
            proxies: config.auth.trusted_proxies.clone(),
        },
        timeouts: HeadTimeouts {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            response: limits.answer_timeout,
        },
    }
}
