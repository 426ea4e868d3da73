//! What must be true of the parts of an event subscription beyond their form.

use url::Url;

use super::{BlobBody, DeadLetterBody, FilterBody, advanced};
use crate::{
    admin::model::{EditionRanges, InvalidRequest, instant, topic::schema_name as input_schema_name},
    control::record::subscription::{
        OnGone, RetryPolicy, StartsFrom, StorageBlobDestination, SubscriptionRecord, Webhook,
    },
    event::{Schema, Timestamp},
    policy::filter::Filter,
};

/// Checks that a request can be made of it. What it says is never repeated: a secret may be in it.
pub(super) fn endpoint_url(given: Option<String>) -> Result<String, InvalidRequest> {
    let invalid = |problem: &str| InvalidRequest::new("destination.properties.endpointUrl", problem);
    let Some(given) = given else {
        return Err(invalid("is missing; GET does not tell it, POST getFullUrl does"));
    };
    if given.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(invalid("has a space or a control character in it; allowed is an absolute http or https URL"));
    }
    let url = Url::parse(&given)
        .map_err(|error| invalid(&format!("is no URL ({error}); allowed is an absolute http or https URL")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("is not http or https; allowed is an absolute http or https URL"));
    }
    Webhook::check_endpoint_url(&given).map_err(|ambiguous| invalid(&ambiguous.to_string()))?;
    if url.fragment().is_some() {
        return Err(invalid("has a fragment (#), which is never sent; leave it out"));
    }
    Ok(given)
}

