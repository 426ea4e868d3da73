//! Event subscriptions: one type for requests and responses.
//!
//! [`SubscriptionProperties`] is the form of topics, domains and domain topics, and the one that
//! checks, records and commands use. Namespace topics have a form of their own on the wire;
//! [`namespace`] translates both ways. A response has every default, but no secrets.

pub mod namespace;

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::Error as _};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use self::namespace::{InvalidNamespaceForm, NamespaceSubscriptionProperties};
use super::{
    resource::{ReadOnly, SystemDataView},
    tolerance::{text_unless_empty, value_unless_empty},
};
use gridhook_deliver::resource::Resource;
use gridhook_policy::transform::Transform;
use gridhook_record::subscription::{
    MinimumTlsVersion, ResourceIdentity, RetryScheduleSpec, Signing,
};

/// An event subscription, in a response without secrets.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventSubscription<P: Serialize> {
    /// Resource id, as Azure Resource Manager writes it
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub id: ReadOnly<String>,
    /// Name of the event subscription, as in the path
    pub name: Option<String>,
    /// Resource type, with the resource provider before it
    #[serde(rename = "type", skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub kind: ReadOnly<String>,
    /// Identities and times of creation and last change
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = SystemDataView, read_only)]
    pub system_data: ReadOnly<SystemDataView>,
    /// Properties of the event subscription
    #[serde(serialize_with = "with_sorted_keys")]
    pub properties: P,
}

/// The properties of an event subscription in the form of its topic.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum AnySubscriptionProperties {
    /// An event subscription of a namespace topic
    Namespace(Box<NamespaceSubscriptionProperties>),
    /// An event subscription of a topic, a domain or a domain topic
    Topic(Box<SubscriptionProperties>),
}

impl TryFrom<AnySubscriptionProperties> for SubscriptionProperties {
    type Error = InvalidNamespaceForm;

    fn try_from(properties: AnySubscriptionProperties) -> Result<Self, Self::Error> {
        match properties {
            AnySubscriptionProperties::Namespace(properties) => (*properties).try_into(),
            AnySubscriptionProperties::Topic(properties) => Ok(*properties),
        }
    }
}

impl<'de> Deserialize<'de> for AnySubscriptionProperties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let properties = if value["deliveryConfiguration"].is_null() {
            serde_json::from_value(value).map(Self::Topic)
        } else {
            serde_json::from_value(value).map(Self::Namespace)
        };
        properties.map_err(de::Error::custom)
    }
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

/// The properties of an event subscription. A PATCH has them without an object around them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventSubscriptionProperties)]
pub struct SubscriptionProperties {
    /// Endpoint that receives the events
    #[schema(value_type = Option<DestinationSchema>)]
    pub destination: Option<Destination>,
    /// Endpoint with the identity that it is called with, in place of `destination`
    pub delivery_with_resource_identity: Option<DeliveryWithIdentity>,
    /// Filter of events; default all events
    pub filter: Option<EventFilter>,
    /// Labels of the event subscription; default none
    pub labels: Option<Vec<String>>,
    /// Schema of delivered events: `EventGridSchema`, `CloudEventSchemaV1_0` or
    /// `CustomInputSchema`; default the input schema of the topic
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "CloudEventSchemaV1_0")]
    pub event_delivery_schema: Option<String>,
    /// What is delivered instead of an event, made of it by JMESPath expressions; default the event
    #[schema(value_type = Option<TransformSchema>)]
    pub transform: Option<Transform>,
    /// When delivery is given up: after how many attempts, and after what time
    pub retry_policy: Option<RetryPolicyBody>,
    /// Where events that are given up are written; without it they are dropped
    pub dead_letter_destination: Option<DeadLetterDestination>,
    /// Destination of dead letters with an identity, in place of `deadLetterDestination`
    pub dead_letter_with_resource_identity: Option<DeadLetterWithIdentity>,
    /// Time at which the event subscription is deleted, such as `2040-01-01T00:00:00Z`; default
    /// never
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "2040-01-01T00:00:00Z")]
    pub expiration_time_utc: Option<String>,
    /// Whether due events are dead-lettered at once while the endpoint is suspended for a client
    /// error; default false
    pub dead_letter_in_probation: Option<bool>,
    /// Action when the endpoint returns 410: `retry` or `disable`; default `retry`
    #[serde(default, deserialize_with = "text_unless_empty")]
    pub on_gone: Option<String>,
    /// Order by key: events with the same value are delivered one after the other
    pub ordering: Option<Ordering>,
    /// For a new event subscription: time of the first stored event to deliver, such as
    /// `2026-01-01T00:00:00Z`
    #[serde(default, deserialize_with = "text_unless_empty")]
    pub starts_from: Option<String>,
    /// Settings of pull delivery, which only event subscriptions of namespace topics have.
    #[serde(skip)]
    pub queue: Option<PullSettings>,
    /// Resource id of the topic, the domain or the domain topic
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub topic: ReadOnly<String>,
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Endpoint that receives events until a new endpoint is validated
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = Option<String>, read_only)]
    pub endpoint_in_service: ReadOnly<Option<String>>,
}

