//! Event subscriptions of topics, domains and domain topics. Those of namespace topics are in
//! [`namespace`].
//!
//! A request and a response are two types: a request has secrets and may leave out what has a
//! default; a response has no secrets, every default, and the state.

pub mod namespace;

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize, Serializer, ser::Error as _};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use self::namespace::NamespaceSubscriptionViewProperties;
use super::resource::SystemDataView;
use gridhook_deliver::resource::Resource;
use gridhook_policy::transform::Transform;
use gridhook_record::subscription::{
    MinimumTlsVersion, ResourceIdentity, RetryScheduleSpec, Signing,
};

/// The body of a PUT.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventSubscriptionBody)]
pub struct SubscriptionBody {
    pub name: Option<String>,
    pub properties: SubscriptionBodyProperties,
}

/// The properties of a PUT, and the body of a PATCH.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventSubscriptionBodyProperties)]
pub struct SubscriptionBodyProperties {
    #[schema(value_type = DestinationSchema, required = false)]
    pub destination: DestinationBody,
    /// In place of `destination`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_with_resource_identity: Option<DeliveryWithIdentity>,
    /// Filter of events; default all events
    pub filter: Option<FilterBody>,
    pub labels: Option<Vec<String>>,
    /// Schema of delivered events: `EventGridSchema`, `CloudEventSchemaV1_0` or
    /// `CustomInputSchema`; default the input schema of the topic
    #[schema(example = "CloudEventSchemaV1_0")]
    pub event_delivery_schema: Option<String>,
    /// What is delivered instead of an event
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TransformSchema>)]
    pub transform: Option<Transform>,
    pub retry_policy: Option<RetryPolicyBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_destination: Option<DeadLetterBody>,
    /// In place of `deadLetterDestination`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_with_resource_identity: Option<DeadLetterWithIdentity>,
    /// Time at which the event subscription is deleted, such as `2040-01-01T00:00:00Z`; default
    /// never
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2040-01-01T00:00:00Z")]
    pub expiration_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_in_probation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_gone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<OrderingBody>,
    /// For a new event subscription: time of the first stored event to deliver, such as
    /// `2026-01-01T00:00:00Z`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<String>,
}

/// A destination with secrets. Its properties are read once its type is known, so that errors name
/// the key.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DestinationBody {
    pub endpoint_type: String,
    pub properties: Map<String, Value>,
}

/// The destination in the OpenAPI document.
#[derive(Serialize, ToSchema)]
#[serde(tag = "endpointType", content = "properties")]
#[schema(as = EventSubscriptionDestination)]
pub enum DestinationSchema {
    /// A webhook
    WebHook(WebhookBody),
    /// Any other destination
    #[serde(untagged)]
    Resource(Resource),
}

/// The properties of a webhook.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = WebhookProperties)]
pub struct WebhookBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "http://127.0.0.1:9/orders")]
    pub endpoint_url: Option<String>,
    pub max_events_per_batch: Option<i64>,
    pub preferred_batch_size_in_kilobytes: Option<i64>,
    /// Maximum requests per second, of any number of events; default unlimited. The endpoint may
    /// allow fewer
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_requests_per_second: Option<i64>,
    /// Seconds within which the endpoint must begin its response; default
    /// `delivery.response_timeout`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 230)]
    pub response_timeout_in_seconds: Option<i64>,
    /// Lowest TLS version towards the endpoint, `1.2` or `1.3`; a later
    /// `delivery.tls_minimum_version` applies instead
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1.2")]
    pub minimum_tls_version_allowed: Option<MinimumTlsVersion>,
    /// Tenant whose tokens the endpoint accepts; the server fetches them with `delivery.identity_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_active_directory_tenant_id: Option<String>,
    /// Application for which tokens are; requests have no token without it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_active_directory_application_id_or_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<String>,
    /// Egress proxy: a table of `delivery.resources` with a URL of `proxy:`, or `none`; default
    /// `delivery.proxy`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing: Option<Signing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<AttributeMappingBody>>)]
    pub delivery_attribute_mappings: Option<Vec<Value>>,
}

/// One of `deliveryAttributeMappings`. The properties depend on the type.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeliveryAttributeMapping)]
pub struct AttributeMappingBody {
    /// Name of the HTTP header
    pub name: String,
    /// `Static` or `Dynamic`
    #[serde(rename = "type")]
    pub kind: String,
    /// Value of the header: a text, or the field of the event that has it
    pub properties: Value,
}

/// Destination of events, with the identity that it is called with
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeliveryWithResourceIdentity)]
pub struct DeliveryWithIdentity {
    pub identity: Option<ResourceIdentity>,
    #[schema(value_type = DestinationSchema)]
    pub destination: DestinationBody,
}

/// Destination of dead letters, with an identity
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SubscriptionDeadLetterWithResourceIdentity)]
pub struct DeadLetterWithIdentity {
    pub identity: Option<ResourceIdentity>,
    pub dead_letter_destination: DeadLetterBody,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventFilter)]
pub struct FilterBody {
    /// Prefix of the subject of delivered events; default any
    pub subject_begins_with: Option<String>,
    /// Suffix of the subject of delivered events; default any
    pub subject_ends_with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included_event_types: Option<Vec<String>>,
    pub is_subject_case_sensitive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<AdvancedFilterSchema>>)]
    pub advanced_filters: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_advanced_filtering_on_arrays: Option<bool>,
}

