//! The newest events of all parts of a spread topic.

use serde_json::{Map, Value};

use super::{
    ShardResponse,
    pages::{NewestPage, merge_newest_pages, parse_instant, top_in},
    parts::{PagePosition, PagePositions},
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
    responses: &[ShardResponse],
    shards: usize,
) -> serde_json::Result<Value> {
    let positions = PagePositions::read_query(query, POSITION);
    let mut pages = Vec::new();
    for response in responses {
        let EventList {
            events,
            before,
            log_before_sequence,
            ..
        } = response.read()?;
        let position = positions
            .as_ref()
            .map(|positions| positions.position_of_shard(response.shard));
        let begin = match position {
            Some(PagePosition::At(position)) => Some(position),
            _ => log_before_sequence.map(|end| end.to_string()),
        };
        pages.push(NewestPage {
            shard: response.shard,
            items: events,
            begin,
            next: before,
        });
    }
    let order = |event: &EventLine| (parse_instant(&event.at), event.sequence);
    let (newest, before) = merge_newest_pages(pages, shards, top_in(query, TOP), order);
    let events = newest.into_iter().map(|(shard, event)| EventLine {
        shard: Some(shard),
        ..event
    });
    serde_json::to_value(EventList {
        events: events.collect(),
        before,
        log_from_sequence: None,
        log_before_sequence: None,
    })
}
