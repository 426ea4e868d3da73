//! A topic, or a domain, as an operator set it up: what the control plane writes and the store keeps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::azure_properties::StoredTopicProperties;
use crate::{
    control::record::{ingress::IngressSettings, namespace, subscription::SystemData},
    event::{Name, PartitionId, Schema},
};

/// Where in an Azure subscription a topic is said to live. Any is accepted; it is kept and given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmScope {
    /// `subscriptions/{…}`.
    pub subscription: String,
    /// `resourceGroups/{…}`.
    pub resource_group: String,
}

impl ArmScope {
    /// The resource id of something of ours that lives there; `path_segment` says what it is.
    pub fn resource_id(&self, word: &str, name: &Name) -> String {
        let Self { subscription, resource_group } = self;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.EventGrid/{word}/{name}"
        )
    }
}

/// The two access keys of a topic: both are valid, so that one can be changed while the other is in use.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKeys {
    /// The first.
    pub key1: String,
    /// The second.
    pub key2: String,
}

impl std::fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys([hidden])")
    }
}

/// What takes events. Their paths differ, and what an event must say; the log behind them and its actors are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicKind {
    /// A topic.
    Topic,
    /// A domain: one log, whose events each say which topic of the domain they are for.
    Domain,
    /// A topic of a namespace: a topic like others, whose name is its own within the namespace.
    NamespaceTopic,
}

impl TopicKind {
    /// The word for it in ARM's paths and in the path that is published to.
    pub fn path_segment(self) -> &'static str {
        match self {
            Self::Topic | Self::NamespaceTopic => "topics",
            Self::Domain => "domains",
        }
    }
}

/// How a topic or a domain is looked up: by its name without case. Each kind has names of its own, and no name has a
/// colon: whoever asks for one that does, does not get the other kind.
pub fn key(kind: TopicKind, name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match kind {
        TopicKind::Topic if name.contains(':') => format!("topic:{name}"),
        TopicKind::Topic => name,
        TopicKind::Domain => format!("domain:{name}"),
        // Without its namespace it is nobody's name.
        TopicKind::NamespaceTopic => key_in_namespace("", &name),
    }
}

/// How a topic of a namespace is looked up: by both names, without case.
pub fn key_in_namespace(namespace: &str, name: &str) -> String {
    format!("namespace:{}:{}", namespace.to_ascii_lowercase(), name.to_ascii_lowercase())
}

/// Who makes and deletes the topics of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainTopics {
    /// A topic comes with its first subscription.
    pub auto_create: bool,
    /// A topic goes with its last subscription.
    pub auto_delete: bool,
}

/// Of a topic of a namespace: where it belongs, and what it has of its own there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceMembership {
    /// The namespace's name.
    pub name: Name,
    /// `eventRetentionInDays`: no subscription may take longer for an event.
    pub retention_days: u32,
}

/// A topic, or a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRecord {
    /// Its name, unique among those of its kind in the server, or in its namespace, compared without case.
    pub name: Name,
    /// Where it is said to live.
    pub scope: ArmScope,
    /// The partitions of its log, never empty.
    pub partitions: Vec<PartitionId>,
    /// The schema that publishers use.
    pub input_schema: Schema,
    /// Its access keys.
    pub keys: AccessKeys,
    /// Who may publish, from where, and how a custom event is read.
    pub ingress: IngressSettings,
    /// Which edition of the delivery policy it follows.
    pub edition: String,
    /// `location`, kept and given back.
    pub location: String,
    /// `tags`, kept and given back.
    pub tags: BTreeMap<String, String>,
    /// Of a domain: how its topics come and go. A topic has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainTopics>,
    /// Of a topic of a namespace: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceMembership>,
    /// `metricResourceId`: what metrics may call it, however often its name is used again.
    #[serde(default)]
    pub metric_resource_id: String,
    /// What is kept and given back, and nothing else is done with it.
    #[serde(default)]
    pub kept: StoredTopicProperties,
    /// `systemData`. [`None`]: the last change was made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemData>,
}

impl TopicRecord {
    /// Which kind it is.
    pub fn kind(&self) -> TopicKind {
        match (&self.namespace, self.is_domain()) {
            (Some(_), _) => TopicKind::NamespaceTopic,
            (None, true) => TopicKind::Domain,
            (None, false) => TopicKind::Topic,
        }
    }

    /// Whether it is a domain.
    pub fn is_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// How it is looked up.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => key_in_namespace(namespace.name.as_str(), self.name.as_str()),
            None => key(self.kind(), self.name.as_str()),
        }
    }

    /// Its resource id: what is stamped into its events as `topic`.
    pub fn resource_id(&self) -> String {
        match &self.namespace {
            Some(namespace) => {
                format!("{}/topics/{}", self.scope.resource_id(namespace::WORD, &namespace.name), self.name)
            }
            None => self.scope.resource_id(self.kind().path_segment(), &self.name),
        }
    }

    /// The resource id of one of a domain's topics; its own, where none is named.
    pub fn resource_id_of(&self, domain_topic: Option<&str>) -> String {
        match domain_topic {
            Some(domain_topic) => format!("{}/topics/{domain_topic}", self.resource_id()),
            None => self.resource_id(),
        }
    }
}
