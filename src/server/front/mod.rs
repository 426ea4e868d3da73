//! The HTTP listeners: one for publishers and operators together, or one for each.
//!
//! A public server needs limits that actix-web does not have: on connections (in total and per
//! address), on request heads that never end, and on responses that a peer does not read.
//! `connection_limit` counts connections; `connection` wraps the stream with deadlines.
//! `request_heads` has actix-http treat `Upgrade` and `Expect` as HTTP asks for.
//!
//! actix-web's own server accepts no custom stream, so its three parts (accepting threads, TLS,
//! HTTP) are assembled here. actix-http limits a head to 96 headers and 128 KiB.

mod connection;
mod connection_limit;
pub(super) mod hop;
mod request_heads;

use std::{
    cell::RefCell,
    io,
    net::{SocketAddr, TcpListener},
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_http::{HttpService, error::DispatchError};
use actix_rt::net::TcpStream;
use actix_server::{GracefulShutdownSignal, ServerBuilder};
use actix_service::{
    IntoServiceFactory as _, Service, ServiceFactory, ServiceFactoryExt as _,
    boxed::{BoxServiceFactory, factory},
    fn_factory, fn_service, map_config,
};
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::{
    App,
    dev::{AppConfig, ServiceResponse},
    error::InternalError,
    http::Method,
    web,
};
use futures_util::future::{Either, FutureExt as _, TryFutureExt as _, ready};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

pub(super) use self::connection_limit::ConnectionLimit;
use self::{
    connection::{
        BusyConnections, BusyThread, ClientConnection, RequestStage, RequestTimeouts, TrackedBody,
    },
    connection_limit::ConnectionLimiter,
    hop::{HandshakeSlots, HopAcceptor, ListenerSide},
    request_heads::{RequestHeads, defer_continue},
};
use super::{
    forward::unavailable_response,
    node::{StallReason, WriteStall},
};
use gridhook_admin::request_id;
use gridhook_dashboard::{session::adopt_session, shorten_json};
use gridhook_metrics::ListenerCounters;
use gridhook_publish as publish;
use gridhook_publish::{auth::host::LocalAddress, http::Publisher};

/// The response to a connection beyond the limit. It is constant, and nothing of the request is
/// read.
const UNAVAILABLE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: \
     close\r\n\r\n";

/// The beginnings of the paths of requests that an owner takes while its writes wait: those that
/// end such a wait, sign in, identify a caller, copy the store or make faults. They change nothing
/// in the journal.
const WITHOUT_WRITES: [&str; 5] = [
    "/cluster/",
    "/ui/session",
    "/chaos/",
    "/node/identity",
    "/node/store",
];

/// The time for the client to read it. A socket closed before its peer has sent a request loses the
/// response.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The timeouts for the parts of a request, except its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTimeouts {
    /// Time for a head to arrive, and for the TLS handshake.
    pub(super) head: Duration,
    pub(super) idle: Duration,
    /// Time for the client to read the response.
    pub(super) answer: Duration,
}

/// State that the connections of a server share. Clones have the same counts.
#[derive(Clone)]
pub(super) struct ServerConnections {
    /// The rejected connections that receive a response now.
    refusals: Arc<AtomicUsize>,
    /// Maximum of `refusals`. Further connections are closed without a response.
    refusals_max: usize,
    busy: BusyConnections,
}

impl ServerConnections {
    pub(super) fn new(refusals_max: usize) -> Self {
        Self {
            refusals: Arc::default(),
            refusals_max,
            busy: BusyConnections::default(),
        }
    }

