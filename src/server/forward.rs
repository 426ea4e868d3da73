//! Forwards requests to the owner of a shard: those of the listeners of a standby, and of the router
//! of a node with several shards.
//!
//! The request goes on as it came, but for its hop-by-hop headers and a header with the address of
//! its client, so that the owner authenticates it and records it as if the client had called there.
//! Bodies are streamed both ways.
//!
//! - A standby waits for an owner, and repeats what was not sent. Afterwards it returns 503: the
//!   client decides whether to repeat the request.
//! - A request whose owner loses the store ends: a later response of that owner is dropped.
//! - Only an owner accepts a forwarded request, so none is forwarded twice.

mod body;
mod request;

use std::{collections::HashMap, fmt::Display, io, rc::Rc, sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodySize, BoxBody},
    http::{StatusCode, header as actix_header},
    web,
};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    client::conn::http1::{SendRequest, handshake},
    header,
    http::response::Parts,
};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use self::{body::ReturnedHop, request::forwarded_headers};
pub(super) use self::{
    body::{RequestBody, ResponseBody},
    request::{outgoing_request, outgoing_whole, target_of},
};
use super::{
    forward_error::ForwardError,
    front::hop::{self, HopTarget, ListenerSide, OwnerConnector},
};
use gridhook_admin::{ForwardCounters, health::CoreHealth};
use gridhook_clock::Lease;
use gridhook_cluster::{NodeAddress, Role};
use gridhook_config::Config;
use gridhook_pull::{Peer, http::success_response};

/// How long a request waits for an owner that takes it.
pub(super) const OWNER_WAIT: Duration = Duration::from_secs(5);

/// The longest time for the head of a response to other requests, some of which wait for events or
/// for an endpoint.
const CHANGE_MAX: Duration = Duration::from_mins(5);

/// The pause after an owner has not accepted a connection.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The most idle connections that a thread keeps to the owner of a shard, for each listener of
/// clients, and to a node for receive requests.
const IDLE_MAX: usize = 64;

/// The same for all shards: an owner of several has one limit of connections.
const IDLE_IN_TOTAL_MAX: usize = 256;

/// The limits of time of requests to owners.
#[derive(Clone, Copy)]
pub(super) struct ForwardTimes {
    /// A connection that was idle for longer is not used: the owner may be closing it.
    pub(super) idle_max: Duration,
    /// The longest time for the head of a response to a read: an owner may accept a request, and
    /// its response may never arrive.
    pub(super) read_max: Duration,
}

impl ForwardTimes {
    pub(super) fn from_config(config: &Config) -> Self {
        let limits = &config.limits;
        Self {
            idle_max: hop::idle_timeout(limits.idle_timeout) / 2,
            read_max: limits.answer_timeout,
        }
    }
}

/// Forwards requests to the owner of a shard. Clones share its state.
#[derive(Clone)]
pub(super) struct Forwarder {
    pub(super) shard: usize,
    pub(super) role: watch::Receiver<Role>,
    /// The address of the node's own listener for nodes: a request that waits for an owner goes
    /// there when this node becomes it.
    pub(super) own: String,
    pub(super) connector: OwnerConnector,
    pub(super) times: ForwardTimes,
    pub(super) counters: Arc<ForwardCounters>,
    pub(super) stopping: watch::Receiver<bool>,
    /// The core of the shard in this process, beside others.
    pub(super) core: Option<CoreHealth>,
}

/// The connections to the owners of a shard, and to any node for receive requests. Their requests
/// have bodies of a type: those of clients stay on a thread.
pub(super) struct Hops<B = RequestBody> {
    forwarder: Forwarder,
    /// The listener that the clients have called; for requests of the node itself, either.
    side: ListenerSide,
    /// Those of all shards.
    idle: Arc<Mutex<IdleHops<B>>>,
}

/// A request to an owner.
pub(super) type OutgoingRequest = Request<RequestBody>;

/// The response of an owner, and its connection.
pub(super) struct OwnerResponse<B = RequestBody> {
    pub(super) response: Response<Incoming>,
    key: HopKey,
    hop: SendRequest<B>,
}

