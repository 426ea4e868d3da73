//! Requests that another node forwards.
//!
//! A connection between nodes begins with a handshake. The owner sends a nonce; the other node
//! responds with the shard that it calls, the side that its client is on, a nonce of its own, and a
//! proof that it knows the secret of the cluster; the owner confirms with a proof of its own, or
//! refuses. Only a node that serves the shard confirms, and nothing of a request was sent before.
//! The secret itself is never sent.
//! Both proofs contain the address that was called, so that a process that takes over
//! the address of a former owner cannot use them.
//!
//! Then the connection has requests of HTTP; or nothing, if the node only watches whether the
//! owner's process runs.
//!
//! With `cluster.node_certificate_file`, all of this is within TLS, and both ends show a
//! certificate of the cluster's authorities.
//!
//! Each request of a client has a header with the address of its client, which counts as the peer
//! of the request. Others are the node's own (`router::owner`). Three more headers are the node's,
//! too: the record of the client's named token, whether other shards have a part of what the
//! request is about, and how events are received from a part of a spread topic.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::{HttpMessage as _, dev::ServiceRequest};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use ring::hmac;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use gridhook_admin::PartRecord;
use gridhook_engine::control::tokens::{ForwardedToken, Token};
use gridhook_publish::{OneOfShards, auth::host::LocalAddress};
use gridhook_pull::NodeReceive;

/// The header with the client of a forwarded request: its address, the address that it called, and
/// http or https.
pub(crate) const CLIENT_NAME: &str = "gridhook-forwarded-client";

/// The header with the record of the named token of a forwarded request, as JSON.
pub(crate) const TOKEN_NAME: &str = "gridhook-forwarded-token";

/// The header of a request that goes to several shards, or to one that the request names: one of
/// the values below.
pub(crate) const PART_NAME: &str = "gridhook-forwarded-part";

/// The shard records the request in its audit trail.
pub(crate) const RECORDED_PART: &str = "recorded";

/// The shard records the request if it has done what is asked for; otherwise others are asked.
pub(crate) const RECORDED_IF_DONE_PART: &str = "recorded-if-done";

/// The shard does not record the request, because another one does.
pub(crate) const UNRECORDED_PART: &str = "unrecorded";

/// The header of a receive request for a part of a spread topic, as [`NodeReceive`] writes it.
pub(crate) const RECEIVE_NAME: &str = "gridhook-forwarded-receive";

/// Marks a request that a node makes itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfNode;

/// The beginning of each handshake.
const PROTOCOL: &str = "gridhook-node/2";

/// The target of a node that sends no request and only watches.
const WATCH: &str = "watch";

/// The most connections of other nodes whose handshake has not ended, for each shard: a node opens
/// one for each at the same time.
const UNPROVEN_MAX: usize = 64;

/// The pause before an address is called again where one end has refused the handshake.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The owner's line for a node whose proof it does not take.
const REFUSAL: &str = "refused";

/// The interval in which a reason for refusals is logged once.
const REASON_INTERVAL: Duration = Duration::from_mins(1);

/// The maximum number of reasons that are logged in it.
const REASONS_MAX: usize = 8;

/// The longest line of a handshake.
const LINE_BYTES: usize = 160;

/// The listener that a client has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenerSide {
    /// The listener of publishers, or of both.
    Publishers,
    Operators,
}

impl ListenerSide {
    fn name(self) -> &'static str {
        match self {
            Self::Publishers => "publishers",
            Self::Operators => "operators",
        }
    }
}

/// How long a connection between nodes may be idle, with this limit for connections of clients. It
/// is longer, because the handshake costs more than a request.
pub(crate) fn idle_timeout(of_clients: Duration) -> Duration {
    8 * of_clients
}

/// What the requests of a connection have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HopTarget {
    /// The number of the shard that serves them.
    pub shard: usize,
    /// The listener that their clients have called.
    pub side: ListenerSide,
}

impl HopTarget {
    /// The target that a node has named in its handshake.
    fn parse(text: &str) -> Option<Self> {
        let (name, shard) = text.split_once('/')?;
        let sides = [ListenerSide::Publishers, ListenerSide::Operators];
        Some(Self {
            shard: shard.parse().ok()?,
            side: sides.into_iter().find(|side| side.name() == name)?,
        })
    }

    fn to_text(self) -> String {
        format!("{}/{}", self.side.name(), self.shard)
    }
}

/// The secret that the nodes of a cluster share.
#[derive(Clone)]
pub(crate) struct NodeSecret(hmac::Key);

/// The text that both proofs of a handshake sign.
struct Handshake<'a> {
    /// The address that the node called.
    address: &'a str,
    owner_nonce: &'a str,
    node_nonce: &'a str,
    /// The [`HopTarget`], or [`WATCH`].
    target: &'a str,
}

/// The end of a connection that proves that it knows the secret. Nobody can send back the proof of
/// the other end.
#[derive(Clone, Copy)]
enum Prover {
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

    /// The owner's part of the handshake, for a node that others call at `address`, of a cluster
    /// with this number of shards.
    pub(crate) fn hop_acceptor(&self, address: &str, shards: usize) -> HopAcceptor {
        HopAcceptor {
            secret: self.clone(),
            address: address.into(),
            shards,
            refusals: Arc::default(),
        }
    }

    fn compute_proof(&self, prover: Prover, handshake: &Handshake<'_>) -> String {
        HEXLOWER.encode(hmac::sign(&self.0, handshake.signed_text(prover).as_bytes()).as_ref())
    }

