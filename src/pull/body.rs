//! Requests and responses of pull delivery, as in the data plane of Azure's namespaces.

use std::{borrow::Cow, ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};
use url::form_urlencoded;
use utoipa::ToSchema;

use gridhook_event::Event;
use gridhook_policy::record::lease::LeaseResult;
use gridhook_publish::refusal::Refusal;

/// The allowed `maxEvents`.
pub const EVENTS: RangeInclusive<u32> = 1..=100;

/// The default of `maxEvents`.
const EVENTS_DEFAULT: u32 = 1;

/// The allowed `maxWaitTime` in seconds.
pub const WAIT: RangeInclusive<u32> = 10..=120;

/// The default of `maxWaitTime` in seconds.
const WAIT_DEFAULT: u32 = 60;

/// The allowed `releaseDelayInSeconds`.
pub const DELAYS: [u32; 5] = [0, 10, 60, 600, 3600];

/// The maximum number of lock tokens in a request.
const TOKENS_MAX: usize = 100;

/// A parameter or a body of an operation that is invalid, and what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum InvalidParameter {
    #[error("{name} is '{value}'; expected a whole number from {} to {}", .range.start(), .range.end())]
    Range {
        name: String,
        value: String,
        range: RangeInclusive<u32>,
    },
    #[error("releaseDelayInSeconds is '{0}'; expected 0, 10, 60, 600 or 3600")]
    Delay(String),
    #[error(r#"The body is not {{"lockTokens": ["…"]}} as JSON: {0}"#)]
    Body(#[from] serde_json::Error),
    #[error("lockTokens is empty; expected 1 to {TOKENS_MAX} lock tokens")]
    NoTokens,
    #[error("lockTokens has {0} entries; expected 1 to {TOKENS_MAX} lock tokens")]
    TooManyTokens(usize),
}

impl From<InvalidParameter> for Refusal {
    fn from(invalid: InvalidParameter) -> Self {
        let why = invalid.to_string();
        Self::Parameter { why }
    }
}

/// The query parameters of a request.
pub struct ReceiveQuery<'a>(&'a str);

impl<'a> ReceiveQuery<'a> {
    /// Takes the text behind the `?`.
    pub fn new(query: &'a str) -> Self {
        Self(query)
    }

    fn find_parameter(&self, name: &str) -> Option<Cow<'a, str>> {
        form_urlencoded::parse(self.0.as_bytes())
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn parse_in_range(
        &self,
        name: &str,
        range: &RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, InvalidParameter> {
        let Some(given) = self.find_parameter(name) else {
            return Ok(default);
        };
        given
            .parse()
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| InvalidParameter::Range {
                name: name.to_owned(),
                value: given.chars().take(32).collect(),
                range: range.clone(),
            })
    }

    /// `maxEvents`.
    pub fn max_events(&self) -> Result<u32, InvalidParameter> {
        self.parse_in_range("maxEvents", &EVENTS, EVENTS_DEFAULT)
    }

