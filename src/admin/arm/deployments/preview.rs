//! The preview of a deployment: the changes that it would make, and whether its resources are
//! valid.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{DeploymentError, expansion::ResourceCaller, resource::ResourceTarget};
use crate::{AdminError, AdminResult};
use gridhook_api::{
    deployment::{WhatIfChange, WhatIfPropertyChange, WhatIfResult, WhatIfResultProperties},
    resource::ErrorDetail,
    what_if::ValueChange,
};
use gridhook_declared::{Declared, DeclaredResource, ResourceKind, hide_secrets};
use gridhook_record::topic::TopicRecord;

/// Why a resource cannot be compared whose values need the state of another one.
const NEEDS_STATE: &str = "its values need the state of a resource that does not exist yet";

/// The effect that the deployment would have on a resource.
pub(super) enum Preview {
    /// How the resource differs from the existing one; without changes the deployment leaves it
    /// alone.
    Compared {
        exists: bool,
        changes: Vec<ValueChange>,
        before: Option<Value>,
    },
    Refused(AdminError),
}

/// Compares each resource of the template with the existing one.
pub(super) async fn compare_resources(
    caller: &ResourceCaller,
    declared: &Declared,
) -> AdminResult<Vec<Preview>> {
    let mut previews = Vec::new();
    // What does not exist before the deployment, also if it is refused.
    let mut missing: BTreeSet<String> = BTreeSet::new();
    let mut planned_topics = BTreeMap::new();
    for resource in &declared.resources {
        let id = resource.control_path().to_ascii_lowercase();
        let is_below_new = missing.iter().any(|above| is_below(&id, above));
        let target = ResourceTarget::new(resource)?;
        let difference = if is_below_new {
            // A resource cannot be compared before its parent exists.
            check_below_new(caller, resource, &target, &planned_topics).map(|()| None)
        } else {
            target.difference(caller).await.map(Some)
        };
        let preview = match difference {
            Ok(Some(difference)) => Preview::Compared {
                before: if difference.exists {
                    target.current(caller).await
                } else {
                    None
                },
                exists: difference.exists,
                changes: difference.changes,
            },
            Ok(None) => Preview::Compared {
                exists: false,
                changes: Vec::new(),
                before: None,
            },
            Err(error) => Preview::Refused(error),
        };
        if is_top_level_topic(resource) && matches!(preview, Preview::Compared { .. }) {
            let planned = target.planned_topic(caller);
            planned_topics.extend(planned.map(|topic| (id.clone(), topic)));
        }
        if !matches!(preview, Preview::Compared { exists: true, .. }) {
            missing.insert(id);
        }
        previews.push(preview);
    }
    Ok(previews)
}

