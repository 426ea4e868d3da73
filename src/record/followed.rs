//! How far a shard of a cluster has followed the control plane.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowedRecord {
    /// The identifier of the cluster. The positions of another one, such as that which goes on with
    /// restored stores, say nothing about these.
    pub cluster: String,
    /// A position of the changelog of the control plane.
    pub position: u64,
}
