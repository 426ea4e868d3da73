//! One request to a webhook, with awc.
//!
//! awc is made for clients that talk to servers they trust. Endpoints are not trusted, so, trap by trap (the source is
//! that of awc 3.11):
//! - *Redirects* are never followed: a login page's 200 is no delivery.
//! - *Compression* is compiled out and no `Accept-Encoding` is sent; a body is kept as it comes.
//! - *The limit of 100 connections* over all hosts is lifted (0 means 2³²−1): hung endpoints must not starve others. Bounds
//!   are the caller's, per subscription.
//! - *Timers*: awc's own cover parts of a request and are off or out of reach. One timer covers name, connection, TLS,
//!   request and head.
//! - *The body* is kept up to [`BODY_BYTES_MAX`] and read up to [`DRAINED_BYTES_MAX`], for at most [`BODY_WAIT`]. If it ends
//!   within both, the connection is used again; if not, it is closed, because reading on would let an endpoint hold us for
//!   as long as it likes.
//! - *Interim answers* (1xx) are taken by awc for the answer. [`socket`](super::socket) takes them out of what awc reads. What
//!   it leaves (101, or more of them than anybody needs) fails the request, and its connection is closed. An answer of
//!   HTTP/1.1 without any length is the same trap: awc takes it to have no body.
//! - *204 and 304 with a length* make awc wait for a body that never comes: their body is not read.
//! - *Reused connections*: awc does not tell; [`socket`](super::socket) does. One that breaks before the first byte of an
//!   answer was closed by the endpoint while it was idle. The request is sent again at once on a new connection, within the
//!   same wait, once. It may have been taken twice, which is allowed; it is never taken for delivered.
//! - *Idle connections* stay open in awc's pool for ever, if nobody asks for that host again. A sweep closes them after
//!   [`ClientOptions::keep_alive`]; the shells left in the pool go when there are many, with the pool. The default is shorter than
//!   the 5 s after which common servers close, so that the race above is rare.
//! - *A refusal while we still write* (413, 401) is not heard by awc, which writes first and reads then.
//!   [`socket`](super::socket) hears it.
//! - *TLS* is begun by [`dial`](super::dial), and awc is told of http. Its pool knows connections by host and port alone, so
//!   https has a pool of its own.
//!
//! The status decides. A delivery has succeeded when a head with 200 to 204 is in: the endpoint took the events, whether its
//! body then ends, breaks off, or trickles. A body is for people.
//!
//! How long all of it may take is the business of [`RequestInFlight`]; here is no timer.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use awc::{
    ClientResponse,
    body::SizedStream,
    error::SendRequestError,
    http::{
        Method, StatusCode, Version,
        header::{self, HeaderName, HeaderValue},
    },
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use super::{
    address::AddressRules,
    call::RequestInFlight,
    dial::{ConnectionCounts, Connector},
    failure::{bounded, failed, unanswered},
    names::{NameResolver, Resolver},
    request::{Destination, OutgoingRequest, header_value},
    socket::{EXCHANGE, RequestAttempt, RequestPhase},
    sockets::Sockets,
    trust::{ClientCertificates, TlsTrust},
};
use crate::{
    event::Timestamp,
    policy::outcome::{Outcome, RequestResult},
};

/// 4 KiB of an answer are kept for people (`spec`: decision 27).
pub const BODY_BYTES_MAX: usize = 4_096;

/// 64 KiB of an answer are read, so that its connection can be used again: a new one costs more.
pub const DRAINED_BYTES_MAX: usize = 65_536;

/// How long an answer's body is read, within the request's own wait.
pub const BODY_WAIT: Duration = Duration::from_secs(2);

/// 16 KiB of a body are handed to awc at a time: it copies what it is handed, and a large body behind a slow endpoint
/// should not be in memory twice.
const CHUNK_BYTES: usize = 16_384;

/// 256 shells in the pool: less than a megabyte, even with TLS buffers mostly freed.
const SHELLS_MAX: usize = 256;

/// 1,024 connections of an arbiter that wait for a late answer: a descriptor and some kilobytes each, where every system
/// allows thousands.
pub const LINGERING_MAX: usize = 1_024;

/// Bare connections that are tried at once, of all threads: so many that are decided soon …
static PROMPT_REACHES: Semaphore = Semaphore::const_new(32);

/// … and so many that were not.
static SLOW_REACHES: Semaphore = Semaphore::const_new(32);

/// How soon.
const REACH_PROMPT: Duration = Duration::from_millis(300);

