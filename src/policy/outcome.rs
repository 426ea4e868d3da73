//! How requests end, in Event Grid's terms, and reasons why an event is given up.
//!
//! Three types, each a part of the next: a [`Failure`] is why a request failed, an [`Outcome`] is
//! how a request ended, and a [`LastOutcome`] is what a record says of an event's last attempt.
//! Each value has one stored byte and one name.

use std::{cmp::Ordering, fmt, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use serde::Deserialize;

use gridhook_event::Seq;

/// Why a request failed: a status other than 200 to 204, or no response. The values of
/// `lastDeliveryOutcome` that stand for a failure, and `GenericError` of the delivery logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum Failure {
    /// 404 or 410.
    NotFound,
    /// The destination is disabled at present.
    Disabled,
    /// The destination's limit of operations is reached.
    Full,
    /// 401.
    Unauthorized,
    /// 400.
    BadRequest,
    /// 408, or no response in time.
    TimedOut,
    /// 429 or 503.
    Busy,
    /// 413.
    PayloadTooLarge,
    /// No connection, no TLS session, or a reset.
    SocketError,
    /// The endpoint's host name has no address.
    ResolutionError,
    /// A queue that requires sessions received an event without one.
    SessionQueueNotSupported,
    /// 403.
    Forbidden,
    /// The destination is not a valid Azure Function.
    InvalidAzureFunctionDestination,
    /// Any other status, or a response that is not HTTP.
    GenericError,
    /// The subscription's transformation failed. No request was made.
    TransformationFailed,
    /// A service refuses the credentials that the operator has configured for it. It is never the
    /// fault of an event.
    CredentialRefused,
}

impl Failure {
    /// Whether its name stands for an HTTP status, for the reasons of dead letters.
    fn is_http(self) -> bool {
        match self {
            Self::BadRequest
            | Self::Unauthorized
            | Self::Forbidden
            | Self::NotFound
            | Self::PayloadTooLarge
            | Self::Busy => true,
            Self::TimedOut
            | Self::SocketError
            | Self::ResolutionError
            | Self::GenericError
            | Self::Disabled
            | Self::Full
            | Self::SessionQueueNotSupported
            | Self::InvalidAzureFunctionDestination
            | Self::TransformationFailed
            | Self::CredentialRefused => false,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Accepted: a status from 200 to 204.
    Delivered,
    /// Aborted by gridhook: at shutdown, or because the sending task panicked. It says nothing
    /// about the endpoint.
    Aborted,
    /// The subscription was deleted while the request was in flight.
    Canceled,
    /// A status other than 200 to 204, or no response.
    Failed(Failure),
}

impl Outcome {
    /// The outcome of an HTTP status from a webhook.
    pub fn from_status(status: u16) -> Self {
        Self::Failed(match status {
            200..=204 => return Self::Delivered,
            400 => Failure::BadRequest,
            401 => Failure::Unauthorized,
            403 => Failure::Forbidden,
            404 | 410 => Failure::NotFound,
            408 => Failure::TimedOut,
            413 => Failure::PayloadTooLarge,
            429 | 503 => Failure::Busy,
            _ => Failure::GenericError,
        })
    }
}

/// Stored counts are in the order of the bytes.
impl Ord for Outcome {
    fn cmp(&self, other: &Self) -> Ordering {
        self.to_byte().cmp(&other.to_byte())
    }
}

impl PartialOrd for Outcome {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The outcome of an event's last attempt, or the event's state where no request with it has ended:
/// `lastDeliveryOutcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastOutcome {
    /// The last request ended with this outcome.
    Attempted(Outcome),
    /// The endpoint is on probation; no attempt was made.
    Probation,
    /// A pull client holds the event, or let its lock expire.
    Delivering,
}

impl<O: Into<Outcome>> From<O> for LastOutcome {
    fn from(outcome: O) -> Self {
        Self::Attempted(outcome.into())
    }
}

/// The stored bytes and the names of these types, each as one list: a value without a byte, or two
/// with the same byte, do not compile.
macro_rules! stored_as {
    ($type:ty { $($value:ident = $byte:literal),+ $(,)? $(; $part:ident in $inner:ty)? }) => {
        impl $type {
            /// Every value once, in the order of the list.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$value),+].into_iter()$(.chain(<$inner>::all().map(Self::$part)))?
            }

            /// The byte stored for it.
            pub fn to_byte(self) -> u8 {
                match self {
                    $(Self::$value => $byte,)+
                    $(Self::$part(inner) => inner.to_byte(),)?
                }
            }

            /// The value of a stored byte.
            #[deny(unreachable_patterns)]
            pub fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$value),)+
                    _ => None$(.or_else(|| <$inner>::from_byte(byte).map(Self::$part)))?,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$value => f.write_str(stringify!($value)),)+
                    $(Self::$part(inner) => inner.fmt(f),)?
                }
            }
        }
    };
}

