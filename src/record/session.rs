//! The stored record of a session of a signed-in browser.

use serde::{Deserialize, Serialize};

use gridhook_event::Timestamp;

/// The caller that a session is started for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionOwner {
    /// What tells it from all others.
    pub key: String,
    /// Whether it has the role admin for the whole server.
    pub is_administrator: bool,
    pub name: String,
    /// Highest role of the token.
    pub role: String,
    pub from: Option<String>,
    /// `User-Agent` of the browser.
    pub browser: Option<String>,
}

/// A session. Neither its secret nor the token that it stands for is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRecord {
    /// SHA-256 of its secret, in hexadecimal.
    pub digest: String,
    /// The token that it stands for, encrypted with a key derived from the secret, in Base64.
    pub sealed_token: String,
    pub owner: SessionOwner,
    pub started: Timestamp,
    /// Time of the last stored use.
    pub last_used: Timestamp,
}
