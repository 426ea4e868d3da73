//! The responses of the shards of a cluster as one.
//!
//! A node sends a request to each shard, and merges the responses. A list with pages needs the
//! response of every shard, because a page without one of them would look as if resources were
//! gone. A report is given without those that have no owner, and names them.
//!
//! Merging is pure: it reads the request and the responses only.

mod events;
mod fields;
mod metrics;
mod pages;
mod parts;
mod reports;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::metrics::merge_expositions;
pub(super) use self::parts::id_of_shard;
pub use self::parts::{
    PartRequest, SpreadMerge, SpreadShards, shard_in_path, take_shard_parameter,
};
pub use self::reports::add_work;
pub(super) use self::reports::{LINES_MAX, PartLine, TopPart};

#[derive(Clone, Debug)]
pub struct ShardResponse {
    /// The number of the shard.
    pub shard: usize,
    /// The body, of status 200.
    pub body: Bytes,
}

impl ShardResponse {
    fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }
}

/// How the JSON responses of all shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonMerge {
    /// Lists are joined.
    Lists,
    /// By the rules of the response of `/top`.
    Top,
    /// By the rules of the response of `/history`.
    History,
    /// By the rules of the response of `/jobs`.
    Jobs,
    /// By the rules of the response of `/deadLetters`.
    DeadLetters,
    /// By the rules of the response of `/audit`.
    Audit,
    /// By the rules of the response of `/supervision`.
    Supervision,
    /// By the rules of the response of `/clock`.
    Clock,
    /// By the rules of the response of `/chaos`.
    Chaos,
}

impl JsonMerge {
    /// Whether a response needs all shards; if not, it is given without those that have no owner.
    pub fn needs_all(self) -> bool {
        matches!(self, Self::Lists | Self::DeadLetters | Self::Audit)
    }

    /// The query for a shard; [`None`] if the shard has no further items. The position in the query
    /// of `/audit` has a part for each shard.
    pub fn query_for_shard(self, query: &str, shard: usize) -> Option<String> {
        if self == Self::Audit {
            parts::query_for_shard(query, "continue", shard)
        } else {
            Some(query.to_owned())
        }
    }

    /// The response, from those of all shards but the missing ones, in the order of their numbers.
    ///
    /// # Errors
    /// If a response is not what such a request has.
    pub fn merge_responses(
        self,
        query: &str,
        responses: &[ShardResponse],
        missing: &[usize],
    ) -> serde_json::Result<Value> {
        let mut merged = match self {
            Self::Audit => pages::merge_audit(query, responses)?,
            Self::DeadLetters => pages::merge_dead_letters(query, responses)?,
            Self::Top => reports::merge_top(query, responses)?,
            Self::History => reports::merge_history(responses)?,
            Self::Jobs => reports::merge_jobs(query, responses)?,
            Self::Supervision => reports::merge_supervision(query, responses)?,
            Self::Clock => reports::merge_clocks(responses)?,
            Self::Chaos => reports::join_reports(&fields::CHAOS, responses)?,
            Self::Lists => fold_responses(responses, pages::union_values)?,
        };
        if let Some(report) = merged.as_object_mut().filter(|_| !missing.is_empty()) {
            report.insert("missingShards".to_owned(), missing.into());
        }
        Ok(merged)
    }
}

fn fold_responses(
    responses: &[ShardResponse],
    join: impl Fn(&mut Value, Value),
) -> serde_json::Result<Value> {
    let mut responses = responses.iter();
    let mut all: Value = responses
        .next()
        .map_or_else(|| Ok(Map::new().into()), ShardResponse::read)?;
    for response in responses {
        join(&mut all, response.read()?);
    }
    Ok(all)
}
