//! Resources of Azure Resource Manager, as far as the commands read them. `admin::model` writes them in full.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A page of a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub value: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

/// What every resource has.
#[derive(Clone, Debug, Deserialize)]
pub struct NamedResource {
    pub id: String,
    pub name: String,
}

/// A topic, a domain, a namespace, or a topic of one of them.
#[derive(Clone, Debug, Deserialize)]
pub struct TopicResource {
    pub id: String,
    pub location: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub properties: TopicProperties,
}

/// The properties of a topic; which ones there are depends on its type.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicProperties {
    pub endpoint: Option<String>,
    pub input_schema: Option<String>,
    pub edition: Option<String>,
    pub event_retention_in_days: Option<u64>,
    pub duplicate_detection_history_time_window: Option<String>,
    pub schema_validation: Option<String>,
    pub disable_local_auth: Option<bool>,
    pub public_network_access: Option<String>,
    pub inbound_ip_rules: Option<Vec<InboundIpRule>>,
}

/// Addresses that publishers may use.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboundIpRule {
    pub ip_mask: String,
}

/// An event type of a topic.
#[derive(Clone, Debug, Deserialize)]
pub struct DeclaredEventType {
    pub name: String,
    pub properties: DeclaredEventTypeProperties,
}

/// The properties of an event type.
#[derive(Clone, Debug, Deserialize)]
pub struct DeclaredEventTypeProperties {
    pub description: Option<String>,
    #[serde(default)]
    pub deprecated: bool,
    #[serde(default)]
    pub versions: BTreeMap<String, DeclaredVersion>,
}

/// A version of an event type.
#[derive(Clone, Debug, Deserialize)]
pub struct DeclaredVersion {
    pub schema: Option<Value>,
    #[serde(default)]
    pub examples: Vec<Value>,
    #[serde(default)]
    pub deprecated: bool,
}

/// The access keys of a resource.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Keys)]
pub struct SharedAccessKeys {
    pub key1: String,
    pub key2: String,
}

/// The URL of an endpoint, with its query.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullUrl {
    pub endpoint_url: String,
}

/// An event subscription.
#[derive(Clone, Debug, Deserialize)]
pub struct EventSubscription {
    pub id: String,
    pub name: String,
    pub properties: EventSubscriptionProperties,
}

/// The properties of an event subscription: those of topics and domains, and those of namespace topics.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSubscriptionProperties {
    /// Missing for namespace topics
    pub topic: Option<String>,
    pub provisioning_state: String,
    pub event_delivery_schema: String,
    pub labels: Option<Vec<String>>,
    pub expiration_time_utc: Option<String>,
    pub starts_from: Option<String>,
    pub destination: Option<Destination>,
    pub delivery_with_resource_identity: Option<IdentifiedDestination>,
    pub filter: Option<SubscriptionFilter>,
    pub transform: Option<BTreeMap<String, Value>>,
    pub retry_policy: Option<RetryPolicy>,
    pub dead_letter_destination: Option<DeadLetterDestination>,
    pub dead_letter_with_resource_identity: Option<IdentifiedDeadLetterDestination>,
    pub ordering: Option<Ordering>,
    /// Only of namespace topics
    pub delivery_configuration: Option<DeliveryConfiguration>,
    /// Only of namespace topics
    pub filters_configuration: Option<SubscriptionFilter>,
}

/// An endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub endpoint_type: String,
    pub properties: DestinationProperties,
}

/// The properties of a webhook or of another destination.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DestinationProperties {
    pub endpoint_base_url: Option<String>,
    /// Only if the commands requested it
    pub endpoint_url: Option<String>,
    pub max_events_per_batch: Option<u64>,
    pub preferred_batch_size_in_kilobytes: Option<u64>,
    pub max_requests_per_second: Option<u64>,
    pub response_timeout_in_seconds: Option<u64>,
    /// Not of a webhook
    pub resource_id: Option<String>,
    /// All others
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// A filter, in either form: namespace topics have no subject, and `filters` instead of `advancedFilters`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionFilter {
    pub included_event_types: Option<Vec<String>>,
    pub subject_begins_with: Option<String>,
    pub subject_ends_with: Option<String>,
    #[serde(alias = "filters")]
    pub advanced_filters: Option<Vec<Value>>,
}

/// When delivery is given up.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    pub max_delivery_attempts: Option<u64>,
    pub event_time_to_live_in_minutes: Option<u64>,
}

/// The order of events.
#[derive(Clone, Debug, Deserialize)]
pub struct Ordering {
    pub key: String,
}

/// A destination of dead letters.
#[derive(Clone, Debug, Deserialize)]
pub struct DeadLetterDestination {
    pub properties: BlobProperties,
}

/// A container of a storage account.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobProperties {
    pub resource_id: Option<String>,
    pub blob_container_name: Option<String>,
}

/// How events of a namespace topic are delivered.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "deliveryMode")]
pub enum DeliveryConfiguration {
    Push { push: NamespaceDelivery },
    Queue { queue: NamespaceDelivery },
}

/// The settings of push or pull delivery.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceDelivery {
    pub destination: Option<Destination>,
    pub delivery_with_resource_identity: Option<IdentifiedDestination>,
    pub max_delivery_count: Option<u64>,
    pub event_time_to_live: Option<String>,
    pub receive_lock_duration_in_seconds: Option<u64>,
    pub dead_letter_destination_with_resource_identity: Option<IdentifiedDeadLetterDestination>,
}

/// An endpoint, with an identity.
#[derive(Clone, Debug, Deserialize)]
pub struct IdentifiedDestination {
    pub destination: Option<Destination>,
}

/// A destination of dead letters, with an identity.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentifiedDeadLetterDestination {
    pub dead_letter_destination: Option<DeadLetterDestination>,
}
