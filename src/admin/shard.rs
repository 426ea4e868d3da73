//! The core of a shard, in a process with several, and what a change of the control plane waits
//! for.
//!
//! One core has the control plane: all records of topics, namespaces, event subscriptions, tokens
//! and the like. Every node has a copy of its store. The cores with the events follow that copy
//! (`Registry::follow_definitions`). A spread topic has a part in each of them.
//!
//! - A change is in the changelog of the control plane first. Its response is sent once the owner of each
//!   shard that it concerns has followed it. If one does not in time, the response reports it; the
//!   change takes effect all the same.
//! - A change of a topic or an event subscription also waits for an owner: otherwise events that are
//!   published after the response could be stored before the next owner has followed it. A change of
//!   a namespace or a resource group waits for none.

use std::collections::BTreeSet;

use futures_util::future::{BoxFuture, join_all};

use super::{AdminError, Control, arm::TopicPath};
use gridhook_cluster::shard_of;
use gridhook_record::topic::TopicRecord;

/// The owners of the shards that follow the control plane.
pub trait ShardOwners: Send + Sync {
    /// How far the control plane has been written: a position of its changelog.
    fn written_position(&self) -> u64;

    /// Returns once the owner of a shard has followed the control plane up to a position. With
    /// `needs_owner` a shard without one is waited for, too.
    fn wait_until_followed(
        &self,
        shard: usize,
        position: u64,
        needs_owner: bool,
    ) -> BoxFuture<'_, Result<(), FollowDelay>>;
}

/// Why a shard has not followed a change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FollowDelay(pub String);

/// The place of a core among the shards.
pub struct ShardPlacement {
    /// The number of the core's shard.
    pub own: usize,
    /// The number of shards with topics.
    pub shards: usize,
    /// The owners of the shards with topics, if this core has the control plane.
    pub owners: Option<Box<dyn ShardOwners>>,
}

/// The shards that a change concerns.
pub(super) struct ConcernedShards {
    numbers: BTreeSet<usize>,
    /// Whether a change waits until each of these shards has an owner.
    need_owners: bool,
}

impl Control {
    /// The number of shards with topics; 1 without several.
    pub(super) fn shard_count(&self) -> u32 {
        self.shard.as_ref().map_or(1, |shard| shard.shards as u32)
    }

    /// The number of this shard, in a cluster with several.
    pub(super) fn shard_number(&self) -> Option<usize> {
        self.shard.as_ref().map(|shard| shard.own)
    }

    /// The number of this shard, if the topic is spread.
    pub(super) fn shard_of_part(&self, record: &TopicRecord) -> Option<usize> {
        self.shard_number().filter(|_| record.is_spread())
    }

    /// The shards of a topic, as it is now.
    pub(super) fn shards_of_topic(&self, path: &TopicPath) -> ConcernedShards {
        let topic = self.registry.find_topic(&path.topic_key());
        if topic.is_some_and(|topic| topic.record().is_spread()) {
            return ConcernedShards {
                need_owners: true,
                ..self.all_shards()
            };
        }
        let leading_name = path.namespace.as_ref().unwrap_or(&path.name);
        let shards = self.shard_count() as usize;
        ConcernedShards {
            numbers: BTreeSet::from([shard_of(leading_name.as_str(), shards)]),
            need_owners: true,
        }
    }

    /// The shards of a namespace, which all know it, or of a resource group.
    pub(super) fn all_shards(&self) -> ConcernedShards {
        ConcernedShards {
            numbers: (0..self.shard_count() as usize).collect(),
            need_owners: false,
        }
    }

    /// Returns once the owners of the shards that a change concerns have followed it.
    pub(super) async fn wait_until_followed(
        &self,
        concerned: ConcernedShards,
    ) -> Result<(), AdminError> {
        let owners = self.shard.as_ref().and_then(|shard| shard.owners.as_ref());
        let Some(owners) = owners else {
            return Ok(());
        };
        let position = owners.written_position();
        let ConcernedShards {
            numbers,
            need_owners,
        } = concerned;
        let waits = numbers.into_iter().map(|shard| async move {
            let followed = owners.wait_until_followed(shard, position, need_owners);
            followed
                .await
                .map_err(|delay| format!("shard {shard}: {delay}"))
        });
        let delays: Vec<String> = join_all(waits)
            .await
            .into_iter()
            .filter_map(Result::err)
            .collect();
        if delays.is_empty() {
            return Ok(());
        }
        Err(AdminError::Unavailable(format!(
            "The change is stored, but not every shard that it concerns has it yet ({}). Each takes \
             it as soon as it can; repeat the request to wait for that.",
            delays.join("; ")
        )))
    }
}

impl ConcernedShards {
    /// Joins the shards of a topic before and after a change.
    pub(super) fn joined(mut self, other: Self) -> Self {
        self.numbers.extend(other.numbers);
        self
    }
}
