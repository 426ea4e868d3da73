//! Why an endpoint may not be called.

use super::Endpoint;
use crate::{
    outcome::Failure,
    record::{Health, HeldBy},
};
use gridhook_event::Timestamp;

/// Why an endpoint may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum Unavailable {
    /// The server stops, and sends nothing more.
    Closed,
    /// Nothing is sent until the subscription is resumed.
    Held { by: HeldBy },
    /// The endpoint requested a wait with `Retry-After`.
    RequestedWait {
        /// The end of the wait.
        until: Timestamp,
    },
    /// Too many requests failed in a row.
    Suspended {
        /// The failure that decided the duration.
        cause: Failure,
        /// When the first of the suspensions in a row began.
        since: Timestamp,
        /// When a probe may be sent.
        until: Timestamp,
        /// Number of suspensions in a row.
        consecutive_suspensions: u32,
    },
    /// A probe is in flight; everything else waits for its outcome.
    Probing {
        /// The failure that caused the suspension.
        cause: Failure,
        /// When the first of the suspensions in a row began.
        since: Timestamp,
        /// Number of suspensions in a row.
        consecutive_suspensions: u32,
    },
}

impl Unavailable {
    /// What speaks against a call of an endpoint in this state, whether it is over or not: a hold,
    /// a wait that the endpoint requested, and its health.
    pub fn find_all(
        held: Option<HeldBy>,
        requested_wait: Option<Timestamp>,
        health: Health,
    ) -> impl Iterator<Item = Self> {
        let health = match health {
            Health::Healthy { .. } => None,
            Health::Suspended {
                cause,
                since,
                until,
                consecutive_suspensions,
            } => Some(Self::Suspended {
                cause,
                since,
                until,
                consecutive_suspensions,
            }),
            Health::Probing {
                cause,
                since,
                consecutive_suspensions,
            } => Some(Self::Probing {
                cause,
                since,
                consecutive_suspensions,
            }),
        };
        held.map(|by| Self::Held { by })
            .into_iter()
            .chain(requested_wait.map(|until| Self::RequestedWait { until }))
            .chain(health)
    }

    /// Whether it is over, because it ends by itself.
    pub fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::RequestedWait { until } | Self::Suspended { until, .. } => until <= now,
            Self::Closed | Self::Held { .. } | Self::Probing { .. } => false,
        }
    }
}

impl Endpoint {
    /// Why it may not be called now.
    pub fn unavailable(&self, now: Timestamp) -> Option<Unavailable> {
        if self.is_closed {
            return Some(Unavailable::Closed);
        }
        Unavailable::find_all(self.held, self.pace.not_before, self.health)
            .find(|reason| !reason.is_over(now))
    }

    /// Why it may not be called, whatever its health: it is held, or the server stops.
    pub fn shut(&self) -> Option<Unavailable> {
        let hold = self.held.map(|by| Unavailable::Held { by });
        if self.is_closed {
            Some(Unavailable::Closed)
        } else {
            hold
        }
    }

    /// Whether a request may leave soon, so that reading ahead is useful.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.unavailable(now).is_none()
    }
}
