//! The topic that the query of a request names.

use std::sync::Arc;

use super::{
    AdminResult, Control,
    arm::{
        self,
        path::{self, TopicPath},
    },
    model::InvalidRequest,
    permissions::Permissions,
};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::PartitionId;

/// A topic, a domain, or one topic of a domain.
#[derive(Debug)]
pub(super) struct TopicFilter {
    path: TopicPath,
    partition: PartitionId,
}

impl TopicFilter {
    /// The topic, the domain or the domain topic that a resource id names. One of which the caller
    /// may see nothing does not exist for the caller.
    pub(super) fn find(
        control: &Control,
        permissions: &Permissions,
        id: &str,
    ) -> AdminResult<Self> {
        let (topic, path) = find_topic_by_id(control, id)?;
        arm::check_seen(control, permissions, &topic, &path)?;
        Ok(Self {
            partition: topic.partition(),
            path,
        })
    }

    /// Follows the path to the topic that has it now, after the topic was deleted and created again.
    /// Only something of another topic, in `partition`, can show that.
    pub(super) fn follow_path(&mut self, control: &Control, partition: PartitionId) {
        if partition != self.partition
            && control
                .registry
                .topic_of_partition(self.partition)
                .is_none()
            && let Ok(topic) = arm::find_topic(control, &self.path)
        {
            self.partition = topic.partition();
        }
    }

    /// Whether something of a topic, and of this topic of a domain, is in it.
    pub(super) fn contains(&self, partition: PartitionId, domain_topic: Option<&str>) -> bool {
        let is_of_domain_topic = match (&self.path.domain_topic, domain_topic) {
            (None, _) => true,
            (Some(wanted), Some(given)) => given.eq_ignore_ascii_case(wanted.as_str()),
            (Some(_), None) => false,
        };
        self.partition == partition && is_of_domain_topic
    }
}

/// The topic or the domain that a resource id names, and the path. The caller may see nothing of
/// it.
pub(super) fn find_topic_by_id(
    control: &Control,
    id: &str,
) -> AdminResult<(Arc<TopicHandle>, TopicPath)> {
    let path = path::find_route(id)
        .filter(path::ArmPath::is_topic)
        .ok_or_else(|| not_a_topic(id))?
        .topic()?;
    Ok((arm::find_topic(control, &path)?, path))
}

fn not_a_topic(id: &str) -> InvalidRequest {
    let problem =
        format!("is \"{id}\"; expected the resource id of a topic, a domain or a domain topic");
    InvalidRequest::new("topic", problem)
}
