//! Explains events of pull delivery: who holds the lock and until when, why no client receives the
//! event, and when it ends without a client.
//!
//! Clients may come at any time or never, so no attempts are forecast, only the end.

use super::{
    EventState, ExplainInput, Explanation, Forecast, ForecastEnd, Obstacle, current_state,
    forecast::forecast_of_nothing,
};
use crate::{
    PullSettings,
    batch::LastAttempt,
    outcome::{Failure, LastOutcome, Reason},
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
    let forecast = forecast_end(facts, &state);
    let obstacles = if forecast.is_some() {
        find_obstacles(facts, &state, pull)
    } else {
        Vec::new()
    };
    Explanation {
        state,
        obstacles,
        forecast,
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
    let most = pull.leases_max;
    if matches!(state, EventState::Unread { .. }) && pending >= u64::from(most) {
        obstacles.push(Obstacle::Full { pending, most });
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

/// How the event ends if no client responds from now on.
fn forecast_end(facts: &ExplainInput<'_>, state: &EventState) -> Option<Forecast> {
    let ExplainInput { settings, now, .. } = *facts;
    let (attempts, free) = match state {
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
    let end = match facts.event {
        Some(_) if attempts >= settings.attempts_max => ForecastEnd {
            reason: Reason::MaxDeliveryAttemptsExceeded,
            at: free,
        },
        Some(stored) => {
            let at = settings.expiry_of(stored.appended).max(free);
            ForecastEnd {
                reason: Reason::TimeToLiveExceeded,
                at,
            }
        }
        None => ForecastEnd {
            reason: Reason::Missing,
            at: free,
        },
    };
    Some(Forecast {
        end: Some(end),
        ..forecast_of_nothing(Failure::TimedOut)
    })
}
