//! Operations on domain topics, which have no settable properties.

use actix_web::HttpResponse;
use tracing::info;

use super::{Call, list::PageRequest, not_found};
use crate::{
    AdminError, AdminResult,
    model::{
        domain_topic::{self, domain_topic_view},
        value_of,
    },
    respond_json, respond_nothing, shares,
};
use gridhook_api::what_if::Difference;
use gridhook_event::Name;
use gridhook_record::topic::DomainTopic;

pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let page = PageRequest::from_call(call)?;
    let domain = call.find_visible_topic()?;
    let record = domain.record();
    let id = record.resource_id();
    let mut topics = domain.domain_topics();
    topics.retain(|topic| {
        let name = Some(topic.name.as_str());
        call.permissions.sees_topic(call.control, &record, name)
    });
    let topics = topics
        .into_iter()
        .map(|topic| (topic.name.key(), topic))
        .collect();
    let view = |topic: &DomainTopic| value_of(&domain_topic_view(&id, topic));
    Ok(page.into_response(topics, |topic| topic.name.as_str(), view))
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let domain = call.find_topic()?;
    let topic = domain
        .domain_topic(domain_topic_name(call)?.as_str())
        .ok_or_else(|| no_domain_topic(call))?;
    respond_json(&domain_topic_view(&domain.record().resource_id(), &topic))
}

/// The changes that a PUT would make: only whether the domain topic exists.
pub(super) async fn difference(call: Call<'_>) -> AdminResult<Difference> {
    let name = domain_topic_name(call)?;
    domain_topic::check_put(&name, call.body)?;
    let exists = call.find_topic()?.domain_topic(name.as_str()).is_some();
    Ok(Difference {
        exists,
        ..Difference::default()
    })
}

pub(super) async fn put(call: Call<'_>) -> AdminResult {
    let name = domain_topic_name(call)?;
    domain_topic::check_put(&name, call.body)?;
    let domain = call.find_topic()?;
    let existing = domain.domain_topic(name.as_str());
    if existing.is_none() {
        shares::check_new_domain_topic(call, &domain)?;
    }
    let before = existing.as_ref().map(|existing| &existing.system_data);
    let system_data = call.stamp_change(before);
    let record = domain.record();
    let id = record.resource_id();
    let saved = DomainTopic { name, system_data };
    call.plan_audit(&domain_topic_view(&id, &saved));
    let registry = &call.control.registry;
    let saved = registry.put_domain_topic(&record.key(), saved).await?;
    info!(domain = %record.name, topic = %saved.name, "domain topic saved");
    Ok(HttpResponse::Created().json(domain_topic_view(&id, &saved)))
}

pub(super) async fn delete(call: Call<'_>) -> AdminResult {
    let name = domain_topic_name(call)?;
    let record = call.find_topic()?.record();
    let registry = &call.control.registry;
    if registry
        .delete_domain_topic(&record.key(), name.as_str())
        .await?
    {
        info!(domain = %record.name, topic = %name, "domain topic deleted");
    }
    respond_nothing()
}

fn domain_topic_name(call: Call<'_>) -> AdminResult<Name> {
    Ok(Name::new(call.path.name("domainTopicName")?))
}

fn no_domain_topic(call: Call<'_>) -> AdminError {
    call.path
        .topic()
        .map_or_else(|error| error, |path| not_found(&path))
}
