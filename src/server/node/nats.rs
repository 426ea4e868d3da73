//! What a node has in NATS: it opens its streams and the bucket of records, and makes those that are
//! missing as large as NATS has room for.

use std::{fs, path::Path, sync::Arc, time::Duration};

use super::{ClusterError, PAUSE_MAX, tenure::StreamLimits};
use gridhook_cluster::{
    bucket_name, control_of,
    nats::{BUCKET_BYTES, NatsRecords},
    records::{
        self, ClusterRecords, RecordError, RecordStore as _, SHARDS, ShardPosition, StoredRecord,
        shard_key,
    },
    stream_name,
};
use gridhook_config::{Cluster, NatsLogin, count_with_control};
use gridhook_deliver::resource::nats::credentials::Credentials;
use gridhook_journal::changelog::{
    Changelog,
    nats::{Login, NatsConnection, NatsError, ReadLogin, StreamSettings},
};

/// How often the records are read again at the start.
const READ_TRIES: u32 = 20;

/// Without `cluster.stream_bytes`, the limit of a stream is `cluster.stream_keep_bytes` times
/// [`STREAM_KEEPS`], and at least [`STREAM_BYTES`].
const STREAM_KEEPS: u64 = 4;
const STREAM_BYTES: u64 = 1 << 30;

/// The smallest limit of a stream, for servers that lack room for a larger one.
const STREAM_BYTES_MIN: u64 = 8 << 20;

/// What a node uses in NATS.
pub(super) struct NatsResources {
    /// The changelog of each shard.
    pub(super) logs: Vec<Arc<dyn Changelog>>,
    /// The identifier of the cluster.
    pub(super) id: String,
    /// The positions in each shard that the last process of this node recorded.
    pub(super) earlier: Vec<ShardPosition>,
    pub(super) records: NatsRecords,
    /// The connection of the records. Its thread ends with it.
    pub(super) connection: NatsConnection,
    /// The connection to the system account, which checks servers that are down now.
    pub(super) system_connection: Option<NatsConnection>,
    /// The limits of the stream of each shard.
    pub(super) streams: Vec<StreamLimits>,
}

