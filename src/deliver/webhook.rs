//! One request to a webhook, with awc.
//!
//! awc is made for clients that talk to trusted servers. Endpoints are not trusted. So, point by
//! point (for awc 3.11):
//! - *Redirects* are never followed: a login page's 200 is not a delivery.
//! - *Compression* is compiled out and no `Accept-Encoding` is sent; a body is kept as received.
//! - *Connections* are those of `exchange`, which is the middleware of the client: awc's own pool
//!   costs more than what it does, and limits the connections over all hosts. The caller limits
//!   requests per subscription.
//! - *Timers*: awc's own cover parts of a request and are off. One timer covers name, connection,
//!   TLS, request and status line.
//! - *Interim responses* (1xx) are final responses for awc. [`socket`](super::socket) removes them
//!   from what it reads. What it leaves (101, or too many of them) fails the request, and its
//!   connection is closed.
//! - *Odd responses*: once the final status line is there, it decides
//!   ([`response_head`](super::response_head)).
//! - *Reused connections*: if one breaks before the first byte of a response, the endpoint closed
//!   it while it was idle. The request is sent again at once on a new connection, within the same
//!   time limit, once. The endpoint may receive it twice, which is allowed; it is never counted as
//!   delivered.
//! - *Idle connections*: a sweep closes them after [`ClientOptions::keep_alive`]. The default is
//!   shorter than the 5 s after which common servers close, so that stale connections are rare.
//! - *A response while the request is being written* (413, 401) would not be noticed, because the
//!   response is read when everything is written. [`socket`](super::socket) notices it.
//!
//! [`response`] reads what comes back. [`RequestInFlight`] has the time limits.

use std::{
    borrow::Cow,
    cell::Cell,
    iter, mem,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use awc::{
    FrozenClientRequest, SendClientRequest,
    body::{MessageBody, SizedStream},
    error::SendRequestError,
    http::{
        Method, Uri,
        header::{HeaderMap, HeaderName, HeaderValue},
    },
};
use bytes::Bytes;
use futures_util::stream;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    address::AddressRules,
    bodies::BodyBudget,
    call::RequestInFlight,
    dial::Connector,
    error::ExchangeError,
    exchange::Exchange,
    failure::{failed_result, has_no_response},
    proxy::EgressProxy,
    request::{Destination, HEADER_BYTES, OutgoingRequest, RequestHeader, make_sendable, put_line},
    resolver::{NameResolver, Resolver},
    resource::{Connections, LocalTopics},
    response,
    socket::{ATTEMPT, RequestAttempt, RequestPhase},
    sockets::Sockets,
    trust::{ClientCertificates, TlsTrust},
};
use gridhook_clock::Lease;
use gridhook_event::WallTime;
use gridhook_policy::outcome::{Outcome, RequestResult};

/// The lease is checked before each 64 KiB of a body, which is what a system call usually takes.
const CHUNK_BYTES: usize = 65_536;

/// 1,024 connections of an arbiter that wait for a late response: a descriptor and some kilobytes
/// each.
pub const LATE_REQUESTS_MAX: usize = 1_024;

/// Maximum reachability checks in their first phase, of all threads.
static PROMPT_REACHES: Semaphore = Semaphore::const_new(32);

/// Maximum reachability checks in their second phase, of all threads.
static SLOW_REACHES: Semaphore = Semaphore::const_new(32);

/// Length of the first phase.
const REACH_PROMPT: Duration = Duration::from_millis(300);

/// Time limit of the second phase.
const REACH_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct ClientOptions {
    /// The addresses that the client may call.
    pub rules: AddressRules,
    /// Trusted authorities and the client certificate.
    pub trust: TlsTrust,
    /// The client certificates that subscriptions may name.
    pub identities: ClientCertificates,
    pub names: Arc<dyn NameResolver>,
    /// The proxy for connections. In the options of a server: that of subscriptions without one of
    /// their own.
    pub proxy: Option<EgressProxy>,
    /// How long an unused connection stays open.
    pub keep_alive: Duration,
    /// Maximum age of a connection. A new one resolves the name again.
    pub lifetime: Duration,
    /// How long a call to one of several addresses may take before the next one starts (RFC 8305,
    /// section 5).
    pub attempt_delay: Duration,
    pub late_requests_max: usize,
    /// The budget of descriptors that all clients share.
    pub sockets: Sockets,
    /// The budget of bodies in flight that all clients share.
    pub bodies: BodyBudget,
    /// The services that the operator configured as destinations.
    pub connections: Connections,
    /// The topics of namespaces, once the server has started.
    pub topics: Arc<OnceLock<Arc<dyn LocalTopics>>>,
    /// The lease without which events are not sent; [`None`] outside of a cluster.
    pub lease: Option<Lease>,
}

