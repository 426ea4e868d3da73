//! A request about a spread topic, of which each shard has a part: what each shard is asked, and
//! the responses as one.
//!
//! - Each figure has a rule of its own ([`fields`]).
//! - Each item of a list has the shard it is from. Sequence numbers are of a shard.
//! - Ids that a later request names have their shard: `2:ID`, several with commas between them.
//! - The position of a page has a part for each shard.
//! - Dead letters in files belong to the event subscription and not to a shard, so that only the
//!   leader looks at files. The others look at those that wait for one.

use std::cmp::Reverse;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::{
    ShardResponse, events,
    fields::{self, MergedFields, join_fields},
    pages::parse_instant,
};

/// How the responses of the shards of a spread topic become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadMerge {
    /// Figures or metrics, also without the shards that do not respond.
    Figures,
    /// Operations that each shard carries out, with figures of what it did.
    Commands,
    /// Histories of events and lines of the ledger, in pages.
    Pages,
    /// Events, in pages.
    Events,
    /// Tests with given events, or with the newest of each shard.
    Tests,
    /// Dead letters, in pages.
    DeadLetters,
    /// Redrives and purges of dead letters.
    DeadLetterChanges,
    Replays,
    Retries,
}

/// A request, as a client or as a shard gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRequest {
    pub path: String,
    /// The query string without its `?`.
    pub query: String,
    pub body: Bytes,
}

/// The shards of a spread topic.
#[derive(Clone, Copy, Debug)]
pub struct SpreadShards {
    pub leader: usize,
    pub count: usize,
}

/// Where a list continues in a shard.
pub(super) enum PagePosition {
    Beginning,
    At(String),
    End,
}

/// The position of each shard in a list; [`None`] at the end of its part. Without a position, all are
/// at the beginning.
pub(super) struct PagePositions(Option<Vec<Option<String>>>);

impl PagePositions {
    fn read(position: Option<&str>) -> Option<Self> {
        let Some(position) = position else {
            return Some(Self(None));
        };
        let positions = URL_SAFE_NO_PAD.decode(position).ok()?;
        serde_json::from_slice(&positions).ok().map(Self)
    }

    /// The positions in a parameter of a query, if it is valid.
    pub(super) fn read_query(query: &str, name: &str) -> Option<Self> {
        Self::read(query_parameter(query, name).as_deref())
    }

    pub(super) fn position_of_shard(&self, shard: usize) -> PagePosition {
        let Some(positions) = &self.0 else {
            return PagePosition::Beginning;
        };
        let position = positions.get(shard).cloned().flatten();
        position.map_or(PagePosition::End, PagePosition::At)
    }

    pub(super) fn join_positions(positions: &[Option<String>]) -> Option<String> {
        let has_any = positions.iter().any(Option::is_some);
        has_any.then(|| URL_SAFE_NO_PAD.encode(Value::from(positions.to_vec()).to_string()))
    }
}

/// The id of what a shard has of a spread topic, such as a job.
pub(crate) fn id_of_shard(shard: usize, id: &str) -> String {
    format!("{shard}:{id}")
}

/// The shard that the parameter `shard` of a query names, and the query without it.
pub fn take_shard_parameter(query: &str) -> Option<(usize, String)> {
    let shard = query_parameter(query, "shard")?.parse().ok()?;
    Some((shard, with_parameter(query, "shard", None)))
}

/// The shard that an id in a path names, and the path with the id that this shard has.
pub fn shard_in_path(path: &str) -> Option<(usize, String)> {
    let (before, id, after) = find_id_after(path, "/deadLetters/")?;
    let (shard, id) = decode_id(id)
        .split_once(':')
        .map(|(shard, id)| (shard.to_owned(), id.to_owned()))?;
    Some((shard.parse().ok()?, format!("{before}{id}{after}")))
}

/// An id behind a keyword in a path, with what is before and after it.
fn find_id_after<'a>(path: &'a str, keyword: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let lower = path.to_ascii_lowercase();
    let start = lower.rfind(&keyword.to_ascii_lowercase())? + keyword.len();
    let end = path[start..]
        .find('/')
        .map_or(path.len(), |end| start + end);
    (start < end).then(|| (&path[..start], &path[start..end], &path[end..]))
}

