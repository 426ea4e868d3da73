//! Event subscriptions of namespace topics, in the form that they have on the wire: the same
//! properties as [`SubscriptionProperties`], at other places.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use super::{
    AdvancedFilterSchema, DeadLetterDestination, DeadLetterProperties, DeadLetterWithIdentity,
    DeliveryWithIdentity, Destination, DestinationSchema, EventFilter, Ordering, PullSettings,
    RetryPolicyBody, SubscriptionProperties, TransformSchema,
};
use crate::{
    duration::{InvalidDuration, format_duration, parse_minutes},
    resource::ReadOnly,
    tolerance::text_unless_empty,
};
use gridhook_policy::transform::Transform;
use gridhook_record::subscription::ResourceIdentity;
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

/// The value of `deliveryMode` for push delivery.
pub const PUSH: &str = "Push";

/// The value of `deliveryMode` for pull delivery.
pub const QUEUE: &str = "Queue";

/// The paths of properties of [`SubscriptionProperties`] that are elsewhere in a namespace, with
/// `*` for `push` or `queue`.
const PATHS: [(&str, &str); 8] = [
    ("destination", "deliveryConfiguration.*.destination"),
    (
        "deliveryWithResourceIdentity",
        "deliveryConfiguration.*.deliveryWithResourceIdentity",
    ),
    ("queue", "deliveryConfiguration.queue"),
    (
        "retryPolicy.maxDeliveryAttempts",
        "deliveryConfiguration.*.maxDeliveryCount",
    ),
    (
        "retryPolicy.eventTimeToLiveInMinutes",
        "deliveryConfiguration.*.eventTimeToLive",
    ),
    (
        "deadLetterDestination",
        "deliveryConfiguration.*.deadLetterDestinationWithResourceIdentity.deadLetterDestination",
    ),
    ("filter.advancedFilters", "filtersConfiguration.filters"),
    (
        "filter.includedEventTypes",
        "filtersConfiguration.includedEventTypes",
    ),
];

/// Translates the path of a property of [`SubscriptionProperties`] to its path in a namespace.
pub fn translate_path(path: &str, is_pulled: bool) -> String {
    let part = if is_pulled { "queue" } else { "push" };
    let translated = PATHS.iter().find_map(|(canonical, namespaced)| {
        let below = path.strip_prefix(canonical)?;
        let is_whole_key = below.is_empty() || below.starts_with(['.', '[']);
        is_whole_key.then(|| format!("{}{below}", namespaced.replace('*', part)))
    });
    translated.unwrap_or_else(|| path.to_owned())
}

/// The properties of an event subscription of a namespace topic.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceSubscriptionProperties {
    /// Mode and settings of delivery; default `Queue`
    #[serde(default)]
    pub delivery_configuration: DeliveryConfiguration,
    /// Schema of the events, `CloudEventSchemaV1_0`
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "CloudEventSchemaV1_0")]
    pub event_delivery_schema: Option<String>,
    /// Filters of the event subscription
    pub filters_configuration: Option<FiltersConfiguration>,
    /// Labels of the event subscription, such as `team=shop`; default none
    pub labels: Option<Vec<String>>,
    /// What push delivery sends instead of an event
    #[schema(value_type = Option<TransformSchema>)]
    pub transform: Option<Transform>,
    /// Time at which the event subscription is deleted, such as `2040-01-01T00:00:00Z`; default
    /// never
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "2040-01-01T00:00:00Z")]
    pub expiration_time_utc: Option<String>,
    /// Order by key: events with the same value are delivered one after the other
    pub ordering: Option<Ordering>,
    /// For a new event subscription: time of the first stored event to deliver
    pub starts_from: Option<String>,
    /// Provisioning state of the resource
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = String, read_only)]
    pub provisioning_state: ReadOnly<String>,
    /// Endpoint that receives events until a new endpoint is validated
    #[serde(skip_serializing_if = "ReadOnly::is_none")]
    #[schema(value_type = Option<String>, read_only)]
    pub endpoint_in_service: ReadOnly<Option<String>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliveryConfiguration {
    /// `Push`, or `Queue` for clients that pull
    #[schema(example = "Push")]
    pub delivery_mode: String,
    /// Settings for the mode `Queue`, in which clients pull
    pub queue: Option<QueueInfo>,
    /// Settings for the mode `Push`, in which gridhook sends
    pub push: Option<PushInfo>,
}

