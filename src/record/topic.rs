//! The stored record of a topic, a domain, or a topic of a namespace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

pub use super::azure_properties::StoredTopicProperties;
use crate::{ingress::IngressSettings, namespace, subscription::SystemData};
use gridhook_event::{Name, PartitionId, Schema};

/// The ARM scope of a topic. Any scope is accepted, stored and returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmScope {
    pub subscription: String,
    pub resource_group: String,
}

impl ArmScope {
    /// The resource id of a resource with this path segment and name.
    pub fn resource_id(&self, path_segment: &str, name: &Name) -> String {
        let Self {
            subscription,
            resource_group,
        } = self;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}\
             /providers/Microsoft.EventGrid/{path_segment}/{name}"
        )
    }
}

/// The two access keys of a topic. Both are valid, so that one can be rotated while the other is in
/// use.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKeys {
    pub key1: String,
    pub key2: String,
}

impl std::fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys([hidden])")
    }
}

/// Resources that accept events. They differ in their paths and in the required event properties.
/// Logs and actors are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicKind {
    Topic,
    /// A domain: one log. Each event names its topic in the domain.
    Domain,
    /// A topic of a namespace. Its name is unique in the namespace.
    NamespaceTopic,
}

impl TopicKind {
    /// The path segment, in ARM's paths and in the publish path.
    pub fn path_segment(self) -> &'static str {
        match self {
            Self::Topic | Self::NamespaceTopic => "topics",
            Self::Domain => "domains",
        }
    }

    /// The resource type, with the resource provider before it.
    pub fn resource_type(self) -> &'static str {
        match self {
            Self::Topic => "Microsoft.EventGrid/topics",
            Self::Domain => "Microsoft.EventGrid/domains",
            Self::NamespaceTopic => "Microsoft.EventGrid/namespaces/topics",
        }
    }
}

/// The key of a topic or a domain: its name in lower case, with a prefix for each kind. No valid
/// name contains a colon, so a name with one never reaches another kind.
pub fn key(kind: TopicKind, name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match kind {
        TopicKind::Topic if name.contains(':') => format!("topic:{name}"),
        TopicKind::Topic => name,
        TopicKind::Domain => format!("domain:{name}"),
        // A namespace topic has no key without its namespace.
        TopicKind::NamespaceTopic => key_in_namespace("", &name),
    }
}

/// The key of a namespace topic, in lower case.
pub fn key_in_namespace(namespace: &str, name: &str) -> String {
    format!(
        "namespace:{}:{}",
        namespace.to_ascii_lowercase(),
        name.to_ascii_lowercase()
    )
}

/// How the topics of a domain are created and deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainTopics {
    /// A topic is created with its first subscription.
    pub auto_create: bool,
    /// A topic is deleted with its last subscription.
    pub auto_delete: bool,
}

/// The namespace of a topic, and the topic's own settings in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceMembership {
    pub name: Name,
    /// `eventRetentionInDays`: the maximum time to live of its subscriptions.
    pub retention_days: u32,
}

/// A topic, a domain, or a topic of a namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRecord {
    /// Its name, unique among its kind, or in its namespace, compared without case.
    pub name: Name,
    pub scope: ArmScope,
    /// The partitions of its log, never empty.
    pub partitions: Vec<PartitionId>,
    pub input_schema: Schema,
    pub keys: AccessKeys,
    pub ingress: IngressSettings,
    /// The edition of the delivery policy.
    pub edition: String,
    /// `location`, stored and returned.
    pub location: String,
    /// `tags`, stored and returned.
    pub tags: BTreeMap<String, String>,
    /// Set for a domain: how its topics are created and deleted.
    pub domain: Option<DomainTopics>,
    pub namespace: Option<NamespaceMembership>,
    /// `partitionCount`, an extension: 1, or for a spread topic the number of shards of the
    /// cluster.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub partition_count: u32,
    /// `metricResourceId`: identifies it in metrics, unique even if its name is reused.
    #[serde(default)]
    pub metric_resource_id: String,
    /// Properties that are only stored and returned.
    #[serde(default, rename = "kept")]
    pub azure_properties: StoredTopicProperties,
    /// `systemData`. [`None`]: the last change was made before this was recorded.
    pub system_data: Option<SystemData>,
}

fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_one(count: &u32) -> bool {
    *count == 1
}

impl TopicRecord {
    /// Whether each shard of a cluster has a part of it.
    pub fn is_spread(&self) -> bool {
        self.partition_count > 1
    }

    /// The name whose shard has the topic, or leads it if it is spread: its own, or that of its
    /// namespace.
    pub fn leading_name(&self) -> &Name {
        self.namespace
            .as_ref()
            .map_or(&self.name, |namespace| &namespace.name)
    }

    /// `partitionCount` where it was set. Azure's clients do not know it, so that it appears only
    /// then.
    pub fn declared_partition_count(&self) -> Option<u32> {
        Some(self.partition_count).filter(|_| self.is_spread())
    }

    pub fn kind(&self) -> TopicKind {
        match (&self.namespace, self.is_domain()) {
            (Some(_), _) => TopicKind::NamespaceTopic,
            (None, true) => TopicKind::Domain,
            (None, false) => TopicKind::Topic,
        }
    }

    pub fn is_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// The key under which it is registered.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => key_in_namespace(namespace.name.as_str(), self.name.as_str()),
            None => key(self.kind(), self.name.as_str()),
        }
    }

    /// Its resource id, which becomes `topic` in its events.
    pub fn resource_id(&self) -> String {
        match &self.namespace {
            Some(namespace) => {
                format!(
                    "{}/topics/{}",
                    self.scope
                        .resource_id(namespace::PATH_SEGMENT, &namespace.name),
                    self.name
                )
            }
            None => self
                .scope
                .resource_id(self.kind().path_segment(), &self.name),
        }
    }

    /// The resource id of one of a domain's topics, or its own if `domain_topic` is [`None`].
    pub fn resource_id_of(&self, domain_topic: Option<&str>) -> String {
        match domain_topic {
            Some(domain_topic) => format!("{}/topics/{domain_topic}", self.resource_id()),
            None => self.resource_id(),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainTopic {
    /// Its name, unique in its domain, compared without case.
    pub name: Name,
    /// `systemData`. [`None`] if the last change was made before this was recorded.
    pub system_data: Option<SystemData>,
}
