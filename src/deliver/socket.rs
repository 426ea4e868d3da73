//! The connections to endpoints, monitored.
//!
//! The HTTP codec takes an interim response (1xx) for the final one, and a request is written
//! before its response is read. So `exchange` gets a socket of this module, above TLS if there is
//! TLS, which
//! - is opened by [`dial`](super::dial), to an address that the rules allow;
//! - records for the current request (its `RequestAttempt`) that it was used before, and the number
//!   of received bytes;
//! - removes interim responses from what is read, except 101, which ends HTTP on the connection;
//! - notices a rejection while a request is being written;
//! - can be closed from outside while it is idle, and is dropped at the next use.
//!
//! A socket finds its request by a task-local: all work for a request is done while that request's
//! future is polled.
//!
//! Names, addresses and TLS are in [`dial`](super::dial).

use std::{
    cell::{Cell, OnceCell, RefCell},
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use awc::http::Uri;
use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    request::OutgoingRequest,
    response::BODY_TIMEOUT,
    response_head::{StatusLine, is_final, is_refusal},
    sockets::{KeptConnection, Sockets},
};
use gridhook_policy::outcome::{Elapsed, RequestPhases};

/// 1 MiB of interim responses to a request are skipped. The next one is taken for the final
/// response, which fails the request.
pub const INTERIM_BYTES_MAX: usize = 1024 * 1024;

/// Bytes per read until the kind of a response is known.
const READ_BYTES: usize = 4_096;

