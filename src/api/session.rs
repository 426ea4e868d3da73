//! Sessions of the dashboard.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The caller of the request, and its session.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Token of the session for the header `Authorization: Bearer`; only in the response that
    /// starts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Name of the operator: `admin`, the name of the token, or the name in the access token.
    pub name: String,
    /// Kind of the identity: `Key`, `User` or `Application`.
    pub identity_type: String,
    /// Role of the token: `read`, `operate` or `admin`. Actions of a higher role are refused.
    pub role: String,
    /// Time at which the session ends at the latest; missing if the request was made without a
    /// session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Seconds without a request after which the session ends.
    pub idle_seconds: u64,
}
