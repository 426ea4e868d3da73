//! A server of actix on sockets that another server may take over.
//!
//! A connection that was accepted belongs to this server. If it ended at once, clients whose
//! requests are in flight, or on their way on a new connection, would find it reset. So it accepts
//! no more first: new connections wait in the system's queue for the next server.

use std::{io, time::Duration};

use actix_rt::task::JoinHandle;
use actix_server::{Server, ServerHandle};
use tokio::time::{sleep, timeout};

use super::front::ServerConnections;

/// The time in which a thread that has accepted connections hands them to those that serve, and in
/// which a connection of another node counts for the shard that it has found served.
pub(super) const ACCEPT_WAIT: Duration = Duration::from_millis(20);

/// The interval between two looks for requests in flight.
pub(super) const FINISH_POLL: Duration = Duration::from_millis(10);

/// The longest wait for responses. One may have no end, such as that of `gridhook tail`.
pub(super) const FINISH_MAX: Duration = Duration::from_secs(1);

/// A server that serves until it is stopped.
pub(super) struct RunningServer {
    handle: ServerHandle,
    serving: JoinHandle<io::Result<()>>,
    connections: ServerConnections,
}

impl RunningServer {
    pub(super) fn start(server: Server, connections: ServerConnections) -> Self {
        Self {
            handle: server.handle(),
            serving: actix_rt::spawn(server),
            connections,
        }
    }

    /// Accepts no more connections: they wait for the next server.
    pub(super) async fn pause(&self) {
        self.handle.pause().await;
    }

    /// Returns once every connection has its response, or that takes too long.
    pub(super) async fn finish_requests(&self) {
        sleep(ACCEPT_WAIT).await;
        let finished = async {
            while self.connections.busy() > 0 {
                sleep(FINISH_POLL).await;
            }
        };
        timeout(FINISH_MAX, finished).await.ok();
    }

    /// Stops to accept connections. Returns once those that are open have ended, or were closed
    /// after the server's own limit.
    pub(super) async fn stop(&self) {
        self.handle.stop(true).await;
    }

    /// Closes the connections whose requests do not finish soon.
    pub(super) async fn stop_soon(&self) {
        self.finish_requests().await;
        self.handle.stop(false).await;
    }

    /// Leaves the sockets to the next server, and returns once this one has ended.
    pub(super) async fn end(&self) {
        self.pause().await;
        self.finish_requests().await;
        self.stop().await;
    }

    /// Leaves the sockets to the next server on this system, which may serve at once. This one may
    /// still accept a connection meanwhile.
    pub(super) async fn hand_over(self) {
        self.pause().await;
        actix_rt::spawn(async move { self.end().await });
    }

    /// The outcome of a server that has ended.
    ///
    /// # Errors
    /// If it could not start, or its task has panicked.
    pub(super) async fn join(self) -> io::Result<()> {
        self.serving.await.map_err(io::Error::other)?
    }
}
