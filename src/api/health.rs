//! Liveness and readiness.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// Phase of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartPhase {
    /// The store is being opened and read.
    Recovering,
    /// A node of a cluster forwards requests to the owner of the store.
    Standby,
    /// The server accepts and delivers events.
    Serving,
    /// Requests in flight are completed.
    Stopping,
}

/// The response of `/readyz`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether the server takes events
    pub ready: bool,
    /// What the server does at present
    pub phase: StartPhase,
    /// State of the journal in one word
    pub journal: String,
    /// Number of events that cannot be read because a table of the store is damaged
    #[serde(rename = "lostEvents")]
    pub lost_events: u64,
    /// What is wrong, one sentence each; empty if nothing is
    pub problems: Vec<String>,
    /// State of each shard on this node; only in a cluster with several
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardReadiness>,
    /// State of the control plane on this node; only in a cluster with several shards
    #[serde(rename = "controlPlane", default)]
    pub control_plane: Option<ShardReadiness>,
}

/// State of a shard on a node of a cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct ShardReadiness {
    /// Number of the shard, from 0
    pub shard: usize,
    /// What the node does for the shard
    pub state: ShardState,
    /// Whether a living node owns it
    #[serde(rename = "hasOwner")]
    pub has_owner: bool,
    /// Why the node cannot serve the shard, if its state is `failed`
    pub cause: Option<String>,
}

/// State of a shard on a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ShardState {
    /// The node owns the shard, and accepts and delivers its events.
    Serving,
    /// The node owns the shard, and reads its records.
    Starting,
    /// The node has all records, and forwards requests to the owner.
    Following,
    /// The node applies records that it has missed.
    CatchingUp,
    /// The node fetches a copy of the owner's store.
    Fetching,
    /// The node cannot serve the shard before an operator has acted.
    Failed,
    /// The node owned the shard, and cannot renew that in NATS: it neither stores nor delivers its
    /// events.
    CutOff,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Liveness {
    /// `starting` while the store is read, then `ok`.
    pub status: String,
    /// Current step of the start.
    pub step: Option<String>,
    /// Bytes that the current step has read, if they can be counted.
    pub done_bytes: Option<u64>,
    /// Bytes that the current step has to read, if they can be counted.
    pub total_bytes: Option<u64>,
}

impl fmt::Display for StartPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
