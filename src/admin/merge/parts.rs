//! A request about a spread topic, of which each shard has a part: what each shard is asked, and
//! the responses as one.
//!
//! - Each figure has a rule of its own ([`fields`]).
//! - Each item of a list has the shard it is from. Sequence numbers are of a shard.
//! - Ids that a later request names have their shard: `2:ID`, several with commas between them.
//! - The position of a page has a place for each shard.
//! - Dead letters in files belong to the event subscription and not to a shard, so that only the
//!   leader looks at files. The others look at those that wait for one.

use std::cmp::Ordering;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::{
    ShardAnswer, events,
    fields::{self, MergedFields},
    pages::parse_instant,
};
use crate::metrics::METRICS;

/// How the responses of the shards of a spread topic become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsMerge {
    /// Figures, also without the shards that do not respond.
    Figures,
    /// Operations that each shard carries out, with figures of what it did.
    Commands,
    /// Histories of events and lines of the ledger, in pages.
    Pages,
    /// Events, in pages.
    Events,
    /// Tests with given events, or with the newest of each shard.
    Tests,
    DeadLetters,
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

/// The place of each shard in a list; [`None`] at the end of its part. Without a position, all are
/// at the beginning.
pub(super) struct Places(Option<Vec<Option<String>>>);

impl Places {
    fn read(position: Option<&str>) -> Option<Self> {
        let Some(position) = position else {
            return Some(Self(None));
        };
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(position).ok()?)
            .ok()
            .map(|places| Self(Some(places)))
    }

    /// The places in a parameter of a query, if it is valid.
    pub(super) fn in_query(query: &str, name: &str) -> Option<Self> {
        Self::read(query_parameter(query, name).as_deref())
    }

    /// The place of a shard that is not at its end: [`None`] within at the beginning.
    pub(super) fn place_of_shard(&self, shard: usize) -> Option<Option<String>> {
        match &self.0 {
            None => Some(None),
            Some(places) => places.get(shard).cloned().flatten().map(Some),
        }
    }

    pub(super) fn join_places(places: &[Option<String>]) -> Option<String> {
        let has_any = places.iter().any(Option::is_some);
        has_any.then(|| URL_SAFE_NO_PAD.encode(Value::from(places.to_vec()).to_string()))
    }
}

/// The id of what a shard has of a spread topic, such as a job.
pub(crate) fn id_of_shard(shard: usize, id: &str) -> String {
    format!("{shard}:{id}")
}

/// The shard that the parameter `shard` of a query names, and the query without it.
pub fn shard_in(query: &str) -> Option<(usize, String)> {
    let shard = query_parameter(query, "shard")?.parse().ok()?;
    Some((shard, with_parameter(query, "shard", None)))
}

/// The shard that an id in a path names, and the path with the id that this shard has.
pub fn shard_in_path(path: &str) -> Option<(usize, String)> {
    let (before, id, after) = id_in(path, "/deadLetters/")?;
    let (shard, id) = decode_id(id)
        .split_once(':')
        .map(|(shard, id)| (shard.to_owned(), id.to_owned()))?;
    Some((shard.parse().ok()?, format!("{before}{id}{after}")))
}

