//! Explains why an event waits, and when each of its next attempts would be.
//!
//! The forecast uses the functions that will make the decisions ([`retry::judge_failure`] above all), so it
//! says what would happen. It assumes that each further attempt fails like the last one, that the
//! endpoint is not suspended meanwhile, and that it requests no longer wait. A pace is named but
//! not included, because it depends on all other waiting events.
//!
//! Invariants: no random numbers. Each attempt has its earliest time, and the maximum delay that
//! jitter may add. The schedule ends as the event would (maximum attempts, time to live, or
//! dead-lettering in probation), and names the reason.
//!
//! What it does not do: it looks nothing up. The caller collects the [`ExplainInput`] from disk and
//! memory. If the two were read at different moments, the requests in flight are the newer facts.

mod pulled;

use std::{sync::Arc, time::Duration};

use crate::{
    OutgoingBatch, SendItem, SubscriptionSettings,
    batch::LastAttempt,
    endpoint::{self, Unavailable},
    outcome::{Failure, LastOutcome, Outcome, Reason, RequestResult},
    record::{
        BLOCKING, Cursor, DeadLetterRecord, EndpointView, HELD_BACK, Health, HeldBy,
        PendingDelivery, Rate,
    },
    retry::{self, Failed, Jitter, RetryDecision},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Maximum attempts in a forecast: more than any edition of Azure's allows.
const FORECAST_MAX: usize = 100;

/// Facts about an event and a subscription that may receive it.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// The subscription's settings.
    pub settings: &'a SubscriptionSettings,
    /// The subscription's cursor, including the endpoint's health.
    pub cursor: &'a Cursor,
    /// The endpoint's state beyond the cursor.
    pub endpoint: &'a EndpointView,
    /// The requests in flight.
    pub requests: &'a [Arc<OutgoingBatch>],
    /// The end of the log.
    pub end: Seq,
    /// The event.
    pub seq: Seq,
    /// The stored event, if it is found.
    pub event: Option<StoredEvent>,
    /// Its pending delivery and the lane, if any.
    pub pending: Option<(Lane, &'a PendingDelivery)>,
    /// Its dead letter, if it waits for the destination.
    pub dead: Option<WaitingDeadLetter<'a>>,
    /// Number of waiting clients, for pull delivery.
    pub clients: usize,
    /// The present time.
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
pub struct Explanation {
    /// Its state.
    pub state: EventState,
    /// What blocks its next attempt; empty if there is none.
    pub obstacles: Vec<Obstacle>,
    /// Its next attempts; none if no attempt follows.
    pub forecast: Option<Forecast>,
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
        /// When.
        due: Timestamp,
        /// Attempts made.
        attempts: u32,
        /// The outcome of the last attempt.
        last: LastAttempt,
    },
    /// An earlier event of its order key goes first.
    HeldBack {
        /// Attempts made.
        attempts: u32,
    },
    /// It would have been given up, and blocks its order key until an operator decides.
    Blocking {
        /// Attempts made.
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
        /// Since when.
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

/// What blocks every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The subscription is held. The forecast assumes that it is resumed now.
    Held {
        /// Why it is held.
        by: HeldBy,
    },
    /// The endpoint is suspended.
    Suspended {
        /// The failure that decided the duration.
        cause: Failure,
        /// When the suspension began.
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
        /// When the suspension began.
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
        /// Number of these events.
        pending: u64,
        /// Their maximum.
        most: u32,
    },
    /// No client waits for events.
    NobodyWaits,
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

/// What happens if every attempt fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The assumed outcome of each attempt: that of the last one, else the cause of the suspension,
    /// else a timeout.
    pub failure: Outcome,
    /// The assumed status, if any.
    pub status: Option<u16>,
    /// The attempts in order. An attempt in flight is assumed to fail now.
    pub attempts: Vec<ForecastAttempt>,
    /// How the event ends; [`None`] if the forecast is cut off before.
    pub end: Option<ForecastEnd>,
}

/// A future attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastAttempt {
    /// Its number, counted from 1.
    pub number: u32,
    /// Its earliest time.
    pub at: Timestamp,
    /// Maximum delay that jitter adds.
    pub later_max: Duration,
}

/// The end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastEnd {
    /// The limit that ends it.
    pub reason: Reason,
    /// When, without jitter.
    pub at: Timestamp,
}

