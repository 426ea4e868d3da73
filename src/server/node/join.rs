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
    nats,
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
    balance::NodeId, claim::ClaimSettings, control_of, lease::LeaseIntervals, member::Member,
    records::OwnershipScope, shard_address,
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

/// The interval between two reads of a standby that has applied everything. A node reads as often
/// for many shards as for [`FOLLOWED_AT_ONCE`], so that an idle cluster asks little of the servers
/// of NATS.
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
    let begins: Vec<Option<u64>> = stores
        .iter()
        .map(|store| stream_begins(store))
        .collect::<Result<_, _>>()?;
    let secret = read_secret(&cluster.secret_file)?;
    let listeners = (0..).take(stores.len()).map(|shard| {
        let address = SocketAddr::new(cluster.listen.ip(), cluster.listen.port() + shard);
        TcpListener::bind(address).map_err(io_error(format!(
            "cluster.node_listen: cannot listen on {address}"
        )))
    });
    let listeners: Vec<TcpListener> = listeners.collect::<Result<_, _>>()?;
    let address = match (&cluster.advertise, listeners.first()) {
        (Some(address), _) => address.clone(),
        (None, Some(first)) => first
            .local_addr()
            .map_err(io_error("cluster.node_listen"))?
            .to_string(),
        (None, None) => cluster.listen.to_string(),
    };
    let node_tls = cluster.node_tls.as_ref().map(NodeTls::load).transpose()?;
    let mut certificates: Vec<_> = node_tls
        .iter()
        .map(|tls| Arc::clone(&tls.certificate))
        .collect();
    let tls = cluster.urls.iter().any(|url| url.starts_with("tls:"));
    let tls = tls
        .then(|| nats_tls(cluster, config, &mut certificates))
        .transpose()?;
    let of_cluster = cluster.clone();
    let opening =
        tokio::task::spawn_blocking(move || nats::open(&of_cluster, tls.as_ref(), &begins));
    let opened = opening.await.expect("connecting does not panic")?;
    let nats::Opened {
        logs,
        id,
        earlier,
        records,
        connection,
        system_connection,
        streams,
    } = opened;
    let settings = ClaimSettings {
        me: NodeId(uuid::Uuid::new_v4().to_string()),
        name: cluster.node.clone(),
        address: address.clone(),
        is_address_bound: cluster.advertise.is_none() && !cluster.listen.ip().is_unspecified(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shards: stores.len(),
        control: control_of(stores.len()),
        intervals: LeaseIntervals::with_expiry(cluster.expiry),
        drain_wait: 2 * DRAIN_MAX,
        scope: OwnershipScope {
            fully_qualified_namespace: cluster.name.clone(),
            event_hub_name: "gridhook".to_owned(),
            consumer_group: "$Default".to_owned(),
        },
        shared: shared_settings(cluster, config),
        format: cluster.record_format,
    };
    let mut claims = Vec::new();
    let mut drivers = Vec::new();
    for (shard, (store, log)) in stores.iter().zip(&logs).enumerate() {
        let mark = read_mark(store, Arc::clone(log), &id).await?;
        let (claim, driver) = cluster::shard_claim(shard);
        claim.progress.note_applied(mark);
        claim
            .progress
            .flushed
            .store(mark.position, Ordering::Release);
        claim
            .progress
            .continue_clock(earlier.get(shard).copied().unwrap_or_default());
        claims.push(claim);
        drivers.push(driver);
    }
    let (member, membership) = Member::new(records, settings, drivers);
    // On a thread of its own, because a busy server must not lose its lease.
    let (tls, tls_connector) = node_tls
        .map(|NodeTls { server, client, .. }| (server, Arc::new(client).into()))
        .unzip();
    let connector = OwnerConnector::new(secret.clone(), tls_connector);
    let of_member = connector.clone();
    let member = member.with_handshake(Arc::new(move |connection, address: String| {
        let connector = of_member.clone();
        Box::pin(async move {
            Ok(Box::new(
                connector
                    .complete_handshake(connection, &address, None)
                    .await?,
            ) as _)
        })
    }));
    if !certificates.is_empty() {
        connection.runtime().spawn(tls::keep_node_fresh(
            certificates.clone(),
            config.server.tls_reload,
        ));
    }
    let member = connection.runtime().spawn(member.run());
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
    let each = claims
        .into_iter()
        .zip(stores)
        .zip(logs.into_iter().zip(streams))
        .zip(listeners)
        .enumerate();
    let nodes = each.map(
        |(number, (((claim, store), (log, stream)), listener))| ClusterNode {
            id: id.clone(),
            name: cluster.node.clone(),
            address: shard_address(&address, claim.shard),
            log: Arc::new(StoppableLog::new(log, Arc::clone(&claim.progress))),
            claim,
            membership: membership.clone(),
            cluster_context: cluster_context.clone(),
            secret: secret.clone(),
            connector: connector.clone(),
            tls: tls.clone(),
            certificates: certificates.clone(),
            member: None,
            lost: Arc::default(),
            store,
            stream,
            follow_interval: if control_of(shards) == Some(number) {
                // Changes wait until each node has applied them.
                FOLLOW_INTERVAL
            } else {
                follow_interval(shards)
            },
            pace: Arc::default(),
            stopping: Arc::clone(&stopping),
            listener,
            _records: Box::new((connection.clone(), system_connection.clone())),
        },
    );
    Ok(Joined {
        nodes: nodes.collect(),
        member,
    })
}

