//! Bodies and views of event subscriptions of namespace topics. They have properties of their own
//! (`deliveryConfiguration`, `filtersConfiguration`), but the same checks and records as all
//! others.

mod dead_letter;

use serde_json::{Value, json};

use super::{
    DELIVERY_SCHEMAS, IGNORED, STORAGE_BLOB, advanced, attribute, check, destination, identity,
    secrets, transform,
    view::{SUCCEEDED, identified},
};
use crate::model::subscription::destination::destination_body;
use crate::model::subscription::destination::destination_view;
use crate::model::{
    EditionRanges, Enumeration, InvalidRequest, ValueRange, canonicalize, check_name,
    check_same_name, drop_read_only, duration, merge,
    namespace::topic::minutes_max,
    parse, read, take,
    tolerance::{FORMER_CLOUD_EVENTS, Tolerance},
    value_of,
};
use gridhook_api::subscription::{
    FilterBody,
    namespace::{
        DeliveryConfiguration, DeliveryConfigurationView, DeliveryTermsView, FiltersConfiguration,
        NamespaceSubscriptionBody, NamespaceSubscriptionProperties,
        NamespaceSubscriptionViewProperties, PushInfo, PushView, QueueInfo, QueueView,
    },
};
use gridhook_deliver::resource::Resource;
use gridhook_event::{Name, Schema, SubscriptionId};
use gridhook_policy::filter::Filter;
use gridhook_record::{
    subscription::{
        ManagedIdentities, OnGone, QueueSettings, ResourceIdentity, RetryPolicy,
        SubscriptionRecord, Webhook,
    },
    topic::TopicRecord,
};

/// `deliveryMode` of push delivery.
const PUSH: &str = "Push";

/// `deliveryMode` of pull delivery.
const QUEUE: &str = "Queue";

/// `receiveLockDurationInSeconds`.
const LOCK_SECONDS: ValueRange = ValueRange {
    min: QueueSettings::LOCK_SECONDS_MIN,
    max: QueueSettings::LOCK_SECONDS_MAX,
    default: QueueSettings::LOCK_SECONDS_DEFAULT,
};

const ENUMERATIONS: [Enumeration; 12] = [
    (
        "properties.deliveryConfiguration.deliveryMode",
        &[PUSH, QUEUE],
    ),
    (
        "properties.deliveryConfiguration.push.destination.endpointType",
        Resource::ENDPOINT_TYPES,
    ),
    (
        "properties.deliveryConfiguration.push.destination.properties.deliveryAttributeMappings.[].type",
        &attribute::TYPES,
    ),
    (
        "properties.deliveryConfiguration.push.deadLetterDestinationWithResourceIdentity.endpointType",
        &[STORAGE_BLOB],
    ),
    (
        "properties.deliveryConfiguration.push.deadLetterDestinationWithResourceIdentity.identity.type",
        &identity::IDENTITY_TYPES,
    ),
    (
        "properties.deliveryConfiguration.push.deadLetterDestinationWithResourceIdentity.deadLetterDestination.endpointType",
        &[STORAGE_BLOB],
    ),
    (
        "properties.deliveryConfiguration.queue.deadLetterDestinationWithResourceIdentity.endpointType",
        &[STORAGE_BLOB],
    ),
    (
        "properties.deliveryConfiguration.queue.deadLetterDestinationWithResourceIdentity.identity.type",
        &identity::IDENTITY_TYPES,
    ),
    (
        "properties.deliveryConfiguration.queue.deadLetterDestinationWithResourceIdentity.deadLetterDestination.endpointType",
        &[STORAGE_BLOB],
    ),
    (
        "properties.filtersConfiguration.filters.[].operatorType",
        &advanced::OPERATORS,
    ),
    ("properties.eventDeliverySchema", &DELIVERY_SCHEMAS),
    (
        "properties.ordering.onFailure",
        &[check::SKIP, check::BLOCK],
    ),
];

