//! Manual endpoint validation: a request to the validation URL confirms the endpoint.
//!
//! No admin token is needed. The URL has its own token, which only the endpoint received. It is
//! valid once, for ten minutes. A wrong token and an unknown id get the same response, and the
//! query never appears in a response or the log.

use actix_web::{HttpRequest, HttpResponse, web};

use super::{AdminError, Control};
use crate::AdminResult;
use gridhook_engine::control::registry::ValidationOutcome;

/// `GET` or `POST /eventsubscriptions/{name}/validate?id=…&t=…&apiVersion=…&token=…`.
pub(super) async fn confirm_endpoint(
    request: HttpRequest,
    control: web::Data<Control>,
) -> AdminResult {
    let query: Vec<(String, String)> =
        url::form_urlencoded::parse(request.query_string().as_bytes())
            .into_owned()
            .collect();
    let find_parameter = |name: &str| query.iter().find(|parameter| parameter.0 == name);
    let query_parameter = |name| find_parameter(name).map_or("", |(_, value)| value);
    let rate = request
        .headers()
        .get("webhook-allowed-rate")
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    match control
        .registry
        .confirm_proposal(
            query_parameter("id"),
            query_parameter("token"),
            rate.as_deref(),
        )
        .await?
    {
        ValidationOutcome::Confirmed(record) => {
            tracing::info!(subscription = %record.name, version = record.version, "endpoint \
                validated");
            Ok(HttpResponse::Ok().body(
                "Webhook successfully validated as a subscription \
                 endpoint.",
            ))
        }
        ValidationOutcome::Early => Err(AdminError::Conflict(
            "The endpoint has not answered its validation request yet. Try again afterwards."
                .to_owned(),
        )),
        ValidationOutcome::Unknown => Err(AdminError::NotFound(
            "No event subscription waits for this validation. It was done or replaced by a later \
             change, or the URL is incomplete."
                .to_owned(),
        )),
        ValidationOutcome::Late(until) => Err(AdminError::Gone(format!(
            "This validation expired at {until}. PUT the event subscription again to start a new \
             one."
        ))),
    }
}
