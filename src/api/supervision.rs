//! Restarts of actors.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /supervision`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Supervision)]
pub struct SupervisionReport {
    /// Actors that are restarted when they end unexpectedly
    pub actors: usize,
    /// Number of actors that ended unexpectedly
    pub ended: usize,
    /// Ends of incarnations by cause
    pub ends: EndsView,
    /// Number of events in quarantine, because processing them ended actors
    pub quarantined: u64,
    /// Times between end and restart
    pub recovery: RecoveryView,
    /// Actors with the most restarts, most first
    pub most_restarted: Vec<ActorView>,
}

/// An actor of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SupervisedActor)]
pub struct ActorView {
    /// Kind of the actor: `topic`, `subscription` or `deadLetter`
    pub kind: String,
    /// Key of the topic, such as `orders` or `domain:shop`
    pub topic: Option<String>,
    /// Name of the event subscription
    pub subscription: Option<String>,
    /// Name of the dead-letter store
    pub store: Option<String>,
    #[serde(flatten)]
    pub incarnations: IncarnationsView,
}

/// The incarnations of an actor.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ActorIncarnations)]
pub struct IncarnationsView {
    /// Number of the current incarnation
    pub incarnation: u64,
    /// How often the actor was restarted
    pub restarts: u64,
    /// Ends of incarnations by cause
    pub ends: EndsView,
    /// Cause of the last unexpected end
    pub last_cause: Option<String>,
    /// Time of the last end
    pub last_end: Option<String>,
    /// Time from an end to the end of the first work of the next incarnation
    pub recovery: RecoveryView,
    /// Events quarantined because processing them ended the actor repeatedly; only of event
    /// subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<QuarantinedView>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ActorEnds)]
pub struct EndsView {
    /// Number of ends by a panic
    pub panicked: u64,
    /// Number of kills by fault injection
    pub killed: u64,
    /// Number of regular ends
    pub stopped: u64,
    /// Number of ends because the owner ended
    pub orphaned: u64,
}

/// Recovery times in milliseconds; the percentiles are those of the newest.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ActorRecovery)]
pub struct RecoveryView {
    /// Restarts whose recovery was measured
    pub count: u64,
    /// Most recent recovery, in milliseconds
    pub last: Option<f64>,
    /// Median of the newest recoveries, in milliseconds
    pub p50: Option<f64>,
    /// 99th percentile of the newest recoveries, in milliseconds
    pub p99: Option<f64>,
    /// Longest recovery, in milliseconds
    pub longest: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ActorQuarantined)]
pub struct QuarantinedView {
    /// Number of events in quarantine
    pub count: u64,
    /// Newest events in quarantine, oldest first
    pub newest: Vec<QuarantinedEvent>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct QuarantinedEvent {
    /// Sequence number of the event in the log
    pub sequence: u64,
    /// `id` of the event, as the publisher set it
    pub id: String,
}