const TOLERANCE: Tolerance = Tolerance {
    empty: &[
        "properties.expirationTimeUtc",
        "properties.eventDeliverySchema",
        "properties.deliveryConfiguration.queue.eventTimeToLive",
        "properties.deliveryConfiguration.push.eventTimeToLive",
        "properties.deliveryConfiguration.push.destination.properties.azureActiveDirectoryTenantId",
        "properties.deliveryConfiguration.push.destination.properties.azureActiveDirectoryApplicationIdOrUri",
        "properties.deliveryConfiguration.push.destination.properties.minimumTlsVersionAllowed",
    ],
    booleans: &[
        "properties.deliveryConfiguration.push.destination.properties.deliveryAttributeMappings.[].properties.isSecret",
    ],
    former: &[(
        "properties.eventDeliverySchema",
        FORMER_CLOUD_EVENTS,
        Some("CloudEventSchemaV1_0"),
    )],
    ignored: &["properties.name"],
};

/// Read-only keys of `properties`.
const READ_ONLY: [&str; 2] = ["provisioningState", "endpointInService"];

/// Reads the body of a PUT of the event subscription `name` of `topic`; number and version are not
/// set.
pub(super) fn put(
    name: &Name,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    ranges: &EditionRanges,
    body: &[u8],
) -> Result<SubscriptionRecord, InvalidRequest> {
    check_name("the subscription's name", name.as_str(), 50)?;
    let mut value = parse(body)?;
    let identity = settle_identity(&mut value, None)?;
    read_whole(name, topic, existing, ranges, value, identity)
}

/// Reads the body of a PATCH of `existing`, which has a `properties` object as in a PUT.
pub(super) fn patch(
    existing: &SubscriptionRecord,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    body: &[u8],
) -> Result<SubscriptionRecord, InvalidRequest> {
    let mut patch = parse(body)?;
    let identity = settle_identity(&mut patch, existing.delivery_identity())?;
    let mut value = json!({ "properties": plain(existing) });
    give_way(&mut value, &patch);
    merge(&mut value, patch);
    read_whole(
        &existing.name,
        topic,
        Some(existing),
        ranges,
        value,
        identity,
    )
}

/// Moves the destination out of `deliveryWithResourceIdentity`. Returns its identity.
fn settle_identity(
    value: &mut Value,
    existing: Option<&ResourceIdentity>,
) -> Result<Option<ResourceIdentity>, InvalidRequest> {
    let push = value
        .pointer_mut("/properties/deliveryConfiguration/push")
        .filter(|push| push.is_object());
    let Some(push) = push else {
        return Ok(existing.cloned());
    };
    identity::DELIVERY
        .settle(push, existing)
        .map_err(|invalid| invalid.under("properties.deliveryConfiguration.push"))
}

/// The `deliveryMode` of an event subscription.
pub(crate) fn mode(record: &SubscriptionRecord) -> &'static str {
    if record.is_pulled() { QUEUE } else { PUSH }
}

/// The delivery mode cannot change: pending deliveries belong to one of the two modes.
pub(crate) fn check_mode(
    before: &SubscriptionRecord,
    requested: &SubscriptionRecord,
) -> Result<(), InvalidRequest> {
    if before.is_pulled() == requested.is_pulled() {
        return Ok(());
    }
    let is = mode(before);
    let problem = format!(
        "cannot be changed; allowed is {is}, or delete the event subscription and create it again"
    );
    Err(InvalidRequest::new(
        "properties.deliveryConfiguration.deliveryMode",
        problem,
    ))
}

/// Removes from the current properties the other form of a property that the patch sets, because
/// both together are refused.
fn give_way(value: &mut Value, patch: &Value) {
    let push = "properties.deliveryConfiguration.push";
    let given = &patch["properties"]["deliveryConfiguration"]["push"];
    if !given[dead_letter::KEY]["StorageBlob"].is_null() {
        drop(take(value, &format!("{push}.{}", dead_letter::KEY)));
    }
    if let Some(current) = value.pointer_mut("/properties/deliveryConfiguration/push") {
        destination::give_way(current, &given["destination"]);
    }
}

