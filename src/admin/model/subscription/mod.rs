//! Event subscriptions, as the control plane speaks of them.

mod advanced;
pub(crate) mod attribute;
mod check;
mod dead_letter;
mod destination;
mod identity;
pub(crate) mod namespace;
mod ordering;
pub(crate) mod plan;
mod schedule;
pub(crate) mod secrets;
pub mod test;
pub(crate) mod transform;
mod view;

use serde_json::{Value, json};

pub use self::schedule::check_limits;
pub(crate) use self::schedule::longer_waits_warning;
pub use self::view::{
    PathForm, SubscriptionView, provisioned_subscription_view, subscription_view,
};

use super::{
    BODY, CheckResult, EditionRanges, check_name, check_same_name, drop_read_only, merge_patch,
    parse_body, parse_instant, read, take_value, text_at, value_of,
};
use crate::model::refuse_value;
use gridhook_api::subscription::{
    AnySubscriptionProperties, DeadLetterDestination, DeadLetterProperties, DeadLetterWithIdentity,
    DeliveryWithIdentity, EventFilter, EventSubscription, PullSettings, RetryPolicyBody,
    SubscriptionProperties,
};
use gridhook_event::{Name, SubscriptionId};
use gridhook_policy::filter::Filter;
use gridhook_record::{
    subscription::{
        ManagedIdentities, OnGone, RetryPolicy, StorageBlobDestination, SubscriptionRecord, Webhook,
    },
    topic::{TopicKind, TopicRecord},
};

/// Keys that Azure ignores in an event subscription. The last one is in templates since 2017.
const IGNORED: [&str; 3] = [
    "location",
    "tags",
    "properties.filter.subjectIsCaseSensitive",
];

/// The `endpointType` of a destination.
const WEBHOOK: &str = "WebHook";

/// The `endpointType` of a destination of dead letters.
const STORAGE_BLOB: &str = "StorageBlob";

/// Reads the body of a PUT of the event subscription `name` of `topic`; number and version are not
/// set. A secret of `existing` is kept if the body omits it or has it as GET shows it.
pub fn read_put(
    name: &Name,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    ranges: &EditionRanges,
    body: &[u8],
) -> CheckResult<SubscriptionRecord> {
    let name_chars_max = if is_namespaced(topic) { 50 } else { 64 };
    check_name("the subscription's name", name.as_str(), name_chars_max)?;
    let mut properties = read_properties(name, parse_body(body)?)?;
    unwrap_identities(&mut properties, topic, None)
        .and_then(|identities| read_record(name, topic, existing, ranges, properties, identities))
        .map_err(|invalid| invalid.prefixed_with("properties"))
}

/// Reads the body of a PATCH of `existing`. It has no `properties` object: Azure's clients send a
/// flat body, except for namespaces.
pub fn read_patch(
    existing: &SubscriptionRecord,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    body: &[u8],
) -> CheckResult<SubscriptionRecord> {
    let mut patch = parse_body(body)?;
    if is_namespaced(topic) {
        if patch.get("properties").is_none() {
            patch["properties"] = json!({});
        }
        let properties = read_properties(&existing.name, patch)?;
        return patch_properties(existing, topic, ranges, properties)
            .map_err(|invalid| invalid.prefixed_with("properties"));
    }
    drop_read_only(&mut patch, &IGNORED);
    if patch.get("properties").is_some() {
        return refuse_value(
            "properties",
            "is not allowed in a PATCH of an event subscription: destination, filter, labels and \
             the others stand at the top",
        );
    }
    patch_properties(existing, topic, ranges, patch)
}

fn is_namespaced(topic: &TopicRecord) -> bool {
    topic.kind() == TopicKind::NamespaceTopic
}

/// The `properties` of a whole body, after a check of what is beside them.
fn read_properties(name: &Name, mut body: Value) -> CheckResult<Value> {
    drop_read_only(&mut body, &IGNORED);
    let body: EventSubscription<Value> = read(body)?;
    check_same_name(body.name.as_deref(), name.as_str())?;
    Ok(body.properties)
}

/// Applies a patch of the properties of `existing`.
fn patch_properties(
    existing: &SubscriptionRecord,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    mut patch: Value,
) -> CheckResult<SubscriptionRecord> {
    let identities = unwrap_identities(&mut patch, topic, Some(existing))?;
    let mut properties = value_of(&in_form_of(topic, plain_properties(existing)));
    if is_namespaced(topic) {
        namespace::drop_conflicting(&mut properties, &patch);
    } else {
        drop_conflicting(&mut properties, &patch);
    }
    merge_patch(&mut properties, patch);
    read_record(
        &existing.name,
        topic,
        Some(existing),
        ranges,
        properties,
        identities,
    )
}

