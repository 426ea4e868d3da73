//! Admits accepted sockets, or refuses those beyond the connection limit with a constant response.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_rt::net::TcpStream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    HeadTimeouts,
    connection::{BusyConnections, BusyCount, ClientConnection, RequestTimeouts},
    connection_limit::ConnectionLimiter,
};

/// The response to a connection beyond the limit. It is constant, and nothing of the request is
/// read.
const UNAVAILABLE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: \
     close\r\n\r\n";

/// The time for the client to read [`UNAVAILABLE`]. A socket closed before its peer has sent a request loses the
/// response.
pub(super) const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// What the connections of a server share. Clones have the same counts.
#[derive(Clone)]
pub(crate) struct ServerConnections {
    /// The rejected connections that receive a response now.
    refusals: Arc<AtomicUsize>,
    /// Their maximum. Further ones are closed without a response.
    refusals_max: usize,
    pub(super) busy: BusyConnections,
}

impl ServerConnections {
    pub(crate) fn new(refusals_max: usize) -> Self {
        Self {
            refusals: Arc::default(),
            refusals_max,
            busy: BusyConnections::default(),
        }
    }

    /// How many wait for their first request, or for a whole response.
    pub(crate) fn busy(&self) -> usize {
        self.busy.count()
    }
}

/// Applies the connection limit to accepted sockets.
#[derive(Clone)]
pub(super) struct ConnectionCounter {
    pub(super) connection_limiter: Arc<ConnectionLimiter>,
    pub(super) connections: ServerConnections,
    pub(super) timeouts: HeadTimeouts,
}

impl ConnectionCounter {
    pub(super) async fn admit_connection(
        self,
        stream: TcpStream,
        busy: BusyCount,
    ) -> Result<ClientConnection, ()> {
        let peer = stream.peer_addr().map_err(drop)?;
        let timeouts = RequestTimeouts {
            head: self.timeouts.idle + self.timeouts.head,
            response: self.timeouts.response,
        };
        match self.connection_limiter.admit_connection(peer.ip()) {
            Some(permit) => Ok(ClientConnection::new(stream, peer, timeouts, permit, busy)),
            None => {
                let ServerConnections {
                    refusals,
                    refusals_max,
                    ..
                } = self.connections;
                if refusals.fetch_add(1, Ordering::Relaxed) < refusals_max {
                    // A client that has disconnected needs no response.
                    timeout(REFUSAL_WAIT, refuse_connection(stream)).await.ok();
                }
                refusals.fetch_sub(1, Ordering::Relaxed);
                Err(())
            }
        }
    }
}

async fn refuse_connection(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(UNAVAILABLE).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
