//! The results of a filter test.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The results of a filter for some events.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = FilterReport)]
pub struct FilterTestReport {
    /// How many events were tested
    pub tested: usize,
    /// Tested events that match the filter
    pub matched: usize,
    /// Results for the tested events
    pub results: Vec<FilterReportLine>,
}

/// The result of a filter for one event.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterReportLine {
    /// `id` of the event, as the publisher set it
    pub id: String,
    /// Whether the event matches the filter
    pub matches: bool,
    /// Condition that the event does not meet
    pub stopped_by: Option<String>,
    /// Reason why the condition is not met
    pub reason: Option<String>,
    /// Value that the condition looked at, as JSON
    pub value: Option<String>,
}
