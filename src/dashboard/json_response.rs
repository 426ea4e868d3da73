//! Responses of the API for a page that asks for the same again and again: 304 for what it has, and
//! compression of the rest.
//!
//! What it does not do: it leaves alone what has a tag of its own, such as a resource that
//! `If-Match` may name, and streams.

use actix_web::{
    HttpRequest, HttpResponse,
    body::MessageBody as _,
    http::{
        Method, StatusCode,
        header::{
            self, ETag, EntityTag, Header as _, HeaderValue, IfNoneMatch, TryIntoHeaderPair as _,
        },
    },
};
use flate2::Compression;
use sha2::{Digest, Sha256};

use super::{accepts_gzip, compress};

/// Smaller bodies are not worth the work.
const COMPRESSED_MIN: usize = 1_024;

/// The time of the server in a report, which `Date` has, too.
const NOW: &[u8] = b"\"now\":\"";

/// The response to a GET as a client needs it that sends `If-None-Match` or `Accept-Encoding`.
pub fn shorten_json(request: &HttpRequest, response: HttpResponse) -> HttpResponse {
    let headers = response.headers();
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let is_plain =
        !headers.contains_key(header::ETAG) && !headers.contains_key(header::CONTENT_ENCODING);
    if request.method() != Method::GET
        || response.status() != StatusCode::OK
        || !is_json
        || !is_plain
    {
        return response;
    }
    let (mut response, body) = response.into_parts();
    let body = match body.try_into_bytes() {
        Ok(body) => body,
        Err(body) => return response.set_body(body),
    };
    let tag = weak_tag(&body);
    let is_known = match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(&tag)),
        Ok(IfNoneMatch::Any) | Err(_) => false,
    };
    if let Ok((name, value)) = ETag(tag).try_into_pair() {
        response.headers_mut().insert(name, value);
    }
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.headers_mut().remove(header::CONTENT_TYPE);
        return response.set_body(()).map_into_boxed_body();
    }
    let gzipped_body = (body.len() >= COMPRESSED_MIN && accepts_gzip(request))
        .then(|| compress(&body, Compression::fast()));
    match gzipped_body.flatten() {
        Some(compressed) => {
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.set_body(compressed).map_into_boxed_body()
        }
        None => response.set_body(body).map_into_boxed_body(),
    }
}

/// A weak tag: bodies that differ in the time of the report only say the same.
fn weak_tag(body: &[u8]) -> EntityTag {
    let mut digest = Sha256::new();
    match body.windows(NOW.len()).position(|part| part == NOW) {
        Some(start) => {
            let rest = &body[start + NOW.len()..];
            let end = rest
                .iter()
                .position(|byte| *byte == b'"')
                .unwrap_or(rest.len());
            digest.update(&body[..start]);
            digest.update(&rest[end..]);
        }
        None => digest.update(body),
    }
    EntityTag::new_weak(format!("{:x}", digest.finalize())[..32].to_owned())
}
