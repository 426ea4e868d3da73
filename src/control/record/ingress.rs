//! What a topic asks of its publishers beside a key: who may come, from where, and how a custom event is read.
//!
//! The shapes are Azure's own, so that a record and the control plane say the same. An address mask is checked when it is
//! read, and kept as it was written.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who may publish, from where, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressSettings {
    /// Keys and SAS tokens are refused: only access tokens are good.
    pub disable_local_auth: bool,
    /// Whether publishers may come from everywhere.
    pub public_network_access: PublicNetworkAccess,
    /// Where publishers may come from; everywhere where there is no rule.
    pub inbound_ip_rules: Vec<IpRule>,
    /// Where a custom event's properties are found; nothing in the other schemas.
    pub mapping: Option<InputSchemaMapping>,
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

/// One of `inboundIpRules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IpRule {
    /// The addresses.
    #[schema(value_type = String, example = "127.0.0.0/8")]
    pub ip_mask: IpMask,
    /// Action for requests from these addresses
    #[serde(default)]
    pub action: IpAction,
}

/// `action` of a rule. There is no other in Azure: what no rule allows is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum IpAction {
    /// They may publish.
    #[default]
    Allow,
}

/// A network or an address, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpMask {
    text: String,
    net: IpNet,
}

impl IpMask {
    /// Whether `address` is in it. An IPv4 address is one, however it is written.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address.to_canonical())
    }
}

impl TryFrom<String> for IpMask {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        match net {
            Some(net) => Ok(Self { text, net }),
            None => Err(format!(
                "\"{}\" is no address and no network; allowed is such as 10.1.2.3 or 10.1.0.0/16",
                text.escape_debug()
            )),
        }
    }
}

impl From<IpMask> for String {
    fn from(mask: IpMask) -> Self {
        mask.text
    }
}

/// Where in a custom event the properties of an Event Grid event are: names of its top-level members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(as = InputMapping)]
pub struct InputSchemaMapping {
    /// Made by the server where the event has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<MappedField>,
    /// The topic's own resource id where the event has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<MappedField>,
    /// The time of arrival where the event has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<MappedField>,
    /// Never absent: without a type nothing can be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<MappedFieldOrDefault>,
    /// Empty where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<MappedFieldOrDefault>,
    /// Empty where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_version: Option<MappedFieldOrDefault>,
}

/// A member of the event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputField)]
pub struct MappedField {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_field: Option<String>,
}

/// A member of the event, and what holds where the event does not have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputFieldOrDefault)]
pub struct MappedFieldOrDefault {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_field: Option<String>,
    /// Value if the field is missing
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_value: Option<String>,
}