/// The settings that should be the same on all nodes. The number of shards is not among them: a
/// node with another one is refused.
#[cfg(feature = "nats")]
pub(super) fn shared_settings(
    cluster: &config::Cluster,
    config: &Config,
) -> BTreeMap<String, String> {
    let time = |of: Duration| format!("{of:?}");
    let public_url = config.server.public_url.as_ref();
    let shared_settings = [
        ("cluster.expiry", time(cluster.expiry)),
        (
            "cluster.stream_keep_bytes",
            cluster.stream_keep_bytes.to_string(),
        ),
        (
            "server.public_url",
            public_url.map_or_else(|| "none".to_owned(), ToString::to_string),
        ),
    ];
    shared_settings
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Joins the cluster like [`join`], with one shard, whose node is all of the process.
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
pub(crate) fn living(config: &Config) -> Result<Vec<String>, ServerError> {
    let Some(cluster) = &config.cluster else {
        return Ok(Vec::new());
    };
    let tls = cluster.urls.iter().any(|url| url.starts_with("tls:"));
    let tls = tls
        .then(|| nats_tls(cluster, config, &mut Vec::new()))
        .transpose()?;
    Ok(nats::living(cluster, tls.as_ref())?)
}

/// What the local store has applied and synced, before the record of this node says so. A store
/// that is not known to be of the cluster `id` is refused before the node has a record, for which
/// the changelog would be kept. Otherwise the node looks again while it follows.
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

/// Reads the mark. Blocks, so call it where that is allowed.
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

/// The sequence at which a stream may begin that does not exist yet: 1 for a new store, and behind
/// what a restored one has applied. [`None`] for the store of a node, whose records would be lost.
#[cfg(feature = "nats")]
fn stream_begins(store: &LocalStore) -> Result<Option<u64>, ServerError> {
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

/// The interval between two reads of the changelog of each shard, by the number of shards.
#[cfg(feature = "nats")]
fn follow_interval(shards: usize) -> Duration {
    FOLLOW_INTERVAL
        * u32::try_from(shards)
            .unwrap_or(u32::MAX)
            .div_ceil(FOLLOWED_AT_ONCE)
}

/// TLS to the servers of NATS. A client certificate of this node is added to `certificates`.
#[cfg(feature = "nats")]
pub(super) fn nats_tls(
    cluster: &config::Cluster,
    config: &Config,
    certificates: &mut Vec<Arc<ReloadableCertificate>>,
) -> Result<rustls::ClientConfig, TrustError> {
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
    Ok(tls)
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
pub(crate) fn living(_: &Config) -> Result<Vec<String>, ServerError> {
    Err(
        ClusterError::Engine("this build of gridhook has no NATS client (feature nats)".to_owned())
            .into(),
    )
}
