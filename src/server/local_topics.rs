//! Topics of namespaces as destinations: what an event subscription delivers to one is published
//! there.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::router::{OtherShards, json_array};
use gridhook_deliver::resource::{LocalTopics, PublishFailure};
use gridhook_engine::control::registry::{Registry, TopicHandle};
use gridhook_publish::http::Publisher;
use gridhook_record::topic::key_in_namespace;

/// The topics of this server. The registry has the senders, which have this: it must not keep them
/// alive, or the store would never be released.
pub(super) struct NamespaceTopics {
    pub(super) registry: Weak<Registry>,
    pub(super) publisher: Weak<Publisher>,
    /// The topics of the other shards of a cluster.
    pub(super) others: Option<OtherShards>,
}

impl NamespaceTopics {
    fn find_topic(&self, resource_id: &str) -> Option<Arc<TopicHandle>> {
        find_namespace_topic(&*self.registry.upgrade()?, resource_id)
    }

    /// The other shards, and the number of the one that has the topic.
    fn shard_elsewhere(&self, resource_id: &str) -> Option<(&OtherShards, usize)> {
        let others = self.others.as_ref()?;
        Some((others, others.shard_of(resource_id)?))
    }
}

pub(super) fn find_namespace_topic(
    registry: &Registry,
    resource_id: &str,
) -> Option<Arc<TopicHandle>> {
    let mut parts = resource_id.rsplit('/');
    let topic = parts.next()?;
    let _ = parts.next()?;
    let namespace = parts.next()?;
    let topic = registry.find_topic(&key_in_namespace(namespace, topic))?;
    topic
        .record()
        .resource_id()
        .eq_ignore_ascii_case(resource_id)
        .then_some(topic)
}

impl LocalTopics for NamespaceTopics {
    fn publish_events<'a>(
        &'a self,
        resource_id: &'a str,
        events: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<(), PublishFailure>> {
        Box::pin(async move {
            let Some(publisher) = self.publisher.upgrade() else {
                return Err(PublishFailure {
                    status: 503,
                    reason: "the server is stopping".to_owned(),
                });
            };
            // This shard has a part of a spread topic, whichever leads it.
            let Some(topic) = self.find_topic(resource_id) else {
                return match self.shard_elsewhere(resource_id) {
                    Some((others, shard)) => {
                        others.publish_events(shard, resource_id, &events).await
                    }
                    None => Err(PublishFailure {
                        status: 404,
                        reason: format!("there is no topic {resource_id}"),
                    }),
                };
            };
            let events = Bytes::from(json_array(&events));
            let result = publisher.forward_events(&topic, events).await;
            result.map_err(|refusal| PublishFailure {
                status: refusal.status().0.as_u16(),
                reason: refusal.to_string(),
            })
        })
    }

    fn topic_exists<'a>(&'a self, resource_id: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            match self.shard_elsewhere(resource_id) {
                Some((others, shard)) => others.has_topic(shard, resource_id).await,
                None => self.find_topic(resource_id).is_some(),
            }
        })
    }
}
