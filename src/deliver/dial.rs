//! Opens connections: resolves a name, checks its addresses, connects, and starts TLS.
//!
//! Invariants:
//! - Every address of a name is checked by the [rules](AddressRules) before any of them is called,
//!   and only these addresses are called.
//! - Addresses are called as in RFC 8305 (Happy Eyeballs): IPv6 and IPv4 alternate, the next one
//!   starts when the last one has failed or after [`ClientOptions::attempt_delay`], and the first
//!   connection wins.
//!
//! Behind an egress [`proxy`](super::proxy) the same addresses are called one after the other, by
//! the proxy.
//!
//! TLS is started here, so that [`socket`](super::socket) sees plain text, and each connection
//! presents the current client certificate.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use awc::error::ConnectError;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::sleep};
use tokio_rustls::TlsConnector;

use super::{
    address::AddressRules,
    proxy::EgressProxy,
    resolver::NameResolver,
    socket::{ATTEMPT, ControlledSocket, RequestPhase},
    sockets::Sockets,
    trust::TlsTrust,
    webhook::ClientOptions,
};

/// Maximum addresses of a name that are called. Each pending call holds a socket.
pub const ADDRESSES_MAX: usize = 16;

#[derive(Clone)]
pub(super) struct Connector {
    rules: AddressRules,
    names: Arc<dyn NameResolver>,
    proxy: Option<EgressProxy>,
    attempt_delay: Duration,
    trust: TlsTrust,
    sockets: Sockets,
}

impl Connector {
    pub(super) fn new(options: &ClientOptions) -> Self {
        let ClientOptions {
            rules,
            names,
            proxy,
            attempt_delay,
            trust,
            sockets,
            ..
        } = options.clone();
        Self {
            rules,
            names,
            proxy,
            attempt_delay,
            trust,
            sockets,
        }
    }

    /// Connects and closes at once, to check that `host` can be reached at `port`.
    pub(super) async fn check_reachable(&self, host: &str, port: u16) -> Result<(), ConnectError> {
        self.connect_tcp(host, port).await.map(drop)
    }

    /// Opens a connection, with TLS if it is `secure`.
    pub(super) async fn open_connection(
        &self,
        host: &str,
        port: u16,
        secure: bool,
    ) -> Result<ControlledSocket, ConnectError> {
        let (stream, address) = self.connect_tcp(host, port).await?;
        // Without it a request of two writes waits for an acknowledgement. Failing to set it is
        // harmless.
        stream.set_nodelay(true).ok();
        set_phase(RequestPhase::Connected(address));
        let sockets = self.sockets.clone();
        if !secure {
            return Ok(ControlledSocket::new(stream, sockets));
        }
        let config = self.trust.config();
        let name = ServerName::try_from(strip_brackets(host).trim_end_matches('.').to_owned())
            .map_err(other_error)?;
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(ConnectError::Io)?;
        Ok(ControlledSocket::new(stream, sockets))
    }

    /// Resolves `host`, checks all its addresses, and connects.
    async fn connect_tcp(
        &self,
        host: &str,
        port: u16,
    ) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let rules = &self.rules;
        let addresses = match strip_brackets(host).parse::<IpAddr>() {
            Ok(address) => {
                let address = SocketAddr::new(address, port);
                rules.check_socket(address).map_err(other_error)?;
                vec![address]
            }
            Err(_) => {
                let names = self.resolve_host(host, port).await?;
                rules.check_found(host, &names).map_err(other_error)?;
                names
            }
        };
        match &self.proxy {
            Some(proxy) if addresses.iter().all(|address| proxy.applies_to(*address)) => {
                self.connect_through(proxy, interleave_families(addresses))
                    .await
            }
            Some(_) | None => {
                connect_first(interleave_families(addresses), self.attempt_delay).await
            }
        }
    }

    async fn resolve_host(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        set_phase(RequestPhase::Resolving);
        let addresses = self.names.look_up(host, port).await;
        addresses.map_err(|error| ConnectError::Resolver(Box::new(error)))
    }

    /// Connects to the first address to which the proxy makes a connection. The operator chose the
    /// proxy, so its own address is not checked.
    async fn connect_through(
        &self,
        proxy: &EgressProxy,
        addresses: Vec<SocketAddr>,
    ) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let (host, port) = proxy.authority();
        let of_proxy = match strip_brackets(host).parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.resolve_host(host, port).await?,
        };
        let mut failure = ConnectError::NoRecords;
        for address in addresses {
            let connection =
                connect_first(interleave_families(of_proxy.clone()), self.attempt_delay).await;
            // From here on the attempt is about the endpoint's address; the error names the proxy.
            set_phase(RequestPhase::Connecting(address));
            let tunnel = match connection {
                Ok((mut stream, _)) => proxy
                    .open_tunnel(&mut stream, address)
                    .await
                    .map(|()| stream),
                Err(error) => Err(proxy.tunnel_error(format!("cannot be reached: {error}"))),
            };
            match tunnel {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => failure = ConnectError::Io(error),
            }
        }
        Err(failure)
    }
}

fn set_phase(phase: RequestPhase) {
    ATTEMPT
        .try_with(|request_attempt| request_attempt.enter_phase(phase))
        .unwrap_or_default();
}

fn other_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectError {
    ConnectError::Io(io::Error::other(error))
}

/// The host without brackets: in a URI, an IPv6 address has them.
fn strip_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// IPv6 and IPv4 alternate, IPv6 first. Within a family, the name server's order is kept.
fn interleave_families(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv6);
    let mut v6 = v6.into_iter();
    let mut v4 = v4.into_iter();
    let turns = std::iter::from_fn(|| match (v6.next(), v4.next()) {
        (None, None) => None,
        (first, second) => Some([first, second]),
    });
    turns.flatten().flatten().take(ADDRESSES_MAX).collect()
}

/// The first connection to any of the addresses.
async fn connect_first(
    addresses: Vec<SocketAddr>,
    delay: Duration,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
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
                    // So that the reported address is the one that failed.
                    set_phase(RequestPhase::Connecting(address));
                    failure = ConnectError::Io(error);
                }
                None => return Err(failure),
            },
            () = sleep(delay), if more => {}
        }
    }
}
