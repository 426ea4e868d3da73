//! Operations on namespace topics: list, get, put, patch. Deletion and keys are those of all topics.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use tracing::info;
use uuid::Uuid;

use super::{
    list::PageRequest,
    namespaces::namespace,
    not_found,
    path::{NamespacePath, TopicPath},
    topic,
    topics::new_keys,
};
use crate::{
    admin::{
        AdminError, Control,
        auth::AdminCaller,
        model::{
            namespace::topic::{NamespaceTopicSpec, NamespaceTopicView, fits, set},
            subscription, value_of,
        },
    },
    api::what_if::Difference,
    control::{record::topic::TopicRecord, registry::TopicHandle},
};

pub(super) fn list(control: &Control, request: &HttpRequest, path: &NamespacePath) -> Result<HttpResponse, AdminError> {
    let page = PageRequest::of(request, control)?;
    let topics = control.registry.namespace_topics(namespace(control, path)?.name.as_str());
    let keyed = topics.iter().map(|topic| topic.record()).map(|record| (record.key(), record)).collect();
    Ok(page.answer(
        keyed,
        |record: &Arc<TopicRecord>| record.name.as_str(),
        |record| value_of(&NamespaceTopicView::new(record)),
    ))
}

pub(super) fn get(control: &Control, path: &TopicPath) -> Result<HttpResponse, AdminError> {
    Ok(HttpResponse::Ok().json(NamespaceTopicView::new(&topic(control, path)?.record())))
}

pub(super) async fn put(
    control: &Control,
    caller: &AdminCaller,
    path: TopicPath,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    let (existing, mut planned) = planned_change(control, &path, body)?;
    planned.system_data = control.stamp(caller, existing.as_ref().map(|existing| existing.system_data.as_ref()));
    Ok(HttpResponse::Created().json(NamespaceTopicView::new(&*save(control, planned).await?)))
}

/// The changes that a PUT would make.
pub(super) fn difference(control: &Control, path: &TopicPath, body: &[u8]) -> Result<Difference, AdminError> {
    let (existing, planned) = planned_change(control, path, body)?;
    Ok(Difference::between(existing.map(|existing| set(&existing)).as_ref(), &set(&planned)))
}

/// The existing record, and the record after a PUT.
fn planned_change(
    control: &Control,
    path: &TopicPath,
    body: &[u8],
) -> Result<(Option<Arc<TopicRecord>>, TopicRecord), AdminError> {
    let spec = NamespaceTopicSpec::put(path.name.as_str(), body)?;
    let above = path.namespace.clone().ok_or_else(|| not_found(path))?;
    let namespace = namespace(control, &NamespacePath { scope: path.scope.clone(), name: above })?;
    match control.registry.topic(&path.key()) {
        Some(topic) => Ok((Some(topic.record()), update(control, &topic, spec)?)),
        None => {
            let new = spec.create(path.name.as_str(), &namespace, new_keys()?, &control.editions)?;
            Ok((None, TopicRecord { metric_resource_id: Uuid::new_v4().to_string(), ..new }))
        }
    }
}

pub(super) async fn patch(
    control: &Control,
    caller: &AdminCaller,
    path: &TopicPath,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    let topic = topic(control, path)?;
    let spec = NamespaceTopicSpec::patch(&topic.record(), body)?;
    let mut record = update(control, &topic, spec)?;
    record.system_data = control.stamp(caller, Some(record.system_data.as_ref()));
    Ok(HttpResponse::Ok().json(NamespaceTopicView::new(&*save(control, record).await?)))
}

/// A shorter retention or another edition is refused while an event subscription exceeds its limits.
fn update(control: &Control, topic: &TopicHandle, spec: NamespaceTopicSpec) -> Result<TopicRecord, AdminError> {
    let record = spec.update(&topic.record(), &control.editions)?;
    let ranges = control.editions.ranges(&record.edition)?;
    let planned = control.registry.all_provisioned(topic).into_iter().map(|planned| planned.record);
    for subscription in topic.subscriptions().into_iter().chain(planned) {
        fits(&subscription, &record)?;
        subscription::fits(&subscription, ranges)?;
    }
    Ok(record)
}

async fn save(control: &Control, record: TopicRecord) -> Result<Arc<TopicRecord>, AdminError> {
    let saved = control.registry.put_topic(record).await?.record();
    info!(topic = saved.key(), edition = saved.edition, "topic saved");
    Ok(saved)
}
