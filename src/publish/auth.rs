//! Who may publish: whoever shows one of the topic's two keys.
//!
//! A key is opaque and compared in constant time with both keys, whichever fits. SAS tokens and Entra's tokens come to
//! the same door ([`check`]) later; until then they are refused by name, so that nobody looks for the mistake in a key.

use actix_web::{
    HttpRequest,
    http::header::{AUTHORIZATION, HeaderMap},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use subtle::{Choice, ConstantTimeEq};
use url::form_urlencoded;

use super::Refusal;
use crate::topic::record::Keys;

const KEY: &str = "aeg-sas-key";
const TOKEN: &str = "aeg-sas-token";

/// Lets the request through, or says why not.
pub fn check(request: &HttpRequest, keys: &Keys) -> Result<(), Refusal> {
    let headers = request.headers();
    let in_header = headers.get(KEY).map(|key| key.as_bytes().to_vec());
    match in_header.or_else(|| key_in_query(request.query_string())) {
        Some(key) => check_key(key.trim_ascii(), keys, request),
        None => Err(without_key(headers)),
    }
}

fn check_key(given: &[u8], keys: &Keys, request: &HttpRequest) -> Result<(), Refusal> {
    if given.is_empty() {
        return Err(Refusal::EmptyKey);
    }
    let is = |key: &str| -> Choice { given.ct_eq(key.as_bytes()) & Choice::from(u8::from(!key.is_empty())) };
    if bool::from(is(&keys.key1) | is(&keys.key2)) {
        return Ok(());
    }
    let why = match STANDARD.decode(given) {
        Ok(_) => "The key is not one of the topic's keys",
        Err(_) => {
            "The input is not a valid Base-64 string as it contains a non-base 64 character, more than two padding characters, or an illegal character among the padding characters"
        }
    };
    Err(Refusal::WrongKey { host: request.connection_info().host().to_owned(), why })
}

/// A key is base64, and its `+` is often not escaped. Decoding makes a space of that, which base64 does not have.
fn key_in_query(query: &str) -> Option<Vec<u8>> {
    let (_, key) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name.eq_ignore_ascii_case(KEY))?;
    Some(key.replace(' ', "+").into_bytes())
}

fn without_key(headers: &HeaderMap) -> Refusal {
    if headers.contains_key(TOKEN) {
        return Refusal::Unread { header: TOKEN };
    }
    let Some(authorization) = headers.get(AUTHORIZATION) else { return Refusal::NoKey };
    let scheme = authorization.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
    let known = [&b"SharedAccessSignature"[..], b"Bearer"];
    if known.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Refusal::Unread { header: "Authorization" };
    }
    Refusal::Scheme
}
