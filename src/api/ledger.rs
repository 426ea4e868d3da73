//! The lines of the ledger of an event subscription.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// A page of the ledger.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Ledger)]
pub struct LedgerPageView {
    /// Name of the event subscription
    pub subscription: String,
    /// Earliest time of the lines
    pub from: String,
    /// Time before which the lines end
    pub to: String,
    /// Time of the oldest line that is still kept
    pub oldest: Option<String>,
    /// Lines in order of time
    pub lines: Vec<LineView>,
    /// Value of `continue` for the next request; missing at the end. A response without lines may
    /// have it
    pub r#continue: Option<String>,
}

/// A line of the ledger.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LedgerLine)]
pub struct LineView {
    /// Shard of events of a spread topic.
    pub shard: Option<usize>,
    /// Time at which the line was written
    pub at: String,
    /// Lane of delivery that made the line
    pub lane: String,
    /// Step of the delivery: `filtered`, `delivered`, `deferred`, `undeliverable`, `expired`,
    /// `deadLettered`, `dropped`, `late`, `canceled`, `written`, `lost`, `redriven`, `received`,
    /// `renewed`, `acknowledged`, `released` or `lockExpired`.
    pub step: String,
    /// The line as a sentence
    pub text: String,
    /// Number of the attempt, from 1
    pub attempt: Option<u32>,
    /// Outcome of the attempt, such as `TimedOut`
    pub outcome: Option<String>,
    /// HTTP status of the response
    pub status: Option<u16>,
    /// Duration of the request, in milliseconds
    pub milliseconds: Option<f64>,
    /// Time of the next attempt
    pub next_attempt: Option<String>,
    /// Why the events were given up, or why their dead letter was lost
    pub reason: Option<String>,
    /// Path of the dead-letter file
    pub file: Option<String>,
    /// Result of the version of the filter for the event
    pub filter: Option<LedgerFilter>,
    /// Beginning of the response, or the error instead of one
    pub response: Option<LedgerResponse>,
    /// Number of events of the line
    pub events: u64,
    /// Sequence number of the first event
    pub first_sequence: u64,
    /// Sequence number of the last event
    pub last_sequence: u64,
}

/// The result of a version of the filter for the event.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerFilter {
    /// Version of the event subscription whose filter it was, from 1
    pub version: u32,
    /// Condition that the event does not meet
    pub stopped_by: Option<String>,
    /// Reason why the condition is not met
    pub reason: Option<String>,
    /// Value that the condition looked at, as JSON
    pub value: Option<String>,
}

/// The response to a failed request, or the error that prevented it.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerResponse {
    /// Whether the endpoint sent it, not the server
    pub by_endpoint: bool,
    /// First bytes of the response body, or the error
    pub text: String,
    /// Request line and header fields of the first such request in the minute, without secrets
    pub request_head: Option<String>,
    /// Header fields of its response, without secrets
    pub response_head: Option<String>,
}
