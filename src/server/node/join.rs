//! How a server becomes a node: its connections to NATS, its listener for other nodes and its
//! claims.

#[cfg(feature = "nats")]
mod with_nats;
#[cfg(not(feature = "nats"))]
mod without_nats;

use std::sync::Arc;

use tokio::task::JoinHandle;

#[cfg(feature = "nats")]
pub(crate) use self::with_nats::{check_shards, join, list_living_nodes};
#[cfg(feature = "nats")]
pub(super) use self::with_nats::{load_connector, load_nats_tls, read_secret, shared_settings};
#[cfg(not(feature = "nats"))]
pub(crate) use self::without_nats::{check_shards, join, list_living_nodes};
use super::ClusterNode;
use crate::{ServerError, local_store::LocalStore};
use gridhook_cluster::membership::MembershipEnd;
use gridhook_config as config;
use gridhook_config::Config;

/// A process that has joined its cluster.
pub(crate) struct Joined {
    /// The process as a node of each shard.
    pub nodes: Vec<ClusterNode>,
    /// The task of the membership, which ends when the process has left the cluster.
    pub member: JoinHandle<MembershipEnd>,
}

/// Joins with one shard, whose node is all of the process.
pub(crate) async fn join_alone(
    cluster: &config::Cluster,
    config: &Config,
    store: Arc<LocalStore>,
) -> Result<ClusterNode, ServerError> {
    let Joined { mut nodes, member } = join(cluster, config, vec![store]).await?;
    let node = nodes.pop().expect("a store has a node");
    Ok(ClusterNode {
        member: Some(member),
        is_alone: true,
        ..node
    })
}