fn read_whole(
    name: &Name,
    topic: &TopicRecord,
    existing: Option<&SubscriptionRecord>,
    ranges: &EditionRanges,
    mut value: Value,
    identity: Option<ResourceIdentity>,
) -> Result<SubscriptionRecord, InvalidRequest> {
    drop_read_only(&mut value, &["id", "type", "systemData"]);
    drop_read_only(&mut value, &IGNORED);
    TOLERANCE.apply(&mut value);
    canonicalize(&mut value, &ENUMERATIONS);
    let push = value.pointer_mut("/properties/deliveryConfiguration/push");
    if let Some(push) = push.filter(|push| push.is_object()) {
        settle_destination(push)
            .map_err(|invalid| invalid.under("properties.deliveryConfiguration.push"))?;
        secrets::restore(push.get_mut("destination"), existing)
            .map_err(|invalid| invalid.under("properties.deliveryConfiguration.push"))?;
    }
    if let Some(properties) = value.get_mut("properties") {
        drop_read_only(properties, &READ_ONLY);
    }
    let NamespaceSubscriptionBody {
        name: given,
        properties,
    } = read(value)?;
    check_same_name(given.as_deref(), name.as_str())?;
    record(name, topic, ranges, properties, identity).map_err(|invalid| invalid.under("properties"))
}

/// Removes the read-only keys of a destination, and checks its type.
fn settle_destination(push: &mut Value) -> Result<(), InvalidRequest> {
    drop_read_only(
        push,
        &[
            "destination.properties.endpointBaseUrl",
            "destination.properties.allowedRate",
        ],
    );
    destination::check_type(push)?;
    // From namespace to namespace, events could go round for ever.
    if push["destination"]["endpointType"] == "NamespaceTopic" {
        let problem = "is \"NamespaceTopic\"; allowed are the other kinds, because this is a topic \
            of a namespace";
        return Err(InvalidRequest::new("destination.endpointType", problem));
    }
    Ok(())
}

/// Settings of both delivery modes.
struct DeliveryTerms {
    max_delivery_count: Option<i64>,
    event_time_to_live: Option<String>,
    dead_letter: Option<Value>,
}

