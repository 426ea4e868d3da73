//! The JSON of the control plane: reads and checks request bodies, and builds views.
//!
//! Invariants:
//! - nothing is ignored silently: an unknown key is refused with the allowed keys, and a key that
//!   Azure supports and this server does not is refused with the reason, unless its value describes
//!   what the server does anyway. The exceptions, which Azure ignores too, are in `tolerance`;
//! - read-only properties (`id`, `provisioningState`, …) are accepted and ignored, so that a client
//!   can PUT what it got;
//! - PATCH is a JSON merge patch of the settable part of the resource, read by the same code as
//!   PUT, except that tags are replaced as a whole (both are ARM's own rules).
//!
//! This module is pure: no HTTP, no registry, no clock, no randomness. The limits of the policy
//! come as [`Editions`].

pub mod account;
pub mod deployment;
pub mod difference;
pub mod domain_topic;
pub mod namespace;
pub mod odata;
pub mod provider;
pub mod subscription;
pub mod system_data;
mod tolerance;
pub mod topic;

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::tolerance::TolerantValue;
use gridhook_event::{Timestamp, parse_instant_or_utc};
use gridhook_policy::filter::number;

/// The result of a check of a part of a request.
pub type CheckResult<T = ()> = Result<T, InvalidRequest>;

/// An invalid part of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{target} {problem}")]
pub struct InvalidRequest {
    /// Path of the key, such as `properties.filter.subjectBeginsWith`, or the part of the request.
    pub target: String,
    /// What is wrong with the value, and what is allowed.
    pub problem: String,
}

/// Refuses a value of a request: the error of [`InvalidRequest::new`] as a result.
pub(crate) fn refuse_value<T, E: From<InvalidRequest>>(
    target: impl Into<String>,
    problem: impl Into<String>,
) -> Result<T, E> {
    Err(InvalidRequest::new(target, problem).into())
}

impl InvalidRequest {
    pub(crate) fn new(target: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            problem: problem.into(),
        }
    }

    /// An error about a text that is none of the expected ones.
    pub(crate) fn unexpected(
        target: impl Into<String>,
        given: &str,
        expected: impl Display,
    ) -> Self {
        let given = given.escape_debug();
        Self::new(target, format!("is \"{given}\"; expected {expected}"))
    }

    /// Finds the known name that `given` is, or is without regard to case. Another one is refused:
    /// an empty response would look like good news.
    pub(crate) fn find_known(
        target: &str,
        given: &str,
        mut names: Vec<String>,
    ) -> Result<String, Self> {
        let exact = names.iter().position(|name| name == given);
        match exact.or_else(|| {
            names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(given))
        }) {
            Some(index) => Ok(names.swap_remove(index)),
            None => {
                let allowed = allowed_names(given, &names);
                Err(Self::new(
                    target,
                    format!("is \"{}\"; {allowed}", given.escape_debug()),
                ))
            }
        }
    }

    /// Prefixes the target with `key`.
    fn prefixed_with(self, key: &str) -> Self {
        let target = if self.target == BODY {
            key.to_owned()
        } else {
            format!("{key}.{}", self.target)
        };
        Self { target, ..self }
    }
}

/// Maximum number of names listed in an error; if there are more, only the most similar one is
/// named.
const LISTED_NAMES: usize = 12;

/// The minimum Jaro-Winkler similarity of a suggested name; 1 is equality.
const SIMILARITY_MIN: f64 = 0.8;

/// The names that are allowed in place of `given`.
fn allowed_names(given: &str, names: &[String]) -> String {
    if names.len() <= LISTED_NAMES {
        return format!("expected one of {}", names.join(", "));
    }
    let given = given.to_lowercase();
    let similarity = |name: &&String| strsim::jaro_winkler(&given, &name.to_lowercase());
    match names
        .iter()
        .rev()
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
        .filter(|name| similarity(name) >= SIMILARITY_MIN)
    {
        Some(name) => {
            format!("did you mean {name}? gridhook help delivery lists the allowed names")
        }
        None => "gridhook help delivery lists the allowed names".to_owned(),
    }
}

/// Target of an error about the whole body.
const BODY: &str = "the body";

/// Allowed values of a setting, and its default: `min <= default <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRange {
    pub min: u32,
    pub max: u32,
    pub default: u32,
}

impl ValueRange {
    fn check_value(self, target: &str, asked: Option<i64>) -> CheckResult<u32> {
        let Some(asked) = asked else {
            return Ok(self.default);
        };
        u32::try_from(asked)
            .ok()
            .filter(|asked| (self.min..=self.max).contains(asked))
            .ok_or_else(|| {
                InvalidRequest::new(
                    target,
                    format!("is {asked}; expected {} to {}", self.min, self.max),
                )
            })
    }
}

