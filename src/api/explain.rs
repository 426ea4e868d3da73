//! Why an event waits, and when its next attempts are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event that matches the request.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Explanation)]
pub struct ExplainView {
    /// Resource id of the topic
    pub topic: String,
    pub subscription: String,
    /// `Push`, or `Queue` for clients that pull
    pub delivery_mode: String,
    pub now: String,
    pub sequence: u64,
    /// Id of the event
    pub id: Option<String>,
    pub published: Option<String>,
    #[serde(flatten)]
    pub state: StateView,
    pub obstacles: Vec<ObstacleView>,
    pub forecast: Option<ForecastView>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
#[schema(as = ExplainedState)]
pub enum StateView {
    InFlight {
        attempt: u32,
        since: String,
        deadline: String,
    },
    #[serde(rename_all = "camelCase")]
    Pending {
        next_due: String,
        attempts: u32,
        last_outcome: String,
        last_status: Option<u16>,
        last_attempt: String,
    },
    /// Held back until an earlier event with the same `ordering.key` has ended
    HeldBack {
        attempts: u32,
    },
    /// Not given up: it blocks its `ordering.key` until `unblock`
    #[serde(rename_all = "camelCase")]
    Blocking {
        attempts: u32,
        last_outcome: String,
        last_status: Option<u16>,
        last_attempt: String,
    },
    /// Locked by a pulling client
    #[serde(rename_all = "camelCase")]
    Locked {
        delivery_count: u32,
        received: String,
        locked_until: String,
        renewable_until: String,
    },
    /// Released by a client, and not available before `until`
    #[serde(rename_all = "camelCase")]
    Released {
        until: String,
        delivery_count: u32,
        last_outcome: String,
        last_received: String,
    },
    /// Available to clients again after a release or an expired lock
    #[serde(rename_all = "camelCase")]
    Available {
        since: String,
        delivery_count: u32,
        last_outcome: String,
        last_received: String,
    },
    SentByAnEarlierProcess,
    Backlog {
        behind: u64,
    },
    Filtered,
    #[serde(rename_all = "camelCase")]
    DeadLetterWaiting {
        /// Reason why delivery was given up
        reason: Option<String>,
        file_due: Option<String>,
    },
    /// Delivered or given up; the ledger has its history
    Completed,
    NotPublished,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[schema(as = Obstacle)]
pub enum ObstacleView {
    Held {
        by: String,
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
    /// Time until which `Retry-After` of the endpoint holds back requests
    RetryAfter {
        until: String,
    },
    /// The endpoint's rate limit is reached
    Paced {
        /// Maximum requests for each second at present
        rate: f64,
    },
    /// The limit of locked, released and expired events is reached
    Full {
        pending: u64,
        limit: u32,
    },
    /// No client waits for events
    NoReceiver,
}

/// The next attempts if each of them fails.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Forecast)]
pub struct ForecastView {
    pub if_each_fails_with: String,
    /// HTTP status that the forecast assumes for each attempt
    pub status: Option<u16>,
    /// Expected attempts, in order of time
    pub attempts: Vec<AttemptView>,
    pub end: Option<EndView>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForecastAttempt)]
pub struct AttemptView {
    pub number: u32,
    pub not_before: String,
    pub jitter_seconds: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForecastEnd)]
pub struct EndView {
    /// Reason why delivery is given up
    pub reason: String,
    /// Time at which delivery is given up
    pub at: String,
}

/// An event that was not found.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EventNotFound)]
pub struct NotFoundView {
    pub state: String,
    pub searched: SearchedView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SearchedRange)]
pub struct SearchedView {
    pub events_in_flight: usize,
    pub events_pending: usize,
    pub log_from_sequence: u64,
    pub log_before_sequence: u64,
}
