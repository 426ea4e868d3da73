//! Where publishers and operators come in: one listener for both, or one for each.
//!
//! Between the sockets and actix-web there are a count (`connection_limit`) and a stream of ours (`connection`), because a server that
//! anybody may connect to needs bounds that actix-web has not: on connections, in all and from one address, on heads that
//! never end, and on answers that nobody takes.
//!
//! actix-web's own server takes no stream of others, so its three parts (threads that accept, TLS, HTTP) are put together
//! here. Two bounds are actix-http's own: a head has at most 96 headers and 128 KiB.

mod connection;
mod connection_limit;

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
    IntoServiceFactory as _, Service as _, ServiceFactory, ServiceFactoryExt as _, fn_service, map_config,
};
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::{App, dev::AppConfig, web};
use futures_util::future::{Either, ready};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

pub(super) use self::connection_limit::ConnectionLimit;
use self::{
    connection::{ClientConnection, RequestStage, RequestTimeouts, TrackedBody},
    connection_limit::ConnectionLimiter,
};
use crate::{
    metrics::ListenerCounters,
    publish::{auth::host::LocalAddress, http::Publisher},
};

/// What whoever finds no place is told: it is short, and nothing was read to make it.
const NO_PLACE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// They have so long to read it: a socket that is closed before its peer has spoken takes the answer with it.
const TOLD_WAIT: Duration = Duration::from_secs(1);

/// How long whoever connects may take for each part of a request but its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTimeouts {
    /// For a head, and for the handshake of TLS.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// To take an answer.
    pub(super) answer: Duration,
}

/// How many of those who find no place are told so at the same time; further ones are just cut. Clones count together.
#[derive(Clone)]
pub(super) struct RefusalSlots {
    now: Arc<AtomicUsize>,
    most: usize,
}

impl RefusalSlots {
    pub(super) fn new(most: usize) -> Self {
        Self { now: Arc::default(), most }
    }
}

/// A listener, and who may come in there.
pub(super) struct ListenerSettings {
    pub(super) listener: TcpListener,
    pub(super) counted: Arc<ListenerCounters>,
    pub(super) told: RefusalSlots,
    pub(super) tls: Option<ServerConfig>,
    pub(super) places: ConnectionLimit,
    pub(super) waits: HeadTimeouts,
}

impl ListenerSettings {
    /// Adds the entrance to a server, with what `configure` puts behind it.
    pub(super) fn add_to<F>(self, server: ServerBuilder, configure: F) -> io::Result<ServerBuilder>
    where
        F: Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
    {
        let Self { listener, counted, told, tls, places, waits } = self;
        let name = counted.name;
        let (address, signal) = (listener.local_addr()?, server.graceful_shutdown_signal());
        let queue =
            ConnectionCounter { connection_limiter: ConnectionLimiter::new(places, Arc::clone(&counted)), told, waits };
        let inside = ListenerServices { address, waits, signal, counted, configure };
        match tls {
            None => server.listen(name, listener, move || {
                let queue = queue.clone();
                fn_service(move |stream| queue.clone().admit(stream))
                    .map(|(caller, peer)| (caller, Protocol::Http1, Some(peer)))
                    .and_then(inside.clone().service::<ClientConnection>(false))
            }),
            Some(mut tls) => {
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
                let mut acceptor = Acceptor::new(tls);
                acceptor.set_handshake_timeout(waits.head);
                server.listen(name, listener, move || {
                    let queue = queue.clone();
                    fn_service(move |stream| queue.clone().admit(stream))
                        .map(|(caller, _)| caller)
                        .and_then(acceptor.clone().map_err(drop).map_init_err(drop))
                        .map(|stream| {
                            let peer = stream.peer();
                            (stream, Protocol::Http1, peer)
                        })
                        .and_then(inside.clone().service::<TlsStream<ClientConnection>>(true))
                })
            }
        }
    }
}

