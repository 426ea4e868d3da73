//! `systemData`: identities and times of the creation and the last change of a resource.

use std::time::Duration;

use gridhook_api::resource::{ReadOnly, SystemDataView};
use gridhook_record::subscription::{ChangeStamp, SystemData};

pub fn system_data_view(data: Option<&SystemData>) -> ReadOnly<SystemDataView> {
    ReadOnly(data.map(|SystemData { created, modified }| SystemDataView {
        created_by: created.as_ref().map(|created| created.by.clone()),
        created_by_type: created.as_ref().map(|created| created.kind),
        created_at: created.as_ref().map(|created| created.at.to_string()),
        last_modified_by: modified.by.clone(),
        last_modified_by_type: modified.kind,
        last_modified_at: modified.at.to_string(),
    }))
}

/// The system data after `change`. `before` is the changed resource with its system data.
pub fn after_change(change: ChangeStamp, before: Option<Option<&SystemData>>) -> SystemData {
    // Each change has a later time, so that ETags of different states differ.
    let last = before
        .flatten()
        .map(|before| before.modified.at.after(Duration::from_micros(1)));
    let last_change = ChangeStamp {
        at: last.map_or(change.at, |last| last.max(change.at)),
        ..change
    };
    let created = match before {
        None => Some(last_change.clone()),
        Some(recorded) => recorded.and_then(|recorded| recorded.created.clone()),
    };
    SystemData {
        created,
        modified: last_change,
    }
}
