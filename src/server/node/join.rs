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
    /// What it is for each shard.
    pub nodes: Vec<ClusterNode>,
    /// Its part in the cluster. Ends when it has left.
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

/// The same with one shard, whose node is all of the process.
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

/// Blocks.
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
    let wrong = |what| ClusterError::Setting {
        key: "cluster.secret_file",
        what: format!("{}: {what}", path.display()),
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    match text.trim().as_bytes() {
        secret if secret.len() >= SECRET_BYTES_MIN => Ok(NodeSecret::new(secret)),
        _ => Err(wrong(format!(
            "the secret is too short; expected {SECRET_BYTES_MIN} characters or more"
        ))),
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

#[cfg(feature = "nats")]
pub(super) mod nats {
    use std::{fs, path::Path, sync::Arc};

    use super::{
        super::{PAUSE_MAX, tenure::StreamLimits},
        ClusterError,
    };
    use gridhook_cluster::{
        control_of, count_with_control,
        nats::{BUCKET_BYTES, NatsRecords},
        records::{
            self, ClusterRecords, RecordError, RecordStore as _, ShardPosition, StoredRecord,
            shard_key,
        },
        stream_name,
    };
    use gridhook_config::{Cluster, NatsLogin};
    use gridhook_journal::changelog::{
        Changelog,
        nats::{Credentials, NatsConnection, NatsError, StreamSettings},
    };

    /// How often the records are read again at the start.
    const READ_TRIES: u32 = 20;

    /// Without `cluster.stream_bytes`, the limit of a stream is this multiple of
    /// `cluster.stream_keep_bytes`, and at least as much as here.
    const STREAM_KEEPS: u64 = 4;
    const STREAM_BYTES: u64 = 1 << 30;

    /// The least size, which holds some records, where the servers lack room for the other.
    const STREAM_BYTES_MIN: u64 = 8 << 20;

    /// What a node uses in NATS.
    pub(super) struct Opened {
        /// The changelog of each shard.
        pub(super) logs: Vec<Arc<dyn Changelog>>,
        /// The identifier of the cluster.
        pub(super) id: String,
        /// What the last process of this node said of each shard.
        pub(super) earlier: Vec<ShardPosition>,
        pub(super) records: NatsRecords,
        /// The connection of the records. Its thread ends with it.
        pub(super) connection: NatsConnection,
        /// The connection to the system account, which checks servers that are down now.
        pub(super) system_connection: Option<NatsConnection>,
        /// The limits of the stream of each shard.
        pub(super) streams: Vec<StreamLimits>,
    }

    /// Connects. `begins` has the sequence of each shard at which its stream may be made. Blocks.
    pub(super) fn open(
        cluster: &Cluster,
        tls: Option<&rustls::ClientConfig>,
        begins: &[Option<u64>],
    ) -> Result<Opened, ClusterError> {
        let connect = |login: &NatsLogin| {
            let credentials = nats_credentials(login)?;
            NatsConnection::log_in(&cluster.urls, &credentials, tls)
                .map_err(cluster_error_from_nats)
        };
        let system_connection = cluster.system_login.as_ref().map(connect).transpose()?;
        if let Some(connection) = &system_connection {
            connection.check_sync().map_err(cluster_error_from_nats)?;
        }
        // Records of claims do not wait behind large records of the changelog.
        let of_log = connect(&cluster.login)?;
        let of_records = connect(&cluster.login)?;
        let bucket = format!("GH_{}", cluster.name);
        let bytes_max = if cluster.stream_bytes > 0 {
            cluster.stream_bytes
        } else {
            derive_stream_bytes(
                cluster,
                &stream_names(cluster),
                &of_log,
                system_connection.as_ref(),
            )?
        };
        let runtime = of_records.runtime().clone();
        let records = runtime
            .block_on(NatsRecords::open(&of_records, &bucket, cluster.replicas))
            .map_err(cluster_error_from_nats)?;
        let control = control_of(begins.len());
        let set = control.unwrap_or(begins.len());
        // A bucket that was just made may not have a server that answers yet.
        let mut tries = READ_TRIES;
        let (known, shards, id) = loop {
            match runtime.block_on(read_records(&records, set)) {
                Err(_) if tries > 0 => std::thread::sleep(PAUSE_MAX),
                known => break known.map_err(|error| ClusterError::Engine(error.to_string()))?,
            }
            tries -= 1;
        };
        if shards != set {
            let name = &cluster.name;
            let what = format!(
                "{set}, and the cluster {name} has {shards}; set {shards} on all nodes (the number \
                 is fixed when a cluster is created)"
            );
            return Err(ClusterError::Setting {
                key: "cluster.shards",
                what,
            });
        }
        if let Err(error) = runtime.block_on(records.remove_deleted(&known)) {
            tracing::warn!(%error, "records that were deleted stay in the bucket");
        }
        let mut nodes = ClusterRecords::from_stored(&known, begins.len()).nodes;
        if NatsRecords::is_full(&known) && !nodes.contains_key(&cluster.node) {
            let what = format!(
                "the bucket {bucket} has {} records; forget nodes that are gone before a new one \
                 joins (gridhook cluster forget)",
                known.len()
            );
            return Err(ClusterError::Setting {
                key: "cluster.node",
                what,
            });
        }
        let earlier = nodes
            .remove(&cluster.node)
            .map(|node| node.value.positions)
            .unwrap_or_default();
        let mut logs: Vec<Arc<dyn Changelog>> = Vec::new();
        let mut streams = Vec::new();
        for ((shard, begins), name) in begins.iter().enumerate().zip(stream_names(cluster)) {
            // A stream that is missing once a node has owned the shard has lost its records.
            let was_owned = known.iter().any(|record| record.key == shard_key(shard));
            if let Some(first) = begins.filter(|_| !was_owned) {
                let settings = StreamSettings {
                    replicas: cluster.replicas,
                    bytes_max: i64::try_from(bytes_max).ok(),
                    first,
                };
                of_log
                    .create(&name, settings)
                    .map_err(cluster_error_from_nats)?;
            }
            let stream = of_log.find_stream(&name).map_err(cluster_error_from_nats)?;
            let bytes_max = stream.and_then(|stream| stream.bytes_max);
            if stream.is_some() && bytes_max.is_none() {
                tracing::warn!(
                    stream = name,
                    "the stream has no limit of bytes; a full NATS server then takes no record of \
                     the cluster"
                );
            }
            if let Some(most) = bytes_max.filter(|most| *most < 2 * cluster.stream_keep_bytes)
                && cluster.stream_bytes > 0
            {
                let what =
                    format!("the stream {name} takes {most} bytes; expected at most half of that");
                return Err(ClusterError::Setting {
                    key: "cluster.stream_keep_bytes",
                    what,
                });
            }
            logs.push(Arc::new(of_log.changelog(&name)));
            streams.push(StreamLimits::new(bytes_max, cluster.stream_keep_bytes));
        }
        Ok(Opened {
            logs,
            id,
            earlier,
            records,
            connection: of_records,
            system_connection,
            streams,
        })
    }

    /// The names of the streams of all shards, and of the control plane.
    pub(in super::super) fn stream_names(cluster: &Cluster) -> Vec<String> {
        let all = count_with_control(cluster.shards);
        (0..all)
            .map(|shard| stream_name(&cluster.name, shard, all))
            .collect()
    }

    /// The limit of each stream that is made now, so that all of them and the bucket fit together:
    /// NATS reserves it. Other nodes may make some meanwhile, which then takes a part of the room.
    fn derive_stream_bytes(
        cluster: &Cluster,
        names: &[String],
        connection: &NatsConnection,
        system_connection: Option<&NatsConnection>,
    ) -> Result<u64, ClusterError> {
        let bytes_max = (STREAM_KEEPS * cluster.stream_keep_bytes).max(STREAM_BYTES);
        let mut tries = READ_TRIES;
        loop {
            let is_there = |name: &str| connection.count_replicas(name).is_some();
            let missing = names.iter().filter(|name| !is_there(name)).count() as u64;
            if missing == 0 {
                return Ok(bytes_max);
            }
            let room = match find_room(cluster, connection, system_connection) {
                // Servers that have just started do not respond at first.
                Err(_) if tries > 0 => {
                    tries -= 1;
                    continue;
                }
                room => room?,
            };
            // A part is left for other streams, such as that of a check.
            let share = room.saturating_sub(BUCKET_BYTES) / 4 * 3 / missing;
            if share >= STREAM_BYTES_MIN {
                return Ok(bytes_max.min(share));
            }
            if tries == 0 {
                let what = format!(
                    "NATS has {room} bytes of free storage for {missing} streams, and each needs \
                     {STREAM_BYTES_MIN} or more; raise max_file_store of its servers, or the limit \
                     of the account"
                );
                return Err(ClusterError::Setting {
                    key: "cluster.stream_bytes",
                    what,
                });
            }
            // Another node may be about to make them.
            tries -= 1;
            std::thread::sleep(PAUSE_MAX);
        }
    }

    /// The bytes that the account and each server have for new streams.
    fn find_room(
        cluster: &Cluster,
        connection: &NatsConnection,
        system_connection: Option<&NatsConnection>,
    ) -> Result<u64, ClusterError> {
        let of_account = connection.find_account_room(cluster.replicas);
        let of_servers = system_connection.map_or(Ok(None), NatsConnection::find_server_room);
        let mut room = u64::MAX;
        for one in [of_account, of_servers] {
            let one = one.map_err(cluster_error_from_nats)?;
            room = room.min(one.unwrap_or(u64::MAX));
        }
        Ok(room)
    }

    /// The names of the nodes whose records change within the time after which a node is dead.
    pub(super) fn living(
        cluster: &Cluster,
        tls: Option<&rustls::ClientConfig>,
    ) -> Result<Vec<String>, ClusterError> {
        let connection =
            NatsConnection::log_in(&cluster.urls, &nats_credentials(&cluster.login)?, tls)
                .map_err(cluster_error_from_nats)?;
        let records = NatsRecords::open_bucket(&connection, &format!("GH_{}", cluster.name));
        let read_nodes = || -> Result<_, ClusterError> {
            let stored = connection.runtime().block_on(records.read());
            let stored = stored.map_err(|error| ClusterError::Engine(error.to_string()))?;
            Ok(ClusterRecords::from_stored(&stored, count_with_control(cluster.shards)).nodes)
        };
        let before = read_nodes()?;
        std::thread::sleep(cluster.expiry);
        let mut living = Vec::new();
        for (name, node) in read_nodes()? {
            let earlier = before.get(&name);
            if earlier.is_none_or(|earlier| earlier.revision != node.revision) {
                living.push(name);
            }
        }
        Ok(living)
    }

    /// All records, the number of shards and the identifier of the cluster.
    async fn read_records(
        store: &NatsRecords,
        shards: usize,
    ) -> Result<(Vec<StoredRecord>, usize, String), RecordError> {
        let cluster_records = store.read().await?;
        let shards = records::cluster_shards(store, &cluster_records, shards).await?;
        let id = records::cluster_id(store, &cluster_records).await?;
        Ok((cluster_records, shards, id))
    }

    pub(in super::super) fn cluster_error_from_nats(error: NatsError) -> ClusterError {
        ClusterError::Engine(error.to_string())
    }

    pub(in super::super) fn nats_credentials(
        login: &NatsLogin,
    ) -> Result<Credentials, ClusterError> {
        Ok(match login {
            NatsLogin::Anonymous => Credentials::None,
            NatsLogin::Credentials(path) => {
                Credentials::File(read_credential("cluster.credentials", path)?)
            }
            NatsLogin::Password(name, path) => {
                let password = read_credential("cluster.password_file", path)?;
                Credentials::Password(name.clone(), password)
            }
        })
    }

    /// Reads the file that a setting names.
    fn read_credential(key: &'static str, path: &Path) -> Result<String, ClusterError> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(error) => Err(ClusterError::Setting {
                key,
                what: format!("{}: {error}", path.display()),
            }),
        }
    }
}
