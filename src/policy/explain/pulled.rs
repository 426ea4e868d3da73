//! Of what clients pull: who has an event and until when, or why nobody receives it, and when it ends if nobody ever says
//! anything.
//!
//! A client may come at any time or never: no attempt is foretold, only the end.

use super::{End, Explanation, Facts, Forecast, Obstacle, State, forecast_of_nothing, state};
use crate::{
    event::Timestamp,
    policy::{
        Pull,
        batch::Last,
        outcome::{Outcome, Reason},
        record::{Owed, lease::RENEWED_FOR},
    },
};

/// What is owed of it: a lease, or what is left of one.
pub(super) fn owed(owed: &Owed, now: Timestamp) -> State {
    let Owed { attempts, due, last, status, tried, received } = *owed;
    let is_locked = last == Outcome::Delivering;
    if is_locked && now < due {
        let renewable = received.unwrap_or(tried).after(RENEWED_FOR);
        return State::Locked { attempt: attempts, received: tried, until: due, renewable };
    }
    // A lock that has just expired is taken up in a moment.
    let outcome = if is_locked { Outcome::TimedOut } else { last };
    let last = Last { outcome, status, tried };
    match now < due {
        true => State::Released { until: due, attempts, last },
        false => State::Available { since: due, attempts, last },
    }
}

pub(super) fn explain(facts: &Facts<'_>, pull: Pull) -> Explanation {
    let state = state(facts);
    let forecast = forecast(facts, &state);
    let obstacles = if forecast.is_some() { obstacles(facts, &state, pull) } else { Vec::new() };
    Explanation { state, obstacles, forecast }
}

fn obstacles(facts: &Facts<'_>, state: &State, pull: Pull) -> Vec<Obstacle> {
    let Facts { cursor, clients, .. } = *facts;
    let mut obstacles: Vec<Obstacle> = cursor.held.map(|by| Obstacle::Held { by }).into_iter().collect();
    let (pending, most) = (cursor.counters.pending, pull.leases_max);
    if matches!(state, State::Unread { .. }) && pending >= u64::from(most) {
        obstacles.push(Obstacle::Full { pending, most });
    }
    if clients == 0 && matches!(state, State::Unread { .. } | State::Available { .. }) {
        obstacles.push(Obstacle::NobodyWaits);
    }
    obstacles
}

/// How it ends where no client says anything from now on.
fn forecast(facts: &Facts<'_>, state: &State) -> Option<Forecast> {
    let Facts { settings, now, .. } = *facts;
    let (attempts, free) = match state {
        State::Locked { attempt, until, .. } => (*attempt, *until),
        State::Released { until, attempts, .. } => (*attempts, *until),
        State::Available { attempts, .. } => (*attempts, now),
        State::Open | State::Unread { .. } | State::InFlight { .. } | State::Owed { .. } => (0, now),
        State::Filtered | State::DeadLetter { .. } | State::Passed | State::Unpublished => return None,
    };
    let end = match facts.event {
        Some(_) if attempts >= settings.attempts_max => End { reason: Reason::MaxDeliveryAttemptsExceeded, at: free },
        Some(stored) => {
            let at = settings.expires(stored.appended).max(free);
            End { reason: Reason::TimeToLiveExceeded, at }
        }
        None => End { reason: Reason::Missing, at: free },
    };
    Some(Forecast { end: Some(end), ..forecast_of_nothing(Outcome::TimedOut) })
}