/// Settings of pull delivery, beside those that it shares with push delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullSettings {
    pub receive_lock_duration_in_seconds: Option<i64>,
}

impl SubscriptionProperties {
    /// The destination, with or without an identity.
    pub fn any_destination(&self) -> Option<&Destination> {
        let identified = self.delivery_with_resource_identity.as_ref();
        identified
            .map(|with| &with.destination)
            .or(self.destination.as_ref())
    }

    /// The destination of dead letters, with or without an identity.
    pub fn any_dead_letter_destination(&self) -> Option<&DeadLetterDestination> {
        let identified = self.dead_letter_with_resource_identity.as_ref();
        identified
            .map(|with| &with.dead_letter_destination)
            .or(self.dead_letter_destination.as_ref())
    }
}

/// A destination. Its properties are read once its type is known, so that errors name the key. A
/// response has `endpointBaseUrl` instead of `endpointUrl`, whose query may be a secret.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destination {
    pub endpoint_type: String,
    pub properties: Map<String, Value>,
}

/// The destination in the OpenAPI document.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = EventSubscriptionDestination)]
pub enum DestinationSchema {
    WebHook(WebhookDestination),
    Resource(Resource),
}

/// A webhook as a destination.
#[derive(Serialize, ToSchema)]
#[serde(tag = "endpointType", content = "properties")]
pub enum WebhookDestination {
    /// Address and limits of the webhook
    WebHook(WebhookProperties),
}

/// The properties of a webhook.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookProperties {
    /// URL that requests are sent to, with its query
    #[schema(example = "http://127.0.0.1:9/orders")]
    pub endpoint_url: Option<String>,
    /// Maximum events in a request, 1 to 5000; default 1, or `delivery.batch_events` where only the
    /// size is set
    #[serialize_always]
    pub max_events_per_batch: Option<i64>,
    /// Preferred size of a request in kilobytes, 1 to 1024; default 64
    #[serialize_always]
    pub preferred_batch_size_in_kilobytes: Option<i64>,
    /// Maximum requests per second, of any number of events; default unlimited. The endpoint may
    /// allow fewer
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_requests_per_second: Option<i64>,
    /// Seconds within which the endpoint must begin its response; default
    /// `delivery.response_timeout`
    #[schema(minimum = 1, maximum = 230)]
    pub response_timeout_in_seconds: Option<i64>,
    /// Lowest TLS version towards the endpoint; below 1.2 it is 1.2, and a later
    /// `delivery.tls_minimum_version` applies instead
    #[serde(default, deserialize_with = "value_unless_empty")]
    #[schema(example = "1.2")]
    pub minimum_tls_version_allowed: Option<MinimumTlsVersion>,
    /// Tenant whose tokens the endpoint accepts; the server fetches them with `delivery.identity_…`
    #[serde(default, deserialize_with = "text_unless_empty")]
    pub azure_active_directory_tenant_id: Option<String>,
    /// Application for which tokens are; requests have no token without it
    #[serde(default, deserialize_with = "text_unless_empty")]
    pub azure_active_directory_application_id_or_uri: Option<String>,
    /// Name of the client certificate
    pub client_certificate: Option<String>,
    /// Egress proxy: a table of `delivery.resources` with a URL of `proxy:`, or `none`; default
    /// `delivery.proxy`
    pub proxy: Option<String>,
    /// How requests are signed; default not at all
    pub signing: Option<Signing>,
    /// HTTP headers of delivery requests
    #[schema(value_type = Option<Vec<DeliveryAttributeMapping>>)]
    pub delivery_attribute_mappings: Option<Vec<Value>>,
    /// The URL of the endpoint without parts that may be secret
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub endpoint_base_url: ReadOnly<String>,
    /// Requests per minute that the endpoint allowed in the handshake
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = u32, read_only)]
    pub allowed_rate: ReadOnly<NonZeroU32>,
}

