//! Recorded figures over time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The figures of the server, a topic or an event subscription, one value for each step of time;
/// `null` where nothing was recorded.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = History)]
pub struct HistoryReport {
    /// Whether there is a history: the server has one, and so have topics and event subscriptions
    /// with metrics of their own.
    pub recorded: bool,
    /// Start of the process. What was recorded before is from earlier ones.
    pub since: String,
    /// Time at which the first step begins.
    pub from: String,
    /// Length of each step, in seconds.
    pub step_seconds: u64,
    /// Number of published events; for an event subscription, of those published to its topic since
    /// it exists, before its filter.
    pub published: Vec<Option<u32>>,
    /// Delivered events in each interval.
    pub delivered: Vec<Option<u32>>,
    /// Requests that failed.
    pub failed_requests: Vec<Option<u32>>,
    /// Number of events that were dead-lettered or dropped.
    pub given_up: Vec<Option<u32>>,
    /// Number of requests that the endpoint has refused, such as with 400 or 404.
    #[serde(default)]
    pub refused_requests: Vec<Option<u32>>,
    /// Number of requests to which the endpoint was busy: 429 or 503.
    #[serde(default)]
    pub busy_requests: Vec<Option<u32>>,
    /// Number of requests without a response: no connection, or not in time.
    #[serde(default)]
    pub unanswered_requests: Vec<Option<u32>>,
    /// The four event subscriptions that delivered most in the period, only with `destinations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<DestinationHistory>,
    /// Highest number of events in the backlog.
    pub backlog: Vec<Option<u32>>,
    /// Highest number of pending deliveries.
    pub pending: Vec<Option<u32>>,
    /// Median of response times; `null` without responses.
    pub response_p50_milliseconds: Vec<Option<f64>>,
    /// 99th percentile of response times; `null` without responses.
    pub response_p99_milliseconds: Vec<Option<f64>>,
}

/// The figures of an event subscription in a report about many.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestinationHistory {
    /// Resource id of its topic.
    pub topic: String,
    /// Name of the event subscription.
    pub subscription: String,
    /// Delivered events in each interval.
    pub delivered: Vec<Option<u32>>,
}