    /// `maxWaitTime`.
    pub fn max_wait(&self) -> Result<Duration, InvalidParameter> {
        self.parse_in_range("maxWaitTime", &WAIT, WAIT_DEFAULT)
            .map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// `releaseDelayInSeconds`, or its earlier name `delayInSeconds`.
    pub fn release_delay(&self) -> Result<Duration, InvalidParameter> {
        let Some(given) = self
            .find_parameter("releaseDelayInSeconds")
            .or_else(|| self.find_parameter("delayInSeconds"))
        else {
            return Ok(Duration::ZERO);
        };
        let delay = given
            .parse()
            .ok()
            .filter(|seconds| DELAYS.contains(seconds));
        delay
            .map(|seconds: u32| Duration::from_secs(seconds.into()))
            .ok_or_else(|| InvalidParameter::Delay(given.chars().take(32).collect()))
    }

    /// Whether the requested version of the API names errors `errorCode` and `errorDescription`.
    pub fn has_2023_fields(&self) -> bool {
        self.find_parameter("api-version")
            .is_some_and(|version| version.starts_with("2023-"))
    }
}

/// The lock tokens of an operation.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", expecting = "an object with lockTokens")]
pub struct LockTokensBody {
    /// The tokens, as received.
    pub lock_tokens: Vec<String>,
}

impl LockTokensBody {
    /// Parses a body.
    pub fn read(body: &[u8]) -> Result<Self, InvalidParameter> {
        let read: Self = serde_json::from_slice(body)?;
        match read.lock_tokens.len() {
            0 => Err(InvalidParameter::NoTokens),
            1..=TOKENS_MAX => Ok(read),
            many => Err(InvalidParameter::TooManyTokens(many)),
        }
    }
}

/// The received events.
#[derive(ToSchema)]
#[schema(as = ReceiveResult)]
pub struct ReceivedBody {
    /// Items of the list
    pub value: Vec<ReceivedEvent>,
}

/// An event with its lock token.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReceiveDetails)]
pub struct ReceivedEvent {
    /// Lock token and delivery count
    pub broker_properties: BrokerProperties,
    /// CloudEvent, as it was published
    #[schema(value_type = Object)]
    pub event: String,
}

/// The lock of a received event.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokerProperties {
    /// Token that acknowledges, releases or rejects the event
    pub lock_token: String,
    /// Number of times that the event was received, this one included
    pub delivery_count: u32,
}

/// The results for the lock tokens of an operation.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleResponse {
    /// Lock tokens for which the operation succeeded
    pub succeeded_lock_tokens: Vec<String>,
    /// Lock tokens for which the operation failed
    pub failed_lock_tokens: Vec<FailedLockToken>,
}

/// A lock token for which the operation failed.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedLockToken {
    /// Lock token of the event
    pub lock_token: String,
    /// Error of the operation
    pub error: LockTokenError,
    /// Code of the error, for API versions of 2023
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<Cow<'static, str>>,
    /// Message of the error, for API versions of 2023
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_description: Option<Cow<'static, str>>,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct LockTokenError {
    /// Machine-readable code of the error
    pub code: Cow<'static, str>,
    /// Explanation of the error for people
    pub message: Cow<'static, str>,
}

impl SettleResponse {
    pub fn add(&mut self, token: String, result: Option<LeaseResult>) {
        let (code, message) = match result {
            Some(LeaseResult::Done) => return self.succeeded_lock_tokens.push(token),
            Some(LeaseResult::Lost) => ("TokenLost", "Token has expired."),
            Some(LeaseResult::TooOld) => (
                "TokenLost",
                "The lock cannot be renewed any more: the event was first received an hour ago.",
            ),
            None => (
                "InternalServerError",
                "The result is unknown. Repeat the request.",
            ),
        };
        self.add_failure(token, code, message);
    }

    /// Adds an invalid token.
    pub fn add_bad(&mut self, token: String) {
        self.add_failure(
            token,
            "BadToken",
            "It is not a lock token of this event subscription.",
        );
    }

    /// Adds the fields of API versions of 2023.
    pub fn with_2023_fields(mut self) -> Self {
        for failed in &mut self.failed_lock_tokens {
            failed.error_code = Some(failed.error.code.clone());
            failed.error_description = Some(failed.error.message.clone());
        }
        self
    }

    fn add_failure(&mut self, lock_token: String, code: &'static str, message: &'static str) {
        let error = LockTokenError {
            code: code.into(),
            message: message.into(),
        };
        self.failed_lock_tokens.push(FailedLockToken {
            lock_token,
            error,
            error_code: None,
            error_description: None,
        });
    }
}

/// The response of a receive: each event with its lock token.
pub fn write_received(events: &[(String, u32, Event)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(
        64 + events
            .iter()
            .map(|(_, _, event)| event.wire_len() + 192)
            .sum::<usize>(),
    );
    out.extend_from_slice(br#"{"value":["#);
    for (index, (token, attempt, event)) in events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // A token is base64, so it needs no escaping.
        for part in [
            r#"{"brokerProperties":{"lockToken":""#,
            token,
            r#"","deliveryCount":"#,
            &attempt.to_string(),
        ] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(br#"},"event":"#);
        // Topics of namespaces have CloudEvents only.
        out.extend_from_slice(event.wire_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}
