//! Event subscriptions, as the control plane speaks of them.

mod advanced;
pub(crate) mod attribute;
mod check;
mod destination;
mod identity;
pub(crate) mod namespace;
pub(crate) mod secrets;
pub mod test;
pub(crate) mod transform;
mod view;

use serde_json::Value;

pub use self::view::{provisioned_subscription_view, subscription_view};
pub use self::{check::fits, view::PathForm};
use super::{
    EditionRanges, Enumeration, InvalidRequest, canonicalize, check_name, check_same_name,
    drop_read_only, merge, parse, read, take, text_at,
    tolerance::{FORMER_CLOUD_EVENTS, Tolerance},
    value_of,
};
use crate::model::subscription::destination::destination_body;
use gridhook_api::subscription::{
    BlobBody, DeadLetterBody, FilterBody, RetryPolicyBody, SubscriptionBody,
    SubscriptionBodyProperties,
};
use gridhook_deliver::resource::Resource;
use gridhook_event::{Name, SubscriptionId};
use gridhook_policy::filter::Filter;
use gridhook_record::{
    subscription::{
        ManagedIdentities, OnGone, RetryPolicy, StorageBlobDestination, SubscriptionRecord,
    },
    topic::{TopicKind, TopicRecord},
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
    (
        "destination.properties.deliveryAttributeMappings.[].type",
        &attribute::TYPES,
    ),
    (
        "filter.advancedFilters.[].operatorType",
        &advanced::OPERATORS,
    ),
    ("eventDeliverySchema", &DELIVERY_SCHEMAS),
    ("deadLetterDestination.endpointType", &[STORAGE_BLOB]),
    ("onGone", &["retry", "disable"]),
    ("ordering.onFailure", &[check::SKIP, check::BLOCK]),
];

const TOLERANCE: Tolerance = Tolerance {
    empty: &[
        "expirationTimeUtc",
        "startsFrom",
        "eventDeliverySchema",
        "onGone",
        "destination.properties.azureActiveDirectoryTenantId",
        "destination.properties.azureActiveDirectoryApplicationIdOrUri",
        "destination.properties.minimumTlsVersionAllowed",
        "deadLetterDestination.properties.blobContainerName",
    ],
    booleans: &[
        "filter.isSubjectCaseSensitive",
        "filter.enableAdvancedFilteringOnArrays",
        "deadLetterInProbation",
        "destination.properties.deliveryAttributeMappings.[].properties.isSecret",
    ],
    former: &[
        (
            "eventDeliverySchema",
            FORMER_CLOUD_EVENTS,
            Some("CloudEventSchemaV1_0"),
        ),
        // The input schema of the topic, which is the default.
        ("eventDeliverySchema", "InputEventSchema", None),
    ],
    ignored: &["name"],
};

/// Keys beside `properties` that Azure ignores in an event subscription.
const IGNORED: [&str; 2] = ["location", "tags"];

/// The `endpointType` of a destination.
const WEBHOOK: &str = "WebHook";

/// The `endpointType` of a destination of dead letters.
const STORAGE_BLOB: &str = "StorageBlob";

/// The values of `eventDeliverySchema`.
const DELIVERY_SCHEMAS: [&str; 3] = [
    "EventGridSchema",
    "CloudEventSchemaV1_0",
    "CustomInputSchema",
];

/// Reads the body of a PUT of the event subscription `name` of `topic`; number and version are not
/// set. A secret of `existing` is kept if the body omits it or has it as GET shows it.
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
    drop_read_only(&mut value, &IGNORED);
    let mut identities = ManagedIdentities::default();
    if let Some(mut properties) = take(&mut value, "properties") {
        let under = |invalid: InvalidRequest| invalid.under("properties");
        identities = identity::settle(&mut properties, None).map_err(under)?;
        settle(&mut properties).map_err(under)?;
        secrets::restore(properties.get_mut("destination"), existing).map_err(under)?;
        value["properties"] = properties;
    }
    let SubscriptionBody {
        name: given,
        properties,
    } = read(value)?;
    check_same_name(given.as_deref(), name.as_str())?;
    record(name, topic, ranges, properties, identities)
        .map_err(|invalid| invalid.under("properties"))
}

/// Reads the body of a PATCH of `existing`. It has no `properties` object: Azure's clients send a
/// flat body, except for namespaces.
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
    drop_read_only(&mut patch, &IGNORED);
    if patch.get("properties").is_some() {
        return Err(InvalidRequest::new(
            "properties",
            "is not allowed in a PATCH of an event subscription: destination, filter, labels and \
             the others stand at the top",
        ));
    }
    let identities = identity::settle(&mut patch, Some(existing))?;
    let mut value = value_of(&settable(existing));
    give_way(&mut value, &patch);
    merge(&mut value, patch);
    settle(&mut value)?;
    secrets::restore(value.get_mut("destination"), Some(existing))?;
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
    if resource_id.as_str().is_some_and(|id| {
        StorageBlobDestination::is_address(id) || check::container_of(id).is_some()
    }) {
        drop(take(
            value,
            "deadLetterDestination.properties.blobContainerName",
        ));
    }
}

