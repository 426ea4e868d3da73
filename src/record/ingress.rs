//! Ingress settings of a topic: which publishers may connect, and how a custom event is mapped.
//!
//! The types are Azure's own, so that the record and the control plane agree. An address mask is
//! checked when it is read, and stored as it was written.

use std::{fmt, net::IpAddr, time::Duration};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressSettings {
    /// Access keys and SAS tokens are rejected. Only access tokens are accepted.
    pub disable_local_auth: bool,
    /// `publicNetworkAccess`.
    pub public_network_access: PublicNetworkAccess,
    /// Addresses that may publish. An empty list allows all.
    pub inbound_ip_rules: Vec<IpRule>,
    /// How the properties of a custom event are found. Unused for the other schemas.
    #[serialize_always]
    pub mapping: Option<InputSchemaMapping>,
    /// `duplicateDetectionHistoryTimeWindow` in seconds; [`None`] without duplicate detection.
    pub duplicate_window_s: Option<u32>,
    /// `schemaValidation`, an extension.
    #[serde(default, skip_serializing_if = "SchemaValidation::is_off")]
    pub schema_validation: SchemaValidation,
}

impl IngressSettings {
    /// `schemaValidation` where it was set. Azure's clients do not know it, so that it appears only
    /// then.
    pub fn declared_schema_validation(&self) -> Option<SchemaValidation> {
        Some(self.schema_validation).filter(|set| !set.is_off())
    }

    /// The window of duplicate detection.
    pub fn duplicate_window(&self) -> Option<Duration> {
        self.duplicate_window_s
            .map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// What happens to an event whose data does not match the schema of its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SchemaValidation {
    /// It is not looked at.
    #[default]
    Off,
    /// It is stored, counted and logged.
    Warn,
    /// The request is refused.
    Refuse,
}

impl fmt::Display for SchemaValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl SchemaValidation {
    fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// `publicNetworkAccess`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum PublicNetworkAccess {
    /// From wherever the rules allow.
    #[default]
    Enabled,
    /// From loopback and private addresses only, which is what private endpoints are without Azure.
    Disabled,
}

impl fmt::Display for PublicNetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One of `inboundIpRules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpRule {
    /// Addresses in CIDR notation
    #[schema(value_type = String, example = "127.0.0.0/8")]
    pub ip_mask: IpMask,
    /// Action for requests from these addresses
    #[serde(default)]
    pub action: IpAction,
}

/// `action` of a rule. Azure has no other: an address that no rule allows is rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum IpAction {
    /// They may publish.
    #[default]
    Allow,
}

/// A network or an address, stored as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpMask {
    text: String,
    net: IpNet,
}

impl IpMask {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the network contains `address`. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address.to_canonical())
    }
}

/// Neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{}\" is no address and no network; expected, for example, 10.1.2.3 or 10.1.0.0/16",
    .0.escape_debug()
)]
pub struct InvalidNetwork(String);

impl TryFrom<String> for IpMask {
    type Error = InvalidNetwork;

    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        let net = text
            .parse::<IpNet>()
            .ok()
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        match net.map(canonical_network) {
            Some(net) => Ok(Self { text, net }),
            None => Err(InvalidNetwork(text)),
        }
    }
}

/// A network of IPv4-mapped IPv6 addresses as the IPv4 network that it is, because clients with
/// these addresses count as IPv4.
fn canonical_network(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len()) {
        (IpAddr::V4(address), prefix @ 96..) => Ipv4Net::new_assert(address, prefix - 96).into(),
        _ => net,
    }
}

impl From<IpMask> for String {
    fn from(mask: IpMask) -> Self {
        mask.text
    }
}

/// Where in a custom event the properties of an Event Grid event are: names of its top-level
/// members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(as = InputMapping)]
pub struct InputSchemaMapping {
    /// Field of the custom event that has its id; default a new GUID
    pub id: Option<MappedField>,
    /// Field of the custom event that has its topic; default the resource id of the topic
    pub topic: Option<MappedField>,
    /// Field of the custom event that has its time; default the time of arrival
    pub event_time: Option<MappedField>,
    /// Field of the custom event that has its type, or its default
    pub event_type: Option<MappedFieldOrDefault>,
    /// Field of the custom event that has its subject, or its default
    pub subject: Option<MappedFieldOrDefault>,
    /// Field of the custom event that has the version of its schema, or its default
    pub data_version: Option<MappedFieldOrDefault>,
}

/// A member of the event.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputField)]
pub struct MappedField {
    /// Name of the field of the event
    pub source_field: Option<String>,
}

/// A member of the event, and what holds where the event does not have it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputFieldOrDefault)]
pub struct MappedFieldOrDefault {
    /// Name of the field of the event
    pub source_field: Option<String>,
    /// Value if the field is missing
    pub default_value: Option<String>,
}