/// One of `deliveryAttributeMappings`. The properties depend on the type.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliveryAttributeMapping {
    /// Name of the HTTP header
    pub name: String,
    /// `Static` or `Dynamic`
    #[serde(rename = "type")]
    pub kind: String,
    /// Value of the header: a text, or the field of the event that has it
    pub properties: Value,
}

/// Destination of events, with the identity that it is called with
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeliveryWithResourceIdentity)]
pub struct DeliveryWithIdentity {
    /// Managed identity, stored and returned
    pub identity: Option<ResourceIdentity>,
    /// Endpoint that receives the events
    #[schema(value_type = DestinationSchema)]
    pub destination: Destination,
}

/// Destination of dead letters, with an identity
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SubscriptionDeadLetterWithResourceIdentity)]
pub struct DeadLetterWithIdentity {
    /// Managed identity, stored and returned
    pub identity: Option<ResourceIdentity>,
    /// Where events that are given up are written; without it they are dropped
    pub dead_letter_destination: DeadLetterDestination,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventFilter {
    /// Prefix of the subject of delivered events; default any
    #[serialize_always]
    pub subject_begins_with: Option<String>,
    /// Suffix of the subject of delivered events; default any
    #[serialize_always]
    pub subject_ends_with: Option<String>,
    /// Event types to deliver, at most `limits.event_types`; default all
    pub included_event_types: Option<Vec<String>>,
    /// Whether the subject is compared with case; default false
    #[serialize_always]
    pub is_subject_case_sensitive: Option<bool>,
    /// Conditions on the fields of events, all of which must hold; at most
    /// `limits.advanced_filters`, default none
    #[schema(value_type = Option<Vec<AdvancedFilterSchema>>)]
    pub advanced_filters: Option<Vec<Value>>,
    /// Whether conditions look into arrays; default false
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
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ordering {
    /// Events with the same value of this key are delivered one after the other: `subject`,
    /// `source`, `topic`, an extension attribute or a path such as `data.order.id`
    #[schema(example = "subject")]
    pub key: String,
    /// What follows an event that is given up: `skip` dead-letters it and goes on with the next
    /// event of the key, `block` keeps it, and the later ones behind it, until `unblock`
    #[schema(example = "skip")]
    pub on_failure: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RetryPolicy)]
pub struct RetryPolicyBody {
    /// Maximum number of delivery attempts, 1 to 30; default 30
    pub max_delivery_attempts: Option<i64>,
    /// Minutes after which delivery is given up, 1 to 1440; default 1440
    pub event_time_to_live_in_minutes: Option<i64>,
    /// Waits between attempts, or the edition that has them; default the schedule of the topic's
    /// edition
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RetryScheduleSpec>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterDestination {
    /// Type of the destination, `StorageBlob`
    #[schema(example = "StorageBlob")]
    pub endpoint_type: String,
    /// Days for which writing to an unreachable store is retried, where the edition of the topic
    /// allows it
    pub delivery_retry_period_in_days: Option<i64>,
    /// Container of the dead letters
    pub properties: DeadLetterProperties,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterProperties {
    /// Storage account, as `dead_letter.stores` has it, or an address such as `s3://bucket/prefix`
    pub resource_id: String,
    /// Name of the container for dead letters
    #[serde(default, deserialize_with = "text_unless_empty")]
    pub blob_container_name: Option<String>,
}

/// The URL of an endpoint, with its query.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FullUrl {
    /// URL that requests are sent to, with its query
    pub endpoint_url: String,
}
