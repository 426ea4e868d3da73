//! The body of `testFilter`.
//!
//! It is one event, a list of events, or an object with options: `{"last": 100}`, `{"events": [...]}`, each with or
//! without a `"filter"`. An object with only these keys is never an event in any schema.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{FilterBody, check};
use crate::{
    admin::model::{EditionRanges, InvalidRequest, exact, read as read_value},
    control::record::topic::TopicRecord,
    policy::filter::Filter,
};

/// Maximum number of tested events.
const LAST_MAX: u64 = 1000;

/// A filter test.
#[derive(Debug)]
pub struct FilterTestRequest {
    /// Draft filter; [`None`] for the filter of the event subscription.
    pub filter: Option<Filter>,
    /// Events to test.
    pub sample: FilterTestEvents,
}

/// Events to test.
#[derive(Debug)]
pub enum FilterTestEvents {
    /// An event or a list of events in the topic's input schema.
    Given(Box<RawValue>),
    /// This many of the newest events of the log.
    Newest(u64),
}

/// Reads the body of `testFilter` for an event subscription of `topic`.
pub fn read(topic: &TopicRecord, ranges: &EditionRanges, body: &[u8]) -> Result<FilterTestRequest, InvalidRequest> {
    let not_json = |error: serde_json::Error| InvalidRequest::new("the body", format!("is not JSON: {error}"));
    let whole: Box<RawValue> = serde_json::from_slice(body).map_err(not_json)?;
    if !whole.get().trim_start().starts_with('{') {
        return Ok(FilterTestRequest { filter: None, sample: FilterTestEvents::Given(whole) });
    }
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(whole.get()).map_err(not_json)?;
    if members.is_empty() || members.keys().any(|key| !["events", "filter", "last"].contains(&key.as_str())) {
        return Ok(FilterTestRequest { filter: None, sample: FilterTestEvents::Given(whole) });
    }
    let filter = members.remove("filter").map(|filter| read_filter(topic, ranges, &filter)).transpose()?;
    let sample = match (members.remove("events"), members.remove("last")) {
        (Some(events), None) => FilterTestEvents::Given(events),
        (None, Some(last)) => FilterTestEvents::Newest(read_last(&last)?),
        (None, None) => {
            let problem = format!("has no events to test; add events, or last: 1 to {LAST_MAX} newest events");
            return Err(InvalidRequest::new("the body", problem));
        }
        (Some(_), Some(_)) => {
            return Err(InvalidRequest::new("last", "and events are both given; leave one of them out"));
        }
    };
    Ok(FilterTestRequest { filter, sample })
}

fn read_filter(topic: &TopicRecord, ranges: &EditionRanges, filter: &RawValue) -> Result<Filter, InvalidRequest> {
    let value = serde_json::from_str(filter.get())
        .map_err(|error| InvalidRequest::new("filter", format!("cannot be read: {error}")))?;
    exact(filter.get()).map_err(|invalid| invalid.under("filter"))?;
    let body: FilterBody = read_value(value).map_err(|invalid| invalid.under("filter"))?;
    check::filter(body, topic.input_schema, ranges)
}

fn read_last(last: &RawValue) -> Result<u64, InvalidRequest> {
    let count = last.get().parse().ok().filter(|count| (1..=LAST_MAX).contains(count));
    count.ok_or_else(|| InvalidRequest::new("last", format!("is {}; allowed is 1 to {LAST_MAX}", last.get())))
}
