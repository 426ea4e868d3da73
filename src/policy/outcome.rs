//! What became of a request, in Event Grid's words, and of an event that is given up.

use std::{fmt, num::NonZeroU32, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// How a request ended, or why there was none: the values of `lastDeliveryOutcome` (seed 000) with the `GenericError`
/// of the delivery logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The endpoint took it: a status from 200 to 204.
    Delivered,
    /// 404 or 410.
    NotFound,
    /// The destination does not take events at present.
    Disabled,
    /// The destination's bound on operations is reached.
    Full,
    /// 401.
    Unauthorized,
    /// 400.
    BadRequest,
    /// 408, or no answer in time.
    TimedOut,
    /// 429 or 503.
    Busy,
    /// 413.
    PayloadTooLarge,
    /// The endpoint is on probation: no attempt was made.
    Probation,
    /// The subscription was deleted meanwhile.
    Canceled,
    /// We ended the request ourselves: at shutdown, or because the task that made it died.
    Aborted,
    /// No connection, no TLS, or a reset.
    SocketError,
    /// The name of the endpoint has no address.
    ResolutionError,
    /// An entity that wants sessions got an event without one.
    SessionQueueNotSupported,
    /// 403.
    Forbidden,
    /// An Azure Function that is none.
    InvalidAzureFunctionDestination,
    /// Every other status.
    GenericError,
    /// A client that pulls holds it, or has let it go without a word.
    #[serde(skip_deserializing)]
    Delivering,
}

impl Outcome {
    /// What an HTTP status from a webhook means (`spec`: decision 9).
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=204 => Self::Delivered,
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            408 => Self::TimedOut,
            413 => Self::PayloadTooLarge,
            429 | 503 => Self::Busy,
            _ => Self::GenericError,
        }
    }

    /// Whether it is what a status means that is never tried again.
    fn is_http(self) -> bool {
        match self {
            Self::BadRequest
            | Self::Unauthorized
            | Self::Forbidden
            | Self::NotFound
            | Self::PayloadTooLarge
            | Self::Busy
            | Self::Delivered => true,
            Self::TimedOut
            | Self::SocketError
            | Self::ResolutionError
            | Self::GenericError
            | Self::Disabled
            | Self::Full
            | Self::Probation
            | Self::Canceled
            | Self::Aborted
            | Self::SessionQueueNotSupported
            | Self::InvalidAzureFunctionDestination
            | Self::Delivering => false,
        }
    }
}

/// The bytes of outcomes on disk, as one list: an outcome without a byte, or two with the same one, do not compile.
macro_rules! stored_as {
    ($($outcome:ident = $byte:literal),+ $(,)?) => {
        impl Outcome {
            /// All of them.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$outcome),+].into_iter()
            }

            /// The byte that stands for it on disk.
            pub fn byte(self) -> u8 {
                match self {
                    $(Self::$outcome => $byte,)+
                }
            }

            /// The outcome that `byte` stands for.
            #[deny(unreachable_patterns)]
            pub fn of_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$outcome),)+
                    _ => None,
                }
            }
        }
    };
}

// A byte is never used again for another outcome.
stored_as! {
    Delivered = 0,
    NotFound = 1,
    Disabled = 2,
    Full = 3,
    Unauthorized = 4,
    BadRequest = 5,
    TimedOut = 6,
    Busy = 7,
    PayloadTooLarge = 8,
    Probation = 9,
    Canceled = 10,
    Aborted = 11,
    SocketError = 12,
    ResolutionError = 13,
    SessionQueueNotSupported = 14,
    Forbidden = 15,
    InvalidAzureFunctionDestination = 16,
    GenericError = 17,
    Delivering = 18,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why an event was given up: `deadLetterReason`, or the reason of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// As many attempts as the subscription allows were made.
    MaxDeliveryAttemptsExceeded,
    /// A scheduled attempt came later than the event may live.
    TimeToLiveExceeded,
    /// The endpoint's answer is one that is never tried again.
    Undeliverable(Outcome),
    /// The endpoint is on probation for an error of the client's kind, and the subscription asked not to wait.
    ProbationCausedByClientError,
    /// The event killed the actor that handled it, again and again.
    Quarantined,
    /// The event's bytes are gone from the store: damage, told instead of hidden.
    Missing,
    /// The topic's backlog was at its bound, and the operator chose that the oldest unread events go.
    BacklogExceeded,
    /// A client that pulls said that it will never process it.
    Rejected,
    /// It was being sent again, and the operator who had asked for it thought better of it.
    RedriveCanceled,
}

