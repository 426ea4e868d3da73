//! Azure properties of a topic or a domain that have no effect here: they are checked, stored and
//! returned, so that a template written for Azure can be applied and compared again.
//!
//! Only properties that promise nothing are here. A property that would be a promise (network
//! access, encryption at rest) is rejected by name where it is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StoredTopicProperties {
    /// `sku`: there is only one tier.
    pub sku: Option<Sku>,
    /// `kind`: where Azure hosts it.
    pub kind: Option<HostKind>,
    /// `extendedLocation`.
    pub extended_location: Option<ExtendedLocation>,
    /// `identity`: it has an id, and is never used.
    pub identity: Option<Identity>,
    /// `dataResidencyBoundary`: events stay in the data folder.
    pub data_residency_boundary: Option<DataResidency>,
    /// `minimumTlsVersionAllowed`: the TLS version is a setting of the server, or of a proxy in
    /// front of it.
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    /// `eventTypeInfo`: returned as the topic's event types.
    pub event_type_info: Option<EventTypeInfo>,
}

/// `sku`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sku {
    /// Name of the pricing tier
    pub name: Tier,
}

/// `sku.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Tier {
    Basic,
    /// Azure's with private endpoints.
    Premium,
}

/// `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum HostKind {
    Azure,
    /// In a cluster of the operator's.
    AzureArc,
}

/// `extendedLocation`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendedLocation {
    /// Type of the extended location, stored and returned
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name of the extended location, stored and returned
    pub name: Option<String>,
}

/// `identity`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Type of the identity: `None`, `SystemAssigned`, `UserAssigned` or both
    #[serde(rename = "type", default)]
    pub kind: IdentityKind,
    /// Id that the server gives a system-assigned identity
    pub principal_id: Option<String>,
    /// Id of the tenant, always the nil UUID
    pub tenant_id: Option<String>,
    /// User-assigned identities, by resource id
    pub user_assigned_identities: Option<BTreeMap<String, Value>>,
}

/// `identity.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum IdentityKind {
    #[default]
    None,
    /// The system's.
    SystemAssigned,
    /// The user's.
    UserAssigned,
    #[serde(rename = "SystemAssigned, UserAssigned")]
    Both,
}

impl IdentityKind {
    /// Whether the server assigns an id.
    pub fn has_system(self) -> bool {
        match self {
            Self::SystemAssigned | Self::Both => true,
            Self::None | Self::UserAssigned => false,
        }
    }
}

/// `dataResidencyBoundary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum DataResidency {
    /// In a pair of regions.
    WithinGeopair,
    WithinRegion,
}

/// `minimumTlsVersionAllowed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum TlsVersion {
    /// TLS 1.0.
    #[serde(rename = "1.0")]
    One,
    /// TLS 1.1.
    #[serde(rename = "1.1")]
    OneOne,
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    OneTwo,
}

/// `eventTypeInfo`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventTypeInfo {
    /// Kind of the declaration, always `Inline`
    pub kind: Option<EventTypeKind>,
    /// Declared event types, by name
    pub inline_event_types: Option<BTreeMap<String, InlineEventType>>,
}

/// `eventTypeInfo.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum EventTypeKind {
    Inline,
}

/// The description of an event type.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InlineEventType {
    /// Explanation of the event type for people
    pub description: Option<String>,
    /// Name of the event type for people
    pub display_name: Option<String>,
    /// Address of the documentation
    pub documentation_url: Option<String>,
    /// Address of the schema of the payload
    pub data_schema_url: Option<String>,
    /// Whether publishers should no longer use it; an extension of gridhook
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Versions by `dataVersion`; an extension of gridhook
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, EventTypeVersion>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventTypeVersion {
    /// JSON Schema (draft 2020-12) of `data`
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// Examples of `data`, which match the schema
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Value>,
    /// Whether publishers should no longer use it
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
}
