//! Endpoint validation: what the response to a handshake means, and the time limits of the
//! handshake.
//!
//! Each family of delivery schemas has its own handshake. Event Grid sends a POST with a code that
//! the endpoint must return. CloudEvents sends an OPTIONS request, and the response's headers grant
//! the permission. In both, the endpoint may instead validate later by requesting a URL: manual
//! validation.
//!
//! Invariants:
//! - Only an explicit permission validates. A success without it waits for manual validation.
//! - A wrong permission fails at once: an endpoint that returns another code or another origin will
//!   not change its response.
//! - Each failure is a [`ValidationFailure`] with a message for people.
//!
//! What it does not do: it sends nothing, has no clock and generates no codes. Status codes are not
//! permissions; CloudEvents forbids that. They only tell whether an endpoint without permission
//! understood the request.

use std::{
    num::{IntErrorKind, NonZeroU32},
    time::Duration,
};

use bytes::Bytes;
use serde_json::Value;

use crate::outcome::Outcome;
use gridhook_event::{Schema, Timestamp};

/// Time limits of the handshake (reference 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeTimes {
    /// How long an endpoint may take to respond.
    pub answer: Duration,
    /// Wait before the second try, if the endpoint did not respond.
    pub pause: Duration,
    /// How long manual validation is possible.
    pub window: Duration,
}

/// Tries if the endpoint does not respond.
pub const TRIES: u32 = 2;

/// The protocol by which an endpoint agrees to receive events; the delivery schema decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The endpoint returns a code.
    EventGrid,
    /// The endpoint grants permission in headers.
    CloudEvents,
}

impl Handshake {
    /// The handshake of this delivery schema.
    pub fn for_schema(delivery: Schema) -> Self {
        match delivery {
            Schema::EventGrid | Schema::Custom => Self::EventGrid,
            Schema::CloudEvents => Self::CloudEvents,
        }
    }

    /// The HTTP method of the request.
    pub fn http_method(self) -> &'static str {
        match self {
            Self::EventGrid => "POST",
            Self::CloudEvents => "OPTIONS",
        }
    }
}

/// What the decision needs of the endpoint's response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct ValidationResponse {
    pub status: u16,
    /// The value of `WebHook-Allowed-Origin`, as the endpoint sent it.
    pub allowed_origin: Option<String>,
    /// The value of `WebHook-Allowed-Rate`, as the endpoint sent it.
    pub allowed_rate: Option<String>,
    /// The first bytes of the body.
    pub body: Bytes,
}

/// The result of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidationResult {
    /// The endpoint is validated, with its maximum requests per minute, if any.
    Granted(Option<NonZeroU32>),
    /// Validation waits for a request to the validation URL.
    Manual,
    /// Nothing is delivered.
    Refused(ValidationFailure),
}

/// Why an endpoint is not validated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum ValidationFailure {
    /// No response; outcome and detail are those of a delivery.
    #[error("{detail}")]
    Unanswered { outcome: Outcome, detail: String },
    /// The status is not that of an endpoint that understood the request.
    #[error("the endpoint returned {status}; {wanted}")]
    Status { status: u16, wanted: &'static str },
    /// `validationResponse` has another code than the request.
    #[error("validationResponse is not the validationCode that was sent")]
    WrongCode,
    /// The permission is for another origin.
    #[error("WebHook-Allowed-Origin is \"{0}\"; expected the origin that was asked for, or *")]
    WrongOrigin(String),
    /// `WebHook-Allowed-Rate` is not a number of requests per minute.
    #[error(
        "WebHook-Allowed-Rate is \"{0}\"; expected a whole number of requests per minute, 1 or \
         more, or *"
    )]
    WrongRate(String),
}

/// Maximum length of a header in messages: it is text of the endpoint.
const SHOWN_CHARS_MAX: usize = 100;

