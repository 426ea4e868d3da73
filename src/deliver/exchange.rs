//! Requests over pooled connections of HTTP/1.1, below awc.
//!
//! awc's own pool makes a codec with a task for the date and two buffers of 8 KiB for each request,
//! hashes the endpoint's name twice, and reuses the connection that was idle longest. No setting
//! changes that. So this module is the middleware of awc's clients ([`awc::ClientBuilder::wrap`]):
//! awc makes the request and hands the response out, and what happens between them is here. The
//! headers of a request are not in awc's map, where each would be parsed, hashed and allocated:
//! they are lines of text in the request's [`RequestAttempt`](super::socket::RequestAttempt).
//!
//! - The head of a POST request is written here as actix-http's codec writes it; the codec writes
//!   any other.
//! - [`response_head`](super::response_head) reads the head of a response, and the codec a body
//!   that has not arrived with it. The codec refuses heads that endpoints send, and with them the
//!   success that their status lines report.
//! - The connection that was used last is reused, so that those that a burst opened become idle and
//!   are closed.
//! - One buffer of an arbiter is written from, and one is read into. A request that must wait for
//!   more bytes takes them along.
//! - A connection is idle once the response has been read to its end. It is closed with its request
//!   otherwise.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt::Write as _,
    io::{self, IoSlice},
    mem,
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_http::{
    BoxedPayloadStream, Payload, RequestHeadType, ServiceConfig,
    body::{BodySize, MessageBody},
    error::{ParseError, PayloadError},
    h1::{ClientCodec, ClientPayloadCodec, Message},
};
use actix_service::Service;
use awc::{
    ClientResponse, ConnectRequest, ConnectResponse,
    error::{ConnectError, SendRequestError},
    http::Uri,
    middleware::Transform,
    test::TestResponse,
};
use bytes::{Bytes, BytesMut};
use foldhash::fast::RandomState;
use futures_util::{
    Stream,
    future::{LocalBoxFuture, poll_fn},
    stream,
};
use tokio::{
    io::AsyncWriteExt as _,
    time::{timeout, timeout_at},
};
use tokio_util::{
    codec::{Decoder as _, Encoder as _},
    io::poll_read_buf,
};

use super::{
    dial::Connector,
    response_head::{BodyFraming, ReceivedHead, StatusLine},
    socket::{ATTEMPT, ControlledSocket, RequestPhase},
    sockets::Sockets,
    webhook::ClientOptions,
};

/// A part of a body that is longer is written from where it is. A copy of a shorter one costs less
/// than a second slice.
const COPIED_BYTES: usize = 4 * 1024;

/// The size of the buffer that is read into, and the room that a read must have.
const READ_BYTES: usize = 32 * 1024;
const READ_ROOM: usize = 4 * 1024;

/// The end of a head.
const CRLF: &[u8] = b"\r\n";

/// Room for what [`put_post`] writes, but for the path.
const HEAD_BYTES: usize = 128;

/// The shortest interval of looking for connections that have been idle for long.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// How long an endpoint has for the end of TLS.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The connections of a client. Clones share them.
#[derive(Clone)]
pub(super) struct Exchange(Rc<Pool>);

struct Pool {
    connector: Connector,
    keep_alive: Duration,
    lifetime: Duration,
    sockets: Sockets,
    plain: RefCell<IdleConnections>,
    secure: RefCell<IdleConnections>,
    /// The date that requests have. A timer renews it, so it is here only while there are
    /// connections.
    dated: RefCell<Option<ServiceConfig>>,
    /// Whether a task closes connections that have been idle for long.
    is_swept: Cell<bool>,
    written: RefCell<BytesMut>,
    read: RefCell<BytesMut>,
}

/// The idle connections of each host and port, the one that was used last at the end.
type IdleConnections = HashMap<Box<str>, Vec<ControlledSocket>, RandomState>;

