//! A connection of a publisher or an operator, with deadlines for slow peers.
//!
//! actix-http has a timer for the head of a connection's *first* request and one for the pause
//! between two requests. A peer that sends one byte of a second head, or never reads a response,
//! would keep its connection for ever. So this stream has two deadlines:
//! - for the next complete head, counted from the start of the connection and from the end of each
//!   response;
//! - for the response to be read, counted from the first byte that the peer had no room for.
//!
//! The body has a deadline of its own where it is read (`publish::publisher`).
//!
//! [`RequestStage`] tells the stream when a head has come and when the response's body is spent.
//! The stream tells a [`Peer`] when the client has disconnected or received its whole response.

use std::{
    cell::{Cell, OnceCell, RefCell},
    future::Future as _,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_rt::net::{ActixStream, Ready, TcpStream};
use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::Extensions,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::{
    connection_limit::ConnectionPermit,
    served_shards::{ServedShards, ShardRun},
};
use gridhook_pull::Peer;

/// The deadlines of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimeouts {
    /// Time from the end of a response to the next complete head.
    pub(super) head: Duration,
    /// For a response to be read.
    pub(super) response: Duration,
}

/// The connections of a server that wait for their first request, or for a whole response. Clones
/// share the counts: one for each thread, so that requests of several threads change no memory of
/// each other. The requests of other nodes to a shard count with its run instead, which may end
/// before the server. For receive requests of nodes, the connection counts here, and each part with
/// the run of its shard.
#[derive(Clone, Default)]
pub(super) struct BusyConnections(Arc<Mutex<Vec<BusyCount>>>);

impl BusyConnections {
    pub(super) fn count(&self) -> usize {
        let threads = self.0.lock();
        threads.iter().map(BusyCount::get).sum()
    }

    /// The count of the calling thread.
    pub(super) fn add_thread(&self) -> BusyCount {
        let count = BusyCount::default();
        let mut threads = self.0.lock();
        threads.push(count.clone());
        count
    }
}

/// A number of busy connections: of a thread, or of a shard. Clones share it.
#[derive(Clone, Default)]
pub(super) struct BusyCount(Arc<AtomicUsize>);

