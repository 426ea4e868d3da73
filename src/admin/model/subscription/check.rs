//! Checks of the values of an event subscription.

use std::num::NonZeroU32;

use url::Url;

use super::{advanced, is_namespaced};
use crate::model::{
    CheckResult, EditionRanges, InvalidRequest, ValueRange, namespace::topic::minutes_max,
    parse_instant, refuse_value, tolerance::FORMER_CLOUD_EVENTS,
    topic::schema_name as input_schema_name,
};
use gridhook_api::{
    duration::format_duration as iso_duration,
    subscription::{EventFilter, PullSettings},
};
use gridhook_event::{Schema, Timestamp};
use gridhook_policy::filter::Filter;
use gridhook_record::{
    subscription::{OnGone, QueueSettings, StartsFrom, TokenAudience, Webhook},
    topic::TopicRecord,
};

/// Allowed values and default of `receiveLockDurationInSeconds`.
const LOCK_SECONDS: ValueRange = ValueRange {
    min: QueueSettings::LOCK_SECONDS_MIN,
    max: QueueSettings::LOCK_SECONDS_MAX,
    default: QueueSettings::LOCK_SECONDS_DEFAULT,
};

/// Checks an endpoint URL. Errors never contain it, because it may have a secret.
pub(super) fn read_endpoint_url(given: Option<String>) -> CheckResult<String> {
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
    let expected = "expected an absolute http or https URL";
    let url = match Url::parse(&given) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        // `localhost:8080` parses as a URL with the scheme `localhost`.
        Ok(_) | Err(_) if !given.contains("://") => {
            let problem = "has no http:// or https:// at its beginning";
            return Err(invalid(&format!("{problem}; {expected}")));
        }
        Ok(_) => {
            let problem = "has another scheme than http and https";
            return Err(invalid(&format!("{problem}; {expected}")));
        }
        Err(error) => {
            return Err(invalid(&format!("is not a URL ({error}); {expected}")));
        }
    };
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
) -> CheckResult<Filter> {
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
pub(super) fn check_length(at: &str, text: &str, max: usize) -> CheckResult {
    match text.chars().count() {
        length if length > max => refuse_value(
            at,
            format!("has {length} characters; expected at most {max}"),
        ),
        _ => Ok(()),
    }
}

pub(super) fn read_delivery_schema(given: Option<&str>, input: Schema) -> CheckResult<Schema> {
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
    let expected = format!("{allowed} for a topic whose inputSchema is {input}");
    Err(InvalidRequest::unexpected(
        "eventDeliverySchema",
        given,
        expected,
    ))
}

/// Either setting enables batching, and the other one gets its default; without both a request has
/// one event (Event Grid documentation, 2023 edition). Views have both settings, and mean the same
/// when a client sends them back.
pub(super) fn read_batch(
    events: Option<i64>,
    kilobytes: Option<i64>,
    ranges: &EditionRanges,
) -> CheckResult<(u32, u32)> {
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
) -> CheckResult<Option<NonZeroU32>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let limit = u32::try_from(given).ok().filter(|limit| *limit <= max);
    match limit.and_then(NonZeroU32::new) {
        Some(limit) => Ok(Some(limit)),
        None => refuse_value(
            format!("destination.properties.{key}"),
            format!("is {given}; expected 1 to {max}"),
        ),
    }
}

/// A name of letters, digits and `marks`; [`None`] if it is empty.
fn check_directory_name(
    key: &str,
    name: Option<String>,
    marks: &str,
) -> CheckResult<Option<String>> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || marks.contains(char);
    if name.len() <= 256 && name.chars().all(is_allowed) {
        return Ok(Some(name));
    }
    let target = format!("destination.properties.{key}");
    let expected = format!("up to 256 letters, digits and {marks}");
    Err(InvalidRequest::unexpected(target, &name, expected))
}

/// The application and the tenant that access tokens are for. Azure's clients send empty strings
/// for none.
pub(super) fn read_token_audience(
    tenant: Option<String>,
    application: Option<String>,
) -> CheckResult<Option<TokenAudience>> {
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
pub(super) fn read_queue(given: PullSettings) -> CheckResult<QueueSettings> {
    let seconds = given.receive_lock_duration_in_seconds;
    Ok(QueueSettings {
        receive_lock_duration_in_seconds: LOCK_SECONDS
            .check_value("queue.receiveLockDurationInSeconds", seconds)?,
    })
}

/// Checks the time to live in minutes. In a namespace it is within the retention of the topic.
pub(super) fn read_time_to_live(
    given: Option<i64>,
    topic: &TopicRecord,
    ranges: &EditionRanges,
) -> CheckResult<u32> {
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

pub(super) fn read_on_gone(given: Option<&str>) -> CheckResult<OnGone> {
    let Some(given) = given else {
        return Ok(OnGone::default());
    };
    match given.to_ascii_lowercase().as_str() {
        "retry" => Ok(OnGone::Retry),
        "disable" => Ok(OnGone::Disable),
        _ => Err(InvalidRequest::unexpected(
            "onGone",
            given,
            "retry or disable",
        )),
    }
}

/// The name of the action for 410.
pub(super) fn on_gone_name(on_gone: OnGone) -> &'static str {
    match on_gone {
        OnGone::Retry => "retry",
        OnGone::Disable => "disable",
    }
}

/// Reads `startsFrom`; the caller checks that it is in the past.
pub(super) fn read_start(given: &str) -> CheckResult<StartsFrom> {
    Ok(StartsFrom {
        at: parse_instant("startsFrom", given)?,
        made: Timestamp::default(),
    })
}

/// The name of a delivery schema.
pub(super) fn schema_name(schema: Schema) -> &'static str {
    match schema {
        Schema::Custom => "CustomInputSchema",
        schema => input_schema_name(schema),
    }
}

/// Maximum number of labels of an event subscription.
const LABELS_MAX: usize = 50;

/// Maximum length of a label.
const LABEL_CHARS_MAX: usize = 256;

pub(super) fn read_labels(given: Vec<String>) -> CheckResult<Vec<String>> {
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