impl Exchange {
    pub(super) fn new(connector: Connector, options: &ClientOptions) -> Self {
        Self(Rc::new(Pool {
            connector,
            keep_alive: options.keep_alive,
            lifetime: options.lifetime,
            sockets: options.sockets.clone(),
            plain: RefCell::default(),
            secure: RefCell::default(),
            dated: RefCell::default(),
            is_swept: Cell::default(),
            written: RefCell::default(),
            read: RefCell::default(),
        }))
    }

    /// Closes connections as [`Pool::close_idle`] does.
    pub(super) fn close_idle(&self) -> usize {
        self.0.close_idle()
    }
}

impl Pool {
    /// Closes connections that have been idle for long, and those with the permits that requests
    /// are short of. Returns how many idle ones are left.
    fn close_idle(&self) -> usize {
        let is_short = self.sockets.is_short();
        let gives_back = |socket: &ControlledSocket| {
            // More are closed than are short, so that the next sweep is not soon.
            is_short && socket.control().has_borrowed() && !self.sockets.is_ample()
        };
        let mut left = 0;
        for idle in [&self.plain, &self.secure] {
            idle.borrow_mut().retain(|_, connections| {
                connections.retain(|socket| self.may_be_used(socket) && !gives_back(socket));
                left += connections.len();
                !connections.is_empty()
            });
        }
        if left == 0 {
            self.dated.take();
        }
        left
    }

    fn begin_sweeping(self: &Rc<Self>) {
        if !self.is_swept.replace(true) {
            let pause = (self.keep_alive / 2).max(SWEEP_INTERVAL_MIN);
            let sockets = self.sockets.clone();
            actix_rt::spawn(Self::keep_sweeping(Rc::downgrade(self), sockets, pause));
        }
    }

    /// Closes idle connections periodically, and at once when requests are short of permits. Ends
    /// when none is left, so that a thread that delivers nothing sleeps.
    async fn keep_sweeping(pool: Weak<Self>, sockets: Sockets, pause: Duration) {
        let mut has_paused = false;
        loop {
            let mut reclaim = pin!(sockets.permits_reclaimed());
            // From here on a notification is not lost.
            reclaim.as_mut().enable();
            let Some(open_pool) = pool.upgrade() else {
                return;
            };
            if open_pool.close_idle() == 0 && has_paused {
                return open_pool.is_swept.set(false);
            }
            drop(open_pool);
            has_paused = timeout(pause, reclaim).await.is_err();
        }
    }

    /// Keeps a connection for the next request to the same host.
    fn keep_idle(self: &Rc<Self>, authority: &str, secure: bool, socket: ControlledSocket) {
        let mut idle = self.idle_connections(secure).borrow_mut();
        match idle.get_mut(authority) {
            Some(connections) => connections.push(socket),
            None => drop(idle.insert(authority.into(), vec![socket])),
        }
        self.begin_sweeping();
    }

    fn idle_connections(&self, secure: bool) -> &RefCell<IdleConnections> {
        if secure { &self.secure } else { &self.plain }
    }

    fn service_config(self: &Rc<Self>) -> ServiceConfig {
        self.begin_sweeping();
        self.dated.borrow_mut().get_or_insert_default().clone()
    }

    fn may_be_used(&self, socket: &ControlledSocket) -> bool {
        let control = socket.control();
        !control.is_closed()
            && control
                .idle_for()
                .is_some_and(|idle| idle < self.keep_alive)
            && control.age() < self.lifetime
    }

    /// An idle connection that is still open.
    fn reuse_connection(&self, uri: &Uri, cx: &mut Context<'_>) -> Option<ControlledSocket> {
        let mut idle = self.idle_connections(is_secure(uri)).borrow_mut();
        let connections = idle.get_mut(uri.authority()?.as_str())?;
        while let Some(socket) = connections.pop() {
            if self.may_be_used(&socket) && socket.is_silent(cx) {
                return Some(socket);
            }
        }
        None
    }