impl ClientOptions {
    pub fn new(rules: AddressRules, trust: TlsTrust) -> Self {
        Self {
            rules,
            trust,
            identities: ClientCertificates::default(),
            names: Arc::new(Resolver::default()),
            proxy: None,
            keep_alive: Duration::from_secs(4),
            lifetime: Duration::from_secs(300),
            attempt_delay: Duration::from_millis(250),
            late_requests_max: LATE_REQUESTS_MAX,
            sockets: Sockets::default(),
            bodies: BodyBudget::default(),
            connections: Connections::default(),
            topics: Arc::default(),
            lease: None,
        }
    }
}

/// Time limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// Time from the lookup to the end of the response head.
    pub response: Duration,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            response: Duration::from_secs(30),
        }
    }
}

/// Sends requests. One for each arbiter and set of rules; not `Send`.
pub struct WebhookClient(pub(super) Rc<ClientInner>);

pub(super) struct ClientInner {
    awc: awc::Client,
    /// The request from which each POST is made, as far as awc knows it. Its address and headers
    /// are in its [`RequestAttempt`].
    post: FrozenClientRequest,
    exchange: Exchange,
    connector: Connector,
    pub(super) options: ClientOptions,
    late_requests: Cell<usize>,
}

/// The permit of a late request.
pub(super) struct LatePermit(Rc<ClientInner>);

impl Drop for LatePermit {
    fn drop(&mut self) {
        self.0.late_requests.set(self.0.late_requests.get() - 1);
    }
}

impl WebhookClient {
    /// A client. A task on this arbiter sweeps idle connections until the client is dropped.
    ///
    /// # Panics
    /// Outside of an arbiter.
    pub fn new(options: ClientOptions) -> Self {
        let connector = Connector::new(&options);
        let exchange = Exchange::new(connector.clone(), &options);
        let awc = awc::Client::builder()
            .wrap(exchange.clone())
            .disable_redirects()
            .disable_timeout()
            .finish();
        let post = awc
            .request(Method::POST, Uri::from_static("http://endpoint/"))
            .no_decompress()
            .freeze();
        let post = post.expect("a request to an http URL can be made");
        let inner = Rc::new(ClientInner {
            awc,
            post,
            exchange,
            connector,
            options,
            late_requests: Cell::new(0),
        });
        Self(inner)
    }

    /// Trusted authorities and client certificate.
    pub fn trust(&self) -> &TlsTrust {
        &self.0.options.trust
    }

    /// The shared budget of descriptors.
    pub fn sockets(&self) -> &Sockets {
        &self.0.options.sockets
    }

    /// Addresses that this client may call.
    pub fn rules(&self) -> &AddressRules {
        &self.0.options.rules
    }

    /// Closes idle connections, and returns how many are left. The client also does this
    /// periodically.
    pub fn close_idle(&self) -> usize {
        self.0.exchange.close_idle()
    }

    pub fn late_requests(&self) -> usize {
        self.0.late_requests.get()
    }

    /// Sends one request. It always ends within the time limit, with a result. An HTTP date in
    /// `Retry-After` is compared with `wall`.
    pub async fn send_within_limit(
        &self,
        destination: &Destination,
        outgoing: OutgoingRequest,
        waits: &RequestTimeouts,
        wall: WallTime,
    ) -> RequestResult {
        let (answer, _late) = self
            .begin_request(destination, outgoing, wall)
            .wait_for_response(waits.response)
            .await;
        answer
    }

    /// Whether a connection to the destination can be made: without TLS and without a request, and
    /// closed at once. Also false if too many checks are in progress.
    pub async fn check_reachable(&self, destination: &Destination) -> bool {
        let url = destination.url();
        if self.rules().check_url(url).is_err() {
            return false;
        }
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let mut reaching = Box::pin(self.0.connector.check_reachable(host, port));
        {
            let Ok(_permit) = PROMPT_REACHES.try_acquire() else {
                return false;
            };
            if let Ok(reached) = timeout(REACH_PROMPT, &mut reaching).await {
                return reached.is_ok();
            }
        }
        // Checks without any reply must not take the permits of those that are refused at once.
        let Ok(_permit) = SLOW_REACHES.try_acquire() else {
            return false;
        };
        timeout(REACH_WAIT, reaching)
            .await
            .is_ok_and(|reached| reached.is_ok())
    }