impl Reason {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let alone = [
            Self::MaxDeliveryAttemptsExceeded,
            Self::TimeToLiveExceeded,
            Self::ProbationCausedByClientError,
            Self::Quarantined,
            Self::Missing,
            Self::BacklogExceeded,
            Self::Rejected,
            Self::RedriveCanceled,
        ];
        let failed = Outcome::all().filter(|outcome| *outcome != Outcome::Delivered);
        alone.into_iter().chain(failed.map(Self::Undeliverable))
    }

    /// The byte pair that stands for it on disk; the second is an outcome's.
    pub fn bytes(self) -> [u8; 2] {
        match self {
            Self::MaxDeliveryAttemptsExceeded => [1, 0],
            Self::TimeToLiveExceeded => [2, 0],
            Self::Undeliverable(outcome) => [3, outcome.byte()],
            Self::ProbationCausedByClientError => [4, 0],
            Self::Quarantined => [5, 0],
            Self::Missing => [6, 0],
            Self::BacklogExceeded => [7, 0],
            Self::Rejected => [8, 0],
            Self::RedriveCanceled => [9, 0],
        }
    }

    /// The reason that a byte pair stands for.
    pub fn of_bytes([kind, outcome]: [u8; 2]) -> Option<Self> {
        match kind {
            1 => Some(Self::MaxDeliveryAttemptsExceeded),
            2 => Some(Self::TimeToLiveExceeded),
            3 => Outcome::of_byte(outcome).map(Self::Undeliverable),
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
            Self::Undeliverable(outcome) if outcome.is_http() => write!(f, "UndeliverableDueToHttp{outcome}"),
            Self::Undeliverable(outcome) => write!(f, "UndeliverableDueTo{outcome}"),
            Self::ProbationCausedByClientError => f.write_str("UndeliverableDueToProbationCausedByClientError"),
            Self::Quarantined => f.write_str("Quarantined"),
            Self::Missing => f.write_str("Missing"),
            Self::BacklogExceeded => f.write_str("BacklogExceeded"),
            Self::Rejected => f.write_str("Rejected"),
            Self::RedriveCanceled => f.write_str("RedriveCanceled"),
        }
    }
}

/// How long something took, in microseconds: what is over sooner took one, so that there is no room for nothing. It goes up
/// to an hour, longer than any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(NonZeroU32);

impl Elapsed {
    /// So long.
    pub fn of(time: Duration) -> Self {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN))
    }

    /// How long that is.
    pub fn time(self) -> Duration {
        Duration::from_micros(self.0.get().into())
    }
}

/// How long the parts of a request took: [`None`] for one that it did not have (a connection that is used again is not
/// made) or did not come to the end of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPhases {
    /// Its name was looked up.
    pub name: Option<Elapsed>,
    /// Its connection was made: one address after another, where there were several.
    pub connection: Option<Elapsed>,
    /// TLS was agreed on.
    pub tls: Option<Elapsed>,
    /// The endpoint had all of it and began to answer.
    pub first_byte: Option<Elapsed>,
    /// The answer's body was read.
    pub body: Option<Elapsed>,
}

/// What a request brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestResult {
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status, where there was an answer.
    pub status: Option<u16>,
    /// How long the endpoint asked to be left alone.
    pub retry_after: Option<Duration>,
    /// From the first byte sent to the last one read.
    pub latency: Duration,
    /// How long which part of it took.
    pub phases: RequestPhases,
    /// The first bytes of the answer's body.
    pub body: Bytes,
    /// What went wrong, for people, where there was no answer.
    pub detail: String,
    /// Whether no connection was made, for a cause of the network: refused, no route, no name, or nobody answered.
    pub unreached: bool,
}

impl RequestResult {
    /// An answer that says nothing but how the request ended.
    pub fn bare(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: None,
            retry_after: None,
            latency: Duration::ZERO,
            phases: RequestPhases::default(),
            body: Bytes::new(),
            detail: String::new(),
            unreached: false,
        }
    }
}