/// An id behind a keyword in a path, with what is before and after it.
fn id_in<'a>(path: &'a str, keyword: &str) -> Option<(&'a str, &'a str, &'a str)> {
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

impl PartsMerge {
    pub fn needs_all(self) -> bool {
        match self {
            Self::Figures => false,
            Self::Commands
            | Self::Pages
            | Self::Events
            | Self::Tests
            | Self::DeadLetters
            | Self::Replays
            | Self::Retries => true,
        }
    }

    /// The tables of the types that responses of this kind have.
    fn field_tables(self) -> Vec<&'static MergedFields> {
        match self {
            Self::Figures => vec![
                &fields::SUBSCRIPTION_STATUS,
                &fields::TOPIC_STATUS,
                &METRICS,
            ],
            Self::Commands => vec![&fields::SUBSCRIPTION_STATUS],
            Self::Pages => vec![&fields::TRACE, &fields::LEDGER],
            // `events::merge_newest` merges them.
            Self::Events => vec![],
            Self::Tests => vec![&fields::FILTER_TEST, &fields::TRANSFORM_TEST],
            Self::DeadLetters => vec![
                &fields::DEAD_LETTERS,
                &fields::PURGED,
                &fields::REDRIVE_STARTED,
            ],
            Self::Replays => vec![&fields::REPLAY, &fields::REPLAYS, &fields::REPLAY_DRY_RUN],
            Self::Retries => vec![&fields::RETRIED],
        }
    }

    /// The request to one shard; [`None`] if that shard is not asked.
    pub fn request_of(
        self,
        shard: usize,
        shards: SpreadShards,
        asked: &PartRequest,
    ) -> Option<PartRequest> {
        let mut of_shard = asked.clone();
        match self {
            Self::Figures | Self::Commands => {}
            Self::Pages => of_shard.query = query_at(&asked.query, "continue", shard)?,
            Self::Events => of_shard.query = query_at(&asked.query, events::POSITION, shard)?,
            Self::Tests => match events::newest_in(&asked.body) {
                Some((mut body, last)) => {
                    body.insert("last".to_owned(), last.div_ceil(shards.count as u64).into());
                    of_shard.body = Value::from(body).to_string().into();
                }
                // Each shard would return the same result.
                None => return (shard == shards.leader).then_some(of_shard),
            },
            Self::DeadLetters => {
                of_shard.query = query_at(&asked.query, "$skipToken", shard)?;
                if !asked.body.is_empty() {
                    of_shard.body = dead_letters_of(shard, shards, &asked.body)?;
                } else if shard != shards.leader {
                    match query_parameter(&asked.query, "stage").as_deref() {
                        Some("written") => return None,
                        Some(_) => {}
                        None => {
                            of_shard.query =
                                with_parameter(&of_shard.query, "stage", Some("waiting"))
                        }
                    }
                }
            }
            Self::Replays => {
                if let Some((before, ids, after)) = id_in(&asked.path, "/replays/") {
                    let ids = decode_id(ids);
                    let id = ids
                        .split(',')
                        .filter_map(|id| id.split_once(':'))
                        .find(|(of, _)| *of == shard.to_string());
                    match id {
                        Some((_, id)) => of_shard.path = format!("{before}{id}{after}"),
                        // The leader reported that there is none.
                        None if shard == shards.leader && !ids.contains(':') => {}
                        None => return None,
                    }
                }
                of_shard.body = with_change(&asked.body, |body| {
                    divide_limit(body, "eventsPerSecond", shards.count)
                });
            }
            Self::Retries => {
                let Some(Value::Object(mut body)) = read(&asked.body) else {
                    return (shard == shards.leader).then_some(of_shard);
                };
                if body.contains_key("sequences") {
                    return (shard == shards.leader).then_some(of_shard);
                }
                body_at(&mut body, shard)?;
                of_shard.body = Value::from(body).to_string().into();
            }
        }
        Some(of_shard)
    }

    /// Merges the responses of the shards that were asked and have one.
    ///
    /// # Errors
    /// If a response is not what such a request has.
    pub fn merge_parts(
        self,
        shards: SpreadShards,
        asked: &PartRequest,
        answers: &[ShardAnswer],
        missing: &[usize],
    ) -> serde_json::Result<Value> {
        if self == Self::Events {
            return events::merge_newest(&asked.query, answers, shards.count);
        }
        let mut all = None::<Map<String, Value>>;
        let mut places = vec![None; shards.count];
        let tables = self.field_tables();
        for answer in answers {
            let mut part: Map<String, Value> = answer.read()?;
            places[answer.shard] = position_in(&part);
            // Given events are of no shard.
            if self != Self::Tests || answers.len() > 1 {
                mark_shard(&mut part, self, shards, answer.shard);
            }
            match (&mut all, MergedFields::choose_table(&tables, &part)) {
                (Some(all), Some(fields)) => fields.join_fields(all, part),
                (Some(_), None) => {}
                (all @ None, _) => *all = Some(part),
            }
        }
        let Some(mut all) = all else {
            return Ok(Value::Null);
        };
        if let Some(position) = Places::join_places(&places) {
            set_position(&mut all, asked, &position);
        }
        if let Some(Value::Array(lines)) = all.get_mut("lines") {
            sort_by_time(lines);
        }
        if !missing.is_empty() {
            all.insert("missingShards".to_owned(), missing.into());
        }
        Ok(all.into())
    }
}

/// Lines of several shards in the order that each of them has.
fn sort_by_time(lines: &mut [Value]) {
    let at = |line: &Value| parse_instant(line.get("at")?.as_str()?);
    let shard = |line: &Value| line.get("shard").cloned();
    let of_one = lines
        .windows(2)
        .filter(|two| shard(&two[0]) == shard(&two[1]));
    let order = of_one
        .map(|two| at(&two[0]).cmp(&at(&two[1])))
        .find(|order| order.is_ne());
    match order {
        Some(Ordering::Greater) => lines.sort_by_key(|line| std::cmp::Reverse(at(line))),
        Some(Ordering::Less | Ordering::Equal) | None => lines.sort_by_key(at),
    }
}