/// Clients may escape colons and commas.
fn decode_id(id: &str) -> String {
    percent_encoding::percent_decode_str(id)
        .decode_utf8_lossy()
        .into_owned()
}

fn query_parameter(query: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

fn with_parameter(query: &str, name: &str, value: Option<&str>) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key != name));
    if let Some(value) = value {
        pairs.append_pair(name, value);
    }
    pairs.finish()
}

impl SpreadMerge {
    pub fn needs_all(self) -> bool {
        self != Self::Figures
    }

    /// The tables of the types that responses of this kind have.
    fn field_tables(self) -> Vec<&'static MergedFields> {
        match self {
            Self::Figures => vec![&fields::SUBSCRIPTION_STATUS, &fields::TOPIC_STATUS],
            Self::Commands => vec![&fields::SUBSCRIPTION_STATUS],
            Self::Pages => vec![&fields::TRACE, &fields::LEDGER],
            // `events::merge_newest` merges them.
            Self::Events => vec![],
            Self::Tests => vec![&fields::FILTER_TEST, &fields::TRANSFORM_TEST],
            Self::DeadLetters => vec![&fields::DEAD_LETTERS],
            Self::DeadLetterChanges => vec![&fields::PURGED, &fields::REDRIVE_STARTED],
            Self::Replays => vec![&fields::REPLAY, &fields::REPLAYS, &fields::REPLAY_DRY_RUN],
            Self::Retries => vec![&fields::RETRIED],
        }
    }

    /// The field with the position of the next page.
    fn position_field(self) -> Option<&'static str> {
        match self {
            Self::Pages => Some("continue"),
            Self::DeadLetters => Some(LINK),
            Self::DeadLetterChanges | Self::Retries => Some("next"),
            _ => None,
        }
    }

    /// The request to one shard; [`None`] if that shard is not asked.
    pub fn request_for_shard(
        self,
        shard: usize,
        shards: SpreadShards,
        asked: &PartRequest,
    ) -> Option<PartRequest> {
        match self {
            Self::Figures | Self::Commands => Some(asked.clone()),
            Self::Pages => with_query(asked, query_for_shard(&asked.query, "continue", shard)?),
            Self::Events => {
                let query = query_for_shard(&asked.query, events::POSITION, shard)?;
                with_query(asked, query)
            }
            Self::Tests => test_for_shard(shard, shards, asked),
            Self::DeadLetters => dead_letters_for_shard(shard, shards, asked),
            Self::DeadLetterChanges => with_body(
                asked,
                dead_letter_change_for_shard(shard, shards, &asked.body)?,
            ),
            Self::Replays => replay_for_shard(shard, shards, asked),
            Self::Retries => retry_for_shard(shard, shards, asked),
        }
    }

    /// Merges the responses of the shards that were asked and have one.
    ///
    /// # Errors
    /// If a response is not what such a request has.
    pub fn merge_parts(
        self,
        shards: SpreadShards,
        asked: &PartRequest,
        responses: &[ShardResponse],
        missing: &[usize],
    ) -> serde_json::Result<Value> {
        if self == Self::Events {
            return events::merge_newest(&asked.query, responses, shards.count);
        }
        let mut merged = None::<Map<String, Value>>;
        let mut positions = vec![None; shards.count];
        let position_field = self.position_field();
        let tables = self.field_tables();
        for response in responses {
            let mut part: Map<String, Value> = response.read()?;
            positions[response.shard] =
                position_field.and_then(|field| read_position(&part, field));
            // Given events are of no shard.
            if self != Self::Tests || responses.len() > 1 {
                mark_shard(&mut part, self, shards, response.shard);
            }
            match &mut merged {
                Some(merged) => join_fields(&tables, merged, part),
                None => merged = Some(part),
            }
        }
        let Some(mut merged) = merged else {
            return Ok(Value::Null);
        };
        if let (Some(field), Some(position)) =
            (position_field, PagePositions::join_positions(&positions))
        {
            set_position(&mut merged, field, asked, position);
        }
        if let Some(Value::Array(lines)) = merged.get_mut("lines") {
            sort_by_time(lines, &asked.query);
        }
        if !missing.is_empty() {
            merged.insert("missingShards".to_owned(), missing.into());
        }
        Ok(merged.into())
    }
}