/// Whether a resource is below another one, by their ids in lower case.
fn is_below(id: &str, above: &str) -> bool {
    id.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn is_top_level_topic(resource: &DeclaredResource) -> bool {
    matches!(resource.kind, ResourceKind::Topic | ResourceKind::Domain)
}

/// Checks an event subscription of a topic or domain that the deployment creates.
fn check_below_new(
    caller: &ResourceCaller,
    resource: &DeclaredResource,
    target: &ResourceTarget,
    topics: &BTreeMap<String, TopicRecord>,
) -> Result<(), AdminError> {
    let id = resource.control_path().to_ascii_lowercase();
    match topics.iter().find(|(topic, _)| is_below(&id, topic)) {
        Some((_, topic)) if resource.kind == ResourceKind::Subscription => {
            target.check_subscription(caller, topic)
        }
        _ => Ok(()),
    }
}

/// Refuses a deployment with resources that are refused.
pub(super) fn check_previews(
    name: &str,
    declared: &Declared,
    previews: &[Preview],
) -> Result<(), DeploymentError> {
    let problems: Vec<ErrorDetail> = declared
        .resources
        .iter()
        .zip(previews)
        .filter_map(|(resource, preview)| problem_of(declared, resource, preview))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(DeploymentError::Resources {
        name: name.to_owned(),
        problems,
    })
}

fn problem_of(
    declared: &Declared,
    resource: &DeclaredResource,
    preview: &Preview,
) -> Option<ErrorDetail> {
    let Preview::Refused(error) = preview else {
        return None;
    };
    let message = format!("The {}: {error}", resource.display_name());
    Some(ErrorDetail {
        code: error.error_code().to_owned(),
        message: hide_secrets(message, &declared.template.secrets),
    })
}

/// The resources of the group, which may not be in the template.
pub(super) struct OtherResources {
    /// Resources that the deployment would delete.
    pub(super) deletions: Vec<WhatIfChange>,
    pub(super) existing: Vec<String>,
}

pub(super) async fn preview_deletions(
    caller: &ResourceCaller,
    ids: Vec<String>,
    only_ids: bool,
) -> Vec<WhatIfChange> {
    let mut changes = Vec::new();
    for id in ids {
        let mut change = plain_change(&id, "Delete");
        if let Some(target) = ResourceTarget::deletion(&id).ok().filter(|_| !only_ids) {
            change.before = target.current(caller).await;
        }
        changes.push(change);
    }
    changes
}

/// The changes that the deployment would make, and the resources of the group that it leaves alone.
pub(super) fn preview_result(
    declared: &Declared,
    previews: Vec<Preview>,
    others: OtherResources,
    only_ids: bool,
) -> WhatIfResult {
    let secrets = &declared.template.secrets;
    let mut changes = Vec::new();
    let mut named: BTreeSet<String> = BTreeSet::new();
    for (resource, preview) in declared.resources.iter().zip(previews) {
        let id = resource.control_path();
        named.insert(id.to_ascii_lowercase());
        let Preview::Compared {
            exists,
            changes: values,
            before,
        } = preview
        else {
            continue;
        };
        let change_type = match (exists, values.is_empty()) {
            (false, _) => "Create",
            (true, false) => "Modify",
            (true, true) => "NoChange",
        };
        let mut change = plain_change(&id, change_type);
        if !only_ids {
            change.after = Some(match (&before, exists) {
                (Some(before), true) => changed(before, &values),
                _ => declared_resource(resource, &id),
            });
            change.before = before;
            change.delta = values
                .iter()
                .filter(|_| exists)
                .map(property_change)
                .collect();
        }
        changes.push(change);
    }
    for one in &declared.template.foreign {
        changes.push(unsupported(&one.id, &one.reason));
    }
    let pending = declared.template.pending.iter();
    for one in pending.filter(|one| one.owner.as_ref() == Some(&one.what)) {
        named.insert(one.what.to_ascii_lowercase());
        changes.push(unsupported(&one.what, NEEDS_STATE));
    }
    for deletion in others.deletions {
        named.insert(deletion.resource_id.to_ascii_lowercase());
        changes.push(deletion);
    }
    let ignored = others
        .existing
        .iter()
        .filter(|id| !named.contains(&id.to_ascii_lowercase()));
    changes.extend(ignored.map(|id| plain_change(id, "Ignore")));
    let properties = WhatIfResultProperties { changes };
    WhatIfResult {
        status: "Succeeded".to_owned(),
        error: None,
        properties: Some(hide_in(properties, secrets)),
    }
}

/// The changes without the values of secure parameters.
fn hide_in(properties: WhatIfResultProperties, secrets: &[String]) -> WhatIfResultProperties {
    if secrets.is_empty() {
        return properties;
    }
    let text = crate::model::value_of(&properties).to_string();
    serde_json::from_str(&hide_secrets(text, secrets)).unwrap_or(WhatIfResultProperties {
        changes: Vec::new(),
    })
}

fn plain_change(id: &str, change_type: &str) -> WhatIfChange {
    WhatIfChange {
        resource_id: id.to_owned(),
        change_type: change_type.to_owned(),
        unsupported_reason: None,
        before: None,
        after: None,
        delta: Vec::new(),
    }
}

fn unsupported(id: &str, reason: &str) -> WhatIfChange {
    WhatIfChange {
        unsupported_reason: Some(reason.to_owned()),
        ..plain_change(id, "Unsupported")
    }
}

/// A resource as the template declares it.
fn declared_resource(resource: &DeclaredResource, id: &str) -> Value {
    let mut body = resource.body.clone();
    body["id"] = id.into();
    body["name"] = resource.names.last().cloned().into();
    body["type"] = crate::model::deployment::resource_type(id).into();
    // Requirement of clients that print it.
    body["apiVersion"] = json!("2025-02-15");
    hide_queries(&mut body);
    body
}

/// Hides the queries of endpoints, which may have a secret, as in responses.
fn hide_queries(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(url)) = object.get_mut("endpointUrl")
                && let Some((base, _)) = url.split_once('?')
            {
                *url = format!("{base}?[hidden]");
            }
            object.values_mut().for_each(hide_queries);
        }
        Value::Array(list) => list.iter_mut().for_each(hide_queries),
        _ => {}
    }
}

/// A resource with these changes.
fn changed(before: &Value, changes: &[ValueChange]) -> Value {
    let mut after = before.clone();
    for change in changes {
        set_value(&mut after, &change.at, change.after.clone());
    }
    after
}

fn set_value(target: &mut Value, at: &str, value: Value) {
    let mut place = target;
    let (parents, last) = at.rsplit_once('.').unwrap_or(("", at));
    for key in parents.split('.').filter(|key| !key.is_empty()) {
        if !place[key].is_object() {
            place[key] = json!({});
        }
        place = &mut place[key];
    }
    place[last] = value;
}

fn property_change(change: &ValueChange) -> WhatIfPropertyChange {
    let kind = match (&change.before, &change.after) {
        (Value::Null, _) => "Create",
        (_, Value::Null) => "Delete",
        _ => "Modify",
    };
    let given = |value: &Value| (!value.is_null()).then(|| value.clone());
    WhatIfPropertyChange {
        path: change.at.clone(),
        property_change_type: kind.to_owned(),
        before: given(&change.before),
        after: given(&change.after),
    }
}