/// How long a bare connection may take after that.
const REACH_WAIT: Duration = Duration::from_secs(5);

/// No timer of awc's own may fire before ours.
const LONGER_THAN_ANY_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// How a client calls.
#[derive(Clone)]
pub struct ClientOptions {
    /// Whom it may call.
    pub rules: AddressRules,
    /// Whose certificates it believes.
    pub trust: TlsTrust,
    /// What it may show of itself: one of them, where a subscription names it.
    pub identities: ClientCertificates,
    /// Who looks up names.
    pub names: Arc<dyn NameResolver>,
    /// How long a connection waits for its next request.
    pub keep_alive: Duration,
    /// How old a connection may become: a new one looks the name up again.
    pub lifetime: Duration,
    /// How long one of several addresses may take to be reached before the next is called beside it (RFC 8305, 5).
    pub attempt_delay: Duration,
    /// Requests that wait for a late answer at once.
    pub lingering_max: usize,
    /// The descriptors that all clients share.
    pub sockets: Sockets,
}

impl ClientOptions {
    /// The usual times.
    pub fn new(rules: AddressRules, trust: TlsTrust) -> Self {
        Self {
            rules,
            trust,
            identities: ClientCertificates::default(),
            names: Arc::new(Resolver::default()),
            keep_alive: Duration::from_secs(4),
            lifetime: Duration::from_secs(300),
            attempt_delay: Duration::from_millis(250),
            lingering_max: LINGERING_MAX,
            sockets: Sockets::default(),
        }
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// From the first look-up to the end of the answer's head.
    pub response: Duration,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self { response: Duration::from_secs(30) }
    }
}

/// A request for another try, until that is given up.
pub(super) type RepeatRequest = Rc<Cell<Option<Rc<OutgoingRequest>>>>;

/// Makes requests. One for each arbiter and set of rules; it stays where it was made.
pub struct WebhookClient(pub(super) Rc<ClientInner>);

pub(super) struct ClientInner {
    pools: RefCell<AwcClients>,
    dialer: Connector,
    pub(super) options: ClientOptions,
    late_requests: Cell<usize>,
}

/// awc's connections.
struct AwcClients {
    plain: awc::Client,
    secure: awc::Client,
}

impl AwcClients {
    fn new(dialer: &Connector, options: &ClientOptions) -> Self {
        Self { plain: awc_client(dialer.clone(), options), secure: awc_client(dialer.secure(), options) }
    }
}

/// The place of a request that waits for a late answer.
pub(super) struct LateSlot(Rc<ClientInner>);

impl Drop for LateSlot {
    fn drop(&mut self) {
        self.0.late_requests.set(self.0.late_requests.get() - 1);
    }
}

impl WebhookClient {
    /// A client whose idle connections are swept by a task on this arbiter, for as long as the client lives.
    ///
    /// # Panics
    /// Outside of an arbiter.
    pub fn new(options: ClientOptions) -> Self {
        let dialer = Connector::new(&options);
        let pools = RefCell::new(AwcClients::new(&dialer, &options));
        let inner = Rc::new(ClientInner { pools, dialer, options, late_requests: Cell::new(0) });
        actix_rt::spawn(keep_sweeping(Rc::downgrade(&inner)));
        Self(inner)
    }

    /// Whose certificates it believes, and what it shows of itself.
    pub fn trust(&self) -> &TlsTrust {
        &self.0.options.trust
    }

    /// The descriptors that this client shares with all others.
    pub fn sockets(&self) -> &Sockets {
        &self.0.options.sockets
    }

    /// Whom this client may call.
    pub fn rules(&self) -> &AddressRules {
        &self.0.options.rules
    }

    /// The pool that has the connections to this destination.
    pub(super) fn awc(&self, destination: &Destination) -> awc::Client {
        let pools = self.0.pools.borrow();
        if destination.is_secure() { pools.secure.clone() } else { pools.plain.clone() }
    }

    /// Closes what was idle for long enough, and counts connections. The client does this by itself too.
    pub fn sweep(&self) -> ConnectionCounts {
        self.0.sweep()
    }

    /// Requests that wait for a late answer.
    pub fn lingering(&self) -> usize {
        self.0.late_requests.get()
    }

    /// Makes one request. It always ends within the wait, and always with an answer. `now` is what an HTTP date in
    /// `Retry-After` is compared with.
    pub async fn post(
        &self,
        destination: &Destination,
        outgoing: OutgoingRequest,
        waits: &RequestTimeouts,
        now: Timestamp,
    ) -> RequestResult {
        let (answer, _lingering) = self.call(destination, outgoing, now).answer(waits.response).await;
        answer
    }

