//! The course of figures.

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
    /// Start of the process, before which nothing was recorded.
    pub since: String,
    /// Time at which the first step begins.
    pub from: String,
    /// Length of each step.
    pub step_seconds: u64,
    /// Number of published events; for an event subscription, of those published to its topic since
    /// it exists, before its filter.
    pub published: Vec<Option<u32>>,
    /// Delivered events in each interval.
    pub delivered: Vec<Option<u32>>,
    /// Number of failed requests.
    pub failed_requests: Vec<Option<u32>>,
    /// Number of events that were dead-lettered or dropped.
    pub given_up: Vec<Option<u32>>,
    /// Highest number of events in the backlog.
    pub backlog: Vec<Option<u32>>,
    /// Highest number of pending deliveries.
    pub pending: Vec<Option<u32>>,
    /// Median of response times; `null` without responses.
    pub response_p50_milliseconds: Vec<Option<f64>>,
    /// 99th percentile of response times; `null` without responses.
    pub response_p99_milliseconds: Vec<Option<f64>>,
}
