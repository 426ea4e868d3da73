//! Event subscriptions of namespace topics, which have properties of their own.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    AdvancedFilterSchema, DeadLetterBody, DeliveryWithIdentityView, DestinationBody,
    DestinationSchema, DestinationView, OrderingBody, TransformSchema,
};
use gridhook_policy::transform::Transform;
use gridhook_record::subscription::ResourceIdentity;

/// The body of a PUT or PATCH.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSubscriptionBody {
    pub name: Option<String>,
    pub properties: NamespaceSubscriptionProperties,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceSubscriptionProperties {
    pub delivery_configuration: DeliveryConfiguration,
    /// Schema of the events, `CloudEventSchemaV1_0`
    #[schema(example = "CloudEventSchemaV1_0")]
    pub event_delivery_schema: Option<String>,
    pub filters_configuration: Option<FiltersConfiguration>,
    /// What push delivery sends instead of an event
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TransformSchema>)]
    pub transform: Option<Transform>,
    /// Time at which the event subscription is deleted, such as `2040-01-01T00:00:00Z`; default
    /// never
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2040-01-01T00:00:00Z")]
    pub expiration_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<OrderingBody>,
    /// For a new event subscription: time of the first stored event to deliver
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<String>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliveryConfiguration {
    /// `Push`, or `Queue` for clients that pull
    #[schema(example = "Push")]
    pub delivery_mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushInfo>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueInfo {
    #[schema(minimum = 60, maximum = 300)]
    pub receive_lock_duration_in_seconds: Option<i64>,
    #[schema(minimum = 1, maximum = 10)]
    pub max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic;
    /// default 1 day
    #[schema(example = "P1D")]
    pub event_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SdkDeadLetterBody>)]
    pub dead_letter_destination_with_resource_identity: Option<Value>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushInfo {
    #[schema(minimum = 1, maximum = 10)]
    pub max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic;
    /// default 1 day
    #[schema(example = "P1D")]
    pub event_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SdkDeadLetterBody>)]
    pub dead_letter_destination_with_resource_identity: Option<Value>,
    /// Endpoint; with an identity, the same in `deliveryWithResourceIdentity`
    #[schema(value_type = DestinationSchema)]
    pub destination: DestinationBody,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FiltersConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included_event_types: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<AdvancedFilterSchema>>)]
    pub filters: Option<Vec<Value>>,
}

/// Destination of dead letters with an identity, in the form of the SDKs.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterWithResourceIdentity)]
pub struct SdkDeadLetterBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<ResourceIdentity>,
    /// Days for which writing to an unreachable store is retried
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2)]
    pub delivery_retry_period_in_days: Option<i64>,
    pub dead_letter_destination: DeadLetterBody,
}

/// The properties of a response, without secrets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSubscriptionViewProperties {
    pub provisioning_state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_in_service: Option<Option<String>>,
    pub delivery_configuration: DeliveryConfigurationView,
    pub event_delivery_schema: String,
    pub filters_configuration: FiltersConfiguration,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<OrderingBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<String>,
}

/// How events are delivered.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "deliveryMode")]
pub enum DeliveryConfigurationView {
    Push { push: Box<PushView> },
    Queue { queue: QueueView },
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    pub receive_lock_duration_in_seconds: u32,
    #[serde(flatten)]
    pub terms: DeliveryTermsView,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PushView {
    #[serde(flatten)]
    pub terms: DeliveryTermsView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<DestinationView>,
    /// In place of `destination`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_with_resource_identity: Option<DeliveryWithIdentityView>,
}

/// What push and pull delivery have in common.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryTermsView {
    pub max_delivery_count: u32,
    pub event_time_to_live: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_destination_with_resource_identity: Option<SdkDeadLetterBody>,
}
