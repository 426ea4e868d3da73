//! A connection of a publisher or an operator, which may not be slow for ever.
//!
//! actix-http has a timer for the head of a connection's *first* request and one for the pause between two. Without more
//! whoever sends the first byte of a second head, or never reads his answer, has his connection for good. So the stream
//! below it knows two moments:
//! - the next head must be whole by then: reckoned from the connection's beginning, and from the end of each answer;
//! - the answer must have been taken by then: reckoned from the first byte that the peer had no room for.
//!
//! What lies between, the body, has a wait of its own where it is read.
//!
//! How the stream learns where a request is: [`RequestStage`] is told when a head has come, and when its answer's body is spent.
//! What the stream learns of its peer, that it has gone away or was given its whole answer, it tells a [`Peer`].

use std::{
    cell::Cell,
    future::Future as _,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_rt::net::{ActixStream, Ready, TcpStream};
use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::connection_limit::ConnectionPermit;
use crate::pull::Peer;

/// How long a caller may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimeouts {
    /// From the end of an answer to the whole of the next head.
    pub(super) head: Duration,
    /// To take an answer.
    pub(super) answer: Duration,
}

/// Where the request of a connection is.
pub(super) struct RequestStage {
    patience: RequestTimeouts,
    head_until: Cell<Option<Instant>>,
    stuck_until: Cell<Option<Instant>>,
    /// Whether the last part of an answer was handed to the HTTP library, and may not have been written yet.
    spent: Cell<bool>,
    peer: Peer,
}

impl RequestStage {
    /// The head of a request has come.
    pub(super) fn request_started(&self) {
        self.head_until.set(None);
        self.peer.begin();
    }

    /// Who asks.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Its answer is spent.
    pub(super) fn end(&self) {
        self.spent.set(true);
        self.head_until.set(Some(Instant::now() + self.patience.head));
    }

    /// Until when something must happen.
    fn until(&self) -> Option<Instant> {
        self.stuck_until.get().or(self.head_until.get())
    }
}

/// The connection.
pub(super) struct ClientConnection {
    stream: TcpStream,
    peer: SocketAddr,
    stage: Rc<RequestStage>,
    timer: Pin<Box<Sleep>>,
    _place: ConnectionPermit,
}

impl ClientConnection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, patience: RequestTimeouts, place: ConnectionPermit) -> Self {
        let until = Instant::now() + patience.head;
        let stage = RequestStage {
            patience,
            head_until: Cell::new(Some(until)),
            stuck_until: Cell::new(None),
            spent: Cell::new(false),
            peer: Peer::default(),
        };
        Self { stream, peer, stage: Rc::new(stage), timer: Box::pin(sleep_until(until)), _place: place }
    }

    pub(super) fn stage(&self) -> Rc<RequestStage> {
        Rc::clone(&self.stage)
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address that the peer connected to.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// An error where something is overdue; else whoever waits is woken when it is.
    fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(until) = self.stage.until() else { return Ok(()) };
        if self.timer.deadline() > until {
            self.timer.as_mut().reset(until);
        }
        // One that goes off too early is set anew then, and not with each request.
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() < until {
                self.timer.as_mut().reset(until);
                continue;
            }
            if self.stage.stuck_until.get().is_some() {
                // Else the kernel would keep what nobody takes, and try for minutes. Without it, it does just that.
                self.stream.set_zero_linger().ok();
            }
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Notes whether the peer took all that it was `offered`. One that takes a byte now and then is stuck all the same.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        let RequestStage { patience, stuck_until, .. } = &*self.stage;
        if matches!(result, Poll::Ready(Ok(taken)) if taken == offered) {
            stuck_until.set(None);
            return result;
        }
        if stuck_until.get().is_none() {
            stuck_until.set(Some(Instant::now() + patience.answer));
        }
        self.watch(cx)?;
        result
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.stage.peer.end();
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match &read {
            Poll::Pending => self.watch(cx)?,
            Poll::Ready(Ok(())) if buf.filled().len() == before && buf.remaining() > 0 => self.stage.peer.leave(),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => self.stage.peer.fail(),
        }
        read
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = slices.iter().map(|slice| slice.len()).sum();
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, result, offered)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // The HTTP library flushes when it has written all that it has.
        if matches!(flushed, Poll::Ready(Ok(()))) && self.stage.spent.take() {
            self.stage.peer.written();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl ActixStream for ClientConnection {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        pin!(self.stream.ready(Interest::READABLE)).poll(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        pin!(self.stream.ready(Interest::WRITABLE)).poll(cx)
    }
}

/// An answer's body that says when it is spent.
pub(super) struct TrackedBody {
    body: BoxBody,
    stage: Option<Rc<RequestStage>>,
}

impl TrackedBody {
    pub(super) fn new(body: BoxBody, stage: Option<Rc<RequestStage>>) -> Self {
        Self { body, stage }
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(stage) = &self.stage {
            stage.end();
        }
    }
}

impl MessageBody for TrackedBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_next(cx)))
    }
}
