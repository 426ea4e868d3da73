//! A namespace, as an operator set it up: a name that topics share, with the keys that open all of them and the rules on
//! who may come from where.
//!
//! It has no log and no actor. Its topics are topics like others, which say in their records that they are its.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    control::record::{
        azure_properties::{Identity, TlsVersion},
        ingress::IngressSettings,
        subscription::SystemData,
        topic::{AccessKeys, ArmScope},
    },
    event::Name,
};

/// The word for namespaces in ARM's paths and in the path that is published to.
pub const WORD: &str = "namespaces";

/// A namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceRecord {
    /// Its name, unique among the server's namespaces, compared without case.
    pub name: Name,
    /// Where it is said to live, and its topics with it.
    pub scope: ArmScope,
    /// Its access keys, good for each of its topics.
    pub keys: AccessKeys,
    /// Who may come, and from where.
    pub ingress: IngressSettings,
    /// `location`, kept and given back.
    pub location: String,
    /// `tags`, kept and given back.
    pub tags: BTreeMap<String, String>,
    /// What is kept and given back, and nothing else is done with it.
    #[serde(default)]
    pub kept: StoredNamespaceProperties,
    /// `systemData`. [`None`]: the last change was made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemData>,
}

impl NamespaceRecord {
    /// How it is looked up.
    pub fn key(&self) -> String {
        self.name.key()
    }

    /// Its resource id.
    pub fn resource_id(&self) -> String {
        self.scope.resource_id(WORD, &self.name)
    }
}

/// What Azure's clients set on a namespace and this server has no use for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StoredNamespaceProperties {
    /// `sku`: throughput units cost nothing here and buy nothing.
    pub sku: NamespaceSku,
    /// `identity`: it has an id, and nothing is ever done in its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `isZoneRedundant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_zone_redundant: Option<bool>,
    /// `minimumTlsVersionAllowed`: the server, like any proxy in front of it, has one version for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_tls_version_allowed: Option<TlsVersion>,
}

/// `sku`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NamespaceSku)]
pub struct NamespaceSku {
    /// Its name.
    #[serde(default)]
    pub name: NamespaceTier,
    /// Throughput units.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 40)]
    pub capacity: u32,
}

impl Default for NamespaceSku {
    fn default() -> Self {
        Self { name: NamespaceTier::Standard, capacity: one() }
    }
}

fn one() -> u32 {
    1
}

/// `sku.name`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NamespaceTier)]
pub enum NamespaceTier {
    /// The tier that there is.
    #[default]
    Standard,
}
