//! `systemData`: identities and times of the creation and the last change of a resource.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    control::record::subscription::{ChangeStamp, IdentityType, SystemData},
    event::Timestamp,
};

/// Identities and times of the creation and the last change of a resource.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SystemData)]
pub struct SystemDataView {
    /// Identity that created the resource; missing for resources of older versions
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
    /// The view of `data`.
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

/// The system data of a change by `by` at `now`. `before` is the changed resource with its system data.
pub fn changed(by: (&str, IdentityType), now: Timestamp, before: Option<Option<&SystemData>>) -> SystemData {
    // Each change has a later time, so that ETags of different states differ.
    let last = before.flatten().map(|before| before.modified.at.after(Duration::from_micros(1)));
    let modified = ChangeStamp { by: by.0.to_owned(), kind: by.1, at: last.map_or(now, |last| last.max(now)) };
    let created = match before {
        None => Some(modified.clone()),
        Some(recorded) => recorded.and_then(|recorded| recorded.created.clone()),
    };
    SystemData { created, modified }
}
