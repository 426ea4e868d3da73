//! How two nodes prove to each other that they know the secret of the cluster.
//!
//! The owner sends a nonce; the other node
//! responds with the shard that it calls, the side that its client is on, a nonce of its own, and a
//! proof that it knows the secret of the cluster; the owner confirms with a proof of its own, or
//! refuses. Only a node that serves the shard confirms, and nothing of a request was sent before.
//! The secret itself is never sent. Receive requests name several shards, and have connections that
//! every node confirms.
//! Both proofs contain the address that was called, so that a process that takes over
//! the address of a former owner cannot use them.
//!
//! With `cluster.node_certificate_file`, all of this is within TLS, and both ends show a
//! certificate of the cluster's authorities.

use std::io;

use data_encoding::HEXLOWER;
use ring::hmac;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The beginning of each handshake.
pub(super) const PROTOCOL: &str = "gridhook-node/3";

/// The owner's line for a node whose proof it does not take.
pub(super) const REFUSAL: &str = "refused";

/// The longest line of a handshake.
const LINE_BYTES: usize = 160;

/// The secret that the nodes of a cluster share.
#[derive(Clone)]
pub(crate) struct NodeSecret(hmac::Key);

/// The text that both proofs of a handshake sign.
pub(super) struct Handshake<'a> {
    /// The address that the node called.
    pub(super) address: &'a str,
    pub(super) owner_nonce: &'a str,
    pub(super) node_nonce: &'a str,
    /// The text of the [`HopTarget`](super::HopTarget).
    pub(super) target: &'a str,
}

/// The end of a connection that proves that it knows the secret. Nobody can send back the proof of
/// the other end.
#[derive(Clone, Copy)]
pub(super) enum Prover {
    Node,
    Owner,
}

impl Handshake<'_> {
    fn signed_text(&self, prover: Prover) -> String {
        let Self {
            address,
            owner_nonce,
            node_nonce,
            target,
        } = self;
        let prover = match prover {
            Prover::Node => "node",
            Prover::Owner => "owner",
        };
        format!("{PROTOCOL} {prover} {address} {owner_nonce} {node_nonce} {target}")
    }
}

impl NodeSecret {
    #[cfg(feature = "nats")]
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(super) fn compute_proof(&self, prover: Prover, handshake: &Handshake<'_>) -> String {
        HEXLOWER.encode(hmac::sign(&self.0, handshake.signed_text(prover).as_bytes()).as_ref())
    }

    pub(super) fn check_proof(
        &self,
        proof: &str,
        prover: Prover,
        handshake: &Handshake<'_>,
    ) -> io::Result<()> {
        let proof = HEXLOWER.decode(proof.as_bytes()).unwrap_or_default();
        hmac::verify(&self.0, handshake.signed_text(prover).as_bytes(), &proof).map_err(|_| {
            io::Error::other("the other end has another cluster.secret_file, or another address")
        })
    }
}

pub(super) fn make_nonce() -> io::Result<String> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(HEXLOWER.encode(&nonce))
}

/// Reads a line. The peer sends nothing behind it before it has a response: what it sends all
/// the same is lost.
pub(super) async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut line = [0; LINE_BYTES];
    let mut filled = 0;
    loop {
        let count = stream.read(&mut line[filled..]).await?;
        if count == 0 && filled == LINE_BYTES {
            return Err(io::Error::other("a line of the handshake is too long"));
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = line[filled..filled + count]
            .iter()
            .position(|byte| *byte == b'\n');
        if let Some(end) = end {
            let text = line[..filled + end].to_vec();
            return String::from_utf8(text).map_err(io::Error::other);
        }
        filled += count;
    }
}