// The three share one range of bytes. A byte is never reused for another value.
stored_as! {
    Failure {
        NotFound = 1,
        Disabled = 2,
        Full = 3,
        Unauthorized = 4,
        BadRequest = 5,
        TimedOut = 6,
        Busy = 7,
        PayloadTooLarge = 8,
        SocketError = 12,
        ResolutionError = 13,
        SessionQueueNotSupported = 14,
        Forbidden = 15,
        InvalidAzureFunctionDestination = 16,
        GenericError = 17,
        TransformationFailed = 19,
        CredentialRefused = 20,
    }
}
stored_as! {
    Outcome {
        Delivered = 0,
        Canceled = 10,
        Aborted = 11;
        Failed in Failure
    }
}
stored_as! {
    LastOutcome {
        Probation = 9,
        Delivering = 18;
        Attempted in Outcome
    }
}

/// Why an event is given up: `deadLetterReason`, or the reason of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The subscription's maximum attempts were made.
    MaxDeliveryAttemptsExceeded,
    /// The next attempt would be after the event's time to live.
    TimeToLiveExceeded,
    /// The endpoint returned a status that is never retried.
    Undeliverable(Failure),
    /// The endpoint is on probation after a client error, and the subscription is configured not to
    /// wait.
    ProbationCausedByClientError,
    /// A poison event: the actor that processed it panicked repeatedly.
    Quarantined,
    /// The event's bytes are missing from a damaged store.
    Missing,
    /// The topic's backlog reached its limit, and the operator chose to drop the oldest unread
    /// events.
    BacklogExceeded,
    /// A pull client rejected it.
    Rejected,
    /// The redrive that sent it again was canceled.
    RedriveCanceled,
}

impl Reason {
    /// Every reason, those of a failure included.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain_reasons = [
            Self::MaxDeliveryAttemptsExceeded,
            Self::TimeToLiveExceeded,
            Self::ProbationCausedByClientError,
            Self::Quarantined,
            Self::Missing,
            Self::BacklogExceeded,
            Self::Rejected,
            Self::RedriveCanceled,
        ];
        plain_reasons
            .into_iter()
            .chain(Failure::all().map(Self::Undeliverable))
    }

    /// The two bytes stored for it; the second is a failure's.
    pub fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::MaxDeliveryAttemptsExceeded => [1, 0],
            Self::TimeToLiveExceeded => [2, 0],
            Self::Undeliverable(failure) => [3, failure.to_byte()],
            Self::ProbationCausedByClientError => [4, 0],
            Self::Quarantined => [5, 0],
            Self::Missing => [6, 0],
            Self::BacklogExceeded => [7, 0],
            Self::Rejected => [8, 0],
            Self::RedriveCanceled => [9, 0],
        }
    }

    /// The reason of two stored bytes.
    pub fn from_bytes([kind, failure]: [u8; 2]) -> Option<Self> {
        match kind {
            1 => Some(Self::MaxDeliveryAttemptsExceeded),
            2 => Some(Self::TimeToLiveExceeded),
            3 => Failure::from_byte(failure).map(Self::Undeliverable),
            4 => Some(Self::ProbationCausedByClientError),
            5 => Some(Self::Quarantined),
            6 => Some(Self::Missing),
            7 => Some(Self::BacklogExceeded),
            8 => Some(Self::Rejected),
            9 => Some(Self::RedriveCanceled),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxDeliveryAttemptsExceeded => f.write_str("MaxDeliveryAttemptsExceeded"),
            Self::TimeToLiveExceeded => f.write_str("TimeToLiveExceeded"),
            // The destination is not the cause.
            Self::Undeliverable(Failure::TransformationFailed) => {
                f.write_str("TransformationFailed")
            }
            Self::Undeliverable(failure) if failure.is_http() => {
                write!(f, "UndeliverableDueToHttp{failure}")
            }
            Self::Undeliverable(failure) => write!(f, "UndeliverableDueTo{failure}"),
            Self::ProbationCausedByClientError => {
                f.write_str("UndeliverableDueToProbationCausedByClientError")
            }
            Self::Quarantined => f.write_str("Quarantined"),
            Self::Missing => f.write_str("Missing"),
            Self::BacklogExceeded => f.write_str("BacklogExceeded"),
            Self::Rejected => f.write_str("Rejected"),
            Self::RedriveCanceled => f.write_str("RedriveCanceled"),
        }
    }
}

