//! Operations on namespaces and their keys.

use std::sync::Arc;

use actix_web::HttpResponse;
use tracing::info;

use super::{
    Call,
    list::PageRequest,
    path::NamespacePath,
    topics::{assign_identity, is_in, is_in_scope, keys_response, new_keys, replace_key},
};
use crate::{
    AdminError, AdminResult, Control,
    model::{
        difference::difference_between,
        namespace::{NamespaceSpec, namespace_view, settable_json},
        topic::KeyName,
        value_of,
    },
    respond_json, respond_nothing, shares,
};
use gridhook_api::what_if::Difference;
use gridhook_event::Name;
use gridhook_record::namespace::NamespaceRecord;

/// The namespace of a path, if the scope matches.
pub(super) fn find_namespace(
    control: &Control,
    path: &NamespacePath,
) -> AdminResult<Arc<NamespaceRecord>> {
    let namespace = control
        .registry
        .find_namespace(path.name.as_str())
        .filter(|found| is_in_scope(&found.scope, &path.scope));
    namespace.ok_or_else(|| no_namespace(path))
}

/// The error for a missing namespace.
pub(super) fn no_namespace(path: &NamespacePath) -> AdminError {
    AdminError::NotFound(format!(
        "The Resource 'Microsoft.EventGrid/namespaces/{}' under resource group '{}' was not found.",
        path.name, path.scope.resource_group
    ))
}

/// Key of the lock of changes of a namespace and its topics.
pub(crate) fn lock_key(name: &Name) -> String {
    format!("namespace:{}", name.key())
}

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let scope = call.path.azure_scope()?;
    let page = PageRequest::from_call(call)?;
    let mut records = control.registry.list_namespaces();
    records
        .retain(|record| is_in(&record.scope, &scope) && call.permissions.sees_namespace(record));
    let by_key = records
        .into_iter()
        .map(|record| (record.key(), record))
        .collect();
    let view =
        |record: &Arc<NamespaceRecord>| value_of(&namespace_view(record, &control.public_url));
    Ok(page.into_response(by_key, |record| record.name.as_str(), view))
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let record = find_namespace(call.control, &call.path.namespace()?)?;
    respond_json(&namespace_view(&record, &call.control.public_url))
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let (existing, mut record) = planned_change(call)?;
    let before = existing.as_ref().map(|existing| &existing.system_data);
    record.system_data = call.stamp_change(before);
    let namespace = save_and_view(call, record).await?;
    Ok(HttpResponse::Created().json(namespace_view(&namespace, &control.public_url)))
}

/// The changes that a PUT would make.
pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let (existing, requested) = planned_change(call)?;
    Ok(difference_between(
        existing.map(|existing| settable_json(&existing)).as_ref(),
        &settable_json(&requested),
    ))
}

/// The existing record, and the record after a PUT.
fn planned_change(call: Call<'_>) -> AdminResult<(Option<Arc<NamespaceRecord>>, NamespaceRecord)> {
    let path = call.path.namespace()?;
    let spec = NamespaceSpec::from_put(path.name.as_str(), call.body)?;
    match call.control.registry.find_namespace(path.name.as_str()) {
        Some(existing) if !is_in_scope(&existing.scope, &path.scope) => {
            Err(AdminError::Conflict(format!(
                "The name '{}' is taken: names of namespaces are unique in the server, and {} \
                 exists.",
                path.name,
                existing.resource_id()
            )))
        }
        Some(existing) => {
            let record = with_identity(spec.update_record(&existing), Some(&existing));
            Ok((Some(existing), record))
        }
        None => {
            shares::check_new_namespace(call)?;
            let record = spec.create_record(path.name.as_str(), path.scope, new_keys()?)?;
            Ok((None, with_identity(record, None)))
        }
    }
}

pub(super) async fn patch(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let existing = find_namespace(control, &call.path.namespace()?)?;
    let mut record = NamespaceSpec::from_patch(&existing, call.body)?.update_record(&existing);
    record.system_data = call.stamp_change(Some(&existing.system_data));
    let namespace = save_and_view(call, with_identity(record, Some(&existing))).await?;
    respond_json(&namespace_view(&namespace, &control.public_url))
}

fn with_identity(mut record: NamespaceRecord, before: Option<&NamespaceRecord>) -> NamespaceRecord {
    assign_identity(
        record.azure_properties.identity.as_mut(),
        before.and_then(|before| before.azure_properties.identity.as_ref()),
    );
    record
}

async fn save_and_view(
    call: Call<'_>,
    record: NamespaceRecord,
) -> AdminResult<Arc<NamespaceRecord>> {
    call.plan_audit(&namespace_view(&record, &call.control.public_url));
    store_record(call.control, record).await
}

async fn store_record(
    control: &Control,
    record: NamespaceRecord,
) -> AdminResult<Arc<NamespaceRecord>> {
    let saved = control.registry.put_namespace(record).await?;
    info!(namespace = saved.key(), "namespace saved");
    Ok(saved)
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    delete_namespace(call.control, &call.path.namespace()?).await?;
    respond_nothing()
}

/// Deletes a namespace. One under another scope is another resource, and DELETE of a missing
/// resource is 204.
pub(super) async fn delete_namespace(control: &Control, path: &NamespacePath) -> AdminResult<()> {
    let name = &path.name;
    let exists = find_namespace(control, path).is_ok();
    if exists && control.registry.delete_namespace(name.as_str()).await? {
        info!(namespace = name.key(), "namespace and its topics deleted");
    }
    Ok(())
}

pub(super) async fn list_keys(call: Call<'_>) -> AdminResult {
    let record = find_namespace(call.control, &call.path.namespace()?)?;
    Ok(keys_response(&record.keys))
}

pub(super) async fn regenerate_key(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let path = call.path.namespace()?;
    let key = KeyName::read(call.body)?;
    let _lock = control.lock_topic(&lock_key(&path.name)).await;
    let mut record = NamespaceRecord::clone(&*find_namespace(control, &path)?);
    replace_key(&mut record.keys, key)?;
    record.system_data = call.stamp_change(Some(&record.system_data));
    let saved = store_record(control, record).await?;
    info!(namespace = saved.key(), ?key, "access key replaced");
    Ok(keys_response(&saved.keys))
}