/// Replaces `deliveryWithResourceIdentity` by the `destination` inside it, and returns its identity;
/// the same for dead letters.
fn unwrap_identities(
    properties: &mut Value,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
) -> CheckResult<ManagedIdentities> {
    if is_namespaced(topic) {
        namespace::unwrap_identity(properties, existing)
    } else {
        identity::unwrap_destinations(properties, existing)
    }
}

/// Removes from the current properties what would contradict a property that `patch` sets.
fn drop_conflicting(value: &mut Value, patch: &Value) {
    destination::drop_conflicting(value, &patch["destination"]);
    let webhook = &patch["destination"]["properties"];
    let is_unbatched = value["destination"]["properties"]["maxEventsPerBatch"] == 1;
    if is_unbatched && webhook["preferredBatchSizeInKilobytes"].is_number() {
        drop(take_value(
            value,
            "destination.properties.maxEventsPerBatch",
        ));
    }
    let resource_id = &patch["deadLetterDestination"]["properties"]["resourceId"];
    if resource_id.as_str().is_some_and(|id| {
        StorageBlobDestination::is_address(id) || dead_letter::container_of(id).is_some()
    }) {
        drop(take_value(
            value,
            "deadLetterDestination.properties.blobContainerName",
        ));
    }
}

/// Reads the properties of an event subscription, in the form of `topic`.
fn read_record(
    name: &Name,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    ranges: &EditionRanges,
    mut properties: Value,
    identities: ManagedIdentities,
) -> CheckResult<SubscriptionRecord> {
    // Templates repeat the name here, and Azure ignores it.
    drop_read_only(&mut properties, &["name"]);
    let reader = RecordReader {
        name,
        topic,
        existing,
        ranges,
    };
    if is_namespaced(topic) {
        return namespace::read_record(&reader, properties, identities);
    }
    let at = "deadLetterDestination.endpointType";
    text_at(&properties, at).map_or(Ok(()), dead_letter::dead_letter_type)?;
    reader.read(read(properties)?, identities)
}

/// The parts of a record that are not in the properties of the body.
struct RecordReader<'a> {
    name: &'a Name,
    topic: &'a TopicRecord,
    existing: Option<&'a SubscriptionRecord>,
    ranges: &'a EditionRanges,
}

impl RecordReader<'_> {
    fn read(
        &self,
        properties: SubscriptionProperties,
        mut identities: ManagedIdentities,
    ) -> CheckResult<SubscriptionRecord> {
        let Self { topic, ranges, .. } = self;
        let input_schema = topic.input_schema;
        let retry = properties.retry_policy.unwrap_or_default();
        let delivery_schema =
            check::read_delivery_schema(properties.event_delivery_schema.as_deref(), input_schema)?;
        let mut dead_letter = properties.dead_letter_destination;
        if let Some(with) = properties.dead_letter_with_resource_identity {
            dead_letter = Some(with.dead_letter_destination);
            identities.dead_letter = with.identity;
        }
        let dead_letter = dead_letter
            .map(|given| dead_letter::read_dead_letter(given, ranges))
            .transpose()?;
        let queue = properties.queue.map(check::read_queue).transpose()?;
        let (webhook, resource) = match properties.destination {
            Some(destination) => destination::read_destination(
                destination,
                topic,
                self.existing,
                delivery_schema,
                ranges,
            )?,
            None if queue.is_some() => (Webhook::default(), None),
            None => {
                let problem = "cannot be read: missing field `destination`";
                return refuse_value(BODY, problem);
            }
        };
        let (order_key, order_blocks) = ordering::read_ordering(properties.ordering, input_schema)?;
        identity::check_identity(identities.delivery.as_ref(), &webhook, resource.as_ref())?;
        let filter = properties.filter.unwrap_or_default();
        let filter = check::read_filter(filter, input_schema, ranges)?;
        let at = "retryPolicy.maxDeliveryAttempts";
        let max_delivery_attempts = ranges
            .attempts
            .check_value(at, retry.max_delivery_attempts)?;
        let minutes = retry.event_time_to_live_in_minutes;
        let event_time_to_live_in_minutes = check::read_time_to_live(minutes, topic, ranges)?;
        let dead_letter_in_probation =
            dead_letter::in_probation(properties.dead_letter_in_probation, dead_letter.as_ref())?;
        let on_gone = check::read_on_gone(properties.on_gone.as_deref())?;
        let labels = check::read_labels(properties.labels.unwrap_or_default())?;
        let starts_from = properties.starts_from.as_deref();
        let starts_from = starts_from.map(check::read_start).transpose()?;
        let expires = properties.expiration_time_utc.as_deref();
        let expires = expires
            .map(|given| parse_instant("expirationTimeUtc", given))
            .transpose()?;
        let record = SubscriptionRecord {
            number: SubscriptionId(0),
            version: 0,
            name: self.name.clone(),
            queue,
            webhook,
            resource: resource.map(Box::new),
            filter,
            delivery_schema,
            transform: properties.transform.map(Box::new),
            retry: RetryPolicy {
                max_delivery_attempts,
                event_time_to_live_in_minutes,
            },
            retry_schedule: retry.schedule.map(Box::new),
            dead_letter_in_probation,
            on_gone,
            order_key: order_key.map(Box::new),
            order_blocks,
            dead_letter: dead_letter.map(Box::new),
            identities: identities.into_stored(),
            labels,
            starts_from: starts_from.map(Box::new),
            expires,
            system_data: None,
        };
        schedule::check_schedule("retryPolicy.schedule", &record, ranges)?;
        record
            .transform
            .as_deref()
            .map(|given| transform::compile_program(given, &record))
            .transpose()?;
        Ok(record)
    }
}