/// An advanced filter in the OpenAPI document.
#[derive(ToSchema)]
#[schema(as = AdvancedFilter)]
#[serde(rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "read member by member, so that an error can describe what the operator takes"
)]
pub struct AdvancedFilterSchema {
    /// Operator, such as `NumberGreaterThan`, `StringIn` or `IsNotNull`
    #[schema(example = "NumberGreaterThan")]
    operator_type: String,
    /// Field of the event, such as `data.total`
    #[schema(example = "data.total")]
    key: String,
    /// Value to compare with, for operators with one value
    #[schema(example = 5)]
    value: Option<Value>,
    /// Values to compare with, for operators with several
    values: Option<Vec<Value>>,
}

/// A transformation in the OpenAPI document.
#[derive(ToSchema)]
#[schema(as = Transform)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the stored form is read")]
pub struct TransformSchema {
    /// JMESPath expression of the JSON value that is delivered instead of the event; default the
    /// event
    #[schema(example = "{text: subject}")]
    body: Option<String>,
    /// HTTP method: `PATCH`, `POST` or `PUT`; default `POST`
    #[schema(example = "PUT")]
    method: Option<String>,
    /// Expression of a segment or a list of segments to append to the path of the endpoint
    #[schema(example = "['orders', id]")]
    path_suffix: Option<String>,
    /// Expressions of headers, by name
    headers: Option<BTreeMap<String, String>>,
}

/// Order of events, an extension.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Ordering)]
pub struct OrderingBody {
    /// Events with the same value of this key are delivered one after the other: `subject`,
    /// `source`, `topic`, an extension attribute or a path such as `data.order.id`
    #[schema(example = "subject")]
    pub key: String,
    /// What follows an event that is given up: `skip` dead-letters it and goes on with the next
    /// event of the key, `block` keeps it, and the later ones behind it, until `unblock`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "skip")]
    pub on_failure: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RetryPolicy)]
pub struct RetryPolicyBody {
    pub max_delivery_attempts: Option<i64>,
    pub event_time_to_live_in_minutes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RetryScheduleSpec>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterDestination)]
pub struct DeadLetterBody {
    /// Type of the destination, `StorageBlob`
    #[schema(example = "StorageBlob")]
    pub endpoint_type: String,
    /// Days for which writing to an unreachable store is retried, where the edition of the topic
    /// allows it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_retry_period_in_days: Option<i64>,
    /// Container of the dead letters
    pub properties: BlobBody,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterProperties)]
pub struct BlobBody {
    /// Storage account, as `dead_letter.stores` has it, or an address such as `s3://bucket/prefix`
    pub resource_id: String,
    pub blob_container_name: Option<String>,
}

/// An event subscription, without secrets.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = EventSubscription)]
pub struct SubscriptionView {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "systemData", skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemDataView>,
    #[serde(serialize_with = "with_sorted_keys")]
    #[schema(value_type = SubscriptionViewProperties)]
    pub properties: AnySubscriptionProperties,
}

/// The properties of an event subscription, in the form of its topic.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum AnySubscriptionProperties {
    /// Of a namespace topic
    Namespace(Box<NamespaceSubscriptionViewProperties>),
    /// Of a topic, a domain or a domain topic
    Topic(Box<SubscriptionViewProperties>),
}

/// Writes keys in alphabetical order, so that the ETag of an event subscription does not depend on
/// the order of fields.
fn with_sorted_keys<S: Serializer>(
    value: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde_json::to_value(value)
        .map_err(S::Error::custom)?
        .serialize(serializer)
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EventSubscriptionProperties)]
pub struct SubscriptionViewProperties {
    /// Resource id of the topic, the domain or the domain topic
    pub topic: String,
    pub provisioning_state: String,
    /// Endpoint that receives events until a new endpoint is validated
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub endpoint_in_service: Option<Option<String>>,
    /// With `endpointBaseUrl` instead of `endpointUrl`, whose query may be a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub destination: Option<DestinationView>,
    /// In place of `destination`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub delivery_with_resource_identity: Option<DeliveryWithIdentityView>,
    /// Filter of events, with its defaults
    pub filter: FilterBody,
    pub labels: Vec<String>,
    pub event_delivery_schema: String,
    /// What is delivered instead of an event
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TransformSchema>)]
    pub transform: Option<Transform>,
    pub retry_policy: RetryPolicyBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_destination: Option<DeadLetterBody>,
    /// In place of `deadLetterDestination`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_with_resource_identity: Option<DeadLetterWithIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_in_probation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_gone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<OrderingBody>,
    /// Time of the first stored event that it began with
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time_utc: Option<String>,
}

/// A destination without secrets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "endpointType", content = "properties")]
pub enum DestinationView {
    /// A webhook
    WebHook(Box<WebhookView>),
    /// Any other destination
    #[serde(untagged)]
    Resource(ResourceView),
}

/// The properties of a webhook, with the parts of the URL that cannot be secret.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookView {
    pub endpoint_base_url: String,
    /// Requests per minute that the endpoint allowed in the handshake
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_rate: Option<NonZeroU32>,
    /// All others. `endpointUrl` is missing, except where a command has added it
    #[serde(flatten)]
    pub settings: WebhookBody,
}

/// A destination that is no webhook.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    pub endpoint_type: String,
    pub properties: ResourceViewProperties,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceViewProperties {
    pub resource_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events_per_batch: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_batch_size_in_kilobytes: Option<i64>,
    /// Those of the kind of destination
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// A destination without secrets, with the identity that it is called with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeliveryWithIdentityView {
    pub identity: ResourceIdentity,
    pub destination: DestinationView,
}

/// The URL of an endpoint, with its query.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullUrl {
    pub endpoint_url: String,
}
