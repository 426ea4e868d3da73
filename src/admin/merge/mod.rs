//! The responses of the shards of a cluster as one.
//!
//! A node sends a request to each shard, and merges the responses; merging is pure. A list with pages needs
//! the response of every shard, because a page without one of them would look as if resources were
//! gone. A report is given without those that have no owner, and names them.

mod events;
mod fields;
mod metrics;
mod pages;
mod parts;
mod reports;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(super) use self::fields::{FieldRule, MergedFields, merged_fields};
pub use self::metrics::merge_expositions;
pub(super) use self::parts::id_of_shard;
pub use self::parts::{PartRequest, PartsMerge, SpreadShards, shard_in, shard_in_path};
pub use self::reports::add_work;
pub(super) use self::reports::{LINES_MAX, TopPart};
use super::Merge;

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

impl Merge {
    /// Whether a response needs all shards; if not, it is given without those that have no owner.
    pub fn needs_all(self) -> bool {
        match self {
            Self::Union
            | Self::Found
            | Self::Each
            | Self::DeadLetters
            | Self::Audit
            | Self::InTurn => true,
            Self::Top
            | Self::History
            | Self::Jobs
            | Self::Supervision
            | Self::Clock
            | Self::Chaos
            | Self::Lines
            | Self::Metrics => false,
        }
    }

    /// Whether the shard with the control plane is asked, too.
    pub fn has_control(self) -> bool {
        match self {
            Self::Audit | Self::Clock | Self::InTurn => true,
            Self::Union
            | Self::Found
            | Self::Each
            | Self::DeadLetters
            | Self::Top
            | Self::History
            | Self::Jobs
            | Self::Supervision
            | Self::Chaos
            | Self::Lines
            | Self::Metrics => false,
        }
    }

    /// The query for a shard, if it is asked at all: where each shard has a place of its own in a
    /// list, the query has all of them.
    pub fn query_of_shard(self, query: &str, shard: usize) -> Option<String> {
        if self == Self::Audit {
            parts::query_at(query, "continue", shard)
        } else {
            Some(query.to_owned())
        }
    }

    /// The JSON response, from those of all shards but the missing ones, in the order of their
    /// numbers.
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
            Self::DeadLetters => pages::dead_letters(query, responses)?,
            Self::Top => reports::merge_top(query, responses)?,
            Self::History => reports::merge_history(responses)?,
            Self::Jobs => reports::merge_jobs(query, responses)?,
            Self::Supervision => reports::merge_supervision(query, responses)?,
            Self::Clock => reports::merge_clocks(responses)?,
            Self::Chaos => fold_responses(responses, |all, more| {
                FieldRule::Fields(&fields::CHAOS).join_values(all, more)
            })?,
            Self::Union => fold_responses(responses, pages::union_values)?,
            Self::Found | Self::Each | Self::Lines | Self::InTurn | Self::Metrics => responses
                .first()
                .map(ShardResponse::read)
                .transpose()?
                .unwrap_or_default(),
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