    /// Whether a connection to the destination can be made: without TLS, without a request, and closed at once. False also
    /// where too many are being tried at present.
    pub async fn reach(&self, destination: &Destination) -> bool {
        let url = destination.url();
        if self.rules().check_url(url).is_err() {
            return false;
        }
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let mut reaching = Box::pin(self.0.dialer.reach(host, port));
        {
            let Ok(_place) = PROMPT_REACHES.try_acquire() else { return false };
            if let Ok(reached) = timeout(REACH_PROMPT, &mut reaching).await {
                return reached.is_ok();
            }
        }
        // Those that hear nothing must not take the places of those that are refused at once.
        let Ok(_place) = SLOW_REACHES.try_acquire() else { return false };
        timeout(REACH_WAIT, reaching).await.is_ok_and(|reached| reached.is_ok())
    }

    /// A request that may be answered late: nothing leaves before its answer is asked for.
    pub fn call<'a>(
        &'a self,
        destination: &'a Destination,
        outgoing: OutgoingRequest,
        now: Timestamp,
    ) -> RequestInFlight<'a> {
        RequestInFlight::new(self, destination, outgoing, now)
    }

    /// A place for a request that waits for a late answer. [`None`] where all are taken: the newcomer is cut, because an
    /// older one may be somebody else's.
    pub(super) fn linger(&self) -> Option<LateSlot> {
        let taken = self.0.late_requests.get();
        (taken < self.0.options.lingering_max).then(|| {
            self.0.late_requests.set(taken + 1);
            LateSlot(Rc::clone(&self.0))
        })
    }

    /// The request, and once more on a new connection where the first one's was stale and `again` has it still.
    pub(super) async fn attempts(
        &self,
        destination: &Destination,
        outgoing: Rc<OutgoingRequest>,
        again: RepeatRequest,
        exchanges: [Rc<RequestAttempt>; 2],
        now: Timestamp,
    ) -> RequestResult {
        let [first, second] = exchanges;
        let error = match self.attempt(destination, outgoing, &first, now).await {
            Ok(answer) => return answer,
            Err(error) => error,
        };
        let stale = first.reused.get() && unanswered(&error, &first);
        let Some(outgoing) = again.take().filter(|_| stale) else {
            return failed(&error, first.phase(), destination);
        };
        tracing::debug!(%error, host = destination.url().host_str(), "stale connection, sent again on a new one");
        match self.attempt(destination, outgoing, &second, now).await {
            Ok(answer) => answer,
            Err(error) => failed(&error, second.phase(), destination),
        }
    }

    async fn attempt(
        &self,
        destination: &Destination,
        outgoing: Rc<OutgoingRequest>,
        exchange: &Rc<RequestAttempt>,
        now: Timestamp,
    ) -> Result<RequestResult, SendRequestError> {
        let awc = self.awc(destination);
        EXCHANGE
            .scope(exchange.clone(), async move {
                let request = head(&awc, Method::POST, destination, &outgoing);
                let body = body(outgoing.body.clone(), exchange.clone());
                // The body goes with its last byte: from here on only `again` may have it still.
                drop(outgoing);
                let response = request.send_body(body).await?;
                exchange.enter(RequestPhase::Reading(response.status().as_u16()));
                let answer = read(response, exchange, now).await;
                exchange.read();
                Ok(answer)
            })
            .await
    }
}

impl ClientInner {
    fn sweep(&self) -> ConnectionCounts {
        let found = self.dialer.sweep(self.options.keep_alive);
        if found.shells > SHELLS_MAX {
            // Requests in progress hold on to the old pool until they are done.
            self.pools.replace(AwcClients::new(&self.dialer, &self.options));
        }
        found
    }
}

async fn keep_sweeping(client: Weak<ClientInner>) {
    loop {
        let Some(pause) = client.upgrade().map(|inner| inner.options.keep_alive / 2) else { return };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        if let Some(inner) = client.upgrade() {
            inner.sweep();
        }
    }
}

fn awc_client(dialer: Connector, options: &ClientOptions) -> awc::Client {
    let connector = awc::Connector::new()
        .connector(dialer)
        .timeout(LONGER_THAN_ANY_WAIT)
        .handshake_timeout(LONGER_THAN_ANY_WAIT)
        .conn_keep_alive(options.keep_alive)
        .conn_lifetime(options.lifetime)
        .disconnect_timeout(Duration::from_secs(1))
        .limit(0);
    awc::Client::builder().connector(connector).disable_redirects().disable_timeout().finish()
}

