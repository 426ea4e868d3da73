//! Topics, domains, their topics, and the event types of all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::resource::SystemDataView;
use gridhook_record::{
    azure_properties::{
        DataResidency, EventTypeInfo, ExtendedLocation, HostKind, Identity, InlineEventType, Sku,
        TlsVersion,
    },
    ingress::{InputSchemaMapping, IpRule, PublicNetworkAccess, SchemaValidation},
};

/// The body of a PUT or PATCH of a topic or a domain.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicBody {
    #[serde(skip_serializing)]
    pub name: Option<String>,
    pub location: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub sku: Option<Sku>,
    /// Where Azure would host it, stored and returned; default `Azure`
    pub kind: Option<HostKind>,
    pub extended_location: Option<ExtendedLocation>,
    pub identity: Option<Identity>,
    pub properties: Option<TopicBodyProperties>,
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

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicBodyProperties {
    #[schema(value_type = Option<InputSchema>)]
    pub input_schema: Option<String>,
    pub edition: Option<String>,
    pub disable_local_auth: Option<bool>,
    pub public_network_access: Option<PublicNetworkAccess>,
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
    pub data_residency_boundary: Option<DataResidency>,
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    pub event_type_info: Option<EventTypeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_create_topic_with_first_subscription: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_delete_topic_with_last_subscription: Option<bool>,
}

/// The properties of a topic for publishers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicIngress)]
pub struct IngressBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_local_auth: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_network_access: Option<PublicNetworkAccess>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema_mapping: Option<MappingBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_detection_history_time_window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_validation: Option<SchemaValidation>,
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

/// A topic or a domain, without its keys.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Topic)]
pub struct TopicView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind_of_resource: String,
    pub location: String,
    pub tags: BTreeMap<String, String>,
    pub sku: Sku,
    /// Where Azure would host it, stored and returned; default `Azure`
    pub kind: HostKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_location: Option<ExtendedLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataView>,
    pub properties: TopicViewProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicProperties)]
pub struct TopicViewProperties {
    pub provisioning_state: String,
    /// Address that publishers post to
    pub endpoint: String,
    pub input_schema: String,
    pub metric_resource_id: String,
    #[serde(flatten)]
    pub ingress: IngressBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<u32>,
    pub data_residency_boundary: DataResidency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type_info: Option<EventTypeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_create_topic_with_first_subscription: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_delete_topic_with_last_subscription: Option<bool>,
    pub edition: String,
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

/// A topic of a domain.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = DomainTopic)]
pub struct DomainTopicView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: DomainTopicProperties,
    #[serde(rename = "systemData", skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataView>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainTopicProperties {
    pub provisioning_state: String,
}

/// The body of a PUT of a topic of a domain, which has no settable properties.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainTopicBody {
    pub name: Option<String>,
    pub properties: Option<NoProperties>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoProperties {}

/// The body of a PUT of an event type.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTypeBody {
    pub properties: InlineEventType,
}

/// An event type of a topic.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = DeclaredEventType)]
pub struct EventTypeView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub properties: InlineEventType,
}
