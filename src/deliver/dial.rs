//! Opens connections: looks a name up, checks what it leads to, connects, and begins TLS.
//!
//! Invariants:
//! - Every address that a name leads to passes the [rules](AddressRules) before any of them is called, and what is called
//!   is one of these addresses.
//! - Addresses are called as RFC 8305 says (Happy Eyeballs): IPv6 and IPv4 in turns, the next one when the last has failed
//!   or after [`ClientOptions::attempt_delay`](super::ClientOptions::attempt_delay), and the first connection is taken.
//!
//! TLS is begun here and not by awc, so that [`socket`](super::socket) sees what an endpoint says and not its encryption,
//! and so that each connection shows the client certificate that is there when it is made.

use std::{
    cell::RefCell,
    io,
    net::{IpAddr, SocketAddr},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_service::Service;
use actix_tls::connect::{ConnectError, ConnectInfo, Connection};
use awc::http::Uri;
use futures_util::{StreamExt as _, future::LocalBoxFuture, stream::FuturesUnordered};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::sleep};
use tokio_rustls::TlsConnector;

use super::{
    address::AddressRules,
    names::NameResolver,
    socket::{ControlledSocket, EXCHANGE, RequestPhase, SocketControl},
    sockets::Sockets,
    trust::TlsTrust,
    webhook::ClientOptions,
};

/// So many addresses of a name are called at most: each call that is not answered holds a socket.
pub const ADDRESSES_MAX: usize = 16;

/// Opens connections. awc asks it for each new one.
#[derive(Clone)]
pub(super) struct Connector {
    dialing: Rc<ConnectorShared>,
    secure: bool,
}

struct ConnectorShared {
    rules: AddressRules,
    names: Arc<dyn NameResolver>,
    attempt_delay: Duration,
    trust: TlsTrust,
    sockets: Sockets,
    lines: RefCell<Vec<Weak<SocketControl>>>,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that a request is using.
    pub busy: usize,
    /// Connections that wait for a request.
    pub idle: usize,
    /// Closed ones of which awc's pool still keeps the shell.
    pub shells: usize,
}

impl Connector {
    pub(super) fn new(options: &ClientOptions) -> Self {
        let ClientOptions { rules, names, attempt_delay, trust, sockets, .. } = options.clone();
        Self {
            dialing: Rc::new(ConnectorShared {
                rules,
                names,
                attempt_delay,
                trust,
                sockets,
                lines: RefCell::default(),
            }),
            secure: false,
        }
    }

    /// The same, but it begins TLS on each connection.
    pub(super) fn secure(&self) -> Self {
        Self { secure: true, ..self.clone() }
    }

    /// Closes what has been idle for `keep_alive`, and counts.
    pub(super) fn sweep(&self, keep_alive: Duration) -> ConnectionCounts {
        let mut found = ConnectionCounts::default();
        self.dialing.lines.borrow_mut().retain(|line| {
            let Some(line) = line.upgrade() else { return false };
            if line.idle_for().is_some_and(|idle| idle >= keep_alive) {
                line.close();
            }
            if line.is_closed() {
                found.shells += 1;
            } else if line.idle_for().is_some() {
                found.idle += 1;
            } else {
                found.busy += 1;
            }
            true
        });
        found
    }

    /// Connects and closes at once: whether `host` can be reached at `port`.
    pub(super) async fn reach(&self, host: &str, port: u16) -> Result<(), ConnectError> {
        self.connect(host, port).await.map(drop)
    }

    async fn dial(&self, host: &str, port: u16) -> Result<ControlledSocket, ConnectError> {
        let (stream, address) = self.connect(host, port).await?;
        // Without it a request of two writes waits for an acknowledgement; a socket that can't is no reason to fail.
        stream.set_nodelay(true).ok();
        set_phase(RequestPhase::Connected(address));
        let sockets = self.dialing.sockets.clone();
        let socket = if self.secure {
            let config = self.dialing.trust.config();
            let name = ServerName::try_from(bare(host).trim_end_matches('.').to_owned()).map_err(other)?;
            ControlledSocket::new(
                TlsConnector::from(config).connect(name, stream).await.map_err(ConnectError::Io)?,
                sockets,
            )
        } else {
            ControlledSocket::new(stream, sockets)
        };
        self.dialing.lines.borrow_mut().push(Rc::downgrade(socket.line()));
        Ok(socket)
    }

    /// Looks `host` up, checks all it leads to, and calls it.
    async fn connect(&self, host: &str, port: u16) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let found = match bare(host).parse::<IpAddr>() {
            Ok(address) => {
                let address = SocketAddr::new(address, port);
                self.dialing.rules.check_socket(address).map_err(other)?;
                vec![address]
            }
            Err(_) => {
                set_phase(RequestPhase::Resolving);
                let found = self.dialing.names.lookup(host, port).await;
                let found = found.map_err(|error| ConnectError::Resolver(Box::new(error)))?;
                self.dialing.rules.check_found(host, &found).map_err(other)?;
                found
            }
        };
        race(in_turns(found), self.dialing.attempt_delay).await
    }
}

fn set_phase(phase: RequestPhase) {
    EXCHANGE.try_with(|exchange| exchange.enter(phase)).unwrap_or_default();
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectError {
    ConnectError::Io(io::Error::other(error))
}

/// The way from a URL to a URI leaves the brackets around an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// IPv6 first, and the families in turns; within a family the order is the name server's.
fn in_turns(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let turns = std::iter::from_fn(|| match (v6.next(), v4.next()) {
        (None, None) => None,
        (first, second) => Some([first, second]),
    });
    turns.flatten().flatten().take(ADDRESSES_MAX).collect()
}

/// The first connection to any of the addresses.
async fn race(addresses: Vec<SocketAddr>, delay: Duration) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut waiting = addresses.into_iter().peekable();
    let mut attempts = FuturesUnordered::new();
    let mut failure = ConnectError::NoRecords;
    loop {
        if let Some(address) = waiting.next() {
            set_phase(RequestPhase::Connecting(address));
            attempts.push(async move { (address, TcpStream::connect(address).await) });
        }
        let more = waiting.peek().is_some();
        tokio::select! {
            ended = attempts.next() => match ended {
                Some((address, Ok(stream))) => return Ok((stream, address)),
                Some((address, Err(error))) => {
                    // The address that is told with the error is its own.
                    set_phase(RequestPhase::Connecting(address));
                    failure = ConnectError::Io(error);
                }
                None => return Err(failure),
            },
            () = sleep(delay), if more => {}
        }
    }
}

impl Service<ConnectInfo<Uri>> for Connector {
    type Response = Connection<Uri, ControlledSocket>;
    type Error = ConnectError;
    type Future = LocalBoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&self, info: ConnectInfo<Uri>) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move {
            let socket = dialer.dial(info.hostname(), info.port()).await?;
            Ok(Connection::new(info.request().clone(), socket))
        })
    }
}
