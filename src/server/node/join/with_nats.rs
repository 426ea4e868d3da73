//! The join of a build with a client of NATS.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actix_web::web;
use tokio::sync::watch;

use super::Joined;
use crate::{
    ServerError,
    front::{
        hop::{HopTarget, ListenerSide, NodeSecret, OwnerConnector},
        served_shards::ServedShards,
    },
    io_error,
    local_store::LocalStore,
    node::{
        ClusterError, ClusterNode, DRAIN_MAX, NodeProcess,
        fetch::may_fetch,
        follow::{StoppableLog, mark_at, replication_options},
        nats::{self, NatsResources},
        tenure::StreamLimits,
    },
    settings,
    tls::{self, NodeTls, NodeTlsState, ReloadableCertificate},
};
use gridhook_admin::ClusterContext;
use gridhook_cluster as cluster;
use gridhook_cluster::{
    MemberEnd, ShardClaim,
    balance::NodeId,
    claim::ClaimSettings,
    control_of,
    lease::LeaseIntervals,
    member::{Member, OwnerHandshake},
    membership::Membership,
    records::{OwnershipScope, ShardPosition},
};
use gridhook_config as config;
use gridhook_config::Config;
use gridhook_deliver::{
    TlsTrust,
    trust::{TrustError, TrustRoots},
};
use gridhook_journal as journal;
use gridhook_journal::{
    changelog::{Changelog, StreamMark},
    replicated::{FollowError, ShardCopy},
};
use gridhook_metrics::Counter;
use gridhook_store::Store as _;

/// The interval between two reads of a standby that has applied everything. With more shards than
/// [`FOLLOWED_AT_ONCE`] it is longer, so that an idle cluster puts little load on the NATS servers.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(50);

/// The number of shards above which a standby reads each less often.
const FOLLOWED_AT_ONCE: u32 = 4;

/// The fewest bytes of the secret of the nodes.
const SECRET_BYTES_MIN: usize = 16;

/// Connects to the cluster, and begins to claim. There is a store for each shard.
pub(crate) async fn join(
    cluster: &config::Cluster,
    config: &Config,
    stores: Vec<Arc<LocalStore>>,
) -> Result<Joined, ServerError> {
    let first_sequences: Vec<Option<u64>> = stores
        .iter()
        .map(|store| find_first_sequence(store))
        .collect::<Result<_, _>>()?;
    let NodeFiles {
        secret,
        connector,
        tls,
        nats_tls,
        tls_state,
    } = NodeFiles::load(cluster, config)?;
    let listener = TcpListener::bind(cluster.listen).map_err(io_error(format!(
        "cluster.node_listen: cannot listen on {}",
        cluster.listen
    )))?;
    let address = find_node_address(cluster, &listener)?;
    let cluster_settings = cluster.clone();
    let opening = tokio::task::spawn_blocking(move || {
        nats::open_resources(&cluster_settings, nats_tls.as_ref(), &first_sequences)
    });
    let NatsResources {
        logs,
        id: cluster_id,
        earlier,
        records,
        connection,
        system_connection,
        streams,
    } = opening.await.expect("connecting does not panic")?;
    let (claims, claim_ends) = create_claims(&stores, &logs, &cluster_id, &earlier).await?;
    let claim_settings = build_claim_settings(cluster, config, &address, stores.len());
    let handshake = owner_handshake(connector.clone());
    let (member, membership) = Member::new(records, claim_settings, claim_ends, handshake);
    // On the thread of the connection, because a busy server must not lose its lease.
    let runtime = connection.runtime();
    let certificates = tls_state.certificates.clone();
    if !tls_state.authorities.is_empty() {
        runtime.spawn(tls::keep_node_fresh(tls_state, config.server.tls_reload));
    }
    let member = runtime.spawn(member.run());
    let blocking = runtime.clone();
    let process = Arc::new(NodeProcess {
        cluster_id,
        name: cluster.node.clone(),
        address,
        cluster_context: build_cluster_context(cluster, &membership, &streams),
        membership,
        secret,
        connector,
        tls,
        certificates,
        stopping: watch::Sender::new(false),
        listener,
        served_shards: ServedShards::new(stores.len()),
        blocking,
        _connections: Box::new((connection, system_connection)),
    });
    let shards = stores.len();
    let logs = logs.into_iter().zip(streams);
    let by_shard = claims.into_iter().zip(stores).zip(logs);
    let nodes = by_shard.map(|((claim, store), (log, stream))| ClusterNode {
        process: Arc::clone(&process),
        log: Arc::new(StoppableLog::new(log, Arc::clone(&claim.progress))),
        follow_interval: follow_interval(claim.shard, shards),
        claim,
        member: None,
        is_alone: false,
        lost_looks: Arc::default(),
        store,
        stream,
        haste: Arc::default(),
    });
    Ok(Joined {
        nodes: nodes.collect(),
        member,
    })
}

/// What the files of the settings say about this node and the others.
struct NodeFiles {
    secret: NodeSecret,
    connector: OwnerConnector,
    /// TLS of the listener for other nodes.
    tls: Option<rustls::ServerConfig>,
    nats_tls: Option<rustls::ClientConfig>,
    tls_state: NodeTlsState,
}

