//! Decides what follows a failed attempt: another attempt and its time, or giving up.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    edition::{Edition, EndpointKind, RetrySchedule, StepOrigin, SubscriptionTerms},
    outcome::{Failure, Outcome, Reason, RequestResult},
};
use gridhook_event::Timestamp;

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Try again at this time.
    Again(Timestamp),
    /// Dead-letter or drop the event.
    Never(Reason),
}

/// A random number in [0, 1), drawn by the caller. Tests pass 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter(pub f64);

/// What a decision about a retry needs of the attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The number of the attempt, counted from 1.
    pub number: u32,
    /// When the event's first attempt was sent.
    pub first: Timestamp,
    /// When this attempt was sent.
    pub sent: Timestamp,
    /// When its failure was known.
    pub ended: Timestamp,
}

/// Judges a failed attempt of at most `attempts_max`. The next attempt is never early: it waits for
/// the longest of the schedule's step, the minimum wait for the status, and the wait that the
/// endpoint requested. Jitter only adds to that.
pub fn judge_failure(
    edition: &Edition,
    terms: SubscriptionTerms<'_>,
    attempts_max: u32,
    failed: FailedAttempt,
    result: &RequestResult,
    jitter: Jitter,
) -> RetryDecision {
    let rules = terms.rules;
    if let Some(failure) = final_failure(terms, result) {
        return RetryDecision::Never(Reason::Undeliverable(failure));
    }
    if failed.number >= attempts_max {
        return RetryDecision::Never(Reason::MaxDeliveryAttemptsExceeded);
    }
    let least = match result.status {
        Some(status) => rules.waits.get(&status).copied().unwrap_or(rules.otherwise),
        None => rules.otherwise,
    };
    // A request that gridhook aborted says nothing about the endpoint, so no minimum wait applies.
    let least = if result.outcome == Outcome::Aborted {
        Duration::ZERO
    } else {
        least
    };
    let requested_wait = capped_retry_after(edition, result.retry_after).unwrap_or_default();
    let wait = scheduled_retry(&edition.retry, failed)
        .since(failed.ended)
        .max(least)
        .max(requested_wait);
    RetryDecision::Again(
        failed
            .ended
            .after(wait)
            .after(jitter_time(&edition.retry, wait, jitter)),
    )
}

/// How long the endpoint must not be called because it requested that, capped by the edition.
pub fn capped_retry_after(edition: &Edition, retry_after: Option<Duration>) -> Option<Duration> {
    retry_after.map(|wait| wait.min(edition.retry.retry_after_max))
}

/// Whether a failure is caused by the events of the request and says nothing about the endpoint's
/// health: the endpoint read and rejected them. An edition whose probation table names the outcome
/// says otherwise.
pub fn blames_events(
    edition: &Edition,
    terms: SubscriptionTerms<'_>,
    result: &RequestResult,
) -> bool {
    let Outcome::Failed(failure) = result.outcome else {
        return false;
    };
    let is_about_events = matches!(failure, Failure::BadRequest | Failure::PayloadTooLarge);
    let is_about_endpoint = edition.probation.durations.contains_key(&failure);
    result.status.is_some()
        && (is_about_events || final_failure(terms, result).is_some())
        && !is_about_endpoint
}

/// The failure, if the edition excludes further attempts after it.
fn final_failure(terms: SubscriptionTerms<'_>, result: &RequestResult) -> Option<Failure> {
    let SubscriptionTerms { rules, dead_letter } = terms;
    let Outcome::Failed(failure) = result.outcome else {
        return None;
    };
    // The operator can correct that, and no event is at fault.
    if failure == Failure::CredentialRefused {
        return None;
    }
    let is_final = match result.status {
        Some(status) => {
            rules.never_retried.contains(&status)
                || dead_letter && rules.never_retried_with_dead_letter.contains(&status)
        }
        None => rules.never_retried_without_status.contains(&failure),
    };
    is_final.then_some(failure)
}

/// The time of the next attempt by the schedule.
fn scheduled_retry(
    retry: &RetrySchedule,
    FailedAttempt {
        number,
        first,
        sent,
        ended,
    }: FailedAttempt,
) -> Timestamp {
    let step = number.saturating_sub(1) as usize;
    match retry.steps {
        StepOrigin::Delays => {
            ended.after(retry.schedule.get(step).copied().unwrap_or(retry.repeat))
        }
        StepOrigin::Offsets => {
            // Offsets in the past, because the endpoint was slow or suspended, are skipped: no two
            // attempts share one.
            let first = first.min(sent);
            let earliest = ended.max(sent.after(Duration::from_micros(1)));
            let ahead = retry
                .schedule
                .iter()
                .skip(step)
                .map(|offset| first.after(*offset))
                .find(|at| *at >= earliest);
            ahead.unwrap_or_else(|| {
                let last = first.after(retry.schedule.last().copied().unwrap_or_default());
                let missed_repeats = earliest
                    .since(last)
                    .as_micros()
                    .div_ceil(retry.repeat.as_micros().max(1));
                let repeats = missed_repeats.max(
                    number
                        .saturating_sub(retry.schedule.len() as u32)
                        .max(1)
                        .into(),
                );
                last.after(
                    retry
                        .repeat
                        .saturating_mul(u32::try_from(repeats).unwrap_or(u32::MAX)),
                )
            })
        }
    }
}

/// The waits of a schedule after failures whose minimum wait is longer than one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongerWaits {
    /// The statuses; none for any other failure.
    pub statuses: Vec<u16>,
    /// The waits as they are; the last one repeats.
    pub waits: Vec<Duration>,
}

/// The waits of `schedule` that the minimum waits of `terms` make longer.
pub fn longer_waits(schedule: &RetrySchedule, terms: SubscriptionTerms<'_>) -> Vec<LongerWaits> {
    let SubscriptionTerms { rules, dead_letter } = terms;
    let waits = schedule.waits();
    let mut minimums: BTreeMap<Duration, Vec<u16>> = BTreeMap::new();
    for (status, minimum) in &rules.waits {
        let is_final = rules.never_retried.contains(status)
            || dead_letter && rules.never_retried_with_dead_letter.contains(status);
        if !is_final {
            minimums.entry(*minimum).or_default().push(*status);
        }
    }
    let others = (rules.otherwise, Vec::new());
    std::iter::once(others)
        .chain(minimums)
        .filter(|(minimum, _)| waits.iter().any(|wait| wait < minimum))
        .map(|(minimum, statuses)| LongerWaits {
            statuses,
            waits: waits.iter().map(|wait| *wait.max(&minimum)).collect(),
        })
        .collect()
}

/// The longest possible wait of any event, including jitter.
pub fn longest_wait(edition: &Edition, destination: EndpointKind) -> Duration {
    let retry = &edition.retry;
    let rules = edition.rules_for(destination);
    let steps = retry.schedule.iter().chain(rules.waits.values());
    let longest = steps
        .chain([&retry.repeat, &rules.otherwise, &retry.retry_after_max])
        .max()
        .copied();
    let longest = longest.unwrap_or_default();
    longest + jitter_time(retry, longest, Jitter(1.0))
}

fn jitter_time(retry: &RetrySchedule, wait: Duration, Jitter(jitter): Jitter) -> Duration {
    wait.mul_f64((retry.jitter_share * jitter).clamp(0.0, 1.0))
        .min(retry.jitter_max)
}
