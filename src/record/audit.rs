//! The stored record of the audit trail: what an operator did, or tried to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use gridhook_event::Timestamp;

/// An operation of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditRecord {
    /// Time at which it ended.
    pub at: Timestamp,
    /// Name of the operator; [`None`] without a valid credential.
    pub operator: Option<String>,
    /// Whether it had the role admin for the whole server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_administrator: bool,
    pub identity_type: Option<String>,
    pub from: Option<String>,
    pub method: String,
    /// Path of the request, without the query.
    pub path: String,
    /// HTTP status of the response.
    pub status: u16,
    pub request_id: String,
    /// Changed values, without secrets.
    pub changes: Vec<ValueChange>,
    /// Number of attempts of the same identity before this one that were not recorded.
    pub suppressed: u64,
}

/// Path of the sessions of the dashboard.
pub const SESSION_PATH: &str = "/ui/session";

impl AuditRecord {
    /// Whether an operator signed in to the dashboard, or out of it.
    pub fn is_sign_in(&self) -> bool {
        self.path == SESSION_PATH
    }
}

/// A changed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DifferenceChange)]
pub struct ValueChange {
    /// Path of the property, its keys joined by dots
    pub at: String,
    /// Value before the change, or `null`
    pub before: Value,
    /// Value after the change
    pub after: Value,
}