impl ValidationFailure {
    /// The failure as a code, for programs.
    pub fn code(&self) -> String {
        match self {
            Self::Unanswered { outcome, .. } => outcome.to_string(),
            Self::Status { .. } => "UnexpectedStatus".to_owned(),
            Self::WrongCode => "WrongValidationResponse".to_owned(),
            Self::WrongOrigin(_) => "OriginNotAllowed".to_owned(),
            Self::WrongRate(_) => "RateNotUnderstood".to_owned(),
        }
    }
}

/// The result of a response to the POST with `code`.
pub fn judge_code(code: &str, response: &ValidationResponse) -> ValidationResult {
    if response.status != 200 {
        let expectation =
            "expected 200 with {\"validationResponse\": the validationCode} as its body";
        return ValidationResult::Refused(ValidationFailure::Status {
            status: response.status,
            wanted: expectation,
        });
    }
    match validation_response(&response.body) {
        Some(Value::String(given)) if given == code => ValidationResult::Granted(None),
        Some(_) => ValidationResult::Refused(ValidationFailure::WrongCode),
        None => ValidationResult::Manual,
    }
}

/// `validationResponse` of a body. The name is compared without case, because a sample once had the
/// first letter wrong.
fn validation_response(body: &[u8]) -> Option<Value> {
    // Some frameworks begin a response with a byte order mark.
    let json = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let Ok(Value::Object(members)) = serde_json::from_slice(json) else {
        return None;
    };
    members
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("validationResponse"))
        .map(|(_, value)| value)
}

/// The result of a response to the OPTIONS request of `origin`.
pub fn judge_permission(origin: &str, response: &ValidationResponse) -> ValidationResult {
    match response.allowed_origin.as_deref().map(str::trim) {
        Some(allowed) if allowed == "*" || allowed.eq_ignore_ascii_case(origin) => {
            match parse_rate(response.allowed_rate.as_deref()) {
                Ok(rate) => ValidationResult::Granted(rate),
                Err(cause) => ValidationResult::Refused(cause),
            }
        }
        Some(allowed) => {
            ValidationResult::Refused(ValidationFailure::WrongOrigin(shorten_text(allowed)))
        }
        // An endpoint that understood OPTIONS may grant permission later by the callback. One that
        // does not support OPTIONS does not know the callback either.
        None if (200..300).contains(&response.status) => ValidationResult::Manual,
        None => {
            let expectation = "expected a response to OPTIONS with WebHook-Allowed-Origin, or 2xx \
                without it for manual validation";
            ValidationResult::Refused(ValidationFailure::Status {
                status: response.status,
                wanted: expectation,
            })
        }
    }
}

/// As [`judge_permission`], without manual validation: no permission is a failure. No rate is
/// requested, and a rate in the response is ignored.
pub fn judge_at_once(origin: &str, response: &ValidationResponse) -> ValidationResult {
    let response_without_rate = ValidationResponse {
        allowed_rate: None,
        ..response.clone()
    };
    match judge_permission(origin, &response_without_rate) {
        ValidationResult::Manual => {
            let expectation = "expected a response to OPTIONS with WebHook-Allowed-Origin";
            ValidationResult::Refused(ValidationFailure::Status {
                status: response.status,
                wanted: expectation,
            })
        }
        verdict @ (ValidationResult::Granted(_) | ValidationResult::Refused(_)) => verdict,
    }
}

/// An allowed rate. `*` means unlimited, and so does a missing header, because many endpoints leave
/// it out.
///
/// # Errors
/// The value is neither `*` nor a positive integer.
pub fn parse_rate(allowed: Option<&str>) -> Result<Option<NonZeroU32>, ValidationFailure> {
    match allowed.map(str::trim) {
        None | Some("*") => Ok(None),
        Some(text) => match text.parse() {
            Ok(rate) => Ok(Some(rate)),
            // More requests than can be counted are as many as can.
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(Some(NonZeroU32::MAX)),
            Err(_) => Err(ValidationFailure::WrongRate(shorten_text(text))),
        },
    }
}

fn shorten_text(text: &str) -> String {
    text.chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect()
}

/// Whether manual validation, open until `until`, is over.
pub fn is_over(until: Timestamp, now: Timestamp) -> bool {
    now >= until
}
