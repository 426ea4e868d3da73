//! The owner's part of the handshake.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::Notify,
    time::{Instant, timeout},
};

use super::{
    HopTarget,
    handshake::{Handshake, NodeSecret, PROTOCOL, Prover, REFUSAL, make_nonce, read_line},
};

/// The most connections of other nodes whose handshake has not ended, for each shard: a node opens
/// one for each at the same time.
const UNPROVEN_MAX: usize = 64;

/// The interval in which a reason for refusals is logged once.
const REASON_INTERVAL: Duration = Duration::from_mins(1);

/// The maximum number of reasons that are logged in it.
const REASONS_MAX: usize = 8;

/// Connections whose other end has not proved yet that it is a node. Beyond the maximum the oldest
/// one is closed, so that strangers do not keep nodes out: a node needs one round trip for its
/// proof.
#[derive(Clone)]
pub(in crate::front) struct HandshakeSlots {
    waiting: Arc<Mutex<VecDeque<Weak<Notify>>>>,
    most: usize,
}

impl HandshakeSlots {
    /// Slots for a listener with these numbers of connections and of shards.
    pub(in crate::front) fn new(connections: usize, shards: usize) -> Self {
        Self {
            waiting: Arc::default(),
            most: (UNPROVEN_MAX * shards).min(connections / 4).max(1),
        }
    }

    /// Takes a slot, which the caller holds until it drops it. The slot is notified when it has to
    /// make room.
    pub(in crate::front) fn take_slot(&self) -> Arc<Notify> {
        let slot = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock();
        waiting.retain(|slot| slot.strong_count() > 0);
        waiting.push_back(Arc::downgrade(&slot));
        if waiting.len() > self.most
            && let Some(oldest) = waiting.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.notify_one();
        }
        slot
    }
}

/// Accepts nodes that prove that they know the secret.
#[derive(Clone)]
pub(crate) struct HopAcceptor {
    secret: NodeSecret,
    address: Arc<str>,
    /// The number of shards of the cluster.
    shards: usize,
    refusals: Arc<Mutex<Refusals>>,
}

/// The connections that were refused. Anyone who reaches the listener can make them, so few are
/// logged.
#[derive(Default)]
struct Refusals {
    total: u64,
    /// The reasons that were logged, and when the first one was.
    logged: Option<(Instant, BTreeSet<String>)>,
}

impl Refusals {
    /// Counts a refusal. Returns whether its reason is logged.
    fn note_refusal(&mut self, reason: &str, now: Instant) -> bool {
        self.total += 1;
        let recent = self
            .logged
            .take()
            .filter(|(since, _)| now.duration_since(*since) < REASON_INTERVAL);
        let (_, reasons) = self
            .logged
            .insert(recent.unwrap_or_else(|| (now, BTreeSet::new())));
        reasons.len() < REASONS_MAX && reasons.insert(reason.to_owned())
    }
}

impl HopAcceptor {
    /// For a node that others call at `address`, of a cluster with this number of shards.
    pub(crate) fn new(secret: &NodeSecret, address: &str, shards: usize) -> Self {
        Self {
            secret: secret.clone(),
            address: address.into(),
            shards,
            refusals: Arc::default(),
        }
    }

    fn note_refused(&self, reason: &str) {
        let mut refusals = self.refusals.lock();
        if refusals.note_refusal(reason, Instant::now()) {
            let total = refusals.total;
            drop(refusals);
            tracing::warn!(
                error = reason,
                total,
                "a connection of another node was refused"
            );
        }
    }

    /// Reads the proof of a node. `wait` limits both handshakes: that of TLS, which `connection`
    /// does if nodes use it, and that of the secret.
    pub(in crate::front) async fn check_node<T>(
        self,
        connection: impl Future<Output = io::Result<T>>,
        wait: Duration,
    ) -> Result<NodeHop<T>, ()>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        match timeout(wait, self.read_proof(connection)).await {
            Ok(Ok(hop)) => Ok(hop),
            // A node that looks whether this process runs sends nothing.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(()),
            Ok(Err(error)) => {
                self.note_refused(&error.to_string());
                Err(())
            }
            Err(_) => {
                self.note_refused("no handshake came in time");
                Err(())
            }
        }
    }

    async fn read_proof<T>(
        &self,
        connection: impl Future<Output = io::Result<T>>,
    ) -> io::Result<NodeHop<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let of_tls = |error: io::Error| io::Error::new(error.kind(), format!("TLS: {error}"));
        let mut stream = connection.await.map_err(of_tls)?;
        let nonce = make_nonce()?;
        stream
            .write_all(format!("{PROTOCOL} {nonce}\n").as_bytes())
            .await?;
        let line = read_line(&mut stream).await?;
        let mut parts = line.splitn(3, ' ');
        let [target, node_nonce, proof] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let handshake = Handshake {
            address: &self.address,
            owner_nonce: &nonce,
            node_nonce,
            target,
        };
        let checked = self.check_target(proof, &handshake);
        if checked.is_err() {
            // The other node pauses after a refusal, and not after an end without one.
            let line = format!("{REFUSAL}\n");
            stream.write_all(line.as_bytes()).await.ok();
        }
        let target = checked?;
        let confirmation = self.secret.compute_proof(Prover::Owner, &handshake);
        Ok(NodeHop {
            stream,
            target,
            confirmation,
        })
    }

    /// The target of a node that has proved that it knows the secret.
    fn check_target(&self, proof: &str, handshake: &Handshake<'_>) -> io::Result<HopTarget> {
        self.secret.check_proof(proof, Prover::Node, handshake)?;
        let target = HopTarget::parse(handshake.target)
            .ok_or_else(|| io::Error::other("the node speaks another protocol"))?;
        match target {
            HopTarget::Shard { shard, .. } if shard >= self.shards => Err(io::Error::other(
                "the node calls a shard that the cluster does not have",
            )),
            HopTarget::Watch | HopTarget::Pull | HopTarget::Shard { .. } => Ok(target),
        }
    }
}

/// A connection of a node that has proved that it knows the secret.
pub(in crate::front) struct NodeHop<T> {
    pub(in crate::front) stream: T,
    pub(in crate::front) target: HopTarget,
    confirmation: String,
}

impl<T: AsyncRead + AsyncWrite + Unpin> NodeHop<T> {
    /// Waits for `ready`, or returns [`None`] once the other node has gone: it sends nothing before
    /// the confirmation.
    pub(in crate::front) async fn wait_unless_gone<R>(
        &mut self,
        ready: impl Future<Output = R>,
    ) -> Option<R> {
        tokio::select! {
            ready = ready => Some(ready),
            _ = self.stream.read_u8() => None,
        }
    }

    /// Confirms to the other node that the shard is served here.
    pub(in crate::front) async fn confirm(mut self, wait: Duration) -> Result<T, ()> {
        let line = format!("{}\n", self.confirmation);
        let confirmed = timeout(wait, self.stream.write_all(line.as_bytes())).await;
        // A node that has gone needs no confirmation.
        confirmed.map_err(drop)?.map_err(drop)?;
        Ok(self.stream)
    }
}