fn with_query(asked: &PartRequest, query: String) -> Option<PartRequest> {
    Some(PartRequest {
        query,
        ..asked.clone()
    })
}

fn with_body(asked: &PartRequest, body: impl Into<Bytes>) -> Option<PartRequest> {
    Some(PartRequest {
        body: body.into(),
        ..asked.clone()
    })
}

fn test_for_shard(shard: usize, shards: SpreadShards, asked: &PartRequest) -> Option<PartRequest> {
    let Some((mut body, last)) = events::newest_in(&asked.body) else {
        // Each shard would return the same result.
        return (shard == shards.leader).then(|| asked.clone());
    };
    body.insert("last".to_owned(), last.div_ceil(shards.count as u64).into());
    with_body(asked, Value::from(body).to_string())
}

/// Only the leader looks at files.
fn dead_letters_for_shard(
    shard: usize,
    shards: SpreadShards,
    asked: &PartRequest,
) -> Option<PartRequest> {
    let query = query_for_shard(&asked.query, "$skipToken", shard)?;
    if shard == shards.leader {
        return with_query(asked, query);
    }
    match query_parameter(&asked.query, "stage").as_deref() {
        Some("written") => None,
        Some(_) => with_query(asked, query),
        None => with_query(asked, with_parameter(&query, "stage", Some("waiting"))),
    }
}

fn replay_for_shard(
    shard: usize,
    shards: SpreadShards,
    asked: &PartRequest,
) -> Option<PartRequest> {
    let mut request = asked.clone();
    if let Some((before, ids, after)) = find_id_after(&asked.path, "/replays/") {
        let ids = decode_id(ids);
        let id = ids
            .split(',')
            .filter_map(|id| id.split_once(':'))
            .find(|(number, _)| *number == shard.to_string());
        match id {
            Some((_, id)) => request.path = format!("{before}{id}{after}"),
            // An id without a shard: the leader responds that there is no such job.
            None if shard == shards.leader && !ids.contains(':') => {}
            None => return None,
        }
    }
    if let Some(Value::Object(mut body)) = parse_json(&asked.body) {
        divide_limit(&mut body, "eventsPerSecond", shards.count);
        request.body = Value::from(body).to_string().into();
    }
    Some(request)
}

fn retry_for_shard(shard: usize, shards: SpreadShards, asked: &PartRequest) -> Option<PartRequest> {
    match parse_json(&asked.body) {
        Some(Value::Object(mut body)) if !body.contains_key("sequences") => {
            set_body_position(&mut body, shard)?;
            with_body(asked, Value::from(body).to_string())
        }
        // Sequences are of the shard that the request names, by default of the leader.
        _ => (shard == shards.leader).then(|| asked.clone()),
    }
}

/// Sorts lines of the ledger by time, in the order that the query names.
fn sort_by_time(lines: &mut [Value], query: &str) {
    let at = |line: &Value| parse_instant(line.get("at")?.as_str()?);
    match query_parameter(query, "order").as_deref() {
        Some("newest") => lines.sort_by_key(|line| Reverse(at(line))),
        _ => lines.sort_by_key(at),
    }
}

/// The query for a shard, with its own position; [`None`] if the shard has no further items.
pub(super) fn query_for_shard(query: &str, name: &str, shard: usize) -> Option<String> {
    let Some(positions) = PagePositions::read_query(query, name) else {
        // The shard refuses what is no position.
        return Some(query.to_owned());
    };
    match positions.position_of_shard(shard) {
        PagePosition::Beginning => Some(with_parameter(query, name, None)),
        PagePosition::At(position) => Some(with_parameter(query, name, Some(&position))),
        PagePosition::End => None,
    }
}

