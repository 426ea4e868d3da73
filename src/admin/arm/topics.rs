//! Operations on topics, domains and namespace topics, and their keys.

use std::sync::Arc;

use actix_web::{HttpResponse, HttpResponseBuilder};
use base64::engine::general_purpose::STANDARD;
use tracing::info;
use uuid::Uuid;

use super::{
    Call, TopicPath,
    list::PageRequest,
    namespaces::{find_namespace, no_namespace},
    path::{AzureScope, NamespacePath},
};
use crate::{
    AdminError, AdminResult, Control,
    model::{
        difference::difference_between,
        namespace::topic::{check_retention, namespace_topic_view},
        provider, refuse_value, subscription,
        topic::{KeyName, TopicSpec, settable_json, topic_view},
        value_of,
    },
    random::random_text,
    respond_json, respond_nothing, shares,
};
use gridhook_api::{resource::Page, topic::SharedAccessKeys, what_if::Difference};
use gridhook_compute::Meter;
use gridhook_engine::control::{
    catalogue::{self, InvalidCatalogue},
    registry::TopicHandle,
};
use gridhook_record::{
    azure_properties::Identity,
    namespace::NamespaceRecord,
    topic::{AccessKeys, ArmScope, TopicRecord},
};

/// 256 bits, as in Azure.
const KEY_BYTES: usize = 32;

/// Compares scopes without case, as ARM does.
pub(super) fn is_in_scope(of: &ArmScope, scope: &ArmScope) -> bool {
    is_same(&of.subscription, &scope.subscription)
        && is_same(&of.resource_group, &scope.resource_group)
}

pub(super) fn is_in(resource: &ArmScope, scope: &AzureScope) -> bool {
    is_same(&resource.subscription, &scope.subscription)
        && scope
            .resource_group
            .as_ref()
            .is_none_or(|group| is_same(&resource.resource_group, group))
}

fn is_same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let scope = call.path.azure_scope()?;
    let kind = call.path.route.kind;
    let page = PageRequest::from_call(call)?;
    let mut records: Vec<Arc<TopicRecord>> = control
        .registry
        .list_topics()
        .iter()
        .map(|topic| topic.record())
        .collect();
    let permissions = call.permissions;
    records.retain(|record| {
        record.kind() == kind
            && is_in(&record.scope, &scope)
            && permissions.sees_topic(control, record, None)
    });
    let by_key = records
        .into_iter()
        .map(|record| (record.key(), record))
        .collect();
    let view = |record: &Arc<TopicRecord>| value_of(&topic_view(record, &control.public_url));
    Ok(page.into_response(by_key, |record| record.name.as_str(), view))
}

pub(super) async fn list_in_namespace(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let path = call.path.namespace()?;
    let page = PageRequest::from_call(call)?;
    let permissions = call.permissions;
    let namespace = find_namespace(control, &path)?;
    let topics = control.registry.namespace_topics(namespace.name.as_str());
    let is_seen = |topic: &Arc<TopicHandle>| permissions.sees_any(control, topic, None);
    if !permissions.sees_namespace(&namespace) && !topics.iter().any(is_seen) {
        return Err(no_namespace(&path));
    }
    let visible = topics
        .iter()
        .map(|topic| topic.record())
        .filter(|record| permissions.sees_topic(control, record, None));
    let keyed = visible.map(|record| (record.key(), record)).collect();
    let view = |record: &Arc<TopicRecord>| value_of(&namespace_topic_view(record));
    Ok(page.into_response(keyed, |record| record.name.as_str(), view))
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let record = call.find_topic()?.record();
    Ok(topic_response(call.control, HttpResponse::Ok(), &record))
}

fn topic_response(
    control: &Control,
    mut response: HttpResponseBuilder,
    record: &TopicRecord,
) -> HttpResponse {
    match record.namespace {
        Some(_) => response.json(namespace_topic_view(record)),
        None => response.json(topic_view(record, &control.public_url)),
    }
}

/// The namespace of a namespace topic, which must exist.
fn namespace_above(
    control: &Control,
    path: &TopicPath,
) -> AdminResult<Option<Arc<NamespaceRecord>>> {
    let above = path.namespace.clone().map(|name| NamespacePath {
        scope: path.scope.clone(),
        name,
    });
    above
        .map(|above| find_namespace(control, &above))
        .transpose()
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let (existing, mut planned) = planned_change(call)?;
    let before = existing.as_ref().map(|existing| &existing.system_data);
    planned.system_data = call.stamp_change(before);
    let saved = save_and_view(call, planned).await?;
    Ok(topic_response(
        call.control,
        HttpResponse::Created(),
        &saved,
    ))
}

