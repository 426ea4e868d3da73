//! Which events match a filter, one by one and by the index.

mod index;
mod keys;
mod linear;
mod operators;

use bytes::Bytes;
use gridhook::{
    event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp},
    policy::filter::{Filter, FilterResult},
};
use serde_json::{Value, json};

/// An Event Grid event with this `data`, as JSON; none where it is empty.
fn with_data(data: &str) -> Event {
    let data = if data.is_empty() {
        String::new()
    } else {
        format!(r#""data":{data},"#)
    };
    event_grid(&format!(
        r#"{{"id":"1","topic":"/t","subject":"/a/b.jpg",{data}"eventType":"Made","eventTime":"2026-01-01T00:00:00Z","metadataVersion":"1","dataVersion":""}}"#
    ))
}

/// An event of this wire form, its strings found in it.
fn stored(schema: Schema, wire: &str, members: [&str; 4]) -> Event {
    let span = |name: &str| {
        let literal = format!("\"{name}\":\"");
        let start = wire.find(&literal).map_or(0, |at| at + literal.len());
        let len = if start == 0 {
            0
        } else {
            wire[start..].find('"').unwrap_or(0)
        };
        if len == 0 {
            TextRange::default()
        } else {
            TextRange {
                start: start as u32,
                len: len as u32,
            }
        }
    };
    let [id, event_type, subject, data_version] = members.map(span);
    // As in a domain whose topics have the names of all that is behind the last `/topics/`.
    let domain_topic = wire.find("/topics/").map_or(TextRange::default(), |at| {
        let start = at + "/topics/".len();
        TextRange {
            start: start as u32,
            len: wire[start..].find('"').unwrap_or(0) as u32,
        }
    });
    let ranges = EventRanges {
        id,
        event_type,
        subject,
        data_version,
        domain_topic,
        ..EventRanges::default()
    };
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    Event::new(
        Seq(1),
        Timestamp(0),
        schema,
        Bytes::copy_from_slice(wire.as_bytes()),
        whole,
        ranges,
    )
}

fn event_grid(wire: &str) -> Event {
    stored(
        Schema::EventGrid,
        wire,
        ["id", "eventType", "subject", "dataVersion"],
    )
}

fn cloud_event(wire: &str) -> Event {
    stored(
        Schema::CloudEvents,
        wire,
        ["id", "type", "subject", "no such"],
    )
}

/// A filter as the store has it.
fn filter(value: Value) -> Filter {
    serde_json::from_value(value).expect("a filter")
}

/// A filter with this one advanced filter.
fn advanced(value: &Value, on_arrays: bool) -> Filter {
    filter(json!({"advancedFilters": [value], "enableAdvancedFilteringOnArrays": on_arrays}))
}

fn verdict(filter: &Filter, event: &Event) -> String {
    match filter.explain_mismatch(event) {
        FilterResult::Match => "match".to_owned(),
        FilterResult::Stopped { clause, why, seen } => {
            format!("{clause}: {why}; {}", seen.unwrap_or("nothing".to_owned()))
        }
    }
}
