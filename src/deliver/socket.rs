//! The connections below awc: opened to checked addresses only, and watched.
//!
//! awc's pool tells nobody whether a connection was used before, forgets idle connections without closing them, and takes
//! a connection back although its endpoint has not finished answering. So awc is given a socket of ours, which
//! - is opened by `Dialer`, to an address that the rules let through and that was looked up for this connection;
//! - notes for the request in progress (its `Exchange`) that it was used before, and how many bytes came back;
//! - can be closed from outside while it lies in awc's pool, which then throws it away when it next looks at it.
//!
//! How a socket knows its request: everything that awc does for a request, it does while that request's future is being
//! polled, so the exchange is a task-local of that future.
//!
//! Absent on purpose: HTTP and TLS. Both lie above.

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::Future as _,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_rt::net::{ActixStream, Ready, TcpStream};
use actix_service::Service;
use actix_tls::connect::{ConnectError, ConnectInfo, Connection};
use awc::http::Uri;
use futures_util::future::LocalBoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    time::{Instant, timeout},
};

use super::{
    address::AddressRules,
    sockets::{Kept, Sockets},
};
use crate::policy::outcome::{Phases, Took};

tokio::task_local! {
    /// The request that the current task is making.
    pub(super) static EXCHANGE: Rc<Exchange>;
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A connection from the pool, or a new one, is being found.
    Beginning,
    /// The name is being looked up.
    Resolving,
    /// This address is being called.
    Connecting(SocketAddr),
    /// There is a connection; with https, the handshake is next.
    Connected(SocketAddr),
    /// The request is being written.
    Sending,
    /// It is written; the answer's head is awaited.
    Waiting,
    /// The answer's head, with this status, is there; its body is awaited.
    Reading(u16),
}

/// One try of one request.
pub(super) struct Exchange {
    /// Whether connections that were used before are thrown away.
    fresh: bool,
    phase: Cell<Phase>,
    /// When it came there.
    since: Cell<Instant>,
    phases: Cell<Phases>,
    /// When the first byte left.
    pub(super) began: Cell<Option<Instant>>,
    /// Whether its connection was used before.
    pub(super) reused: Cell<bool>,
    /// The bytes that came back, below TLS.
    pub(super) received: Cell<usize>,
    /// Whether the wait is over, and only the answer's head is still of use.
    pub(super) late: Cell<bool>,
    line: RefCell<Option<Rc<Line>>>,
}

impl Exchange {
    pub(super) fn new(fresh: bool) -> Rc<Self> {
        Rc::new(Self {
            fresh,
            phase: Cell::new(Phase::Beginning),
            since: Cell::new(Instant::now()),
            phases: Cell::new(Phases::default()),
            began: Cell::new(None),
            reused: Cell::new(false),
            received: Cell::new(0),
            late: Cell::new(false),
            line: RefCell::new(None),
        })
    }

    /// How far it has come.
    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// It has come so far: how long the part before took is noted.
    pub(super) fn enter(&self, next: Phase) {
        let last = self.phase.replace(next);
        if last == next {
            return;
        }
        let took = self.turn();
        let mut phases = self.phases.get();
        match last {
            Phase::Beginning | Phase::Sending | Phase::Reading(_) => {}
            Phase::Resolving => phases.name = Some(Took::of(took)),
            Phase::Connecting(_) => {
                let before = phases.connection.map(Took::time).unwrap_or_default();
                phases.connection = Some(Took::of(before + took));
            }
            Phase::Connected(_) => phases.tls = Some(Took::of(took)),
            Phase::Waiting => phases.first_byte = Some(Took::of(took)),
        }
        self.phases.set(phases);
    }

    /// The answer's body is read.
    pub(super) fn read(&self) {
        let body = Some(Took::of(self.turn()));
        self.phases.set(Phases { body, ..self.phases.get() });
    }

    /// How long its parts took, of a request with TLS or without.
    pub(super) fn phases(&self, secure: bool) -> Phases {
        let phases = self.phases.get();
        // Without TLS there is nothing between a connection and the request.
        Phases { tls: phases.tls.filter(|_| secure), ..phases }
    }

    fn turn(&self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(self.since.replace(now))
    }

