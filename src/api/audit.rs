//! The request and response bodies of the audit trail.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

use super::what_if::ValueChange;

/// A page of the audit trail.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub struct AuditPageView {
    /// Operations, newest first.
    pub value: Vec<AuditEntry>,
    /// Value of the parameter `continue` for the next page; missing at the end.
    pub r#continue: Option<String>,
}

/// An operation of an operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Number of the entry, ascending.
    pub number: u64,
    /// Time at which the operation ended.
    pub at: String,
    /// Name of the operator: `admin`, the name of the token, or the name in the access token;
    /// missing without a valid credential.
    pub operator: Option<String>,
    /// Kind of the identity: `Key`, `User` or `Application`.
    pub identity_type: Option<String>,
    /// Address that the request came from.
    pub from: Option<String>,
    /// HTTP method of the request.
    pub method: String,
    /// Path of the request, without the query.
    pub path: String,
    /// HTTP status of the response: 400 and above for an operation that was refused.
    pub status: u16,
    /// Id of the request, as in the header `x-ms-request-id`.
    pub request_id: String,
    /// Changed values, without secrets.
    pub changes: Vec<ValueChange>,
    /// Number of refused requests and sign-ins of the same identity before this one that were not
    /// recorded.
    pub suppressed: u64,
}
