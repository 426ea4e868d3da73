//! The part of a node that calls an owner, in the handshake.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use super::{
    HopTarget,
    handshake::{Handshake, NodeSecret, PROTOCOL, Prover, REFUSAL, make_nonce, read_line},
};

/// The pause before an address is called again where one end has refused the handshake.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A connection that the owner has accepted.
pub(crate) type OwnerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// How a node connects to owners. Clones share it.
#[derive(Clone)]
pub(crate) struct OwnerConnector {
    secret: NodeSecret,
    tls: Option<TlsConnector>,
    /// The problem with the last handshake, which is logged once.
    problem: Arc<Mutex<Option<String>>>,
    refused: Arc<Mutex<Option<RefusedAddress>>>,
}

/// The address where the last handshake was refused. All requests that wait for its owner share the
/// pause.
struct RefusedAddress {
    address: String,
    /// The time from which the address is called again.
    until: Instant,
}

impl OwnerConnector {
    #[cfg(feature = "nats")]
    pub(crate) fn new(secret: NodeSecret, tls: Option<TlsConnector>) -> Self {
        Self {
            secret,
            tls,
            problem: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// Returns when `address` may be called. After a refusal one caller at a time tries it.
    pub(crate) async fn wait_after_refusal(&self, address: &str) {
        loop {
            let until = match &mut *self.refused.lock() {
                Some(refused) if refused.address == address => {
                    let now = Instant::now();
                    if refused.until <= now {
                        refused.until = now + REFUSED_PAUSE;
                        return;
                    }
                    refused.until
                }
                Some(_) | None => return,
            };
            sleep_until(until).await;
        }
    }

    /// The other node's part of the handshake with the node at `address`.
    pub(crate) async fn complete_handshake(
        &self,
        stream: TcpStream,
        address: &str,
        target: HopTarget,
    ) -> io::Result<OwnerStream> {
        let stream = match &self.tls {
            None => self
                .secret
                .prove_identity(stream, address, target)
                .await
                .map(Either::Left),
            Some(tls) => match connect_tls(tls, stream, address).await {
                Ok(stream) => self
                    .secret
                    .prove_identity(Box::new(stream), address, target)
                    .await
                    .map(Either::Right),
                Err(error) => Err(io::Error::new(error.kind(), format!("TLS: {error}"))),
            },
        };
        self.note_handshake(address, stream.as_ref().err());
        stream
    }

    fn note_handshake(&self, address: &str, error: Option<&io::Error>) {
        let mut refusals = self.refused.lock();
        match error.map(io::Error::kind) {
            None => *refusals = None,
            Some(io::ErrorKind::Other | io::ErrorKind::InvalidData) => {
                *refusals = Some(RefusedAddress {
                    address: address.to_owned(),
                    until: Instant::now() + REFUSED_PAUSE,
                });
            }
            // The owner's process has ended, or the connection had to make room.
            Some(_) => {}
        }
        drop(refusals);
        let problem = error.map(ToString::to_string);
        let mut last = self.problem.lock();
        if let Some(error) = problem
            .as_ref()
            .filter(|problem| last.as_ref() != Some(*problem))
        {
            tracing::warn!(
                error,
                address,
                "the owner has not accepted a connection of this node"
            );
        }
        *last = problem;
    }
}

async fn connect_tls(
    tls: &TlsConnector,
    stream: TcpStream,
    address: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let host = address
        .rsplit_once(':')
        .map_or(address, |(host, _)| host)
        .trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    tls.connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(rustls::Error::InvalidMessage(_)) => io::Error::other(
                "the owner does not use it; set cluster.node_certificate_file on \
                 all nodes or on none",
            ),
            Some(_) | None => error,
        }
    })
}

impl NodeSecret {
    /// Proves to the owner that this node knows the secret, and checks the owner's proof.
    async fn prove_identity<T>(
        &self,
        mut stream: T,
        address: &str,
        target: HopTarget,
    ) -> io::Result<T>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let owner_nonce = read_owner_nonce(&mut stream).await?;
        let target = target.to_text();
        let node_nonce = make_nonce()?;
        let handshake = Handshake {
            address,
            owner_nonce: &owner_nonce,
            node_nonce: &node_nonce,
            target: &target,
        };
        let proof = self.compute_proof(Prover::Node, &handshake);
        stream
            .write_all(format!("{target} {node_nonce} {proof}\n").as_bytes())
            .await?;
        let confirmation = read_line(&mut stream).await?;
        if confirmation == REFUSAL {
            return Err(io::Error::other(
                "the owner has refused this node; the owner's log says why",
            ));
        }
        self.check_proof(&confirmation, Prover::Owner, &handshake)?;
        Ok(stream)
    }
}

/// Reads the owner's greeting, which has a nonce.
async fn read_owner_nonce(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let greeting = read_line(stream)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the owner has ended the connection without a greeting; it may expect TLS \
                 (cluster.node_certificate_file)",
            ),
            _ => error,
        })?;
    if let Some(nonce) = greeting.strip_prefix(PROTOCOL) {
        return Ok(nonce.trim_start().to_owned());
    }
    // A listener without a free connection refuses it in HTTP, and may take the next one.
    if greeting.starts_with("HTTP/1.1 503 ") {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "the owner has no free connection",
        ));
    }
    Err(io::Error::other("the owner speaks another protocol"))
}
