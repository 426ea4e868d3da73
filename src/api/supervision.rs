//! Restarts of actors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /supervision`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Supervision)]
pub struct SupervisionReport {
    /// Number of supervised actors
    pub actors: usize,
    /// Number of actors that ended unexpectedly
    pub ended: usize,
    pub ends: EndsView,
    /// Number of events in quarantine, because processing them ended actors
    pub quarantined: u64,
    pub recovery: RecoveryView,
    /// Actors with the most restarts, most first
    pub most_restarted: Vec<ActorView>,
}

/// An actor of the server.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SupervisedActor)]
pub struct ActorView {
    /// Kind of the actor
    pub kind: String,
    /// Key of the topic, such as `orders` or `domain:shop`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    #[serde(flatten)]
    pub incarnations: IncarnationsView,
}

/// The incarnations of an actor.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ActorIncarnations)]
pub struct IncarnationsView {
    pub incarnation: u64,
    pub restarts: u64,
    pub ends: EndsView,
    /// Cause of the last unexpected end
    pub last_cause: Option<String>,
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
    pub panicked: u64,
    pub killed: u64,
    pub stopped: u64,
    pub orphaned: u64,
}

/// Recovery times in milliseconds; the percentiles are those of the newest.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = ActorRecovery)]
pub struct RecoveryView {
    /// Number of measured recoveries
    pub count: u64,
    pub last: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
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
    pub sequence: u64,
    /// Id of the event
    pub id: String,
}
