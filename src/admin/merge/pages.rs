//! Pages of lists. A page has the first items of what all shards have, and the next one begins
//! after its last item, so that no item is listed twice or not at all.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde_json::Value;
use url::form_urlencoded;

use super::{ShardResponse, parts::Places};
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

/// The newest operations. Each shard has a trail and numbers of its own.
pub(super) fn merge_audit(query: &str, responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let shards = responses.last().map_or(0, |last| last.shard + 1);
    let mut places = vec![None; shards];
    let mut all = Vec::new();
    for response in responses {
        let AuditPageView { value, r#continue } = response.read()?;
        // If none of its entries is on the page, its next page begins with them again.
        let first = value.first().map(|entry| (entry.number + 1).to_string());
        places[response.shard] = first.or_else(|| r#continue.clone());
        let count = value.len();
        let entries = value.into_iter().enumerate().map(|(at, entry)| {
            // Where its shard continues after this entry.
            let next = if at + 1 == count {
                r#continue.clone()
            } else {
                Some(entry.number.to_string())
            };
            (response.shard, next, entry)
        });
        all.extend(entries);
    }
    all.sort_by_key(|(shard, _, entry)| {
        (
            Reverse(parse_instant(&entry.at)),
            *shard,
            Reverse(entry.number),
        )
    });
    all.truncate(top_in(query, TOP));
    for (shard, next, _) in &all {
        places[*shard].clone_from(next);
    }
    let value: Vec<AuditEntry> = all.into_iter().map(|(.., entry)| entry).collect();
    serde_json::to_value(AuditPageView {
        value,
        r#continue: Places::join_places(&places),
    })
}

/// The newest dead letters. What a shard has not looked through yet is left to the next page.
pub(super) fn dead_letters(query: &str, responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let mut now = String::new();
    let mut all = Vec::<NewDeadLetterView>::new();
    let mut before = None::<i128>;
    for response in responses {
        let NewestDeadLettersView {
            now: at,
            value,
            r#continue,
        } = response.read()?;
        now = at;
        all.extend(value);
        before = before.max(r#continue.and_then(|before| before.parse().ok()));
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
