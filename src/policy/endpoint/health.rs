//! The health of an endpoint: Healthy → Suspended → Probing → Healthy.
//!
//! An endpoint is suspended after a number of consecutive failed requests, or when the share of
//! failures in a window is too high. The failure that crossed the limit decides for how long. Each
//! failed probe doubles the next suspension, counted from the duration of its own failure.
//!
//! What it does not do: it keeps no state. These are functions of a state and a failure;
//! [`super::Endpoint`] holds the state.

use std::time::Duration;

use super::meter::RequestCounts;
use crate::{
    edition::ProbationRules,
    outcome::{Failure, Outcome},
    record::Health,
};
use gridhook_event::Timestamp;

/// What an outcome says about an endpoint's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthSignal {
    /// A status from 200 to 204.
    Accepted,
    /// The request failed by a fault of the endpoint.
    Failed(Failure),
    /// It rejected the events; its health is not concerned.
    Refused,
    /// Nothing: gridhook aborted the request.
    Nothing,
}

impl From<Outcome> for HealthSignal {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Delivered => Self::Accepted,
            Outcome::Failed(failure) => Self::Failed(failure),
            Outcome::Aborted | Outcome::Canceled => Self::Nothing,
        }
    }
}

/// Whether the probation was caused by a client error: it lasts until someone corrects the
/// configuration.
fn is_client_error(cause: Failure) -> bool {
    matches!(
        cause,
        Failure::NotFound | Failure::Unauthorized | Failure::Forbidden
    )
}

/// The end of a suspension after a client error.
pub fn client_error_until(health: Health) -> Option<Timestamp> {
    match health {
        Health::Suspended { cause, until, .. } => is_client_error(cause).then_some(until),
        Health::Healthy { .. } | Health::Probing { .. } => None,
    }
}

/// The state of a healthy endpoint after its failure number `failures` in a row, included in
/// `recent`.
pub(super) fn after_failure(
    failures: u32,
    suspend_after: u32,
    recent: RequestCounts,
    failure: Failure,
    table: &ProbationRules,
    now: Timestamp,
) -> Health {
    let requests = recent.accepted + recent.failed;
    let too_many = requests >= table.requests_min && recent.failed_share() >= table.failure_share;
    if failures < suspend_after && !too_many {
        return Health::Healthy { failures };
    }
    new_suspension(failure, 1, now, table, now)
}

/// The state of an endpoint suspended now, for the duration of suspension number
/// `consecutive_suspensions` in a row; the first began at `since`.
pub(super) fn new_suspension(
    cause: Failure,
    consecutive_suspensions: u32,
    since: Timestamp,
    table: &ProbationRules,
    now: Timestamp,
) -> Health {
    Health::Suspended {
        cause,
        since,
        until: now.after(suspension_duration(table, cause, consecutive_suspensions)),
        consecutive_suspensions,
    }
}

/// Recovers a stored state. The clock may have been set back since, so a suspension is capped at
/// its duration.
pub(super) fn cap_recovered(health: Health, table: &ProbationRules, now: Timestamp) -> Health {
    match health {
        Health::Healthy { .. } => health,
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => {
            let until =
                until.min(now.after(suspension_duration(table, cause, consecutive_suspensions)));
            Health::Suspended {
                cause,
                since: since.min(now),
                until,
                consecutive_suspensions,
            }
        }
        Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => Health::Probing {
            cause,
            since: since.min(now),
            consecutive_suspensions,
        },
    }
}

/// The duration of a suspension: that of the table, doubled for each suspension in a row after the
/// first.
pub fn suspension_duration(
    table: &ProbationRules,
    cause: Failure,
    consecutive_suspensions: u32,
) -> Duration {
    let once = table
        .durations
        .get(&cause)
        .copied()
        .unwrap_or(table.otherwise);
    // Beyond 2^20 every duration is years, and a larger exponent would overflow.
    once.saturating_mul(1 << consecutive_suspensions.saturating_sub(1).min(20))
        .min(table.longest)
}
