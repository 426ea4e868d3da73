//! The HTTP listeners: one for publishers and operators together, or one for each.
//!
//! A public server needs limits that actix-web does not have: on connections (in total and per
//! address), on request heads that never end, and on responses that a peer does not read.
//! `connection_limit` counts connections, `admission` refuses those beyond the limit; `connection`
//! wraps the stream with deadlines. `request_heads` has actix-http treat `Upgrade` and `Expect` as
//! HTTP asks for. `http_service` has what is done with every request and response. `hop` and
//! `served_shards` are for requests of nodes.
//!
//! actix-web's own server accepts no custom stream, so its three parts (accepting threads, TLS,
//! HTTP) are assembled here. actix-http limits a head to 96 headers and 128 KiB.

mod admission;
mod client_stream;
mod connection;
mod connection_limit;
pub(super) mod hop;
mod http_service;
mod request_heads;
pub(super) mod served_shards;
mod write_stall;

use std::{io, net::TcpListener, rc::Rc, sync::Arc, time::Duration};

use actix_server::{GracefulShutdownSignal, ServerBuilder};
use actix_service::{
    Service, ServiceFactory, ServiceFactoryExt as _,
    boxed::{BoxServiceFactory, factory},
    fn_factory, fn_service,
};
use actix_tls::accept::rustls_0_23::Acceptor;
use actix_web::web;
use rustls::ServerConfig;
use tokio::{io::AsyncReadExt as _, time::timeout};
use tokio_rustls::TlsAcceptor;

use self::{
    admission::ConnectionCounter,
    client_stream::{ClientStream, secure_connection},
    connection::ClientConnection,
    connection_limit::ConnectionLimiter,
    hop::{HandshakeSlots, HopAcceptor, HopTarget, ListenerSide},
    http_service::ListenerServices,
    served_shards::ServedShards,
};
pub(super) use self::{admission::ServerConnections, connection_limit::ConnectionLimit};
use gridhook_metrics::ListenerCounters;

/// How long a connection of another node waits for its shard to be served here: longer than a
/// request waits for an owner.
const SHARD_WAIT: Duration = Duration::from_secs(10);

/// The timeouts for the parts of a request, except its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTimeouts {
    /// Time for a head to arrive, and for the TLS handshake.
    pub(super) head: Duration,
    pub(super) idle: Duration,
    /// Time for the client to read the response.
    pub(super) response: Duration,
}

/// A socket and its limits.
pub(super) struct ListenerSettings {
    pub(super) listener: TcpListener,
    pub(super) counters: Arc<ListenerCounters>,
    pub(super) connections: ServerConnections,
    pub(super) tls: Option<ServerConfig>,
    pub(super) limit: ConnectionLimit,
    pub(super) timeouts: HeadTimeouts,
}

/// Adds services to the app of each worker. It is not a type parameter: the HTTP library would be
/// compiled for each.
pub(super) type ConfigureServices = Arc<dyn Fn(&mut web::ServiceConfig) + Send + Sync>;

impl ListenerSettings {
    /// Adds the listener to a server, with the services of `configure`.
    pub(super) fn add_to(
        self,
        server: ServerBuilder,
        configure: ConfigureServices,
    ) -> io::Result<ServerBuilder> {
        let Self {
            listener,
            counters,
            connections,
            tls,
            limit,
            timeouts,
        } = self;
        let name = counters.name;
        let address = listener.local_addr()?;
        let signal = server.graceful_shutdown_signal();
        let counter = ConnectionCounter {
            connection_limiter: ConnectionLimiter::new(limit, Arc::clone(&counters)),
            connections,
            timeouts,
        };
        let services = ListenerServices {
            address,
            timeouts,
            signal,
            counters,
            configure,
            is_hop: false,
        };
        let acceptor = tls.map(|mut tls| {
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            let mut acceptor = Acceptor::new(tls);
            acceptor.set_handshake_timeout(timeouts.head);
            acceptor
        });
        server.listen(name, listener, move || {
            let counter = counter.clone();
            let busy = counter.connections.busy.add_thread();
            let admission =
                fn_service(move |stream| counter.clone().admit_connection(stream, busy.clone()));
            let connections = match &acceptor {
                None => factory(admission.map(ClientStream::Left)),
                Some(acceptor) => factory(
                    admission
                        .and_then(acceptor.clone().map_err(drop).map_init_err(drop))
                        .map(|stream| ClientStream::Right(Box::new(secure_connection(stream)))),
                ),
            };
            connections.and_then(services.clone().connection_service(acceptor.is_some()))
        })
    }
}

