//! Checks of the values of an event subscription.

use crate::model::refuse_value;
use std::num::NonZeroU32;

use humantime_serde::re::humantime::{format_duration, parse_duration};
use url::Url;

use super::{STORAGE_BLOB, advanced, is_namespaced};
use crate::model::{
    EditionRanges, InvalidRequest, ValueRange, namespace::topic::minutes_max, parse_instant,
    tolerance::FORMER_CLOUD_EVENTS, topic::schema_name as input_schema_name,
};
use gridhook_api::{
    duration::format_duration as iso_duration,
    subscription::{
        DeadLetterDestination, DeadLetterProperties, EventFilter, Ordering, PullSettings,
    },
};
use gridhook_event::{Schema, Timestamp};
use gridhook_policy::{
    filter::{Filter, key::FilterKey},
    retry::LongerWaits,
};
use gridhook_record::{
    subscription::{
        OnGone, QueueSettings, RetryPolicy, RetryScheduleSpec, StartsFrom, StorageBlobDestination,
        SubscriptionRecord, TokenAudience, Webhook,
    },
    topic::TopicRecord,
};

/// Allowed values and default of `receiveLockDurationInSeconds`.
const LOCK_SECONDS: ValueRange = ValueRange {
    min: QueueSettings::LOCK_SECONDS_MIN,
    max: QueueSettings::LOCK_SECONDS_MAX,
    default: QueueSettings::LOCK_SECONDS_DEFAULT,
};

/// Checks an endpoint URL. Errors never contain it, because it may have a secret.
pub(super) fn endpoint_url(given: Option<String>) -> Result<String, InvalidRequest> {
    let invalid =
        |problem: &str| InvalidRequest::new("destination.properties.endpointUrl", problem);
    let Some(given) = given else {
        return Err(invalid(
            "is missing; POST getFullUrl returns it, GET does not",
        ));
    };
    if given.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid(
            "has a space or a control character in it; expected an absolute http or https URL",
        ));
    }
    // `localhost:8080` parses as a URL with the scheme `localhost`.
    let is_web = Url::parse(&given).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_web && !given.contains("://") {
        return Err(invalid(
            "has no http:// or https:// at its beginning; expected an absolute http or https URL",
        ));
    }
    let url = Url::parse(&given).map_err(|error| {
        invalid(&format!(
            "is not a URL ({error}); expected an absolute http or https URL"
        ))
    })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid(
            "has another scheme than http and https; expected an absolute http or https URL",
        ));
    }
    Webhook::check_endpoint_url(&given).map_err(|ambiguous| invalid(&ambiguous.to_string()))?;
    if url.fragment().is_some() {
        return Err(invalid(
            "has a fragment (#), which is never sent; leave it out",
        ));
    }
    Ok(given)
}

/// Reads a filter for events in `schema`, which determines the known keys.
pub(super) fn read_filter(
    given: EventFilter,
    schema: Schema,
    ranges: &EditionRanges,
) -> Result<Filter, InvalidRequest> {
    let check = |at: &str, text: &str| check_length(at, text, ranges.filter_text_max);
    if let Some(types) = &given.included_event_types {
        let at = "filter.includedEventTypes";
        if types.len() > ranges.event_types_max {
            let count = types.len();
            let most = ranges.event_types_max;
            return refuse_value(at, format!("has {count} entries; expected at most {most}"));
        }
        for (index, name) in types.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if name.is_empty() {
                return refuse_value(at, "is empty; expected the name of an event type, or All");
            }
            check(&at, name)?;
        }
    }
    let filter = Filter {
        included_event_types: given.included_event_types,
        subject_begins_with: given.subject_begins_with.unwrap_or_default(),
        subject_ends_with: given.subject_ends_with.unwrap_or_default(),
        is_subject_case_sensitive: given.is_subject_case_sensitive.unwrap_or_default(),
        advanced_filters: advanced::read(
            "filter.advancedFilters",
            given.advanced_filters.unwrap_or_default(),
            schema,
            ranges,
        )?,
        enable_advanced_filtering_on_arrays: given
            .enable_advanced_filtering_on_arrays
            .unwrap_or_default(),
        // From the path, not from the body.
        domain_topic: None,
    };
    check("filter.subjectBeginsWith", &filter.subject_begins_with)?;
    check("filter.subjectEndsWith", &filter.subject_ends_with)?;
    Ok(filter)
}

