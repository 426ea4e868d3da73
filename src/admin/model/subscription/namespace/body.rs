//! Bodies of event subscriptions of namespace topics.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{DestinationBody, DestinationSchema, dead_letter};
use crate::{
    admin::model::subscription::{OrderingBody, advanced, transform::TransformSchema},
    policy::transform::Transform,
};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NamespaceSubscriptionBody)]
pub(in crate::admin) struct NamespaceSubscriptionBody {
    pub(super) name: Option<String>,
    pub(super) properties: NamespaceSubscriptionProperties,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NamespaceSubscriptionProperties)]
pub(in crate::admin) struct NamespaceSubscriptionProperties {
    pub(super) delivery_configuration: DeliveryConfiguration,
    /// Schema of the events, `CloudEventSchemaV1_0`
    #[schema(example = "CloudEventSchemaV1_0")]
    pub(super) event_delivery_schema: Option<String>,
    pub(super) filters_configuration: Option<FiltersConfiguration>,
    /// What push delivery sends instead of an event
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TransformSchema>)]
    pub(super) transform: Option<Transform>,
    /// Time at which it is deleted, such as `2040-01-01T00:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2040-01-01T00:00:00Z")]
    pub(super) expiration_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ordering: Option<OrderingBody>,
    /// For a new event subscription: time of the first stored event to deliver
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starts_from: Option<String>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeliveryConfiguration)]
pub(super) struct DeliveryConfiguration {
    /// `PushInfo`, or `Queue`.
    #[schema(example = "Push")]
    pub(super) delivery_mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<QueueInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) push: Option<PushInfo>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = QueueInfo)]
pub(super) struct QueueInfo {
    #[schema(minimum = 60, maximum = 300)]
    pub(super) receive_lock_duration_in_seconds: Option<i64>,
    #[schema(minimum = 1, maximum = 10)]
    pub(super) max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic
    #[schema(example = "P1D")]
    pub(super) event_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<dead_letter::SdkDeadLetterBody>)]
    pub(super) dead_letter_destination_with_resource_identity: Option<Value>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PushInfo)]
pub(super) struct PushInfo {
    #[schema(minimum = 1, maximum = 10)]
    pub(super) max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic
    #[schema(example = "P1D")]
    pub(super) event_time_to_live: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<dead_letter::SdkDeadLetterBody>)]
    pub(super) dead_letter_destination_with_resource_identity: Option<Value>,
    /// Endpoint; with an identity, the same in `deliveryWithResourceIdentity`
    #[schema(value_type = DestinationSchema)]
    pub(super) destination: DestinationBody,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = FiltersConfiguration)]
pub(super) struct FiltersConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) included_event_types: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<advanced::AdvancedFilterSchema>>)]
    pub(super) filters: Option<Vec<Value>>,
}
