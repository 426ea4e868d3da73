//! When each of an event's next attempts would be, and how it would end.

use std::time::Duration;

use super::ExplainInput;
use crate::{
    SubscriptionSettings, endpoint,
    outcome::{Failure, LastOutcome, Outcome, Reason, RequestResult},
    record::{Health, PendingDelivery},
    retry::{self, FailedAttempt, Jitter, RetryDecision},
};
use gridhook_event::Timestamp;

/// Maximum attempts in a forecast: more than any edition of Azure's allows.
const FORECAST_ATTEMPTS_MAX: usize = 100;

/// What happens if every attempt fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptForecast {
    /// The assumed outcome of each attempt: that of the last one, else the cause of the suspension,
    /// else a timeout.
    pub failure: Outcome,
    /// The assumed status, if any.
    pub status: Option<u16>,
    /// The attempts in order. An attempt in flight is assumed to fail now.
    pub attempts: Vec<ForecastAttempt>,
    /// Why and when the event is given up; [`None`] if the forecast is cut off before.
    pub give_up: Option<GiveUp>,
}

/// An attempt that follows if all before it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastAttempt {
    /// Its number, counted from 1.
    pub number: u32,
    /// When it is due, without jitter.
    pub at: Timestamp,
    /// Maximum delay that jitter adds.
    pub jitter_max: Duration,
}

/// An event is delivered no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// The limit that the event exceeds.
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

/// The time of an attempt with the least and with the most jitter.
#[derive(Clone, Copy)]
struct AttemptTimes {
    earliest: Timestamp,
    latest: Timestamp,
}

impl AttemptTimes {
    fn exactly(time: Timestamp) -> Self {
        Self {
            earliest: time,
            latest: time,
        }
    }

    fn not_before(self, time: Timestamp) -> Self {
        Self {
            earliest: self.earliest.max(time),
            latest: self.latest.max(time),
        }
    }
}

/// Predicts the attempts of an event that follow `first_step`, and when it is given up.
pub(super) fn forecast_attempts(
    facts: &ExplainInput<'_>,
    first_step: FirstStep,
) -> AttemptForecast {
    let ExplainInput { settings, now, .. } = *facts;
    let failure = assume_failure(facts);
    let mut forecast = AttemptForecast::without_attempts(&failure);
    let mut retry_clock = RetryClock {
        settings,
        failure,
        stored_first: facts.pending.and_then(|(_, pending)| pending.received),
        first: None,
    };
    let (mut attempts, mut times) = match first_step {
        FirstStep::At { due, attempts } => (attempts, AttemptTimes::exactly(due)),
        FirstStep::AfterFailure { attempts, sent } => {
            let sent = AttemptTimes::exactly(sent);
            match retry_clock.next_times(attempts, sent, AttemptTimes::exactly(now)) {
                Ok(times) => (attempts, times),
                Err(reason) => return forecast.with_give_up(reason, now),
            }
        }
    };
    let sendable_at = sendable_at(facts);
    let expires = match find_expiry(facts, times.earliest, sendable_at) {
        Ok(expires) => expires,
        Err(GiveUp { reason, at }) => return forecast.with_give_up(reason, at),
    };
    while forecast.attempts.len() < FORECAST_ATTEMPTS_MAX {
        times = times.not_before(sendable_at);
        if times.earliest >= expires {
            return forecast.with_give_up(Reason::TimeToLiveExceeded, times.earliest);
        }
        attempts += 1;
        forecast.attempts.push(ForecastAttempt {
            number: attempts,
            at: times.earliest,
            jitter_max: times.latest.since(times.earliest),
        });
        match retry_clock.next_times(attempts, times, times) {
            Ok(next_times) => times = next_times,
            Err(reason) => return forecast.with_give_up(reason, times.earliest),
        }
    }
    forecast
}

/// The outcome of the last attempt, else the cause of the suspension, else a timeout.
fn assume_failure(facts: &ExplainInput<'_>) -> RequestResult {
    match facts.pending {
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
        Some(_) | None => {
            let cause = match facts.cursor.health {
                Health::Healthy { .. } => None,
                Health::Suspended { cause, .. } | Health::Probing { cause, .. } => Some(cause),
            };
            RequestResult::from_outcome(cause.unwrap_or(Failure::TimedOut))
        }
    }
}