/// The limits of an edition that the control plane checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditionRanges {
    /// Allowed values and default of `maxDeliveryAttempts`.
    pub attempts: ValueRange,
    /// Allowed values and default of `eventTimeToLiveInMinutes`.
    pub time_to_live_minutes: ValueRange,
    /// Allowed values and default of `maxEventsPerBatch`.
    pub events_per_batch: ValueRange,
    /// Default of `maxEventsPerBatch` if only `preferredBatchSizeInKilobytes` is given.
    pub events_where_only_kilobytes: u32,
    /// Allowed values and default of `preferredBatchSizeInKilobytes`.
    pub kilobytes_per_batch: ValueRange,
    /// Maximum characters in one string of a filter: 512 in Azure.
    pub filter_text_max: usize,
    /// Maximum entries of `includedEventTypes`.
    pub event_types_max: usize,
    /// Maximum entries of `advancedFilters`.
    pub advanced_filters_max: usize,
    /// Maximum values of all advanced filters of an event subscription together.
    pub advanced_values_max: usize,
    /// Maximum of `deliveryRetryPeriodInDays`; 0 if the edition does not support it.
    pub retry_period_days_max: u32,
    /// The least wait after a failure of a webhook.
    pub webhook_wait_min: Duration,
    /// The least wait after a failure of any other destination.
    pub resource_wait_min: Duration,
}

/// The editions of the delivery policy that a topic may name.
#[derive(Clone, Debug)]
pub struct Editions {
    /// Default edition of a new topic.
    pub default: String,
    pub known: BTreeMap<String, EditionRanges>,
}

impl Editions {
    /// The limits of the edition `name`.
    pub fn edition_ranges(&self, name: &str) -> CheckResult<&EditionRanges> {
        self.known.get(name).ok_or_else(|| {
            let known: Vec<_> = self.known.keys().map(String::as_str).collect();
            let expected = format!("one of {}", known.join(", "));
            InvalidRequest::unexpected("properties.edition", name, expected)
        })
    }
}

/// A key of Azure that this server does not support.
struct UnsupportedProperty {
    /// Path: keys joined by dots.
    at: &'static str,
    /// Accepted values as JSON, which describe what the server does anyway. `null` is always
    /// accepted.
    harmless: &'static [&'static str],
    /// Why the property is refused, or what to use instead.
    because: &'static str,
}

/// Removes the keys of `table` with accepted values from `value`, and refuses other values.
fn refuse_unsupported(value: &mut Value, table: &[UnsupportedProperty]) -> CheckResult {
    for UnsupportedProperty {
        at,
        harmless,
        because,
    } in table
    {
        let Some(given) = take_value(value, at) else {
            continue;
        };
        let text = given.to_string();
        if given.is_null() || harmless.iter().any(|one| one.eq_ignore_ascii_case(&text)) {
            continue;
        }
        let allowed = match harmless {
            [] => "leave it out".to_owned(),
            _ => format!("expected {}", harmless.join(" or ")),
        };
        return refuse_value(*at, format!("is not supported yet ({because}): {allowed}"));
    }
    Ok(())
}

/// The value of `allowed` that `given` means, or else `given`. Azure compares without case; bicep
/// modules write lists without spaces.
fn canonical_name<'a>(given: &'a str, allowed: &[&'a str]) -> &'a str {
    let is_given = |name: &&&str| {
        name.replace(", ", ",")
            .eq_ignore_ascii_case(&given.replace(", ", ","))
    };
    allowed.iter().find(is_given).copied().unwrap_or(given)
}

fn drop_read_only(value: &mut Value, keys: &[&str]) {
    for at in keys {
        drop(take_value(value, at));
    }
}

/// Removes and returns the value at `at` (keys joined by dots).
fn take_value(value: &mut Value, at: &str) -> Option<Value> {
    let (above, key) = at
        .rsplit_once('.')
        .map_or((None, at), |(above, key)| (Some(above), key));
    let parent = match above {
        None => value,
        Some(above) => above
            .split('.')
            .try_fold(value, |value, key| value.get_mut(key))?,
    };
    parent.as_object_mut()?.remove(key)
}

fn text_at<'a>(value: &'a Value, at: &str) -> Option<&'a str> {
    at.split('.')
        .try_fold(value, |value, key| value.get(key))?
        .as_str()
}

/// Reads a body; an empty one is an object without keys.
pub(crate) fn parse_body(body: &[u8]) -> CheckResult<Value> {
    if body.trim_ascii().is_empty() {
        return Ok(json!({}));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| InvalidRequest::new(BODY, format!("is not JSON: {error}")))?;
    if !value.is_object() {
        return refuse_value(BODY, "is not a JSON object; expected a JSON object");
    }
    check_exact(std::str::from_utf8(body).unwrap_or_default())?;
    Ok(value)
}

/// Refuses numbers that parsing has rounded, because filters compare exactly.
pub(crate) fn check_exact(json: &str) -> CheckResult {
    number::first_rounded(json).map_or(Ok(()), |(at, problem)| refuse_value(at, problem))
}

