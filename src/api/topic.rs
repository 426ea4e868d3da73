//! Topics, domains, their topics, and the event types of all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
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
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topic {
    /// Resource id, as Azure Resource Manager writes it
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    /// Last part of the resource id
    pub name: Option<String>,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type", skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind_of_resource: ReadOnly<String>,
    /// Location of the resource, stored and returned; default `local`
    pub location: Option<String>,
    /// Tags of the resource; default none
    pub tags: Option<BTreeMap<String, String>>,
    /// Pricing tier, stored and returned; no effect
    pub sku: Option<Sku>,
    /// Where Azure would host it, stored and returned; default `Azure`
    pub kind: Option<HostKind>,
    /// Extended location, stored and returned
    pub extended_location: Option<ExtendedLocation>,
    /// Managed identity, stored and returned
    pub identity: Option<Identity>,
    /// Identities and times of creation and last change
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    /// Settings and state; the other fields identify the resource
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

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopicProperties {
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Address that publishers post to
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub endpoint: ReadOnly<String>,
    /// Schema of published events: `EventGridSchema`, `CloudEventSchemaV1_0` or
    /// `CustomEventSchema`; default `EventGridSchema`
    #[schema(value_type = Option<InputSchema>)]
    pub input_schema: Option<String>,
    /// Id of the resource in metrics
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub metric_resource_id: ReadOnly<String>,
    /// Whether access keys and SAS tokens are refused; default false
    pub disable_local_auth: Option<bool>,
    /// `Enabled`, or `Disabled` for loopback and private addresses only; default `Enabled`
    pub public_network_access: Option<PublicNetworkAccess>,
    /// Addresses that publishers may use; default all
    pub inbound_ip_rules: Option<Vec<IpRule>>,
    /// Mapping of custom events to the fields of Event Grid; required with `CustomEventSchema`
    pub input_schema_mapping: Option<MappingBody>,
    /// Window of duplicate detection in ISO 8601, `PT20S` to `P7D`: an event whose id was accepted
    /// within it is acknowledged and not stored; default off
    pub duplicate_detection_history_time_window: Option<String>,
    /// Whether the data of events is checked against the schemas of `eventTypeInfo`; default `off`
    pub schema_validation: Option<SchemaValidation>,
    /// 1, or the number of shards of the cluster for a spread topic, of which each shard has a
    /// part; cannot be changed; default 1
    pub partition_count: Option<u32>,
    /// Data residency, stored and returned
    pub data_residency_boundary: Option<DataResidency>,
    /// Lowest TLS version, stored and returned; the server follows `server.tls_minimum_version`
    pub minimum_tls_version_allowed: Option<TlsVersion>,
    /// Event types that publishers may send, with their descriptions
    pub event_type_info: Option<EventTypeInfo>,
    /// Whether a domain topic is created with its first event subscription; default true
    pub auto_create_topic_with_first_subscription: Option<bool>,
    /// Whether a domain topic is deleted with its last event subscription; default true
    pub auto_delete_topic_with_last_subscription: Option<bool>,
    /// Edition of the delivery policy, such as `current`; default `policy.edition`, for namespaces
    /// `namespace`
    pub edition: Option<String>,
}

/// `inputSchemaMapping`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = InputSchemaMapping)]
pub struct MappingBody {
    /// Kind of the mapping, always `Json`
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
pub struct RegenerateKey {
    /// `key1` or `key2`
    #[schema(example = "key1")]
    pub key_name: String,
}

/// The access keys of a resource.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Keys)]
pub struct SharedAccessKeys {
    /// One of the two keys with which publishers authenticate
    pub key1: String,
    /// The other key; publishers use it while the first is regenerated
    pub key2: String,
}

/// A topic of a domain, which has no settable properties.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainTopic {
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
    /// Settings and state; the other fields identify the resource
    pub properties: Option<DomainTopicProperties>,
    /// Identities and times of creation and last change
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainTopicProperties {
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
}

/// An event type of a topic.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredEventType {
    /// Resource id, as Azure Resource Manager writes it
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    /// Last part of the resource id
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub name: ReadOnly<String>,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type", skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    /// Settings and state; the other fields identify the resource
    pub properties: InlineEventType,
}
