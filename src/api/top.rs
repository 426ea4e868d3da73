//! The figures of all event subscriptions.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::HealthView;

/// The sort order; the highest value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
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
    /// Names, in order
    Name,
}

/// The health of the event subscriptions that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum HealthFilter {
    /// Healthy and not held
    Healthy,
    /// Suspended, probing or held
    Unhealthy,
    /// Suspended until the next probe
    Suspended,
    /// Waiting for the response to a probe
    Probing,
    /// Held by an operator or by a 410 response
    Held,
}

/// `GET /top`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Top)]
pub struct TopReport {
    pub now: String,
    /// Seconds over which the rates were measured; `null` at the first measurement
    pub window_seconds: Option<f64>,
    /// Number of event subscriptions
    pub subscriptions: usize,
    pub suspended: usize,
    /// Number of held event subscriptions
    pub held: usize,
    pub in_flight: usize,
    pub backlog: u64,
    pub pending: u64,
    pub dead_lettered: u64,
    pub dropped: u64,
    pub delivered_per_second: Option<f64>,
    pub failed_per_second: Option<f64>,
    /// Number of event subscriptions that match the search and the filters of the request.
    pub matching: usize,
    pub top: Vec<TopLine>,
    /// Shards of a cluster whose event subscriptions are not in the figures, because no owner answers
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
    pub subscription: String,
    /// Address of the endpoint without its query; missing with pull delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    pub held_by: Option<String>,
    pub health: HealthView,
    pub delivered_per_second: Option<f64>,
    pub requests_per_second: Option<f64>,
    pub failed_per_second: Option<f64>,
    /// Share of successful requests since the last report, from 0 to 1
    pub success_share: Option<f64>,
    pub backlog: u64,
    pub oldest_unread_age_seconds: Option<u64>,
    pub pending: u64,
    pub next_due: Option<String>,
    pub in_flight: usize,
    pub concurrency: u32,
    pub delivered: u64,
    pub dead_lettered: u64,
    pub dropped: u64,
}
