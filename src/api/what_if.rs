//! The changes that a PUT or PATCH would make.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use gridhook_record::audit::ValueChange;

/// The changes that a PUT or PATCH would make.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct Difference {
    /// Whether the resource exists.
    pub exists: bool,
    /// Changed properties; for a new resource, all properties that are set
    pub changes: Vec<ValueChange>,
    /// What works otherwise than the properties say, such as waits of a retry schedule that are
    /// shorter than minimum waits of the edition
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the endpoint is validated when the change is made
    #[serde(
        default,
        rename = "needsValidation",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub needs_validation: bool,
}