/// Connects. `first_sequences` has the sequence of each shard at which its stream may be made.
/// Blocks.
pub(super) fn open_resources(
    cluster: &Cluster,
    tls: Option<&rustls::ClientConfig>,
    first_sequences: &[Option<u64>],
) -> Result<NatsResources, ClusterError> {
    let connect = |login: &NatsLogin| {
        NatsConnection::connect(&cluster.urls, &login_reader(login)?, tls)
            .map_err(cluster_error_from_nats)
    };
    let system_connection = cluster.system_login.as_ref().map(connect).transpose()?;
    if let Some(connection) = &system_connection {
        connection.check_sync().map_err(cluster_error_from_nats)?;
    }
    // Records of claims do not wait behind large records of the changelog.
    let log_connection = connect(&cluster.login)?;
    let connection = connect(&cluster.login)?;
    let bytes_max = if cluster.stream_bytes > 0 {
        cluster.stream_bytes
    } else {
        derive_stream_bytes(
            cluster,
            &stream_names(cluster),
            &log_connection,
            system_connection.as_ref(),
        )?
    };
    let cores = first_sequences.len();
    let bucket = bucket_name(&cluster.name);
    let runtime = connection.runtime();
    let records = runtime
        .block_on(NatsRecords::open(&connection, &bucket, cluster.replicas))
        .map_err(cluster_error_from_nats)?;
    let (stored, id) = read_records_and_id(cluster, &connection, &records, cores)?;
    if let Err(error) = runtime.block_on(records.remove_deleted(&stored)) {
        tracing::warn!(%error, "records that were deleted stay in the bucket");
    }
    let mut nodes = ClusterRecords::from_stored(&stored, cores).nodes;
    if NatsRecords::is_full(&stored) && !nodes.contains_key(&cluster.node) {
        let what = format!(
            "the bucket {bucket} has {} records; forget nodes that are gone before a new one \
             joins (gridhook cluster forget)",
            stored.len()
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
    let names = stream_names(cluster);
    for ((shard, first_sequence), name) in first_sequences.iter().enumerate().zip(names) {
        // A stream that is missing once a node has owned the shard has lost its records.
        let was_owned = stored.iter().any(|record| record.key == shard_key(shard));
        if let Some(first) = first_sequence.filter(|_| !was_owned) {
            let settings = StreamSettings {
                replicas: cluster.replicas,
                bytes_max: i64::try_from(bytes_max).ok(),
                first,
            };
            log_connection
                .create_stream_if_missing(&name, settings)
                .map_err(cluster_error_from_nats)?;
        }
        streams.push(check_stream(cluster, &log_connection, &name)?);
        logs.push(Arc::new(log_connection.changelog(&name)));
    }
    Ok(NatsResources {
        logs,
        id,
        earlier,
        records,
        connection,
        system_connection,
        streams,
    })
}

/// Reads all records and the identifier of the cluster. Refuses a cluster with another number of
/// shards.
fn read_records_and_id(
    cluster: &Cluster,
    connection: &NatsConnection,
    records: &NatsRecords,
    cores: usize,
) -> Result<(Vec<StoredRecord>, String), ClusterError> {
    let configured_shards = control_of(cores).unwrap_or(cores);
    // A bucket that was just made may not have a server that responds yet.
    let mut tries = READ_TRIES;
    let (stored, shards, id) = loop {
        let reading = read_records(records, configured_shards);
        match connection.runtime().block_on(reading) {
            Err(_) if tries > 0 => std::thread::sleep(PAUSE_MAX),
            result => break result.map_err(|error| ClusterError::Engine(error.to_string()))?,
        }
        tries -= 1;
    };
    if shards == configured_shards {
        return Ok((stored, id));
    }
    Err(other_shards_error(cluster, shards))
}

fn other_shards_error(cluster: &Cluster, shards: usize) -> ClusterError {
    let what = format!(
        "{}, and the cluster {} has {shards}; set {shards} on all nodes (the number is fixed when \
         a cluster is created)",
        cluster.shards, cluster.name
    );
    ClusterError::Setting {
        key: "cluster.shards",
        what,
    }
}

/// The number of shards in the records of a cluster.
pub(super) fn stored_shards(stored: &[StoredRecord]) -> Option<usize> {
    let record = stored.iter().find(|record| record.key == SHARDS)?;
    std::str::from_utf8(&record.value).ok()?.parse().ok()
}

/// How long the number of shards is read before the node joins: NATS may not answer yet.
const CHECK_WAIT: Duration = Duration::from_secs(5);

/// Refuses another number of shards than that of the cluster, before the data folder receives
/// stores that no node can use. A cluster that cannot be read now is checked when the node joins.
/// Blocks.
pub(super) fn check_shards(
    cluster: &Cluster,
    tls: Option<&rustls::ClientConfig>,
) -> Result<(), ClusterError> {
    let read_login = login_reader(&cluster.login)?;
    let Ok(connection) = NatsConnection::connect(&cluster.urls, &read_login, tls) else {
        return Ok(());
    };
    let records = NatsRecords::open_bucket(&connection, &bucket_name(&cluster.name));
    let read = async { tokio::time::timeout(CHECK_WAIT, records.read()).await };
    let Ok(Ok(stored)) = connection.runtime().block_on(read) else {
        return Ok(());
    };
    match stored_shards(&stored) {
        Some(shards) if shards != cluster.shards => Err(other_shards_error(cluster, shards)),
        Some(_) | None => Ok(()),
    }
}

/// Reads the limits of a stream. Refuses one that is too small for `cluster.stream_keep_bytes`, if
/// `cluster.stream_bytes` is set; otherwise the stream keeps less.
fn check_stream(
    cluster: &Cluster,
    connection: &NatsConnection,
    name: &str,
) -> Result<StreamLimits, ClusterError> {
    let mut tries = READ_TRIES;
    let stream = loop {
        match connection.find_stream(name) {
            // Servers that have just started do not respond at first.
            Err(NatsError::Use { .. }) if tries > 0 => std::thread::sleep(PAUSE_MAX),
            stream => break stream.map_err(cluster_error_from_nats)?,
        }
        tries -= 1;
    };
    let is_there = stream.is_some();
    let bytes_max = stream.and_then(|stream| stream.bytes_max);
    if is_there && bytes_max.is_none() {
        tracing::warn!(
            stream = name,
            "the stream has no limit of bytes; a full NATS server then takes no record of the \
             cluster"
        );
    }
    if let Some(most) = bytes_max.filter(|most| *most < 2 * cluster.stream_keep_bytes)
        && cluster.stream_bytes > 0
    {
        let what = format!(
            "{} bytes, and the stream {name} takes {most}; set at most {}",
            cluster.stream_keep_bytes,
            most / 2
        );
        return Err(ClusterError::Setting {
            key: "cluster.stream_keep_bytes",
            what,
        });
    }
    Ok(StreamLimits::new(bytes_max, cluster.stream_keep_bytes))
}

/// The names of the streams of all shards, and of the control plane.
pub(super) fn stream_names(cluster: &Cluster) -> Vec<String> {
    let all = count_with_control(cluster.shards);
    (0..all)
        .map(|shard| stream_name(&cluster.name, shard, all))
        .collect()
}

/// The limit of each stream that is missing, so that all of them and the bucket fit: NATS reserves
/// that much. Waits for room while other nodes may be making some of them.
fn derive_stream_bytes(
    cluster: &Cluster,
    names: &[String],
    connection: &NatsConnection,
    system_connection: Option<&NatsConnection>,
) -> Result<u64, ClusterError> {
    let bytes_max = (STREAM_KEEPS * cluster.stream_keep_bytes).max(STREAM_BYTES);
    let mut tries = READ_TRIES;
    loop {
        let error = match find_share(cluster, names, connection, system_connection) {
            Ok(share) => return Ok(bytes_max.min(share)),
            Err(error) => error,
        };
        if tries == 0 {
            return Err(error);
        }
        // Servers that have just started do not respond at first, and another node may be about to
        // make the streams.
        tries -= 1;
        std::thread::sleep(PAUSE_MAX);
    }
}

/// The bytes that NATS has for each stream that is missing.
///
/// # Errors
/// If NATS does not respond, or has too little room.
fn find_share(
    cluster: &Cluster,
    names: &[String],
    connection: &NatsConnection,
    system_connection: Option<&NatsConnection>,
) -> Result<u64, ClusterError> {
    let mut missing = 0;
    for name in names {
        let is_there = connection.has_stream(name);
        missing += u64::from(!is_there.map_err(cluster_error_from_nats)?);
    }
    if missing == 0 {
        return Ok(u64::MAX);
    }
    let room = find_room(cluster, connection, system_connection)?;
    // A part is left for other streams, such as that of a check.
    let share = room.saturating_sub(BUCKET_BYTES) / 4 * 3 / missing;
    if share >= STREAM_BYTES_MIN {
        return Ok(share);
    }
    let what = format!(
        "NATS has {room} bytes of free storage for {missing} streams, and each needs \
         {STREAM_BYTES_MIN} or more; raise max_file_store of its servers, or the limit of the \
         account"
    );
    Err(ClusterError::Setting {
        key: "cluster.stream_bytes",
        what,
    })
}

/// The bytes that the account and each server have for new streams.
fn find_room(
    cluster: &Cluster,
    connection: &NatsConnection,
    system_connection: Option<&NatsConnection>,
) -> Result<u64, ClusterError> {
    let account_room = connection
        .find_account_room(cluster.replicas)
        .map_err(cluster_error_from_nats)?;
    let server_room = match system_connection {
        Some(connection) => connection
            .find_server_room()
            .map_err(cluster_error_from_nats)?,
        None => None,
    };
    let room = account_room.into_iter().chain(server_room).min();
    Ok(room.unwrap_or(u64::MAX))
}

/// The names of the nodes whose records change within the time after which a node is dead.
pub(super) fn list_living_nodes(
    cluster: &Cluster,
    tls: Option<&rustls::ClientConfig>,
) -> Result<Vec<String>, ClusterError> {
    let connection = NatsConnection::connect(&cluster.urls, &login_reader(&cluster.login)?, tls)
        .map_err(cluster_error_from_nats)?;
    let records = NatsRecords::open_bucket(&connection, &bucket_name(&cluster.name));
    let read_nodes = || -> Result<_, ClusterError> {
        let stored = connection.runtime().block_on(records.read());
        let stored = stored.map_err(|error| ClusterError::Engine(error.to_string()))?;
        Ok(ClusterRecords::from_stored(&stored, count_with_control(cluster.shards)).nodes)
    };
    let before = read_nodes()?;
    std::thread::sleep(cluster.expiry);
    let mut living_nodes = Vec::new();
    for (name, node) in read_nodes()? {
        let earlier = before.get(&name);
        if earlier.is_none_or(|earlier| earlier.revision != node.revision) {
            living_nodes.push(name);
        }
    }
    Ok(living_nodes)
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

pub(super) fn cluster_error_from_nats(error: NatsError) -> ClusterError {
    ClusterError::Engine(error.to_string())
}

/// Reads the files of a login for each connection.
///
/// # Errors
/// If they cannot be used now.
pub(super) fn login_reader(login: &NatsLogin) -> Result<ReadLogin, ClusterError> {
    read_login(login, &[])?;
    let login = login.clone();
    Ok(Arc::new(move |nonce| {
        read_login(&login, nonce).map_err(|error| error.to_string())
    }))
}

fn read_login(login: &NatsLogin, nonce: &[u8]) -> Result<Login, ClusterError> {
    Ok(match login {
        NatsLogin::Anonymous => Login::Anonymous,
        NatsLogin::Credentials(path) => {
            let text = read_credential("cluster.credentials", path)?;
            let Some(credentials) = Credentials::parse(&text) else {
                return Err(ClusterError::Setting {
                    key: "cluster.credentials",
                    what: format!(
                        "{} is not a credentials file of NATS; expected the JWT and the seed of a \
                         user",
                        path.display()
                    ),
                });
            };
            Login::Signed(credentials.jwt().to_owned(), credentials.sign(nonce))
        }
        NatsLogin::Password(user, path) => {
            let password = read_credential("cluster.password_file", path)?;
            Login::Password(user.clone(), password)
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