/// Explains an event.
pub fn explain_event(facts: ExplainInput<'_>) -> Explanation {
    if let Some(pull) = facts.settings.pull {
        return pulled::explain_pull(&facts, pull);
    }
    let state = current_state(&facts);
    let next = match &state {
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
    let obstacles = if next.is_some() {
        find_obstacles(&facts)
    } else {
        Vec::new()
    };
    Explanation {
        state,
        obstacles,
        forecast: next.map(|next| forecast_end(&facts, next)),
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

/// The start of the forecast.
enum FirstStep {
    /// The assumed failure of the attempt in flight.
    AfterFailure { attempts: u32, sent: Timestamp },
    /// An attempt after `attempts` others.
    At { due: Timestamp, attempts: u32 },
}

/// A forecast without attempts and without an end.
fn forecast_of_nothing(failure: Failure) -> Forecast {
    Forecast {
        failure: failure.into(),
        status: None,
        attempts: Vec::new(),
        end: None,
    }
}

/// Until when due events become dead letters at once.
fn dead_letters_until(facts: &ExplainInput<'_>) -> Option<Timestamp> {
    endpoint::client_error_until(facts.cursor.health)
        .filter(|_| facts.settings.dead_letter_in_probation)
}

fn forecast_end(facts: &ExplainInput<'_>, next: FirstStep) -> Forecast {
    let ExplainInput {
        settings,
        cursor,
        now,
        ..
    } = *facts;
    let (opens, cause) = match cursor.health {
        Health::Healthy { .. } => (now, None),
        Health::Suspended { cause, until, .. } => (now.max(until), Some(cause)),
        Health::Probing { cause, .. } => (now, Some(cause)),
    };
    let opens = opens.max(cursor.pace.wait_of(settings.endpoint).unwrap_or_default());
    let failure = match facts.pending {
        Some((
            _,
            PendingDelivery {
                attempts: 1..,
                last: LastOutcome::Attempted(last),
                status,
                ..
            },
        )) => RequestResult {
            status: *status,
            ..RequestResult::from_outcome(*last)
        },
        Some(_) | None => RequestResult::from_outcome(cause.unwrap_or(Failure::TimedOut)),
    };
    let terms = settings
        .edition
        .rules_for(settings.destination)
        .terms_for(settings.dead_letter);
    // When its first attempt was sent, if there was one.
    let first_attempt = facts.pending.and_then(|(_, pending)| pending.received);
    let fails = |number, first: Option<Timestamp>, sent, ended, jitter| {
        let attempt_failure = Failed {
            number,
            first: first_attempt.or(first).unwrap_or(sent),
            sent,
            ended,
        };
        retry::judge_failure(
            &settings.edition,
            terms,
            settings.attempts_max,
            attempt_failure,
            &failure,
            jitter,
        )
    };
    let end_with = |attempts, end| Forecast {
        failure: failure.outcome,
        status: failure.status,
        attempts,
        end,
    };
    let mut attempts = Vec::new();
    // The earliest and latest time of a first attempt that is part of the forecast.
    let mut first = None;
    let (mut made, mut at, mut latest) = match next {
        FirstStep::At { due, attempts } => (attempts, due, due),
        FirstStep::AfterFailure {
            attempts: made,
            sent,
        } => {
            first = Some((sent, sent));
            match [0.0, 1.0].map(|jitter| fails(made, None, sent, now, Jitter(jitter))) {
                [RetryDecision::Again(at), RetryDecision::Again(latest)] => (made, at, latest),
                [RetryDecision::Never(reason), _] | [_, RetryDecision::Never(reason)] => {
                    return end_with(attempts, Some(ForecastEnd { reason, at: now }));
                }
            }
        }
    };
    let attempt_time = at.max(now);
    let dead_letters = dead_letters_until(facts).is_some_and(|until| attempt_time < until);
    let Some(stored) = facts.event else {
        let at = if dead_letters {
            attempt_time
        } else {
            at.max(opens)
        };
        return end_with(
            attempts,
            Some(ForecastEnd {
                reason: Reason::Missing,
                at,
            }),
        );
    };
    let expires = settings.expiry_of(stored.appended);
    if dead_letters {
        let reason = if attempt_time < expires {
            Reason::ProbationCausedByClientError
        } else {
            Reason::TimeToLiveExceeded
        };
        return end_with(
            attempts,
            Some(ForecastEnd {
                reason,
                at: attempt_time,
            }),
        );
    }
    while attempts.len() < FORECAST_MAX {
        (at, latest) = (at.max(opens), latest.max(opens));
        if at >= expires {
            return end_with(
                attempts,
                Some(ForecastEnd {
                    reason: Reason::TimeToLiveExceeded,
                    at,
                }),
            );
        }
        made += 1;
        attempts.push(ForecastAttempt {
            number: made,
            at,
            later_max: latest.since(at),
        });
        let (soonest, slowest) = *first.get_or_insert((at, latest));
        let after = fails(made, Some(soonest), at, at, Jitter(0.0));
        match (
            after,
            fails(made, Some(slowest), latest, latest, Jitter(1.0)),
        ) {
            (RetryDecision::Again(next), RetryDecision::Again(next_latest)) => {
                (at, latest) = (next, next_latest)
            }
            (RetryDecision::Never(reason), _) | (_, RetryDecision::Never(reason)) => {
                return end_with(attempts, Some(ForecastEnd { reason, at }));
            }
        }
    }
    end_with(attempts, None)
}
