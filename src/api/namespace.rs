//! Namespaces and their topics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::resource::SystemDataView;
use gridhook_record::{
    azure_properties::{Identity, TlsVersion},
    ingress::{IpRule, PublicNetworkAccess, SchemaValidation},
    namespace::NamespaceSku,
};

/// The body of a PUT or PATCH of a namespace.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceBody {
    #[serde(skip_serializing)]
    pub name: Option<String>,
    pub location: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub sku: Option<NamespaceSku>,
    pub identity: Option<Identity>,
    pub properties: Option<NamespaceBodyProperties>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceBodyProperties {
    pub public_network_access: Option<PublicNetworkAccess>,
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    pub is_zone_redundant: Option<bool>,
    pub minimum_tls_version_allowed: Option<TlsVersion>,
}

/// A namespace, without its keys.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Namespace)]
pub struct NamespaceView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub location: String,
    pub tags: BTreeMap<String, String>,
    pub sku: NamespaceSku,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataView>,
    pub properties: NamespaceViewProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NamespaceProperties)]
pub struct NamespaceViewProperties {
    pub provisioning_state: String,
    /// Address of the data plane of the namespace
    pub endpoint: String,
    pub topics_configuration: TopicsConfiguration,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_zone_redundant: Option<bool>,
    pub public_network_access: PublicNetworkAccess,
    pub inbound_ip_rules: Vec<IpRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_tls_version_allowed: Option<TlsVersion>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TopicsConfiguration {
    /// Host name and port of the data plane of the namespace
    pub hostname: String,
}

/// The body of a PUT or PATCH of a namespace topic.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopicBody {
    #[serde(skip_serializing)]
    pub name: Option<String>,
    pub properties: Option<NamespaceTopicBodyProperties>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTopicBodyProperties {
    /// Kind of the publisher, `Custom`
    pub publisher_type: Option<String>,
    /// Schema of the events, `CloudEventSchemaV1_0`
    pub input_schema: Option<String>,
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
    pub edition: Option<String>,
}

/// A topic of a namespace.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = NamespaceTopic)]
pub struct NamespaceTopicView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "systemData", skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataView>,
    pub properties: NamespaceTopicViewProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NamespaceTopicProperties)]
pub struct NamespaceTopicViewProperties {
    pub provisioning_state: String,
    pub publisher_type: String,
    pub input_schema: String,
    pub event_retention_in_days: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_detection_history_time_window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_validation: Option<SchemaValidation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<u32>,
    pub edition: String,
}
