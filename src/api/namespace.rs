//! Namespaces and their topics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::resource::{ReadOnly, SystemDataView};
use gridhook_record::{
    azure_properties::{Identity, TlsVersion},
    ingress::{IpRule, PublicNetworkAccess, SchemaValidation},
    namespace::{AutoScaleConfiguration, NamespaceSku},
};

/// A namespace, without its keys.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespace {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "type", default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<NamespaceSku>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<NamespaceProperties>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceProperties {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Address of the data plane of the namespace
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub endpoint: ReadOnly<String>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = TopicsConfiguration, read_only)]
    pub topics_configuration: ReadOnly<TopicsConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_zone_redundant: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_network_access: Option<PublicNetworkAccess>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_scale_configuration: Option<AutoScaleConfiguration>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TopicsConfiguration {
    /// Host name and port of the data plane of the namespace
    pub hostname: String,
}

/// A topic of a namespace.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopic {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "type", default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<NamespaceTopicProperties>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopicProperties {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Kind of the publisher, `Custom`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher_type: Option<String>,
    /// Schema of the events, `CloudEventSchemaV1_0`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 7)]
    pub event_retention_in_days: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_detection_history_time_window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_validation: Option<SchemaValidation>,
    /// 1, or the number of shards of the cluster for a spread topic, of which each shard has a
    /// part; cannot be changed; default 1
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edition: Option<String>,
}