impl Default for DeliveryConfiguration {
    fn default() -> Self {
        Self {
            delivery_mode: QUEUE.to_owned(),
            queue: None,
            push: None,
        }
    }
}

impl DeliveryConfiguration {
    /// The destination of dead letters.
    pub fn dead_letter(&self) -> Option<&NamespaceDeadLetter> {
        let push = self.push.as_ref();
        let queue = self.queue.as_ref();
        let in_push = push.map(|push| &push.dead_letter_destination_with_resource_identity);
        let in_queue = queue.map(|queue| &queue.dead_letter_destination_with_resource_identity);
        in_push.or(in_queue)?.as_ref()
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueInfo {
    /// Seconds for which a received event is locked, 60 to 300; default 60
    #[schema(minimum = 60, maximum = 300)]
    pub receive_lock_duration_in_seconds: Option<i64>,
    /// Maximum number of delivery attempts, 1 to 10; default 10
    #[schema(minimum = 1, maximum = 10)]
    pub max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic;
    /// default 1 day
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "P1D")]
    pub event_time_to_live: Option<String>,
    /// Destination of dead letters, with an identity
    pub dead_letter_destination_with_resource_identity: Option<NamespaceDeadLetter>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushInfo {
    /// Maximum number of delivery attempts, 1 to 10; default 10
    #[schema(minimum = 1, maximum = 10)]
    pub max_delivery_count: Option<i64>,
    /// Time to live in ISO 8601, such as `P1D` or `PT30M`; at most the retention of the topic;
    /// default 1 day
    #[serde(default, deserialize_with = "text_unless_empty")]
    #[schema(example = "P1D")]
    pub event_time_to_live: Option<String>,
    /// Destination of dead letters, with an identity
    pub dead_letter_destination_with_resource_identity: Option<NamespaceDeadLetter>,
    /// Endpoint that receives the events
    #[schema(value_type = Option<DestinationSchema>)]
    pub destination: Option<Destination>,
    /// Endpoint with the identity that it is called with, in place of `destination`
    pub delivery_with_resource_identity: Option<DeliveryWithIdentity>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FiltersConfiguration {
    /// Event types to deliver, at most `limits.event_types`; default all
    pub included_event_types: Option<Vec<String>>,
    /// Conditions on the fields of events
    #[schema(value_type = Option<Vec<AdvancedFilterSchema>>)]
    pub filters: Option<Vec<Value>>,
}

/// Destination of dead letters with an identity: with `deadLetterDestination` as in the SDKs, or
/// with `endpointType` and `StorageBlob` as in Azure's documentation. A response has the former.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterWithResourceIdentity)]
pub struct NamespaceDeadLetter {
    /// Managed identity, stored and returned
    pub identity: Option<ResourceIdentity>,
    /// Days for which writing to an unreachable store is retried
    #[schema(minimum = 1, maximum = 2)]
    pub delivery_retry_period_in_days: Option<i64>,
    /// Where events that are given up are written; without it they are dropped
    pub dead_letter_destination: Option<DeadLetterDestination>,
    /// Type of the endpoint, such as `WebHook` or `StorageBlob`
    pub endpoint_type: Option<String>,
    /// Container of the dead letters
    #[serde(rename = "StorageBlob", alias = "storageBlob")]
    pub storage_blob: Option<DeadLetterProperties>,
}

/// Properties of a namespace that have no meaning together, or a duration that is none.
#[derive(Debug, Error)]
#[error("{at} {problem}")]
pub struct InvalidNamespaceForm {
    pub at: String,
    /// What is wrong with the property, and what is allowed.
    pub problem: String,
}

impl InvalidNamespaceForm {
    fn new(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            problem: problem.into(),
        }
    }
}

impl From<SubscriptionProperties> for NamespaceSubscriptionProperties {
    fn from(properties: SubscriptionProperties) -> Self {
        let retry_policy = properties.retry_policy.unwrap_or_default();
        let max_delivery_count = retry_policy.max_delivery_attempts;
        let minutes = retry_policy.event_time_to_live_in_minutes;
        let event_time_to_live = minutes
            .and_then(|minutes| u32::try_from(minutes.checked_mul(60)?).ok())
            .map(format_duration);
        let dead_letter_destination_with_resource_identity = NamespaceDeadLetter::from_either(
            properties.dead_letter_destination,
            properties.dead_letter_with_resource_identity,
        );
        let delivery_configuration = match properties.queue {
            Some(queue) => DeliveryConfiguration {
                delivery_mode: QUEUE.to_owned(),
                push: None,
                queue: Some(QueueInfo {
                    receive_lock_duration_in_seconds: queue.receive_lock_duration_in_seconds,
                    max_delivery_count,
                    event_time_to_live,
                    dead_letter_destination_with_resource_identity,
                }),
            },
            None => DeliveryConfiguration {
                delivery_mode: PUSH.to_owned(),
                queue: None,
                push: Some(PushInfo {
                    max_delivery_count,
                    event_time_to_live,
                    dead_letter_destination_with_resource_identity,
                    destination: properties.destination,
                    delivery_with_resource_identity: properties.delivery_with_resource_identity,
                }),
            },
        };
        Self {
            delivery_configuration,
            event_delivery_schema: properties.event_delivery_schema,
            filters_configuration: properties.filter.map(|filter| FiltersConfiguration {
                included_event_types: filter.included_event_types,
                filters: filter.advanced_filters,
            }),
            // Azure's clients do not know it.
            labels: properties.labels.filter(|labels| !labels.is_empty()),
            transform: properties.transform,
            expiration_time_utc: properties.expiration_time_utc,
            ordering: properties.ordering,
            starts_from: properties.starts_from,
            provisioning_state: properties.provisioning_state,
            endpoint_in_service: properties.endpoint_in_service,
        }
    }
}

impl TryFrom<NamespaceSubscriptionProperties> for SubscriptionProperties {
    type Error = InvalidNamespaceForm;

