//! Topics, domains, their topics, and the event types of all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::resource::{ReadOnly, SystemDataView};
use gridhook_record::{
    azure_properties::{
        DataResidency, EventTypeInfo, ExtendedLocation, HostKind, Identity, InlineEventType, Sku,
        TlsVersion,
    },
    ingress::{InputSchemaMapping, IpRule, PublicNetworkAccess, SchemaValidation},
};

/// A topic or a domain, without its keys.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topic {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "type", default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind_of_resource: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<Sku>,
    /// Where Azure would host it, stored and returned; default `Azure`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<HostKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_location: Option<ExtendedLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<TopicProperties>,
}

/// `inputSchema` in the OpenAPI document.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "read as a string, so that an error can list the allowed values"
)]
enum InputSchema {
    EventGridSchema,
    #[schema(rename = "CloudEventSchemaV1_0")]
    CloudEventSchemaV10,
    CustomEventSchema,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicProperties {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Address that publishers post to
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub endpoint: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<InputSchema>)]
    pub input_schema: Option<String>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub metric_resource_id: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_local_auth: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_network_access: Option<PublicNetworkAccess>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    /// Mapping of custom events to the fields of Event Grid; required with `CustomEventSchema`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema_mapping: Option<MappingBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_detection_history_time_window: Option<String>,
    /// Whether the data of events is checked against the schemas of `eventTypeInfo`; default `off`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_validation: Option<SchemaValidation>,
    /// 1, or the number of shards of the cluster for a spread topic, of which each shard has a
    /// part; cannot be changed; default 1
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_residency_boundary: Option<DataResidency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type_info: Option<EventTypeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_create_topic_with_first_subscription: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_delete_topic_with_last_subscription: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edition: Option<String>,
}

/// `inputSchemaMapping`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputSchemaMapping)]
pub struct MappingBody {
    pub input_schema_mapping_type: MappingType,
    /// Field of the published event for each field of Event Grid
    #[serde(default)]
    pub properties: InputSchemaMapping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub enum MappingType {
    Json,
}

/// The body of `regenerateKey`.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RegenerateKey)]
pub struct RegenerateKeyBody {
    /// `key1` or `key2`
    #[schema(example = "key1")]
    pub key_name: String,
}

/// The access keys of a resource.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Keys)]
pub struct SharedAccessKeys {
    pub key1: String,
    pub key2: String,
}

/// A topic of a domain, which has no settable properties.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainTopic {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "type", default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<DomainTopicProperties>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainTopicProperties {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
}

/// An event type of a topic.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredEventType {
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    #[serde(default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub name: ReadOnly<String>,
    #[serde(rename = "type", default, skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    pub properties: InlineEventType,
}
