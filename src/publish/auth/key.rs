//! Access keys. A key is opaque, and compared in constant time with all keys of the scope.

use std::borrow::Cow;

use actix_web::{HttpRequest, http::header::HeaderName};
use base64::{Engine, engine::general_purpose::STANDARD};
use subtle::{Choice, ConstantTimeEq};
use url::form_urlencoded;

use super::host::RequestAuthority;
use crate::Refusal;
use gridhook_record::topic::AccessKeys;

const KEY: HeaderName = HeaderName::from_static("aeg-sas-key");

/// .NET's error for a key that is not base64. Some clients match this text.
const NOT_BASE64: &str = "The input is not a valid Base-64 string as it contains a non-base 64 \
    character, more than two padding characters, or an illegal character among the padding \
    characters";

/// The key of the request's header or query.
pub(super) fn presented_key(request: &HttpRequest) -> Option<Cow<'_, [u8]>> {
    let in_header = request.headers().get(KEY).map(|key| key.as_bytes().into());
    in_header.or_else(|| in_query(request.query_string()).map(Cow::Owned))
}

pub(super) fn check_access_key(
    given: &[u8],
    keys: &[&AccessKeys],
    called: &RequestAuthority,
) -> Result<(), Refusal> {
    let credential = given.trim_ascii();
    if credential.is_empty() {
        return Err(Refusal::EmptyKey);
    }
    // Compares with every key, whichever matches: the time must not depend on it.
    let mut is_key = Choice::from(0);
    for key in keys.iter().flat_map(|keys| [&keys.key1, &keys.key2]) {
        let is_set = Choice::from(u8::from(!key.is_empty()));
        is_key |= is_set & are_equal(credential, key.as_bytes());
    }
    if bool::from(is_key) {
        return Ok(());
    }
    let why = match STANDARD.decode(credential) {
        Ok(_) => "The key is not one of the topic's keys",
        Err(_) => NOT_BASE64,
    };
    Err(Refusal::NotAuthorized {
        host: called.to_string(),
        why,
    })
}

/// Compares in constant time for a length, eight bytes at once.
fn are_equal(a: &[u8], b: &[u8]) -> Choice {
    if a.len() != b.len() {
        return Choice::from(0);
    }
    let (a, a_rest) = a.as_chunks();
    let (b, b_rest) = b.as_chunks();
    let words = a
        .iter()
        .zip(b)
        .map(|(a, b)| u64::from_ne_bytes(*a).ct_eq(&u64::from_ne_bytes(*b)));
    words.fold(a_rest.ct_eq(b_rest), |equal, word| equal & word)
}

/// The key of a query. Clients often do not escape `+`, which decodes to a space, which base64 does
/// not have.
fn in_query(query: &str) -> Option<Vec<u8>> {
    let (_, key) = form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name.eq_ignore_ascii_case(KEY.as_str()))?;
    Some(key.replace(' ', "+").into_bytes())
}
