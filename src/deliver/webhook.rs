//! One request to a webhook, with awc.
//!
//! awc is made for clients that talk to servers they trust. Endpoints are not trusted, so, trap by trap (the source is
//! that of awc 3.11):
//! - *Redirects* are never followed: a login page's 200 is no delivery.
//! - *Compression* is compiled out and no `Accept-Encoding` is sent; a body is kept as it comes.
//! - *The limit of 100 connections* over all hosts is lifted (0 means 2³²−1): hung endpoints must not starve others. Bounds
//!   are the caller's, per subscription.
//! - *Timers*: awc's own cover parts of a request and are off or out of reach. One timer covers name, connection, TLS,
//!   request, head and body.
//! - *The body* is read to at most [`BODY_BYTES_MAX`]. If it ends within, the connection is used again; if not, it is
//!   closed, because reading on would let an endpoint hold us for as long as it likes.
//! - *Interim answers* (1xx) are taken by awc for the answer, and the connection goes back to the pool with the real answer
//!   still to come, which the next request would take for its own: a loss. Such a connection is closed, and the request has
//!   failed. An answer of HTTP/1.1 without any length is the same trap: awc takes it to have no body.
//! - *204 and 304 with a length* make awc wait for a body that never comes: their body is not read.
//! - *Reused connections*: awc does not tell; [`socket`](super::socket) does. One that breaks before the first byte of an
//!   answer was closed by the endpoint while it was idle. The request is sent again at once on a new connection, within the
//!   same wait, once. It may have been taken twice, which is allowed; it is never taken for delivered.
//! - *Idle connections* stay open in awc's pool for ever, if nobody asks for that host again. A sweep closes them after
//!   [`Options::keep_alive`]; the shells left in the pool go when there are many, with the pool. The default is shorter than
//!   the 5 s after which common servers close, so that the race above is rare.
//! - *A refusal while we still write* (413, 401) is not heard by awc, which writes first and reads then.
//!   [`socket`](super::socket) hears it without TLS. What is left: with TLS it may be told as a reset or as silence.
//!
//! A delivery has succeeded when a head with 200 to 204 is in, and the body then ended, broke off or reached the bound: the
//! endpoint took the events, whatever happened to its farewell. A body that neither ends nor grows to the bound within the
//! wait is no answer: TimedOut.
//!
//! How long all of it may take is the business of [`Call`]; here is no timer.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use super::{
    address::AddressRules,
    call::Call,
    failure::{bounded, failed, unanswered},
    request::{Destination, Outgoing, header_value},
    socket::{Connections, Dialer, EXCHANGE, Exchange, Names, Phase, SystemNames},
    sockets::Sockets,
    trust::{Identities, Trust},
};
use crate::{
    event::Timestamp,
    policy::outcome::{Answer, Outcome},
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

/// 4 KiB of an answer are kept for people (`spec`: decision 27).
pub const BODY_BYTES_MAX: usize = 4_096;

/// 16 KiB of a body are handed to awc at a time: it copies what it is handed, and a large body behind a slow endpoint
/// should not be in memory twice.
const CHUNK_BYTES: usize = 16_384;

/// 256 shells in the pool: less than a megabyte, even with TLS buffers mostly freed.
const SHELLS_MAX: usize = 256;

/// 1,024 connections of an arbiter that wait for a late answer: a descriptor and some kilobytes each, where every system
/// allows thousands.
pub const LINGERING_MAX: usize = 1_024;

/// No timer of awc's own may fire before ours.
const LONGER_THAN_ANY_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// How a client calls.
#[derive(Clone)]
pub struct Options {
    /// Whom it may call.
    pub rules: AddressRules,
    /// Whose certificates it believes.
    pub trust: Trust,
    /// What it may show of itself: one of them, where a subscription names it.
    pub identities: Identities,
    /// Who looks up names.
    pub names: Arc<dyn Names>,
    /// How long a connection waits for its next request.
    pub keep_alive: Duration,
    /// How old a connection may become: a new one looks the name up again.
    pub lifetime: Duration,
    /// How long one of several addresses may take to be reached before the next is tried.
    pub connect_wait: Duration,
    /// Requests that wait for a late answer at once.
    pub lingering_max: usize,
    /// The descriptors that all clients share.
    pub sockets: Sockets,
}

impl Options {
    /// The usual times.
    pub fn new(rules: AddressRules, trust: Trust) -> Self {
        Self {
            rules,
            trust,
            identities: Identities::default(),
            names: Arc::new(SystemNames),
            keep_alive: Duration::from_secs(4),
            lifetime: Duration::from_secs(300),
            connect_wait: Duration::from_secs(5),
            lingering_max: LINGERING_MAX,
            sockets: Sockets::default(),
        }
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// From the first look-up to the end of the answer's body.
    pub response: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { response: Duration::from_secs(30) }
    }
}

/// A request for another try, until that is given up.
pub(super) type Again = Rc<Cell<Option<Rc<Outgoing>>>>;

/// Makes requests. One for each arbiter and set of rules; it stays where it was made.
pub struct Client(pub(super) Rc<Inner>);

pub(super) struct Inner {
    pub(super) awc: RefCell<awc::Client>,
    dialer: Dialer,
    pub(super) options: Options,
    lingering: Cell<usize>,
}

/// The place of a request that waits for a late answer.
pub(super) struct Place(Rc<Inner>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lingering.set(self.0.lingering.get() - 1);
    }
}