/// Replaces the position in a body by that of a shard; [`None`] if the shard has no further items.
fn set_body_position(body: &mut Map<String, Value>, shard: usize) -> Option<()> {
    let given = body.get("after").and_then(Value::as_str);
    if let Some(positions) = PagePositions::read(given) {
        match positions.position_of_shard(shard) {
            PagePosition::Beginning => body.remove("after"),
            PagePosition::At(position) => body.insert("after".to_owned(), position.into()),
            PagePosition::End => return None,
        };
    }
    Some(())
}

fn parse_json(body: &Bytes) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

fn divide_limit(body: &mut Map<String, Value>, key: &str, count: usize) {
    if let Some(rate) = body.get(key).and_then(Value::as_f64) {
        body.insert(key.to_owned(), json!(rate / count as f64));
    }
}

/// The body of a redrive or a purge for a shard.
fn dead_letter_change_for_shard(shard: usize, shards: SpreadShards, body: &Bytes) -> Option<Bytes> {
    let is_leader = shard == shards.leader;
    let Some(Value::Object(mut body)) = parse_json(body) else {
        return is_leader.then(|| body.clone());
    };
    set_body_position(&mut body, shard)?;
    divide_limit(&mut body, "rate", shards.count);
    if !is_leader {
        // The total is that of all shards, and their progress is added.
        body.remove("total");
    }
    if let Some(Value::Array(keys)) = body.get_mut("keys") {
        keys.retain_mut(|key| keep_key_of_shard(key, shard, is_leader));
        if keys.is_empty() {
            return None;
        }
    } else if !is_leader {
        let filter = body.entry("filter").or_insert(Value::Null);
        match filter.get("stage").and_then(Value::as_str) {
            Some("written") => return None,
            Some(_) => {}
            None if filter.is_null() => *filter = json!({"stage": "waiting"}),
            None => {
                if let Value::Object(filter) = filter {
                    filter.insert("stage".to_owned(), "waiting".into());
                }
            }
        }
    }
    Some(Value::from(body).to_string().into())
}

/// Whether a shard has the dead letter with a key. Removes the number of the shard from the key.
fn keep_key_of_shard(key: &mut Value, shard: usize, is_leader: bool) -> bool {
    let split = key.as_str().and_then(|key| key.split_once(':'));
    let numbered =
        split.and_then(|(number, id)| Some((number.parse::<usize>().ok()?, id.to_owned())));
    let Some((number, id)) = numbered else {
        return is_leader;
    };
    *key = id.into();
    number == shard
}

/// The field with the link to the next page.
const LINK: &str = "nextLink";

/// The position at which a shard continues.
fn read_position(part: &Map<String, Value>, field: &str) -> Option<String> {
    let text = part.get(field)?.as_str()?;
    if field == LINK {
        return query_parameter(text.split_once('?')?.1, "$skipToken");
    }
    Some(text.to_owned())
}

fn set_position(
    merged: &mut Map<String, Value>,
    field: &str,
    asked: &PartRequest,
    position: String,
) {
    let link = merged.get(LINK).and_then(Value::as_str);
    let text = match link.and_then(|link| link.split_once('?')) {
        Some((path, _)) => {
            let query = with_parameter(&asked.query, "$skipToken", Some(&position));
            format!("{path}?{query}")
        }
        None => position,
    };
    merged.insert(field.to_owned(), text.into());
}

/// Adds the shard to each item of the lists, and to its id.
fn mark_shard(
    part: &mut Map<String, Value>,
    merge: SpreadMerge,
    shards: SpreadShards,
    shard: usize,
) {
    let id = match merge {
        SpreadMerge::Replays => Some("id"),
        SpreadMerge::DeadLetters if shard != shards.leader => Some("key"),
        _ => None,
    };
    mark_id(part, id, shard);
    for list in ["value", "events", "lines", "jobs", "results"] {
        let items = part.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.insert("shard".to_owned(), shard.into());
            mark_id(item, id, shard);
        }
    }
}

/// Adds the shard to the id of an object, which has this key.
fn mark_id(object: &mut Map<String, Value>, key: Option<&str>, shard: usize) {
    if let Some(Value::String(id)) = key.and_then(|key| object.get_mut(key)) {
        *id = id_of_shard(shard, id);
    }
}
