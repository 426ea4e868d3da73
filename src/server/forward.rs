//! A standby's listeners: each request is forwarded to the owner of the store.
//!
//! The request goes on as it came, but for its hop-by-hop headers and a header with the address of its client, so that the
//! owner authenticates it and records it as if the client had called there. Bodies are streamed both ways.
//!
//! - A standby waits for an owner, and repeats what was not sent. Afterwards it answers 503: the client decides whether to
//!   repeat the request.
//! - A request whose owner loses the store ends: what that one might still answer counts for nothing.
//! - Only an owner accepts a forwarded request, so none is forwarded twice.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{StatusCode, header as actix_header},
    web,
};
use bytes::Bytes;
use futures_util::{Stream as _, future::LocalBoxFuture};
use hyper::{
    HeaderMap, Request, Response, Uri, Version,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1::{SendRequest, handshake},
    header::{self, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::front::hop::{self, ListenerSide, OwnerConnector};
use crate::{
    admin::ForwardCounters,
    cluster::{NodeAddress, Role},
    publish::auth::host::LocalAddress,
    pull::Peer,
};

/// How long a request waits for an owner that takes it.
const OWNER_WAIT: Duration = Duration::from_secs(5);

/// The pause after an owner has not accepted a connection.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The most idle connections to an owner that a thread keeps.
const IDLE_MAX: usize = 64;

/// Headers that concern one connection (RFC 9110, 7.6.1), and what this server sets itself.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    hop::CLIENT_NAME,
];

/// What the standby's threads share.
#[derive(Clone)]
pub(super) struct Forwarder {
    role: watch::Receiver<Role>,
    /// The node's own listener for nodes: a request that waits for an owner goes there when this node becomes it.
    own: String,
    connector: OwnerConnector,
    /// An older idle connection is not used: the owner may be closing it.
    idle_max: Duration,
    counters: Arc<ForwardCounters>,
}

/// The connections of a thread to owners.
struct Hops {
    forwarder: Forwarder,
    idle: RefCell<IdleHops>,
}

/// A connection to an owner.
type Hop = SendRequest<RequestBody>;

type IdleHops = HashMap<HopKey, Vec<IdleHop>>;

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
struct HopKey {
    /// The address of an owner.
    address: String,
    side: ListenerSide,
}

struct IdleHop {
    since: Instant,
    hop: Hop,
}

impl Forwarder {
    pub(super) fn new(
        role: watch::Receiver<Role>,
        own: String,
        connector: OwnerConnector,
        idle_max: Duration,
        counters: Arc<ForwardCounters>,
    ) -> Self {
        Self { role, own, connector, idle_max, counters }
    }

    /// Forwards every request without a route.
    pub(super) fn configure(&self, cfg: &mut web::ServiceConfig, side: ListenerSide) {
        let hops = Rc::new(Hops { forwarder: self.clone(), idle: RefCell::default() });
        cfg.default_service(web::to(move |request: HttpRequest, payload: web::Payload| {
            let hops = Rc::clone(&hops);
            async move { hops.answer(request, payload, side).await }
        }));
    }

    /// The address of the owner, which may be this node.
    fn owner_in(&self, role: &Role) -> Option<String> {
        match role {
            Role::Standby { owner } => owner.as_ref().map(|NodeAddress { address, .. }| address.clone()),
            Role::Owner(_) | Role::Draining(_) => Some(self.own.clone()),
        }
    }

    /// Returns once another node than the one at `address` owns the store.
    async fn lost(self, address: String) {
        let mut role = self.role.clone();
        let lost = role.wait_for(|role| self.owner_in(role).as_ref() != Some(&address)).await;
        if lost.is_err() {
            // The node stops, and lets its requests finish.
            std::future::pending::<()>().await;
        }
    }
}

impl Hops {
    async fn answer(self: Rc<Self>, request: HttpRequest, payload: web::Payload, side: ListenerSide) -> HttpResponse {
        let peer = request.conn_data::<Peer>().cloned().unwrap_or_default();
        let counters = Arc::clone(&self.forwarder.counters);
        // A client may close its side and read on. Only one that waits for events counts as gone then, as at the owner.
        let waits_for_events = request.path().ends_with(":receive");
        let answered = tokio::select! {
            answered = self.forward(&request, payload, side) => answered,
            () = peer.gone(), if waits_for_events => Err("the client has gone"),
        };
        match answered {
            Ok(response) => {
                counters.answered.add(1);
                response
            }
            Err(why) => {
                counters.failed.add(1);
                unavailable(why)
            }
        }
    }

    async fn forward(
        self: &Rc<Self>,
        request: &HttpRequest,
        payload: web::Payload,
        side: ListenerSide,
    ) -> Result<HttpResponse, &'static str> {
        let mut outgoing = outgoing(request, payload).ok_or("the request cannot be forwarded")?;
        let until = Instant::now() + OWNER_WAIT;
        loop {
            let connected = timeout_at(until, self.connect(side)).await;
            let (address, mut hop) = connected.map_err(|_| "no node owns the store")?;
            let lost = self.forwarder.clone().lost(address.clone());
            let sent = tokio::select! {
                sent = hop.try_send_request(outgoing) => sent,
                () = lost => return Err("the owner of the store has changed; the request may or may not have been processed"),
            };
            match sent {
                Ok(response) => return Ok(self.relayed(response, HopKey { address, side }, hop)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => outgoing = unsent,
                    None => return Err("the owner did not answer; the request may or may not have been processed"),
                },
            }
        }
    }

    /// A connection that the owner has accepted, and its address.
    async fn connect(&self, side: ListenerSide) -> (String, Hop) {
        let mut role = self.forwarder.role.clone();
        loop {
            let owner = role.wait_for(|role| self.forwarder.owner_in(role).is_some()).await;
            let owner = owner.ok().and_then(|role| self.forwarder.owner_in(&role));
            // A node that stops has no owner any more.
            let Some(address) = owner else { return std::future::pending().await };
            let key = HopKey { address: address.clone(), side };
            while let Some(IdleHop { since, hop }) = self.idle.borrow_mut().get_mut(&key).and_then(Vec::pop) {
                if hop.is_ready() && since.elapsed() < self.forwarder.idle_max {
                    return (address, hop);
                }
            }
            let opened = tokio::select! {
                opened = self.open(&address, side) => opened,
                () = self.forwarder.clone().lost(address.clone()) => continue,
            };
            match opened {
                Ok(hop) => return (address, hop),
                Err(error) => {
                    tracing::debug!(%error, address, "the owner has not accepted a connection");
                    sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    async fn open(&self, address: &str, side: ListenerSide) -> io::Result<Hop> {
        self.forwarder.connector.pause(address).await;
        let stream = TcpStream::connect(address).await?;
        // Without it a request of two writes waits for an acknowledgement. Failing to set it is harmless.
        stream.set_nodelay(true).ok();
        let stream = self.forwarder.connector.handshake(stream, address, Some(side)).await?;
        let (hop, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Its errors are those of its requests.
        actix_rt::spawn(async move { connection.await.ok() });
        Ok(hop)
    }

    /// The response to the client.
    fn relayed(self: &Rc<Self>, response: Response<Incoming>, key: HopKey, hop: Hop) -> HttpResponse {
        let (head, body) = response.into_parts();
        let size = head.headers.get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
        let lost = Box::pin(self.forwarder.clone().lost(key.address.clone()));
        let size = match (size, body.is_end_stream()) {
            (Some(size), _) => BodySize::Sized(size),
            (None, true) => BodySize::None,
            (None, false) => BodySize::Stream,
        };
        let body = ResponseBody {
            body,
            size,
            lost,
            has_ended: false,
            hop: Some(ReturnedHop { hops: Rc::clone(self), key, hop }),
        };
        let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut relayed = HttpResponse::with_body(status, BoxBody::new(body));
        for (name, value) in forwarded(&head.headers) {
            let name = actix_header::HeaderName::from_bytes(name.as_str().as_bytes());
            let value = actix_header::HeaderValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                relayed.headers_mut().append(name, value);
            }
        }
        relayed
    }

    fn keep(&self, key: HopKey, hop: Hop) {
        let mut idle = self.idle.borrow_mut();
        // Former owners are not called again.
        idle.retain(|known, _| known.address == key.address);
        let hops = idle.entry(key).or_default();
        if hops.len() < IDLE_MAX {
            hops.push(IdleHop { since: Instant::now(), hop });
        }
    }
}

/// The headers that go on.
fn forwarded(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()))
}

/// The request to the owner.
fn outgoing(request: &HttpRequest, payload: web::Payload) -> Option<Request<RequestBody>> {
    let local = *request.conn_data::<LocalAddress>()?;
    let client = hop::client(request.peer_addr()?, local);
    let length = request.headers().get(actix_header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_chunked = request.chunked().unwrap_or(false);
    let left = if is_chunked { None } else { Some(length.unwrap_or(0)) };
    let mut outgoing = Request::new(RequestBody { payload: payload.into_inner(), left });
    *outgoing.method_mut() = request.method().as_str().parse().ok()?;
    *outgoing.version_mut() = Version::HTTP_11;
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    *outgoing.uri_mut() = target.parse::<Uri>().ok()?;
    for (name, value) in request.headers() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        if !HOP_BY_HOP.contains(&name.as_str()) {
            outgoing.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
    }
    // The target takes precedence over the header (RFC 9112, 3.2.2).
    if let Some(called) = request.uri().authority() {
        outgoing.headers_mut().insert(header::HOST, HeaderValue::from_str(called.as_str()).ok()?);
    }
    if let Some(length) = length.filter(|_| !is_chunked) {
        outgoing.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    outgoing.headers_mut().insert(hop::CLIENT_NAME, HeaderValue::from_str(&client).ok()?);
    Some(outgoing)
}

/// The answer of a cluster that cannot process a request now.
pub(super) fn unavailable(message: &str) -> HttpResponse {
    let body = serde_json::json!({"error": {"code": "ServiceUnavailable", "message": message}});
    HttpResponse::ServiceUnavailable().insert_header((actix_header::RETRY_AFTER, "1")).json(body)
}

/// The body of a client's request.
struct RequestBody {
    payload: actix_web::dev::Payload,
    /// The bytes that are left, if their number is known.
    left: Option<u64>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(bytes) = ready!(Pin::new(&mut self.payload).poll_next(cx)) else { return Poll::Ready(None) };
        let bytes = bytes.map_err(io::Error::other)?;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body of the owner's response.
struct ResponseBody {
    body: Incoming,
    size: BodySize,
    /// Ends when the owner loses the store.
    lost: LocalBoxFuture<'static, ()>,
    has_ended: bool,
    /// The connection, which serves the next request once the body has ended.
    hop: Option<ReturnedHop>,
}

/// A connection that goes back to those that are idle.
struct ReturnedHop {
    hops: Rc<Hops>,
    key: HopKey,
    hop: Hop,
}

impl MessageBody for ResponseBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => {
                    self.has_ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.lost.as_mut().poll(cx));
                    return Poll::Ready(Some(Err("the owner of the store has changed".into())));
                }
            }
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let has_ended = self.has_ended || self.body.is_end_stream();
        if let Some(ReturnedHop { hops, key, hop }) = self.hop.take().filter(|_| has_ended) {
            hops.keep(key, hop);
        }
    }
}
