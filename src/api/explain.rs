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
    /// Name of the event subscription
    pub subscription: String,
    /// `Push`, or `Queue` for clients that pull
    pub delivery_mode: String,
    /// Current time of the server
    pub now: String,
    /// Sequence number of the event in the log
    pub sequence: u64,
    /// `id` of the event, as the publisher set it
    pub id: Option<String>,
    /// Time at which the event was published
    pub published: Option<String>,
    #[serde(flatten)]
    pub state: StateView,
    /// Obstacles that hold the event back
    pub obstacles: Vec<ObstacleView>,
    /// Expected attempts if each of them fails
    pub forecast: Option<ForecastView>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
#[schema(as = ExplainedState)]
pub enum StateView {
    InFlight {
        /// Number of the attempt, from 1
        attempt: u32,
        /// When the request was sent
        since: String,
        /// When the request counts as lost
        deadline: String,
    },
    #[serde(rename_all = "camelCase")]
    Pending {
        /// Time of the next due event
        next_due: String,
        /// Number of attempts made so far
        attempts: u32,
        /// Outcome of the last attempt
        last_outcome: String,
        /// HTTP status of the last attempt
        last_status: Option<u16>,
        /// Time of the last attempt
        last_attempt: String,
    },
    /// Held back until an earlier event with the same `ordering.key` has ended
    HeldBack {
        /// Number of attempts made so far
        attempts: u32,
    },
    /// Not given up: it blocks its `ordering.key` until `unblock`
    #[serde(rename_all = "camelCase")]
    Blocking {
        /// Number of attempts made so far
        attempts: u32,
        /// Outcome of the last attempt
        last_outcome: String,
        /// HTTP status of the last attempt
        last_status: Option<u16>,
        /// Time of the last attempt
        last_attempt: String,
    },
    /// Locked by a pulling client
    #[serde(rename_all = "camelCase")]
    Locked {
        /// Number of times that the event was received
        delivery_count: u32,
        /// Time of the current receive
        received: String,
        /// Time at which the lock ends
        locked_until: String,
        /// Time until which the lock can be renewed
        renewable_until: String,
    },
    /// Released by a client, and not available before `until`
    #[serde(rename_all = "camelCase")]
    Released {
        /// When the delay of the release or of `Retry-After` ends
        until: String,
        /// Number of times that the event was received
        delivery_count: u32,
        /// Outcome of the last attempt
        last_outcome: String,
        /// Time of the last receive
        last_received: String,
    },
    /// Available to clients again after a release or an expired lock
    #[serde(rename_all = "camelCase")]
    Available {
        /// When the event last became available
        since: String,
        /// Number of times that the event was received
        delivery_count: u32,
        /// Outcome of the last attempt
        last_outcome: String,
        /// Time of the last receive
        last_received: String,
    },
    SentByAnEarlierProcess,
    Backlog {
        /// Number of events ahead in the backlog
        behind: u64,
    },
    Filtered,
    #[serde(rename_all = "camelCase")]
    DeadLetterWaiting {
        /// Reason why delivery was given up
        reason: Option<String>,
        /// Time at which the dead-letter file is due
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
        /// Cause of the hold: `operator`, `410` or `EndpointFailing`
        by: String,
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
    /// Time until which `Retry-After` of the endpoint holds back requests
    RetryAfter {
        /// When the delay of the release or of `Retry-After` ends
        until: String,
    },
    /// The endpoint's rate limit is reached
    Paced {
        /// Maximum requests for each second at present
        rate: f64,
    },
    /// The limit of locked, released and expired events is reached
    Full {
        /// Events that clients received and have not settled
        pending: u64,
        /// Maximum number of pending events
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
    /// Outcome that the forecast assumes for each attempt
    pub if_each_fails_with: String,
    /// HTTP status that the forecast assumes for each attempt
    pub status: Option<u16>,
    /// Expected attempts, in order of time
    pub attempts: Vec<AttemptView>,
    /// When and why the event is given up if every attempt fails
    pub end: Option<EndView>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ForecastAttempt)]
pub struct AttemptView {
    /// Number of the attempt, from 1
    pub number: u32,
    /// Earliest time of the attempt
    pub not_before: String,
    /// Longest random delay after `notBefore`, in seconds
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
pub struct EventNotFound {
    /// Always `notFound`: neither the log nor a pending delivery has it
    pub state: String,
    /// How much of the log and of the pending deliveries was searched
    pub searched: SearchedView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SearchedRange)]
pub struct SearchedView {
    /// Number of searched events in flight
    pub events_in_flight: usize,
    /// Number of searched pending deliveries
    pub events_pending: usize,
    /// First searched sequence number of the log
    pub log_from_sequence: u64,
    /// Sequence number before which the searched log ends
    pub log_before_sequence: u64,
}