fn record(
    name: &Name,
    topic: &TopicRecord,
    ranges: &EditionRanges,
    properties: NamespaceSubscriptionProperties,
    identity: Option<ResourceIdentity>,
) -> Result<SubscriptionRecord, InvalidRequest> {
    let delivery_schema = check::delivery_schema(
        properties.event_delivery_schema.as_deref(),
        topic.input_schema,
    )?;
    let DeliveryConfiguration {
        delivery_mode,
        queue: asked,
        push,
    } = properties.delivery_configuration;
    let (at, queue, (webhook, resource), terms) = match (delivery_mode.as_str(), asked, push) {
        (PUSH, None, Some(push)) => {
            let at = "deliveryConfiguration.push";
            let destination = destination::read_destination(
                push.destination,
                Schema::CloudEvents,
                delivery_schema,
                ranges,
            );
            let terms = DeliveryTerms {
                max_delivery_count: push.max_delivery_count,
                event_time_to_live: push.event_time_to_live,
                dead_letter: push.dead_letter_destination_with_resource_identity,
            };
            let destination = destination.and_then(|(webhook, resource)| {
                identity::check(identity.as_ref(), &webhook, resource.as_ref())?;
                Ok((webhook, resource))
            });
            (
                at,
                None,
                destination.map_err(|invalid| invalid.under(at))?,
                terms,
            )
        }
        (QUEUE, asked, None) => {
            let (at, asked) = ("deliveryConfiguration.queue", asked.unwrap_or_default());
            let seconds = LOCK_SECONDS.check(
                "receiveLockDurationInSeconds",
                asked.receive_lock_duration_in_seconds,
            );
            let queue = QueueSettings {
                receive_lock_duration_in_seconds: seconds.map_err(|invalid| invalid.under(at))?,
            };
            let terms = DeliveryTerms {
                max_delivery_count: asked.max_delivery_count,
                event_time_to_live: asked.event_time_to_live,
                dead_letter: asked.dead_letter_destination_with_resource_identity,
            };
            (at, Some(queue), (Webhook::default(), None), terms)
        }
        (mode, asked, push) => return Err(mistaken(mode, asked.is_some(), push.is_some())),
    };
    let under = |invalid: InvalidRequest| invalid.under(at);
    let letters = terms.dead_letter.filter(|given| !given.is_null());
    let read = letters
        .map(|given| dead_letter::destination(given, ranges))
        .transpose();
    let (dead_letter, of_dead_letters) = read
        .map_err(|invalid| under(invalid.under(dead_letter::KEY)))?
        .unzip();
    let attempts = ranges
        .attempts
        .check("maxDeliveryCount", terms.max_delivery_count);
    let minutes = time_to_live(topic, ranges, terms.event_time_to_live.as_deref());
    let (order_key, order_blocks) = check::ordering(properties.ordering, topic.input_schema)?;
    let record = SubscriptionRecord {
        number: SubscriptionId(0),
        version: 0,
        name: name.clone(),
        queue,
        webhook,
        resource: resource.map(Box::new),
        filter: filter(properties.filters_configuration.unwrap_or_default(), ranges)?,
        delivery_schema,
        transform: properties.transform.map(Box::new),
        retry: RetryPolicy {
            max_delivery_attempts: attempts.map_err(under)?,
            event_time_to_live_in_minutes: minutes.map_err(under)?,
        },
        retry_schedule: None,
        dead_letter: dead_letter.map(Box::new),
        identities: ManagedIdentities {
            delivery: identity,
            dead_letter: of_dead_letters.flatten(),
        }
        .into_stored(),
        dead_letter_in_probation: false,
        on_gone: OnGone::default(),
        order_key: order_key.map(Box::new),
        order_blocks,
        labels: Vec::new(),
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
    record
        .transform
        .as_deref()
        .map(|given| transform::program(given, &record))
        .transpose()?;
    Ok(record)
}

/// The error of a mode that does not fit the given settings.
fn mistaken(mode: &str, queue: bool, push: bool) -> InvalidRequest {
    let (key, problem) = match (mode, queue, push) {
        (PUSH, true, _) => (
            "queue",
            "is given, and deliveryMode is Push; leave it out".to_owned(),
        ),
        (PUSH, false, _) => (
            "push",
            "is missing, and deliveryMode is Push; allowed is a destination in it".to_owned(),
        ),
        (QUEUE, ..) => (
            "push",
            "is given, and deliveryMode is Queue; leave it out".to_owned(),
        ),
        _ => (
            "deliveryMode",
            format!(
                "is \"{}\"; allowed are {QUEUE} and {PUSH}",
                mode.escape_debug()
            ),
        ),
    };
    InvalidRequest::new(format!("deliveryConfiguration.{key}"), problem)
}

/// Checks that the time to live is within the retention of the topic.
fn time_to_live(
    topic: &TopicRecord,
    ranges: &EditionRanges,
    given: Option<&str>,
) -> Result<u32, InvalidRequest> {
    let ValueRange { min, max, default } = ranges.time_to_live_minutes;
    let max = max.min(minutes_max(topic));
    let Some(given) = given else {
        return Ok(default.min(max));
    };
    let at = "eventTimeToLive";
    let asked = duration::minutes(at, given)?;
    u32::try_from(asked)
        .ok()
        .filter(|asked| (min..=max).contains(asked))
        .ok_or_else(|| {
            let [least, most] = [min, max].map(|minutes| duration::iso(60 * minutes));
            let given = given.escape_debug();
            let problem = format!(
                "is \"{given}\"; allowed is {least} to {most}: no longer than the topic's \
                 eventRetentionInDays"
            );
            InvalidRequest::new(at, problem)
        })
}

/// Reads a filter as that of every other event subscription; errors have the keys of this form.
fn filter(given: FiltersConfiguration, ranges: &EditionRanges) -> Result<Filter, InvalidRequest> {
    let FiltersConfiguration {
        included_event_types,
        filters,
    } = given;
    let body = FilterBody {
        included_event_types,
        advanced_filters: filters,
        ..FilterBody::default()
    };
    check::filter(body, Schema::CloudEvents, ranges).map_err(|invalid| {
        let target = invalid
            .target
            .replace("filter.advancedFilters", "filtersConfiguration.filters");
        let target = match target.strip_prefix("filter.") {
            Some(below) => format!("filtersConfiguration.{below}"),
            None => target,
        };
        InvalidRequest { target, ..invalid }
    })
}

/// The settable properties of a record, with the identity.
pub(super) fn settable(record: &SubscriptionRecord) -> Value {
    let mut properties = plain(record);
    if let Some(push) = properties.pointer_mut("/deliveryConfiguration/push") {
        identity::DELIVERY.wrap(push, record.delivery_identity());
    }
    properties
}

/// The settable properties of a record without the identity, with the whole endpoint URL.
fn plain(record: &SubscriptionRecord) -> Value {
    let NamespaceSubscriptionViewProperties {
        provisioning_state: _,
        endpoint_in_service: _,
        delivery_configuration,
        event_delivery_schema,
        filters_configuration,
        transform,
        expiration_time_utc,
        ordering,
        starts_from,
    } = view(record);
    let dead_letter = |terms: &DeliveryTermsView| {
        terms
            .dead_letter_destination_with_resource_identity
            .as_ref()
            .map(value_of)
    };
    let (delivery_mode, queue, push) = match delivery_configuration {
        DeliveryConfigurationView::Queue { queue } => {
            let queue = QueueInfo {
                receive_lock_duration_in_seconds: Some(
                    queue.receive_lock_duration_in_seconds.into(),
                ),
                dead_letter_destination_with_resource_identity: dead_letter(&queue.terms),
                max_delivery_count: Some(queue.terms.max_delivery_count.into()),
                event_time_to_live: Some(queue.terms.event_time_to_live),
            };
            (QUEUE, Some(queue), None)
        }
        DeliveryConfigurationView::Push { push } => {
            let push = PushInfo {
                dead_letter_destination_with_resource_identity: dead_letter(&push.terms),
                max_delivery_count: Some(push.terms.max_delivery_count.into()),
                event_time_to_live: Some(push.terms.event_time_to_live),
                destination: destination_body(record),
            };
            (PUSH, None, Some(push))
        }
    };
    value_of(&NamespaceSubscriptionProperties {
        delivery_configuration: DeliveryConfiguration {
            delivery_mode: delivery_mode.to_owned(),
            queue,
            push,
        },
        event_delivery_schema: Some(event_delivery_schema),
        filters_configuration: Some(filters_configuration),
        transform,
        expiration_time_utc,
        ordering,
        starts_from,
    })
}

fn delivery(record: &SubscriptionRecord) -> DeliveryConfigurationView {
    let RetryPolicy {
        max_delivery_attempts,
        event_time_to_live_in_minutes,
    } = record.retry;
    let identity = record.dead_letter_identity();
    let terms = DeliveryTermsView {
        max_delivery_count: max_delivery_attempts,
        event_time_to_live: duration::iso(60 * event_time_to_live_in_minutes),
        dead_letter_destination_with_resource_identity: record
            .dead_letter
            .as_ref()
            .map(|destination| dead_letter::view(destination, identity)),
    };
    match record.queue {
        Some(QueueSettings {
            receive_lock_duration_in_seconds,
        }) => DeliveryConfigurationView::Queue {
            queue: QueueView {
                receive_lock_duration_in_seconds,
                terms,
            },
        },
        None => {
            let (destination, delivery_with_resource_identity) = identified(
                destination_view(record),
                record.delivery_identity().cloned(),
            );
            let push = PushView {
                terms,
                destination,
                delivery_with_resource_identity,
            };
            DeliveryConfigurationView::Push {
                push: Box::new(push),
            }
        }
    }
}

/// The properties of a view, without the query of the endpoint and without secrets.
pub(super) fn view(record: &SubscriptionRecord) -> NamespaceSubscriptionViewProperties {
    let filters = &record.filter.advanced_filters;
    NamespaceSubscriptionViewProperties {
        provisioning_state: SUCCEEDED.to_owned(),
        endpoint_in_service: None,
        delivery_configuration: delivery(record),
        event_delivery_schema: check::schema_name(record.delivery_schema).to_owned(),
        filters_configuration: FiltersConfiguration {
            included_event_types: record.filter.included_event_types.clone(),
            filters: (!filters.is_empty()).then(|| filters.iter().map(value_of).collect()),
        },
        transform: record.transform.as_deref().cloned(),
        expiration_time_utc: record.expires.map(|expires| expires.to_string()),
        ordering: check::ordering_body(record.order_key.as_deref(), record.order_blocks),
        starts_from: record
            .starts_from
            .as_ref()
            .map(|starts| starts.at.to_string()),
    }
}