impl BusyCount {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Counts one more until the guard is dropped.
    pub(super) fn hold(&self) -> BusyGuard {
        self.add();
        BusyGuard(self.clone())
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a part of a request of another node for its shard.
pub(super) struct BusyGuard(BusyCount);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// The shard that the requests of another node are for.
pub(super) struct HopShard {
    pub(super) run: ShardRun,
    /// Its app data.
    pub(super) data: Rc<Extensions>,
}

/// The progress of the current request of a connection.
pub(super) struct RequestStage {
    timeouts: RequestTimeouts,
    busy: RefCell<BusyCount>,
    is_busy: Cell<bool>,
    /// What the requests of another node are for.
    shard: OnceCell<HopShard>,
    /// The shards among which each receive request of another node names its own.
    pulled_shards: OnceCell<ServedShards>,
    head_until: Cell<Option<Instant>>,
    stuck_until: Cell<Option<Instant>>,
    /// The last part of a response was handed to the HTTP library, and may not have been written
    /// yet.
    spent: Cell<bool>,
    /// A handler reads a body that the client sends only after `100 Continue`.
    is_body_awaited: Cell<bool>,
    peer: Peer,
}

impl RequestStage {
    /// Counts the connection as busy, or as idle.
    fn set_busy(&self, is_busy: bool) {
        match (self.is_busy.replace(is_busy), is_busy) {
            (false, true) => self.busy.borrow().add(),
            (true, false) => self.busy.borrow().remove(),
            (false, false) | (true, true) => {}
        }
    }

    /// Records that no request will come, and none is awaited. The connection is idle then.
    pub(super) fn expect_no_request(&self) {
        self.head_until.set(None);
        self.set_busy(false);
    }

    /// Expects requests to a shard, which counts the busy connections for it.
    pub(super) fn expect_requests_to_shard(&self, run: ShardRun) {
        self.busy.replace(run.busy());
        self.expect_requests();
        let data = run.app_data();
        self.shard.set(HopShard { run, data }).ok();
    }

    /// Expects receive requests of another node.
    pub(super) fn expect_pulls(&self, shards: ServedShards) {
        self.expect_requests();
        self.pulled_shards.set(shards).ok();
    }

    fn expect_requests(&self) {
        self.set_busy(true);
        self.head_until
            .set(Some(Instant::now() + self.timeouts.head));
    }

    /// The shards among which each receive request of another node names its own.
    pub(super) fn pulled_shards(&self) -> Option<&ServedShards> {
        self.pulled_shards.get()
    }

    /// What the requests of another node are for.
    pub(super) fn shard(&self) -> Option<&HopShard> {
        self.shard.get()
    }

    /// Records that the head of a request has come.
    pub(super) fn request_started(&self) {
        self.set_busy(true);
        self.head_until.set(None);
        self.is_body_awaited.set(false);
        self.peer.begin_request();
    }

    /// The client of the connection.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the next byte may begin a request.
    pub(super) fn is_between_requests(&self) -> bool {
        self.head_until.get().is_some()
    }

    /// Records that the client must be asked for the body.
    pub(super) fn await_body(&self) {
        self.is_body_awaited.set(true);
    }

    /// Records that there is a response. The client is not asked for its body any more.
    pub(super) fn response_started(&self) {
        self.is_body_awaited.set(false);
    }

    /// Whether the client must be asked for the body, once.
    pub(super) fn take_awaited_body(&self) -> bool {
        self.is_body_awaited.take()
    }

    /// Records that the response's body is spent.
    pub(super) fn end(&self) {
        self.spent.set(true);
        self.head_until
            .set(Some(Instant::now() + self.timeouts.head));
    }

    fn deadline(&self) -> Option<Instant> {
        self.stuck_until.get().or(self.head_until.get())
    }
}

/// The stream of a connection.
pub(super) struct ClientConnection {
    stream: TcpStream,
    peer: SocketAddr,
    stage: Rc<RequestStage>,
    timer: Pin<Box<Sleep>>,
    _permit: ConnectionPermit,
}

impl ClientConnection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        timeouts: RequestTimeouts,
        permit: ConnectionPermit,
        busy: BusyCount,
    ) -> Self {
        let until = Instant::now() + timeouts.head;
        let stage = RequestStage {
            timeouts,
            busy: RefCell::new(busy),
            is_busy: Cell::new(false),
            shard: OnceCell::new(),
            pulled_shards: OnceCell::new(),
            head_until: Cell::new(Some(until)),
            stuck_until: Cell::new(None),
            spent: Cell::new(false),
            is_body_awaited: Cell::new(false),
            peer: Peer::default(),
        };
        stage.set_busy(true);
        Self {
            stream,
            peer,
            stage: Rc::new(stage),
            timer: Box::pin(sleep_until(until)),
            _permit: permit,
        }
    }

    pub(super) fn stage(&self) -> Rc<RequestStage> {
        Rc::clone(&self.stage)
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Fails once a deadline has passed, and otherwise wakes the task when it does.
    fn watch_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(until) = self.stage.deadline() else {
            return Ok(());
        };
        if self.timer.deadline() > until {
            self.timer.as_mut().reset(until);
        }
        // The timer is reset when it fires too early, not with every request.
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() < until {
                self.timer.as_mut().reset(until);
                continue;
            }
            if self.stage.stuck_until.get().is_some() {
                // Otherwise the kernel would keep the unread bytes and retry for minutes. A failure
                // changes only that.
                self.stream.set_zero_linger().ok();
            }
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Records whether the peer took all of `offered`. A peer that takes a byte at times still
    /// counts as stuck.
    fn note_written(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        let RequestStage {
            timeouts,
            stuck_until,
            ..
        } = &*self.stage;
        if matches!(result, Poll::Ready(Ok(taken)) if taken == offered) {
            stuck_until.set(None);
            return result;
        }
        if stuck_until.get().is_none() {
            stuck_until.set(Some(Instant::now() + timeouts.response));
        }
        self.watch_deadline(cx)?;
        result
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.stage.set_busy(false);
        self.stage.peer.end_connection();
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match &read {
            Poll::Pending => self.watch_deadline(cx)?,
            Poll::Ready(Ok(())) if buf.filled().len() == before && buf.remaining() > 0 => {
                self.stage.peer.mark_closed()
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => self.stage.peer.mark_failed(),
        }
        read
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_written(cx, result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let byte_count = slices.iter().map(|slice| slice.len()).sum();
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_written(cx, result, byte_count)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        // The HTTP library flushes after it has written everything.
        if matches!(result, Poll::Ready(Ok(()))) && self.stage.spent.take() {
            self.stage.peer.mark_written();
            // The next request may have come already.
            self.stage.set_busy(!self.stage.is_between_requests());
        }
        result
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

/// A response body that reports its end.
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

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_next(cx)))
    }
}