pub(super) fn head(
    awc: &awc::Client,
    method: Method,
    destination: &Destination,
    outgoing: &OutgoingRequest,
) -> awc::ClientRequest {
    let (uri, host) = destination.target();
    let mut request = awc
        .request(method, uri)
        .no_decompress()
        .insert_header((header::HOST, host))
        .insert_header((header::USER_AGENT, HeaderValue::from_static(concat!("gridhook/", env!("CARGO_PKG_VERSION")))));
    for (name, value) in &outgoing.headers {
        let value = match value {
            Cow::Borrowed(value) => HeaderValue::from_static(value),
            // What `build` makes is printable; whoever makes headers otherwise is held to the same.
            Cow::Owned(value) => HeaderValue::from_str(value).unwrap_or_else(|_| {
                HeaderValue::from_str(&header_value(value)).expect("printable ASCII is a header's value")
            }),
        };
        request = request.insert_header((HeaderName::from_static(name), value));
    }
    for (name, value) in &outgoing.properties {
        // Both were checked when they were set up, or made; one that is none after all is left out.
        let pair = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
        if let Some((name, mut value)) = pair {
            value.set_sensitive(true);
            request = request.insert_header((name, value));
        }
    }
    request
}

/// The body in slices, telling how far it is.
pub(super) fn body(body: Bytes, exchange: Rc<RequestAttempt>) -> impl awc::body::MessageBody + 'static {
    let len = body.len();
    let starts = (0..len).step_by(CHUNK_BYTES);
    let slices = starts.map(move |start| {
        let end = (start + CHUNK_BYTES).min(len);
        exchange.enter(if end == len { RequestPhase::Waiting } else { RequestPhase::Sending });
        Ok::<_, Infallible>(body.slice(start..end))
    });
    SizedStream::new(len as u64, stream::iter(slices))
}

/// Reads what is kept of an answer, and decides whether its connection may be used again.
async fn read(mut response: ClientResponse, exchange: &RequestAttempt, now: Timestamp) -> RequestResult {
    let status = response.status();
    let mut answer = RequestResult::bare(Outcome::of_status(status.as_u16()));
    answer.status = Some(status.as_u16());
    answer.retry_after = retry_after(&response, now);
    if status.is_informational() {
        exchange.poison();
        answer.detail = match status {
            StatusCode::SWITCHING_PROTOCOLS => "101 changes the protocol, which was not asked for".to_owned(),
            status => format!("{} is an interim answer, and no other came after many", status.as_u16()),
        };
        return answer;
    }
    if exchange.late.get() {
        // Nobody keeps its body, and whoever took so long to begin may take as long to end.
        exchange.poison();
        return answer;
    }
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless {
        let until = Instant::now() + BODY_WAIT;
        let until = exchange.until.get().map_or(until, |wait| wait.min(until));
        let mut kept = BytesMut::new();
        answer.detail = match timeout_at(until, read_body(&mut response, &mut kept, DRAINED_BYTES_MAX)).await {
            Ok(detail) => detail,
            Err(_) => "the answer's body did not end in time; the connection was closed".to_owned(),
        };
        answer.body = kept.freeze();
    }
    if response.version() == Version::HTTP_11 && (bodiless || has_length(&response)) {
        // Where the body was not read to its end, dropping the response closes the connection.
        drop(response);
        exchange.finish();
    } else {
        exchange.poison();
    }
    answer
}

/// Reads at most `most` bytes of the body, of which the first are `kept`; what to say of the rest.
pub(super) async fn read_body(response: &mut ClientResponse, kept: &mut BytesMut, most: usize) -> String {
    let mut read = 0;
    loop {
        match response.next().await {
            None => return String::new(),
            Some(Ok(chunk)) => {
                read += chunk.len();
                kept.extend_from_slice(&chunk[..chunk.len().min(BODY_BYTES_MAX - kept.len())]);
                if read > most {
                    return format!("the answer's body is longer than {most} bytes; the connection was closed");
                }
            }
            Some(Err(error)) => return bounded(format!("the answer's body broke off: {error}")),
        }
    }
}

fn has_length(response: &ClientResponse) -> bool {
    let headers = response.headers();
    headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING)
}

/// `Retry-After`, in seconds or as a date. What can't be read is as good as not said.
fn retry_after(response: &ClientResponse, now: Timestamp) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than can be counted are as many as can be.
        return Some(Duration::from_secs(value.parse::<u32>().unwrap_or(u32::MAX).into()));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(now.since(Timestamp(0))))
}
