//! The records that the nodes of a cluster share: one for each node, one for each shard, and one
//! for each node that is asked to give everything up.
//!
//! A record changes only by a write that names the revision it had, so that one of two writers
//! fails. The revision of a shard's record is its `ETag`. Records are JSON in a bucket of NATS'
//! key-value store, so that NATS' own tools show them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::balance::{NodeId, ShardRecord};
use gridhook_journal::changelog::StreamMark;

/// The record that a node writes about itself at each renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The identifier of the node, unique to one start of its process.
    pub id: NodeId,
    /// The name of the node, the same after each start.
    pub name: String,
    /// Host and port of the node's listener for other nodes.
    pub address: String,
    /// The release of the node's program.
    pub version: String,
    /// How often the node has renewed this record since its start.
    pub renewals: u64,
    /// The node's positions in the changelog of each shard.
    pub positions: Vec<ShardPosition>,
    /// Whether the node takes no shard, because it stops, has not caught up yet or cannot serve.
    pub leaving: bool,
    /// Whether the node has not caught up yet with a shard.
    #[serde(default)]
    pub behind: bool,
    /// The settings of the node that should be the same on all nodes, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The shards that the node cannot serve before an operator has acted, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<usize, String>,
    /// The newest format of records of the changelog that the node reads.
    pub format: u8,
}

/// A setting that should be the same on two nodes, and is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettingDifference {
    /// The name of the other node.
    pub node: String,
    /// The key of the setting.
    pub setting: String,
    /// The value on this node.
    pub here: String,
    /// The value on the other node.
    pub there: String,
}

/// The positions of a node in the changelog of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardPosition {
    /// The last sequence that the node's store has applied.
    pub applied: u64,
    /// The last sequence that the node's store has synced.
    pub flushed: u64,
    /// The time of the node's clock when its process last owned the shard, in microseconds since
    /// 1970; 0 if it did not.
    #[serde(default)]
    pub time: u64,
    /// Whether the expiry of events was paused at that time.
    #[serde(default)]
    pub expiry_paused: bool,
    /// The sequence of the fence with which the process took the shard then. That of a later owner
    /// is higher, whatever their clocks say.
    #[serde(default)]
    pub epoch: u64,
    /// The copy of the owner's store that the node fetches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyProgress>,
    /// Whether the node has everything of the shard, and follows on.
    #[serde(default)]
    pub complete: bool,
    /// Whether the node leaves the shard to others for now, because it could not serve it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The last record that the node knows the changelog to have acknowledged: no node owns the
    /// shard with a changelog that ends below it.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub mark: StreamMark,
    /// The size of the changelog, as the owner has seen it.
    #[serde(default)]
    pub stream_bytes: u64,
    /// The number of servers that should have the changelog and do not follow, as the owner has
    /// seen it.
    #[serde(default)]
    pub missing_replicas: u64,
}

fn is_unknown(mark: &StreamMark) -> bool {
    mark.position == 0
}

/// The progress of a node that copies the owner's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// The bytes that have arrived.
    pub received: u64,
    /// The bytes of all files; 0 before the owner has responded.
    pub bytes: u64,
}

impl NodeRecord {
    /// Whether the node has everything of a shard.
    pub fn is_complete(&self, shard: usize) -> bool {
        self.positions.get(shard).is_some_and(|at| at.complete)
    }
}

/// The record of the ownership of a shard: the fields of Azure's ownership records, and what a
/// change of the owner needs. The time of the last change is the one at which the store took the
/// record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnershipRecord {
    /// The names of the cluster.
    #[serde(flatten)]
    pub scope: OwnershipScope,
    /// The number of the shard.
    pub partition_id: String,
    pub owner_id: Option<NodeId>,
    /// The node that asked for the shard.
    pub wanted_by: Option<NodeId>,
    /// How often the shard was claimed.
    pub claims: u64,
    /// The last record that its owners know the changelog to have acknowledged.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub mark: StreamMark,
}

