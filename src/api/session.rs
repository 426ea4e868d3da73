//! Sessions of the dashboard.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The caller of the request, and its session.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Key of the session for the header `gridhook-session-key`; only in the response that starts
    /// it, beside the cookie.
    pub key: Option<String>,
    /// Name of the operator: `admin`, the name of the token, or the name in the access token.
    pub name: String,
    /// Kind of the identity: `Key`, `User` or `Application`.
    pub identity_type: String,
    /// Role of the token: `read`, `operate` or `admin`. Actions of a higher role are refused.
    pub role: String,
    /// Time at which the session ends at the latest; missing if the request was made without a
    /// session.
    pub expires: Option<String>,
    /// Seconds without a request after which the session ends.
    pub idle_seconds: u64,
}

/// A session of an operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// Identifier by which the session can be ended; not its key.
    pub id: String,
    /// Name of the operator: `admin`, the name of the token, or the name in the access token.
    pub name: String,
    /// Role of the token when the session started.
    pub role: String,
    /// Address that the sign-in came from.
    pub from: Option<String>,
    /// `User-Agent` of the browser.
    pub browser: Option<String>,
    /// When the operator signed in.
    pub started: String,
    /// Time of the last use.
    pub last_used: String,
    /// Time at which the session ends at the latest.
    pub expires: String,
    /// Whether the request was made with this session.
    pub is_own: bool,
}

/// All sessions of the dashboard.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct SessionList {
    /// Sessions, the newest first.
    pub value: Vec<ListedSession>,
}
