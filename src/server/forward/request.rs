//! The request to an owner, made of that of a client.

use actix_web::{HttpMessage as _, HttpRequest, http::header as actix_header, web};
use bytes::Bytes;
use hyper::{
    HeaderMap, Request, Uri, Version,
    header::{self, HeaderName, HeaderValue},
};

use super::{
    OutgoingRequest,
    body::{Content, RequestBody},
};
use crate::{forward_error::ForwardError, front::hop};
use gridhook_publish::auth::host::LocalAddress;

/// Headers that concern one connection (RFC 9110, 7.6.1), and what this server sets itself.
const HOP_BY_HOP: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    hop::CLIENT_NAME,
    hop::TOKEN_NAME,
    hop::PART_NAME,
    hop::RECEIVE_NAME,
];

/// The headers that go on.
pub(super) fn forwarded_headers(
    headers: &HeaderMap,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers
        .iter()
        .filter(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()))
}

/// The request to the owner.
pub(crate) fn outgoing_request(
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<OutgoingRequest, ForwardError> {
    let length = request.headers().get(actix_header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_chunked = request.chunked().unwrap_or(false);
    let left = if is_chunked {
        None
    } else {
        Some(length.unwrap_or(0))
    };
    let body = RequestBody {
        content: Content::Payload(payload.into_inner()),
        left,
    };
    let mut outgoing = with_body(request, target_of(request), body)?;
    if let Some(length) = length.filter(|_| !is_chunked) {
        outgoing
            .headers_mut()
            .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(outgoing)
}

/// The request to an owner, with another target and a whole body.
pub(crate) fn outgoing_whole(
    request: &HttpRequest,
    target: &str,
    body: Bytes,
) -> Result<OutgoingRequest, ForwardError> {
    let length = body.len();
    let mut outgoing = with_body(request, target, RequestBody::from_bytes(body))?;
    outgoing
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(outgoing)
}

/// The path and query of a request.
pub(crate) fn target_of(request: &HttpRequest) -> &str {
    let target = request.uri().path_and_query();
    target.map_or("/", |target| target.as_str())
}

fn with_body(
    request: &HttpRequest,
    target: &str,
    body: RequestBody,
) -> Result<OutgoingRequest, ForwardError> {
    try_with_body(request, target, body).ok_or(ForwardError::Unforwardable)
}

fn try_with_body(
    request: &HttpRequest,
    target: &str,
    body: RequestBody,
) -> Option<OutgoingRequest> {
    let local = *request.conn_data::<LocalAddress>()?;
    let client = hop::client_value(request.peer_addr()?, local);
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = request.method().as_str().parse().ok()?;
    *outgoing.version_mut() = Version::HTTP_11;
    *outgoing.uri_mut() = target.parse::<Uri>().ok()?;
    for (name, value) in request.headers() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        if !HOP_BY_HOP.contains(&name.as_str()) {
            outgoing
                .headers_mut()
                .append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
    }
    // The target takes precedence over the header (RFC 9112, 3.2.2).
    if let Some(called) = request.uri().authority() {
        outgoing
            .headers_mut()
            .insert(header::HOST, HeaderValue::from_str(called.as_str()).ok()?);
    }
    outgoing
        .headers_mut()
        .insert(hop::CLIENT_NAME, HeaderValue::from_str(&client).ok()?);
    Some(outgoing)
}