    /// A connection that is open, or else a new one.
    async fn connection_to(&self, uri: &Uri) -> Result<ControlledSocket, ConnectError> {
        let must_be_new = ControlledSocket::must_be_new();
        let idle_socket = poll_fn(|cx| {
            Poll::Ready(if must_be_new {
                None
            } else {
                self.reuse_connection(uri, cx)
            })
        })
        .await;
        if let Some(socket) = idle_socket {
            return Ok(socket);
        }
        let secure = is_secure(uri);
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = uri.host().ok_or(ConnectError::Unresolved)?;
        // Boxed, so that requests on an open connection have a smaller future.
        Box::pin(self.connector.open_connection(host, port, secure)).await
    }

    /// Sends a request and reads the response. Not an async function: the future would hold the
    /// arguments twice, before and after the move.
    fn exchange_messages(
        self: Rc<Self>,
        head: RequestHeadType,
        body: impl MessageBody,
    ) -> impl Future<Output = Result<ConnectResponse, SendRequestError>> {
        let (uri, headers) = ATTEMPT
            .try_with(|request_attempt| {
                (request_attempt.uri.take(), request_attempt.headers.take())
            })
            .unwrap_or_default();
        let is_post = uri.is_some();
        let uri = uri.unwrap_or_else(|| head.as_ref().uri.clone());
        let size = body.size();
        let config = self.service_config();
        async move {
            let socket = self.connection_to(&uri).await?;
            let mut connection = Connection {
                socket,
                unread: BytesMut::new(),
                uri,
                pool: self,
            };
            let mut message = connection.pool.written.take();
            if is_post {
                put_post(&mut message, &connection.uri, size, &config)?;
            } else {
                ClientCodec::new(config.clone())
                    .encode(Message::Item((head, size)), &mut message)?;
            }
            // Add our headers before the empty line that ends the head.
            message.truncate(message.len() - CRLF.len());
            message.extend_from_slice(headers.as_bytes());
            message.extend_from_slice(CRLF);
            connection
                .send_request(&mut message, size, pin!(body))
                .await?;
            let head = connection.receive_head().await?;
            let payload = connection.receive_body(head.framing, head.keep_alive, config)?;
            Ok(ConnectResponse::Client(new_response(head, payload)))
        }
    }
}

/// The part of a response that has been received.
enum Received {
    Head(ReceivedHead),
    /// The status line of an incomplete head.
    Status(StatusLine),
}

/// Decodes as much of a head as has arrived, if it has a status line.
fn decode_head(buffer: &mut BytesMut) -> Result<Option<Received>, ParseError> {
    if let Some(head) = ReceivedHead::take_head(buffer)? {
        return Ok(Some(Received::Head(head)));
    }
    Ok(StatusLine::parse(buffer)?.map(Received::Status))
}

/// The codec of a body that has not arrived. It gets a head with nothing but what frames the body.
fn body_codec(
    framing: BodyFraming,
    dated: ServiceConfig,
) -> Result<ClientPayloadCodec, ParseError> {
    let head = match framing {
        BodyFraming::None => "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
        BodyFraming::Length(length) => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")
        }
        BodyFraming::Chunked => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
        BodyFraming::UntilEnd => "HTTP/1.0 200 OK\r\n\r\n".to_owned(),
    };
    let mut codec = ClientCodec::new(dated);
    codec.decode(&mut BytesMut::from(head.as_str()))?;
    Ok(codec.into_payload_codec())
}

/// Writes the head of a POST request as the codec writes it.
fn put_post(
    message: &mut BytesMut,
    uri: &Uri,
    size: BodySize,
    dated: &ServiceConfig,
) -> io::Result<()> {
    let BodySize::Sized(length) = size else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    message.reserve(HEAD_BYTES + target.len());
    write!(
        message,
        "POST {target} HTTP/1.1\r\ncontent-length: {length}\r\n"
    )
    .map_err(io::Error::other)?;
    dated.write_date_header(message, false);
    message.extend_from_slice(CRLF);
    Ok(())
}