/// The changes that a PUT would make.
pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let (existing, planned) = planned_change(call)?;
    check_event_types(call, &planned).await?;
    Ok(difference_between(
        existing.map(|existing| settable_json(&existing)).as_ref(),
        &settable_json(&planned),
    ))
}

/// The existing record of a topic or domain, and the record after a PUT.
pub(super) fn planned_change(
    call: Call<'_>,
) -> AdminResult<(Option<Arc<TopicRecord>>, TopicRecord)> {
    let control = call.control;
    let path = call.path.topic()?;
    let name = path.name.as_str();
    let mut requested = TopicSpec::from_put(path.kind, name, call.body)?;
    let namespace = namespace_above(control, &path)?;
    let Some(topic) = control.registry.find_topic(&path.topic_key()) else {
        shares::check_new_topic(call)?;
        requested.check_partition_count(control.shard_count(), None)?;
        let keys = new_keys()?;
        let editions = &control.editions;
        let new = match namespace {
            Some(namespace) => requested.create_in_namespace(name, &namespace, keys, editions)?,
            None => requested.create_record(name, path.scope.clone(), keys, editions)?,
        };
        let new = TopicRecord {
            metric_resource_id: Uuid::new_v4().to_string(),
            ..new
        };
        return Ok((None, with_identity(new, None)));
    };
    let existing = topic.record();
    if !is_in_scope(&existing.scope, &path.scope) {
        return Err(AdminError::Conflict(format!(
            "The name '{}' is taken: names of {} are unique in the server, and {} exists.",
            path.name,
            path.kind.path_segment(),
            existing.resource_id()
        )));
    }
    requested.keep_event_types(&existing);
    Ok((Some(existing), updated_record(control, &topic, requested)?))
}

