//! Explains events of pull delivery: who holds the lock and until when, why no client receives the
//! event, and when it ends without a client.
//!
//! Clients may come at any time or never, so no attempts are forecast, only the end.

use super::{AttemptForecast, EventState, ExplainInput, Explanation, Obstacle, current_state};
use crate::{
    PullSettings,
    batch::LastAttempt,
    outcome::{Failure, LastOutcome, Reason, RequestResult},
    record::{PendingDelivery, lease::RENEWED_FOR},
};
use gridhook_event::Timestamp;

/// The state of a pending delivery: leased, or waiting after a lease.
pub(super) fn pending_state(pending: &PendingDelivery, now: Timestamp) -> EventState {
    let PendingDelivery {
        attempts,
        due,
        last,
        status,
        tried,
        received,
    } = *pending;
    let is_locked = last == LastOutcome::Delivering;
    if is_locked && now < due {
        let renewable = received.unwrap_or(tried).after(RENEWED_FOR);
        return EventState::Locked {
            attempt: attempts,
            received: tried,
            until: due,
            renewable,
        };
    }
    // A lock that has just expired is about to be taken up.
    let outcome = if is_locked {
        Failure::TimedOut.into()
    } else {
        last
    };
    let last = LastAttempt {
        outcome,
        status,
        tried,
    };
    if now < due {
        EventState::Released {
            until: due,
            attempts,
            last,
        }
    } else {
        EventState::Available {
            since: due.max(tried),
            attempts,
            last,
        }
    }
}

pub(super) fn explain_pull(facts: &ExplainInput<'_>, pull: PullSettings) -> Explanation {
    let state = current_state(facts);
    let attempt_forecast = forecast_give_up(facts, &state);
    let obstacles = if attempt_forecast.is_some() {
        find_obstacles(facts, &state, pull)
    } else {
        Vec::new()
    };
    Explanation {
        state,
        obstacles,
        attempt_forecast,
    }
}

fn find_obstacles(
    facts: &ExplainInput<'_>,
    state: &EventState,
    pull: PullSettings,
) -> Vec<Obstacle> {
    let ExplainInput {
        cursor, clients, ..
    } = *facts;
    let mut obstacles: Vec<Obstacle> = cursor
        .held
        .map(|by| Obstacle::Held { by })
        .into_iter()
        .collect();
    let pending = cursor.counters.pending;
    let pending_max = pull.leases_max;
    if matches!(state, EventState::Unread { .. }) && pending >= u64::from(pending_max) {
        obstacles.push(Obstacle::Full {
            pending,
            pending_max,
        });
    }
    if clients == 0
        && matches!(
            state,
            EventState::Unread { .. } | EventState::Available { .. }
        )
    {
        obstacles.push(Obstacle::NoReceiver);
    }
    obstacles
}

/// When and why the event is given up if no client responds from now on.
fn forecast_give_up(facts: &ExplainInput<'_>, state: &EventState) -> Option<AttemptForecast> {
    let ExplainInput { settings, now, .. } = *facts;
    let (attempts, available_at) = match state {
        EventState::Locked { attempt, until, .. } => (*attempt, *until),
        EventState::Released {
            until, attempts, ..
        } => (*attempts, *until),
        EventState::Available { attempts, .. } => (*attempts, now),
        EventState::Open
        | EventState::Unread { .. }
        | EventState::InFlight { .. }
        | EventState::Pending { .. } => (0, now),
        EventState::HeldBack { .. } | EventState::Blocking { .. } => return None,
        EventState::Filtered
        | EventState::DeadLetter { .. }
        | EventState::Passed
        | EventState::Unpublished => {
            return None;
        }
    };
    let (reason, at) = match facts.event {
        Some(_) if attempts >= settings.attempts_max => {
            (Reason::MaxDeliveryAttemptsExceeded, available_at)
        }
        Some(stored) => {
            let expires = settings.expiry_of(stored.appended);
            (Reason::TimeToLiveExceeded, expires.max(available_at))
        }
        None => (Reason::Missing, available_at),
    };
    let timeout = RequestResult::from_outcome(Failure::TimedOut);
    Some(AttemptForecast::without_attempts(&timeout).with_give_up(reason, at))
}
