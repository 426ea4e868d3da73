//! Retries that an operator brings forward.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// Maximum deliveries of one request.
pub const DELIVERIES_MAX: usize = 1_000;

/// Selection of pending deliveries.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Retry)]
pub struct RetryNowBody {
    /// Whether to retry all pending deliveries, a part at a time.
    #[serde(default)]
    pub all: bool,
    /// Sequence numbers of the events to retry, at most 1,000.
    pub sequences: Option<Vec<u64>>,
    /// `next` of the previous response.
    pub after: Option<String>,
}

/// Retries that are brought forward.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Retried)]
pub struct RetriedView {
    /// Number of deliveries that were not due, and are now.
    pub events: u64,
    /// Start of the rest; missing at the end.
    pub next: Option<String>,
    /// Until when the endpoint is not called; missing if it may be called now.
    pub waits_until: Option<String>,
}
