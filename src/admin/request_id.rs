//! Ids of requests: one that the server gives each request, and one that a client may give to
//! several.

use actix_web::{
    HttpRequest,
    http::header::{HeaderMap, HeaderName, HeaderValue},
};
use uuid::Uuid;

/// The id that the server gives a request.
const REQUEST: HeaderName = HeaderName::from_static("x-ms-request-id");

/// The id that a client gives to requests that belong together.
const CORRELATION: HeaderName = HeaderName::from_static("x-ms-correlation-request-id");

/// Maximum length of a client's id.
const CORRELATION_BYTES: usize = 128;

tokio::task_local! {
    /// The id of the request that the task handles.
    static CURRENT: Uuid;
}

/// Handles a request under a new id.
pub fn with_id<T>(id: Uuid, handling: impl Future<Output = T>) -> impl Future<Output = T> {
    CURRENT.scope(id, handling)
}

/// A new id. It is not a secret, so it costs no system call.
pub fn new() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid()
}

/// The id of the request that this task handles.
pub(super) fn current_id() -> Option<Uuid> {
    CURRENT.try_with(|id| *id).ok()
}

/// The id that the client gave the request, if it can be repeated.
pub fn correlation_id(request: &HttpRequest) -> Option<HeaderValue> {
    let given = request.headers().get(CORRELATION)?;
    let is_id = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.{}".contains(byte);
    let is_usable =
        (1..=CORRELATION_BYTES).contains(&given.len()) && given.as_bytes().iter().all(is_id);
    is_usable.then(|| given.clone())
}

/// Adds the ids to the headers of a response. Without an id of the client, both are the same.
pub fn add(headers: &mut HeaderMap, id: Uuid, correlation: Option<HeaderValue>) {
    let id = match headers.get(REQUEST) {
        Some(id) => id.clone(),
        None => {
            let Ok(id) =
                HeaderValue::from_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            else {
                return;
            };
            headers.insert(REQUEST, id.clone());
            id
        }
    };
    headers.insert(CORRELATION, correlation.unwrap_or(id));
}