    /// The number of connections that wait for their first request, or for a whole response.
    pub(super) fn busy(&self) -> usize {
        self.busy.count()
    }
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

/// Applies the connection limit to accepted sockets.
#[derive(Clone)]
struct ConnectionCounter {
    connection_limiter: Arc<ConnectionLimiter>,
    connections: ServerConnections,
    timeouts: HeadTimeouts,
}

impl ConnectionCounter {
    async fn admit_connection(
        self,
        stream: TcpStream,
        busy: BusyThread,
    ) -> Result<ClientConnection, ()> {
        let peer = stream.peer_addr().map_err(drop)?;
        let timeouts = RequestTimeouts {
            head: self.timeouts.idle + self.timeouts.head,
            answer: self.timeouts.answer,
        };
        match self.connection_limiter.admit_connection(peer.ip()) {
            Some(permit) => Ok(ClientConnection::new(stream, peer, timeouts, permit, busy)),
            None => {
                let ServerConnections {
                    refusals,
                    refusals_max,
                    ..
                } = self.connections;
                if refusals.fetch_add(1, Ordering::Relaxed) < refusals_max {
                    // A client that has disconnected needs no response.
                    timeout(REFUSAL_WAIT, refuse_connection(stream)).await.ok();
                }
                refusals.fetch_sub(1, Ordering::Relaxed);
                Err(())
            }
        }
    }
}

async fn refuse_connection(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(UNAVAILABLE).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// The HTTP services of a listener.
#[derive(Clone)]
struct ListenerServices {
    address: SocketAddr,
    timeouts: HeadTimeouts,
    signal: GracefulShutdownSignal,
    counters: Arc<ListenerCounters>,
    configure: ConfigureServices,
    /// Whether the listener is the one for nodes, whose requests were forwarded.
    is_hop: bool,
}

/// Responds to a request whose write waits for too long.
async fn unless_stalled<T>(
    response: impl Future<Output = actix_web::Result<T>>,
    stall: Option<WriteStall>,
) -> actix_web::Result<T> {
    let Some(stall) = stall else {
        return response.await;
    };
    // Boxed, so that requests to a server of its own have a smaller future.
    let refusal = Box::pin(async move {
        tokio::select! {
            biased;
            response = response => response,
            reason = stall.wait_until_stalled() => {
                let message = format!("{}; the request may or may not have been processed", explain_stall(reason));
                Err(InternalError::from_response(explain_stall(reason), unavailable_response(&message)).into())
            }
        }
    });
    refusal.await
}

/// Why an owner does not process a request.
fn explain_stall(reason: StallReason) -> &'static str {
    match reason {
        StallReason::Full => "the stream of the cluster is full (gridhook help cluster)",
        StallReason::Unreachable => "the servers of NATS cannot be reached, or have no majority",
    }
}

/// Whether a request may wait for a write to the journal.
fn may_write(method: &Method, path: &str) -> bool {
    *method != Method::GET
        && !WITHOUT_WRITES
            .iter()
            .any(|without| path.starts_with(without))
}

/// A connection with TLS, and a function that is called with what is read.
type SecureConnection = InspectReader<TlsStream<ClientConnection>, Box<dyn FnMut(&[u8])>>;

/// Wraps a connection with TLS, so that its end is seen: a client that closes its side says so
/// within TLS. The HTTP library stops reading there, so the connection below never sees its end.
fn secure_connection(stream: TlsStream<ClientConnection>) -> SecureConnection {
    let stage = stream.get_ref().0.stage();
    InspectReader::new(
        stream,
        Box::new(move |read: &[u8]| {
            if read.is_empty() {
                stage.peer().mark_closed();
            }
        }),
    )
}

/// A connection of a client or of another node, with TLS or without. It is one type: the HTTP
/// library would be compiled for each.
type ClientStream = tokio_util::either::Either<ClientConnection, Box<SecureConnection>>;

/// The connection, below TLS where there is TLS.
fn connection_below(stream: &ClientStream) -> &ClientConnection {
    match stream {
        ClientStream::Left(connection) => connection,
        ClientStream::Right(secure) => secure.get_ref().get_ref().0,
    }
}

fn drop_body_of_head(response: ServiceResponse) -> ServiceResponse {
    let (request, response) = response.into_parts();
    let response = shorten_json(&request, response);
    ServiceResponse::new(request, response)
}

impl ListenerServices {
    fn connection_service(
        self,
        secure: bool,
    ) -> impl ServiceFactory<ClientStream, Config = (), Response = (), Error = (), InitError = ()>
    {
        let Self {
            address,
            timeouts,
            signal,
            counters,
            configure,
            is_hop,
        } = self;
        let app = App::new().configure(|config| configure(config)).wrap_fn(
            move |mut request, service| {
                if is_hop {
                    hop::adopt_client(&mut request);
                }
                let stage = request.conn_data::<Rc<RequestStage>>().cloned();
                if let Some(stage) = &stage {
                    stage.request_started();
                    defer_continue(&mut request, stage);
                }
                adopt_session(&mut request);
                let id = request_id::new();
                let correlation = request_id::correlation_id(request.request());
                let publisher = request.app_data::<web::Data<Publisher>>();
                let may_write = may_write(request.method(), request.path());
                let stall = request
                    .app_data::<WriteStall>()
                    .filter(|_| may_write)
                    .cloned();
                let (called, refusal) =
                    match publisher.map(|publisher| publisher.check_host(request.request())) {
                        Some(Ok(called)) => (Some(called), None),
                        Some(Err(refusal)) => (
                            None,
                            publisher.map(|publisher| publisher.respond_refused(&refusal)),
                        ),
                        None => (None, None),
                    };
                let stall_reason = || stall.as_ref()?.reason();
                let report_stall = || Some(unavailable_response(explain_stall(stall_reason()?)));
                let response = match refusal.or_else(report_stall) {
                    Some(refusal) => Either::Left(ready(Ok(request.into_response(refusal)))),
                    None => {
                        let response =
                            match called.filter(|_| publish::http::route_directly(&mut request)) {
                                Some(called) => Either::Left(Box::pin(
                                    publish::http::publish_directly(request, called),
                                )),
                                None => Either::Right(service.call(request)),
                            };
                        Either::Right(unless_stalled(response, stall))
                    }
                };
                let counters = Arc::clone(&counters);
                // Not an async block: it would have the future of the response twice.
                request_id::with_id(id, response).map(move |handled| match handled {
                    Ok(mut response) => {
                        stage.iter().for_each(|stage| stage.response_started());
                        request_id::add(response.headers_mut(), id, correlation);
                        counters.count_response(response.status().as_u16());
                        // The node that the client called does it, after the parts of several shards
                        // were joined.
                        let response = if is_hop {
                            response
                        } else {
                            drop_body_of_head(response)
                        };
                        Ok(response.map_body(|_, body| TrackedBody::new(body, stage)))
                    }
                    Err(error) => {
                        stage.iter().for_each(|stage| stage.response_started());
                        counters.count_response(error.as_response_error().status_code().as_u16());
                        if let Some(stage) = &stage {
                            stage.end();
                        }
                        Err(error)
                    }
                })
            },
        );
        let app = app
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let app = map_config(app, |()| AppConfig::default());
        let new_http = move |app| {
            let signal = signal.clone();
            HttpService::build()
                .graceful_shutdown_signal(move || {
                    let signal = signal.clone();
                    async move { signal.notified().await }
                })
                .keep_alive(timeouts.idle)
                .client_request_timeout(timeouts.head)
                .client_disconnect_timeout(REFUSAL_WAIT)
                .local_addr(address)
                .on_connect_ext(move |stream: &RequestHeads, extensions| {
                    let connection = connection_below(stream.get_ref());
                    let stage = connection.stage();
                    extensions.insert(stage.peer().clone());
                    extensions.insert(stage);
                    extensions.insert(LocalAddress {
                        address: connection.local().unwrap_or(address),
                        secure,
                    });
                })
                .h1(fn_factory(move || ready(Ok::<_, ()>(Rc::clone(&app)))))
                .map_err(|_: DispatchError| ())
        };
        fn_service(|stream: ClientStream| {
            let peer = connection_below(&stream).peer();
            ready(Ok((RequestHeads::new(stream), Some(peer))))
        })
        .and_then(fn_factory(move || {
            let new_http = new_http.clone();
            app.new_service(()).map_ok(move |app| {
                let app = Rc::new(app);
                serve_while_connected(move || new_http(Rc::clone(&app)))
            })
        }))
    }
}

/// Makes an HTTP service for the first connection of a thread, and drops it with the last one.
/// actix-http renews the date of responses twice a second while the service exists, and would wake
/// each thread of an idle server.
fn serve_while_connected<Connection, Factory>(
    new_http: impl Fn() -> Factory + 'static,
) -> impl Service<Connection, Response = (), Error = ()>
where
    Connection: 'static,
    Factory: ServiceFactory<Connection, Config = (), Response = (), Error = (), InitError = ()>
        + 'static,
{
    let new_http = Rc::new(new_http);
    let shared: Rc<RefCell<Weak<Factory::Service>>> = Rc::default();
    fn_service(move |connection| {
        let new_http = Rc::clone(&new_http);
        let shared = Rc::clone(&shared);
        async move {
            let open_http = shared.borrow().upgrade();
            let http = match open_http {
                Some(http) => http,
                None => {
                    let http = Rc::new(new_http().new_service(()).await?);
                    shared.replace(Rc::downgrade(&http));
                    http
                }
            };
            http.call(connection).await
        }
    })
}
