//! Explains why an event waits, and when each of its next attempts would be.
//!
//! The forecast uses the functions that will make the decisions
//! ([`judge_failure`](crate::retry::judge_failure) above all), so it says what would happen. It
//! assumes that each further attempt fails like the last one, that the endpoint is not suspended
//! meanwhile, and that it requests no longer wait. A pace is named but not included, because it
//! depends on all other waiting events.
//!
//! Invariants: no random numbers. Each attempt has its earliest time, and the maximum delay that
//! jitter may add. The schedule ends as the event would (maximum attempts, time to live, or
//! dead-lettering in probation), and names the reason.
//!
//! What it does not do: it looks nothing up. The caller collects the [`ExplainInput`] from disk and
//! memory. If the two were read at different moments, the requests in flight are the newer facts.

mod forecast;
mod pulled;

use std::sync::Arc;

pub use self::forecast::{AttemptForecast, ForecastAttempt, GiveUp};
use self::forecast::{FirstStep, forecast_attempts};
use crate::{
    OutgoingBatch, SendItem, SubscriptionSettings,
    batch::LastAttempt,
    endpoint::Unavailable,
    outcome::{Failure, Reason},
    record::{
        BLOCKING, Cursor, DeadLetterRecord, EndpointView, HELD_BACK, Health, HeldBy,
        PendingDelivery, Rate,
    },
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Facts about an event and a subscription that may receive it.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct ExplainInput<'a> {
    pub settings: &'a SubscriptionSettings,
    /// The subscription's cursor, including the endpoint's health.
    pub cursor: &'a Cursor,
    /// The endpoint's state beyond the cursor.
    pub endpoint: &'a EndpointView,
    /// Requests without a durable outcome, of any incarnation of the actor.
    pub requests: &'a [Arc<OutgoingBatch>],
    /// The end of the log.
    pub end: Seq,
    /// The event to explain.
    pub seq: Seq,
    /// The stored event, if it is found.
    pub event: Option<StoredEvent>,
    /// Its pending delivery and the lane, if any.
    pub pending: Option<(Lane, &'a PendingDelivery)>,
    /// Its dead letter, if it waits for the destination.
    pub dead: Option<WaitingDeadLetter<'a>>,
    /// Number of waiting clients, for pull delivery.
    pub clients: usize,
    /// The time for which the explanation holds.
    pub now: Timestamp,
}

/// What an explanation needs of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// When the journal appended it.
    pub appended: Timestamp,
    /// Whether the present filter matches it.
    pub matches: bool,
}

/// A dead letter that is not written yet.
#[derive(Clone, Copy, Debug)]
pub struct WaitingDeadLetter<'a> {
    /// Its record and the due time of its file, if they were found.
    pub record: Option<(&'a DeadLetterRecord, Timestamp)>,
}

/// The state of an event, its obstacles and its forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct Explanation {
    pub state: EventState,
    /// What blocks its next attempt; empty if there is none.
    pub obstacles: Vec<Obstacle>,
    /// Its next attempts; none if no attempt follows.
    pub attempt_forecast: Option<AttemptForecast>,
}

/// The state of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventState {
    /// A request with it is in flight.
    InFlight {
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// When the request was sent.
        since: Timestamp,
        /// When the request counts as lost.
        deadline: Timestamp,
    },
    /// It was tried and will be tried again.
    Pending {
        /// When the next attempt is due, before obstacles delay it.
        due: Timestamp,
        /// How often it was sent so far.
        attempts: u32,
        /// The outcome of the last attempt.
        last: LastAttempt,
    },
    /// An earlier event of its order key goes first.
    HeldBack {
        /// How often it was sent before it was held back.
        attempts: u32,
    },
    /// It would have been given up, and blocks its order key until an operator decides.
    Blocking {
        /// How often it was sent so far.
        attempts: u32,
        /// The outcome of the last attempt.
        last: LastAttempt,
    },
    /// A pull client holds its lock.
    Locked {
        /// The number of the attempt, counted from 1: the client's delivery count.
        attempt: u32,
        /// When the client received it.
        received: Timestamp,
        /// When the lock expires unless it is renewed.
        until: Timestamp,
        /// Until when the lock can be renewed.
        renewable: Timestamp,
    },
    /// A client released it with a delay.
    Released {
        /// The end of the delay.
        until: Timestamp,
        /// How often it was received.
        attempts: u32,
        /// The outcome of the last receive.
        last: LastAttempt,
    },
    /// It was received before and waits for a client.
    Available {
        /// When it last became available.
        since: Timestamp,
        /// How often it was received.
        attempts: u32,
        /// The outcome of the last receive.
        last: LastAttempt,
    },
    /// It was sent for the first time by a process that ended before the outcome; it is sent again.
    Open,
    /// It is in the log and not read yet.
    Unread {
        /// Number of events before it, matching or not.
        behind: u64,
    },
    /// The filter does not match it.
    Filtered,
    /// It was given up and waits to be written to the dead-letter destination.
    DeadLetter {
        /// The reason and the due time of its file, if the record was found.
        given_up: Option<(Reason, Timestamp)>,
    },
    /// It was delivered or given up; the ledger has the details.
    Passed,
    /// It was not published yet.
    Unpublished,
}

/// A cause that blocks or slows every attempt of the subscription, whatever the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum Obstacle {
    /// The subscription is held. The forecast assumes that it is resumed now.
    Held { by: HeldBy },
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
    /// The endpoint requested a wait with `Retry-After`.
    RetryAfter {
        /// The end of the wait.
        until: Timestamp,
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
    /// The endpoint is called at a limited rate. The forecast does not include the resulting wait.
    Paced {
        /// The maximum rate of requests.
        rate: Rate,
    },
    /// The limit of received, unsettled events is reached: clients receive no new ones.
    Full {
        /// Events that clients received and have not settled.
        pending: u64,
        /// `receive` returns no new event from this number on.
        pending_max: u32,
    },
    /// No client waits for events.
    NoReceiver,
}

