//! The results of a transformation test.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The results of a transformation for some events.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = TransformReport)]
pub struct TransformTestReport {
    /// How many events were tested
    pub tested: usize,
    /// Number of events for which the transformation fails
    pub failed: usize,
    /// Results for the tested events
    pub results: Vec<TransformReportLine>,
}

/// The result of a transformation for one event.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransformReportLine {
    /// `id` of the event, as the publisher set it
    pub id: String,
    /// JSON text that would be delivered instead of the event; missing if that is the event
    pub body: Option<String>,
    /// Method of the request, if it is not `POST`
    pub method: Option<String>,
    /// Text that would be appended to the path of the endpoint
    pub path_suffix: Option<String>,
    /// Headers that the request would have, by name
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Reason why the event would be dead-lettered with `TransformationFailed`
    pub error: Option<String>,
}
