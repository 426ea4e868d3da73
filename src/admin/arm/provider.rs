//! What is asked of the provider itself, not of a resource.

use actix_web::HttpResponse;

use super::List;
use crate::admin::{
    Error,
    model::provider::{self, TopicType},
};

pub(super) fn operations() -> HttpResponse {
    HttpResponse::Ok().json(List { value: provider::operations() })
}

pub(super) fn topic_types() -> HttpResponse {
    HttpResponse::Ok().json(List { value: provider::topic_types() })
}

pub(super) fn topic_type(name: &str) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::Ok().json(known(name)?))
}

pub(super) fn event_types(name: &str) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::Ok().json(List { value: provider::event_types_of(known(name)?.name) }))
}

fn known(name: &str) -> Result<TopicType, Error> {
    let known = provider::topic_types().into_iter().find(|known| known.name.eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        let names: Vec<_> = provider::topic_types().iter().map(|known| known.name).collect();
        Error::NotFound(format!("There is no topic type '{name}'; there are {}.", names.join(" and ")))
    })
}
