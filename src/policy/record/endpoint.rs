//! The state of an endpoint: its health, its pace and whether it is held.

use std::fmt;

use crate::outcome::Failure;
use gridhook_event::{Seq, Timestamp};

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The endpoint may be called.
    Healthy {
        /// Failed requests since the last success.
        failures: u32,
    },
    /// The endpoint is not called until `until`.
    Suspended {
        /// The failure that decided the duration.
        cause: Failure,
        /// When the first of the suspensions in a row began.
        since: Timestamp,
        /// When one probe may be sent.
        until: Timestamp,
        /// Number of suspensions in a row; each one is longer.
        consecutive_suspensions: u32,
    },
    /// One request is in flight as a probe.
    Probing {
        /// The failure that caused the suspension.
        cause: Failure,
        /// When the first of the suspensions in a row began.
        since: Timestamp,
        /// Number of suspensions in a row.
        consecutive_suspensions: u32,
    },
}

impl Default for Health {
    fn default() -> Self {
        Self::Healthy { failures: 0 }
    }
}

/// Why a subscription is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// `hold` was called.
    ByOperator,
    /// By a 410 response of the endpoint, if the subscription is configured to hold then.
    Gone,
    /// Because every request failed for too long, if the server is configured to hold then.
    EndpointFailing,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByOperator => "operator",
            Self::Gone => "410",
            Self::EndpointFailing => "EndpointFailing",
        })
    }
}

/// Identifies an endpoint: a hash of its URL, or of the resource and what is named in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointId(pub u64);

/// A rate of requests per million seconds, an integer so that it is compared and stored exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// Rounded to a millionth; negative numbers and NaN become 0.
    pub fn from_per_second(per_second: f64) -> Self {
        // The conversion saturates: negative and NaN become 0.
        Self((per_second * 1e6).round() as u64)
    }

    /// Requests per second, as people read it.
    pub fn per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// The stored part of an endpoint's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceRecord {
    /// The rate of successes in the last healthy window; [`None`] before the first success.
    pub healthy: Option<Rate>,
    /// When a request failed last.
    pub failed: Option<Timestamp>,
    /// Whether a pace has applied since its last probation.
    pub paced: bool,
    /// No request is sent before: the endpoint requested it (`Retry-After`).
    pub not_before: Option<Timestamp>,
    /// The endpoint that requested it. [`None`] without a wait, and in cursors of earlier versions.
    pub requested_by: Option<EndpointId>,
    /// The first failed request since the last success, or since the subscription was resumed.
    pub failing_since: Option<Timestamp>,
}

impl PaceRecord {
    /// The end of the wait that `endpoint` requested. A wait that another endpoint requested,
    /// before the subscription had its present one, does not count.
    pub fn wait_of(&self, endpoint: EndpointId) -> Option<Timestamp> {
        self.not_before
            .filter(|_| self.requested_by.is_none_or(|by| by == endpoint))
    }
}

/// The endpoint's state beyond its health, for people; not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointView {
    /// Its maximum rate; [`None`] without a pace or while it is suspended.
    pub rate: Option<Rate>,
    /// The rate of successes in its last healthy window.
    pub healthy_rate: Option<Rate>,
    /// Requests in flight that the adaptive limit allows at present.
    pub concurrency: u32,
    /// Events that a request may have at present: fewer after a 413.
    pub events_max: u32,
    /// What the order by key holds back; [`None`] without an order, as in most subscriptions.
    pub order: Option<Box<OrderView>>,
}

/// What a subscription holds back, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderView {
    /// Keys that hold back events.
    pub keys: usize,
    /// Events that are held back.
    pub events: usize,
    /// Keys that are blocked by an event until an operator decides.
    pub blocked: usize,
    /// The first of these events.
    pub first_blocking: Option<Seq>,
    /// Events in flight, waiting for a retry, blocking or held back.
    pub tracked: usize,
    /// Maximum of `tracked`: at it, no further event with a key is sent.
    pub tracked_max: usize,
}
