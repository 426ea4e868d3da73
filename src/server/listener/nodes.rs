//! The listener for other nodes of a cluster, which forward the requests of their clients.

use std::{net::TcpListener, sync::Arc};

use actix_server::ServerBuilder;
use actix_web::web;
use rustls::ServerConfig;

use super::{BoundSocket, ConnectionMaxima, listener_settings, role_of, services::ListenerRoutes};
use crate::{
    ServerError,
    front::{
        ConfigureServices, ConnectionLimit, HeadTimeouts, ListenerSettings, ServerConnections,
        hop::{self, HopAcceptor, ListenerSide},
        served_shards::ServedShards,
    },
    io_error, router,
};
use gridhook_admin::ListenerRole;
use gridhook_config::Config;
use gridhook_pull as pull;
use gridhook_pull::NodePolls;

/// The listener for the nodes of a cluster, this one among them, and the shards that are served
/// there.
pub(crate) struct NodeListener {
    pub(crate) listener: TcpListener,
    pub(crate) acceptor: HopAcceptor,
    pub(crate) tls: Option<ServerConfig>,
    pub(crate) shards: ServedShards,
}

impl NodeListener {
    /// Adds the listener to a server, with as many connections.
    pub(super) fn add_to(
        self,
        server: ServerBuilder,
        config: &Config,
        connections: usize,
        server_connections: &ServerConnections,
    ) -> Result<ServerBuilder, ServerError> {
        let Self {
            listener,
            acceptor,
            tls,
            shards,
        } = self;
        let nodes = BoundSocket::new(listener, "nodes");
        let settings = listener_settings(
            config,
            nodes,
            tls,
            ConnectionMaxima::without_share(connections),
            server_connections,
        );
        // Each node forwards the requests of many clients.
        let limit = ConnectionLimit {
            of_address: settings.limit.total,
            ..settings.limit.clone()
        };
        let timeouts = HeadTimeouts {
            idle: hop::idle_timeout(settings.timeouts.idle),
            ..settings.timeouts
        };
        let settings = ListenerSettings {
            limit,
            timeouts,
            ..settings
        };
        let is_divided = config.server.admin_listen.is_some();
        let role = role_of(is_divided, ListenerSide::Publishers);
        let publishers = with_receive_requests(node_services(config, role));
        let operators = node_services(config, ListenerRole::Operators);
        let result = settings.add_nodes_to(server, acceptor, shards, publishers, operators);
        result.map_err(io_error("cannot listen"))
    }
}

/// The services of a listener with this role, and those for nodes.
fn node_services(config: &Config, role: ListenerRole) -> ConfigureServices {
    let routes = ListenerRoutes::new(config);
    Arc::new(move |cfg| {
        router::owner::configure(cfg);
        routes.configure(cfg, role);
    })
}

/// Services with those for connections that receive events from several shards.
fn with_receive_requests(services: ConfigureServices) -> ConfigureServices {
    let polls = web::Data::new(NodePolls::default());
    Arc::new(move |cfg| {
        cfg.app_data(polls.clone());
        pull::node::configure(cfg);
        services(cfg);
    })
}
