//! How a server becomes a node: its connections to NATS, its listener for other nodes and its
//! claims.

#[cfg(not(feature = "nats"))]
use std::sync::Arc;
#[cfg(feature = "nats")]
use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

#[cfg(feature = "nats")]
use actix_web::web;

#[cfg(feature = "nats")]
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ClusterError, ClusterNode};
#[cfg(feature = "nats")]
use super::{
    DRAIN_MAX,
    fetch::may_fetch,
    follow::{StoppableLog, mark_at, replication_options},
    nats::{self, NatsResources},
};
use crate::{ServerError, local_store::LocalStore};
#[cfg(feature = "nats")]
use crate::{
    front::hop::{NodeSecret, OwnerConnector},
    io_error, settings,
    tls::{self, NodeTls, ReloadableCertificate},
};
#[cfg(feature = "nats")]
use gridhook_admin::ClusterContext;
#[cfg(feature = "nats")]
use gridhook_cluster as cluster;
use gridhook_cluster::membership::MembershipEnd;
#[cfg(feature = "nats")]
use gridhook_cluster::{
    balance::NodeId,
    claim::ClaimSettings,
    control_of,
    lease::LeaseIntervals,
    member::{Member, OwnerHandshake},
    records::OwnershipScope,
    shard_address,
};
use gridhook_config as config;
use gridhook_config::Config;
#[cfg(feature = "nats")]
use gridhook_deliver::{
    TlsTrust,
    trust::{TrustError, TrustRoots},
};
#[cfg(feature = "nats")]
use gridhook_journal as journal;
#[cfg(feature = "nats")]
use gridhook_journal::{
    changelog::{Changelog, StreamMark},
    replicated::{FollowError, ShardCopy},
};
#[cfg(feature = "nats")]
use gridhook_metrics::Counter;
#[cfg(feature = "nats")]
use gridhook_store::Store as _;

/// The interval between two reads of a standby that has applied everything. With more shards than
/// [`FOLLOWED_AT_ONCE`] it is longer, so that an idle cluster puts little load on the NATS servers.
#[cfg(feature = "nats")]
const FOLLOW_INTERVAL: Duration = Duration::from_millis(50);

/// The number of shards above which a standby reads each less often.
#[cfg(feature = "nats")]
const FOLLOWED_AT_ONCE: u32 = 4;

/// The fewest bytes of the secret of the nodes.
#[cfg(feature = "nats")]
const SECRET_BYTES_MIN: usize = 16;

/// A process that has joined its cluster.
pub(crate) struct Joined {
    /// The process as a node of each shard.
    pub nodes: Vec<ClusterNode>,
    /// The task of the membership, which ends when the process has left the cluster.
    pub member: JoinHandle<MembershipEnd>,
}

