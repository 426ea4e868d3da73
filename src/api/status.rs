//! The status of topics and event subscriptions.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::{supervision::IncarnationsView, top::ConditionView};

/// The status of an event subscription.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Status)]
pub struct SubscriptionStatusView {
    /// Name of the topic or the domain
    pub topic: String,
    /// Name of the topic of the domain
    pub domain_topic: Option<String>,
    /// Name of the event subscription
    pub subscription: String,
    /// Originator of the hold, if there is one
    #[serialize_always]
    pub held_by: Option<String>,
    /// Whether the endpoint is called, suspended or probed
    pub health: HealthView,
    /// Condition of the event subscription
    pub condition: ConditionView,
    /// Present limits of requests to the endpoint
    pub endpoint: PaceView,
    /// Outcomes of the events since the event subscription was created
    pub counters: CountersView,
    /// Counters of events that jobs sent again; they are not in `counters`.
    pub replayed: Option<CountersView>,
    /// Replays and redrives that have not ended
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<StatusJob>,
    /// Number of events behind the newest one
    pub backlog: u64,
    /// Publish time of the oldest unread event
    #[serialize_always]
    pub oldest_unread: Option<String>,
    /// Age of the oldest unread event in seconds
    #[serialize_always]
    pub oldest_unread_age_seconds: Option<u64>,
    /// Time of the next due event
    #[serialize_always]
    pub next_due: Option<String>,
    /// What the order by key holds back; only with `ordering`
    pub order: Option<OrderStatusView>,
    /// Number of requests in flight
    pub in_flight: usize,
    /// Number of requests that wait for a late response
    pub late_requests: usize,
    /// Incarnations and restarts of the actor of the event subscription
    pub actor: IncarnationsView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
#[schema(as = StatusHealth)]
pub enum HealthView {
    Healthy {
        /// Failed requests since the last success
        failures: u32,
    },
    #[serde(rename_all = "camelCase")]
    Suspended {
        /// Failure that decided how long the suspension lasts
        cause: String,
        /// When the first of the suspensions in a row began
        since: String,
        /// Time of the next probe
        next_probe: String,
        /// Suspensions in a row; each is longer than the one before
        consecutive_suspensions: u32,
    },
    #[serde(rename_all = "camelCase")]
    Probing {
        /// Failure that caused the suspension
        cause: String,
        /// When the first of the suspensions in a row began
        since: String,
        /// Suspensions in a row; each is longer than the one before
        consecutive_suspensions: u32,
    },
}

/// The events that block their order key, and what becomes of them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnblockRequest {
    /// Value of the order key. Default: all blocked keys
    pub key: Option<String>,
    /// Whether the event is attempted once more. Default: it is dead-lettered, or dropped without a
    /// destination
    #[serde(default)]
    pub retry: bool,
}

/// What the order by key holds back.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OrderStatus)]
pub struct OrderStatusView {
    /// Number of order keys that hold back events
    pub holding_keys: usize,
    /// Number of order keys that are blocked by an event until `unblock`
    #[serde(default)]
    pub blocked_keys: usize,
    /// Sequence of the first event that blocks its order key
    pub first_blocking_sequence: Option<u64>,
    /// Number of events that wait for an earlier event of their order key
    pub held_back_events: usize,
    /// Number of events in flight, waiting for a retry or held back
    pub ordered_events: usize,
    /// Maximum of `orderedEvents`; at the limit the event subscription reads no further
    pub ordered_events_max: usize,
}

/// Present limits of requests to the endpoint. Rates are in requests a second.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusEndpoint)]
pub struct PaceView {
    /// Maximum requests for each second
    #[serialize_always]
    pub rate: Option<f64>,
    /// Requests for each second that the endpoint last sustained
    #[serialize_always]
    pub healthy_rate: Option<f64>,
    /// Requests in flight that the adaptive limit allows at present
    pub concurrency: u32,
    /// Current number of events in a request
    pub events_per_request: u32,
    /// `maxRequestsPerSecond` of the event subscription
    pub max_requests_per_second: Option<u32>,
    /// `responseTimeoutInSeconds` of the event subscription
    pub response_timeout_in_seconds: Option<u32>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusCounters)]
pub struct CountersView {
    /// Events of the log that the event subscription has read and decided about
    pub passed: u64,
    /// Number of events that the filter rejected
    pub filtered: u64,
    /// Passed events that match the filter
    pub matched: u64,
    /// Events that the endpoint accepted or a client acknowledged
    pub delivered: u64,
    /// Events that were attempted or held back and have not ended
    pub pending: u64,
    /// Events that were given up and have a dead-letter destination
    pub dead_lettered: u64,
    /// Events that were given up without a dead-letter destination
    pub dropped: u64,
    /// Events that ended because their event subscription was deleted or their job canceled
    pub canceled: u64,
    /// Requests to the endpoint, or receives of clients, whatever their outcome
    pub requests: u64,
    /// Of `requests`, those that failed
    pub requests_failed: u64,
    /// Requests that succeeded after the response timeout
    pub late: u64,
}

/// A replay or a redrive, and its progress.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusJob {
    /// Number of the job, unique in the event subscription
    pub job: u16,
    /// Kind of the job: `replay` or `redrive`
    pub kind: String,
    /// State of the job: `running`, `paused`, `canceling`, `completed` or `canceled`
    pub state: String,
    /// Maximum events for each second
    pub rate: Option<f64>,
    /// When the job started
    pub started: String,
    /// Time of the last change
    pub changed: String,
    /// Counters of the outcomes of the job
    pub counters: CountersView,
}

/// The status of a topic.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicStatus)]
pub struct TopicStatusView {
    /// Name of the topic or the domain
    pub topic: String,
    /// Whether publishes are refused because the backlog has reached `journal.backlog_max`
    pub full: bool,
    /// Largest backlog, if it has reached `journal.backlog_max` or is close to it.
    pub largest_backlog: Option<TopicBacklog>,
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
    #[serialize_always]
    pub published_per_second: Option<f64>,
    /// Size of the events published per second.
    #[serialize_always]
    pub bytes_per_second: Option<f64>,
    /// First sequence number of the log.
    pub log_from_sequence: u64,
    /// Sequence number before which the log ends.
    pub log_before_sequence: u64,
    /// Time at which the oldest event of the log was published.
    pub log_from: Option<String>,
    /// Incarnations and restarts of the actor of the topic
    pub actor: IncarnationsView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicBacklog {
    /// Event subscription with the largest backlog
    pub subscription: String,
    /// Size of the backlog in bytes
    pub bytes: u64,
}
