//! The stored record of a namespace: a name that topics share, with access keys and ingress
//! settings for all of them.
//!
//! A namespace has no log and no actor. Its topics are topics like others, with the namespace in
//! their records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use crate::{
    azure_properties::{Identity, TlsVersion},
    ingress::IngressSettings,
    subscription::SystemData,
    topic::{AccessKeys, ArmScope},
};
use gridhook_event::Name;

/// The path segment for namespaces, in ARM's paths and in the publish path.
pub const PATH_SEGMENT: &str = "namespaces";

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceRecord {
    /// Its name, unique among the server's namespaces, compared without case.
    pub name: Name,
    /// The ARM scope of the namespace and its topics.
    pub scope: ArmScope,
    /// Access keys, valid for each of its topics.
    pub keys: AccessKeys,
    pub ingress: IngressSettings,
    /// `location`, stored and returned.
    pub location: String,
    /// `tags`, stored and returned.
    pub tags: BTreeMap<String, String>,
    /// Properties that are only stored and returned.
    #[serde(default, rename = "kept")]
    pub azure_properties: StoredNamespaceProperties,
    /// `systemData`. [`None`]: the last change was made before this was recorded.
    pub system_data: Option<SystemData>,
}

impl NamespaceRecord {
    /// The key under which it is registered.
    pub fn key(&self) -> String {
        self.name.key()
    }

    pub fn resource_id(&self) -> String {
        self.scope.resource_id(PATH_SEGMENT, &self.name)
    }
}

/// Azure properties of a namespace that have no effect here.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StoredNamespaceProperties {
    /// `sku`: throughput units have no effect.
    pub sku: NamespaceSku,
    /// `identity`: it has an id, and is never used.
    pub identity: Option<Identity>,
    /// `isZoneRedundant`.
    pub is_zone_redundant: Option<bool>,
    /// `minimumTlsVersionAllowed`: the TLS version is a setting of the server, or of a proxy in
    /// front of it.
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    /// `autoScaleConfiguration`: throughput units have no effect.
    pub auto_scale_configuration: Option<AutoScaleConfiguration>,
}

/// `autoScaleConfiguration`.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AutoScaleConfiguration {
    /// Whether the number of throughput units would follow the load
    pub enable_auto_scale: Option<bool>,
    /// Least number of throughput units
    #[schema(minimum = 1, maximum = 40)]
    pub minimum_throughput_units: Option<u32>,
    /// Greatest number of throughput units
    #[schema(minimum = 1, maximum = 40)]
    pub maximum_throughput_units: Option<u32>,
}

/// `sku`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSku {
    /// Name of the tier, `Standard`
    #[serde(default)]
    pub name: NamespaceTier,
    /// Throughput units, 1 to 40, stored and returned without effect; default 1
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 40)]
    pub capacity: u32,
}

impl Default for NamespaceSku {
    fn default() -> Self {
        Self {
            name: NamespaceTier::Standard,
            capacity: one(),
        }
    }
}

fn one() -> u32 {
    1
}

/// `sku.name`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum NamespaceTier {
    #[default]
    Standard,
}
