//! Event subscriptions, as the control plane speaks of them.

mod advanced;
pub(in crate::admin) mod attribute;
mod check;
mod destination;
mod identity;
pub(in crate::admin) mod namespace;
pub(in crate::admin) mod secrets;
pub mod test;
pub(in crate::admin) mod transform;
mod view;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use self::destination::{DestinationBody, DestinationSchema};
pub use self::{
    check::fits,
    view::{PathForm, SubscriptionView},
};
use super::{
    EditionRanges, Enumeration, InvalidRequest, canonicalize, check_name, check_same_name, drop_read_only, merge,
    parse, read, take, text_at, value_of,
};
use crate::{
    control::record::{
        subscription::{
            ManagedIdentities, OnGone, RetryPolicy, RetryScheduleSpec, StorageBlobDestination, SubscriptionRecord,
        },
        topic::{TopicKind, TopicRecord},
    },
    deliver::resource::Resource,
    event::{Name, SubscriptionId},
    policy::{filter::Filter, transform::Transform},
};

const READ_ONLY: [&str; 5] = [
    "topic",
    "provisioningState",
    "endpointInService",
    "destination.properties.endpointBaseUrl",
    "destination.properties.allowedRate",
];

const ENUMERATIONS: [Enumeration; 7] = [
    ("destination.endpointType", Resource::ENDPOINT_TYPES),
    ("destination.properties.deliveryAttributeMappings.[].type", &attribute::TYPES),
    ("filter.advancedFilters.[].operatorType", &advanced::OPERATORS),
    ("eventDeliverySchema", &DELIVERY_SCHEMAS),
    ("deadLetterDestination.endpointType", &[STORAGE_BLOB]),
    ("onGone", &["retry", "disable"]),
    ("ordering.onFailure", &[check::SKIP, check::BLOCK]),
];

/// The `endpointType` of a destination.
const WEBHOOK: &str = "WebHook";

/// The `endpointType` of a destination of dead letters.
const STORAGE_BLOB: &str = "StorageBlob";

/// The values of `eventDeliverySchema`.
const DELIVERY_SCHEMAS: [&str; 3] = ["EventGridSchema", "CloudEventSchemaV1_0", "CustomInputSchema"];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventSubscriptionBody)]
pub(in crate::admin) struct SubscriptionBody {
    name: Option<String>,
    properties: SubscriptionBodyProperties,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventSubscriptionBodyProperties)]
pub(in crate::admin) struct SubscriptionBodyProperties {
    #[schema(value_type = DestinationSchema, required = false)]
    destination: DestinationBody,
    /// In place of `destination`
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_with_resource_identity: Option<identity::DeliveryWithIdentity>,
    filter: Option<FilterBody>,
    labels: Option<Vec<String>>,
    /// The input schema of the topic, or `CloudEventSchemaV1_0`.
    #[schema(example = "CloudEventSchemaV1_0")]
    event_delivery_schema: Option<String>,
    /// What is delivered instead of an event
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<transform::TransformSchema>)]
    transform: Option<Transform>,
    retry_policy: Option<RetryBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_destination: Option<DeadLetterBody>,
    /// In place of `deadLetterDestination`
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_with_resource_identity: Option<identity::DeadLetterWithIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Time at which it is deleted, such as `2040-01-01T00:00:00Z`.
    #[schema(example = "2040-01-01T00:00:00Z")]
    expiration_time_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_in_probation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_gone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering: Option<OrderingBody>,
    /// For a new event subscription: time of the first stored event to deliver, such as `2026-01-01T00:00:00Z`
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_from: Option<String>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EventFilter)]
pub(in crate::admin) struct FilterBody {
    subject_begins_with: Option<String>,
    subject_ends_with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    included_event_types: Option<Vec<String>>,
    is_subject_case_sensitive: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<advanced::AdvancedFilterSchema>>)]
    advanced_filters: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_advanced_filtering_on_arrays: Option<bool>,
}

/// Order of events, an extension.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Ordering)]
pub(in crate::admin) struct OrderingBody {
    /// Events with the same value of this key are delivered one after the other: `subject`, `source`, `topic`, an
    /// extension attribute or a path such as `data.order.id`
    #[schema(example = "subject")]
    key: String,
    /// What follows an event that is given up: `skip` dead-letters it and goes on with the next event of the key, `block`
    /// keeps it, and the later ones behind it, until `unblock`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "skip")]
    on_failure: Option<String>,
}

#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = RetryPolicy)]
struct RetryBody {
    max_delivery_attempts: Option<i64>,
    event_time_to_live_in_minutes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<RetryScheduleSpec>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterDestination)]
