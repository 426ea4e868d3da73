//! The figures of all event subscriptions.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::HealthView;

/// The sort order; the highest value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum SortOrder {
    /// Delivered events per second
    #[default]
    Activity,
    /// Least healthy endpoints
    Health,
    /// Backlog of published events
    Backlog,
    /// Pending deliveries
    Pending,
    /// Failed requests per second
    Failures,
    /// Requests in flight
    InFlight,
    /// Events that were given up
    DeadLetters,
    /// Response times, the median
    ResponseP50,
    /// Response times, the 95th percentile
    ResponseP95,
    /// Response times, the 99th percentile
    ResponseP99,
    /// Names, in order
    Name,
}

impl SortOrder {
    /// Whether lines are sorted by a quantile of the response times.
    pub fn is_by_response(self) -> bool {
        matches!(
            self,
            Self::ResponseP50 | Self::ResponseP95 | Self::ResponseP99
        )
    }
}

/// The health of the event subscriptions that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum HealthFilter {
    /// Nothing is wrong
    Healthy,
    /// Failing, suspended, held, waiting or slow
    Unhealthy,
    /// Requests fail or events are given up
    Failing,
    /// Suspended until the next probe
    Suspended,
    /// Waiting for the response to a probe
    Probing,
    /// Held by an operator or by a 410 response
    Held,
    /// Events wait and no client receives them
    Waiting,
    /// Events are unread for more than a minute
    Slow,
    /// Nothing was sent and nothing waits
    Idle,
}

/// The recorded window of rates and shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RateWindow {
    #[default]
    #[serde(rename = "1m")]
    Minute,
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    Day,
}

/// The condition of an event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Condition)]
pub struct ConditionView {
    /// The condition: `failing`, `suspended`, `held`, `waiting`, `slow`, `healthy` or `idle`, the
    /// worst first
    pub state: String,
    /// Number of the condition, from 0 for `idle` to 6 for `failing`
    pub severity: u8,
    /// Share of good outcomes in the window that was judged, from 0 to 1
    pub success_share: Option<f64>,
    /// Length of the window that was judged: the shortest recorded one with enough outcomes
    pub window_seconds: Option<f64>,
}

/// `GET /top`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Top)]
pub struct TopReport {
    /// Current time of the server
    pub now: String,
    /// Length of the recorded window of rates and shares; `null` in the first second of the server
    pub window_seconds: Option<f64>,
    /// Event subscriptions that the figures include
    pub subscriptions: usize,
    /// Number of event subscriptions whose endpoint is suspended or probed
    pub suspended: usize,
    /// Number of held event subscriptions
    pub held: usize,
    /// Number of event subscriptions by condition
    pub conditions: BTreeMap<String, usize>,
    /// Number of requests in flight
    pub in_flight: usize,
    /// Number of events behind the newest one
    pub backlog: u64,
    /// Events that were attempted or held back and have not ended
    pub pending: u64,
    /// Events that were given up and have a dead-letter destination
    pub dead_lettered: u64,
    /// Events that were given up without a dead-letter destination
    pub dropped: u64,
    /// Delivered events for each second
    pub delivered_per_second: Option<f64>,
    /// Failed requests for each second
    pub failed_per_second: Option<f64>,
    /// Number of events that were dead-lettered or dropped in the window
    pub given_up_in_window: u64,
    /// Number of event subscriptions that match the search and the filters of the request.
    pub matching: usize,
    /// Event subscriptions in the asked order
    pub top: Vec<TopLine>,
    /// Shards of a cluster whose event subscriptions are not in the figures, because no owner
    /// responds
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub missing_shards: Vec<usize>,
}

/// One event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopLine {
    /// Resource id of the topic, the domain or the domain topic
    pub topic: String,
    /// Name of the event subscription
    pub subscription: String,
    /// Address of the endpoint without its query; missing with pull delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Originator of the hold, if there is one
    pub held_by: Option<String>,
    /// Whether the endpoint is called, suspended or probed
    pub health: HealthView,
    /// Condition of the event subscription
    pub condition: ConditionView,
    /// Delivered events for each second
    pub delivered_per_second: Option<f64>,
    /// Requests for each second, in the window of the rates
    pub requests_per_second: Option<f64>,
    /// Failed requests for each second
    pub failed_per_second: Option<f64>,
    /// Share of successful requests in the window, from 0 to 1
    pub success_share: Option<f64>,
    /// Median of the response times of the last 30 to 60 minutes
    pub response_p50_milliseconds: Option<f64>,
    /// 95th percentile of the response times of the last 30 to 60 minutes
    pub response_p95_milliseconds: Option<f64>,
    /// 99th percentile of the response times of the last 30 to 60 minutes
    pub response_p99_milliseconds: Option<f64>,
    /// Number of events behind the newest one
    pub backlog: u64,
    /// Age of the oldest unread event in seconds
    pub oldest_unread_age_seconds: Option<u64>,
    /// Events that were attempted or held back and have not ended
    pub pending: u64,
    /// Time of the next due event
    pub next_due: Option<String>,
    /// Number of requests in flight
    pub in_flight: usize,
    /// Requests in flight that the adaptive limit allows at present
    pub concurrency: u32,
    /// Events that the endpoint accepted or a client acknowledged
    pub delivered: u64,
    /// Events that were given up and have a dead-letter destination
    pub dead_lettered: u64,
    /// Events that were given up without a dead-letter destination
    pub dropped: u64,
}
