//! Replays of stored events.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::status::CountersView;

/// A request for a replay.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayBody {
    /// Earliest time of publish, such as `2040-01-01T00:00:00Z`; default the oldest stored event
    #[schema(example = "2026-01-01T00:00:00Z")]
    pub from: Option<String>,
    /// Time of publish before which the replay ends; default now
    pub to: Option<String>,
    /// First sequence number, instead of `from`
    pub from_sequence: Option<u64>,
    /// Last sequence number, instead of `to`
    pub to_sequence: Option<u64>,
    /// Maximum events for each second, repeated attempts included, 0.001 to 1000000; default the
    /// limits of the endpoint
    pub events_per_second: Option<f64>,
    /// Whether to count without a replay; default false
    #[serde(default)]
    pub dry_run: bool,
}

/// The count of a dry run of a replay.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReplayDryRun)]
pub struct DryRun {
    /// First sequence number of the range
    pub from_sequence: u64,
    /// Last sequence number of the range
    pub to_sequence: u64,
    /// Events of the range that the log still has
    pub stored: u64,
    /// Stored events of the range that match the filter
    pub matching: u64,
}

/// A replay or redrive job.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Replay)]
pub struct ReplayView {
    /// Id of the job, also in the header `aeg-replay-job` or `aeg-redrive-job` of its requests
    pub id: String,
    /// Kind of the job: `replay` or `redrive`
    pub kind: String,
    /// State of the job: `running`, `paused`, `canceling`, `completed` or `canceled`
    pub state: String,
    /// First sequence number of the range
    pub from_sequence: Option<u64>,
    /// Last sequence number of the range
    pub to_sequence: Option<u64>,
    /// Rate limit in events for each second
    #[serialize_always]
    pub events_per_second: Option<f64>,
    /// When the job started
    pub started: String,
    /// Time of the last change
    pub changed: String,
    /// How far the job has come, and how long the rest takes
    pub progress: JobProgress,
    /// Outcomes of the replayed events
    pub counters: CountersView,
}

/// How far a replay or redrive has come
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReplayProgress)]
pub struct JobProgress {
    /// Events of its range that the job has read and decided about
    pub passed: u64,
    /// Number of events that the job has to pass, if it is known
    pub total: Option<u64>,
    /// Seconds until the job ends at its present rate
    #[serialize_always]
    pub eta_seconds: Option<u64>,
}
