//! When each of an event's next attempts would be, and how it would end.

use std::time::Duration;

use super::ExplainInput;
use crate::{
    SubscriptionSettings, endpoint,
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

/// An attempt that follows if all before it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastAttempt {
    /// Its number, counted from 1.
    pub number: u32,
    /// When it is due, without jitter.
    pub at: Timestamp,
    /// Maximum delay that jitter adds.
    pub later_max: Duration,
}

/// The end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastEnd {
    /// The limit that ends it.
    pub reason: Reason,
    /// When it is given up, without jitter.
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
    // When its first attempt was sent, if there was one.
    let first_attempt = facts.pending.and_then(|(_, pending)| pending.received);
    let mut forecast = Forecast {
        failure: failure.outcome,
        status: failure.status,
        attempts: Vec::new(),
        end: None,
    };
    // The earliest and latest time of a first attempt that is part of the forecast.
    let mut first = None;
    let (mut made, mut at, mut latest) = match next {
        FirstStep::At { due, attempts } => (attempts, due, due),
        FirstStep::AfterFailure {
            attempts: made,
            sent,
        } => {
            first = Some((sent, sent));
            let attempt = Failed {
                number: made,
                first: first_attempt.unwrap_or(sent),
                sent,
                ended: now,
            };
            match [0.0, 1.0].map(|jitter| judge_attempt(settings, &failure, attempt, jitter)) {
                [RetryDecision::Again(at), RetryDecision::Again(latest)] => (made, at, latest),
                [RetryDecision::Never(reason), _] | [_, RetryDecision::Never(reason)] => {
                    return forecast.with_end(reason, now);
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
        return forecast.with_end(Reason::Missing, at);
    };
    let expires = settings.expiry_of(stored.appended);
    if dead_letters {
        let reason = if attempt_time < expires {
            Reason::ProbationCausedByClientError
        } else {
            Reason::TimeToLiveExceeded
        };
        return forecast.with_end(reason, attempt_time);
    }
    while forecast.attempts.len() < FORECAST_MAX {
        (at, latest) = (at.max(opens), latest.max(opens));
        if at >= expires {
            return forecast.with_end(Reason::TimeToLiveExceeded, at);
        }
        made += 1;
        forecast.attempts.push(ForecastAttempt {
            number: made,
            at,
            later_max: latest.since(at),
        });
        let (soonest, slowest) = *first.get_or_insert((at, latest));
        let earliest_attempt = Failed {
            number: made,
            first: first_attempt.unwrap_or(soonest),
            sent: at,
            ended: at,
        };
        let latest_attempt = Failed {
            number: made,
            first: first_attempt.unwrap_or(slowest),
            sent: latest,
            ended: latest,
        };
        match (
            judge_attempt(settings, &failure, earliest_attempt, 0.0),
            judge_attempt(settings, &failure, latest_attempt, 1.0),
        ) {
            (RetryDecision::Again(next), RetryDecision::Again(next_latest)) => {
                (at, latest) = (next, next_latest)
            }
            (RetryDecision::Never(reason), _) | (_, RetryDecision::Never(reason)) => {
                return forecast.with_end(reason, at);
            }
        }
    }
    forecast
}

impl Forecast {
    fn with_end(self, reason: Reason, at: Timestamp) -> Self {
        let end = Some(ForecastEnd { reason, at });
        Self { end, ..self }
    }
}

/// What follows if this attempt ends with `failure`. `jitter`: from 0.0 to 1.0.
fn judge_attempt(
    settings: &SubscriptionSettings,
    failure: &RequestResult,
    attempt: Failed,
    jitter: f64,
) -> RetryDecision {
    let edition = &settings.edition;
    let rules = edition.rules_for(settings.destination);
    let terms = rules.terms_for(settings.dead_letter);
    let attempts_max = settings.attempts_max;
    retry::judge_failure(
        edition,
        terms,
        attempts_max,
        attempt,
        failure,
        Jitter(jitter),
    )
}