fn is_secure(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// The error of a body that does not have its announced length, or that announces none.
fn wrong_length() -> SendRequestError {
    SendRequestError::Body("a body of another length than announced".into())
}

/// A response with this head and body. awc has no other way to make one than that of its test
/// helper.
fn new_response(head: ReceivedHead, payload: Payload) -> ClientResponse {
    TestResponse::default().finish().map_body(|own, _| {
        head.write_to(own);
        payload
    })
}

struct Connection {
    socket: ControlledSocket,
    /// Bytes of an incomplete message.
    unread: BytesMut,
    uri: Uri,
    pool: Rc<Pool>,
}

impl Connection {
    /// Sends a request whose encoded head is in `message`.
    async fn send_request(
        &mut self,
        message: &mut BytesMut,
        size: BodySize,
        mut body: Pin<&mut impl MessageBody>,
    ) -> Result<(), SendRequestError> {
        // A body with a length needs nothing of the codec.
        let mut left = match size {
            BodySize::None => 0,
            BodySize::Sized(length) => length,
            BodySize::Stream => return Err(wrong_length()),
        };
        while left > 0 {
            let part = poll_fn(|cx| body.as_mut().poll_next(cx)).await.transpose();
            let part = part
                .map_err(|error| SendRequestError::Body(error.into()))?
                .unwrap_or_default();
            left = left
                .checked_sub(part.len() as u64)
                .filter(|_| !part.is_empty())
                .ok_or_else(wrong_length)?;
            if part.len() > COPIED_BYTES {
                self.write(message, &part).await?;
                message.clear();
            } else {
                message.extend_from_slice(&part);
            }
        }
        self.write(message, &[]).await?;
        message.clear();
        self.socket.flush().await?;
        self.pool.written.replace(mem::take(message));
        Ok(())
    }

    /// Writes `first` and then `second`.
    async fn write(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let mut slices = &mut [IoSlice::new(first), IoSlice::new(second)][..];
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.socket.write_vectored(slices).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut slices, written),
            }
        }
        Ok(())
    }

    /// Receives the head of the response. Once its status line is there, the rest may break off,
    /// stall or be malformed.
    async fn receive_head(&mut self) -> Result<ReceivedHead, SendRequestError> {
        let start = poll_fn(|cx| self.poll_decode(cx, decode_head)).await?;
        let line = match start.ok_or(ConnectError::Disconnected)? {
            Received::Head(head) => return Ok(head),
            Received::Status(line) => line,
        };
        let until = ATTEMPT.try_with(|request_attempt| {
            request_attempt.enter_phase(RequestPhase::Reading(line.status));
            request_attempt.reading_until()
        });
        let rest = poll_fn(|cx| self.poll_decode(cx, ReceivedHead::take_head));
        let rest = match until {
            Ok(until) => timeout_at(until, rest).await.ok(),
            // Outside of a request, whose caller has a time limit.
            Err(_) => Some(rest.await),
        };
        match rest {
            Some(Ok(Some(head))) => Ok(head),
            _ => Ok(ReceivedHead::take_unfinished(&mut self.unread)?.ok_or(ParseError::Incomplete)?),
        }
    }

    /// The body that follows a head.
    fn receive_body(
        mut self,
        framing: BodyFraming,
        keep_alive: bool,
        dated: ServiceConfig,
    ) -> Result<Payload, SendRequestError> {
        let body_bytes = match framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => usize::try_from(length)
                .ok()
                .filter(|length| *length <= self.unread.len()),
            BodyFraming::Chunked | BodyFraming::UntilEnd => None,
        };
        let Some(body_bytes) = body_bytes else {
            let codec = body_codec(framing, dated)?;
            let body = ResponseBody {
                connection: Some(self),
                codec,
                keep_alive,
            };
            return Ok(Payload::Stream {
                payload: Box::pin(body),
            });
        };
        let body = self.unread.split_to(body_bytes).freeze();
        self.finish_response(keep_alive);
        if body.is_empty() {
            return Ok(Payload::None);
        }
        let payload: BoxedPayloadStream = Box::pin(stream::iter([Ok(body)]));
        Ok(payload.into())
    }

    /// Decodes an item, and reads until there is one; [`None`] at the end of the connection.
    fn poll_decode<T, E: From<io::Error>>(
        &mut self,
        cx: &mut Context<'_>,
        mut decode: impl FnMut(&mut BytesMut) -> Result<Option<T>, E>,
    ) -> Poll<Result<Option<T>, E>> {
        let is_shared = self.unread.is_empty();
        let mut buffer = if is_shared {
            self.pool.read.take()
        } else {
            mem::take(&mut self.unread)
        };
        let part = loop {
            match decode(&mut buffer) {
                Ok(None) => {}
                decoded => break Poll::Ready(decoded),
            }
            if buffer.capacity() - buffer.len() < READ_ROOM {
                buffer.reserve(if is_shared { READ_BYTES } else { READ_ROOM });
            }
            match poll_read_buf(Pin::new(&mut self.socket), cx, &mut buffer) {
                Poll::Ready(Ok(0)) if buffer.is_empty() => break Poll::Ready(decode(&mut buffer)),
                Poll::Ready(Ok(0)) => {
                    let leftover_error = io::Error::other("bytes remaining on stream");
                    break Poll::Ready(
                        decode(&mut buffer)
                            .and_then(|item| item.map(Some).ok_or_else(|| leftover_error.into())),
                    );
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error.into())),
                Poll::Pending => break Poll::Pending,
            }
        };
        if is_shared {
            if !buffer.is_empty() {
                self.unread = buffer.split();
            }
            self.pool.read.replace(buffer);
        } else {
            self.unread = buffer;
        }
        part
    }

    /// The response has been read to its end.
    fn finish_response(self, keep_alive: bool) {
        let Self {
            mut socket,
            unread,
            uri,
            pool,
        } = self;
        let secure = is_secure(&uri);
        match uri.authority().map(|authority| authority.as_str()) {
            Some(authority) if keep_alive && unread.is_empty() => {
                pool.keep_idle(authority, secure, socket)
            }
            _ if secure => {
                // An endpoint that waits no longer closes the connection itself.
                actix_rt::spawn(
                    async move { timeout(CLOSE_WAIT, socket.shutdown()).await.map(drop) },
                );
            }
            _ => {}
        }
    }
}