    fn try_from(properties: NamespaceSubscriptionProperties) -> Result<Self, Self::Error> {
        let (queue, delivery) = properties.delivery_configuration.into_settings()?;
        let part = if queue.is_some() { "queue" } else { "push" };
        let at = |key: &str| format!("deliveryConfiguration.{part}.{key}");
        let minutes = delivery.event_time_to_live.as_deref().map(parse_minutes);
        let event_time_to_live_in_minutes = minutes.transpose().map_err(|error| {
            let InvalidDuration(problem) = error;
            InvalidNamespaceForm::new(at("eventTimeToLive"), problem)
        })?;
        let dead_letter = delivery
            .dead_letter_destination_with_resource_identity
            .map(NamespaceDeadLetter::into_canonical)
            .transpose()
            .map_err(|InvalidNamespaceForm { at: below, problem }| {
                let key = "deadLetterDestinationWithResourceIdentity";
                InvalidNamespaceForm::new(at(&format!("{key}{below}")), problem)
            })?;
        let (dead_letter_destination, dead_letter_with_resource_identity) = match dead_letter {
            Some(with) if with.identity.is_none() => (Some(with.dead_letter_destination), None),
            with => (None, with),
        };
        Ok(Self {
            destination: delivery.destination,
            delivery_with_resource_identity: delivery.delivery_with_resource_identity,
            filter: properties.filters_configuration.map(|filters| EventFilter {
                included_event_types: filters.included_event_types,
                advanced_filters: filters.filters,
                ..EventFilter::default()
            }),
            labels: properties.labels,
            event_delivery_schema: properties.event_delivery_schema,
            transform: properties.transform,
            retry_policy: Some(RetryPolicyBody {
                max_delivery_attempts: delivery.max_delivery_count,
                event_time_to_live_in_minutes,
                schedule: None,
            }),
            dead_letter_destination,
            dead_letter_with_resource_identity,
            expiration_time_utc: properties.expiration_time_utc,
            ordering: properties.ordering,
            starts_from: properties.starts_from,
            queue,
            provisioning_state: properties.provisioning_state,
            endpoint_in_service: properties.endpoint_in_service,
            ..Self::default()
        })
    }
}

impl DeliveryConfiguration {
    /// The settings of the mode: those that only a queue has, and those that push delivery has.
    fn into_settings(self) -> Result<(Option<PullSettings>, PushInfo), InvalidNamespaceForm> {
        let mode = self.delivery_mode;
        let is_push = mode.eq_ignore_ascii_case(PUSH);
        let is_queue = mode.eq_ignore_ascii_case(QUEUE);
        match (self.push, self.queue) {
            (Some(push), None) if is_push => Ok((None, push)),
            (None, queue) if is_queue => {
                let QueueInfo {
                    receive_lock_duration_in_seconds,
                    max_delivery_count,
                    event_time_to_live,
                    dead_letter_destination_with_resource_identity,
                } = queue.unwrap_or_default();
                let queue = PullSettings {
                    receive_lock_duration_in_seconds,
                };
                let shared = PushInfo {
                    max_delivery_count,
                    event_time_to_live,
                    dead_letter_destination_with_resource_identity,
                    destination: None,
                    delivery_with_resource_identity: None,
                };
                Ok((Some(queue), shared))
            }
            (_, Some(_)) if is_push => Err(InvalidNamespaceForm::new(
                "deliveryConfiguration.queue",
                "is given, and deliveryMode is Push; leave it out",
            )),
            (None, None) if is_push => Err(InvalidNamespaceForm::new(
                "deliveryConfiguration.push",
                "is missing, and deliveryMode is Push; expected a destination in it",
            )),
            _ if is_queue => Err(InvalidNamespaceForm::new(
                "deliveryConfiguration.push",
                "is given, and deliveryMode is Queue; leave it out",
            )),
            _ => Err(InvalidNamespaceForm::new(
                "deliveryConfiguration.deliveryMode",
                format!("is \"{}\"; expected {QUEUE} or {PUSH}", mode.escape_debug()),
            )),
        }
    }
}

impl NamespaceDeadLetter {
    fn from_either(
        plain: Option<DeadLetterDestination>,
        identified: Option<DeadLetterWithIdentity>,
    ) -> Option<Self> {
        let with_identity = identified.or_else(|| {
            Some(DeadLetterWithIdentity {
                identity: None,
                dead_letter_destination: plain?,
            })
        })?;
        let mut destination = with_identity.dead_letter_destination;
        Some(Self {
            identity: with_identity.identity,
            delivery_retry_period_in_days: destination.delivery_retry_period_in_days.take(),
            dead_letter_destination: Some(destination),
            endpoint_type: None,
            storage_blob: None,
        })
    }

    fn into_canonical(self) -> Result<DeadLetterWithIdentity, InvalidNamespaceForm> {
        let missing = |key: &str| {
            InvalidNamespaceForm::new("", format!("cannot be read: missing field `{key}`"))
        };
        let mut dead_letter_destination = match self.dead_letter_destination {
            Some(_) if self.storage_blob.is_some() || self.endpoint_type.is_some() => {
                let problem = "has deadLetterDestination, and endpointType or StorageBlob beside \
                    it; leave one of them out";
                return Err(InvalidNamespaceForm::new("", problem));
            }
            Some(destination) => destination,
            None => DeadLetterDestination {
                endpoint_type: self.endpoint_type.ok_or_else(|| missing("endpointType"))?,
                delivery_retry_period_in_days: None,
                properties: self.storage_blob.ok_or_else(|| missing("StorageBlob"))?,
            },
        };
        if self.delivery_retry_period_in_days.is_some() {
            dead_letter_destination.delivery_retry_period_in_days =
                self.delivery_retry_period_in_days;
        }
        Ok(DeadLetterWithIdentity {
            identity: self.identity,
            dead_letter_destination,
        })
    }
}