    /// A request that may get a late response. Nothing is sent until
    /// [`RequestInFlight::wait_for_response`] is called.
    pub fn begin_request<'a>(
        &'a self,
        destination: &'a Destination,
        outgoing: OutgoingRequest,
        wall: WallTime,
    ) -> RequestInFlight<'a> {
        RequestInFlight::new(self, destination, outgoing, wall)
    }

    /// A permit for a late request. [`None`] if all are taken: the new one is aborted, because
    /// older ones may belong to other subscriptions.
    pub(super) fn late_permit(&self) -> Option<LatePermit> {
        let in_use = self.0.late_requests.get();
        (in_use < self.0.options.late_requests_max).then(|| {
            self.0.late_requests.set(in_use + 1);
            LatePermit(Rc::clone(&self.0))
        })
    }

    /// Sends the request, and repeats it on a new connection if the first one was stale and a
    /// repeat is still allowed.
    pub(super) async fn send_with_repeat(
        &self,
        destination: &Destination,
        outgoing: Rc<OutgoingRequest>,
        first: Rc<RequestAttempt>,
        wall: WallTime,
    ) -> RequestResult {
        let error = match self.send_once(destination, outgoing, &first, wall).await {
            Ok(answer) => return answer,
            Err(error) => error,
        };
        if self
            .0
            .options
            .lease
            .as_ref()
            .is_some_and(|lease| !lease.may_act())
        {
            return RequestResult::from_outcome(Outcome::Aborted);
        }
        let stale = first.reused.get() && has_no_response(&error, &first);
        if !stale {
            return failed_result(&error, first.current_phase(), destination);
        }
        let Some(outgoing) = first.again.take() else {
            return failed_result(&error, first.current_phase(), destination);
        };
        tracing::debug!(%error, host = destination.url().host_str(), "stale connection; sending \
            again on a new one");
        let second = first.begin_repeat();
        match self.send_once(destination, outgoing, second, wall).await {
            Ok(answer) => answer,
            Err(error) => failed_result(&error, second.current_phase(), destination),
        }
    }

    async fn send_once(
        &self,
        destination: &Destination,
        outgoing: Rc<OutgoingRequest>,
        request_attempt: &Rc<RequestAttempt>,
        wall: WallTime,
    ) -> Result<RequestResult, SendRequestError> {
        ATTEMPT
            .scope(request_attempt.clone(), async move {
                let lease = self.0.options.lease.clone();
                let sending =
                    self.send_request(Method::POST, destination, &outgoing, request_attempt, lease);
                let kept_max = outgoing.response_bytes.max(response::BODY_BYTES_MAX);
                // The body is dropped with its last byte. From here on only `again` may have a
                // copy.
                drop(outgoing);
                let answer = response::read(sending, request_attempt, wall, kept_max).await?;
                request_attempt.read();
                Ok(answer)
            })
            .await
    }
}

impl WebhookClient {
    /// Sends one request on a connection of its own and reads the whole response.
    pub(super) async fn exchange_whole(
        &self,
        destination: &Destination,
        outgoing: &OutgoingRequest,
    ) -> Result<(u16, Bytes), ExchangeError> {
        self.rules().check_url(destination.url())?;
        let attempt = RequestAttempt::new(true);
        let exchange = async {
            let mut response = self
                .send_request(Method::POST, destination, outgoing, &attempt, None)
                .await?;
            let status = response.status().as_u16();
            attempt.enter_phase(RequestPhase::Reading(status));
            let body = response.body().limit(response::DRAINED_BYTES_MAX).await;
            attempt.discard_connection();
            Ok::<_, SendRequestError>(body.map(|body| (status, body)))
        };
        match ATTEMPT.scope(attempt.clone(), exchange).await {
            Ok(response) => Ok(response?),
            Err(error) => {
                let result = failed_result(&error, attempt.current_phase(), destination);
                Err(ExchangeError::Request(result.detail))
            }
        }
    }
}

/// The server as it names itself to endpoints.
const USER_AGENT: &str = concat!("gridhook/", env!("CARGO_PKG_VERSION"));

/// The headers that the codec writes or omits by itself.
const CODEC_HEADERS: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];

