//! The listener for other nodes of a cluster, which forward the requests of their clients.

use std::{net::TcpListener, sync::Arc};

use actix_server::ServerBuilder;
use rustls::ServerConfig;
use tracing::Span;

use super::{
    BoundSocket, ConnectionMaxima, listener_settings, new_server_builder, role_of,
    services::{ListenerContext, ListenerShared, listener_services},
};
use crate::{
    ServerError, core_span,
    descriptors::DescriptorBudget,
    front::{
        ConfigureServices, ConnectionLimit, ListenerSettings, ServerConnections,
        hop::{HopAcceptor, ListenerSide},
    },
    io_error, router,
    running_server::RunningServer,
    worker_threads,
};
use gridhook_admin::ListenerRole;
use gridhook_config::Config;

/// The listener for the other nodes of a cluster.
pub(crate) struct NodeListener {
    pub(crate) listener: TcpListener,
    pub(crate) acceptor: HopAcceptor,
    pub(crate) tls: Option<ServerConfig>,
}

impl NodeListener {
    /// Serves the requests of nodes to one of several shards, whose clients are those of the node's
    /// own listeners.
    pub(crate) fn serve_sockets(
        self,
        config: &Config,
        budget: &DescriptorBudget,
        context: ListenerContext,
    ) -> Result<RunningServer, ServerError> {
        let shared = ListenerShared::new(config, context);
        let role = role_of(
            config.server.admin_listen.is_some(),
            ListenerSide::Publishers,
        );
        let server_connections = ServerConnections::new(budget.refusals);
        let server = self.add_to(
            new_server_builder(worker_threads(config), config.server.shutdown_timeout),
            config,
            budget.inbound,
            &server_connections,
            NodeServices::new(&shared, role),
        )?;
        Ok(RunningServer::start(server.run(), server_connections))
    }

    pub(super) fn add_to(
        self,
        server: ServerBuilder,
        config: &Config,
        connections: usize,
        server_connections: &ServerConnections,
        services: NodeServices,
    ) -> Result<ServerBuilder, ServerError> {
        let Self {
            listener,
            acceptor,
            tls,
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
        let NodeServices {
            publishers,
            operators,
        } = services;
        let result = ListenerSettings { limit, ..settings }
            .add_nodes_to(server, acceptor, publishers, operators);
        result.map_err(io_error("cannot listen"))
    }
}

/// What the listener serves to the clients of other nodes, by the side that they called.
pub(super) struct NodeServices {
    publishers: ConfigureServices,
    operators: ConfigureServices,
}

impl NodeServices {
    /// `role` is that of the listener for publishers.
    pub(super) fn new(shared: &ListenerShared, role: ListenerRole) -> Self {
        Self {
            publishers: node_services(shared, role),
            operators: node_services(shared, ListenerRole::Operators),
        }
    }
}

/// The services of a listener, and those for other nodes.
fn node_services(shared: &ListenerShared, role: ListenerRole) -> ConfigureServices {
    let services = listener_services(shared, role);
    let span = Span::current();
    Arc::new(move |cfg| {
        // Called on the thread of each worker.
        core_span::stay_in(&span);
        router::owner::configure(cfg);
        services(cfg);
    })
}
