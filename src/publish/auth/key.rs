//! Access keys. A key is opaque, and compared in constant time with all keys of the scope.

use actix_web::HttpRequest;
use base64::{Engine, engine::general_purpose::STANDARD};
use subtle::{Choice, ConstantTimeEq};
use url::form_urlencoded;

use super::host::RequestAuthority;
use crate::{control::record::topic::AccessKeys, publish::Refusal};

const KEY: &str = "aeg-sas-key";

/// .NET's error for a key that is not base64. Some clients match this text.
const NOT_BASE64: &str = "The input is not a valid Base-64 string as it contains a non-base 64 character, more than two \
                          padding characters, or an illegal character among the padding characters";

/// The key of the request's header or query.
pub(super) fn presented_key(request: &HttpRequest) -> Option<Vec<u8>> {
    let in_header = request.headers().get(KEY).map(|key| key.as_bytes().to_vec());
    in_header.or_else(|| in_query(request.query_string()))
}

pub(super) fn check(given: &[u8], keys: &[&AccessKeys], called: &RequestAuthority) -> Result<(), Refusal> {
    let given = given.trim_ascii();
    if given.is_empty() {
        return Err(Refusal::EmptyKey);
    }
    let is = |key: &str| -> Choice { given.ct_eq(key.as_bytes()) & Choice::from(u8::from(!key.is_empty())) };
    if bool::from(keys.iter().fold(Choice::from(0), |fits, keys| fits | is(&keys.key1) | is(&keys.key2))) {
        return Ok(());
    }
    let why = match STANDARD.decode(given) {
        Ok(_) => "The key is not one of the topic's keys",
        Err(_) => NOT_BASE64,
    };
    Err(Refusal::NotAuthorized { host: called.to_string(), why })
}

/// The key of a query. Clients often do not escape `+`, which decodes to a space, which base64 does not have.
fn in_query(query: &str) -> Option<Vec<u8>> {
    let (_, key) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name.eq_ignore_ascii_case(KEY))?;
    Some(key.replace(' ', "+").into_bytes())
}
