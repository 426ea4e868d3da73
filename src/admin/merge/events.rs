//! The newest events of all parts of a spread topic.

use std::cmp::Reverse;

use serde_json::{Map, Value};

use super::{
    ShardAnswer,
    pages::{parse_instant, top_in},
    parts::Places,
};
use crate::events::TOP;
use gridhook_api::events::{EventLine, EventList};

/// The parameter with the position of a page.
pub(super) const POSITION: &str = "before";

/// The body of a test with the newest events, and the number of these.
pub(super) fn newest_in(body: &[u8]) -> Option<(Map<String, Value>, u64)> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return None;
    };
    let last = body.get("last")?.as_u64()?;
    Some((body, last))
}

/// Merges the events of the page of a query, in the order of time.
pub(super) fn merge_newest(
    query: &str,
    answers: &[ShardAnswer],
    shards: usize,
) -> serde_json::Result<Value> {
    let places_in_query = Places::in_query(query, POSITION);
    let mut places = vec![None; shards];
    let mut all = Vec::<(usize, Option<String>, EventLine)>::new();
    for answer in answers {
        let EventList {
            events,
            before,
            log_before_sequence,
            ..
        } = answer.read()?;
        let begin = || log_before_sequence.map(|end| end.to_string());
        // A shard without an event on this page begins the next one where it began this one.
        places[answer.shard] = match places_in_query
            .as_ref()
            .and_then(|given| given.place_of_shard(answer.shard))
        {
            _ if events.is_empty() => before.clone(),
            Some(Some(place)) => Some(place),
            Some(None) | None => begin(),
        };
        let last = events.len().saturating_sub(1);
        all.extend(events.into_iter().enumerate().map(|(at, event)| {
            let next = if at == last {
                before.clone()
            } else {
                Some(event.sequence.to_string())
            };
            (
                answer.shard,
                next,
                EventLine {
                    shard: Some(answer.shard),
                    ..event
                },
            )
        }));
    }
    all.sort_by_key(|(shard, _, event)| {
        (
            Reverse(parse_instant(&event.at)),
            *shard,
            Reverse(event.sequence),
        )
    });
    all.truncate(top_in(query, TOP));
    for (shard, next, _) in &all {
        places[*shard].clone_from(next);
    }
    serde_json::to_value(EventList {
        events: all.into_iter().map(|(.., event)| event).collect(),
        before: Places::join_places(&places),
        log_from_sequence: None,
        log_before_sequence: None,
    })
}
