//! The nodes of a cluster, and what each owns.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /cluster/status`.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClusterStatus)]
pub struct ClusterView {
    /// Name of the cluster: `cluster.name` of the settings.
    pub name: String,
    /// Name of the node that responds.
    pub node: String,
    /// Why the node cannot read the records of the cluster; absent if it can.
    pub problem: Option<String>,
    /// Seconds since the node last read the records; absent before the first time.
    pub read_seconds_ago: Option<f64>,
    /// Number of times that this node has become the owner of a shard since its start.
    pub takeovers: u64,
    /// All nodes with a record.
    pub nodes: Vec<ClusterNodeView>,
}

/// A node of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClusterNode)]
pub struct ClusterNodeView {
    /// Name of the node: `cluster.node` of its settings.
    pub name: String,
    /// Identifier, unique to one start of its process.
    pub id: String,
    /// Host and port of its listener for other nodes.
    pub address: String,
    /// Version of gridhook that the node runs.
    pub version: String,
    /// What the node does for its shards at present.
    pub state: NodeState,
    /// Numbers of the shards that the node owns, from 0.
    pub owns: Vec<usize>,
    /// Whether it owns the control plane, with several shards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub owns_control_plane: bool,
    /// Last sequence of the changelog that its store has applied, for each shard.
    pub applied: Vec<u64>,
    /// Last sequence of the changelog that its store has synced, for each shard.
    pub flushed: Vec<u64>,
    /// Copies of the stores of owners that it fetches, because the changelog has not its next
    /// record any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyView>,
    /// Shards of which it has everything.
    pub complete: Vec<usize>,
    /// Shared settings with other values than on the node that responds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setting_differences: Vec<SettingDifferenceView>,
    /// Shards that it cannot serve before an operator has acted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ShardFailureView>,
    /// Time of its last renewal, by the clock of the engine.
    pub last_renewal: String,
}

/// A setting with different values on two nodes.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SettingDifference)]
pub struct SettingDifferenceView {
    /// Key of the setting, such as `cluster.shards`.
    pub setting: String,
    /// Value on the node that responds.
    pub here: String,
    /// Value on the other node.
    pub there: String,
}

/// A shard that a node cannot serve.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ShardFailure)]
pub struct ShardFailureView {
    /// Number of the shard, from 0.
    pub shard: usize,
    /// Why, and what to do.
    pub cause: String,
}

/// A copy of the store of an owner that a node fetches.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StoreCopy)]
pub struct CopyView {
    /// Number of the shard, from 0.
    pub shard: usize,
    /// Bytes that the node has received so far.
    pub received: u64,
    /// Bytes of all files; 0 before the owner has responded.
    pub bytes: u64,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClusterNodeState)]
pub enum NodeState {
    /// The node owns shards, or can take them.
    Alive,
    /// The node applies the changelog of a shard, and does not take the shard before it has
    /// everything.
    CatchingUp,
    /// The node takes no shard, because it stops or cannot serve.
    Leaving,
    /// The node is alive, and cannot serve a shard before an operator has acted.
    Failed,
    /// An operator drains the node, and it still owns shards.
    Draining,
    /// An operator has drained the node.
    Drained,
    /// The node does not renew its record.
    Dead,
}

impl NodeState {
    /// The name in the output of commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::CatchingUp => "catching up",
            Self::Leaving => "leaving",
            Self::Failed => "failed",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Dead => "dead",
        }
    }
}

/// `GET /cluster/ownership`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Ownership)]
pub struct OwnershipView {
    /// A record for each shard.
    pub value: Vec<ShardOwnershipView>,
}

/// The ownership record of a shard, with the fields of Azure Event Hubs.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ShardOwnership)]
pub struct ShardOwnershipView {
    /// Name of the cluster: `cluster.name` of the settings.
    pub fully_qualified_namespace: String,
    /// Always `gridhook`, the only event hub.
    pub event_hub_name: String,
    /// Always `$Default`, the only consumer group.
    pub consumer_group: String,
    /// Number of the shard, or `control` for the control plane of several shards.
    pub partition_id: String,
    /// Identifier of the owner; absent if there is none.
    pub owner_id: Option<String>,
    /// Name of the owner's node; absent if there is none.
    pub owner_name: Option<String>,
    /// Time of the last claim or renewal, by the clock of the engine.
    pub last_modified_time: String,
    /// Revision of the record; every claim and renewal changes it.
    pub e_tag: String,
    /// Name of the node that asked for the shard.
    pub wanted_by: Option<String>,
    /// Number of times that the shard was claimed.
    pub claims: u64,
    /// Names of the nodes with a complete copy, also of those that are down. Absent from a release
    /// that follows every shard.
    #[serde(default)]
    pub copies: Vec<String>,
}

/// `POST /cluster/move`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MoveShard)]
pub struct MoveBody {
    /// Number of the shard, from 0.
    pub shard: usize,
    /// Name of its next owner.
    pub node: String,
}

/// `POST /cluster/drain`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DrainNode)]
pub struct DrainBody {
    /// Name of the node to drain or to fill again.
    pub node: String,
    /// Whether it gives up what it owns and takes nothing, or takes its share again.
    pub drain: bool,
}

/// `POST /cluster/forget`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ForgetNode)]
pub struct ForgetBody {
    /// Name of the node to drain or to fill again.
    pub node: String,
}
