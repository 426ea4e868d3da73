//! When each of an event's next attempts would be, and how it would end.

use std::time::Duration;

use super::ExplainInput;
use crate::{
    endpoint,
    outcome::{Failure, LastOutcome, Outcome, Reason, RequestResult},
    record::{Health, PendingDelivery},
    retry::{self, Failed, Jitter, RetryDecision},
};
use gridhook_event::Timestamp;

/// Maximum attempts in a forecast: more than any edition of Azure's allows.
const FORECAST_MAX: usize = 100;

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

/// The start of the forecast.
pub(super) enum FirstStep {
    /// The assumed failure of the attempt in flight.
    AfterFailure { attempts: u32, sent: Timestamp },
    /// An attempt after `attempts` others.
    At { due: Timestamp, attempts: u32 },
}

/// A forecast without attempts and without an end.
pub(super) fn forecast_of_nothing(failure: Failure) -> Forecast {
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

pub(super) fn forecast_end(facts: &ExplainInput<'_>, next: FirstStep) -> Forecast {
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