/// Waits until a request or a response must end early, and returns why.
pub(super) type EarlyEnd = LocalBoxFuture<'static, &'static str>;

type IdleHops<B> = HashMap<HopKey, Vec<IdleHop<B>>>;

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
struct HopKey {
    /// The address of a node.
    address: String,
    target: HopTarget,
}

impl HopKey {
    /// Whether the other end was called as an owner of a shard, and `owner` is another one of it.
    fn is_former(&self, owner: &Self) -> bool {
        let is_of_shard = matches!(owner.target, HopTarget::Shard { .. });
        is_of_shard && self.target == owner.target && self.address != owner.address
    }
}

/// A request that an owner gave no response to.
struct Unanswered<B> {
    why: ForwardError,
    /// The request, if it was not sent.
    unsent: Option<Request<B>>,
}

impl<B> From<ForwardError> for Unanswered<B> {
    fn from(why: ForwardError) -> Self {
        let unsent = None;
        Self { why, unsent }
    }
}

struct IdleHop<B> {
    since: Instant,
    hop: SendRequest<B>,
}

impl Forwarder {
    /// Returns once the process stops.
    pub(super) async fn wait_until_stopped(&self) {
        let mut stopping = self.stopping.clone();
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Forwards every request without a route.
    pub(super) fn configure(&self, cfg: &mut web::ServiceConfig, side: ListenerSide) {
        let hops = Rc::new(Hops::new(self.clone(), side));
        cfg.default_service(web::to(
            move |request: HttpRequest, payload: web::Payload| {
                let hops = Rc::clone(&hops);
                async move {
                    match outgoing_request(&request, payload) {
                        Ok(outgoing) => hops.forward_request(&request, outgoing, None).await,
                        Err(error) => error.into(),
                    }
                }
            },
        ));
    }

    pub(super) fn is_owner(&self) -> bool {
        self.role.borrow().lease().is_some()
    }

    /// Whether this node serves the shard: it owns it, reaches NATS, and has read its records.
    pub(super) fn serves(&self) -> bool {
        let is_read = self.core.as_ref().is_none_or(CoreHealth::is_serving);
        is_read && self.has_lease()
    }

    fn has_lease(&self) -> bool {
        let role = self.role.borrow();
        role.lease().is_some_and(Lease::may_act)
    }

    /// Whether the shard has an owner, as this node sees it. Its own lease may be over because it
    /// does not reach NATS.
    pub(super) fn has_owner(&self) -> bool {
        match &*self.role.borrow() {
            Role::Standby { owner } => owner.is_some(),
            Role::Owner(lease) | Role::Draining(lease) => lease.may_act(),
        }
    }

    /// Whether a node owns the shard as the records say, perhaps one that cannot act.
    pub(super) fn is_owned(&self) -> bool {
        !matches!(&*self.role.borrow(), Role::Standby { owner: None })
    }

    /// Why there is no connection to an owner.
    fn connection_error(&self) -> ForwardError {
        if self.has_other_owner() {
            ForwardError::Unconnected
        } else {
            ForwardError::NoOwner
        }
    }

    pub(super) fn has_other_owner(&self) -> bool {
        matches!(&*self.role.borrow(), Role::Standby { owner: Some(_) })
    }

    /// The address of an owner that may act, as this node sees it.
    pub(super) fn owner_address(&self) -> Option<String> {
        let is_reachable = self.has_owner();
        let role = self.role.borrow();
        let address = owner_address_in(&role, &self.own).filter(|_| is_reachable);
        address.map(str::to_owned)
    }

    /// Returns once the shard has an owner.
    pub(super) async fn wait_until_owned(&self) {
        let mut role = self.role.clone();
        let owned = role.wait_for(|role| owner_address_in(role, &self.own).is_some());
        if owned.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn open_connection<B>(&self, key: &HopKey) -> io::Result<SendRequest<B>>
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let HopKey { address, target } = key;
        self.connector.wait_after_refusal(address).await;
        let stream = TcpStream::connect(address).await?;
        // Without it a request of two writes waits for an acknowledgement. Failing to set it is
        // harmless.
        stream.set_nodelay(true).ok();
        let stream = self
            .connector
            .complete_handshake(stream, address, *target)
            .await?;
        let (hop, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Errors of the connection are those of its requests.
        actix_rt::spawn(async move { connection.await.ok() });
        Ok(hop)
    }

    /// Returns once another node than the one at `address` owns the store.
    pub(super) fn wait_until_lost(&self, address: String) -> impl Future<Output = ()> + use<> {
        let mut role = self.role.clone();
        let own = self.own.clone();
        async move {
            let is_lost = |role: &Role| owner_address_in(role, &own) != Some(&address);
            let has_changed = role.wait_for(is_lost).await.is_ok();
            if !has_changed {
                // The node stops, and lets its requests finish.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The address of the owner, which may be this node at `own`.
fn owner_address_in<'a>(role: &'a Role, own: &'a str) -> Option<&'a str> {
    match role {
        Role::Standby { owner } => owner.as_ref().map(|NodeAddress { address, .. }| &**address),
        Role::Owner(_) | Role::Draining(_) => Some(own),
    }
}

impl<B> Hops<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(super) fn new(forwarder: Forwarder, side: ListenerSide) -> Self {
        Self {
            forwarder,
            side,
            idle: Arc::default(),
        }
    }

    /// The connections to the owners of each of several shards.
    pub(super) fn new_for_shards(
        forwarders: &[Forwarder],
        side: ListenerSide,
    ) -> impl Iterator<Item = Self> {
        let idle = Arc::default();
        forwarders.iter().map(move |forwarder| Self {
            forwarder: forwarder.clone(),
            side,
            idle: Arc::clone(&idle),
        })
    }

    pub(super) fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    fn idle(&self) -> MutexGuard<'_, IdleHops<B>> {
        self.idle.lock()
    }

    /// Sends a request to the owner, once there is one within `wait`.
    pub(super) async fn send_to_owner(
        &self,
        mut outgoing: Request<B>,
        wait: Duration,
    ) -> Result<OwnerResponse<B>, ForwardError> {
        let until = Instant::now() + wait;
        loop {
            let connection = timeout_at(until, self.connect_to_owner()).await;
            let (key, hop) = connection.map_err(|_| self.forwarder.connection_error())?;
            let lost = self.forwarder.wait_until_lost(key.address.clone());
            match self.send_request(key, hop, outgoing, lost).await {
                Ok(response) => return Ok(response),
                Err(unanswered) => outgoing = unanswered.unsent.ok_or(unanswered.why)?,
            }
        }
    }

    /// Sends a request that names its shards to a node, whichever it owns. The caller gives up when
    /// it owns none of them.
    pub(super) async fn send_to_node(
        &self,
        mut outgoing: Request<B>,
        address: &str,
    ) -> Result<OwnerResponse<B>, ForwardError> {
        let key = HopKey {
            address: address.to_owned(),
            target: HopTarget::Pull,
        };
        loop {
            let hop = match self.take_idle(&key) {
                Some(hop) => hop,
                None => self
                    .forwarder
                    .open_connection(&key)
                    .await
                    .map_err(|_| ForwardError::Unconnected)?,
            };
            let sending = self.send_request(key.clone(), hop, outgoing, std::future::pending());
            match sending.await {
                Ok(response) => return Ok(response),
                Err(unanswered) => outgoing = unanswered.unsent.ok_or(unanswered.why)?,
            }
        }
    }

    /// Sends a request on a connection, until `lost` returns.
    async fn send_request(
        &self,
        key: HopKey,
        mut hop: SendRequest<B>,
        outgoing: Request<B>,
        lost: impl Future<Output = ()>,
    ) -> Result<OwnerResponse<B>, Unanswered<B>> {
        let is_read = [hyper::Method::GET, hyper::Method::HEAD].contains(outgoing.method());
        let response_max = if is_read {
            self.forwarder.times.read_max
        } else {
            CHANGE_MAX
        };
        self.forwarder.counters.sent.add(1);
        let result = tokio::select! {
            result = hop.try_send_request(outgoing) => result.map_err(|mut error| Unanswered {
                why: ForwardError::NoResponse,
                unsent: error.take_message(),
            }),
            () = sleep(response_max) => Err(Unanswered::from(ForwardError::TimedOut)),
            () = lost => Err(Unanswered::from(ForwardError::OwnerChanged)),
        };
        result.map(|response| OwnerResponse { response, key, hop })
    }

    /// The status and the body of the response to a request of the node itself.
    pub(super) async fn call_owner(
        &self,
        request: Request<B>,
        owner_wait: Duration,
        bytes_max: usize,
    ) -> Result<(hyper::StatusCode, Bytes), ForwardError> {
        let response = self.send_to_owner(request, owner_wait).await?;
        let (head, body) = self.read_whole(response, bytes_max).await?;
        Ok((head.status, body))
    }

    /// The head and the whole body of an owner's response, of at most this size.
    pub(super) async fn read_whole(
        &self,
        response: OwnerResponse<B>,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), ForwardError> {
        let lost = self.forwarder.wait_until_lost(response.key.address.clone());
        self.read_until(response, bytes_max, lost).await
    }

    /// The head and the whole body of a response, unless `lost` returns before.
    pub(super) async fn read_until(
        &self,
        owner_response: OwnerResponse<B>,
        bytes_max: usize,
        lost: impl Future<Output = ()>,
    ) -> Result<(Parts, Bytes), ForwardError> {
        let OwnerResponse { response, key, hop } = owner_response;
        let (head, mut body) = response.into_parts();
        let mut lost = std::pin::pin!(lost);
        let mut whole = Vec::new();
        loop {
            let frame = tokio::select! {
                biased;
                frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)) => frame,
                () = &mut lost => return Err(ForwardError::CutOff),
            };
            let Some(frame) = frame else { break };
            let Ok(bytes) = frame.map_err(|_| ForwardError::CutOff)?.into_data() else {
                continue;
            };
            if whole.len() + bytes.len() > bytes_max {
                return Err(ForwardError::TooLarge);
            }
            whole.extend_from_slice(&bytes);
        }
        self.keep_hop(key, hop);
        Ok((head, whole.into()))
    }

    /// A connection that the owner has accepted, and its other end.
    async fn connect_to_owner(&self) -> (HopKey, SendRequest<B>) {
        let mut role = self.forwarder.role.clone();
        loop {
            let own = &self.forwarder.own;
            let owner = role
                .wait_for(|role| owner_address_in(role, own).is_some())
                .await;
            let owner = owner
                .ok()
                .and_then(|role| owner_address_in(&role, own).map(str::to_owned));
            // A node that stops has no owner any more.
            let Some(address) = owner else {
                return std::future::pending().await;
            };
            let shard = self.forwarder.shard;
            let side = self.side;
            let target = HopTarget::Shard { shard, side };
            let key = HopKey { address, target };
            if let Some(hop) = self.take_idle(&key) {
                return (key, hop);
            }
            let connection = tokio::select! {
                result = self.forwarder.open_connection(&key) => result,
                () = self.forwarder.wait_until_lost(key.address.clone()) => continue,
            };
            match connection {
                Ok(hop) => return (key, hop),
                Err(error) => {
                    tracing::debug!(%error, address = key.address, "the owner has not accepted a connection");
                    sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    /// An idle connection that can be used.
    fn take_idle(&self, key: &HopKey) -> Option<SendRequest<B>> {
        while let Some(IdleHop { since, hop }) = self.idle().get_mut(key).and_then(Vec::pop) {
            if hop.is_ready() && since.elapsed() < self.forwarder.times.idle_max {
                return Some(hop);
            }
        }
        None
    }

    fn keep_hop(&self, key: HopKey, hop: SendRequest<B>) {
        let mut idle = self.idle();
        // Former owners are not called again, and a node may have gone.
        let now = Instant::now();
        let idle_max = self.forwarder.times.idle_max;
        let is_recent = |hop: &IdleHop<B>| now.duration_since(hop.since) < idle_max;
        idle.retain(|known, hops| !known.is_former(&key) && hops.last().is_some_and(is_recent));
        let hops = idle.entry(key).or_default();
        if hops.len() >= IDLE_MAX {
            return;
        }
        hops.push(IdleHop { since: now, hop });
        if idle.values().map(Vec::len).sum::<usize>() > IDLE_IN_TOTAL_MAX {
            close_oldest(&mut idle);
        }
    }
}

/// Closes the connection that has been idle for the longest time.
fn close_oldest<B>(idle: &mut IdleHops<B>) {
    let used = idle.values_mut().filter(|hops| !hops.is_empty());
    if let Some(hops) = used.min_by_key(|hops| hops[0].since) {
        hops.remove(0);
    }
}

impl Hops {
    /// Forwards a request to the owner and relays the response. Both end early with `early_end`.
    pub(super) async fn forward_request(
        self: &Rc<Self>,
        request: &HttpRequest,
        outgoing: OutgoingRequest,
        mut early_end: Option<EarlyEnd>,
    ) -> HttpResponse {
        let peer = request.conn_data::<Peer>().cloned().unwrap_or_default();
        let counters = Arc::clone(&self.forwarder.counters);
        // A client may close its side and read on. Only one that waits for events counts as gone
        // then, as at the owner.
        let waits_for_events = request.path().ends_with(":receive");
        let wait_for_early_end = async {
            match &mut early_end {
                Some(early_end) => early_end.await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            result = self.send_to_owner(outgoing, OWNER_WAIT) => result,
            () = peer.wait_until_gone(), if waits_for_events => Err(ForwardError::ClientGone),
            // The end of the connection gives back what the owner locks for the client.
            () = self.forwarder.wait_until_stopped(), if waits_for_events => return no_events(),
            why = wait_for_early_end => Err(ForwardError::Ended(why)),
        };
        match result {
            Ok(response) => {
                counters.answered.add(1);
                self.relay_response(response, early_end)
            }
            Err(why) => {
                counters.failed.add(1);
                why.into()
            }
        }
    }

    /// The body of a response. It ends early with the ownership, or with `early_end`.
    pub(super) fn response_body(
        self: &Rc<Self>,
        owner_response: OwnerResponse,
        early_end: Option<EarlyEnd>,
    ) -> (Parts, ResponseBody) {
        let OwnerResponse { response, key, hop } = owner_response;
        let (head, body) = response.into_parts();
        let size = head
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|size| size.to_str().ok()?.parse().ok());
        let lost = self.forwarder.wait_until_lost(key.address.clone());
        let lost = async move {
            lost.await;
            "the owner of the store has changed"
        };
        let early_end: EarlyEnd = match early_end {
            None => Box::pin(lost),
            Some(early_end) => Box::pin(async move {
                tokio::select! {
                    why = lost => why,
                    why = early_end => why,
                }
            }),
        };
        let size = match (size, body.is_end_stream()) {
            (Some(size), _) => BodySize::Sized(size),
            (None, true) => BodySize::None,
            (None, false) => BodySize::Stream,
        };
        let hop = Some(ReturnedHop {
            hops: Rc::clone(self),
            key,
            hop,
        });
        (
            head,
            ResponseBody {
                body,
                size,
                early_end,
                has_ended: false,
                hop,
            },
        )
    }

    /// The response to the client.
    pub(super) fn relay_response(
        self: &Rc<Self>,
        owner_response: OwnerResponse,
        early_end: Option<EarlyEnd>,
    ) -> HttpResponse {
        let (head, body) = self.response_body(owner_response, early_end);
        let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut response = HttpResponse::with_body(status, BoxBody::new(body));
        for (name, value) in forwarded_headers(&head.headers) {
            let name = actix_header::HeaderName::from_bytes(name.as_str().as_bytes());
            let value = actix_header::HeaderValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// The response to a client that waited for events of a process that stops.
pub(super) fn no_events() -> HttpResponse {
    success_response(serde_json::json!({"value": []}).to_string())
}

impl From<ForwardError> for HttpResponse {
    fn from(error: ForwardError) -> Self {
        unavailable_response(error)
    }
}

/// The response of a cluster that cannot process a request now.
pub(super) fn unavailable_response(message: impl Display) -> HttpResponse {
    let message = message.to_string();
    let body = serde_json::json!({
        "error": {"code": "ServiceUnavailable", "message": message, "details": []}
    });
    HttpResponse::ServiceUnavailable()
        .insert_header((actix_header::RETRY_AFTER, "1"))
        .json(body)
}