/// `schema` is that of the events: it says which keys there are.
pub(super) fn filter(given: FilterBody, schema: Schema, ranges: &EditionRanges) -> Result<Filter, InvalidRequest> {
    let check = |at: &str, text: &str| length(at, text, ranges.filter_text_max);
    if let Some(types) = &given.included_event_types {
        let at = "filter.includedEventTypes";
        if types.len() > ranges.event_types_max {
            let (count, most) = (types.len(), ranges.event_types_max);
            return Err(InvalidRequest::new(at, format!("has {count} entries; allowed are at most {most}")));
        }
        for (index, name) in types.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if name.is_empty() {
                return Err(InvalidRequest::new(at, "is empty; allowed is the name of an event type, or All"));
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
        enable_advanced_filtering_on_arrays: given.enable_advanced_filtering_on_arrays.unwrap_or_default(),
        // The place of the subscription says it, not its body.
        domain_topic: None,
    };
    check("filter.subjectBeginsWith", &filter.subject_begins_with)?;
    check("filter.subjectEndsWith", &filter.subject_ends_with)?;
    Ok(filter)
}

/// A string of a filter may have so many characters.
pub(super) fn length(at: &str, text: &str, max: usize) -> Result<(), InvalidRequest> {
    match text.chars().count() {
        length if length > max => {
            Err(InvalidRequest::new(at, format!("has {length} characters; allowed are at most {max}")))
        }
        _ => Ok(()),
    }
}

pub(super) fn delivery_schema(given: Option<&str>, input: Schema) -> Result<Schema, InvalidRequest> {
    let possible = input.deliveries();
    let Some(given) = given else { return Ok(possible[0]) };
    if let Some(wished) = possible.iter().find(|schema| schema_name(**schema) == given) {
        return Ok(*wished);
    }
    let allowed: Vec<_> = possible.iter().map(|schema| schema_name(*schema)).collect();
    let (input, allowed) = (input_schema_name(input), allowed.join(", "));
    Err(InvalidRequest::new(
        "eventDeliverySchema",
        format!("is \"{}\"; allowed for a topic whose inputSchema is {input}: {allowed}", given.escape_debug()),
    ))
}

/// Either setting turns batching on, and the other one has its default; without both a request has one event (seed 000).
/// What is told has both, and means the same when it is sent back: one event in a request is what there is without batching.
pub(super) fn batch(
    events: Option<i64>,
    kilobytes: Option<i64>,
    ranges: &EditionRanges,
) -> Result<(u32, u32), InvalidRequest> {
    let events = match (events, kilobytes) {
        (None, Some(_)) => ranges.events_where_only_kilobytes,
        (events, _) => ranges.events_per_batch.check("destination.properties.maxEventsPerBatch", events)?,
    };
    let at = "destination.properties.preferredBatchSizeInKilobytes";
    Ok((events, ranges.kilobytes_per_batch.check(at, kilobytes)?))
}

const RESOURCE_ID: &str = "deadLetterDestination.properties.resourceId";
const CONTAINER_NAME: &str = "deadLetterDestination.properties.blobContainerName";

/// What stands between a storage account and a container in the container's resource id.
const CONTAINERS: &str = "/blobServices/default/containers/";

/// The storage account and the container that a container's resource id names. [`None`]: it is the id of something else.
pub(super) fn container_of(resource_id: &str) -> Option<(&str, &str)> {
    let at = resource_id.to_ascii_lowercase().find(&CONTAINERS.to_ascii_lowercase())?;
    Some((&resource_id[..at], &resource_id[at + CONTAINERS.len()..]))
}

/// The container is named by itself or in the resource id (which is how Azure's command line has it); it is told by itself.
/// The address of a place in a store, in place of a resource id, needs none.
pub(super) fn dead_letter(
    given: DeadLetterBody,
    ranges: &EditionRanges,
) -> Result<StorageBlobDestination, InvalidRequest> {
    let retry_period_days = retry_period(given.delivery_retry_period_in_days, ranges)?;
    let BlobBody { resource_id, blob_container_name: named } = given.properties;
    if StorageBlobDestination::is_address(&resource_id) {
        named.as_deref().map_or(Ok(()), |named| check_container(CONTAINER_NAME, named))?;
        return Ok(StorageBlobDestination { resource_id, container: named.unwrap_or_default(), retry_period_days });
    }
    let (account, (at, container)) = match (container_of(&resource_id), named.as_deref()) {
        (None, Some(named)) => (resource_id.as_str(), (CONTAINER_NAME, named)),
        (Some((account, container)), None) => (account, (RESOURCE_ID, container)),
        (Some((account, container)), Some(named)) if container == named => (account, (CONTAINER_NAME, named)),
        (Some((_, container)), Some(named)) => {
            let (named, container) = (named.escape_debug(), container.escape_debug());
            let problem =
                format!("is \"{named}\", but resourceId ends with the container \"{container}\"; allowed is one");
            return Err(InvalidRequest::new(CONTAINER_NAME, problem));
        }
        (None, None) => {
            let problem =
                format!("is missing; allowed is a name here, or a resourceId that ends with {CONTAINERS}NAME");
            return Err(InvalidRequest::new(CONTAINER_NAME, problem));
        }
    };
    if account.is_empty() {
        let problem = "is empty, or names no storage account; allowed is any other text, it is kept and given back";
        return Err(InvalidRequest::new(RESOURCE_ID, problem));
    }
    check_container(at, container)?;
    Ok(StorageBlobDestination { resource_id: account.to_owned(), container: container.to_owned(), retry_period_days })
}

fn retry_period(given: Option<i64>, ranges: &EditionRanges) -> Result<Option<u32>, InvalidRequest> {
    let Some(days) = given else { return Ok(None) };
    let at = "deadLetterDestination.deliveryRetryPeriodInDays";
    match (u32::try_from(days), ranges.retry_period_days_max) {
        (_, 0) => {
            Err(InvalidRequest::new(at, "is not known to the topic's edition; allowed is to leave it out".to_owned()))
        }
        (Ok(days), most) if (1..=most).contains(&days) => Ok(Some(days)),
        (_, most) => Err(InvalidRequest::new(at, format!("is {days}; allowed is a whole number from 1 to {most}"))),
    }
}

/// The container is a folder of ours, so that its name is checked as Azure does: no path can be made of it.
fn check_container(at: &str, name: &str) -> Result<(), InvalidRequest> {
    let legal = (3..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if legal {
        return Ok(());
    }
    let what = if at == RESOURCE_ID { "names the container" } else { "is" };
    let allowed = "allowed are 3 to 63 small letters, digits and single hyphens between them";
    Err(InvalidRequest::new(at, format!("{what} \"{}\"; {allowed}", name.escape_debug())))
}

/// Without a place for dead letters events would be dropped that are only waiting.
pub(super) fn in_probation(
    given: Option<bool>,
    place: Option<&StorageBlobDestination>,
) -> Result<bool, InvalidRequest> {
    match (given.unwrap_or_default(), place) {
        (true, None) => Err(InvalidRequest::new(
            "deadLetterInProbation",
            "is true without a deadLetterDestination; allowed is false, or true beside a deadLetterDestination",
        )),
        (asked, Some(_) | None) => Ok(asked),
    }
}

pub(super) fn on_gone(given: Option<&str>) -> Result<OnGone, InvalidRequest> {
    match given {
        None => Ok(OnGone::default()),
        Some("retry") => Ok(OnGone::Retry),
        Some("disable") => Ok(OnGone::Disable),
        Some(other) => Err(InvalidRequest::new(
            "onGone",
            format!("is \"{}\"; allowed are retry and disable", other.escape_debug()),
        )),
    }
}

/// The word for what 410 means.
pub(super) fn on_gone_name(on_gone: OnGone) -> &'static str {
    match on_gone {
        OnGone::Retry => "retry",
        OnGone::Disable => "disable",
    }
}

/// Reads `expirationTimeUtc`. Whether it has passed is not asked here.
pub(super) fn expiration(given: &str) -> Result<Timestamp, InvalidRequest> {
    instant("expirationTimeUtc", given)
}

/// Reads `startsFrom`. Whether it has passed is not asked here.
pub(super) fn starts_from(given: &str) -> Result<StartsFrom, InvalidRequest> {
    Ok(StartsFrom { at: instant("startsFrom", given)?, made: Timestamp::default() })
}

/// Whether what `record` asks for is within `ranges`: asked before its topic changes to the edition that they are of.
pub fn fits(record: &SubscriptionRecord, ranges: &EditionRanges) -> Result<(), InvalidRequest> {
    let RetryPolicy { max_delivery_attempts: attempts, event_time_to_live_in_minutes: minutes } = record.retry;
    ranges
        .attempts
        .check("maxDeliveryAttempts", Some(attempts.into()))
        .and_then(|_| ranges.time_to_live_minutes.check("eventTimeToLiveInMinutes", Some(minutes.into())))
        .and_then(|_| {
            let days = record.dead_letter.as_ref().and_then(|place| place.retry_period_days);
            retry_period(days.map(i64::from), ranges)
        })
        .map(|_| ())
        .map_err(|invalid| {
            let name = &record.name;
            InvalidRequest::new(
                "properties.edition",
                format!("does not suit the event subscription {name}, whose {invalid}"),
            )
        })
}

/// The word for a delivery schema.
pub(super) fn schema_name(schema: Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridSchema",
        Schema::CloudEvents => "CloudEventSchemaV1_0",
        Schema::Custom => "CustomInputSchema",
    }
}