tokio::task_local! {
    /// The request that the current task is making.
    pub(super) static ATTEMPT: Rc<RequestAttempt>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPhase {
    /// A pooled or a new connection is being obtained.
    Beginning,
    /// The name is being resolved.
    Resolving,
    /// A connection to this address is being opened.
    Connecting(SocketAddr),
    /// The connection is established; with https, the TLS handshake is next.
    Connected(SocketAddr),
    /// The request is being written.
    Sending,
    /// The request is written; waiting for the head of the response.
    Waiting,
    /// The head, with this status, has arrived; waiting for the body.
    Reading(u16),
}

/// One attempt to send a request, over one connection.
pub(super) struct RequestAttempt {
    /// Whether connections that were used before are dropped.
    fresh: bool,
    phase: Cell<RequestPhase>,
    /// The time at which the phase began; [`None`] for the first one.
    since: Cell<Option<Instant>>,
    phases: Cell<RequestPhases>,
    /// The time at which the response was read.
    ended: Cell<Option<Instant>>,
    /// The time at which the first byte was sent.
    pub(super) began: Cell<Option<Instant>>,
    /// Whether the attempt uses a connection that was used before.
    pub(super) reused: Cell<bool>,
    /// Number of received bytes, without those of TLS.
    pub(super) received: Cell<usize>,
    /// The time limit for reading the body.
    pub(super) until: Cell<Option<Instant>>,
    /// Whether the request timed out, so that only the head of the response matters.
    pub(super) late: Cell<bool>,
    control: RefCell<Option<Rc<SocketControl>>>,
    /// The lines of the request's headers, until they are sent.
    pub(super) headers: RefCell<String>,
    /// The URI of the request, if awc does not know it.
    pub(super) uri: Cell<Option<Uri>>,
    /// The request for a repeat, until that is no longer allowed.
    pub(super) again: Cell<Option<Rc<OutgoingRequest>>>,
    repeat: OnceCell<Rc<Self>>,
}

impl RequestAttempt {
    pub(super) fn new(fresh: bool) -> Rc<Self> {
        Rc::new(Self {
            fresh,
            phase: Cell::new(RequestPhase::Beginning),
            since: Cell::new(None),
            phases: Cell::new(RequestPhases::default()),
            ended: Cell::new(None),
            began: Cell::new(None),
            reused: Cell::new(false),
            received: Cell::new(0),
            until: Cell::new(None),
            late: Cell::new(false),
            control: RefCell::new(None),
            headers: RefCell::default(),
            uri: Cell::default(),
            again: Cell::default(),
            repeat: OnceCell::new(),
        })
    }

    /// Begins the attempt that repeats this one on a new connection, within the same time limit.
    pub(super) fn begin_repeat(&self) -> &Rc<Self> {
        self.repeat.get_or_init(|| {
            let repeat = Self::new(true);
            repeat.until.set(self.until.get());
            repeat
        })
    }

    /// The attempt that repeats this one, or this one if none does.
    pub(super) fn latest_attempt(&self) -> &Self {
        self.repeat.get().map_or(self, |repeat| repeat)
    }

    pub(super) fn current_phase(&self) -> RequestPhase {
        self.phase.get()
    }

    /// Enters a phase and records the duration of the last one.
    pub(super) fn enter_phase(&self, next: RequestPhase) {
        let last = self.phase.replace(next);
        if last == next {
            return;
        }
        let took = self.current_lap();
        let mut phases = self.phases.get();
        match last {
            RequestPhase::Beginning | RequestPhase::Sending | RequestPhase::Reading(_) => {}
            RequestPhase::Resolving => phases.name = Some(Elapsed::from_duration(took)),
            RequestPhase::Connecting(_) => {
                let before = phases
                    .connection
                    .map(Elapsed::to_duration)
                    .unwrap_or_default();
                phases.connection = Some(Elapsed::from_duration(before + took));
            }
            RequestPhase::Connected(_) => phases.tls = Some(Elapsed::from_duration(took)),
            RequestPhase::Waiting => phases.first_byte = Some(Elapsed::from_duration(took)),
        }
        self.phases.set(phases);
    }

    /// The time at which the phase began. The clock is read once for each phase, and for all that
    /// happens at its beginning.
    pub(super) fn phase_start(&self) -> Instant {
        self.since.get().unwrap_or_else(Instant::now)
    }

    /// Records that the response is read, once.
    pub(super) fn read(&self) {
        if self.ended.get().is_none() {
            let body = Some(Elapsed::from_duration(self.current_lap()));
            self.phases.set(RequestPhases {
                body,
                ..self.phases.get()
            });
            self.ended.set(self.since.get());
        }
    }

    /// The time until which the rest of a response is read whose status line has arrived.
    pub(super) fn reading_until(&self) -> Instant {
        let until = self.phase_start() + BODY_TIMEOUT;
        self.until.get().map_or(until, |wait| wait.min(until))
    }

    /// Whether the status of the response is known. If it arrived while the request was being
    /// written, the rest of the request is discarded.
    pub(super) fn has_status(&self) -> bool {
        if matches!(self.phase.get(), RequestPhase::Reading(_)) {
            return true;
        }
        let control = self.control.borrow();
        control
            .as_ref()
            .is_some_and(|control| control.stop_writing())
    }

    /// The time at which the response was read; now if it was not.
    pub(super) fn response_end(&self) -> Instant {
        self.ended.get().unwrap_or_else(Instant::now)
    }

    pub(super) fn phase_durations(&self, secure: bool) -> RequestPhases {
        let phases = self.phases.get();
        // Without TLS there is no phase between connection and request.
        RequestPhases {
            tls: phases.tls.filter(|_| secure),
            ..phases
        }
    }

    fn current_lap(&self) -> Duration {
        let now = Instant::now();
        self.since
            .replace(Some(now))
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Ends the response. Its connection may be reused if it was kept.
    pub(super) fn finish_response(&self) {
        self.read();
        if let Some(control) = self.control.take() {
            // A connection that must not be reused is closed at once.
            let usable = !control.is_answered.get() && control.inbox.borrow().is_empty();
            match control.sockets.keep_connection().filter(|_| usable) {
                Some(kept) => drop(control.kept.replace(Some(kept))),
                None => control.close(),
            }
            control.idle_since.set(Some(self.response_end()));
        }
    }

    /// Closes the connection, so that it is not reused.
    pub(super) fn discard_connection(&self) {
        if let Some(control) = self.control.take() {
            control.close();
        }
    }
}

/// The state that a socket shares with its monitors.
pub(super) struct SocketControl {
    stream: RefCell<Option<Box<dyn Transport>>>,
    /// Bytes that were read and that the codec has not taken.
    inbox: RefCell<BytesMut>,
    /// Bytes of interim responses that were removed; [`None`] once the final response has begun.
    interim: Cell<Option<usize>>,
    requests: Cell<u32>,
    opened: Instant,
    idle_since: Cell<Option<Instant>>,
    /// The endpoint responded to the request before it had everything. The rest was not sent.
    is_answered: Cell<bool>,
    sockets: Sockets,
    /// The permit among the idle connections, while the connection has one.
    kept: RefCell<Option<KeptConnection>>,
}

/// A stream, with or without TLS.
trait Transport: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Transport for T {}

impl SocketControl {
    /// Closes the connection, even while it is in use.
    pub(super) fn close(&self) {
        self.stream.take();
        self.kept.take();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stream.borrow().is_none()
    }

    /// How long the connection has been idle; [`None`] while a request uses it.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        self.idle_since.get().map(|since| since.elapsed())
    }

    /// The time since the connection was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Whether the connection is idle with a permit of requests in flight.
    pub(super) fn has_borrowed(&self) -> bool {
        self.kept
            .borrow()
            .as_ref()
            .is_some_and(KeptConnection::is_borrowed)
    }

    /// Assigns the connection to the request that writes to it.
    fn assign_to_request(self: &Rc<Self>, request_attempt: &RequestAttempt) {
        let mut owner = request_attempt.control.borrow_mut();
        if owner
            .as_ref()
            .is_some_and(|control| Rc::ptr_eq(control, self))
        {
            return;
        }
        request_attempt.reused.set(self.requests.get() > 0);
        request_attempt.began.set(
            request_attempt
                .began
                .get()
                .or_else(|| Some(request_attempt.phase_start())),
        );
        self.requests.set(self.requests.get() + 1);
        self.idle_since.set(None);
        self.kept.take();
        self.interim.set(Some(0));
        *owner = Some(self.clone());
    }

    /// Reads into `buf` what may begin the final response. Returns false if more must be read to
    /// know; it is in the inbox then.
    fn read_answer(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buf.filled().len();
        if let Some(stream) = self.stream.borrow_mut().as_mut() {
            ready!(Pin::new(stream).poll_read(cx, buf))?;
        }
        let read = &buf.filled()[before..];
        count_received(read.len());
        let is_answer = read.is_empty() || is_final(read);
        if is_answer {
            self.interim.set(None);
        } else {
            self.inbox.borrow_mut().extend_from_slice(read);
            buf.set_filled(before);
        }
        Poll::Ready(Ok(is_answer))
    }

    /// Reads available bytes into the inbox. Returns their number, 0 at the end.
    fn fill_inbox(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let Some(stream) = stream.as_mut() else {
            return Poll::Ready(Ok(0));
        };
        let mut bytes = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        count_received(read.filled().len());
        self.inbox.borrow_mut().extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Removes interim responses from the inbox. Returns whether the rest begins the final
    /// response.
    fn has_answer(&self) -> bool {
        let mut inbox = self.inbox.borrow_mut();
        while let Some(removed) = self.interim.get() {
            match response_start(&inbox) {
                ResponseStart::Interim(len) if removed + len <= INTERIM_BYTES_MAX => {
                    inbox.advance(len);
                    self.interim.set(Some(removed + len));
                }
                ResponseStart::Unknown if removed + inbox.len() < INTERIM_BYTES_MAX => {
                    return false;
                }
                ResponseStart::Interim(_) | ResponseStart::Unknown | ResponseStart::Answer => {
                    self.interim.set(None)
                }
            }
        }
        true
    }

    /// Reads what the endpoint has sent while a request is being written, as far as its status.
    fn read_early(&self, cx: &mut Context<'_>) {
        while !self.has_answer() || self.inbox.borrow().len() < STATUS_LINE.len() {
            match self.fill_inbox(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => break,
            }
        }
    }

    /// Whether a final response has begun that `is_expected`, while a request is being written.
    fn has_early(&self, is_expected: fn(&[u8]) -> bool) -> bool {
        self.interim.get().is_none() && is_expected(&self.inbox.borrow())
    }

    /// Discards the rest of a request if its response has begun.
    fn stop_writing(&self) -> bool {
        if self.has_early(is_final) {
            self.is_answered.set(true);
        }
        self.is_answered.get()
    }
}

/// The minimum length of a status line.
const STATUS_LINE: &[u8; 12] = b"HTTP/1.1 200";

/// How the received bytes begin.
enum ResponseStart {
    /// An interim response with a head of this many bytes.
    Interim(usize),
    /// The final response, or no HTTP. The codec handles both.
    Answer,
    /// Too few bytes to decide.
    Unknown,
}

fn response_start(bytes: &[u8]) -> ResponseStart {
    match StatusLine::parse(bytes) {
        Ok(Some(line)) if line.is_interim() => line
            .head_len(bytes)
            .map_or(ResponseStart::Unknown, ResponseStart::Interim),
        Ok(None) if !is_final(bytes) => ResponseStart::Unknown,
        Ok(_) | Err(_) => ResponseStart::Answer,
    }
}

/// Counts received bytes for the current request.
fn count_received(bytes: usize) {
    ATTEMPT
        .try_with(|request_attempt| {
            request_attempt
                .received
                .set(request_attempt.received.get() + bytes)
        })
        .unwrap_or_default();
}

/// The connection for an exchange. Once closed from outside, reads return the end and writes fail.
pub(super) struct ControlledSocket(Rc<SocketControl>);

impl Drop for ControlledSocket {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ControlledSocket {
    pub(super) fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        sockets: Sockets,
    ) -> Self {
        Self(Rc::new(SocketControl {
            stream: RefCell::new(Some(Box::new(stream))),
            inbox: RefCell::default(),
            interim: Cell::new(None),
            requests: Cell::new(0),
            opened: Instant::now(),
            idle_since: Cell::new(None),
            is_answered: Cell::new(false),
            sockets,
            kept: RefCell::default(),
        }))
    }

    pub(super) fn control(&self) -> &Rc<SocketControl> {
        &self.0
    }

    /// Whether the current request needs a connection of its own.
    pub(super) fn must_be_new() -> bool {
        ATTEMPT
            .try_with(|request_attempt| request_attempt.fresh)
            .unwrap_or(false)
    }

    /// Whether an idle connection is open and nothing has arrived since its last response.
    pub(super) fn is_silent(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let mut stream = self.0.stream.borrow_mut();
        let Some(stream) = stream.as_mut() else {
            return false;
        };
        Pin::new(stream)
            .poll_read(cx, &mut ReadBuf::uninit(&mut byte))
            .is_pending()
    }

    /// Runs `write` on the stream for the current request.
    ///
    /// A response is read only after the request is written. An endpoint that rejects a large
    /// request and stops reading would be reported as a timeout or a broken connection. So if
    /// writing stalls and a rejection has arrived, the rest is discarded and the response is read.
    /// After a success the endpoint may still read, so the rest is discarded only if writing fails,
    /// or at the end of the time limit.
    fn write(
        &self,
        cx: &mut Context<'_>,
        all: usize,
        write: impl FnOnce(Pin<&mut Box<dyn Transport>>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // An error means that the write is outside of a request.
        ATTEMPT
            .try_with(|request_attempt| self.0.assign_to_request(request_attempt))
            .ok();
        if self.0.is_answered.get() {
            return Poll::Ready(Ok(all));
        }
        let written = match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => write(Pin::new(stream), cx),
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        let decides: fn(&[u8]) -> bool = match written {
            Poll::Ready(Ok(_)) => return written,
            Poll::Pending => is_refusal,
            Poll::Ready(Err(_)) => is_final,
        };
        self.0.read_early(cx);
        if self.0.has_early(decides) {
            self.0.is_answered.set(true);
            return Poll::Ready(Ok(all));
        }
        written
    }
}

impl AsyncRead for ControlledSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let control = &self.0;
        // Nearly every response is final and arrives at once, so it is not copied.
        let is_first = control.interim.get().is_some() && control.inbox.borrow().is_empty();
        if is_first && buf.remaining() >= STATUS_LINE.len() && ready!(control.read_answer(cx, buf))?
        {
            return Poll::Ready(Ok(()));
        }
        while !control.has_answer() {
            if ready!(control.fill_inbox(cx))? == 0 {
                // The end within a head; the codec reports it.
                control.interim.set(None);
            }
        }
        let mut inbox = control.inbox.borrow_mut();
        if !inbox.is_empty() {
            let most = inbox.len().min(buf.remaining());
            buf.put_slice(&inbox.split_to(most));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = match control.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_read(cx, buf),
            None => return Poll::Ready(Ok(())),
        };
        count_received(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for ControlledSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
        if self.0.is_answered.get() {
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
