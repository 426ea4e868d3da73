//! The status of topics and event subscriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{supervision::IncarnationsView, top::ConditionView};

/// The status of an event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Status)]
pub struct SubscriptionStatusView {
    /// Name of the topic or the domain
    pub topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_topic: Option<String>,
    pub subscription: String,
    pub held_by: Option<String>,
    pub health: HealthView,
    /// Condition of the event subscription
    pub condition: ConditionView,
    /// Present limits of requests to the endpoint
    pub endpoint: PaceView,
    pub counters: CountersView,
    /// Counters of events that jobs sent again; they are not in `counters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<CountersView>,
    /// Replays and redrives that have not ended
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobStatusView>,
    pub backlog: u64,
    pub oldest_unread: Option<String>,
    pub oldest_unread_age_seconds: Option<u64>,
    pub next_due: Option<String>,
    /// Only with `ordering`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderStatusView>,
    pub in_flight: usize,
    pub late_requests: usize,
    pub actor: IncarnationsView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
#[schema(as = StatusHealth)]
pub enum HealthView {
    Healthy {
        failures: u32,
    },
    #[serde(rename_all = "camelCase")]
    Suspended {
        cause: String,
        since: String,
        next_probe: String,
        consecutive_suspensions: u32,
    },
    #[serde(rename_all = "camelCase")]
    Probing {
        cause: String,
        since: String,
        consecutive_suspensions: u32,
    },
}

/// The events that block their order key, and what becomes of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UnblockRequest)]
pub struct UnblockBody {
    /// Value of the order key. Default: all blocked keys
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the event is attempted once more. Default: it is dead-lettered, or dropped without a
    /// destination
    #[serde(default)]
    pub retry: bool,
}

/// What the order by key holds back.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OrderStatus)]
pub struct OrderStatusView {
    pub holding_keys: usize,
    #[serde(default)]
    pub blocked_keys: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_blocking_sequence: Option<u64>,
    pub held_back_events: usize,
    pub ordered_events: usize,
    pub ordered_events_max: usize,
}

/// Present limits of requests to the endpoint. Rates are in requests a second.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusEndpoint)]
pub struct PaceView {
    pub rate: Option<f64>,
    pub healthy_rate: Option<f64>,
    pub concurrency: u32,
    pub events_per_request: u32,
    /// `maxRequestsPerSecond` of the event subscription
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests_per_second: Option<u32>,
    /// `responseTimeoutInSeconds` of the event subscription
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_timeout_in_seconds: Option<u32>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusCounters)]
pub struct CountersView {
    pub passed: u64,
    pub filtered: u64,
    pub matched: u64,
    pub delivered: u64,
    pub pending: u64,
    pub dead_lettered: u64,
    pub dropped: u64,
    pub canceled: u64,
    pub requests: u64,
    pub requests_failed: u64,
    pub late: u64,
}

/// A replay or a redrive, and its progress.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusJob)]
pub struct JobStatusView {
    pub job: u16,
    /// Kind of the job: `replay` or `redrive`
    pub kind: String,
    /// State of the job: `running`, `paused`, `canceling`, `completed` or `canceled`
    pub state: String,
    /// Maximum events for each second
    pub rate: Option<f64>,
    pub started: String,
    pub changed: String,
    /// Counters of the outcomes of the job
    pub counters: CountersView,
}

/// The status of a topic.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicStatus)]
pub struct TopicStatusView {
    /// Name of the topic or the domain
    pub topic: String,
    /// Whether publishes are refused because the backlog has reached `journal.backlog_max`
    pub full: bool,
    /// Largest backlog, if it has reached `journal.backlog_max` or is close to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_backlog: Option<BacklogView>,
    /// Events that were not stored as duplicates since the process started.
    #[serde(default)]
    pub duplicate_events: u64,
    /// Number of event subscriptions.
    pub subscriptions: usize,
    /// Number of events published since the topic was created.
    pub published: u64,
    /// Size of these events.
    pub published_bytes: u64,
    /// Number of events that matched no event subscription, since the process started.
    pub unmatched: u64,
    /// Events published per second in the last minute; `null` in the first second of the server.
    pub published_per_second: Option<f64>,
    /// Size of the events published per second.
    pub bytes_per_second: Option<f64>,
    /// First sequence number of the log.
    pub log_from_sequence: u64,
    /// Sequence number before which the log ends.
    pub log_before_sequence: u64,
    /// Time at which the oldest event of the log was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_from: Option<String>,
    /// Incarnations and restarts of the actor of the topic
    pub actor: IncarnationsView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicBacklog)]
pub struct BacklogView {
    /// Event subscription with the largest backlog
    pub subscription: String,
    /// Size of the backlog in bytes
    pub bytes: u64,
}