impl Obstacle {
    /// Why an endpoint may not be called, as people see it. A server that stops is no obstacle.
    fn from_unavailable(reason: Unavailable) -> Option<Self> {
        match reason {
            Unavailable::Closed => None,
            Unavailable::Held { by } => Some(Self::Held { by }),
            Unavailable::RequestedWait { until } => Some(Self::RetryAfter { until }),
            Unavailable::Suspended {
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
            Unavailable::Probing {
                cause,
                since,
                consecutive_suspensions,
            } => Some(Self::Probing {
                cause,
                since,
                consecutive_suspensions,
            }),
        }
    }
}

/// Decides from `facts` alone, as the subscription would decide at `facts.now`.
pub fn explain_event(facts: ExplainInput<'_>) -> Explanation {
    if let Some(pull) = facts.settings.pull {
        return pulled::explain_pull(&facts, pull);
    }
    let state = current_state(&facts);
    let first_step = match &state {
        EventState::InFlight { attempt, since, .. } => Some(FirstStep::AfterFailure {
            attempts: *attempt,
            sent: *since,
        }),
        EventState::Pending { due, attempts, .. } => Some(FirstStep::At {
            due: *due,
            attempts: *attempts,
        }),
        EventState::Open | EventState::Unread { .. } => Some(FirstStep::At {
            due: facts.now,
            attempts: 0,
        }),
        EventState::HeldBack { .. }
        | EventState::Blocking { .. }
        | EventState::Locked { .. }
        | EventState::Released { .. }
        | EventState::Available { .. } => None,
        EventState::Filtered
        | EventState::DeadLetter { .. }
        | EventState::Passed
        | EventState::Unpublished => None,
    };
    let obstacles = if first_step.is_some() {
        find_obstacles(&facts)
    } else {
        Vec::new()
    };
    Explanation {
        state,
        obstacles,
        attempt_forecast: first_step.map(|step| forecast_attempts(&facts, step)),
    }
}

fn current_state(facts: &ExplainInput<'_>) -> EventState {
    let ExplainInput {
        settings,
        cursor,
        requests,
        seq,
        event,
        pending,
        dead,
        now,
        ..
    } = *facts;
    let is_it = |item: &&SendItem| item.seq == seq && !item.lane.is_job();
    let in_flight = requests
        .iter()
        .find_map(|request| Some((request, request.items.iter().find(is_it)?)));
    if let Some((request, item)) = in_flight {
        return EventState::InFlight {
            attempt: item.attempts + 1,
            since: request.sent,
            deadline: request.deadline,
        };
    }
    if let Some((_, pending)) = pending.filter(|(_, pending)| pending.due == HELD_BACK) {
        return EventState::HeldBack {
            attempts: pending.attempts,
        };
    }
    if let Some((_, pending)) = pending.filter(|(_, pending)| pending.due == BLOCKING) {
        return EventState::Blocking {
            attempts: pending.attempts,
            last: pending.into(),
        };
    }
    if let Some((_, pending)) = pending.filter(|_| settings.pull.is_some()) {
        return pulled::pending_state(pending, now);
    }
    if let Some((_, pending)) = pending {
        // An operator may have it attempted at once, whatever its due time was.
        let due = pending.due.max(pending.tried);
        return EventState::Pending {
            due,
            attempts: pending.attempts,
            last: pending.into(),
        };
    }
    if let Some(WaitingDeadLetter { record }) = dead {
        return EventState::DeadLetter {
            given_up: record.map(|(dead, due)| (dead.reason, due)),
        };
    }
    if seq >= facts.end {
        return EventState::Unpublished;
    }
    if cursor.own_lanes().any(|lane| lane.open.contains(seq)) {
        return EventState::Open;
    }
    if event.is_some_and(|event| !event.matches) {
        return EventState::Filtered;
    }
    // The lane that reaches it first.
    match cursor
        .own_lanes()
        .filter(|lane| lane.is_unread(seq))
        .map(|lane| seq.0 - lane.read.0)
        .min()
    {
        // Positions may have gaps, so this is an upper bound.
        Some(behind) => EventState::Unread { behind },
        None => EventState::Passed,
    }
}

fn find_obstacles(facts: &ExplainInput<'_>) -> Vec<Obstacle> {
    let ExplainInput {
        settings,
        cursor,
        endpoint,
        now,
        ..
    } = *facts;
    let requested_wait = cursor.pace.wait_of(settings.endpoint);
    let pace = endpoint
        .rate
        .filter(|_| matches!(cursor.health, Health::Healthy { .. }))
        .map(|rate| Obstacle::Paced { rate });
    Unavailable::find_all(cursor.held, requested_wait, current_health(facts))
        .filter(|reason| {
            !matches!(reason, Unavailable::RequestedWait { .. }) || !reason.is_over(now)
        })
        .filter_map(Obstacle::from_unavailable)
        .chain(pace)
        .collect()
}

/// The endpoint's health. A probe is sent before its state is written.
fn current_health(facts: &ExplainInput<'_>) -> Health {
    let is_sent_since = |at: Timestamp| {
        let mut requests = facts.requests.iter();
        requests.any(|request| request.endpoint == facts.settings.endpoint && request.sent >= at)
    };
    match facts.cursor.health {
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } if is_sent_since(until) => Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        },
        health => health,
    }
}