/// Reads `value` into a struct; an error has the path of the key.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> CheckResult<T> {
    serde_path_to_error::deserialize(TolerantValue(value)).map_err(|error| {
        let at = error.path().to_string();
        let target = if at == "." { BODY.to_owned() } else { at };
        InvalidRequest::new(
            target,
            format!("cannot be read: {}", json_terms(&error.inner().to_string())),
        )
    })
}

/// The expectations of serde's derived readers that name types of this program, and what they mean
/// in JSON.
const JSON_TERMS: [(&str, &str); 17] = [
    ("internally tagged enum ", "an object"),
    ("struct variant ", "an object"),
    ("tuple struct ", "an array"),
    ("struct ", "an object"),
    ("enum ", "a string"),
    ("a map", "an object"),
    ("a sequence", "an array"),
    ("string or map", "a string"),
    ("u8", "a whole number of 0 or more"),
    ("u16", "a whole number of 0 or more"),
    ("u32", "a whole number of 0 or more"),
    ("u64", "a whole number of 0 or more"),
    ("usize", "a whole number of 0 or more"),
    ("i64", "a whole number"),
    ("a nonzero u32", "a whole number of 1 or more"),
    ("f64", "a number"),
    // An array in the place of an object is read by position.
    ("fewer elements in array", "an object"),
];

/// A message of a derived reader, in terms of JSON instead of Rust.
fn json_terms(message: &str) -> String {
    let message = message.replace("invalid type: map,", "invalid type: object,");
    let message = message.replace("invalid type: sequence,", "invalid type: array,");
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message;
    };
    match JSON_TERMS.iter().find(|(rust, _)| {
        if rust.ends_with(' ') {
            expected.starts_with(rust)
        } else {
            expected == *rust
        }
    }) {
        Some((_, json)) => format!("{found}, expected {json}"),
        None => message,
    }
}

/// Reads a time with an offset, or without one, which is UTC.
pub(crate) fn parse_instant(target: &str, given: &str) -> CheckResult<Timestamp> {
    match parse_instant_or_utc(given) {
        // Times before 1970 are treated as 1970.
        Some(at) => Ok(Timestamp(u64::try_from(at.as_microsecond()).unwrap_or(0))),
        None => {
            let expected = "a date and time such as 2030-01-31T12:00:00Z";
            Err(InvalidRequest::unexpected(target, given, expected))
        }
    }
}

/// Applies the PATCH of a resource with tags: as in Azure, tags are replaced as a whole and
/// everything else is merged.
fn merge_resource(target: &mut Value, patch: Value) {
    if patch.get("tags").is_some() {
        drop(take_value(target, "tags"));
    }
    merge_patch(target, patch);
}

/// Applies a JSON merge patch (RFC 7396): objects are merged, `null` removes, other values replace.
fn merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            drop(target.remove(&key));
        } else {
            merge_patch(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// A struct of this module as a JSON value.
pub(super) fn value_of(body: &impl Serialize) -> Value {
    serde_json::to_value(body).expect("structs of strings and numbers with string keys are JSON")
}

/// Refuses a name in the body that is not the name in the path.
fn check_same_name(given: Option<&str>, name: &str) -> CheckResult {
    match given {
        Some(given) if !given.eq_ignore_ascii_case(name) => {
            let expected = format!("the name in the path, \"{name}\"");
            Err(InvalidRequest::unexpected("name", given, expected))
        }
        Some(_) | None => Ok(()),
    }
}

/// Maximum number of tags of a resource, as in Azure.
const TAGS_MAX: usize = 50;

/// Maximum length of the name of a tag, as in Azure.
const TAG_NAME_CHARS_MAX: usize = 512;

/// Maximum length of the value of a tag, as in Azure.
const TAG_VALUE_CHARS_MAX: usize = 256;

fn check_tags(tags: &BTreeMap<String, String>) -> CheckResult {
    if tags.len() > TAGS_MAX {
        return refuse_value(
            "tags",
            format!("has {} tags; expected at most {TAGS_MAX}", tags.len()),
        );
    }
    for (name, value) in tags {
        let lengths = [name.chars().count(), value.chars().count()];
        if lengths[0] > TAG_NAME_CHARS_MAX || lengths[1] > TAG_VALUE_CHARS_MAX {
            let shown: String = name.chars().take(TAG_VALUE_CHARS_MAX).collect();
            let problem = format!(
                "has the tag \"{shown}\" with a name of {} and a value of {} characters; expected \
                 {TAG_NAME_CHARS_MAX} and {TAG_VALUE_CHARS_MAX}",
                lengths[0], lengths[1],
            );
            return refuse_value("tags", problem);
        }
    }
    Ok(())
}

fn check_name(what: &str, name: &str, max: usize) -> CheckResult {
    let legal = (3..=max).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if legal {
        return Ok(());
    }
    let expected = format!("3 to {max} letters (a to z), digits and hyphens");
    Err(InvalidRequest::unexpected(what, name, expected))
}