/// The names in an ownership record that are the same for all shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnershipScope {
    /// The host name or the name of the cluster.
    pub fully_qualified_namespace: String,
    /// Always `gridhook`: what is divided into partitions.
    pub event_hub_name: String,
    /// Always `$Default`: the nodes that divide it.
    pub consumer_group: String,
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub key: String,
    /// The value; empty once the record was deleted.
    pub value: Bytes,
    /// The revision. Revisions of a bucket only grow.
    pub revision: u64,
    /// The time at which the record was written, by the clock of the store, in the form of RFC
    /// 3339.
    pub written: String,
}

/// Why a record was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record has another revision than expected. Nothing was written.
    #[error("the record was changed meanwhile")]
    Conflict,
    /// No response arrived, so the record may or may not have been written.
    #[error("the records of the cluster cannot be reached: {0}")]
    Unavailable(String),
}

pub trait RecordStore: Send + Sync + 'static {
    /// Reads all records at one time. They may be older than what was last written.
    fn read(&self) -> impl Future<Output = Result<Vec<StoredRecord>, RecordError>> + Send;

    /// Writes a record that has this revision, or none for 0, and returns its new one. An empty
    /// value deletes it.
    fn write(
        &self,
        key: &str,
        value: Bytes,
        revision: u64,
    ) -> impl Future<Output = Result<u64, RecordError>> + Send;
}

/// A record with its revision and the time of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The decoded value of the record.
    pub value: T,
    /// The revision; 0 for a record that does not exist.
    pub revision: u64,
    pub written: String,
}

/// All records, as a node has read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRecords {
    /// The records of nodes, by name. A node that has left keeps its record: the changelog must
    /// have what it needs.
    pub nodes: BTreeMap<String, Versioned<NodeRecord>>,
    /// The names of nodes whose records say nothing, with their revisions: whether the record
    /// cannot be read, as one of a newer release, or was deleted.
    pub unreadable: BTreeMap<String, (bool, u64)>,
    /// The records of shards, by number.
    pub shards: Vec<Versioned<OwnershipRecord>>,
    /// The names of nodes that are drained, or were, and the revision of each request.
    pub drained: BTreeMap<String, (bool, u64)>,
}

const ID: &str = "id";
/// The key of the record with the number of shards.
pub const SHARDS: &str = "shards";
const NODE: &str = "node.";
const SHARD: &str = "shard.";
const DRAINED: &str = "drained.";

/// The identifier of the cluster, which the first node makes. `known` has the records of the last
/// read.
///
/// # Errors
/// If the records cannot be reached, or a node that made one meanwhile is not seen yet.
pub async fn cluster_id(
    store: &impl RecordStore,
    known: &[StoredRecord],
) -> Result<String, RecordError> {
    read_or_write_once(store, known, ID, uuid::Uuid::new_v4().simple().to_string()).await
}

/// The number of shards of the cluster, which is `shards` if this node is the first one. `known`
/// has the records of the last read.
///
/// # Errors
/// If the records cannot be reached, or a number that another node wrote meanwhile is not seen yet.
pub async fn cluster_shards(
    store: &impl RecordStore,
    known: &[StoredRecord],
    shards: usize,
) -> Result<usize, RecordError> {
    read_or_write_once(store, known, SHARDS, shards).await
}

/// The value of a record that the first node writes, and no other one changes.
async fn read_or_write_once<T: Serialize + DeserializeOwned>(
    store: &impl RecordStore,
    known: &[StoredRecord],
    key: &str,
    value: T,
) -> Result<T, RecordError> {
    let find_record =
        |records: &[StoredRecord]| records.iter().find(|record| record.key == key).cloned();
    let decode = |record: &StoredRecord| serde_json::from_slice(&record.value).ok();
    let known_record = find_record(known);
    if let Some(value) = known_record.as_ref().and_then(decode) {
        return Ok(value);
    }
    match store
        .write(
            key,
            encode_record(&value),
            known_record.map_or(0, |deleted| deleted.revision),
        )
        .await
    {
        Ok(_) => Ok(value),
        Err(RecordError::Conflict) => find_record(&store.read().await?)
            .as_ref()
            .and_then(decode)
            .ok_or(RecordError::Conflict),
        Err(error) => Err(error),
    }
}

