//! The editions of the delivery policy, and simulations of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /editions`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Editions {
    /// Edition of topics that name none: the setting `policy.edition`.
    pub default: String,
    /// All editions by name.
    pub editions: Vec<EditionView>,
}

/// An edition of the delivery policy.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Edition)]
pub struct EditionView {
    /// Name of the edition, as a value of `policy.edition`
    pub name: String,
    /// Default of `maxDeliveryAttempts`.
    pub max_delivery_attempts: u32,
    /// Default of `eventTimeToLiveInMinutes`.
    pub event_time_to_live_in_minutes: u32,
    /// Maximum share of a wait that jitter adds, from 0 to 1.
    pub jitter_share: f64,
    /// Maximum time that jitter adds, in seconds.
    pub jitter_max_seconds: f64,
    /// Maximum wait that an endpoint can request with `Retry-After`, in seconds.
    pub retry_after_max_seconds: f64,
    /// Number of consecutive failures that suspend an endpoint.
    pub suspended_after_failures: u32,
    /// Seconds between giving up an event and writing its dead-letter file.
    pub dead_letter_delay_seconds: f64,
    /// Attempts for each status of each kind of destination.
    pub schedules: Vec<RetrySchedule>,
}

/// When an event is attempted again if every attempt fails at once with the same status, without
/// jitter.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetrySchedule {
    /// Kind of destination: `webhook`, or `resource` for all others.
    pub destination: String,
    /// HTTP status of the failures; none for any other failure.
    pub status: Option<u16>,
    /// Whether the schedule holds only for event subscriptions with a dead-letter destination.
    pub with_dead_letter: bool,
    /// Times of the attempts, in seconds since the first.
    pub attempts_seconds: Vec<f64>,
    /// Reason why the event is given up after the last attempt.
    pub ends_with: String,
}

/// What to simulate; everything has a default.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SimulationRequest {
    /// Name of the edition; default `policy.edition`.
    pub edition: Option<String>,
    /// Endpoint models as `NAME[:NUMBER][=SHARE]`, such as `outage:5h=2`; default a mix of all
    /// models.
    #[serde(default)]
    pub models: Vec<String>,
    /// Number of event subscriptions, 1 to 1,000; default 100.
    pub subscriptions: Option<u32>,
    /// Simulated time in days, 0.001 to 30; default 2.
    pub days: Option<f64>,
    /// Published events per second, so that subscriptions and events make 200,000 deliveries at
    /// most; default 0.01.
    pub rate: Option<f64>,
    /// Seed of the random numbers, 0 to 2^64 - 1; default 1.
    pub seed: Option<u64>,
    /// Maximum events in a request, 1 to 5,000; default 1.
    pub batch: Option<u32>,
    /// Whether event subscriptions have a dead-letter destination; default true.
    pub dead_letter: Option<bool>,
}