/// Checks the length of a string of a filter.
pub(super) fn check_length(at: &str, text: &str, max: usize) -> Result<(), InvalidRequest> {
    match text.chars().count() {
        length if length > max => refuse_value(
            at,
            format!("has {length} characters; expected at most {max}"),
        ),
        _ => Ok(()),
    }
}

pub(super) fn delivery_schema(
    given: Option<&str>,
    input: Schema,
) -> Result<Schema, InvalidRequest> {
    let possible = input.delivery_schemas();
    // A name of older API versions for the input schema of the topic, which is the default.
    let is_input = |given: &&str| given.eq_ignore_ascii_case("InputEventSchema");
    let Some(mut given) = given.filter(|given| !is_input(given)) else {
        return Ok(possible[0]);
    };
    if given.eq_ignore_ascii_case(FORMER_CLOUD_EVENTS) {
        given = schema_name(Schema::CloudEvents);
    }
    if let Some(requested) = possible
        .iter()
        .find(|schema| schema_name(**schema).eq_ignore_ascii_case(given))
    {
        return Ok(*requested);
    }
    let allowed_schemas: Vec<_> = possible.iter().map(|schema| schema_name(*schema)).collect();
    let input = input_schema_name(input);
    let allowed = allowed_schemas.join(" or ");
    refuse_value(
        "eventDeliverySchema",
        format!(
            "is \"{}\"; expected {allowed} for a topic whose inputSchema is {input}",
            given.escape_debug()
        ),
    )
}

/// Either setting enables batching, and the other one gets its default; without both a request has
/// one event (Event Grid documentation, 2023 edition). Views have both settings, and mean the same
/// when a client sends them back.
pub(super) fn read_batch(
    events: Option<i64>,
    kilobytes: Option<i64>,
    ranges: &EditionRanges,
) -> Result<(u32, u32), InvalidRequest> {
    let events = match (events, kilobytes) {
        (None, Some(_)) => ranges.events_where_only_kilobytes,
        (events, _) => ranges
            .events_per_batch
            .check_value("destination.properties.maxEventsPerBatch", events)?,
    };
    let at = "destination.properties.preferredBatchSizeInKilobytes";
    Ok((
        events,
        ranges.kilobytes_per_batch.check_value(at, kilobytes)?,
    ))
}

/// An optional limit of a webhook, from 1 to `max`.
pub(super) fn read_limit(
    key: &str,
    given: Option<i64>,
    max: u32,
) -> Result<Option<NonZeroU32>, InvalidRequest> {
    let range = ValueRange {
        min: 1,
        max,
        default: 0,
    };
    Ok(NonZeroU32::new(range.check_value(
        &format!("destination.properties.{key}"),
        given,
    )?))
}

/// A name of letters, digits and `marks`; [`None`] if it is empty.
fn check_directory_name(
    key: &str,
    name: Option<String>,
    marks: &str,
) -> Result<Option<String>, InvalidRequest> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || marks.contains(char);
    if name.len() <= 256 && name.chars().all(is_allowed) {
        return Ok(Some(name));
    }
    let problem = format!(
        "is \"{}\"; expected up to 256 letters, digits and {marks}",
        name.escape_debug()
    );
    refuse_value(format!("destination.properties.{key}"), problem)
}