impl NodeFiles {
    fn load(cluster: &config::Cluster, config: &Config) -> Result<Self, ServerError> {
        let secret = read_secret(&cluster.secret_file)?;
        let node_tls = cluster.node_tls.as_ref().map(NodeTls::load).transpose()?;
        let mut tls_state = NodeTlsState::default();
        if let Some(tls) = &node_tls {
            tls_state.certificates.push(Arc::clone(&tls.certificate));
            tls_state.authorities.push(Arc::clone(&tls.authorities));
        }
        let nats_tls = load_nats_tls(cluster, config, &mut tls_state)?;
        let (tls, tls_connector) = node_tls
            .map(|NodeTls { server, client, .. }| (server, Arc::new(client).into()))
            .unzip();
        Ok(Self {
            connector: OwnerConnector::new(secret.clone(), tls_connector),
            secret,
            tls,
            nats_tls,
            tls_state,
        })
    }
}

/// What connects this node to the others.
pub(in crate::node) fn load_connector(
    cluster: &config::Cluster,
    config: &Config,
) -> Result<OwnerConnector, ServerError> {
    Ok(NodeFiles::load(cluster, config)?.connector)
}

/// Makes the claims of all shards, with what the last process of this node has reported.
async fn create_claims(
    stores: &[Arc<LocalStore>],
    logs: &[Arc<dyn Changelog>],
    cluster_id: &str,
    earlier: &[ShardPosition],
) -> Result<(Vec<ShardClaim>, Vec<MemberEnd>), ServerError> {
    let mut claims = Vec::new();
    let mut claim_ends = Vec::new();
    for (shard, (store, log)) in stores.iter().zip(logs).enumerate() {
        let mark = read_mark(store, Arc::clone(log), cluster_id).await?;
        let (claim, claim_end) = cluster::shard_claim(shard);
        let progress = &claim.progress;
        progress.note_applied(mark);
        progress.flushed.store(mark.position, Ordering::Release);
        progress.record_clock(earlier.get(shard).copied().unwrap_or_default());
        claims.push(claim);
        claim_ends.push(claim_end);
    }
    Ok((claims, claim_ends))
}

fn build_cluster_context(
    cluster: &config::Cluster,
    membership: &Membership,
    streams: &[StreamLimits],
) -> web::Data<ClusterContext> {
    web::Data::new(ClusterContext {
        cluster: cluster.name.clone(),
        node: cluster.node.clone(),
        membership: membership.clone(),
        forwarded: Arc::default(),
        copies: Counter::default(),
        stream_bytes_max: streams.iter().map(|stream| stream.bytes_max).collect(),
    })
}

/// The address at which other nodes reach the listener.
fn find_node_address(
    cluster: &config::Cluster,
    listener: &TcpListener,
) -> Result<String, ServerError> {
    if let Some(address) = &cluster.advertise {
        return Ok(address.clone());
    }
    let address = listener.local_addr();
    let address = address.map_err(io_error("cluster.node_listen"))?;
    Ok(address.to_string())
}

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

/// How the member proves its identity to a node whose process it watches, or to find the owner of a
/// shard.
fn owner_handshake(connector: OwnerConnector) -> OwnerHandshake {
    Arc::new(move |connection, address, shard| {
        let connector = connector.clone();
        Box::pin(async move {
            let side = ListenerSide::Operators;
            let to_shard = |shard| HopTarget::Shard { shard, side };
            let target = shard.map_or(HopTarget::Watch, to_shard);
            let stream = connector.complete_handshake(connection, &address, target);
            Ok(Box::new(stream.await?) as _)
        })
    })
}

/// The settings that should be the same on all nodes. The number of shards is not among them: a
/// node with another one is refused. Nor is what a reload may change: a node writes these once.
pub(in crate::node) fn shared_settings(
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

/// Refuses another number of shards than that of the cluster. Blocks.
///
/// # Errors
/// If the cluster has another number, or a file of the settings cannot be read.
pub(crate) fn check_shards(config: &Config) -> Result<(), ServerError> {
    let Some(cluster) = &config.cluster else {
        return Ok(());
    };
    let tls = load_nats_tls(cluster, config, &mut NodeTlsState::default())?;
    Ok(nats::check_shards(cluster, tls.as_ref())?)
}

/// The names of the nodes that renew their records within `cluster.expiry`, which this takes.
///
/// # Errors
/// If the records cannot be read.
pub(crate) fn list_living_nodes(config: &Config) -> Result<Vec<String>, ServerError> {
    let Some(cluster) = &config.cluster else {
        return Ok(Vec::new());
    };
    let tls = load_nats_tls(cluster, config, &mut NodeTlsState::default())?;
    Ok(nats::list_living_nodes(cluster, tls.as_ref())?)
}

/// Reads what the local store has applied and synced, before this node writes it to its record.
///
/// A store that is not known to be of the cluster `id` is refused here: a node that cannot be helped
/// must not get a record, because the changelog would be kept for it. Other errors are reported by
/// the follower.
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

/// TLS to the servers of NATS; [`None`] if no address has the scheme `tls`. Its files are added to
/// `state`.
pub(in crate::node) fn load_nats_tls(
    cluster: &config::Cluster,
    config: &Config,
    state: &mut NodeTlsState,
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
    state.authorities.push(Arc::clone(trust.authorities()));
    let mut tls = rustls::ClientConfig::clone(&trust.config());
    if let Some(config::IdentityFiles { certificate, key }) = identity {
        let certificate = Arc::new(ReloadableCertificate::load(
            certificate.clone(),
            key.clone(),
        )?);
        tls.client_auth_cert_resolver = Arc::clone(&certificate) as _;
        tls.resumption = trust.authorities().create_resumption();
        state.certificates.push(certificate);
    }
    Ok(Some(tls))
}

pub(in crate::node) fn read_secret(path: &Path) -> Result<NodeSecret, ClusterError> {
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

fn secret_error(path: &Path, problem: &str) -> ClusterError {
    ClusterError::Setting {
        key: "cluster.secret_file",
        what: format!("{}: {problem}", path.display()),
    }
}
