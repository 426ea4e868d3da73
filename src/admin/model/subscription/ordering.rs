//! Checks of `ordering` of an event subscription.

use crate::model::{CheckResult, InvalidRequest};
use gridhook_api::subscription::Ordering;
use gridhook_event::Schema;
use gridhook_policy::filter::key::FilterKey;

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
) -> CheckResult<(Option<FilterKey>, bool)> {
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
            let expected = format!("{SKIP} or {BLOCK}");
            return Err(InvalidRequest::unexpected(
                "ordering.onFailure",
                other,
                expected,
            ));
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
        return Err(InvalidRequest::unexpected("ordering.key", &given, allowed));
    }
    Ok((Some(key), blocks))
}

/// The body of `ordering`.
pub(super) fn ordering_body(key: Option<&FilterKey>, blocks: bool) -> Option<Ordering> {
    let on_failure = Some(if blocks { BLOCK } else { SKIP }.to_owned());
    key.map(|key| Ordering {
        key: key.as_str().to_owned(),
        on_failure,
    })
}