/// Removes read-only properties, and checks the types of both destinations.
fn settle(properties: &mut Value) -> Result<(), InvalidRequest> {
    drop_read_only(properties, &READ_ONLY);
    TOLERANCE.apply(properties);
    canonicalize(properties, &ENUMERATIONS);
    let at = "deadLetterDestination.endpointType";
    if let Some(given) = text_at(properties, at).filter(|given| *given != STORAGE_BLOB) {
        let problem =
            format!("is \"{given}\"; allowed is {STORAGE_BLOB}, others are not supported yet");
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
    let delivery_schema = check::delivery_schema(
        properties.event_delivery_schema.as_deref(),
        topic.input_schema,
    )?;
    let dead_letter = properties
        .dead_letter_destination
        .map(|given| check::dead_letter(given, ranges))
        .transpose()?;
    let (webhook, resource) = destination::read_destination(
        properties.destination,
        topic.input_schema,
        delivery_schema,
        ranges,
    )?;
    let (order_key, order_blocks) = check::ordering(properties.ordering, topic.input_schema)?;
    identity::check(identities.delivery.as_ref(), &webhook, resource.as_ref())?;
    let record = SubscriptionRecord {
        number: SubscriptionId(0),
        version: 0,
        name: name.clone(),
        queue: None,
        webhook,
        resource: resource.map(Box::new),
        filter: check::filter(
            properties.filter.unwrap_or_default(),
            topic.input_schema,
            ranges,
        )?,
        delivery_schema,
        transform: properties.transform.map(Box::new),
        retry: RetryPolicy {
            max_delivery_attempts: ranges.attempts.check(
                "retryPolicy.maxDeliveryAttempts",
                retry.max_delivery_attempts,
            )?,
            event_time_to_live_in_minutes: ranges.time_to_live_minutes.check(
                "retryPolicy.eventTimeToLiveInMinutes",
                retry.event_time_to_live_in_minutes,
            )?,
        },
        retry_schedule: retry.schedule.map(Box::new),
        dead_letter_in_probation: check::in_probation(
            properties.dead_letter_in_probation,
            dead_letter.as_ref(),
        )?,
        on_gone: check::on_gone(properties.on_gone.as_deref())?,
        order_key: order_key.map(Box::new),
        order_blocks,
        dead_letter: dead_letter.map(Box::new),
        identities: identities.into_stored(),
        labels: check::labels(properties.labels.unwrap_or_default())?,
        starts_from: properties
            .starts_from
            .as_deref()
            .map(check::starts_from)
            .transpose()?
            .map(Box::new),
        expires: properties
            .expiration_time_utc
            .as_deref()
            .map(check::expiration)
            .transpose()?,
        system_data: None,
    };
    check::schedule("retryPolicy.schedule", &record, ranges)?;
    record
        .transform
        .as_deref()
        .map(|given| transform::program(given, &record))
        .transpose()?;
    Ok(record)
}

/// The settable properties as JSON, with secrets.
pub(crate) fn set(record: &SubscriptionRecord, topic: &TopicRecord) -> Value {
    match topic.kind() {
        TopicKind::NamespaceTopic => namespace::settable(record),
        TopicKind::Topic | TopicKind::Domain => identified(record),
    }
}

/// The settable properties of a record, with its identities.
fn identified(record: &SubscriptionRecord) -> Value {
    let mut value = value_of(&settable(record));
    identity::wrap(&mut value, record);
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
        destination: destination_body(record),
        delivery_with_resource_identity: None,
        filter: Some(filter_body(filter)),
        labels: Some(labels.clone()),
        event_delivery_schema: Some(check::schema_name(*delivery_schema).to_owned()),
        transform: transform.as_deref().cloned(),
        retry_policy: Some(RetryPolicyBody {
            max_delivery_attempts: Some(retry.max_delivery_attempts.into()),
            event_time_to_live_in_minutes: Some(retry.event_time_to_live_in_minutes.into()),
            schedule: retry_schedule.as_deref().cloned(),
        }),
        dead_letter_destination: dead_letter.as_ref().map(|dead_letter| DeadLetterBody {
            delivery_retry_period_in_days: dead_letter.retry_period_days.map(i64::from),
            ..blob(dead_letter)
        }),
        dead_letter_with_resource_identity: None,
        // gridhook's own properties appear only if they were set, because Azure's clients do not
        // know them.
        dead_letter_in_probation: dead_letter_in_probation.then_some(true),
        on_gone: (*on_gone != OnGone::default()).then(|| check::on_gone_name(*on_gone).to_owned()),
        ordering: check::ordering_body(order_key.as_deref(), *order_blocks),
        starts_from: starts_from.as_ref().map(|starts| starts.at.to_string()),
        expiration_time_utc: expires.map(|expires| expires.to_string()),
    }
}

/// The container of a destination of dead letters.
fn blob(destination: &StorageBlobDestination) -> DeadLetterBody {
    DeadLetterBody {
        endpoint_type: STORAGE_BLOB.to_owned(),
        delivery_retry_period_in_days: None,
        properties: BlobBody {
            resource_id: destination.resource_id.clone(),
            blob_container_name: Some(destination.container.clone())
                .filter(|container| !container.is_empty()),
        },
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
        enable_advanced_filtering_on_arrays: filter
            .enable_advanced_filtering_on_arrays
            .then_some(true),
    }
}