struct ResponseBody {
    connection: Option<Connection>,
    codec: ClientPayloadCodec,
    keep_alive: bool,
}

impl Stream for ResponseBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            connection,
            codec,
            keep_alive,
        } = self.get_mut();
        let Some(open) = connection.as_mut() else {
            return Poll::Ready(None);
        };
        match ready!(open.poll_decode(cx, |buffer| codec.decode(buffer))) {
            Ok(Some(Some(chunk))) => Poll::Ready(Some(Ok(chunk))),
            Ok(Some(None)) => {
                if let Some(connection) = connection.take() {
                    connection.finish_response(*keep_alive);
                }
                Poll::Ready(None)
            }
            Ok(None) => {
                *connection = None;
                Poll::Ready(None)
            }
            Err(error) => {
                *connection = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl<S> Transform<S, ConnectRequest> for Exchange {
    type Transform = Self;

    fn new_transform(self, _: S) -> Self {
        self
    }
}

impl Service<ConnectRequest> for Exchange {
    type Response = ConnectResponse;
    type Error = SendRequestError;
    type Future = LocalBoxFuture<'static, Result<ConnectResponse, SendRequestError>>;

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), SendRequestError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&self, request: ConnectRequest) -> Self::Future {
        let pool = Rc::clone(&self.0);
        match request {
            ConnectRequest::Client(head, body, _) => Box::pin(pool.exchange_messages(head, body)),
            ConnectRequest::Tunnel(..) => {
                Box::pin(async { Err(SendRequestError::TunnelNotSupported) })
            }
        }
    }
}