pub(super) fn query_at(query: &str, name: &str, shard: usize) -> Option<String> {
    match Places::in_query(query, name) {
        Some(places) => Some(with_parameter(
            query,
            name,
            places.place_of_shard(shard)?.as_deref(),
        )),
        // The shard refuses what is no position.
        None => Some(query.to_owned()),
    }
}

fn body_at(body: &mut Map<String, Value>, shard: usize) -> Option<()> {
    let given = body.get("after").and_then(Value::as_str).map(str::to_owned);
    if let Some(places) = Places::read(given.as_deref()) {
        match places.place_of_shard(shard)? {
            Some(place) => body.insert("after".to_owned(), place.into()),
            None => body.remove("after"),
        };
    }
    Some(())
}

fn read(body: &Bytes) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

fn with_change(body: &Bytes, change: impl FnOnce(&mut Map<String, Value>)) -> Bytes {
    match read(body) {
        Some(Value::Object(mut object)) => {
            change(&mut object);
            Value::from(object).to_string().into()
        }
        Some(_) | None => body.clone(),
    }
}

fn divide_limit(body: &mut Map<String, Value>, key: &str, count: usize) {
    if let Some(rate) = body.get(key).and_then(Value::as_f64) {
        body.insert(key.to_owned(), json!(rate / count as f64));
    }
}

/// The body of a redrive or a purge for a shard.
fn dead_letters_of(shard: usize, shards: SpreadShards, body: &Bytes) -> Option<Bytes> {
    let is_leader = shard == shards.leader;
    let Some(Value::Object(mut body)) = read(body) else {
        return is_leader.then(|| body.clone());
    };
    body_at(&mut body, shard)?;
    divide_limit(&mut body, "rate", shards.count);
    if !is_leader {
        // The total is that of all shards, and their progress is added.
        body.remove("total");
    }
    if let Some(Value::Array(keys)) = body.get_mut("keys") {
        keys.retain_mut(|key| {
            let prefix_and_key = key.as_str().and_then(|key| key.split_once(':'));
            let of = prefix_and_key
                .and_then(|(of, rest)| Some((of.parse::<usize>().ok()?, rest.to_owned())));
            match of {
                Some((of, rest)) if of == shard => {
                    *key = rest.into();
                    true
                }
                Some(_) => false,
                None => is_leader,
            }
        });
        if keys.is_empty() {
            return None;
        }
    } else if !is_leader {
        let filter = body.entry("filter").or_insert_with(|| json!({}));
        match filter.get("stage").and_then(Value::as_str) {
            Some("written") => return None,
            Some(_) => {}
            None => {
                if filter.is_null() {
                    *filter = json!({});
                }
                if let Value::Object(filter) = filter {
                    filter.insert("stage".to_owned(), "waiting".into());
                }
            }
        }
    }
    Some(Value::from(body).to_string().into())
}

/// The position at which a shard continues.
fn position_in(part: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let in_link = || query_parameter(text("nextLink")?.split_once('?')?.1, "$skipToken");
    text("continue")
        .or_else(|| text("next"))
        .map(str::to_owned)
        .or_else(in_link)
}

fn set_position(all: &mut Map<String, Value>, asked: &PartRequest, position: &str) {
    if let Some((path, _)) = all
        .get("nextLink")
        .and_then(Value::as_str)
        .and_then(|link| link.split_once('?'))
    {
        let link = format!(
            "{path}?{}",
            with_parameter(&asked.query, "$skipToken", Some(position))
        );
        all.insert("nextLink".to_owned(), link.into());
    } else {
        let key = if all.contains_key("continue") {
            "continue"
        } else {
            "next"
        };
        all.insert(key.to_owned(), position.into());
    }
}

/// Adds the shard to each item of the lists, and to its id.
fn mark_shard(
    part: &mut Map<String, Value>,
    merge: PartsMerge,
    shards: SpreadShards,
    shard: usize,
) {
    let id = match merge {
        PartsMerge::Replays => Some("id"),
        PartsMerge::DeadLetters if shard != shards.leader => Some("key"),
        PartsMerge::DeadLetters
        | PartsMerge::Figures
        | PartsMerge::Commands
        | PartsMerge::Pages
        | PartsMerge::Events
        | PartsMerge::Tests
        | PartsMerge::Retries => None,
    };
    mark_id(part, id, shard);
    for list in ["value", "events", "lines", "jobs", "results"] {
        let items = part.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            if !item.contains_key("timeseries") {
                item.insert("shard".to_owned(), shard.into());
                mark_id(item, id, shard);
            }
        }
    }
}

/// Adds the shard to the id of an object, which has this key.
fn mark_id(object: &mut Map<String, Value>, key: Option<&str>, shard: usize) {
    if let Some(Value::String(id)) = key.and_then(|key| object.get_mut(key)) {
        *id = id_of_shard(shard, id);
    }
}
