//! Healthy → Suspended → Probing → Healthy: when an endpoint is left alone, and for how long.
//!
//! So many failed requests in a row suspend it, and so does a share of failures over a window: an endpoint that takes
//! every second request is in need of rest as well. The outcome that crossed the line decides for how long; each probe that
//! fails makes the next wait twice as long, by its own outcome.
//!
//! Absent on purpose: memory. These are functions of a state and of what was heard; the whole is in the room's own file.

use std::time::Duration;

use super::meter::RequestCounts;
use crate::{
    event::Timestamp,
    policy::{edition::ProbationRules, outcome::Outcome, record::Health},
};

/// What an outcome says of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthSignal {
    /// It took the request.
    Took,
    /// It did not.
    Failed,
    /// It refused the events: that is not about the endpoint.
    Refused,
    /// Nothing: we ended the request ourselves.
    Nothing,
}

impl HealthSignal {
    /// What `outcome` says.
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Delivered => Self::Took,
            Outcome::Aborted | Outcome::Delivering => Self::Nothing,
            Outcome::NotFound
            | Outcome::Disabled
            | Outcome::Full
            | Outcome::Unauthorized
            | Outcome::BadRequest
            | Outcome::TimedOut
            | Outcome::Busy
            | Outcome::PayloadTooLarge
            | Outcome::Probation
            | Outcome::Canceled
            | Outcome::SocketError
            | Outcome::ResolutionError
            | Outcome::SessionQueueNotSupported
            | Outcome::Forbidden
            | Outcome::InvalidAzureFunctionDestination
            | Outcome::GenericError => Self::Failed,
        }
    }
}

/// Whether the cause of a probation is the client's, us: nothing will help before somebody puts it right (decision 15).
fn is_client_error(cause: Outcome) -> bool {
    match cause {
        Outcome::NotFound | Outcome::Unauthorized | Outcome::Forbidden => true,
        Outcome::Delivered
        | Outcome::Disabled
        | Outcome::Full
        | Outcome::BadRequest
        | Outcome::TimedOut
        | Outcome::Busy
        | Outcome::PayloadTooLarge
        | Outcome::Probation
        | Outcome::Canceled
        | Outcome::Aborted
        | Outcome::SocketError
        | Outcome::ResolutionError
        | Outcome::SessionQueueNotSupported
        | Outcome::InvalidAzureFunctionDestination
        | Outcome::GenericError
        | Outcome::Delivering => false,
    }
}

/// Until when it is left alone for an error of the client's.
pub fn misused_until(health: Health) -> Option<Timestamp> {
    match health {
        Health::Suspended { cause, until, .. } => is_client_error(cause).then_some(until),
        Health::Healthy { .. } | Health::Probing { .. } => None,
    }
}

/// What a healthy endpoint is after a failure that is number `failures` in a row, the window's included in `lately`.
pub(super) fn failed(
    failures: u32,
    suspend_after: u32,
    lately: RequestCounts,
    outcome: Outcome,
    table: &ProbationRules,
    now: Timestamp,
) -> Health {
    let requests = lately.took + lately.failed;
    let too_many = requests >= table.requests_min && lately.failed_share() >= table.failure_share;
    if failures < suspend_after && !too_many {
        return Health::Healthy { failures };
    }
    suspended(outcome, 1, now, table, now)
}

/// Left alone from now on, for the time that number `consecutive_suspensions` has of a suspension that began at `since`.
pub(super) fn suspended(
    cause: Outcome,
    strikes: u32,
    since: Timestamp,
    table: &ProbationRules,
    now: Timestamp,
) -> Health {
    Health::Suspended {
        cause,
        since,
        until: now.after(duration(table, cause, strikes)),
        consecutive_suspensions: strikes,
    }
}

/// As it was written down, on a clock that may have been set back since: no suspension is longer than its kind allows.
pub(super) fn recover(health: Health, table: &ProbationRules, now: Timestamp) -> Health {
    match health {
        Health::Healthy { .. } => health,
        Health::Suspended { cause, since, until, consecutive_suspensions: strikes } => {
            let until = until.min(now.after(duration(table, cause, strikes)));
            Health::Suspended { cause, since: since.min(now), until, consecutive_suspensions: strikes }
        }
        Health::Probing { cause, since, consecutive_suspensions: strikes } => {
            Health::Probing { cause, since: since.min(now), consecutive_suspensions: strikes }
        }
    }
}

/// How long an endpoint is left alone: the table's duration, doubled for each strike after the first.
pub fn duration(table: &ProbationRules, cause: Outcome, strikes: u32) -> Duration {
    let once = table.durations.get(&cause).copied().unwrap_or(table.otherwise);
    // Past 2^20 every duration of the table is years; a larger exponent would only overflow.
    once.saturating_mul(1 << strikes.saturating_sub(1).min(20)).min(table.longest)
}
