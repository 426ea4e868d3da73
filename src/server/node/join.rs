//! How a server becomes a node: its connections to NATS, its listener for other nodes and its claims.

#[cfg(not(feature = "nats"))]
use std::sync::Arc;
#[cfg(feature = "nats")]
use std::{
    fs,
    net::TcpListener,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

#[cfg(feature = "nats")]
use actix_web::web;

use super::{ClusterError, ClusterNode};
#[cfg(feature = "nats")]
use super::{DRAIN_MAX, StoppableLog, check_unreplicated, is_lost, options};
#[cfg(feature = "nats")]
use crate::{
    admin::ClusterContext,
    cluster::{
        self,
        balance::{NodeId, Strategy},
        claim::ClaimSettings,
        lease::LeaseIntervals,
        member::Member,
        records::OwnershipScope,
    },
    deliver::{
        TlsTrust,
        trust::{TrustError, TrustRoots},
    },
    journal::{
        changelog::Changelog,
        replicated::{FollowError, ShardCopy},
    },
    server::{
        front::hop::{NodeSecret, OwnerConnector},
        io_error, settings,
        tls::{self, NodeTls, ReloadableCertificate},
    },
    store::Store as _,
};
use crate::{
    config::{self, Config},
    server::ServerError,
    store::rocks::RocksStore,
};

/// The fewest bytes of the secret of the nodes.
#[cfg(feature = "nats")]
const SECRET_BYTES_MIN: usize = 16;

/// Connects to the cluster, and begins to claim.
#[cfg(feature = "nats")]
pub(in crate::server) async fn join(
    cluster: &config::Cluster,
    config: &Config,
    store: Arc<RocksStore>,
) -> Result<ClusterNode, ServerError> {
    let is_new = check_unreplicated(&*store).is_ok();
    let secret = secret(&cluster.secret_file)?;
    let listener = TcpListener::bind(cluster.listen);
    let listener = listener.map_err(io_error(format!("cluster.node_listen: cannot listen on {}", cluster.listen)))?;
    let address = match &cluster.advertise {
        Some(address) => address.clone(),
        None => listener.local_addr().map_err(io_error("cluster.node_listen"))?.to_string(),
    };
    let node_tls = cluster.node_tls.as_ref().map(NodeTls::load).transpose()?;
    let mut certificates: Vec<_> = node_tls.iter().map(|tls| Arc::clone(&tls.certificate)).collect();
    let tls = cluster.urls.iter().any(|url| url.starts_with("tls:"));
    let tls = tls.then(|| nats_tls(cluster, config, &mut certificates)).transpose()?;
    let of_cluster = cluster.clone();
    let opened = tokio::task::spawn_blocking(move || nats::open(&of_cluster, tls.as_ref(), is_new));
    let nats::Opened { log, id, earlier, records, connection } = opened.await.expect("connecting does not panic")?;
    let positions = positions(Arc::clone(&store), Arc::clone(&log)).await?;
    let intervals = LeaseIntervals::new(cluster.renew, cluster.expiry);
    let claims = ClaimSettings {
        me: NodeId(uuid::Uuid::new_v4().to_string()),
        name: cluster.node.clone(),
        address: address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shards: cluster.shards,
        intervals: intervals.map_err(|error| ClusterError::Engine(error.to_string()))?,
        strategy: Strategy::Greedy,
        drain_wait: 2 * DRAIN_MAX,
        scope: OwnershipScope {
            fully_qualified_namespace: cluster.name.clone(),
            event_hub_name: "gridhook".to_owned(),
            consumer_group: "$Default".to_owned(),
        },
    };
    let (claim, driver) = cluster::claim(0);
    claim.progress.applied.store(positions, Ordering::Release);
    claim.progress.flushed.store(positions, Ordering::Release);
    claim.progress.continue_clock(earlier);
    let (member, membership) = Member::new(records, claims, vec![driver]);
    // On a thread of its own, because a busy server must not lose its lease.
    let (tls, tls_connector) = node_tls.map(|NodeTls { server, client, .. }| (server, Arc::new(client).into())).unzip();
    let connector = OwnerConnector::new(secret.clone(), tls_connector);
    let of_member = connector.clone();
    let member = member.with_handshake(Arc::new(move |connection, address: String| {
        let connector = of_member.clone();
        Box::pin(async move { Ok(Box::new(connector.handshake(connection, &address, None).await?) as _) })
    }));
    if !certificates.is_empty() {
        connection.runtime().spawn(tls::keep_node_fresh(certificates.clone(), config.server.tls_reload));
    }
    let member = Some(connection.runtime().spawn(member.run()));
    let log = Arc::new(StoppableLog::of(log));
    let (name, keep_bytes) = (cluster.node.clone(), cluster.stream_keep_bytes);
    let cluster_context = ClusterContext {
        cluster: cluster.name.clone(),
        node: name.clone(),
        membership: membership.clone(),
        forwarded: Arc::default(),
    };
    Ok(ClusterNode {
        id,
        name,
        claim,
        membership,
        cluster_context: web::Data::new(cluster_context),
        secret,
        connector,
        tls,
        certificates,
        address,
        member,
        log,
        lost: Arc::default(),
        store,
        keep_bytes,
        listener,
        _records: Box::new(connection),
    })
}

/// What the local store has applied and synced, before the record of this node says so. A store that cannot follow the
/// changelog is refused before the node has a record, for which the changelog would be kept.
#[cfg(feature = "nats")]
async fn positions(store: Arc<RocksStore>, log: Arc<dyn Changelog>) -> Result<u64, ClusterError> {
    let read = move || match ShardCopy::open(Arc::clone(&store) as _, log, options()) {
        Ok(copy) => {
            store.note_watermark()?;
            Ok(copy.position().sequence)
        }
        Err(error) if !matches!(error, FollowError::Log(_)) && !is_lost(&error) => Err(error),
        // The node looks again while it follows.
        Err(_) => Ok(0),
    };
    let read = tokio::task::spawn_blocking(read).await.expect("reading a store does not panic");
    Ok(read?)
}

/// TLS to the servers of NATS. A client certificate of this node is added to `certificates`.
#[cfg(feature = "nats")]
fn nats_tls(
    cluster: &config::Cluster,
    config: &Config,
    certificates: &mut Vec<Arc<ReloadableCertificate>>,
) -> Result<rustls::ClientConfig, TrustError> {
    let config::NatsTls { authorities, identity } = &cluster.nats_tls;
    let trust = match authorities {
        Some(file) => {
            let version = settings::version(config.delivery.tls_minimum_version);
            TlsTrust::of(&[TrustRoots::File(file.clone())], version)?
        }
        None => settings::trust(config)?,
    };
    let mut tls = rustls::ClientConfig::clone(&trust.config());
    if let Some(config::IdentityFiles { certificate, key }) = identity {
        let certificate = Arc::new(ReloadableCertificate::load(certificate.clone(), key.clone())?);
        tls.client_auth_cert_resolver = Arc::clone(&certificate) as _;
        tls.resumption = rustls::client::Resumption::default();
        certificates.push(certificate);
    }
    Ok(tls)
}

/// The secret of the nodes.
#[cfg(feature = "nats")]
fn secret(path: &Path) -> Result<NodeSecret, ClusterError> {
    let wrong =
        |what| ClusterError::Setting { key: "cluster.secret_file", what: format!("{}: {what}", path.display()) };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    match text.trim().as_bytes() {
        secret if secret.len() >= SECRET_BYTES_MIN => Ok(NodeSecret::new(secret)),
        _ => Err(wrong(format!("the secret is too short; allowed are {SECRET_BYTES_MIN} characters or more"))),
    }
}

#[cfg(not(feature = "nats"))]
pub(in crate::server) async fn join(
    _: &config::Cluster,
    _: &Config,
    _: Arc<RocksStore>,
) -> Result<ClusterNode, ServerError> {
    Err(ClusterError::Engine("this build of gridhook has no NATS client (feature nats)".to_owned()).into())
}

/// Connections to NATS.
#[cfg(feature = "nats")]
mod nats {
    use std::{fs, path::Path, sync::Arc};

    use super::{super::PAUSE_MAX, ClusterError};
    use crate::{
        cluster::{
            nats::NatsRecords,
            records::{self, ClusterRecords, RecordError, RecordStore as _, ShardPosition, StoredRecord, shard_key},
        },
        config::{Cluster, NatsLogin},
        journal::changelog::{
            Changelog,
            nats::{Credentials, NatsConnection, NatsError, StreamSettings},
        },
    };

    /// How often the records are read again at the start.
    const READ_TRIES: u32 = 20;

    /// What a node uses in NATS.
    pub(super) struct Opened {
        pub(super) log: Arc<dyn Changelog>,
        /// The identifier of the cluster.
        pub(super) id: String,
        /// What the last process of this node said of its shard.
        pub(super) earlier: ShardPosition,
        pub(super) records: NatsRecords,
        /// The connection of the records. Its thread ends with it.
        pub(super) connection: NatsConnection,
    }

    /// Connects. Blocks.
    pub(super) fn open(
        cluster: &Cluster,
        tls: Option<&rustls::ClientConfig>,
        is_new: bool,
    ) -> Result<Opened, ClusterError> {
        let connect = |login: &NatsLogin| {
            let credentials = credentials(login)?;
            NatsConnection::log_in(&cluster.urls, &credentials, tls).map_err(of_nats)
        };
        if let Some(login) = &cluster.system_login {
            connect(login)?.check_sync().map_err(of_nats)?;
        }
        // Records of claims do not wait behind large records of the changelog.
        let (of_log, of_records) = (connect(&cluster.login)?, connect(&cluster.login)?);
        let name = format!("GH_{}_0", cluster.name);
        let bucket = format!("GH_{}", cluster.name);
        let runtime = of_records.runtime().clone();
        let records = runtime.block_on(NatsRecords::open(&of_records, &bucket, cluster.replicas)).map_err(of_nats)?;
        // A bucket that was just made may not have a server that answers yet.
        let mut tries = READ_TRIES;
        let (known, id) = loop {
            match runtime.block_on(known(&records)) {
                Err(_) if tries > 0 => std::thread::sleep(PAUSE_MAX),
                known => break known.map_err(|error| ClusterError::Engine(error.to_string()))?,
            }
            tries -= 1;
        };
        let nodes = ClusterRecords::of(&known, cluster.shards).nodes;
        let earlier =
            nodes.get(&cluster.node).and_then(|node| node.value.positions.first().copied()).unwrap_or_default();
        // A stream that is missing once a node has owned the shard has lost its records.
        if is_new && !known.iter().any(|record| record.key == shard_key(0)) {
            let bytes_max = i64::try_from(cluster.stream_bytes).ok().filter(|bytes| *bytes > 0);
            of_log.create(&name, StreamSettings { replicas: cluster.replicas, bytes_max }).map_err(of_nats)?;
        }
        if let Some(most) = of_log.bytes_max(&name).filter(|most| *most < 2 * cluster.stream_keep_bytes) {
            let what = format!("the stream {name} takes {most} bytes; allowed is at most half of that");
            return Err(ClusterError::Setting { key: "cluster.stream_keep_bytes", what });
        }
        let log = Arc::new(of_log.changelog(&name));
        Ok(Opened { log, id, earlier, records, connection: of_records })
    }

    /// All records, and the identifier of the cluster.
    async fn known(store: &NatsRecords) -> Result<(Vec<StoredRecord>, String), RecordError> {
        let known = store.read().await?;
        let id = records::cluster_id(store, &known).await?;
        Ok((known, id))
    }

    fn of_nats(error: NatsError) -> ClusterError {
        ClusterError::Engine(error.to_string())
    }

    fn credentials(login: &NatsLogin) -> Result<Credentials, ClusterError> {
        let read = |key: &'static str, path: &Path| {
            let text = fs::read_to_string(path);
            let failed = |error| ClusterError::Setting { key, what: format!("{}: {error}", path.display()) };
            text.map(|text| text.trim_end().to_owned()).map_err(failed)
        };
        Ok(match login {
            NatsLogin::Anonymous => Credentials::None,
            NatsLogin::Credentials(path) => Credentials::File(read("cluster.credentials", path)?),
            NatsLogin::Password(name, path) => {
                Credentials::Password(name.clone(), read("cluster.password_file", path)?)
            }
        })
    }
}