impl Client {
    /// A client whose idle connections are swept by a task on this arbiter, for as long as the client lives.
    ///
    /// # Panics
    /// Outside of an arbiter.
    pub fn new(options: Options) -> Self {
        let Options { rules, names, connect_wait, sockets, .. } = &options;
        let dialer = Dialer::new(rules.clone(), names.clone(), *connect_wait, sockets.clone());
        let awc = RefCell::new(awc_client(&dialer, &options));
        let inner = Rc::new(Inner { awc, dialer, options, lingering: Cell::new(0) });
        actix_rt::spawn(keep_sweeping(Rc::downgrade(&inner)));
        Self(inner)
    }

    /// Whose certificates it believes, and what it shows of itself.
    pub fn trust(&self) -> &Trust {
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

    /// Closes what was idle for long enough, and counts connections. The client does this by itself too.
    pub fn sweep(&self) -> Connections {
        self.0.sweep()
    }

    /// Requests that wait for a late answer.
    pub fn lingering(&self) -> usize {
        self.0.lingering.get()
    }

    /// Makes one request. It always ends within the wait, and always with an answer. `now` is what an HTTP date in
    /// `Retry-After` is compared with.
    pub async fn post(&self, destination: &Destination, outgoing: Outgoing, waits: &Waits, now: Timestamp) -> Answer {
        let (answer, _lingering) = self.call(destination, outgoing, now).answer(waits.response).await;
        answer
    }

    /// A request that may be answered late: nothing leaves before its answer is asked for.
    pub fn call<'a>(&'a self, destination: &'a Destination, outgoing: Outgoing, now: Timestamp) -> Call<'a> {
        Call::new(self, destination, outgoing, now)
    }

    /// A place for a request that waits for a late answer. [`None`] where all are taken: the newcomer is cut, because an
    /// older one may be somebody else's.
    pub(super) fn linger(&self) -> Option<Place> {
        let taken = self.0.lingering.get();
        (taken < self.0.options.lingering_max).then(|| {
            self.0.lingering.set(taken + 1);
            Place(Rc::clone(&self.0))
        })
    }

    /// The request, and once more on a new connection where the first one's was stale and `again` has it still.
    pub(super) async fn attempts(
        &self,
        destination: &Destination,
        outgoing: Rc<Outgoing>,
        again: Again,
        exchanges: [Rc<Exchange>; 2],
        now: Timestamp,
    ) -> Answer {
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
        outgoing: Rc<Outgoing>,
        exchange: &Rc<Exchange>,
        now: Timestamp,
    ) -> Result<Answer, SendRequestError> {
        let awc = self.0.awc.borrow().clone();
        EXCHANGE
            .scope(exchange.clone(), async move {
                let request = head(&awc, Method::POST, destination, &outgoing);
                let body = body(outgoing.body.clone(), exchange.clone());
                // The body goes with its last byte: from here on only `again` may have it still.
                drop(outgoing);
                let response = request.send_body(body).await?;
                exchange.enter(Phase::Reading(response.status().as_u16()));
                let answer = read(response, exchange, now).await;
                exchange.read();
                Ok(answer)
            })
            .await
    }
}

impl Inner {
    fn sweep(&self) -> Connections {
        let found = self.dialer.sweep(self.options.keep_alive);
        if found.shells > SHELLS_MAX {
            // Requests in progress hold on to the old pool until they are done.
            self.awc.replace(awc_client(&self.dialer, &self.options));
        }
        found
    }
}

async fn keep_sweeping(client: Weak<Inner>) {
    loop {
        let Some(pause) = client.upgrade().map(|inner| inner.options.keep_alive / 2) else { return };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        if let Some(inner) = client.upgrade() {
            inner.sweep();
        }
    }
}

fn awc_client(dialer: &Dialer, options: &Options) -> awc::Client {
    let connector = awc::Connector::new()
        .connector(dialer.clone())
        .rustls_0_23(options.trust.config())
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
    outgoing: &Outgoing,
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
pub(super) fn body(body: Bytes, exchange: Rc<Exchange>) -> impl awc::body::MessageBody + 'static {
    let len = body.len();
    let starts = (0..len).step_by(CHUNK_BYTES);
    let slices = starts.map(move |start| {
        let end = (start + CHUNK_BYTES).min(len);
        exchange.enter(if end == len { Phase::Waiting } else { Phase::Sending });
        Ok::<_, Infallible>(body.slice(start..end))
    });
    SizedStream::new(len as u64, stream::iter(slices))
}

/// Reads what is kept of an answer, and decides whether its connection may be used again.
async fn read(mut response: ClientResponse, exchange: &Exchange, now: Timestamp) -> Answer {
    let status = response.status();
    let mut answer = Answer::bare(Outcome::of_status(status.as_u16()));
    answer.status = Some(status.as_u16());
    answer.retry_after = retry_after(&response, now);
    if status.is_informational() {
        exchange.poison();
        answer.detail = format!("{} is an interim answer, and none is understood", status.as_u16());
        return answer;
    }
    if exchange.late.get() {
        // Nobody keeps its body, and whoever took so long to begin may take as long to end.
        exchange.poison();
        return answer;
    }
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless {
        (answer.body, answer.detail) = read_body(&mut response).await;
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

/// The first bytes of the body, and what to say of the rest.
pub(super) async fn read_body(response: &mut ClientResponse) -> (Bytes, String) {
    let mut kept = BytesMut::new();
    loop {
        match response.next().await {
            None => return (kept.freeze(), String::new()),
            Some(Ok(chunk)) if kept.len() + chunk.len() > BODY_BYTES_MAX => {
                kept.extend_from_slice(&chunk[..BODY_BYTES_MAX - kept.len()]);
                let detail =
                    format!("the answer's body is longer than {BODY_BYTES_MAX} bytes; the connection was closed");
                return (kept.freeze(), detail);
            }
            Some(Ok(chunk)) => kept.extend_from_slice(&chunk),
            Some(Err(error)) => return (kept.freeze(), bounded(format!("the answer's body broke off: {error}"))),
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
