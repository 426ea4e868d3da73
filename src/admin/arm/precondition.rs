//! `ETag`, `If-Match` and `If-None-Match` (RFC 9110) of the resources of the table of routes.
//!
//! A tag is a hash of what GET returns. Each change sets a later `lastModifiedAt`, so a change of a
//! secret, which GET does not return, changes the tag too.

use actix_web::{
    HttpRequest, HttpResponse,
    body::MessageBody,
    http::{
        Method,
        header::{ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH},
    },
};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::{AdminError, AdminResult};

/// Bytes of the hash in a tag.
const TAG_BYTES: usize = 16;

/// The preconditions of a request.
#[derive(Debug, Default)]
pub(super) struct Preconditions {
    if_match: Option<String>,
    if_none_match: Option<String>,
}

impl Preconditions {
    pub(super) fn from_request(request: &HttpRequest) -> Self {
        Self {
            if_match: read_list(request, IF_MATCH),
            if_none_match: read_list(request, IF_NONE_MATCH),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Checks the preconditions of a change of a resource whose GET returns `shown`.
    pub(super) fn check_change(&self, method: &Method, shown: Option<&[u8]>) -> AdminResult<()> {
        let tag = shown.map(entity_tag);
        let has =
            |list: &str, strength| tag.as_ref().is_some_and(|tag| has_tag(list, tag, strength));
        // A PATCH of a missing resource is 404.
        let is_patch_of_none = shown.is_none() && *method == Method::PATCH;
        let failed = match self {
            Self {
                if_match: Some(list),
                ..
            } if !has(list, TagComparison::Strong) && !is_patch_of_none => {
                format!("If-Match: {list}")
            }
            Self {
                if_none_match: Some(list),
                ..
            } if has(list, TagComparison::Weak) => {
                format!("If-None-Match: {list}")
            }
            _ => return Ok(()),
        };
        Err(AdminError::Precondition {
            condition: failed,
            current: tag,
        })
    }

    /// The response to a GET of a resource: 304 if the client has its state.
    pub(super) fn shorten_unchanged(&self, response: HttpResponse) -> HttpResponse {
        let tag = response
            .headers()
            .get(ETAG)
            .and_then(|tag| tag.to_str().ok())
            .map(str::to_owned);
        match (tag, &self.if_none_match) {
            (Some(tag), Some(list)) if has_tag(list, &tag, TagComparison::Weak) => {
                HttpResponse::NotModified()
                    .insert_header((ETAG, tag))
                    .finish()
            }
            _ => response,
        }
    }
}

/// How tags are compared (RFC 9110, 8.8.3.2). Tags of this server are strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagComparison {
    /// A weak tag equals no other: for `If-Match`.
    Strong,
    /// A weak tag equals the strong one: for `If-None-Match`.
    Weak,
}

/// Whether a list has the tag, or `*`.
fn has_tag(list: &str, tag: &str, comparison: TagComparison) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|given| match comparison {
            _ if given == "*" => true,
            TagComparison::Strong => given == tag,
            TagComparison::Weak => given.strip_prefix("W/").unwrap_or(given) == tag,
        })
}

/// All values of a header as one list; [`None`] if it is not given.
fn read_list(request: &HttpRequest, name: HeaderName) -> Option<String> {
    let values = request.headers().get_all(name).map(HeaderValue::as_bytes);
    let values: Vec<&[u8]> = values.collect();
    if values.is_empty() {
        return None;
    }
    Some(String::from_utf8_lossy(&values.join(&b", "[..])).into_owned())
}

/// The entity tag of a resource whose GET returns `shown`.
pub(super) fn entity_tag(shown: &[u8]) -> String {
    format!(
        "\"{}\"",
        HEXLOWER.encode(&Sha256::digest(shown)[..TAG_BYTES])
    )
}

/// Adds the tag to a response whose body is that of GET.
pub(super) fn with_tag(response: HttpResponse) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    match body.try_into_bytes() {
        Ok(body) if head.status().is_success() && !body.is_empty() => {
            if let Ok(tag) = HeaderValue::from_str(&entity_tag(&body)) {
                head.headers_mut().insert(ETAG, tag);
            }
            head.set_body(body).map_into_boxed_body()
        }
        Ok(body) => head.set_body(body).map_into_boxed_body(),
        Err(body) => head.set_body(body),
    }
}
