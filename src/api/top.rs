//! The figures of all event subscriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::status::HealthView;

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
}

/// One event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopLine)]
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
