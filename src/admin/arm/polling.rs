//! Tells a client that a change is done, so that it does not wait before it looks at the resource.
//!
//! Terraform's provider azurerm polls each resource that it has changed, also if the response to the
//! change says `Succeeded`: after 10 s, unless the response has the header of its SDK that skips the
//! wait. With that header it polls without any pause, so a response has it only if the first poll
//! is the last.

use actix_web::{
    HttpResponse,
    body::MessageBody,
    http::header::{HeaderName, HeaderValue},
};
use serde_json::Value;

/// The header of Terraform's SDK for Azure.
const SKIP_DELAY: HeaderName = HeaderName::from_static("x-go-azure-sdk-skip-polling-delay");

/// Marks the response to a change that is done.
pub(super) fn skip_polling_delay(response: HttpResponse) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    match body.try_into_bytes() {
        Ok(body) => {
            if head.status().is_success() && is_done(&body) {
                head.headers_mut()
                    .insert(SKIP_DELAY, HeaderValue::from_static("true"));
            }
            head.set_body(body).map_into_boxed_body()
        }
        Err(body) => head.set_body(body),
    }
}

/// Whether a body is that of a resource in its final state, or of none.
fn is_done(body: &[u8]) -> bool {
    if body.is_empty() {
        return true;
    }
    let state = serde_json::from_slice::<Value>(body)
        .ok()
        .map(|mut body| body["properties"]["provisioningState"].take());
    state.is_some_and(|state| state.is_null() || state == "Succeeded")
}