impl WebhookClient {
    /// Sends a request. Its headers are in `request_attempt` until then, as they are sent.
    pub(super) fn send_request(
        &self,
        method: Method,
        destination: &Destination,
        outgoing: &OutgoingRequest,
        request_attempt: &Rc<RequestAttempt>,
        lease: Option<Lease>,
    ) -> SendClientRequest {
        let (method, uri) = outgoing.method_and_uri(destination, method);
        let mut of_codec = HeaderMap::new();
        request_attempt
            .headers
            .replace(header_lines(destination, outgoing, &mut of_codec));
        let body = sliced_body(outgoing.body.clone(), Rc::clone(request_attempt), lease);
        if method == Method::POST && of_codec.is_empty() {
            request_attempt.uri.set(Some(uri));
            return self.0.post.send_body(body);
        }
        let mut request = self.0.awc.request(method, uri).no_decompress();
        *request.headers_mut() = of_codec;
        request.send_body(body)
    }
}

/// Adds a header to the lines, or to `map` if the codec decides about it.
fn put_header(lines: &mut String, map: &mut HeaderMap, name: &str, value: &str) {
    if !CODEC_HEADERS.contains(&name) {
        return put_line(lines, name, value);
    }
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
        map.insert(name, value);
    }
}

/// The header lines, but for those that the codec decides about, which are put into `map`. A
/// property takes precedence over another header of its name, and the last of a name over the
/// others.
pub(super) fn header_lines(
    destination: &Destination,
    outgoing: &OutgoingRequest,
    map: &mut HeaderMap,
) -> String {
    let mut lines = String::with_capacity(HEADER_BYTES);
    // Both were checked when they were created. An invalid one is omitted.
    let properties = outgoing.properties.iter().filter_map(|(name, value)| {
        HeaderValue::from_str(value).ok()?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    });
    let properties: Vec<_> = properties.collect();
    let is_property = |name: &str| properties.iter().any(|(own, _)| own == name);
    let is_set =
        |headers: &[RequestHeader], name: &str| headers.iter().any(|(set, _)| *set == name);
    for (name, value) in [
        ("host", destination.authority()),
        ("user-agent", USER_AGENT),
    ] {
        if !is_property(name) && !is_set(&outgoing.headers, name) {
            put_header(&mut lines, map, name, value);
        }
    }
    if outgoing.headers.is_empty() && properties.is_empty() {
        lines.push_str(&outgoing.lines);
        return lines;
    }
    for line in outgoing.lines.split_inclusive("\r\n") {
        let name = line.split(':').next().unwrap_or_default();
        if !is_property(name) && !is_set(&outgoing.headers, name) {
            lines.push_str(line);
        }
    }
    for (index, (name, value)) in outgoing.headers.iter().enumerate() {
        if is_property(name) || is_set(&outgoing.headers[index + 1..], name) {
            continue;
        }
        let is_printable = value
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        put_header(
            &mut lines,
            map,
            name,
            &if is_printable {
                Cow::Borrowed(&**value)
            } else {
                make_sendable(value)
            },
        );
    }
    for (index, (name, value)) in properties.iter().enumerate() {
        if properties[index + 1..]
            .iter()
            .all(|(later, _)| later != name)
        {
            put_header(&mut lines, map, name.as_str(), value);
        }
    }
    lines
}

/// The lease does not allow to send any more.
#[derive(Debug, thiserror::Error)]
#[error("another node of the cluster may send now")]
struct LeaseOver;

/// The body in slices, reporting its progress. A lease is checked at the last moment before its
/// bytes are sent: the process may have been paused since the request began. A body that was sent
/// is not held while its response is awaited.
fn sliced_body(
    mut rest: Bytes,
    request_attempt: Rc<RequestAttempt>,
    lease: Option<Lease>,
) -> impl MessageBody + 'static {
    let len = rest.len();
    let slices = iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if lease.as_ref().is_some_and(|lease| !lease.may_act()) {
            return Some(Err(LeaseOver));
        }
        let is_last = rest.len() <= CHUNK_BYTES;
        request_attempt.enter_phase(if is_last {
            RequestPhase::Waiting
        } else {
            RequestPhase::Sending
        });
        Some(Ok(if is_last {
            mem::take(&mut rest)
        } else {
            rest.split_to(CHUNK_BYTES)
        }))
    });
    SizedStream::new(len as u64, stream::iter(slices))
}
