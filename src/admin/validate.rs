//! The manual way of the handshake: whoever opens the address that an endpoint was told gives the endpoint's word.
//!
//! No admin token is asked for. The address has a token of its own, which nobody but the endpoint was told; it is good
//! once, and for ten minutes. A wrong token and an unknown id are answered alike, and the query is never repeated.

use actix_web::{HttpRequest, HttpResponse, web};

use super::{AdminError, Control};
use crate::control::registry::ValidationOutcome;

/// `GET` or `POST /eventsubscriptions/{name}/validate?id=…&t=…&apiVersion=…&token=…`.
pub(super) async fn answer(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let query: Vec<(String, String)> =
        url::form_urlencoded::parse(request.query_string().as_bytes()).into_owned().collect();
    let given =
        |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    let rate = request.headers().get("webhook-allowed-rate").map(|value| String::from_utf8_lossy(value.as_bytes()));
    match control.registry.confirm(given("id"), given("token"), rate.as_deref()).await? {
        ValidationOutcome::Taken(record) => {
            tracing::info!(subscription = %record.name, version = record.version, "the endpoint gave its word");
            Ok(HttpResponse::Ok().body("Webhook successfully validated as a subscription endpoint."))
        }
        ValidationOutcome::Early => Err(AdminError::Conflict(
            "The endpoint has not answered its validation request yet; this address is good when it has.".to_owned(),
        )),
        ValidationOutcome::Unknown => Err(AdminError::NotFound(
            "No event subscription waits for this validation: it is done, was replaced by a later change, or the address \
             is not complete."
                .to_owned(),
        )),
        ValidationOutcome::Late(until) => Err(AdminError::Gone(format!(
            "This validation was open until {until}. Put the event subscription again to have its endpoint asked again."
        ))),
    }
}