struct DeadLetterBody {
    /// Type of the destination, `StorageBlob`
    #[schema(example = "StorageBlob")]
    endpoint_type: String,
    /// Days for which writing to an unreachable store is retried, where the edition of the topic allows it
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_retry_period_in_days: Option<i64>,
    properties: BlobBody,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterProperties)]
struct BlobBody {
    /// The storage account, as `dead_letter.stores` has it, or an address such as `s3://bucket/prefix`.
    resource_id: String,
    blob_container_name: Option<String>,
}

/// Reads the body of a PUT of the event subscription `name` of `topic`; number and version are not set. A secret of
/// `existing` is kept if the body omits it or has it as GET shows it.
pub fn put(
    name: &Name,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    ranges: &EditionRanges,
    body: &[u8],
) -> Result<SubscriptionRecord, InvalidRequest> {
    if topic.kind() == TopicKind::NamespaceTopic {
        return namespace::put(name, topic, existing, ranges, body);
    }
    check_name("the subscription's name", name.as_str(), 64)?;
    let mut value = parse(body)?;
    drop_read_only(&mut value, &["id", "type", "systemData"]);
    let mut identities = ManagedIdentities::default();
    if let Some(mut properties) = take(&mut value, "properties") {
        let under = |invalid: InvalidRequest| invalid.under("properties");
        identities = identity::settle(&mut properties, &identities).map_err(under)?;
        settle(&mut properties).map_err(under)?;
        secrets::restore(properties.get_mut("destination"), existing);
        value["properties"] = properties;
    }
    let SubscriptionBody { name: given, properties } = read(value)?;
    check_same_name(given.as_deref(), name.as_str())?;
    record(name, topic, ranges, properties, identities).map_err(|invalid| invalid.under("properties"))
}

/// Reads the body of a PATCH of `existing`. It has no `properties` object: Azure's clients send a flat body, except for
/// namespaces.
pub fn patch(
    existing: &SubscriptionRecord,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    body: &[u8],
) -> Result<SubscriptionRecord, InvalidRequest> {
    if topic.kind() == TopicKind::NamespaceTopic {
        return namespace::patch(existing, topic, ranges, body);
    }
    let mut patch = parse(body)?;
    if patch.get("properties").is_some() {
        return Err(InvalidRequest::new(
            "properties",
            "is not allowed in a PATCH of an event subscription: destination, filter, labels and the others stand at \
             the top",
        ));
    }
    let identities = identity::settle(&mut patch, &existing.identities)?;
    let mut value = value_of(&settable(existing));
    give_way(&mut value, &patch);
    merge(&mut value, patch);
    settle(&mut value)?;
    secrets::restore(value.get_mut("destination"), Some(existing));
    record(&existing.name, topic, ranges, read(value)?, identities)
}

/// Removes from the current properties what would contradict a property that `patch` sets.
fn give_way(value: &mut Value, patch: &Value) {
    destination::give_way(value, &patch["destination"]);
    let webhook = &patch["destination"]["properties"];
    let is_unbatched = value["destination"]["properties"]["maxEventsPerBatch"] == 1;
    if is_unbatched && webhook["preferredBatchSizeInKilobytes"].is_number() {
        drop(take(value, "destination.properties.maxEventsPerBatch"));
    }
    let resource_id = &patch["deadLetterDestination"]["properties"]["resourceId"];
    if resource_id
        .as_str()
        .is_some_and(|id| StorageBlobDestination::is_address(id) || check::container_of(id).is_some())
    {
        drop(take(value, "deadLetterDestination.properties.blobContainerName"));
    }
}

/// Removes read-only properties, and checks the types of both destinations.
fn settle(properties: &mut Value) -> Result<(), InvalidRequest> {
    drop_read_only(properties, &READ_ONLY);
    canonicalize(properties, &ENUMERATIONS);
    let at = "deadLetterDestination.endpointType";
    if let Some(given) = text_at(properties, at).filter(|given| *given != STORAGE_BLOB) {
        let problem = format!("is \"{given}\"; allowed is {STORAGE_BLOB}, others are not supported yet");
        return Err(InvalidRequest::new(at, problem));
    }
    destination::check_type(properties)
}

