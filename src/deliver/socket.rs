//! The connections below awc, watched.
//!
//! awc's pool tells nobody whether a connection was used before, forgets idle connections without closing them, and takes
//! a connection back although its endpoint has not finished answering. awc also takes an interim answer (1xx) for the
//! answer. So awc is given a socket of ours, above TLS where there is TLS, which
//! - is opened by [`Dialer`](super::dial), to an address that the rules let through;
//! - notes for the request in progress (its `RequestAttempt`) that it was used before, and how many bytes came back;
//! - takes interim answers out of what awc reads, but for 101, which ends HTTP on the connection;
//! - can be closed from outside while it lies in awc's pool, which then throws it away when it next looks at it.
//!
//! How a socket knows its request: everything that awc does for a request, it does while that request's future is being
//! polled, so the exchange is a task-local of that future.
//!
//! Absent on purpose: names, addresses and TLS, which are [`dial`](super::dial)'s, and what an answer means.

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::Future as _,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_rt::net::{ActixStream, Ready, TcpStream};
use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    time::Instant,
};
use tokio_rustls::client::TlsStream;

use super::sockets::{KeptConnection, Sockets};
use crate::policy::outcome::{Elapsed, RequestPhases};

/// Interim answers to one request; further ones are taken for the answer, which fails it.
pub const INTERIM_MAX: usize = 16;

/// The head of an interim answer; a longer one is taken for the answer.
pub const INTERIM_BYTES_MAX: usize = 16_384;

/// So much is read at a time while the kind of an answer is not known.
const READ_BYTES: usize = 4_096;

