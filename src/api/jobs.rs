//! Jobs of all event subscriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::replay::ReplayView;

/// `GET /jobs`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Jobs)]
pub struct JobsReport {
    /// Current time of the server
    pub now: String,
    /// Number of jobs that have not ended.
    pub open: usize,
    /// Jobs that have not ended, newest first.
    pub jobs: Vec<OpenJob>,
}

/// A job that has not ended, with its event subscription.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenJob {
    /// Resource id of the topic.
    pub topic: String,
    /// Name of the event subscription.
    pub subscription: String,
    /// Replay or redrive, and its progress
    #[serde(flatten)]
    pub job: ReplayView,
}
