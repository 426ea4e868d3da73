//! SAS tokens: `r={resource}&e={expiry}&s={signature}`, each percent-encoded, signed with
//! HMAC-SHA256 by one of the topic's keys.
//!
//! The signed bytes are those before `&s=` **as received**: client libraries encode them
//! differently (upper or lower case, `+` or `%20`), so they must not be decoded and encoded again.
//! .NET, Python and JavaScript also write the expiry in different forms; each is read.
//!
//! The resource is a scope: a token for a URL is valid for everything below it. Scheme, host and
//! path are compared without case; the query is not part of a resource.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{fmt::strtime, tz::Offset};
use percent_encoding::percent_decode_str;
use ring::hmac;
use url::Url;

use crate::{Refusal, refusal::SasProblem};
use gridhook_event::{Timestamp, WallTime, instant_at, parse_instant_or_utc};
use gridhook_record::topic::AccessKeys;

/// A token is a resource, a date and 44 characters. More than ten times that is not a token.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasTokenProblem {
    /// The token itself is invalid.
    Token(SasProblem),
    /// The token is for another resource.
    Resource,
}

impl SasTokenProblem {
    /// The refusal that the publisher receives.
    pub(super) fn into_refusal(self, host: String) -> Refusal {
        match self {
            Self::Token(problem) => Refusal::Sas { host, problem },
            Self::Resource => Refusal::NotAuthorized {
                host,
                why: "The SAS token is for another resource",
            },
        }
    }
}

/// Checks that `token` is signed by one of `keys`, covers one of `resources`, and has not expired.
pub fn check_sas_token(
    token: &[u8],
    keys: &[&AccessKeys],
    resources: &[SasResource],
    wall: WallTime,
) -> Result<(), SasTokenProblem> {
    let token = SasToken::parse(token).ok_or(SasTokenProblem::Token(SasProblem::Format))?;
    // All keys are compared, so that the time does not reveal which one matches.
    let is_signed =
        |keys: &&AccessKeys| token.is_signed_by(&keys.key1) | token.is_signed_by(&keys.key2);
    if !keys.iter().fold(false, |fits, keys| fits | is_signed(keys)) {
        return Err(SasTokenProblem::Token(SasProblem::Signature));
    }
    let expiry = parse_expiry(token.expiry).ok_or(SasTokenProblem::Token(SasProblem::Format))?;
    if expiry <= wall.to_timestamp() {
        return Err(SasTokenProblem::Token(SasProblem::Expired));
    }
    let scope = percent_decode_str(token.resource)
        .decode_utf8()
        .ok()
        .and_then(|text| SasResource::parse(&text));
    match scope {
        Some(scope) if resources.iter().any(|resource| scope.covers(resource)) => Ok(()),
        Some(_) => Err(SasTokenProblem::Resource),
        None => Err(SasTokenProblem::Token(SasProblem::Format)),
    }
}

/// The parts of a token; only the signature is decoded.
struct SasToken<'a> {
    signed: &'a str,
    resource: &'a str,
    expiry: &'a str,
    signature: Vec<u8>,
}

impl<'a> SasToken<'a> {
    fn parse(token: &'a [u8]) -> Option<Self> {
        let token = std::str::from_utf8(token)
            .ok()
            .filter(|token| token.len() <= TOKEN_BYTES_MAX)?
            .trim();
        let (signed, signature) = token.split_once("&s=")?;
        let (resource, expiry) = signed.strip_prefix("r=")?.split_once("&e=")?;
        if resource.contains('&') || expiry.contains('&') {
            return None;
        }
        // An unescaped `+` of base64 may have been decoded to a space.
        let signature = percent_decode_str(signature)
            .decode_utf8()
            .ok()?
            .replace(' ', "+");
        let signature = STANDARD.decode(signature).ok()?;
        Some(Self {
            signed,
            resource,
            expiry,
            signature,
        })
    }

    fn is_signed_by(&self, key: &str) -> bool {
        let Some(key) = STANDARD.decode(key).ok().filter(|key| !key.is_empty()) else {
            return false;
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::verify(&key, self.signed.as_bytes(), &self.signature).is_ok()
    }
}

/// Parses the expiry in the forms of the client libraries. Without a time zone it is UTC.
fn parse_expiry(encoded: &str) -> Option<Timestamp> {
    // .NET encodes a space as `+`; the others use `+` for an offset.
    let spaces = encoded.replace('+', " ");
    [spaces.as_str(), encoded].into_iter().find_map(|encoded| {
        let text = percent_decode_str(encoded).decode_utf8().ok()?;
        // Newer versions of ICU write a narrow no-break space before AM and PM.
        let text = text.replace(['\u{202f}', '\u{a0}'], " ");
        parse_timestamp(text.trim())
    })
}

fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let instant = parse_instant_or_utc(text).or_else(|| parse_us_date(text))?;
    u64::try_from(instant.as_microsecond()).ok().map(Timestamp)
}

/// Parses `6/15/2017 6:20:15 PM`, with an optional offset (`+00:00`).
fn parse_us_date(text: &str) -> Option<jiff::Timestamp> {
    let upper = text.to_ascii_uppercase().replace(',', "");
    if let Ok(read) = strtime::parse("%m/%d/%Y %I:%M:%S %p %:z", &upper) {
        return instant_at(read.to_datetime().ok()?, read.offset()?);
    }
    let civil = strtime::parse("%m/%d/%Y %I:%M:%S %p", &upper)
        .ok()?
        .to_datetime()
        .ok()?;
    instant_at(civil, Offset::UTC)
}

/// The scope of a token: a scheme, a host with its port, and a path, compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SasResource {
    origin: String,
    path: Vec<String>,
}

impl SasResource {
    pub fn parse(address: &str) -> Option<Self> {
        let url = Url::parse(address)
            .ok()
            .filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"))?;
        let origin = url.origin().ascii_serialization().to_ascii_lowercase();
        let path = url
            .path_segments()?
            .filter(|segment| !segment.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        Some(Self { origin, path })
    }

    /// The scope of `segments` below a base URL. Each segment is one path segment, whatever it
    /// contains.
    pub fn below_url(base: &Url, segments: Vec<&str>) -> Self {
        let above = base
            .path_segments()
            .into_iter()
            .flatten()
            .filter(|segment| !segment.is_empty());
        let path = above.chain(segments).map(str::to_ascii_lowercase).collect();
        Self {
            origin: base.origin().ascii_serialization().to_ascii_lowercase(),
            path,
        }
    }

    /// Whether `other` is this scope or below it.
    fn covers(&self, other: &Self) -> bool {
        self.origin == other.origin && other.path.starts_with(&self.path)
    }
}
