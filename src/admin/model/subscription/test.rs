//! The bodies of `testFilter` and `testTransform`.
//!
//! Each is one event, a list of events, or an object with options: `{"last": 100}`, `{"events":
//! [...]}`, each with or without a draft: a `"filter"` or a `"transform"`. An object with only
//! these keys is never an event in any schema.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::check;
use crate::model::{
    CheckResult, EditionRanges, InvalidRequest, check_exact, read as read_value, refuse_value,
};
use gridhook_api::subscription::EventFilter;
use gridhook_policy::filter::Filter;
use gridhook_record::topic::TopicRecord;

/// Maximum number of tested events.
const LAST_MAX: u64 = 1000;

/// A test of something that a subscription does with events.
#[derive(Debug)]
pub struct TestRequest<D> {
    /// The draft to test; [`None`] for what the event subscription has.
    pub draft: Option<D>,
    pub sample: TestEvents,
}

#[derive(Debug)]
pub enum TestEvents {
    /// An event or a list of events in the topic's input schema.
    Given(Box<RawValue>),
    /// Number of the newest events of the log.
    Newest(u64),
}

/// Reads the body of `testFilter` for an event subscription of `topic`.
pub fn read_filter_test(
    topic: &TopicRecord,
    ranges: &EditionRanges,
    body: &[u8],
) -> CheckResult<TestRequest<Filter>> {
    read(body, "filter", |given: EventFilter| {
        check::read_filter(given, topic.input_schema, ranges)
    })
}

/// Reads a test whose draft is at `key`.
pub(crate) fn read<B: DeserializeOwned, D>(
    body: &[u8],
    key: &'static str,
    check: impl Fn(B) -> CheckResult<D>,
) -> CheckResult<TestRequest<D>> {
    let not_json =
        |error: serde_json::Error| InvalidRequest::new("the body", format!("is not JSON: {error}"));
    let whole: Box<RawValue> = serde_json::from_slice(body).map_err(not_json)?;
    let mut members = BTreeMap::<String, Box<RawValue>>::new();
    if whole.get().trim_start().starts_with('{') {
        members = serde_json::from_str(whole.get()).map_err(not_json)?;
    }
    if members.is_empty()
        || members
            .keys()
            .any(|given| !["events", key, "last"].contains(&given.as_str()))
    {
        return Ok(TestRequest {
            draft: None,
            sample: TestEvents::Given(whole),
        });
    }
    let draft = members.remove(key).map(|draft| {
        let value = serde_json::from_str(draft.get())
            .map_err(|error| InvalidRequest::new(key, format!("cannot be read: {error}")))?;
        check_exact(draft.get()).map_err(|invalid| invalid.prefixed_with(key))?;
        check(read_value(value).map_err(|invalid| invalid.prefixed_with(key))?)
    });
    let draft = draft.transpose()?;
    let sample = match (members.remove("events"), members.remove("last")) {
        (Some(events), None) => TestEvents::Given(events),
        (None, Some(last)) => TestEvents::Newest(read_last(&last)?),
        (None, None) => {
            let problem = format!(
                "has no events to test; add events, or last: 1 to {LAST_MAX} newest events"
            );
            return refuse_value("the body", problem);
        }
        (Some(_), Some(_)) => {
            return refuse_value("last", "and events are both given; leave one of them out");
        }
    };
    Ok(TestRequest { draft, sample })
}

fn read_last(last: &RawValue) -> CheckResult<u64> {
    let count = last
        .get()
        .parse()
        .ok()
        .filter(|count| (1..=LAST_MAX).contains(count));
    count.ok_or_else(|| {
        InvalidRequest::new(
            "last",
            format!("is {}; expected 1 to {LAST_MAX}", last.get()),
        )
    })
}