/// When the endpoint may be called, as far as a suspension and a requested wait decide.
fn sendable_at(facts: &ExplainInput<'_>) -> Timestamp {
    let ExplainInput {
        settings,
        cursor,
        now,
        ..
    } = *facts;
    let probe_at = match cursor.health {
        Health::Suspended { until, .. } => now.max(until),
        Health::Healthy { .. } | Health::Probing { .. } => now,
    };
    let requested_wait = cursor.pace.wait_of(settings.endpoint);
    probe_at.max(requested_wait.unwrap_or_default())
}

/// When the event expires. The error: it is given up without an attempt at `due`.
fn find_expiry(
    facts: &ExplainInput<'_>,
    due: Timestamp,
    sendable_at: Timestamp,
) -> Result<Timestamp, GiveUp> {
    let at = due.max(facts.now);
    let is_dead_lettered = dead_letters_until(facts).is_some_and(|until| at < until);
    let Some(stored) = facts.event else {
        return Err(GiveUp {
            reason: Reason::Missing,
            at: if is_dead_lettered {
                at
            } else {
                due.max(sendable_at)
            },
        });
    };
    let expires = facts.settings.expiry_of(stored.appended);
    if !is_dead_lettered {
        return Ok(expires);
    }
    let reason = if at < expires {
        Reason::ProbationCausedByClientError
    } else {
        Reason::TimeToLiveExceeded
    };
    Err(GiveUp { reason, at })
}

/// Until when due events become dead letters at once.
fn dead_letters_until(facts: &ExplainInput<'_>) -> Option<Timestamp> {
    endpoint::client_error_until(facts.cursor.health)
        .filter(|_| facts.settings.dead_letter_in_probation)
}

/// Decides about failed attempts as [`retry`] would.
struct RetryClock<'a> {
    settings: &'a SubscriptionSettings,
    failure: RequestResult,
    /// When the first attempt was sent, if that is stored.
    stored_first: Option<Timestamp>,
    /// When the first attempt of the forecast is sent.
    first: Option<AttemptTimes>,
}

impl RetryClock<'_> {
    /// When the next attempt is due after attempt `number`, or why none follows.
    fn next_times(
        &mut self,
        number: u32,
        sent: AttemptTimes,
        ended: AttemptTimes,
    ) -> Result<AttemptTimes, Reason> {
        let first = *self.first.get_or_insert(sent);
        let earliest_attempt = FailedAttempt {
            number,
            first: self.stored_first.unwrap_or(first.earliest),
            sent: sent.earliest,
            ended: ended.earliest,
        };
        let latest_attempt = FailedAttempt {
            number,
            first: self.stored_first.unwrap_or(first.latest),
            sent: sent.latest,
            ended: ended.latest,
        };
        match (
            self.judge_attempt(earliest_attempt, 0.0),
            self.judge_attempt(latest_attempt, 1.0),
        ) {
            (RetryDecision::Again(earliest), RetryDecision::Again(latest)) => {
                Ok(AttemptTimes { earliest, latest })
            }
            (RetryDecision::Never(reason), _) | (_, RetryDecision::Never(reason)) => Err(reason),
        }
    }

    /// What follows the failure of this attempt. `jitter`: from 0.0 to 1.0.
    fn judge_attempt(&self, attempt: FailedAttempt, jitter: f64) -> RetryDecision {
        let settings = self.settings;
        let rules = settings.edition.rules_for(settings.destination);
        retry::judge_failure(
            &settings.edition,
            rules.terms_for(settings.dead_letter),
            settings.attempts_max,
            attempt,
            &self.failure,
            Jitter(jitter),
        )
    }
}

impl AttemptForecast {
    pub(super) fn without_attempts(failure: &RequestResult) -> Self {
        Self {
            failure: failure.outcome,
            status: failure.status,
            attempts: Vec::new(),
            give_up: None,
        }
    }

    pub(super) fn with_give_up(self, reason: Reason, at: Timestamp) -> Self {
        Self {
            give_up: Some(GiveUp { reason, at }),
            ..self
        }
    }
}
