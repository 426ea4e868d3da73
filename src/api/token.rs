//! Named tokens.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

pub use gridhook_record::token::TokenRole;

/// A new token.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenBody {
    /// Name, unique in the server: 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Roles: `publish`, `consume`, `portal`, `read`, `operate`, `admin`. The last three include
    /// the ones before among them.
    pub roles: Vec<String>,
    /// Parts of the server that the token is limited to, such as `topics/orders` or
    /// `labels/team=shop`; default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Time at which the token ends; default never.
    pub expires: Option<String>,
}

/// A named token.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Name of the token, unique in the server.
    pub name: String,
    /// Roles: `publish`, `consume`, `portal`, `read`, `operate`, `admin`.
    pub roles: Vec<String>,
    /// Parts of the server that the token is limited to; empty for all.
    pub scopes: Vec<String>,
    /// When the token was created.
    pub created: String,
    /// Name of the operator who created it.
    pub created_by: String,
    /// Time at which it ends; missing if it does not.
    pub expires: Option<String>,
    /// Time of the last use, as far as it is known; missing if it was not used. A crash may lose an
    /// hour.
    pub last_used: Option<String>,
    /// The token for the header `Authorization: Bearer`; only in the response that creates it.
    pub token: Option<String>,
    /// Address of the dashboard with the token, for the role `portal`; only in the response that
    /// creates it.
    pub link: Option<String>,
}

/// All named tokens.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TokenList {
    /// Tokens, by name.
    pub value: Vec<Token>,
}
