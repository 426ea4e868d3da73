//! Namespaces and their topics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::resource::{ReadOnly, SystemDataView};
use gridhook_record::{
    azure_properties::{Identity, TlsVersion},
    ingress::{IpRule, PublicNetworkAccess, SchemaValidation},
    namespace::{AutoScaleConfiguration, NamespaceSku},
};

/// A namespace, without its keys.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespace {
    /// Resource id, as Azure Resource Manager writes it
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    /// Last part of the resource id
    pub name: Option<String>,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type", skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    /// Location of the resource, stored and returned; default `local`
    pub location: Option<String>,
    /// Tags of the resource; default none
    pub tags: Option<BTreeMap<String, String>>,
    /// Pricing tier, stored and returned; no effect
    pub sku: Option<NamespaceSku>,
    /// Managed identity, stored and returned
    pub identity: Option<Identity>,
    /// Identities and times of creation and last change
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    /// Settings and state; the other fields identify the resource
    pub properties: Option<NamespaceProperties>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceProperties {
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Address of the data plane of the namespace
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub endpoint: ReadOnly<String>,
    /// Settings of the topics of the namespace
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = TopicsConfiguration, read_only)]
    pub topics_configuration: ReadOnly<TopicsConfiguration>,
    /// Zone redundancy, stored and returned; no effect
    pub is_zone_redundant: Option<bool>,
    /// `Enabled`, or `Disabled` for loopback and private addresses only; default `Enabled`
    pub public_network_access: Option<PublicNetworkAccess>,
    /// Addresses that publishers may use; default all
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    /// Lowest TLS version, stored and returned; the server follows `server.tls_minimum_version`
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    /// Limits of throughput units, stored and returned; no effect
    pub auto_scale_configuration: Option<AutoScaleConfiguration>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TopicsConfiguration {
    /// Host name and port of the data plane of the namespace
    pub hostname: String,
}

/// A topic of a namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopic {
    /// Resource id, as Azure Resource Manager writes it
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    /// Last part of the resource id
    pub name: Option<String>,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type", skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    /// Identities and times of creation and last change
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    /// Settings and state; the other fields identify the resource
    pub properties: Option<NamespaceTopicProperties>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopicProperties {
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Kind of the publisher, `Custom`
    pub publisher_type: Option<String>,
    /// Schema of the events, `CloudEventSchemaV1_0`
    pub input_schema: Option<String>,
    /// Days for which undelivered events are kept, 1 to 7; default 1
    #[schema(minimum = 1, maximum = 7)]
    pub event_retention_in_days: Option<i64>,
    /// Window of duplicate detection in ISO 8601, `PT20S` to `P7D`: an event whose id was accepted
    /// within it is acknowledged and not stored; default off
    pub duplicate_detection_history_time_window: Option<String>,
    /// Whether the data of events is checked against the schemas of `eventTypeInfo`; default `off`
    pub schema_validation: Option<SchemaValidation>,
    /// 1, or the number of shards of the cluster for a spread topic, of which each shard has a
    /// part; cannot be changed; default 1
    pub partition_count: Option<u32>,
    /// Edition of the delivery policy, such as `current`; default `policy.edition`, for namespaces
    /// `namespace`
    pub edition: Option<String>,
}