/// A duration in microseconds, from 1 µs to one hour, which is longer than any request. Zero is
/// rounded up, so that an `Option` needs no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(NonZeroU32);

impl Elapsed {
    /// Rounds a duration into the range.
    pub fn from_duration(time: Duration) -> Self {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN))
    }

    /// Between 1 µs and one hour, to the microsecond.
    pub fn to_duration(self) -> Duration {
        Duration::from_micros(self.0.get().into())
    }
}

/// Durations of the phases of a request; [`None`] for a phase that did not happen (a reused
/// connection is not made) or did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPhases {
    /// Resolution of the host name.
    pub name: Option<Elapsed>,
    /// Connecting, including all addresses tried.
    pub connection: Option<Elapsed>,
    /// TLS handshake, with the check of the certificate.
    pub tls: Option<Elapsed>,
    /// From sending the request to the first byte of the response.
    pub first_byte: Option<Elapsed>,
    /// From the first byte of the response to the end of its body.
    pub body: Option<Elapsed>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct RequestResult {
    pub outcome: Outcome,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The wait that the endpoint requested.
    pub retry_after: Option<Duration>,
    /// From the first byte sent to the last byte read.
    pub latency: Duration,
    /// Where the latency was spent.
    pub phases: RequestPhases,
    /// The first bytes of the response body.
    pub body: Bytes,
    /// The error, if there was no response.
    pub detail: String,
    /// Whether no connection was made because of the network: refused, no route, no name, or a
    /// timeout.
    pub unreached: bool,
    /// Whether it was sent a second time, with a new access token.
    pub repeated: bool,
    /// The results of the single events where a service has taken some of them only; empty where
    /// the result is that of all events.
    pub events: Vec<EventResult>,
    /// The heads of a failed HTTP request.
    pub heads: Option<Box<RequestHeads>>,
}

/// The heads of a request and its response as operators see them: bounded, and without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeads {
    /// The request line and the header fields; empty if they are not known.
    pub request: String,
    /// The header fields of the response; empty without a response.
    pub response: String,
}

/// The result of one event of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct EventResult {
    pub seq: Seq,
    pub outcome: Outcome,
    /// The HTTP status that means the same, if there is one.
    pub status: Option<u16>,
    /// The service's error for this event; empty if it accepted the event.
    pub detail: String,
}

impl EventResult {
    /// The service has taken this event.
    pub fn delivered(seq: Seq) -> Self {
        Self {
            seq,
            outcome: Outcome::Delivered,
            status: Some(200),
            detail: String::new(),
        }
    }

    /// The event has the result that a request with it alone would have.
    pub fn new(seq: Seq, result: &RequestResult) -> Self {
        Self {
            seq,
            outcome: result.outcome,
            status: result.status,
            detail: result.detail.clone(),
        }
    }
}

impl RequestResult {
    /// A result with nothing but an outcome.
    pub fn from_outcome(outcome: impl Into<Outcome>) -> Self {
        Self {
            outcome: outcome.into(),
            status: None,
            retry_after: None,
            latency: Duration::ZERO,
            phases: RequestPhases::default(),
            body: Bytes::new(),
            detail: String::new(),
            unreached: false,
            repeated: false,
            heads: None,
            events: Vec::new(),
        }
    }

    /// The result of a request with these results of its events. What it shows of the endpoint is
    /// the worst that the events say: it wants fewer requests, it failed, it took some of them.
    #[must_use]
    pub fn with_events(self, events: Vec<EventResult>) -> Self {
        let Some(first) = events.first() else {
            return self;
        };
        let busy = |event: &&EventResult| event.outcome == Outcome::Failed(Failure::Busy);
        let is_delivered = |event: &&EventResult| event.outcome == Outcome::Delivered;
        let worst = events
            .iter()
            .find(busy)
            .or_else(|| events.iter().find(is_delivered))
            .unwrap_or(first);
        let EventResult {
            outcome,
            status,
            detail,
            seq: _,
        } = worst.clone();
        let is_same = events
            .iter()
            .all(|event| (event.outcome, event.status) == (outcome, status));
        Self {
            outcome,
            status,
            detail,
            events: if is_same { Vec::new() } else { events },
            ..self
        }
    }

    /// The result of the events that have this result of their own.
    pub fn for_event(&self, event: &EventResult) -> Self {
        let EventResult {
            outcome,
            status,
            detail,
            seq: _,
        } = event.clone();
        Self {
            outcome,
            status,
            detail,
            body: Bytes::new(),
            events: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether all events were accepted.
    pub fn is_delivered(&self) -> bool {
        self.outcome == Outcome::Delivered && self.events.is_empty()
    }
}
