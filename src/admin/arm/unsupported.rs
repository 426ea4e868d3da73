//! Event Grid's resource types that this server does not support: none exists, and none can be
//! created.

use crate::AdminResult;
use crate::model::refuse_value;
use actix_web::HttpResponse;

use super::path::ArmPath;
use crate::AdminError;
use gridhook_api::resource::Page;

pub(super) fn list() -> HttpResponse {
    HttpResponse::Ok().json(Page::<()>::whole(Vec::new()))
}

pub(super) fn get(path: &ArmPath) -> AdminResult {
    let resource = path.route.resource;
    let name = path.last_name();
    Err(AdminError::NotFound(format!(
        "The Resource 'Microsoft.EventGrid/{resource}/{name}' was not found."
    )))
}

pub(super) fn delete() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

pub(super) fn refuse<T>(path: &ArmPath) -> AdminResult<T> {
    let allowed = "expected a topic, a domain, a namespace or an event subscription";
    let resource = path.route.resource;
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
