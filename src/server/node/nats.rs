//! What a node has in NATS: it opens its streams and the bucket of records, and makes those that are
//! missing as large as NATS has room for.

use std::{fs, path::Path, sync::Arc};

use super::{ClusterError, PAUSE_MAX, tenure::StreamLimits};
use gridhook_cluster::{
    control_of, count_with_control,
    nats::{BUCKET_BYTES, NatsRecords},
    records::{
        self, ClusterRecords, RecordError, RecordStore as _, ShardPosition, StoredRecord, shard_key,
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

/// Without `cluster.stream_bytes`, the limit of a stream is `cluster.stream_keep_bytes` times
/// [`STREAM_KEEPS`], and at least [`STREAM_BYTES`].
const STREAM_KEEPS: u64 = 4;
const STREAM_BYTES: u64 = 1 << 30;

/// The least size, which holds some records, where the servers lack room for the other.
const STREAM_BYTES_MIN: u64 = 8 << 20;

/// The connections and logs of a node in NATS.
pub(super) struct Opened {
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

/// Connects. `begins` has the sequence of each shard at which its stream may be made. Blocks.
pub(super) fn open(
    cluster: &Cluster,
    tls: Option<&rustls::ClientConfig>,
    begins: &[Option<u64>],
) -> Result<Opened, ClusterError> {
    let connect = |login: &NatsLogin| {
        let credentials = nats_credentials(login)?;
        NatsConnection::log_in(&cluster.urls, &credentials, tls).map_err(cluster_error_from_nats)
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
    // A bucket that was just made may not have a server that responds yet.
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
pub(super) fn stream_names(cluster: &Cluster) -> Vec<String> {
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
    let connection = NatsConnection::log_in(&cluster.urls, &nats_credentials(&cluster.login)?, tls)
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

pub(super) fn cluster_error_from_nats(error: NatsError) -> ClusterError {
    ClusterError::Engine(error.to_string())
}

pub(super) fn nats_credentials(login: &NatsLogin) -> Result<Credentials, ClusterError> {
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