/// The key of a node's record.
pub fn node_key(name: &str) -> String {
    format!("{NODE}{name}")
}

/// The key of a shard's record.
pub fn shard_key(shard: usize) -> String {
    format!("{SHARD}{shard}")
}

/// The key of the request that a node gives everything up.
pub fn drained_key(name: &str) -> String {
    format!("{DRAINED}{name}")
}

pub(super) fn encode_record(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record)
        .expect("a record has no maps with other keys than text")
        .into()
}

impl ClusterRecords {
    /// Reads the records of a cluster with `shards` shards.
    ///
    /// The record of a shard that cannot be read counts as one without an owner. Otherwise no node
    /// would ever serve a shard whose record was written by hand. So a release may only add fields
    /// to that record, as long as nodes of older releases may run beside it: they would claim each
    /// shard from its owner again and again.
    pub fn from_stored(stored: &[StoredRecord], shards: usize) -> Self {
        let mut records = Self {
            shards: vec![Versioned::default(); shards],
            ..Self::default()
        };
        for stored in stored {
            if let Some(name) = stored.key.strip_prefix(NODE) {
                match decode_record::<NodeRecord>(stored) {
                    Some(node) => drop(records.nodes.insert(name.to_owned(), node)),
                    None => {
                        let of_node = (!stored.value.is_empty(), stored.revision);
                        records.unreadable.insert(name.to_owned(), of_node);
                    }
                }
            } else if let Some(name) = stored.key.strip_prefix(DRAINED) {
                records
                    .drained
                    .insert(name.to_owned(), (!stored.value.is_empty(), stored.revision));
            } else if let Some(number) = stored
                .key
                .strip_prefix(SHARD)
                .and_then(|number| number.parse::<usize>().ok())
                && let Some(shard) = records.shards.get_mut(number)
            {
                shard.revision = stored.revision;
                *shard = decode_record(stored).unwrap_or_else(|| std::mem::take(shard));
            }
        }
        records
    }

    /// The node with this identifier.
    pub fn find_node(&self, id: &NodeId) -> Option<&NodeRecord> {
        self.nodes
            .values()
            .map(|node| &node.value)
            .find(|node| node.id == *id)
    }

    /// The settings in which living nodes differ from this one. One that only one of two nodes
    /// writes is not compared: they are of two releases.
    pub fn setting_differences(
        &self,
        me: &NodeId,
        alive: &BTreeSet<NodeId>,
    ) -> BTreeSet<SettingDifference> {
        let Some(own) = self.find_node(me) else {
            return BTreeSet::new();
        };
        let living = self
            .nodes
            .values()
            .map(|node| &node.value)
            .filter(|node| alive.contains(&node.id));
        living
            .flat_map(|node| compare_settings(own, node))
            .collect()
    }

    /// The newest format of records that all of these nodes read, and `own`.
    pub fn common_format(&self, own: u8, alive: &BTreeSet<NodeId>) -> u8 {
        let nodes = self.nodes.values().map(|node| &node.value);
        let living = nodes.filter(|node| alive.contains(&node.id));
        living.map(|node| node.format).fold(own, u8::min)
    }

    /// Each node and the revision of its record.
    pub fn revisions(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.nodes
            .values()
            .map(|node| (node.value.id.clone(), node.revision))
    }

