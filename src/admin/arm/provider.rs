//! Operations on the resource provider.

use super::Call;
use crate::{AdminError, AdminResult, model::provider, respond_json};
use gridhook_api::{provider::TopicType, resource::Page};

pub(super) async fn operations(_: Call<'_>) -> AdminResult {
    respond_json(&Page::whole(provider::list_operations()))
}

pub(super) async fn topic_types(_: Call<'_>) -> AdminResult {
    respond_json(&Page::whole(provider::topic_types()))
}

pub(super) async fn topic_type(call: Call<'_>) -> AdminResult {
    respond_json(&known_topic_type(call.path.name("topicTypeName")?)?)
}

pub(super) async fn event_types(call: Call<'_>) -> AdminResult {
    let topic_type = known_topic_type(call.path.name("topicTypeName")?)?;
    respond_json(&Page::whole(provider::event_types_of(&topic_type.name)))
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
