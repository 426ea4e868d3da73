//! Operations on domain topics, which have no settable properties.

use crate::{AdminResult, respond_json, respond_nothing};
use actix_web::HttpResponse;
use tracing::info;

use super::{Call, Input, TopicPath, check_seen, find_topic, list::PageRequest, not_found};
use crate::model::domain_topic::domain_topic_view;
use crate::{
    Control,
    model::{domain_topic, value_of},
    shares,
};
use gridhook_api::what_if::Difference;
use gridhook_event::Name;
use gridhook_record::topic::DomainTopic;

pub(super) fn list(call: Call<'_>, path: &TopicPath) -> AdminResult {
    let control = call.control;
    let page = PageRequest::from_request(call.request, control)?;
    let permissions = call.permissions;
    let domain = find_topic(control, path)?;
    check_seen(control, permissions, &domain, path)?;
    let record = domain.record();
    let id = record.resource_id();
    let mut topics = domain.domain_topics();
    topics.retain(|topic| permissions.sees_topic(control, &record, Some(topic.name.as_str())));
    let topics = topics
        .into_iter()
        .map(|topic| (topic.name.key(), topic))
        .collect();
    let view = |topic: &DomainTopic| value_of(&domain_topic_view(&id, topic));
    Ok(page.into_response(topics, |topic| topic.name.as_str(), view))
}

pub(super) fn get(control: &Control, path: &TopicPath) -> AdminResult {
    let domain = find_topic(control, path)?;
    let name = domain_topic_name(path)?;
    let topic = domain
        .domain_topic(name.as_str())
        .ok_or_else(|| not_found(path))?;
    respond_json(&domain_topic_view(&domain.record().resource_id(), &topic))
}

/// The changes that a PUT would make: only whether the domain topic exists.
pub(super) fn difference(input: Input<'_>, path: &TopicPath) -> AdminResult<Difference> {
    let name = domain_topic_name(path)?;
    domain_topic::check_put(name, input.body)?;
    let exists = find_topic(input.control, path)?
        .domain_topic(name.as_str())
        .is_some();
    Ok(Difference {
        exists,
        ..Difference::default()
    })
}

pub(super) async fn put(input: Input<'_>, path: &TopicPath) -> AdminResult {
    let name = domain_topic_name(path)?;
    domain_topic::check_put(name, input.body)?;
    let domain = find_topic(input.control, path)?;
    let existing = domain.domain_topic(name.as_str());
    if existing.is_none() {
        shares::check_new_domain_topic(input.control, input.permissions, &domain)?;
    }
    let system_data = input.control.stamp_change(
        input.caller,
        existing
            .as_ref()
            .map(|existing| existing.system_data.as_ref()),
    );
    let saved = DomainTopic {
        name: name.clone(),
        system_data,
    };
    input.plan_audit(&domain_topic_view(&domain.record().resource_id(), &saved));
    let saved = input
        .control
        .registry
        .put_domain_topic(&path.topic_key(), saved)
        .await?;
    info!(domain = %path.name, topic = %saved.name, "domain topic saved");
    Ok(HttpResponse::Created().json(domain_topic_view(&domain.record().resource_id(), &saved)))
}

pub(super) async fn delete(control: &Control, path: &TopicPath) -> AdminResult {
    let name = domain_topic_name(path)?;
    find_topic(control, path)?;
    if control
        .registry
        .delete_domain_topic(&path.topic_key(), name.as_str())
        .await?
    {
        info!(domain = %path.name, topic = %name, "domain topic deleted");
    }
    respond_nothing()
}

fn domain_topic_name(path: &TopicPath) -> AdminResult<&Name> {
    path.domain_topic.as_ref().ok_or_else(|| not_found(path))
}