pub(super) async fn patch(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let topic = call.find_topic()?;
    let requested = TopicSpec::from_patch(&topic.record(), call.body)?;
    let mut record = updated_record(control, &topic, requested)?;
    record.system_data = call.stamp_change(Some(&record.system_data));
    let saved = save_and_view(call, record).await?;
    // As in Azure.
    let response = if saved.namespace.is_some() {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    Ok(topic_response(control, response, &saved))
}

/// The record after the change. Another edition or a shorter retention is refused while an event
/// subscription exceeds its limits.
fn updated_record(
    control: &Control,
    topic: &TopicHandle,
    requested: TopicSpec,
) -> AdminResult<TopicRecord> {
    let existing = topic.record();
    requested.check_partition_count(control.shard_count(), Some(&existing))?;
    let record = requested.update_record(&existing, &control.editions)?;
    let is_other = record.edition != existing.edition;
    let ranges = is_other
        .then(|| control.editions.edition_ranges(&record.edition))
        .transpose()?;
    let plan = control
        .registry
        .all_provisioned(topic)
        .into_iter()
        .map(|planned| planned.record);
    for subscription in topic.list_subscriptions().into_iter().chain(plan) {
        if record.namespace.is_some() {
            check_retention(&subscription, &record)?;
        }
        ranges.map_or(Ok(()), |ranges| {
            subscription::check_limits(&subscription, ranges)
        })?;
    }
    Ok(with_identity(record, Some(&existing)))
}

/// Sets the principal id of a system-assigned identity, and keeps it as long as the identity
/// exists.
fn with_identity(mut record: TopicRecord, before: Option<&TopicRecord>) -> TopicRecord {
    assign_identity(
        record.azure_properties.identity.as_mut(),
        before.and_then(|before| before.azure_properties.identity.as_ref()),
    );
    record
}

pub(super) fn assign_identity(requested: Option<&mut Identity>, before: Option<&Identity>) {
    if let Some(identity) = requested.filter(|identity| identity.kind.has_system()) {
        let known = before.and_then(|before| before.principal_id.clone());
        identity.principal_id = Some(known.unwrap_or_else(|| Uuid::new_v4().to_string()));
        identity.tenant_id = Some(Uuid::nil().to_string());
    }
}

/// Checks the event types of a topic if they are new. Schemas are compiled and tried with their
/// examples.
pub(super) async fn check_event_types(call: Call<'_>, planned: &TopicRecord) -> AdminResult<()> {
    let Some(info) = &planned.azure_properties.event_type_info else {
        return Ok(());
    };
    let existing = call
        .control
        .registry
        .find_topic(&planned.key())
        .map(|topic| topic.record());
    if existing
        .is_some_and(|existing| existing.azure_properties.event_type_info.as_ref() == Some(info))
    {
        return Ok(());
    }
    let info = info.clone();
    let check = |meter: Meter| async move { catalogue::check_in_slices(&info, &meter).await };
    match call.compute(check).await?? {
        Ok(()) => Ok(()),
        Err(InvalidCatalogue { at, problem }) => {
            let dot = if at.is_empty() { "" } else { "." };
            refuse_value(
                format!("properties.eventTypeInfo.inlineEventTypes{dot}{at}"),
                problem,
            )
        }
    }
}

async fn save_and_view(call: Call<'_>, record: TopicRecord) -> AdminResult<Arc<TopicRecord>> {
    check_event_types(call, &record).await?;
    match record.namespace {
        Some(_) => call.plan_audit(&namespace_topic_view(&record)),
        None => call.plan_audit(&topic_view(&record, &call.control.public_url)),
    }
    store_record(call.control, record).await
}

pub(super) async fn store_record(
    control: &Control,
    record: TopicRecord,
) -> AdminResult<Arc<TopicRecord>> {
    let saved = control.registry.put_topic(record).await?.record();
    info!(topic = saved.key(), edition = saved.edition, "topic saved");
    Ok(saved)
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let path = call.path.topic()?;
    delete_topic(call.control, &path.topic_key(), &path.scope).await?;
    respond_nothing()
}

/// Deletes a topic or a domain. One under another scope is another resource, and DELETE of a
/// missing resource is 204.
pub(super) async fn delete_topic(
    control: &Control,
    key: &str,
    scope: &ArmScope,
) -> AdminResult<()> {
    let topic = control.registry.find_topic(key);
    let exists = topic.is_some_and(|topic| is_in_scope(&topic.record().scope, scope));
    if exists && control.registry.delete_topic(key).await? {
        info!(topic = key, "topic deleted");
    }
    Ok(())
}

pub(super) fn keys_response(keys: &AccessKeys) -> HttpResponse {
    HttpResponse::Ok().json(SharedAccessKeys {
        key1: keys.key1.clone(),
        key2: keys.key2.clone(),
    })
}

pub(super) async fn list_keys(call: Call<'_>) -> AdminResult {
    Ok(keys_response(&call.find_topic()?.record().keys))
}

pub(super) async fn regenerate_key(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let key = KeyName::read(call.body)?;
    let _lock = control.lock_topic(&call.path.topic()?.topic_key()).await;
    let mut record = TopicRecord::clone(&call.find_topic()?.record());
    replace_key(&mut record.keys, key)?;
    record.system_data = call.stamp_change(Some(&record.system_data));
    let saved = control.registry.put_topic(record).await?.record();
    info!(topic = saved.key(), ?key, "access key replaced");
    Ok(keys_response(&saved.keys))
}

pub(super) async fn event_types(call: Call<'_>) -> AdminResult {
    let value = provider::event_types(&call.find_topic()?.record());
    respond_json(&Page::whole(value))
}

/// Always empty: the address of the listener determines who can connect.
pub(super) async fn private_endpoint_connections(call: Call<'_>) -> AdminResult {
    call.find_topic()?;
    respond_json(&Page::<()>::whole(Vec::new()))
}

pub(super) fn replace_key(keys: &mut AccessKeys, key: KeyName) -> AdminResult<()> {
    let fresh = random_text(KEY_BYTES, &STANDARD)?;
    match key {
        KeyName::Key1 => keys.key1 = fresh,
        KeyName::Key2 => keys.key2 = fresh,
    }
    Ok(())
}

pub(super) fn new_keys() -> AdminResult<AccessKeys> {
    Ok(AccessKeys {
        key1: random_text(KEY_BYTES, &STANDARD)?,
        key2: random_text(KEY_BYTES, &STANDARD)?,
    })
}