/// Counts who comes.
#[derive(Clone)]
struct ConnectionCounter {
    connection_limiter: Arc<ConnectionLimiter>,
    told: RefusalSlots,
    waits: HeadTimeouts,
}

impl ConnectionCounter {
    async fn admit(self, stream: TcpStream) -> Result<(ClientConnection, SocketAddr), ()> {
        let peer = stream.peer_addr().map_err(drop)?;
        let patience = RequestTimeouts { head: self.waits.idle + self.waits.head, answer: self.waits.answer };
        match self.connection_limiter.enter(peer.ip()) {
            Some(place) => Ok((ClientConnection::new(stream, peer, patience, place), peer)),
            None => {
                if self.told.now.fetch_add(1, Ordering::Relaxed) < self.told.most {
                    // Whoever is gone by now need not hear it.
                    timeout(TOLD_WAIT, tell(stream)).await.ok();
                }
                self.told.now.fetch_sub(1, Ordering::Relaxed);
                Err(())
            }
        }
    }
}

async fn tell(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NO_PLACE).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// What is behind an entrance.
#[derive(Clone)]
struct ListenerServices<F> {
    address: SocketAddr,
    waits: HeadTimeouts,
    signal: GracefulShutdownSignal,
    counted: Arc<ListenerCounters>,
    configure: F,
}

/// A stream that knows where its request is.
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

impl TrackedStream for TlsStream<ClientConnection> {
    fn stage(&self) -> Rc<RequestStage> {
        self.get_ref().0.stage()
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.get_ref().0.peer())
    }

    fn local(&self) -> Option<SocketAddr> {
        self.get_ref().0.local()
    }
}

impl<F: Fn(&mut web::ServiceConfig) + Clone + 'static> ListenerServices<F> {
    fn service<T: TrackedStream>(
        self,
        secure: bool,
    ) -> impl ServiceFactory<(T, Protocol, Option<SocketAddr>), Config = (), Response = (), Error = (), InitError = ()>
    {
        let Self { address, waits, signal, counted, configure } = self;
        let app = App::new().configure(configure).wrap_fn(move |request, service| {
            let stage = request.conn_data::<Rc<RequestStage>>().cloned();
            if let Some(stage) = &stage {
                stage.request_started();
            }
            let publisher = request.app_data::<web::Data<Publisher>>();
            let answer = match publisher.and_then(|publisher| publisher.refuse_host(request.request())) {
                Some(refused) => Either::Left(ready(Ok(request.into_response(refused)))),
                None => Either::Right(service.call(request)),
            };
            let counted = Arc::clone(&counted);
            async move {
                match answer.await {
                    Ok(answer) => {
                        counted.count_response(answer.status().as_u16());
                        Ok(answer.map_body(|_, body| TrackedBody::new(body, stage)))
                    }
                    Err(error) => {
                        counted.count_response(error.as_response_error().status_code().as_u16());
                        if let Some(stage) = &stage {
                            stage.end();
                        }
                        Err(error)
                    }
                }
            }
        });
        // The address stands in for a Host that is not said; its makers hide the way to set it, and have no other.
        let config = AppConfig::__priv_test_new(secure, address.to_string(), address);
        let app = app.into_factory().map_err(|error: actix_web::Error| error.error_response());
        HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = signal.clone();
                async move { signal.notified().await }
            })
            .keep_alive(waits.idle)
            .client_request_timeout(waits.head)
            .client_disconnect_timeout(TOLD_WAIT)
            .local_addr(address)
            .on_connect_ext(|stream: &T, extensions| {
                let stage = stream.stage();
                extensions.insert(stage.peer().clone());
                extensions.insert(stage);
                if let Some(local) = stream.local() {
                    extensions.insert(LocalAddress(local));
                }
            })
            .finish(map_config(app, move |_| config.clone()))
            .map_err(|_: DispatchError| ())
    }
}
