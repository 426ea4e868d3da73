//! A topic as an operator set it up: what the control plane writes and the store keeps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Name, PartitionId, Schema},
    topic::ingress::Ingress,
};

/// Where in an Azure subscription a topic is said to live. Any is accepted; it is kept and given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// `subscriptions/{…}`.
    pub subscription: String,
    /// `resourceGroups/{…}`.
    pub resource_group: String,
}

/// The two access keys of a topic: both are valid, so that one can be changed while the other is in use.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// The first.
    pub key1: String,
    /// The second.
    pub key2: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys([hidden])")
    }
}

/// A topic.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRecord {
    /// Its name, unique in the server, compared without case.
    pub name: Name,
    /// Where it is said to live.
    pub scope: Scope,
    /// The partitions of its log, never empty.
    pub partitions: Vec<PartitionId>,
    /// The schema that publishers use.
    pub input_schema: Schema,
    /// Its access keys.
    pub keys: Keys,
    /// Who may publish, from where, and how a custom event is read.
    pub ingress: Ingress,
    /// Which edition of the delivery policy it follows.
    pub edition: String,
    /// `location`, kept and given back.
    pub location: String,
    /// `tags`, kept and given back.
    pub tags: BTreeMap<String, String>,
}

impl TopicRecord {
    /// Its resource id: what is stamped into its events as `topic`.
    pub fn resource_id(&self) -> String {
        let Scope { subscription, resource_group } = &self.scope;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.EventGrid/topics/{}",
            self.name
        )
    }
}