/// Connects to the cluster, and begins to claim. There is a store for each shard.
#[cfg(feature = "nats")]
pub(crate) async fn join(
    cluster: &config::Cluster,
    config: &Config,
    stores: Vec<Arc<LocalStore>>,
) -> Result<Joined, ServerError> {
    let first_sequences: Vec<Option<u64>> = stores
        .iter()
        .map(|store| find_first_sequence(store))
        .collect::<Result<_, _>>()?;
    let secret = read_secret(&cluster.secret_file)?;
    let listeners = bind_listeners(cluster, stores.len())?;
    let address = find_node_address(cluster, &listeners)?;
    let node_tls = cluster.node_tls.as_ref().map(NodeTls::load).transpose()?;
    let mut certificates: Vec<_> = node_tls
        .iter()
        .map(|tls| Arc::clone(&tls.certificate))
        .collect();
    let nats_tls = load_nats_tls(cluster, config, &mut certificates)?;
    let (listener_tls, tls_connector) = node_tls
        .map(|NodeTls { server, client, .. }| (server, Arc::new(client).into()))
        .unzip();
    let connector = OwnerConnector::new(secret.clone(), tls_connector);

    let settings = cluster.clone();
    let opening = tokio::task::spawn_blocking(move || {
        nats::open_resources(&settings, nats_tls.as_ref(), &first_sequences)
    });
    let NatsResources {
        logs,
        id,
        earlier,
        records,
        connection,
        system_connection,
        streams,
    } = opening.await.expect("connecting does not panic")?;
    let mut claims = Vec::new();
    let mut drivers = Vec::new();
    for (shard, (store, log)) in stores.iter().zip(&logs).enumerate() {
        let mark = read_mark(store, Arc::clone(log), &id).await?;
        let (claim, driver) = cluster::shard_claim(shard);
        let progress = &claim.progress;
        progress.note_applied(mark);
        progress.flushed.store(mark.position, Ordering::Release);
        progress.continue_clock(earlier.get(shard).copied().unwrap_or_default());
        claims.push(claim);
        drivers.push(driver);
    }
    let claim_settings = build_claim_settings(cluster, config, &address, stores.len());
    let (member, membership) = Member::new(records, claim_settings, drivers);
    let member = member.with_handshake(owner_handshake(connector.clone()));
    // On the thread of the connection, because a busy server must not lose its lease.
    let runtime = connection.runtime();
    if !certificates.is_empty() {
        runtime.spawn(tls::keep_node_fresh(
            certificates.clone(),
            config.server.tls_reload,
        ));
    }
    let member = runtime.spawn(member.run());
    let cluster_context = web::Data::new(ClusterContext {
        cluster: cluster.name.clone(),
        node: cluster.node.clone(),
        membership: membership.clone(),
        forwarded: Arc::default(),
        copies: Counter::default(),
        stream_bytes_max: streams.iter().map(|stream| stream.bytes_max).collect(),
    });
    let shards = stores.len();
    let stopping = Arc::new(watch::Sender::new(false));
    let parts_by_shard = claims
        .into_iter()
        .zip(stores)
        .zip(logs.into_iter().zip(streams))
        .zip(listeners);
    let mut nodes = Vec::new();
    for (((claim, store), (log, stream)), listener) in parts_by_shard {
        nodes.push(ClusterNode {
            id: id.clone(),
            name: cluster.node.clone(),
            address: shard_address(&address, claim.shard),
            log: Arc::new(StoppableLog::new(log, Arc::clone(&claim.progress))),
            follow_interval: follow_interval(claim.shard, shards),
            claim,
            membership: membership.clone(),
            cluster_context: cluster_context.clone(),
            secret: secret.clone(),
            connector: connector.clone(),
            tls: listener_tls.clone(),
            certificates: certificates.clone(),
            member: None,
            lost: Arc::default(),
            store,
            stream,
            pace: Arc::default(),
            stopping: Arc::clone(&stopping),
            listener,
            _records: Box::new((connection.clone(), system_connection.clone())),
        });
    }
    Ok(Joined { nodes, member })
}

