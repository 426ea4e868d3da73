//! Liveness and readiness.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Phase of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartPhase {
    /// The store is being opened and read.
    Recovering,
    /// A node of a cluster forwards requests to the owner of the store.
    Standby,
    /// The server accepts and delivers events.
    Serving,
    /// Requests in flight are completed.
    Stopping,
}

/// The response of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether the server takes events
    pub ready: bool,
    /// Phase of the server
    pub phase: StartPhase,
    /// State of the journal in one word
    pub journal: String,
    /// Number of events that cannot be read because a table of the store is damaged
    #[serde(rename = "lostEvents")]
    pub lost_events: u64,
    /// Problems, in sentences
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Liveness {
    /// `starting` while the store is read, then `ok`.
    pub status: String,
    /// Current step of the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Bytes that the current step has read, if they can be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    /// Bytes that the current step has to read, if they can be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

impl fmt::Display for StartPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
