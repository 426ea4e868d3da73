//! Whether an endpoint agrees to be called: what its answer to the handshake says, and how long its word is waited for.
//!
//! There are two handshakes, one for each family of delivery schemas. Event Grid's own POSTs a code that must come back;
//! CloudEvents' asks with OPTIONS, and the answer's headers are the permission. In both, an endpoint may hold its word
//! back and give it later, by calling an address that it was told: that is the manual way.
//!
//! Invariants:
//! - Only an explicit word is a yes. An answer that merely looks friendly waits for the manual way.
//! - A wrong word is a no at once: who answers with another code, or for another origin, will not change their mind.
//! - Every no has a [`ValidationFailure`] that says what happened in words for people.
//!
//! Absent on purpose: the wire, the clock, the code's making. And status codes as a permission: CloudEvents forbids to read
//! one out of them. They decide only whether an endpoint that gave no permission has understood the question.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    event::{Schema, Timestamp},
    policy::outcome::Outcome,
};

/// How the handshake is timed (reference 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeTimes {
    /// How long an endpoint may take to answer.
    pub answer: Duration,
    /// An endpoint that did not answer is asked once more after so long.
    pub pause: Duration,
    /// How long the manual way stays open.
    pub window: Duration,
}

/// An endpoint that is silent is asked so many times.
pub const TRIES: u32 = 2;

/// Which handshake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// A code that must come back.
    EventGrid,
    /// A permission in headers.
    CloudEvents,
}

impl Handshake {
    /// The one for this delivery schema.
    pub fn of(delivery: Schema) -> Self {
        match delivery {
            Schema::EventGrid | Schema::Custom => Self::EventGrid,
            Schema::CloudEvents => Self::CloudEvents,
        }
    }

    /// How it asks.
    pub fn method(self) -> &'static str {
        match self {
            Self::EventGrid => "POST",
            Self::CloudEvents => "OPTIONS",
        }
    }
}

/// What an endpoint answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResponse {
    /// The status.
    pub status: u16,
    /// `WebHook-Allowed-Origin`.
    pub allowed_origin: Option<String>,
    /// `WebHook-Allowed-Rate`.
    pub allowed_rate: Option<String>,
    /// The first bytes of the body.
    pub body: Bytes,
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidationResult {
    /// The endpoint may be called, so many times a minute at the most.
    Granted(Option<NonZeroU32>),
    /// It has not decided: its word is waited for.
    Manual,
    /// It may not be called.
    Refused(ValidationFailure),
}

/// Why an endpoint may not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationFailure {
    /// There was no answer; the outcome and the words are those of a delivery.
    #[error("{detail}")]
    Unanswered {
        /// What kind of failure it was.
        outcome: Outcome,
        /// What happened.
        detail: String,
    },
    /// The status is not that of an endpoint that understood.
    #[error("the endpoint answered {status}; {wanted}")]
    Status {
        /// The status.
        status: u16,
        /// What would have been understood.
        wanted: &'static str,
    },
    /// Another code came back.
    #[error("validationResponse is not the validationCode that was sent")]
    WrongCode,
    /// The permission is somebody else's.
    #[error("WebHook-Allowed-Origin is \"{0}\"; allowed is the origin that was asked for, or *")]
    WrongOrigin(String),
    /// The rate is none.
    #[error("WebHook-Allowed-Rate is \"{0}\"; allowed is a whole number of requests per minute, 1 or more, or *")]
    WrongRate(String),
}

/// A header that is repeated to people is cut here: it is the endpoint's own text.
const SHOWN_CHARS_MAX: usize = 100;

impl ValidationFailure {
    /// One word for it, for programs.
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

/// What an answer to the POST with `code` says.
pub fn judge_code(code: &str, heard: &ValidationResponse) -> ValidationResult {
    if heard.status != 200 {
        let wanted = "allowed is 200, with {\"validationResponse\": the validationCode} as its body";
        return ValidationResult::Refused(ValidationFailure::Status { status: heard.status, wanted });
    }
    match validation_response(&heard.body) {
        Some(Value::String(given)) if given == code => ValidationResult::Granted(None),
        Some(_) => ValidationResult::Refused(ValidationFailure::WrongCode),
        None => ValidationResult::Manual,
    }
}

/// `validationResponse` of a body, its name in any case: a sample once misled people about the first letter.
fn validation_response(body: &[u8]) -> Option<Value> {
    let Ok(Value::Object(members)) = serde_json::from_slice(body) else { return None };
    members.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("validationResponse")).map(|(_, value)| value)
}

/// What an answer to the OPTIONS of `origin` says.
pub fn judge_permission(origin: &str, heard: &ValidationResponse) -> ValidationResult {
    match heard.allowed_origin.as_deref().map(str::trim) {
        Some(allowed) if allowed == "*" || allowed.eq_ignore_ascii_case(origin) => {
            match rate(heard.allowed_rate.as_deref()) {
                Ok(rate) => ValidationResult::Granted(rate),
                Err(cause) => ValidationResult::Refused(cause),
            }
        }
        Some(allowed) => ValidationResult::Refused(ValidationFailure::WrongOrigin(shown(allowed))),
        // Who withholds the headers may grant permission by the callback, but who does not know OPTIONS knows no callback.
        None if (200..300).contains(&heard.status) => ValidationResult::Manual,
        None => {
            let wanted = "allowed is an answer to OPTIONS with WebHook-Allowed-Origin, or without it and 2xx to be asked \
                          by callback";
            ValidationResult::Refused(ValidationFailure::Status { status: heard.status, wanted })
        }
    }
}

/// The same where nobody may come back to it: an endpoint that does not say yes says no. No rate is asked for, and none that
/// is said is looked at.
pub fn judge_at_once(origin: &str, heard: &ValidationResponse) -> ValidationResult {
    let unrated = ValidationResponse { allowed_rate: None, ..heard.clone() };
    match judge_permission(origin, &unrated) {
        ValidationResult::Manual => {
            let wanted = "allowed is an answer to OPTIONS with WebHook-Allowed-Origin";
            ValidationResult::Refused(ValidationFailure::Status { status: heard.status, wanted })
        }
        verdict @ (ValidationResult::Granted(_) | ValidationResult::Refused(_)) => verdict,
    }
}

/// An allowed rate. `*` is none; so is no header at all, because many endpoints leave it out.
///
/// # Errors
/// Where it is neither.
pub fn rate(allowed: Option<&str>) -> Result<Option<NonZeroU32>, ValidationFailure> {
    match allowed.map(str::trim) {
        None | Some("*") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| ValidationFailure::WrongRate(shown(text))),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// Whether the manual way, open until `until`, is closed.
pub fn is_over(until: Timestamp, now: Timestamp) -> bool {
    now >= until
}