    /// The answer is read: its connection may be used again, if awc kept it.
    pub(super) fn finish(&self) {
        if let Some(line) = self.line.take() {
            // A connection that must not be kept is closed at once.
            match line.sockets.keep().filter(|_| !line.refused.get()) {
                Some(kept) => drop(line.kept.replace(Some(kept))),
                None => line.close(),
            }
            line.idle_since.set(Some(Instant::now()));
        }
    }

    /// The connection must not be used again, whatever awc thinks.
    pub(super) fn poison(&self) {
        if let Some(line) = self.line.take() {
            line.close();
        }
    }
}

/// What a socket shares with those who watch it.
struct Line {
    stream: RefCell<Option<TcpStream>>,
    requests: Cell<u32>,
    idle_since: Cell<Option<Instant>>,
    /// Without TLS, so that what the endpoint says can be looked at.
    plain: bool,
    /// The endpoint refused before it had everything: the rest was not sent.
    refused: Cell<bool>,
    sockets: Sockets,
    /// Its place among the idle connections, while it is one.
    kept: RefCell<Option<Kept>>,
}

impl Line {
    fn close(&self) {
        self.stream.take();
        self.kept.take();
    }

    /// The request in progress writes: it owns the line from now on.
    fn claim(self: &Rc<Self>, exchange: &Exchange) {
        let mut owner = exchange.line.borrow_mut();
        if owner.as_ref().is_some_and(|line| Rc::ptr_eq(line, self)) {
            return;
        }
        exchange.reused.set(self.requests.get() > 0);
        exchange.began.set(exchange.began.get().or_else(|| Some(Instant::now())));
        self.requests.set(self.requests.get() + 1);
        self.idle_since.set(None);
        self.kept.take();
        *owner = Some(self.clone());
    }
}

/// The connection that awc gets. Once closed from outside it reads as ended, and writing to it fails.
pub(super) struct Socket(Rc<Line>);

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.0.stream.borrow()).finish()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Socket {
    /// Runs `write` on the stream on behalf of the request in progress.
    ///
    /// awc does not read before it has written everything. So an endpoint that refuses a large request and stops reading
    /// would be told as silent or broken: where writing stops while a refusal lies there, the rest is thrown away, and awc
    /// goes on to read. A success is never taken so: then the endpoint shall get it all.
    fn write(
        &self,
        cx: &mut Context<'_>,
        all: usize,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // Outside of a request (a TLS farewell) there is nobody to tell.
        EXCHANGE.try_with(|exchange| self.0.claim(exchange)).ok();
        if self.0.refused.get() {
            return Poll::Ready(Ok(all));
        }
        let mut stream = self.0.stream.borrow_mut();
        let Some(stream) = stream.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = write(Pin::new(stream), cx);
        let stuck = matches!(written, Poll::Pending | Poll::Ready(Err(_)));
        if stuck && self.0.plain && holds_refusal(stream, cx) {
            self.0.refused.set(true);
            return Poll::Ready(Ok(all));
        }
        written
    }
}

