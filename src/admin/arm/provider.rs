//! Operations on the resource provider.

use crate::{AdminResult, respond_json};
use actix_web::HttpResponse;

use crate::{AdminError, model::provider};
use gridhook_api::{provider::TopicType, resource::Page};

pub(super) fn operations() -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(provider::list_operations()))
}

pub(super) fn topic_types() -> HttpResponse {
    HttpResponse::Ok().json(Page::whole(provider::topic_types()))
}

pub(super) fn topic_type(name: &str) -> AdminResult {
    respond_json(&known_topic_type(name)?)
}

pub(super) fn event_types(name: &str) -> AdminResult {
    respond_json(&Page::whole(provider::event_types_of(
        &known_topic_type(name)?.name,
    )))
}

fn known_topic_type(name: &str) -> AdminResult<TopicType> {
    let known = provider::topic_types()
        .into_iter()
        .find(|known| known.name.eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        let names: Vec<_> = provider::topic_types()
            .into_iter()
            .map(|known| known.name)
            .collect();
        AdminError::NotFound(format!(
            "There is no topic type '{name}'; expected {}.",
            names.join(" and ")
        ))
    })
}
