//! `systemData`: who made a resource, who changed it last, and when.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    control::record::subscription::{ChangeStamp, IdentityType, SystemData},
    event::Timestamp,
};

/// Who made a resource, who changed it last, and when.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SystemData)]
pub struct SystemDataView {
    /// Identity that created the resource; missing where it was created before this was recorded
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    /// Kind of the identity that created the resource
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by_type: Option<IdentityType>,
    /// Time of the creation
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    created_at: Option<String>,
    /// Identity that last changed the resource
    last_modified_by: String,
    /// Kind of the identity that last changed the resource
    last_modified_by_type: IdentityType,
    /// Time of the last change
    #[schema(format = DateTime)]
    last_modified_at: String,
}

impl SystemDataView {
    /// What a client is told of `data`.
    pub fn new(data: &SystemData) -> Self {
        let SystemData { created, modified } = data;
        Self {
            created_by: created.as_ref().map(|created| created.by.clone()),
            created_by_type: created.as_ref().map(|created| created.kind),
            created_at: created.as_ref().map(|created| created.at.to_string()),
            last_modified_by: modified.by.clone(),
            last_modified_by_type: modified.kind,
            last_modified_at: modified.at.to_string(),
        }
    }
}

/// What is recorded of a change by `by` at `now`. `before` is the resource that it changes, with what was recorded of that.
pub fn changed(by: (&str, IdentityType), now: Timestamp, before: Option<Option<&SystemData>>) -> SystemData {
    let modified = ChangeStamp { by: by.0.to_owned(), kind: by.1, at: now };
    let created = match before {
        None => Some(modified.clone()),
        Some(recorded) => recorded.and_then(|recorded| recorded.created.clone()),
    };
    SystemData { created, modified }
}
