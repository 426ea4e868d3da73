//! Event Grid's resource types that this server does not support: none exists, and none can be
//! created.

use super::Call;
use crate::{AdminError, AdminResult, model::refuse_value, respond_json, respond_nothing};
use gridhook_api::resource::Page;

pub(super) async fn list(_: Call<'_>) -> AdminResult {
    respond_json(&Page::<()>::whole(Vec::new()))
}

pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let resource = call.path.route.resource;
    let name = call.path.last_name();
    Err(AdminError::NotFound(format!(
        "The Resource 'Microsoft.EventGrid/{resource}/{name}' was not found."
    )))
}

pub(super) async fn delete(_: Call<'_>) -> AdminResult {
    respond_nothing()
}

pub(super) async fn refuse<T>(call: Call<'_>) -> AdminResult<T> {
    let allowed = "expected a topic, a domain, a namespace or an event subscription";
    let resource = call.path.route.resource;
    let reason = if resource == "systemTopics" {
        "services of Azure publish no events here"
    } else {
        "there are no partners"
    };
    let problem = format!(
        "is \"Microsoft.EventGrid/{resource}\", which is not supported: {reason}; {allowed}"
    );
    refuse_value("type", problem)
}
