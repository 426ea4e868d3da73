//! The HTTP listeners: one for publishers and operators together, or one for each.
//!
//! A public server needs limits that actix-web does not have: on connections (in total and per
//! address), on request heads that never end, and on responses that a peer does not read.
//! `connection_limit` counts connections, `admission` refuses those beyond the limit; `connection`
//! wraps the stream with deadlines. `request_heads` has actix-http treat `Upgrade` and `Expect` as
//! HTTP asks for. `http_service` has what is done with every request and response.
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
mod write_stall;

use std::{io, net::TcpListener, rc::Rc, sync::Arc, time::Duration};

use actix_server::ServerBuilder;
use actix_service::{
    Service, ServiceFactory, ServiceFactoryExt as _,
    boxed::{BoxServiceFactory, factory},
    fn_factory, fn_service,
};
use actix_tls::accept::rustls_0_23::Acceptor;
use actix_web::web;
use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsAcceptor;

use self::{
    admission::ConnectionCounter,
    client_stream::{ClientStream, connection_below, secure_connection},
    connection::ClientConnection,
    connection_limit::ConnectionLimiter,
    hop::{HandshakeSlots, HopAcceptor, ListenerSide},
    http_service::ListenerServices,
};
pub(super) use self::{admission::ServerConnections, connection_limit::ConnectionLimit};
use gridhook_metrics::ListenerCounters;

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
        let slots = HandshakeSlots::new(limit.total);
        let connection_limiter = ConnectionLimiter::new(limit, Arc::clone(&counters));
        let counter = ConnectionCounter {
            connection_limiter,
            connections,
            timeouts,
        };
        let operators = ListenerServices {
            address,
            timeouts,
            signal: signal.clone(),
            counters: Arc::clone(&counters),
            configure: operators,
            is_hop: true,
        };
        let publishers = ListenerServices {
            address,
            timeouts,
            signal,
            counters,
            configure: publishers,
            is_hop: true,
        };
        let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        server.listen(name, listener, move || {
            let counter = counter.clone();
            let busy = counter.connections.busy.add_thread();
            let acceptor = acceptor.clone();
            fn_service(move |stream| counter.clone().admit_connection(stream, busy.clone()))
                .and_then(hop_handshake(
                    acceptor,
                    tls.clone(),
                    slots.clone(),
                    timeouts,
                ))
                .and_then(by_side(
                    factory(publishers.clone().connection_service(false)),
                    factory(operators.clone().connection_service(false)),
                ))
        })
    }
}

/// The owner's part of the handshake with a node, TLS included. A connection of a node that only
/// watches ends here.
///
/// TLS is not the service of actix-tls: at its limit of handshakes a thread accepts no connection
/// at any listener.
fn hop_handshake(
    acceptor: HopAcceptor,
    tls: Option<TlsAcceptor>,
    slots: HandshakeSlots,
    timeouts: HeadTimeouts,
) -> impl ServiceFactory<
    ClientConnection,
    Config = (),
    Response = (ClientStream, ListenerSide),
    Error = (),
    InitError = (),
> {
    fn_service(move |stream: ClientConnection| {
        let tls = tls.clone();
        let connection = async move {
            Ok(match tls {
                None => ClientStream::Left(stream),
                Some(tls) => ClientStream::Right(Box::new(secure_connection(
                    tls.accept(stream).await?.into(),
                ))),
            })
        };
        let handshake = acceptor.clone().accept_hop(connection, timeouts.head);
        let slot = slots.take_slot();
        async move {
            let (mut stream, side) = tokio::select! {
                accepted = handshake => accepted?,
                () = slot.notified() => return Err(()),
            };
            drop(slot);
            let Some(side) = side else {
                // The client is a node of this cluster, and has no deadline.
                connection_below(&stream).stage().expect_no_request();
                stream.read_u8().await.ok();
                return Err(());
            };
            Ok((stream, side))
        }
    })
}

/// The factory of a service for connections of clients.
type HttpServices = BoxServiceFactory<(), ClientStream, (), (), ()>;

/// The services of both sides as one.
fn by_side(
    publishers: HttpServices,
    operators: HttpServices,
) -> impl ServiceFactory<
    (ClientStream, ListenerSide),
    Config = (),
    Response = (),
    Error = (),
    InitError = (),
> {
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
