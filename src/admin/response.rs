//! Results of handlers, and the responses that most of them send.

use actix_web::HttpResponse;
use serde::Serialize;

use super::AdminError;

/// The result of a handler, or of a part of one.
pub(crate) type AdminResult<T = HttpResponse> = Result<T, AdminError>;

/// Responds with 200 and a JSON body.
pub(crate) fn respond_json(body: &(impl Serialize + ?Sized)) -> AdminResult {
    Ok(HttpResponse::Ok().json(body))
}

/// Responds with 204.
pub(crate) fn respond_nothing() -> AdminResult {
    Ok(HttpResponse::NoContent().finish())
}