fn record(
    name: &Name,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    properties: SubscriptionBodyProperties,
    identities: ManagedIdentities,
) -> Result<SubscriptionRecord, InvalidRequest> {
    let retry = properties.retry_policy.unwrap_or_default();
    let delivery_schema = check::delivery_schema(properties.event_delivery_schema.as_deref(), topic.input_schema)?;
    let dead_letter = properties.dead_letter_destination.map(|given| check::dead_letter(given, ranges)).transpose()?;
    let (webhook, resource) = properties.destination.read(topic.input_schema, delivery_schema, ranges)?;
    let (order_key, order_blocks) = check::ordering(properties.ordering, topic.input_schema)?;
    identity::check(identities.delivery.as_ref(), &webhook, resource.as_ref())?;
    let record = SubscriptionRecord {
        number: SubscriptionId(0),
        version: 0,
        name: name.clone(),
        queue: None,
        webhook,
        resource,
        filter: check::filter(properties.filter.unwrap_or_default(), topic.input_schema, ranges)?,
        delivery_schema,
        transform: properties.transform,
        retry: RetryPolicy {
            max_delivery_attempts: ranges
                .attempts
                .check("retryPolicy.maxDeliveryAttempts", retry.max_delivery_attempts)?,
            event_time_to_live_in_minutes: ranges
                .time_to_live_minutes
                .check("retryPolicy.eventTimeToLiveInMinutes", retry.event_time_to_live_in_minutes)?,
        },
        retry_schedule: retry.schedule,
        dead_letter_in_probation: check::in_probation(properties.dead_letter_in_probation, dead_letter.as_ref())?,
        on_gone: check::on_gone(properties.on_gone.as_deref())?,
        order_key,
        order_blocks,
        dead_letter,
        identities,
        labels: properties.labels.unwrap_or_default(),
        starts_from: properties.starts_from.as_deref().map(check::starts_from).transpose()?,
        expires: properties.expiration_time_utc.as_deref().map(check::expiration).transpose()?,
        system_data: None,
    };
    record.transform.as_ref().map(|given| transform::program(given, &record)).transpose()?;
    Ok(record)
}

/// The settable properties as JSON, with secrets.
pub(in crate::admin) fn set(record: &SubscriptionRecord, topic: &TopicRecord) -> Value {
    match topic.kind() {
        TopicKind::NamespaceTopic => namespace::settable(record),
        TopicKind::Topic | TopicKind::Domain => identified(record),
    }
}

/// The settable properties of a record, with its identities.
fn identified(record: &SubscriptionRecord) -> Value {
    let mut value = value_of(&settable(record));
    identity::wrap(&mut value, &record.identities);
    value
}

/// The settable properties of a record without its identities, with the whole endpoint URL.
fn settable(record: &SubscriptionRecord) -> SubscriptionBodyProperties {
    let SubscriptionRecord {
        number: _,
        version: _,
        name: _,
        queue: _,
        webhook: _,
        resource: _,
        filter,
        delivery_schema,
        transform,
        retry,
        retry_schedule,
        dead_letter,
        // They are added around the destinations.
        identities: _,
        dead_letter_in_probation,
        on_gone,
        order_key,
        order_blocks,
        starts_from,
        labels,
        expires,
        system_data: _,
    } = record;
    SubscriptionBodyProperties {
        destination: DestinationBody::of(record),
        delivery_with_resource_identity: None,
        filter: Some(filter_body(filter)),
        labels: Some(labels.clone()),
        event_delivery_schema: Some(check::schema_name(*delivery_schema).to_owned()),
        transform: transform.clone(),
        retry_policy: Some(RetryBody {
            max_delivery_attempts: Some(retry.max_delivery_attempts.into()),
            event_time_to_live_in_minutes: Some(retry.event_time_to_live_in_minutes.into()),
            schedule: retry_schedule.clone(),
        }),
        dead_letter_destination: dead_letter.as_ref().map(|dead_letter| DeadLetterBody {
            endpoint_type: "StorageBlob".to_owned(),
            delivery_retry_period_in_days: dead_letter.retry_period_days.map(i64::from),
            properties: BlobBody {
                resource_id: dead_letter.resource_id.clone(),
                blob_container_name: Some(dead_letter.container.clone()).filter(|container| !container.is_empty()),
            },
        }),
        dead_letter_with_resource_identity: None,
        // gridhook's own properties appear only if they were set, because Azure's clients do not know them.
        dead_letter_in_probation: dead_letter_in_probation.then_some(true),
        on_gone: (*on_gone != OnGone::default()).then(|| check::on_gone_name(*on_gone).to_owned()),
        ordering: check::ordering_body(order_key.as_ref(), *order_blocks),
        starts_from: starts_from.map(|starts| starts.at.to_string()),
        expiration_time_utc: expires.map(|expires| expires.to_string()),
    }
}

fn filter_body(filter: &Filter) -> FilterBody {
    FilterBody {
        subject_begins_with: Some(filter.subject_begins_with.clone()),
        subject_ends_with: Some(filter.subject_ends_with.clone()),
        included_event_types: filter.included_event_types.clone(),
        is_subject_case_sensitive: Some(filter.is_subject_case_sensitive),
        advanced_filters: (!filter.advanced_filters.is_empty())
            .then(|| filter.advanced_filters.iter().map(value_of).collect()),
        enable_advanced_filtering_on_arrays: filter.enable_advanced_filtering_on_arrays.then_some(true),
    }
}