/// Binds the listeners for other nodes, one for each shard, on successive ports.
#[cfg(feature = "nats")]
fn bind_listeners(
    cluster: &config::Cluster,
    shards: usize,
) -> Result<Vec<TcpListener>, ServerError> {
    let mut listeners = Vec::with_capacity(shards);
    for offset in (0..).take(shards) {
        let address = SocketAddr::new(cluster.listen.ip(), cluster.listen.port() + offset);
        let listener = TcpListener::bind(address).map_err(io_error(format!(
            "cluster.node_listen: cannot listen on {address}"
        )))?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// The address at which other nodes reach the first of `listeners`.
#[cfg(feature = "nats")]
fn find_node_address(
    cluster: &config::Cluster,
    listeners: &[TcpListener],
) -> Result<String, ServerError> {
    match (&cluster.advertise, listeners.first()) {
        (Some(address), _) => Ok(address.clone()),
        (None, Some(listener)) => {
            let address = listener.local_addr();
            let address = address.map_err(io_error("cluster.node_listen"))?;
            Ok(address.to_string())
        }
        (None, None) => Ok(cluster.listen.to_string()),
    }
}

#[cfg(feature = "nats")]
fn build_claim_settings(
    cluster: &config::Cluster,
    config: &Config,
    address: &str,
    shards: usize,
) -> ClaimSettings {
    ClaimSettings {
        me: NodeId(uuid::Uuid::new_v4().to_string()),
        name: cluster.node.clone(),
        address: address.to_owned(),
        is_address_bound: cluster.advertise.is_none() && !cluster.listen.ip().is_unspecified(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shards,
        control: control_of(shards),
        intervals: LeaseIntervals::with_expiry(cluster.expiry),
        drain_wait: 2 * DRAIN_MAX,
        scope: OwnershipScope {
            fully_qualified_namespace: cluster.name.clone(),
            event_hub_name: "gridhook".to_owned(),
            consumer_group: "$Default".to_owned(),
        },
        shared: shared_settings(cluster, config),
        format: cluster.record_format,
    }
}

/// How the member proves its identity to an owner whose process it watches.
#[cfg(feature = "nats")]
fn owner_handshake(connector: OwnerConnector) -> OwnerHandshake {
    Arc::new(move |connection, address| {
        let connector = connector.clone();
        Box::pin(async move {
            let stream = connector.complete_handshake(connection, &address, None);
            Ok(Box::new(stream.await?) as _)
        })
    })
}

/// The settings that should be the same on all nodes. The number of shards is not among them: a
/// node with another one is refused.
#[cfg(feature = "nats")]
pub(super) fn shared_settings(
    cluster: &config::Cluster,
    config: &Config,
) -> BTreeMap<String, String> {
    let public_url = config.server.public_url.as_ref();
    let public_url = public_url.map_or_else(|| "none".to_owned(), ToString::to_string);
    let keep_bytes = cluster.stream_keep_bytes.to_string();
    BTreeMap::from([
        ("cluster.expiry".to_owned(), format!("{:?}", cluster.expiry)),
        ("cluster.stream_keep_bytes".to_owned(), keep_bytes),
        ("server.public_url".to_owned(), public_url),
    ])
}

/// Joins with one shard, whose node is all of the process.
pub(crate) async fn join_alone(
    cluster: &config::Cluster,
    config: &Config,
    store: Arc<LocalStore>,
) -> Result<ClusterNode, ServerError> {
    let Joined { mut nodes, member } = join(cluster, config, vec![store]).await?;
    let node = nodes.pop().expect("a store has a node");
    Ok(ClusterNode {
        member: Some(member),
        ..node
    })
}

/// The names of the nodes that renew their records within `cluster.expiry`, which this takes.
///
/// # Errors
/// If the records cannot be read.
#[cfg(feature = "nats")]
pub(crate) fn list_living_nodes(config: &Config) -> Result<Vec<String>, ServerError> {
    let Some(cluster) = &config.cluster else {
        return Ok(Vec::new());
    };
    let tls = load_nats_tls(cluster, config, &mut Vec::new())?;
    Ok(nats::list_living_nodes(cluster, tls.as_ref())?)
}

/// Reads what the local store has applied and synced, before this node writes it to its record. A
/// store that is not known to be of the cluster `id` is refused before the node has a record, for
/// which the changelog would be kept. Other errors are reported by the follower.
#[cfg(feature = "nats")]
async fn read_mark(
    store: &Arc<LocalStore>,
    log: Arc<dyn Changelog>,
    id: &str,
) -> Result<StreamMark, ClusterError> {
    if store.failure().is_some() {
        return Ok(StreamMark::default());
    }
    let local = Arc::clone(store);
    let id = id.to_owned();
    let mark = tokio::task::spawn_blocking(move || read_mark_of_store(&local, log, &id))
        .await
        .expect("reading a store does not panic");
    Ok(mark?)
}

/// Reads the mark of an open store. Blocks.
#[cfg(feature = "nats")]
fn read_mark_of_store(
    local: &LocalStore,
    log: Arc<dyn Changelog>,
    id: &str,
) -> Result<StreamMark, FollowError> {
    let store = local.open_store();
    match ShardCopy::open(Arc::clone(&store) as _, log, replication_options()) {
        Err(error @ FollowError::Foreign) => return Err(error),
        Err(error @ FollowError::Trimmed { .. }) if !may_fetch(local, id, &error) => {
            return Err(error);
        }
        Ok(_) | Err(_) => {}
    }
    let applied = ShardCopy::read_applied(&*store).and_then(|applied| {
        store.note_watermark()?;
        Ok(applied.unwrap_or_default())
    });
    Ok(applied.map(mark_at).unwrap_or_default())
}

/// The sequence at which a new stream may begin: 1 for a new store; for a restored store, the one
/// after the last that it has applied. [`None`] for the store of a node: its stream must exist,
/// because a new one would lack the records of the others.
#[cfg(feature = "nats")]
fn find_first_sequence(store: &LocalStore) -> Result<Option<u64>, ServerError> {
    if store.failure().is_some() {
        return Ok(None);
    }
    let applied = ShardCopy::read_applied(&*store.open_store()).map_err(journal::Error::from)?;
    Ok(match applied {
        None => Some(1),
        Some(_) if store.is_of_any_cluster() => None,
        Some(applied) => Some(applied.sequence + 1),
    })
}

/// The interval between two reads of the changelog of a shard.
#[cfg(feature = "nats")]
fn follow_interval(shard: usize, shards: usize) -> Duration {
    // A change of the control plane waits until each node has applied it.
    if control_of(shards) == Some(shard) {
        return FOLLOW_INTERVAL;
    }
    FOLLOW_INTERVAL
        * u32::try_from(shards)
            .unwrap_or(u32::MAX)
            .div_ceil(FOLLOWED_AT_ONCE)
}

/// TLS to the servers of NATS; [`None`] if no address has the scheme `tls`. A client certificate of
/// this node is added to `certificates`.
#[cfg(feature = "nats")]
pub(super) fn load_nats_tls(
    cluster: &config::Cluster,
    config: &Config,
    certificates: &mut Vec<Arc<ReloadableCertificate>>,
) -> Result<Option<rustls::ClientConfig>, TrustError> {
    if !cluster.urls.iter().any(|url| url.starts_with("tls:")) {
        return Ok(None);
    }
    let config::NatsTls {
        authorities,
        identity,
    } = &cluster.nats_tls;
    let trust = match authorities {
        Some(file) => {
            let version = settings::minimum_tls_version(config.delivery.tls_minimum_version);
            TlsTrust::load_roots(&[TrustRoots::File(file.clone())], version)?
        }
        None => settings::tls_trust(config)?,
    };
    let mut tls = rustls::ClientConfig::clone(&trust.config());
    if let Some(config::IdentityFiles { certificate, key }) = identity {
        let certificate = Arc::new(ReloadableCertificate::load(
            certificate.clone(),
            key.clone(),
        )?);
        tls.client_auth_cert_resolver = Arc::clone(&certificate) as _;
        tls.resumption = rustls::client::Resumption::default();
        certificates.push(certificate);
    }
    Ok(Some(tls))
}

#[cfg(feature = "nats")]
pub(super) fn read_secret(path: &Path) -> Result<NodeSecret, ClusterError> {
    let text = fs::read_to_string(path).map_err(|error| secret_error(path, &error.to_string()))?;
    match text.trim().as_bytes() {
        secret if secret.len() >= SECRET_BYTES_MIN => Ok(NodeSecret::new(secret)),
        _ => {
            let problem =
                format!("the secret is too short; expected {SECRET_BYTES_MIN} characters or more");
            Err(secret_error(path, &problem))
        }
    }
}

#[cfg(feature = "nats")]
fn secret_error(path: &Path, problem: &str) -> ClusterError {
    ClusterError::Setting {
        key: "cluster.secret_file",
        what: format!("{}: {problem}", path.display()),
    }
}

#[cfg(not(feature = "nats"))]
pub(crate) async fn join(
    _: &config::Cluster,
    _: &Config,
    _: Vec<Arc<LocalStore>>,
) -> Result<Joined, ServerError> {
    Err(
        ClusterError::Engine("this build of gridhook has no NATS client (feature nats)".to_owned())
            .into(),
    )
}

#[cfg(not(feature = "nats"))]
pub(crate) fn list_living_nodes(_: &Config) -> Result<Vec<String>, ServerError> {
    Err(
        ClusterError::Engine("this build of gridhook has no NATS client (feature nats)".to_owned())
            .into(),
    )
}
