//! Operations on namespaces and their keys.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use tracing::info;

use super::{
    Call, Input, Permissions,
    list::PageRequest,
    path::{AzureScope, NamespacePath},
    topics::{identify, is_in, is_in_scope, keys_response, new_keys, regenerate},
};
use crate::model::difference::difference_between;
use crate::model::namespace::namespace_view;
use crate::{
    AdminError, Control,
    model::{
        namespace::{NamespaceSpec, set},
        topic::KeyName,
        value_of,
    },
    shares,
};
use gridhook_api::what_if::Difference;
use gridhook_event::Name;
use gridhook_record::namespace::NamespaceRecord;

/// The namespace of a path, if the scope matches.
pub(super) fn namespace(
    control: &Control,
    path: &NamespacePath,
) -> Result<Arc<NamespaceRecord>, AdminError> {
    let found = control
        .registry
        .find_namespace(path.name.as_str())
        .filter(|found| is_in_scope(&found.scope, &path.scope));
    found.ok_or_else(|| no_namespace(path))
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

pub(super) fn list(
    control: &Control,
    request: &HttpRequest,
    scope: &AzureScope,
) -> Result<HttpResponse, AdminError> {
    let page = PageRequest::of(request, control)?;
    let mut records = control.registry.list_namespaces();
    let permissions = Permissions::of(request)?;
    records.retain(|record| is_in(&record.scope, scope) && permissions.sees_namespace(record));
    let keyed = records
        .into_iter()
        .map(|record| (record.key(), record))
        .collect();
    let view =
        |record: &Arc<NamespaceRecord>| value_of(&namespace_view(record, &control.public_url));
    Ok(page.answer(keyed, |record| record.name.as_str(), view))
}

pub(super) fn get(control: &Control, path: &NamespacePath) -> Result<HttpResponse, AdminError> {
    Ok(HttpResponse::Ok().json(namespace_view(
        &*namespace(control, path)?,
        &control.public_url,
    )))
}

pub(super) async fn put(input: Input<'_>, path: NamespacePath) -> Result<HttpResponse, AdminError> {
    let control = input.control;
    let (existing, mut record) = planned_change(input, path)?;
    record.system_data = control.stamp(
        input.caller,
        existing
            .as_ref()
            .map(|existing| existing.system_data.as_ref()),
    );
    let saved = save(input, record).await?;
    Ok(HttpResponse::Created().json(namespace_view(&saved, &control.public_url)))
}

/// The changes that a PUT would make.
pub(super) fn difference(input: Input<'_>, path: NamespacePath) -> Result<Difference, AdminError> {
    let (existing, requested) = planned_change(input, path)?;
    Ok(difference_between(
        existing.map(|existing| set(&existing)).as_ref(),
        &set(&requested),
    ))
}

/// The existing record, and the record after a PUT.
fn planned_change(
    input: Input<'_>,
    path: NamespacePath,
) -> Result<(Option<Arc<NamespaceRecord>>, NamespaceRecord), AdminError> {
    let spec = NamespaceSpec::put(path.name.as_str(), input.body)?;
    match input.control.registry.find_namespace(path.name.as_str()) {
        Some(existing) if !is_in_scope(&existing.scope, &path.scope) => {
            Err(AdminError::Conflict(format!(
                "The name '{}' is taken: names of namespaces are unique in the server, and {} \
                 exists.",
                path.name,
                existing.resource_id()
            )))
        }
        Some(existing) => {
            let record = identified(spec.update(&existing), Some(&existing));
            Ok((Some(existing), record))
        }
        None => {
            shares::check_new_namespace(input.control, input.permissions)?;
            Ok((
                None,
                identified(
                    spec.create(path.name.as_str(), path.scope, new_keys()?)?,
                    None,
                ),
            ))
        }
    }
}

pub(super) async fn patch(
    call: Call<'_>,
    path: &NamespacePath,
) -> Result<HttpResponse, AdminError> {
    let control = call.control;
    let existing = namespace(control, path)?;
    let mut record = NamespaceSpec::patch(&existing, call.body)?.update(&existing);
    record.system_data = control.stamp(call.caller, Some(existing.system_data.as_ref()));
    let saved = save(call.input, identified(record, Some(&existing))).await?;
    Ok(HttpResponse::Ok().json(namespace_view(&saved, &control.public_url)))
}

fn identified(mut record: NamespaceRecord, before: Option<&NamespaceRecord>) -> NamespaceRecord {
    identify(
        record.azure_properties.identity.as_mut(),
        before.and_then(|before| before.azure_properties.identity.as_ref()),
    );
    record
}

async fn save(
    input: Input<'_>,
    record: NamespaceRecord,
) -> Result<Arc<NamespaceRecord>, AdminError> {
    input.plan_audit(&namespace_view(&record, &input.control.public_url));
    store(input.control, record).await
}

async fn store(
    control: &Control,
    record: NamespaceRecord,
) -> Result<Arc<NamespaceRecord>, AdminError> {
    let saved = control.registry.put_namespace(record).await?;
    info!(namespace = saved.key(), "namespace saved");
    Ok(saved)
}

pub(super) async fn delete(
    control: &Control,
    path: &NamespacePath,
) -> Result<HttpResponse, AdminError> {
    // A resource under another scope is another resource, and DELETE of a missing resource is 204.
    if namespace(control, path).is_err() {
        return Ok(HttpResponse::NoContent().finish());
    }
    // The other shards delete theirs first, so that no shard takes events of a topic that does not
    // exist.
    let _leaving = control.delete_followers_of_namespace(&path.name).await?;
    if control
        .registry
        .delete_namespace(path.name.as_str())
        .await?
    {
        info!(
            namespace = path.name.key(),
            "namespace and its topics deleted"
        );
    }
    Ok(HttpResponse::NoContent().finish())
}

pub(super) fn list_keys(
    control: &Control,
    path: &NamespacePath,
) -> Result<HttpResponse, AdminError> {
    Ok(keys_response(&namespace(control, path)?.keys))
}

pub(super) async fn regenerate_key(
    call: Call<'_>,
    path: &NamespacePath,
) -> Result<HttpResponse, AdminError> {
    let control = call.control;
    let key = KeyName::read(call.body)?;
    let _lock = control.lock(&lock_key(&path.name)).await;
    let mut record = NamespaceRecord::clone(&*namespace(control, path)?);
    regenerate(&mut record.keys, key)?;
    record.system_data = control.stamp(call.caller, Some(record.system_data.as_ref()));
    let saved = store(control, record).await?;
    info!(namespace = saved.key(), ?key, "access key replaced");
    Ok(keys_response(&saved.keys))
}
