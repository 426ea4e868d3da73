//! The results of a filter test.

use serde::{Deserialize, Serialize};
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
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterReportLine {
    /// `id` of the event, as the publisher set it
    pub id: String,
    /// Whether the event matches the filter
    pub matches: bool,
    /// Condition that the event does not meet
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Reason why the condition is not met
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Value that the condition looked at, as JSON
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
