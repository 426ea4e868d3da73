//! Pages of lists. A page has the first items of what all shards have, and the next one begins
//! after its last item, so that no item is listed twice or not at all.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::Value;
use url::form_urlencoded;

use super::{ShardResponse, parts::PagePositions};
use gridhook_api::{
    audit::{AuditEntry, AuditPageView},
    dead_letters::{NewDeadLetterView, NewestDeadLettersView},
};

/// Joins lists, of which an equal item is listed once, and objects.
pub(super) fn union_values(all: &mut Value, more: Value) {
    match (all, more) {
        (Value::Array(all), Value::Array(more)) => {
            for item in more {
                match all.iter_mut().find(|known| is_same(known, &item)) {
                    Some(known) => union_values(known, item),
                    None => all.push(item),
                }
            }
        }
        (Value::Object(all), Value::Object(more)) => {
            for (key, value) in more {
                union_values(all.entry(key).or_insert(Value::Null), value);
            }
        }
        (all @ Value::Null, more) => *all = more,
        (
            Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => {}
    }
}

fn is_same(known: &Value, item: &Value) -> bool {
    let named = |key: &str| known.get(key).is_some() && known.get(key) == item.get(key);
    known == item || named("id") || named("resourceType")
}

pub(super) fn top_in(query: &str, default: usize) -> usize {
    let top = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "top");
    top.and_then(|(_, top)| top.parse().ok()).unwrap_or(default)
}

/// The default of `top` of the trail and of dead letters.
const TOP: usize = 100;

/// A page of a shard, the newest items first.
pub(super) struct NewestPage<T> {
    pub(super) shard: usize,
    pub(super) items: Vec<T>,
    /// The position at which the page began.
    pub(super) begin: Option<String>,
    /// The position after its last item.
    pub(super) next: Option<String>,
}

/// The `top` newest items with their shards, and where all shards continue. `order` returns time
/// and number of an item; a page that begins at a number has the items before it.
pub(super) fn merge_newest_pages<T>(
    pages: Vec<NewestPage<T>>,
    shards: usize,
    top: usize,
    order: impl Fn(&T) -> (Option<Timestamp>, u64),
) -> (Vec<(usize, T)>, Option<String>) {
    let mut positions = vec![None; shards];
    let mut all = Vec::new();
    for page in pages {
        // A shard without an item on this page begins the next one where it began this one.
        positions[page.shard] = if page.items.is_empty() {
            page.next.clone()
        } else {
            page.begin
        };
        let last = page.items.len().saturating_sub(1);
        for (at, item) in page.items.into_iter().enumerate() {
            let (time, number) = order(&item);
            let next = if at == last {
                page.next.clone()
            } else {
                Some(number.to_string())
            };
            all.push(((Reverse(time), page.shard, Reverse(number)), next, item));
        }
    }
    all.sort_by_key(|(key, ..)| *key);
    all.truncate(top);
    let mut newest = Vec::with_capacity(all.len());
    for ((_, shard, _), next, item) in all {
        positions[shard] = next;
        newest.push((shard, item));
    }
    (newest, PagePositions::join_positions(&positions))
}

/// The newest operations. Each shard has a trail and numbers of its own.
pub(super) fn merge_audit(query: &str, responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let shards = responses.last().map_or(0, |last| last.shard + 1);
    let mut pages = Vec::new();
    for response in responses {
        let AuditPageView { value, r#continue } = response.read()?;
        pages.push(NewestPage {
            shard: response.shard,
            begin: value.first().map(|entry| (entry.number + 1).to_string()),
            items: value,
            next: r#continue,
        });
    }
    let order = |entry: &AuditEntry| (parse_instant(&entry.at), entry.number);
    let (newest, r#continue) = merge_newest_pages(pages, shards, top_in(query, TOP), order);
    serde_json::to_value(AuditPageView {
        value: newest.into_iter().map(|(_, entry)| entry).collect(),
        r#continue,
    })
}

/// The newest dead letters. Lines older than the oldest time that every shard has read are left to
/// the next page.
pub(super) fn merge_dead_letters(
    query: &str,
    responses: &[ShardResponse],
) -> serde_json::Result<Value> {
    let mut now = String::new();
    let mut all = Vec::<NewDeadLetterView>::new();
    let mut before = None::<i128>;
    for response in responses {
        let page: NewestDeadLettersView = response.read()?;
        // The latest: points in time of one format are in the order of their texts.
        now = now.max(page.now);
        all.extend(page.value);
        // The shard with the latest time has read least.
        before = before.max(page.r#continue.and_then(|before| before.parse().ok()));
    }
    let micros = |line: &NewDeadLetterView| {
        parse_instant(&line.line.at).map(|at| i128::from(at.as_microsecond()))
    };
    all.retain(|line| micros(line) >= before);
    all.sort_by_key(|line| Reverse(micros(line)));
    let top = top_in(query, TOP);
    if let Some(last) = all
        .get(top.saturating_sub(1))
        .filter(|_| all.len() > top)
        .and_then(micros)
    {
        all.retain(|line| micros(line) >= Some(last));
        before = Some(last);
    }
    let r#continue = before.map(|before| before.to_string());
    serde_json::to_value(NewestDeadLettersView {
        now,
        value: all,
        r#continue,
    })
}

pub(super) fn parse_instant(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