    /// The names of the nodes, for a message.
    pub fn node_names(&self) -> String {
        self.nodes
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The nodes that take no shard.
    pub fn leaving_nodes(&self) -> BTreeSet<NodeId> {
        let is_drained = |name: &str| {
            self.drained
                .get(name)
                .is_some_and(|(is_drained, _)| *is_drained)
        };
        let leaving = self
            .nodes
            .iter()
            .filter(|(name, node)| node.value.leaving || is_drained(name));
        leaving.map(|(_, node)| node.value.id.clone()).collect()
    }

    /// The records of a shard's changelog that the nodes and owners know to be acknowledged.
    pub fn marks(&self, shard: usize) -> impl Iterator<Item = StreamMark> {
        let shard_mark = self.shards.get(shard).map(|shard| shard.value.mark);
        let node_marks = self
            .nodes
            .values()
            .filter_map(move |node| Some(node.value.positions.get(shard)?.mark));
        shard_mark.into_iter().chain(node_marks)
    }

    /// The name and the position of the node that owned a shard last and has reported its time
    /// since, if there is one.
    pub fn latest_owner(&self, shard: usize) -> Option<(&str, ShardPosition)> {
        let positions = self
            .nodes
            .iter()
            .filter_map(|(name, node)| Some((&**name, *node.value.positions.get(shard)?)));
        positions
            .filter(|(_, at)| at.time > 0)
            .max_by_key(|(_, at)| at.epoch)
    }

    /// The position up to which the changelog of a shard may be trimmed: the lowest one that a node
    /// has synced, if all have complete copies. 0: not at all.
    ///
    /// A node that is dead keeps what it needs. What a record that cannot be read says is not
    /// known.
    pub fn trimmable_through(&self, shard: usize) -> u64 {
        let is_unknown = |(is_there, _): &(bool, u64)| *is_there;
        if self.unreadable.values().any(is_unknown) {
            return 0;
        }
        let nodes = self.nodes.values().map(|node| &node.value);
        let synced = nodes.map(|node| {
            let at = node.positions.get(shard).filter(|at| at.complete);
            at.map_or(0, |at| at.flushed)
        });
        synced.min().unwrap_or_default()
    }

    /// The position up to which the changelog of a shard may be trimmed once it is large: what two
    /// complete copies of living nodes have synced. A node that is down fetches a copy when it is
    /// back. 0: not at all.
    pub fn trimmable_if_large(&self, shard: usize, alive: &BTreeSet<NodeId>) -> u64 {
        let is_complete = |node: &&NodeRecord| alive.contains(&node.id) && node.is_complete(shard);
        let nodes = self.nodes.values().map(|node| &node.value);
        let mut flushed: Vec<u64> = nodes
            .filter(is_complete)
            .filter_map(|node| Some(node.positions.get(shard)?.flushed))
            .collect();
        flushed.sort_unstable();
        flushed.iter().rev().nth(1).copied().unwrap_or_default()
    }
}

fn decode_record<T: DeserializeOwned>(stored: &StoredRecord) -> Option<Versioned<T>> {
    let value = serde_json::from_slice(&stored.value).ok()?;
    Some(Versioned {
        value,
        revision: stored.revision,
        written: stored.written.clone(),
    })
}

impl OwnershipRecord {
    /// The ownership as the balance needs it, with the time for which the reader has seen the
    /// request.
    pub(super) fn shard_record(
        &self,
        waited: impl Fn(&NodeId) -> std::time::Duration,
    ) -> ShardRecord {
        let request = self.wanted_by.as_ref().map(|by| (by.clone(), waited(by)));
        ShardRecord {
            owner: self.owner_id.clone(),
            request,
        }
    }
}

/// The settings that both nodes write and that differ.
fn compare_settings(own: &NodeRecord, other: &NodeRecord) -> Vec<SettingDifference> {
    let mut differences = Vec::new();
    for (setting, here) in &own.settings {
        if let Some(there) = other.settings.get(setting).filter(|there| *there != here) {
            differences.push(SettingDifference {
                node: other.name.clone(),
                setting: setting.clone(),
                here: here.clone(),
                there: there.clone(),
            });
        }
    }
    differences
}
