//! Operations on the event types of a topic, a domain or a namespace topic. They are
//! `eventTypeInfo` of its record, one at a time.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Call,
    topics::{check_event_types, store_record},
};
use crate::{
    AdminError, AdminResult,
    model::{difference::difference_between, value_of},
    respond_json, respond_nothing,
};
use actix_web::HttpResponse;
use gridhook_api::{resource::Page, topic::DeclaredEventType, what_if::Difference};
use gridhook_record::{
    azure_properties::{EventTypeKind, InlineEventType},
    topic::TopicRecord,
};

pub(crate) fn event_type_view(
    topic: &TopicRecord,
    name: &str,
    properties: &InlineEventType,
) -> DeclaredEventType {
    let kind = format!("{}/eventTypes", topic.kind().resource_type());
    let id = format!("{}/eventTypes/{name}", topic.resource_id());
    DeclaredEventType {
        id: id.into(),
        name: name.to_owned().into(),
        kind: kind.into(),
        properties: properties.clone(),
    }
}

/// The topic of a path with an event type, and the name of the event type.
fn event_type_of(call: Call<'_>) -> AdminResult<(Arc<TopicRecord>, &str)> {
    let record = call.find_topic()?.record();
    Ok((record, call.path.name("eventTypeName")?))
}

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let record = call.find_topic()?.record();
    let types =
        declared_types(&record).map(|(name, declared)| event_type_view(&record, name, declared));
    respond_json(&Page::whole(types.collect::<Vec<_>>()))
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let (record, name) = event_type_of(call)?;
    let event_type = find_type(&record, name).ok_or_else(|| no_such_type(&record, name))?;
    respond_json(&event_type_view(&record, name, event_type))
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let (record, name) = event_type_of(call)?;
    let DeclaredEventType {
        properties: requested,
        ..
    } = call.read_body()?;
    let record = with_event_types(call, &record, |types| {
        types.insert(name.to_owned(), requested.clone());
    });
    let view = event_type_view(&record, name, &requested);
    check_event_types(call, &record).await?;
    call.plan_audit(&view);
    store_record(call.control, record).await?;
    Ok(HttpResponse::Created().json(view))
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let (record, name) = event_type_of(call)?;
    if find_type(&record, name).is_some() {
        let record = with_event_types(call, &record, |types| {
            types.remove(name);
        });
        store_record(call.control, record).await?;
    }
    respond_nothing()
}

/// The changes that a PUT would make.
pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let (record, name) = event_type_of(call)?;
    let wrap =
        |properties: &InlineEventType| serde_json::json!({"properties": value_of(properties)});
    let DeclaredEventType {
        properties: requested,
        ..
    } = call.read_body()?;
    let plan = with_event_types(call, &record, |types| {
        types.insert(name.to_owned(), requested.clone());
    });
    check_event_types(call, &plan).await?;
    Ok(difference_between(
        find_type(&record, name).map(wrap).as_ref(),
        &wrap(&requested),
    ))
}

/// The record with other event types.
fn with_event_types(
    call: Call<'_>,
    record: &TopicRecord,
    change: impl FnOnce(&mut BTreeMap<String, InlineEventType>),
) -> TopicRecord {
    let mut record = record.clone();
    let mut info = record
        .azure_properties
        .event_type_info
        .take()
        .unwrap_or_default();
    info.kind = Some(EventTypeKind::Inline);
    change(info.inline_event_types.get_or_insert_default());
    record.azure_properties.event_type_info = Some(info);
    record.system_data = call.stamp_change(Some(&record.system_data));
    record
}

fn declared_types(record: &TopicRecord) -> impl Iterator<Item = (&String, &InlineEventType)> {
    record
        .azure_properties
        .event_type_info
        .iter()
        .flat_map(|info| info.inline_event_types.iter().flatten())
}

fn find_type<'a>(record: &'a TopicRecord, name: &str) -> Option<&'a InlineEventType> {
    declared_types(record)
        .find(|(known, _)| *known == name)
        .map(|(_, declared)| declared)
}

fn no_such_type(record: &TopicRecord, name: &str) -> AdminError {
    AdminError::NotFound(format!(
        "The event type '{name}' does not exist in {}.",
        record.resource_id()
    ))
}
