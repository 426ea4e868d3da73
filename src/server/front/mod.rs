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
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_http::{HttpService, Protocol, error::DispatchError};
use actix_rt::net::TcpStream;
use actix_server::{GracefulShutdownSignal, ServerBuilder};
use actix_service::{
    IntoServiceFactory as _, Service as _, ServiceFactory, ServiceFactoryExt as _,
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
use futures_util::future::{Either, FutureExt as _, ready};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;

pub(super) use self::connection_limit::ConnectionLimit;
use self::{
    connection::{ClientConnection, RequestStage, RequestTimeouts, TrackedBody},
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

/// What begins the paths of requests that an owner takes while its writes wait: those that end such
/// a wait, sign in, identify a caller, copy the store or make faults. They change nothing in the
/// journal.
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
    /// For a head, and for the TLS handshake.
    pub(super) head: Duration,
    pub(super) idle: Duration,
    /// For the response to be read.
    pub(super) answer: Duration,
}

/// The maximum number of rejected connections that receive a response at the same time; further
/// ones are closed without one. Clones share the count.
#[derive(Clone)]
pub(super) struct RefusalSlots {
    now: Arc<AtomicUsize>,
    most: usize,
}

impl RefusalSlots {
    pub(super) fn new(most: usize) -> Self {
        Self {
            now: Arc::default(),
            most,
        }
    }
}

/// A socket and its limits.
pub(super) struct ListenerSettings {
    pub(super) listener: TcpListener,
    pub(super) counters: Arc<ListenerCounters>,
    pub(super) refusal_slots: RefusalSlots,
    pub(super) tls: Option<ServerConfig>,
    pub(super) limit: ConnectionLimit,
    pub(super) timeouts: HeadTimeouts,
}

impl ListenerSettings {
    /// Adds the listener to a server, with the services of `configure`.
    pub(super) fn add_to<F>(self, server: ServerBuilder, configure: F) -> io::Result<ServerBuilder>
    where
        F: Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
    {
        let Self {
            listener,
            counters,
            refusal_slots,
            tls,
            limit,
            timeouts,
        } = self;
        let name = counters.name;
        let address = listener.local_addr()?;
        let signal = server.graceful_shutdown_signal();
        let counter = ConnectionCounter {
            connection_limiter: ConnectionLimiter::new(limit, Arc::clone(&counters)),
            refusal_slots,
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
        match tls {
            None => server.listen(name, listener, move || {
                let counter = counter.clone();
                fn_service(move |stream| counter.clone().admit_connection(stream))
                    .map(|(connection, peer)| (connection, Protocol::Http1, Some(peer)))
                    .and_then(
                        services
                            .clone()
                            .connection_service::<ClientConnection>(false),
                    )
            }),
            Some(mut tls) => {
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
                let mut acceptor = Acceptor::new(tls);
                acceptor.set_handshake_timeout(timeouts.head);
                server.listen(name, listener, move || {
                    let counter = counter.clone();
                    fn_service(move |stream| counter.clone().admit_connection(stream))
                        .map(|(connection, _)| connection)
                        .and_then(acceptor.clone().map_err(drop).map_init_err(drop))
                        .map(|stream| {
                            let stream = secure_connection(stream);
                            let peer = stream.peer();
                            (stream, Protocol::Http1, peer)
                        })
                        .and_then(
                            services
                                .clone()
                                .connection_service::<SecureConnection>(true),
                        )
                })
            }
        }
    }
}

impl ListenerSettings {
    /// Adds the listener for other nodes to a server, with the services of each side.
    pub(super) fn add_nodes_to<F, G>(
        self,
        server: ServerBuilder,
        acceptor: HopAcceptor,
        publishers: F,
        operators: G,
    ) -> io::Result<ServerBuilder>
    where
        F: Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
        G: Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
    {
        let Self {
            listener,
            counters,
            refusal_slots,
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
            refusal_slots,
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
            let acceptor = acceptor.clone();
            fn_service(move |stream| counter.clone().admit_connection(stream))
                .map(|(stream, _)| stream)
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
    Response = (NodeConnection, ListenerSide),
    Error = (),
    InitError = (),
> {
    fn_service(move |stream: ClientConnection| {
        let tls = tls.clone();
        let connection = async move {
            Ok(match tls {
                None => NodeConnection::Left(stream),
                Some(tls) => NodeConnection::Right(Box::new(secure_connection(
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
                // It is a node of this cluster, and has no deadline.
                stream.stage().request_started();
                stream.read_u8().await.ok();
                return Err(());
            };
            Ok((stream, side))
        }
    })
}

/// The factory of a service for connections of clients.
type HttpServices<T> = BoxServiceFactory<(), (T, Protocol, Option<SocketAddr>), (), (), ()>;

/// The services of both sides as one.
fn by_side<T: TrackedStream>(
    publishers: HttpServices<T>,
    operators: HttpServices<T>,
) -> impl ServiceFactory<(T, ListenerSide), Config = (), Response = (), Error = (), InitError = ()>
{
    let factories = Rc::new((publishers, operators));
    fn_factory(move || {
        let factories = Rc::clone(&factories);
        async move {
            let publishers = Rc::new(factories.0.new_service(()).await?);
            let operators = Rc::new(factories.1.new_service(()).await?);
            Ok(fn_service(move |(stream, side): (T, ListenerSide)| {
                let peer = stream.peer();
                let service = match side {
                    ListenerSide::Publishers => &publishers,
                    ListenerSide::Operators => &operators,
                };
                service.call((stream, Protocol::Http1, peer))
            }))
        }
    })
}

/// Applies the connection limit to accepted sockets.
#[derive(Clone)]
struct ConnectionCounter {
    connection_limiter: Arc<ConnectionLimiter>,
    refusal_slots: RefusalSlots,
    timeouts: HeadTimeouts,
}

impl ConnectionCounter {
    async fn admit_connection(
        self,
        stream: TcpStream,
    ) -> Result<(ClientConnection, SocketAddr), ()> {
        let peer = stream.peer_addr().map_err(drop)?;
        let timeouts = RequestTimeouts {
            head: self.timeouts.idle + self.timeouts.head,
            answer: self.timeouts.answer,
        };
        match self.connection_limiter.admit_connection(peer.ip()) {
            Some(permit) => Ok((ClientConnection::new(stream, peer, timeouts, permit), peer)),
            None => {
                if self.refusal_slots.now.fetch_add(1, Ordering::Relaxed) < self.refusal_slots.most
                {
                    // A client that has disconnected needs no response.
                    timeout(REFUSAL_WAIT, refuse_connection(stream)).await.ok();
                }
                self.refusal_slots.now.fetch_sub(1, Ordering::Relaxed);
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
struct ListenerServices<F> {
    address: SocketAddr,
    timeouts: HeadTimeouts,
    signal: GracefulShutdownSignal,
    counters: Arc<ListenerCounters>,
    configure: F,
    /// Whether its requests are forwarded ones.
    is_hop: bool,
}

/// Answers a request whose write waits for too long.
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

/// A stream that tracks the stage of its request.
trait TrackedStream: AsyncRead + AsyncWrite + Unpin + 'static {
    fn stage(&self) -> Rc<RequestStage>;
    fn peer(&self) -> Option<SocketAddr>;
    fn local(&self) -> Option<SocketAddr>;
}

impl TrackedStream for ClientConnection {
    fn stage(&self) -> Rc<RequestStage> {
        ClientConnection::stage(self)
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(ClientConnection::peer(self))
    }

    fn local(&self) -> Option<SocketAddr> {
        ClientConnection::local(self)
    }
}

/// A connection with TLS, and a function that is called with what is read.
type SecureConnection = InspectReader<TlsStream<ClientConnection>, Box<dyn FnMut(&[u8])>>;

/// A client that closes its side says so within TLS. The HTTP library stops reading there, so that
/// the connection below never sees its end.
fn secure_connection(stream: TlsStream<ClientConnection>) -> SecureConnection {
    let stage = stream.get_ref().0.stage();
    let inspect = move |read: &[u8]| {
        if read.is_empty() {
            stage.peer().mark_closed();
        }
    };
    InspectReader::new(stream, Box::new(inspect))
}

impl TrackedStream for SecureConnection {
    fn stage(&self) -> Rc<RequestStage> {
        self.get_ref().get_ref().0.stage()
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.get_ref().get_ref().0.peer())
    }

    fn local(&self) -> Option<SocketAddr> {
        self.get_ref().get_ref().0.local()
    }
}

/// A connection of another node.
type NodeConnection = tokio_util::either::Either<ClientConnection, Box<SecureConnection>>;

impl TrackedStream for NodeConnection {
    fn stage(&self) -> Rc<RequestStage> {
        match self {
            Self::Left(stream) => TrackedStream::stage(stream),
            Self::Right(stream) => stream.stage(),
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Left(stream) => TrackedStream::peer(stream),
            Self::Right(stream) => stream.peer(),
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Left(stream) => TrackedStream::local(stream),
            Self::Right(stream) => stream.local(),
        }
    }
}

fn drop_body_of_head(response: ServiceResponse) -> ServiceResponse {
    let (request, response) = response.into_parts();
    let response = shorten_json(&request, response);
    ServiceResponse::new(request, response)
}

impl<F: Fn(&mut web::ServiceConfig) + Clone + 'static> ListenerServices<F> {
    fn connection_service<T: TrackedStream>(
        self,
        secure: bool,
    ) -> impl ServiceFactory<
        (T, Protocol, Option<SocketAddr>),
        Config = (),
        Response = (),
        Error = (),
        InitError = (),
    > {
        let Self {
            address,
            timeouts,
            signal,
            counters,
            configure,
            is_hop,
        } = self;
        let app = App::new()
            .configure(configure)
            .wrap_fn(move |mut request, service| {
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
                let report_stall = || {
                    stall
                        .as_ref()?
                        .reason()
                        .map(|reason| unavailable_response(explain_stall(reason)))
                };
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
            });
        let app = app
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = signal.clone();
                async move { signal.notified().await }
            })
            .keep_alive(timeouts.idle)
            .client_request_timeout(timeouts.head)
            .client_disconnect_timeout(REFUSAL_WAIT)
            .local_addr(address)
            .on_connect_ext(move |stream: &RequestHeads<T>, extensions| {
                let stage = stream.stage();
                extensions.insert(stage.peer().clone());
                extensions.insert(stage);
                extensions.insert(LocalAddress {
                    address: stream.local().unwrap_or(address),
                    secure,
                });
            })
            .finish(map_config(app, |()| AppConfig::default()))
            .map_err(|_: DispatchError| ());
        fn_service(|(stream, protocol, peer)| {
            ready(Ok((RequestHeads::new(stream), protocol, peer)))
        })
        .and_then(http)
    }
}
