//! The search for an event over all topics.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /search`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    /// Stored events with the id
    pub events: Vec<EventMatch>,
    /// Resource ids of topics that were not searched to their end, because a search is bounded
    pub unsearched: Vec<String>,
}

/// An event with the id.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventMatch {
    /// Resource id of its topic or domain
    pub topic: String,
    /// Sequence number of the event in the log
    pub sequence: u64,
}