/// Whether the endpoint has sent an answer that begins with a status from 300 to 599.
fn holds_refusal(stream: &TcpStream, cx: &mut Context<'_>) -> bool {
    let mut start = [0; 12];
    let mut start = ReadBuf::new(&mut start);
    let peeked = matches!(stream.poll_peek(cx, &mut start), Poll::Ready(Ok(_)));
    peeked && matches!(start.filled(), [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'3'..=b'5', _, _])
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let line = &self.0;
        // An idle socket is read by awc's pool, which asks whether it still lives.
        let idle = line.idle_since.get().is_some();
        if idle && EXCHANGE.try_with(|exchange| exchange.fresh).unwrap_or(false) {
            line.close();
        }
        let before = buf.filled().len();
        let read = match line.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_read(cx, buf),
            None => return Poll::Ready(Ok(())),
        };
        if !idle {
            let more = buf.filled().len() - before;
            EXCHANGE.try_with(|exchange| exchange.received.set(exchange.received.get() + more)).ok();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, bytes.len(), |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = slices.iter().map(|slice| slice.len()).sum();
        self.write(cx, all, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP stream has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Socket {
    fn poll_ready(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        match self.0.stream.borrow().as_ref() {
            Some(stream) => pin!(stream.ready(interest)).poll(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl ActixStream for Socket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.poll_ready(Interest::READABLE, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.poll_ready(Interest::WRITABLE, cx)
    }
}

/// Who looks up names.
pub trait Names: Send + Sync {
    /// The addresses of `host`, with `port`.
    fn lookup(&self, host: &str, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The names that the machine knows. A look-up can't be called off: one that hangs holds a thread of the arbiter's
/// blocking pool (512 of them) until the machine's own resolver gives up, long after the request did.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn lookup(&self, host: &str, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Opens connections. awc asks it for each new one.
#[derive(Clone)]
pub(super) struct Dialer(Rc<Dialing>);

struct Dialing {
    rules: AddressRules,
    names: Arc<dyn Names>,
    connect_wait: Duration,
    sockets: Sockets,
    lines: RefCell<Vec<Weak<Line>>>,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections that a request is using.
    pub busy: usize,
    /// Connections that wait for a request.
    pub idle: usize,
    /// Closed ones of which awc's pool still keeps the shell.
    pub shells: usize,
}

impl Dialer {
    pub(super) fn new(rules: AddressRules, names: Arc<dyn Names>, connect_wait: Duration, sockets: Sockets) -> Self {
        Self(Rc::new(Dialing { rules, names, connect_wait, sockets, lines: RefCell::new(Vec::new()) }))
    }

    /// Closes what has been idle for `keep_alive`, and counts.
    pub(super) fn sweep(&self, keep_alive: Duration) -> Connections {
        let mut found = Connections::default();
        self.0.lines.borrow_mut().retain(|line| {
            let Some(line) = line.upgrade() else { return false };
            if line.idle_since.get().is_some_and(|since| since.elapsed() >= keep_alive) {
                line.close();
            }
            if line.stream.borrow().is_none() {
                found.shells += 1;
            } else if line.idle_since.get().is_some() {
                found.idle += 1;
            } else {
                found.busy += 1;
            }
            true
        });
        found
    }

    /// Looks `host` up, checks all it leads to, and calls one address after the other.
    async fn dial(&self, host: &str, port: u16, plain: bool) -> Result<Socket, ConnectError> {
        let say = |phase| EXCHANGE.try_with(|exchange| exchange.enter(phase)).unwrap_or_default();
        let refused = |refused| ConnectError::Io(io::Error::other(refused));
        // The way from a URL to a URI leaves the brackets around an IPv6 address.
        let found = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => {
                let address = SocketAddr::new(address, port);
                self.0.rules.check_socket(address).map_err(refused)?;
                vec![address]
            }
            Err(_) => {
                say(Phase::Resolving);
                let found = self.0.names.lookup(host, port).await;
                let found = found.map_err(|error| ConnectError::Resolver(Box::new(error)))?;
                self.0.rules.check_found(host, &found).map_err(refused)?;
                found
            }
        };
        let mut failure = ConnectError::NoRecords;
        let last = found.len().saturating_sub(1);
        for (place, address) in found.into_iter().enumerate() {
            say(Phase::Connecting(address));
            // The last address has what is left of the whole request's time.
            let wait = if place == last { Duration::MAX } else { self.0.connect_wait };
            match timeout(wait, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without it a request of two writes waits for an acknowledgement; a socket that can't is no reason
                    // to fail.
                    stream.set_nodelay(true).ok();
                    say(Phase::Connected(address));
                    return Ok(self.watch(stream, plain));
                }
                Ok(Err(error)) => failure = ConnectError::Io(error),
                Err(_) => failure = ConnectError::Io(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(failure)
    }

    fn watch(&self, stream: TcpStream, plain: bool) -> Socket {
        let line = Rc::new(Line {
            stream: RefCell::new(Some(stream)),
            requests: Cell::new(0),
            idle_since: Cell::new(None),
            plain,
            refused: Cell::new(false),
            sockets: self.0.sockets.clone(),
            kept: RefCell::default(),
        });
        self.0.lines.borrow_mut().push(Rc::downgrade(&line));
        Socket(line)
    }
}

impl Service<ConnectInfo<Uri>> for Dialer {
    type Response = Connection<Uri, Socket>;
    type Error = ConnectError;
    type Future = LocalBoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&self, info: ConnectInfo<Uri>) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move {
            let plain = info.request().scheme_str() != Some("https");
            let socket = dialer.dial(info.hostname(), info.port(), plain).await?;
            Ok(Connection::new(info.request().clone(), socket))
        })
    }
}
