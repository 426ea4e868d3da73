//! Operations on the event types of a topic, a domain or a namespace topic. They are
//! `eventTypeInfo` of its record, one at a time.

use std::collections::BTreeMap;

use super::{
    Input, TopicPath, topic,
    topics::{check_event_types, store},
};
use crate::model::difference::difference_between;
use crate::{
    AdminError, Control,
    model::{parse, read, value_of},
};
use actix_web::HttpResponse;
use gridhook_api::{resource::Page, topic::DeclaredEventType, what_if::Difference};
use gridhook_record::{
    azure_properties::{EventTypeKind, InlineEventType},
    topic::{TopicKind, TopicRecord},
};

pub(crate) fn event_type_view(
    topic: &TopicRecord,
    name: &str,
    properties: &InlineEventType,
) -> DeclaredEventType {
    let kind = match topic.kind() {
        TopicKind::Topic => "Microsoft.EventGrid/topics/eventTypes",
        TopicKind::Domain => "Microsoft.EventGrid/domains/eventTypes",
        TopicKind::NamespaceTopic => "Microsoft.EventGrid/namespaces/topics/eventTypes",
    };
    let id = format!("{}/eventTypes/{name}", topic.resource_id());
    DeclaredEventType {
        id: id.into(),
        name: name.to_owned().into(),
        kind: kind.to_owned().into(),
        properties: properties.clone(),
    }
}

pub(super) fn list(control: &Control, path: &TopicPath) -> Result<HttpResponse, AdminError> {
    let record = topic(control, path)?.record();
    let types = declared(&record).map(|(name, declared)| event_type_view(&record, name, declared));
    Ok(HttpResponse::Ok().json(Page::whole(types.collect::<Vec<_>>())))
}

pub(super) fn get(
    control: &Control,
    path: &TopicPath,
    name: &str,
) -> Result<HttpResponse, AdminError> {
    let record = topic(control, path)?.record();
    let found = find(&record, name).ok_or_else(|| missing(&record, name))?;
    Ok(HttpResponse::Ok().json(event_type_view(&record, name, found)))
}

pub(super) async fn put(
    input: Input<'_>,
    path: &TopicPath,
    name: &str,
) -> Result<HttpResponse, AdminError> {
    let record = topic(input.control, path)?.record();
    let DeclaredEventType {
        properties: requested,
        ..
    } = read(parse(input.body)?)?;
    let record = changed(input, &record, |types| {
        types.insert(name.to_owned(), requested.clone());
    });
    let view = event_type_view(&record, name, &requested);
    check_event_types(input, &record).await?;
    input.plan_audit(&view);
    store(input.control, record).await?;
    Ok(HttpResponse::Created().json(view))
}

pub(super) async fn delete(
    input: Input<'_>,
    path: &TopicPath,
    name: &str,
) -> Result<HttpResponse, AdminError> {
    let record = topic(input.control, path)?.record();
    if find(&record, name).is_some() {
        let record = changed(input, &record, |types| {
            types.remove(name);
        });
        store(input.control, record).await?;
    }
    Ok(HttpResponse::NoContent().finish())
}

/// The changes that a PUT would make.
pub(super) async fn difference(
    input: Input<'_>,
    path: &TopicPath,
    name: &str,
) -> Result<Difference, AdminError> {
    let record = topic(input.control, path)?.record();
    let wrapped =
        |properties: &InlineEventType| serde_json::json!({"properties": value_of(properties)});
    let DeclaredEventType {
        properties: requested,
        ..
    } = read(parse(input.body)?)?;
    let planned = changed(input, &record, |types| {
        types.insert(name.to_owned(), requested.clone());
    });
    check_event_types(input, &planned).await?;
    Ok(difference_between(
        find(&record, name).map(wrapped).as_ref(),
        &wrapped(&requested),
    ))
}

/// The record with other event types.
fn changed(
    input: Input<'_>,
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
    record.system_data = input
        .control
        .stamp(input.caller, Some(record.system_data.as_ref()));
    record
}

fn declared(record: &TopicRecord) -> impl Iterator<Item = (&String, &InlineEventType)> {
    record
        .azure_properties
        .event_type_info
        .iter()
        .flat_map(|info| info.inline_event_types.iter().flatten())
}

fn find<'a>(record: &'a TopicRecord, name: &str) -> Option<&'a InlineEventType> {
    declared(record)
        .find(|(known, _)| *known == name)
        .map(|(_, declared)| declared)
}

fn missing(record: &TopicRecord, name: &str) -> AdminError {
    AdminError::NotFound(format!(
        "The event type '{name}' does not exist in {}.",
        record.resource_id()
    ))
}