    fn check_proof(
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

/// Connections whose other end has not proved yet that it is a node. Beyond the maximum the oldest
/// one is closed, so that strangers do not keep nodes out: a node needs one round trip for its
/// proof.
#[derive(Clone)]
pub(super) struct HandshakeSlots {
    waiting: Arc<Mutex<VecDeque<Weak<Notify>>>>,
    most: usize,
}

impl HandshakeSlots {
    /// Slots for a listener with these numbers of connections and of shards.
    pub(super) fn new(connections: usize, shards: usize) -> Self {
        Self {
            waiting: Arc::default(),
            most: (UNPROVEN_MAX * shards).min(connections / 4).max(1),
        }
    }

    /// Takes a slot, which the caller holds until it drops it. The slot is notified when it has to
    /// make room.
    pub(super) fn take_slot(&self) -> Arc<Notify> {
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

/// The owner's part of the handshake.
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
    pub(super) async fn check_node<T>(
        self,
        connection: impl Future<Output = io::Result<T>>,
        wait: Duration,
    ) -> Result<ProvenHop<T>, ()>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        match timeout(wait, self.read_proof(connection)).await {
            Ok(Ok(proven)) => Ok(proven),
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
    ) -> io::Result<ProvenHop<T>>
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
        Ok(ProvenHop {
            stream,
            target,
            confirmation,
        })
    }

    /// The target of a node that has proved that it knows the secret; [`None`] to watch only.
    fn check_target(
        &self,
        proof: &str,
        handshake: &Handshake<'_>,
    ) -> io::Result<Option<HopTarget>> {
        self.secret.check_proof(proof, Prover::Node, handshake)?;
        if handshake.target == WATCH {
            return Ok(None);
        }
        let target = HopTarget::parse(handshake.target)
            .ok_or_else(|| io::Error::other("the node speaks another protocol"))?;
        if target.shard >= self.shards {
            return Err(io::Error::other(
                "the node calls a shard that the cluster does not have",
            ));
        }
        Ok(Some(target))
    }
}

/// A connection of a node that has proved that it knows the secret.
pub(super) struct ProvenHop<T> {
    pub(super) stream: T,
    /// [`None`] for a node that only watches.
    pub(super) target: Option<HopTarget>,
    confirmation: String,
}

impl<T: AsyncRead + AsyncWrite + Unpin> ProvenHop<T> {
    /// Waits for `ready`, or returns [`None`] once the other node has gone: it sends nothing before
    /// the confirmation.
    pub(super) async fn wait_unless_gone<R>(
        &mut self,
        ready: impl Future<Output = R>,
    ) -> Option<R> {
        tokio::select! {
            ready = ready => Some(ready),
            _ = self.stream.read_u8() => None,
        }
    }

    /// Confirms to the other node that the shard is served here.
    pub(super) async fn confirm(mut self, wait: Duration) -> Result<T, ()> {
        let line = format!("{}\n", self.confirmation);
        let confirmed = timeout(wait, self.stream.write_all(line.as_bytes())).await;
        // A node that has gone needs no confirmation.
        confirmed.map_err(drop)?.map_err(drop)?;
        Ok(self.stream)
    }
}

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

    /// The other node's part of the handshake with the node at `address`, for requests to a target,
    /// or to watch it.
    pub(crate) async fn complete_handshake(
        &self,
        stream: TcpStream,
        address: &str,
        target: Option<HopTarget>,
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
        target: Option<HopTarget>,
    ) -> io::Result<T>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let owner_nonce = read_owner_nonce(&mut stream).await?;
        let target = target.map_or_else(|| WATCH.to_owned(), HopTarget::to_text);
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

fn make_nonce() -> io::Result<String> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(HEXLOWER.encode(&nonce))
}

/// Reads a line. The peer sends nothing behind it before it has a response: what it sends all
/// the same is lost.
async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
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

/// The value of [`CLIENT_NAME`].
pub(crate) fn client_value(peer: SocketAddr, local: LocalAddress) -> String {
    format!(
        "{peer} {} {}",
        local.address,
        if local.secure { "https" } else { "http" }
    )
}

/// Makes the client of a forwarded request its peer, and takes over what the node knows of it.
pub(super) fn adopt_client(request: &mut ServiceRequest) {
    let token = request.headers_mut().remove(TOKEN_NAME).next();
    let record = token.and_then(|record| serde_json::from_slice(record.as_bytes()).ok());
    if let Some(record) = record {
        let token = ForwardedToken(Arc::new(Token::from_other_store(record)));
        request.extensions_mut().insert(token);
    }
    if let Some(part) = request.headers_mut().remove(PART_NAME).next() {
        request.extensions_mut().insert(OneOfShards);
        if part == UNRECORDED_PART {
            request.extensions_mut().insert(PartRecord::Elsewhere);
        } else if part == RECORDED_IF_DONE_PART {
            request.extensions_mut().insert(PartRecord::IfDone);
        }
    }
    let receive = request.headers_mut().remove(RECEIVE_NAME).next();
    if let Some(receive) = receive.and_then(|receive| NodeReceive::read(receive.to_str().ok()?)) {
        request.extensions_mut().insert(receive);
    }
    let value = request.headers_mut().remove(CLIENT_NAME).next();
    if value.is_none() {
        request.extensions_mut().insert(OfNode);
    }
    let parts = value
        .as_ref()
        .and_then(|value| value.to_str().ok())
        .map(|value| value.splitn(3, ' '));
    let Some((Some(peer), Some(local), Some(scheme))) =
        parts.map(|mut parts| (parts.next(), parts.next(), parts.next()))
    else {
        return;
    };
    if let (Ok(peer), Ok(address)) = (peer.parse(), local.parse()) {
        request.head_mut().peer_addr = Some(peer);
        request.extensions_mut().insert(LocalAddress {
            address,
            secure: scheme == "https",
        });
    }
}
