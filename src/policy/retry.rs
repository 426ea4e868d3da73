//! What follows a failed attempt: another one, and when, or the end of the event.

use std::time::Duration;

use crate::{
    event::Timestamp,
    policy::{
        edition::{Edition, Kind, Retry, Steps, Terms},
        outcome::{Answer, Outcome, Reason},
    },
};

/// What is to be done with an event whose attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is tried again at this time.
    Again(Timestamp),
    /// It is given up.
    Never(Reason),
}

/// A draw from 0 (with it) to 1 (without it), made by whoever calls the core: tests pass 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance(pub f64);

/// Judges the failure of attempt number `attempts` of at most `attempts_max`. The next attempt is never early: it waits
/// for the longest of the schedule's step, the least wait for the status, and what the endpoint asked for; chance only
/// adds to that.
pub fn judge(
    edition: &Edition,
    terms: Terms<'_>,
    attempts: u32,
    attempts_max: u32,
    answer: &Answer,
    now: Timestamp,
    chance: Chance,
) -> Verdict {
    let rules = terms.rules;
    if is_final(terms, answer) {
        return Verdict::Never(Reason::Undeliverable(answer.outcome));
    }
    if attempts >= attempts_max {
        return Verdict::Never(Reason::MaxDeliveryAttemptsExceeded);
    }
    let least = match answer.status {
        Some(status) => rules.waits.get(&status).copied().unwrap_or(rules.otherwise),
        None => rules.otherwise,
    };
    // What we ended ourselves says nothing of the endpoint, which need not be spared.
    let least = if answer.outcome == Outcome::Aborted { Duration::ZERO } else { least };
    let asked = answer.retry_after.unwrap_or_default().min(edition.retry.retry_after_max);
    let wait = step(&edition.retry, attempts).max(least).max(asked);
    Verdict::Again(now.after(wait).after(jitter(&edition.retry, wait, chance)))
}

/// Whether no further attempt could help, as far as the edition is concerned.
fn is_final(Terms { rules, dead_letter }: Terms<'_>, answer: &Answer) -> bool {
    match answer.status {
        Some(status) => {
            rules.never_retried.contains(&status)
                || dead_letter && rules.never_retried_with_dead_letter.contains(&status)
        }
        None => rules.never_retried_without_status.contains(&answer.outcome),
    }
}

/// The wait that the schedule has after failure number `failures`, counted from 1.
pub fn step(retry: &Retry, failures: u32) -> Duration {
    let index = failures.saturating_sub(1) as usize;
    match (retry.schedule.get(index), retry.steps) {
        (Some(step), Steps::Delays) => *step,
        (Some(step), Steps::Offsets) if index == 0 => *step,
        (Some(step), Steps::Offsets) => step.saturating_sub(retry.schedule[index - 1]),
        (None, Steps::Delays | Steps::Offsets) => retry.repeat,
    }
}

/// How long any event may have to wait, chance included.
pub fn longest_wait(edition: &Edition, destination: Kind) -> Duration {
    let (retry, rules) = (&edition.retry, edition.rules(destination));
    let steps = retry.schedule.iter().chain(rules.waits.values());
    let longest = steps.chain([&retry.repeat, &rules.otherwise, &retry.retry_after_max]).max().copied();
    let longest = longest.unwrap_or_default();
    longest + jitter(retry, longest, Chance(1.0))
}

fn jitter(retry: &Retry, wait: Duration, Chance(chance): Chance) -> Duration {
    wait.mul_f64((retry.jitter_share * chance).clamp(0.0, 1.0)).min(retry.jitter_max)
}