tokio::task_local! {
    /// The request that the current task is making.
    pub(super) static EXCHANGE: Rc<RequestAttempt>;
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPhase {
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
pub(super) struct RequestAttempt {
    /// Whether connections that were used before are thrown away.
    fresh: bool,
    phase: Cell<RequestPhase>,
    /// When it came there.
    since: Cell<Instant>,
    phases: Cell<RequestPhases>,
    /// When the first byte left.
    pub(super) began: Cell<Option<Instant>>,
    /// Whether its connection was used before.
    pub(super) reused: Cell<bool>,
    /// The bytes that came back, without those of TLS.
    pub(super) received: Cell<usize>,
    /// When the wait is over: a body is read no longer.
    pub(super) until: Cell<Option<Instant>>,
    /// Whether the wait is over, and only the answer's head is still of use.
    pub(super) late: Cell<bool>,
    line: RefCell<Option<Rc<SocketControl>>>,
}

impl RequestAttempt {
    pub(super) fn new(fresh: bool) -> Rc<Self> {
        Rc::new(Self {
            fresh,
            phase: Cell::new(RequestPhase::Beginning),
            since: Cell::new(Instant::now()),
            phases: Cell::new(RequestPhases::default()),
            began: Cell::new(None),
            reused: Cell::new(false),
            received: Cell::new(0),
            until: Cell::new(None),
            late: Cell::new(false),
            line: RefCell::new(None),
        })
    }

    /// How far it has come.
    pub(super) fn phase(&self) -> RequestPhase {
        self.phase.get()
    }

    /// It has come so far: how long the part before took is noted.
    pub(super) fn enter(&self, next: RequestPhase) {
        let last = self.phase.replace(next);
        if last == next {
            return;
        }
        let took = self.turn();
        let mut phases = self.phases.get();
        match last {
            RequestPhase::Beginning | RequestPhase::Sending | RequestPhase::Reading(_) => {}
            RequestPhase::Resolving => phases.name = Some(Elapsed::of(took)),
            RequestPhase::Connecting(_) => {
                let before = phases.connection.map(Elapsed::time).unwrap_or_default();
                phases.connection = Some(Elapsed::of(before + took));
            }
            RequestPhase::Connected(_) => phases.tls = Some(Elapsed::of(took)),
            RequestPhase::Waiting => phases.first_byte = Some(Elapsed::of(took)),
        }
        self.phases.set(phases);
    }

    /// The answer's body is read.
    pub(super) fn read(&self) {
        let body = Some(Elapsed::of(self.turn()));
        self.phases.set(RequestPhases { body, ..self.phases.get() });
    }

    /// How long its parts took, of a request with TLS or without.
    pub(super) fn phases(&self, secure: bool) -> RequestPhases {
        let phases = self.phases.get();
        // Without TLS there is nothing between a connection and the request.
        RequestPhases { tls: phases.tls.filter(|_| secure), ..phases }
    }

    fn turn(&self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(self.since.replace(now))
    }

    /// The answer is read: its connection may be used again, if awc kept it.
    pub(super) fn finish(&self) {
        if let Some(line) = self.line.take() {
            // A connection that must not be kept is closed at once.
            let usable = !line.refused.get() && line.inbox.borrow().is_empty();
            match line.sockets.keep().filter(|_| usable) {
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
pub(super) struct SocketControl {
    stream: RefCell<Option<Box<dyn Wire>>>,
    /// What was read and awc has not taken.
    inbox: RefCell<BytesMut>,
    /// How many interim answers to the present request were taken out; [`None`] once its answer has begun.
    interim: Cell<Option<usize>>,
    requests: Cell<u32>,
    idle_since: Cell<Option<Instant>>,
    /// The endpoint refused before it had everything: the rest was not sent.
    refused: Cell<bool>,
    sockets: Sockets,
    /// Its place among the idle connections, while it is one.
    kept: RefCell<Option<KeptConnection>>,
}

/// A stream, with TLS or without.
trait Wire: AsyncRead + AsyncWrite + Unpin {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

impl SocketControl {
    /// Closes it, whoever has it.
    pub(super) fn close(&self) {
        self.stream.take();
        self.kept.take();
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.stream.borrow().is_none()
    }

    /// For how long it has waited for a request; [`None`] where a request is using it.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        self.idle_since.get().map(|since| since.elapsed())
    }

    /// The request in progress writes: it owns the line from now on.
    fn claim(self: &Rc<Self>, exchange: &RequestAttempt) {
        let mut owner = exchange.line.borrow_mut();
        if owner.as_ref().is_some_and(|line| Rc::ptr_eq(line, self)) {
            return;
        }
        exchange.reused.set(self.requests.get() > 0);
        exchange.began.set(exchange.began.get().or_else(|| Some(Instant::now())));
        self.requests.set(self.requests.get() + 1);
        self.idle_since.set(None);
        self.kept.take();
        self.interim.set(Some(0));
        *owner = Some(self.clone());
    }

    /// Reads what there is into the inbox: how many bytes came, none at the end.
    fn fill(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let Some(stream) = stream.as_mut() else { return Poll::Ready(Ok(0)) };
        let mut bytes = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        received(read.filled().len());
        self.inbox.borrow_mut().extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Takes interim answers out of the inbox: whether what is left there begins the answer.
    fn has_answer(&self) -> bool {
        let mut inbox = self.inbox.borrow_mut();
        while let Some(taken) = self.interim.get() {
            match begins(&inbox) {
                ResponseStart::Interim(len) if taken < INTERIM_MAX => {
                    inbox.advance(len);
                    self.interim.set(Some(taken + 1));
                }
                ResponseStart::Unknown if inbox.len() < INTERIM_BYTES_MAX => return false,
                ResponseStart::Interim(_) | ResponseStart::Unknown | ResponseStart::Answer => self.interim.set(None),
            }
        }
        true
    }

    /// Whether the endpoint has sent an answer that begins with a status from 300 to 599.
    fn has_refusal(&self, cx: &mut Context<'_>) -> bool {
        while !self.has_answer() || self.inbox.borrow().len() < STATUS_LINE.len() {
            match self.fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => break,
            }
        }
        let inbox = self.inbox.borrow();
        self.interim.get().is_none()
            && matches!(**inbox, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'3'..=b'5', _, _, ..])
    }
}

/// How the line with a status begins, at least.
const STATUS_LINE: &[u8; 12] = b"HTTP/1.1 200";

/// What some bytes of an endpoint begin.
enum ResponseStart {
    /// An interim answer whose head has so many bytes.
    Interim(usize),
    /// The answer, or nothing that is HTTP: awc's affair.
    Answer,
    /// Too few bytes to tell.
    Unknown,
}

fn begins(bytes: &[u8]) -> ResponseStart {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let read = head.parse(bytes);
    match (read, head.code) {
        // 101 is the last that is HTTP.
        (Ok(httparse::Status::Complete(len)), Some(100 | 102..=199)) => ResponseStart::Interim(len),
        (Ok(httparse::Status::Partial), None | Some(100 | 102..=199)) => ResponseStart::Unknown,
        (Ok(_) | Err(_), _) => ResponseStart::Answer,
    }
}

/// Bytes came back for the request in progress.
fn received(bytes: usize) {
    EXCHANGE.try_with(|exchange| exchange.received.set(exchange.received.get() + bytes)).unwrap_or_default();
}

/// The connection that awc gets. Once closed from outside it reads as ended, and writing to it fails.
pub(super) struct ControlledSocket(Rc<SocketControl>);

impl fmt::Debug for ControlledSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.0.stream.borrow().as_ref().map(|stream| stream.tcp())).finish()
    }
}

impl Drop for ControlledSocket {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ControlledSocket {
    #[expect(private_bounds, reason = "there are two streams, and this module knows both")]
    pub(super) fn new(stream: impl Wire + 'static, sockets: Sockets) -> Self {
        Self(Rc::new(SocketControl {
            stream: RefCell::new(Some(Box::new(stream))),
            inbox: RefCell::default(),
            interim: Cell::new(None),
            requests: Cell::new(0),
            idle_since: Cell::new(None),
            refused: Cell::new(false),
            sockets,
            kept: RefCell::default(),
        }))
    }

    /// What is shared with those who watch it.
    pub(super) fn line(&self) -> &Rc<SocketControl> {
        &self.0
    }

    /// Runs `write` on the stream on behalf of the request in progress.
    ///
    /// awc does not read before it has written everything. So an endpoint that refuses a large request and stops reading
    /// would be told as silent or broken: where writing stops while a refusal lies there, the rest is thrown away, and awc
    /// goes on to read. A success is never taken so: then the endpoint shall get it all.
    fn write(
        &self,
        cx: &mut Context<'_>,
        all: usize,
        write: impl FnOnce(Pin<&mut Box<dyn Wire>>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // Outside of a request there is nobody to tell.
        EXCHANGE.try_with(|exchange| self.0.claim(exchange)).ok();
        if self.0.refused.get() {
            return Poll::Ready(Ok(all));
        }
        let written = match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => write(Pin::new(stream), cx),
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        let stuck = matches!(written, Poll::Pending | Poll::Ready(Err(_)));
        if stuck && self.0.has_refusal(cx) {
            self.0.refused.set(true);
            return Poll::Ready(Ok(all));
        }
        written
    }
}

impl AsyncRead for ControlledSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let line = &self.0;
        // An idle socket is read by awc's pool, which asks whether it still lives.
        let idle = line.idle_since.get().is_some();
        if idle && EXCHANGE.try_with(|exchange| exchange.fresh).unwrap_or(false) {
            line.close();
        }
        while !line.has_answer() {
            if ready!(line.fill(cx))? == 0 {
                // It ended in the middle of a head, which awc shall tell.
                line.interim.set(None);
            }
        }
        let mut inbox = line.inbox.borrow_mut();
        if !inbox.is_empty() {
            let most = inbox.len().min(buf.remaining());
            buf.put_slice(&inbox.split_to(most));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = match line.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_read(cx, buf),
            None => return Poll::Ready(Ok(())),
        };
        if !idle {
            received(buf.filled().len() - before);
        }
        read
    }
}

impl AsyncWrite for ControlledSocket {
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

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.refused.get() {
            return Poll::Ready(Ok(()));
        }
        match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl ControlledSocket {
    fn poll_ready(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        match self.0.stream.borrow().as_ref() {
            Some(stream) => pin!(stream.tcp().ready(interest)).poll(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl ActixStream for ControlledSocket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.poll_ready(Interest::READABLE, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.poll_ready(Interest::WRITABLE, cx)
    }
}