/// The application and the tenant that access tokens are for. Azure's clients send empty strings
/// for none.
pub(super) fn token_audience(
    tenant: Option<String>,
    application: Option<String>,
) -> Result<Option<TokenAudience>, InvalidRequest> {
    let tenant = check_directory_name("azureActiveDirectoryTenantId", tenant, "-.")?;
    let key = "azureActiveDirectoryApplicationIdOrUri";
    match (tenant, check_directory_name(key, application, "-._~:/")?) {
        (tenant, Some(application)) => Ok(Some(TokenAudience {
            tenant,
            application,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => refuse_value(
            format!("destination.properties.{key}"),
            "is missing; azureActiveDirectoryTenantId needs it",
        ),
    }
}

/// The settings of pull delivery.
pub(super) fn queue(given: PullSettings) -> Result<QueueSettings, InvalidRequest> {
    let seconds = given.receive_lock_duration_in_seconds;
    Ok(QueueSettings {
        receive_lock_duration_in_seconds: LOCK_SECONDS
            .check_value("queue.receiveLockDurationInSeconds", seconds)?,
    })
}

/// Checks the time to live in minutes. In a namespace it is within the retention of the topic.
pub(super) fn time_to_live(
    given: Option<i64>,
    topic: &TopicRecord,
    ranges: &EditionRanges,
) -> Result<u32, InvalidRequest> {
    let at = "retryPolicy.eventTimeToLiveInMinutes";
    if !is_namespaced(topic) {
        return ranges.time_to_live_minutes.check_value(at, given);
    }
    let ValueRange { min, max, default } = ranges.time_to_live_minutes;
    let max = max.min(minutes_max(topic));
    let Some(given) = given else {
        return Ok(default.min(max));
    };
    let minutes = u32::try_from(given).ok();
    let is_allowed = |minutes: &u32| (min..=max).contains(minutes);
    minutes.filter(is_allowed).ok_or_else(|| {
        let [least, most] = [min, max].map(|minutes| iso_duration(60 * minutes));
        let problem = format!(
            "is {given} minutes; expected {least} to {most}: no longer than the topic's \
             eventRetentionInDays"
        );
        InvalidRequest::new(at, problem)
    })
}

/// Checks the `endpointType` of a destination of dead letters.
pub(super) fn dead_letter_type(given: &str) -> Result<(), InvalidRequest> {
    if given.eq_ignore_ascii_case(STORAGE_BLOB) {
        return Ok(());
    }
    let given = given.escape_debug();
    refuse_value(
        "deadLetterDestination.endpointType",
        format!("is \"{given}\"; expected {STORAGE_BLOB}, others are not supported yet"),
    )
}

const RESOURCE_ID: &str = "deadLetterDestination.properties.resourceId";
const CONTAINER_NAME: &str = "deadLetterDestination.properties.blobContainerName";

/// The part of a container's resource id between the storage account and the container.
const CONTAINERS: &str = "/blobServices/default/containers/";

/// The storage account and the container of a container's resource id; [`None`] for another id.
pub(super) fn container_of(resource_id: &str) -> Option<(&str, &str)> {
    let at = resource_id
        .to_ascii_lowercase()
        .find(&CONTAINERS.to_ascii_lowercase())?;
    Some((&resource_id[..at], &resource_id[at + CONTAINERS.len()..]))
}

/// The container is in `blobContainerName` or, as Azure's CLI sends it, in the resource id. Views
/// have it in `blobContainerName`. An address of a store needs no container.
pub(super) fn dead_letter(
    given: DeadLetterDestination,
    ranges: &EditionRanges,
) -> Result<StorageBlobDestination, InvalidRequest> {
    dead_letter_type(&given.endpoint_type)?;
    let retry_period_days = retry_period(given.delivery_retry_period_in_days, ranges)?;
    let DeadLetterProperties {
        resource_id,
        blob_container_name: named,
    } = given.properties;
    if StorageBlobDestination::is_address(&resource_id) {
        named
            .as_deref()
            .map_or(Ok(()), |named| check_container(CONTAINER_NAME, named))?;
        return Ok(StorageBlobDestination {
            resource_id,
            container: named.unwrap_or_default(),
            retry_period_days,
        });
    }
    let (account, (at, container)) = match (container_of(&resource_id), named.as_deref()) {
        (None, Some(named)) => (resource_id.as_str(), (CONTAINER_NAME, named)),
        (Some((account, container)), None) => (account, (RESOURCE_ID, container)),
        (Some((account, container)), Some(named)) if container == named => {
            (account, (CONTAINER_NAME, named))
        }
        (Some((_, container)), Some(named)) => {
            let named = named.escape_debug();
            let container = container.escape_debug();
            let problem = format!(
                "is \"{named}\", but resourceId ends with the container \"{container}\"; expected \
                 one"
            );
            return refuse_value(CONTAINER_NAME, problem);
        }
        (None, None) => {
            let problem = format!(
                "is missing; expected a name here, or a resourceId that ends with \
                 {CONTAINERS}NAME"
            );
            return refuse_value(CONTAINER_NAME, problem);
        }
    };
    if account.is_empty() {
        let problem = "is empty, or has no storage account before the container; expected a \
            resource id or an address of a store";
        return refuse_value(RESOURCE_ID, problem);
    }
    check_container(at, container)?;
    Ok(StorageBlobDestination {
        resource_id: account.to_owned(),
        container: container.to_owned(),
        retry_period_days,
    })
}

fn retry_period(given: Option<i64>, ranges: &EditionRanges) -> Result<Option<u32>, InvalidRequest> {
    let Some(days) = given else { return Ok(None) };
    let at = "deadLetterDestination.deliveryRetryPeriodInDays";
    match (u32::try_from(days), ranges.retry_period_days_max) {
        (_, 0) => refuse_value(
            at,
            "is not supported by the topic's edition; leave it out".to_owned(),
        ),
        (Ok(days), most) if (1..=most).contains(&days) => Ok(Some(days)),
        (_, most) => refuse_value(
            at,
            format!("is {days}; expected a whole number from 1 to {most}"),
        ),
    }
}

/// Checks the name of a container as Azure does. It can be a folder, so it must not be a path.
fn check_container(at: &str, name: &str) -> Result<(), InvalidRequest> {
    let legal = (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if legal {
        return Ok(());
    }
    let what = if at == RESOURCE_ID {
        "names the container"
    } else {
        "is"
    };
    let allowed = "expected 3 to 63 lower-case letters, digits and single hyphens between them";
    refuse_value(at, format!("{what} \"{}\"; {allowed}", name.escape_debug()))
}

/// `deadLetterInProbation` needs a destination: without one, events that only wait would be
/// dropped.
pub(super) fn in_probation(
    given: Option<bool>,
    destination: Option<&StorageBlobDestination>,
) -> Result<bool, InvalidRequest> {
    match (given.unwrap_or_default(), destination) {
        (true, None) => refuse_value(
            "deadLetterInProbation",
            "is true without a deadLetterDestination; expected false, or true beside a \
             deadLetterDestination",
        ),
        (asked, Some(_) | None) => Ok(asked),
    }
}

pub(super) fn on_gone(given: Option<&str>) -> Result<OnGone, InvalidRequest> {
    let Some(given) = given else {
        return Ok(OnGone::default());
    };
    match given.to_ascii_lowercase().as_str() {
        "retry" => Ok(OnGone::Retry),
        "disable" => Ok(OnGone::Disable),
        _ => refuse_value(
            "onGone",
            format!("is \"{}\"; expected retry or disable", given.escape_debug()),
        ),
    }
}

/// The name of the action for 410.
pub(super) fn on_gone_name(on_gone: OnGone) -> &'static str {
    match on_gone {
        OnGone::Retry => "retry",
        OnGone::Disable => "disable",
    }
}

/// `onFailure` of `ordering`: the default, and the other value.
const SKIP: &str = "skip";
const BLOCK: &str = "block";

/// Names that differ between the events of a key, or never differ.
const NO_ORDER_KEYS: [&str; 10] = [
    "id",
    "type",
    "eventtype",
    "time",
    "eventtime",
    "data",
    "dataversion",
    "specversion",
    "datacontenttype",
    "dataschema",
];

/// Reads `ordering` for events in schema `input`: the key, and whether dead letters block it.
pub(super) fn read_ordering(
    given: Option<Ordering>,
    input: Schema,
) -> Result<(Option<FilterKey>, bool), InvalidRequest> {
    let Some(Ordering {
        key: given,
        on_failure,
    }) = given
    else {
        return Ok((None, false));
    };
    let blocks = match on_failure.as_deref() {
        None => false,
        Some(action) if action.eq_ignore_ascii_case(SKIP) => false,
        Some(action) if action.eq_ignore_ascii_case(BLOCK) => true,
        Some(other) => {
            let problem = format!(
                "is \"{}\"; expected {SKIP} or {BLOCK}",
                other.escape_debug()
            );
            return refuse_value("ordering.onFailure", problem);
        }
    };
    let key = FilterKey::from(given.clone());
    let is_useless = NO_ORDER_KEYS.contains(&given.to_lowercase().as_str());
    if is_useless || key.check_schema(input).is_err() {
        let allowed = match input {
            Schema::EventGrid => "subject, topic or data.<path>",
            Schema::CloudEvents => "subject, source, an extension attribute or data.<path>",
            Schema::Custom => "subject, data.<path> or another path in the event",
        };
        let problem = format!("is \"{}\"; expected {allowed}", given.escape_debug());
        return refuse_value("ordering.key", problem);
    }
    Ok((Some(key), blocks))
}

pub(super) fn ordering_body(key: Option<&FilterKey>, blocks: bool) -> Option<Ordering> {
    let on_failure = Some(if blocks { BLOCK } else { SKIP }.to_owned());
    key.map(|key| Ordering {
        key: key.as_str().to_owned(),
        on_failure,
    })
}

/// Reads `expirationTimeUtc`; the caller checks that it is in the future.
pub(super) fn read_expiration(given: &str) -> Result<Timestamp, InvalidRequest> {
    parse_instant("expirationTimeUtc", given)
}

/// Reads `startsFrom`; the caller checks that it is in the past.
pub(super) fn starts_from(given: &str) -> Result<StartsFrom, InvalidRequest> {
    Ok(StartsFrom {
        at: parse_instant("startsFrom", given)?,
        made: Timestamp::default(),
    })
}

/// Checks that a schedule of its own has no wait that is shorter than the edition's least wait,
/// which would apply instead.
pub(super) fn check_schedule(
    at: &str,
    record: &SubscriptionRecord,
    ranges: &EditionRanges,
) -> Result<(), InvalidRequest> {
    let Some(RetryScheduleSpec::Waits(waits)) = record.retry_schedule.as_deref() else {
        return Ok(());
    };
    let min = if record.resource.is_some() {
        ranges.resource_wait_min
    } else {
        ranges.webhook_wait_min
    };
    for (index, text) in waits.iter().enumerate() {
        // The plan refuses a text that is no duration.
        if parse_duration(text).is_ok_and(|wait| wait < min) {
            let min = format_duration(min);
            let problem = format!(
                "is \"{text}\", and the edition of the topic waits {min} after any failure; \
                 expected a wait from {min} to 7d"
            );
            return refuse_value(format!("{at}[{index}]"), problem);
        }
    }
    Ok(())
}

/// The waits of a schedule that a warning shows.
const WAITS_SHOWN: usize = 6;

/// Warns that the waits of an own schedule are longer after some failures.
pub(crate) fn longer_waits_warning(longer: &[LongerWaits]) -> Option<String> {
    let after: Vec<String> = longer.iter().map(waits_after).collect();
    (!after.is_empty()).then(|| {
        format!(
            "retryPolicy.schedule has waits that are shorter than minimum waits of the topic's \
             edition: {}",
            after.join("; ")
        )
    })
}

fn waits_after(LongerWaits { statuses, waits }: &LongerWaits) -> String {
    let shown = waits.iter().take(WAITS_SHOWN);
    let mut texts: Vec<String> = shown
        .map(|wait| format_duration(*wait).to_string())
        .collect();
    if waits.len() > WAITS_SHOWN {
        texts.push("...".to_owned());
    }
    let after = if statuses.is_empty() {
        "any failure".to_owned()
    } else {
        let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
        statuses.join(", ")
    };
    format!("after {after} it is {}", texts.join(", "))
}

/// Checks `record` against the limits of a new edition of its topic.
pub fn check_limits(
    record: &SubscriptionRecord,
    ranges: &EditionRanges,
) -> Result<(), InvalidRequest> {
    let RetryPolicy {
        max_delivery_attempts: attempts,
        event_time_to_live_in_minutes: minutes,
    } = record.retry;
    ranges
        .attempts
        .check_value("maxDeliveryAttempts", Some(attempts.into()))
        .and_then(|_| {
            ranges
                .time_to_live_minutes
                .check_value("eventTimeToLiveInMinutes", Some(minutes.into()))
        })
        .and_then(|_| {
            let days = record
                .dead_letter
                .as_ref()
                .and_then(|destination| destination.retry_period_days);
            retry_period(days.map(i64::from), ranges)
        })
        .and_then(|_| check_schedule("schedule", record, ranges))
        .map_err(|invalid| {
            let name = &record.name;
            InvalidRequest::new(
                "properties.edition",
                format!("does not fit the event subscription {name}, whose {invalid}"),
            )
        })
}

/// The name of a delivery schema.
pub(super) fn schema_name(schema: Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridSchema",
        Schema::CloudEvents => "CloudEventSchemaV1_0",
        Schema::Custom => "CustomInputSchema",
    }
}

/// Maximum number of labels of an event subscription.
const LABELS_MAX: usize = 50;

/// Maximum length of a label.
const LABEL_CHARS_MAX: usize = 256;

pub(super) fn read_labels(given: Vec<String>) -> Result<Vec<String>, InvalidRequest> {
    let invalid = |problem: String| refuse_value("labels", problem);
    if given.len() > LABELS_MAX {
        return invalid(format!(
            "has {} labels; expected at most {LABELS_MAX}",
            given.len()
        ));
    }
    match given
        .iter()
        .position(|label| label.chars().count() > LABEL_CHARS_MAX)
    {
        Some(index) => {
            let length = given[index].chars().count();
            invalid(format!(
                "has a label of {length} characters at {index}; expected at most {LABEL_CHARS_MAX}"
            ))
        }
        None => Ok(given),
    }
}