/// The settable properties as JSON, with secrets.
pub(crate) fn settable_json(record: &SubscriptionRecord, topic: &TopicRecord) -> Value {
    value_of(&in_form_of(topic, properties(record)))
}

/// The properties in the form that event subscriptions of `topic` have on the wire.
fn in_form_of(
    topic: &TopicRecord,
    properties: SubscriptionProperties,
) -> AnySubscriptionProperties {
    if is_namespaced(topic) {
        AnySubscriptionProperties::Namespace(Box::new(properties.into()))
    } else {
        AnySubscriptionProperties::Topic(Box::new(properties))
    }
}

/// The settable properties of a record, with secrets.
fn properties(record: &SubscriptionRecord) -> SubscriptionProperties {
    let mut properties = plain_properties(record);
    if let Some(identity) = record.delivery_identity()
        && let Some(destination) = properties.destination.take()
    {
        properties.delivery_with_resource_identity = Some(DeliveryWithIdentity {
            identity: Some(identity.clone()),
            destination,
        });
    }
    if let Some(identity) = record.dead_letter_identity()
        && let Some(dead_letter_destination) = properties.dead_letter_destination.take()
    {
        properties.dead_letter_with_resource_identity = Some(DeadLetterWithIdentity {
            identity: Some(identity.clone()),
            dead_letter_destination,
        });
    }
    properties
}

/// The settable properties of a record without its identities, with secrets.
fn plain_properties(record: &SubscriptionRecord) -> SubscriptionProperties {
    let SubscriptionRecord {
        number: _,
        version: _,
        name: _,
        queue,
        webhook: _,
        resource: _,
        filter,
        delivery_schema,
        transform,
        retry,
        retry_schedule,
        dead_letter,
        // Identities are added around the destinations.
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
    SubscriptionProperties {
        destination: queue.is_none().then(|| destination::destination(record)),
        filter: Some(filter_body(filter)),
        labels: Some(labels.clone()),
        event_delivery_schema: Some(check::schema_name(*delivery_schema).to_owned()),
        transform: transform.as_deref().cloned(),
        retry_policy: Some(RetryPolicyBody {
            max_delivery_attempts: Some(retry.max_delivery_attempts.into()),
            event_time_to_live_in_minutes: Some(retry.event_time_to_live_in_minutes.into()),
            schedule: retry_schedule.as_deref().cloned(),
        }),
        dead_letter_destination: dead_letter.as_deref().map(dead_letter_body),
        // gridhook's own properties appear only if they were set, because Azure's clients do not
        // know them.
        dead_letter_in_probation: dead_letter_in_probation.then_some(true),
        on_gone: (*on_gone != OnGone::default()).then(|| check::on_gone_name(*on_gone).to_owned()),
        ordering: ordering::ordering_body(order_key.as_deref(), *order_blocks),
        starts_from: starts_from.as_ref().map(|starts| starts.at.to_string()),
        expiration_time_utc: expires.map(|expires| expires.to_string()),
        queue: queue.map(|queue| PullSettings {
            receive_lock_duration_in_seconds: Some(queue.receive_lock_duration_in_seconds.into()),
        }),
        ..SubscriptionProperties::default()
    }
}

fn dead_letter_body(destination: &StorageBlobDestination) -> DeadLetterDestination {
    let container = &destination.container;
    DeadLetterDestination {
        endpoint_type: STORAGE_BLOB.to_owned(),
        delivery_retry_period_in_days: destination.retry_period_days.map(i64::from),
        properties: DeadLetterProperties {
            resource_id: destination.resource_id.clone(),
            blob_container_name: (!container.is_empty()).then(|| container.clone()),
        },
    }
}

fn filter_body(filter: &Filter) -> EventFilter {
    EventFilter {
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