impl ListenerSettings {
    /// Adds the listener for other nodes to a server, with the services of each side.
    pub(super) fn add_nodes_to(
        self,
        server: ServerBuilder,
        acceptor: HopAcceptor,
        shards: ServedShards,
        publishers: ConfigureServices,
        operators: ConfigureServices,
    ) -> io::Result<ServerBuilder> {
        let Self {
            listener,
            counters,
            connections,
            tls,
            limit,
            timeouts,
        } = self;
        let name = counters.name;
        let address = listener.local_addr()?;
        let signal = server.graceful_shutdown_signal();
        let handshake = HopHandshake {
            acceptor,
            tls: tls.map(|tls| TlsAcceptor::from(Arc::new(tls))),
            slots: HandshakeSlots::new(limit.total, shards.count()),
            shards,
            signal: signal.clone(),
            timeouts,
        };
        let connection_limiter = ConnectionLimiter::new(limit, Arc::clone(&counters));
        let counter = ConnectionCounter {
            connection_limiter,
            connections,
            timeouts,
        };
        let publishers = ListenerServices {
            address,
            timeouts,
            signal,
            counters,
            configure: publishers,
            is_hop: true,
        };
        let operators = ListenerServices {
            configure: operators,
            ..publishers.clone()
        };
        server.listen(name, listener, move || {
            let counter = counter.clone();
            let busy = counter.connections.busy.add_thread();
            let handshake = handshake.clone();
            fn_service(move |stream| counter.clone().admit_connection(stream, busy.clone()))
                .and_then(fn_service(move |stream| handshake.clone().accept(stream)))
                .and_then(by_side(
                    factory(publishers.clone().connection_service(false)),
                    factory(operators.clone().connection_service(false)),
                ))
        })
    }
}

/// A connection of another node for requests, and the side of its clients.
type NodeConnection = (ClientStream, ListenerSide);

/// Accepts connections of nodes: TLS, and the proofs.
///
/// TLS is not the service of actix-tls: at its limit of handshakes a thread accepts no connection
/// at any listener.
#[derive(Clone)]
struct HopHandshake {
    acceptor: HopAcceptor,
    tls: Option<TlsAcceptor>,
    slots: HandshakeSlots,
    shards: ServedShards,
    signal: GracefulShutdownSignal,
    timeouts: HeadTimeouts,
}

impl HopHandshake {
    /// Accepts a connection, one for requests to a shard once that is served. One of a node that only
    /// watches ends here.
    async fn accept(self, stream: ClientConnection) -> Result<NodeConnection, ()> {
        let signal = self.signal.clone();
        tokio::select! {
            connection = self.wait_for_shard(stream) => connection,
            () = signal.notified() => Err(()),
        }
    }

    async fn wait_for_shard(self, stream: ClientConnection) -> Result<NodeConnection, ()> {
        let Self {
            acceptor,
            tls,
            slots,
            shards,
            timeouts,
            ..
        } = self;
        let stage = stream.stage();
        let connection = async move {
            Ok(match tls {
                None => ClientStream::Left(stream),
                Some(tls) => ClientStream::Right(Box::new(secure_connection(
                    tls.accept(stream).await?.into(),
                ))),
            })
        };
        let slot = slots.take_slot();
        let mut hop = tokio::select! {
            hop = acceptor.check_node(connection, timeouts.head) => hop?,
            () = slot.notified() => return Err(()),
        };
        drop(slot);
        // The client is a node of this cluster, and has no deadline.
        stage.expect_no_request();
        let side = match hop.target {
            HopTarget::Watch => {
                let mut stream = hop.confirm(timeouts.head).await?;
                stream.read_u8().await.ok();
                return Err(());
            }
            HopTarget::Pull => {
                stage.expect_pulls(shards);
                ListenerSide::Publishers
            }
            HopTarget::Shard { shard, side } => {
                let serving = timeout(SHARD_WAIT, shards.wait_until_served(shard));
                let Some(Ok(Some(run))) = hop.wait_unless_gone(serving).await else {
                    return Err(());
                };
                // The run then waits for the request that follows the confirmation.
                stage.expect_requests_to_shard(run);
                side
            }
        };
        let stream = hop.confirm(timeouts.head).await?;
        Ok((stream, side))
    }
}

/// The factory of a service for connections of clients.
type HttpServices = BoxServiceFactory<(), ClientStream, (), (), ()>;

/// The services of both sides as one.
fn by_side(
    publishers: HttpServices,
    operators: HttpServices,
) -> impl ServiceFactory<NodeConnection, Config = (), Response = (), Error = (), InitError = ()> {
    let factories = Rc::new((publishers, operators));
    fn_factory(move || {
        let factories = Rc::clone(&factories);
        async move {
            let publishers = Rc::new(factories.0.new_service(()).await?);
            let operators = Rc::new(factories.1.new_service(()).await?);
            Ok(fn_service(move |(stream, side)| {
                let service = match side {
                    ListenerSide::Publishers => &publishers,
                    ListenerSide::Operators => &operators,
                };
                service.call(stream)
            }))
        }
    })
}
