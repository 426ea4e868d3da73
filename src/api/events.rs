//! The stored events of a topic.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// A page of the events of a topic, newest first.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventList {
    /// Events of the page, each with its sequence number
    pub events: Vec<EventLine>,
    /// Value of `before` for the next page; missing at the beginning of the log. A page without
    /// events may have it.
    pub before: Option<String>,
    /// First sequence number of the log. Missing for a spread topic, of which each shard has a log.
    pub log_from_sequence: Option<u64>,
    /// Sequence number before which the log ends. Missing for a spread topic.
    pub log_before_sequence: Option<u64>,
}

/// An event without its data.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EventListLine)]
pub struct EventLine {
    /// Shard of an event of a spread topic.
    pub shard: Option<usize>,
    /// Sequence number of the event in the log
    pub sequence: u64,
    /// Time at which the event was published.
    pub at: String,
    /// `id` of the event, as the publisher set it.
    pub id: String,
    /// `eventType` of the event, or `type` in CloudEvents
    pub event_type: String,
    /// Subject of the event in the context of its source
    pub subject: String,
    /// Domain topic of an event of a domain.
    pub domain_topic: Option<String>,
    /// Size of the event as it is stored.
    pub bytes: usize,
}
