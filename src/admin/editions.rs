//! `GET /editions`: the editions of the delivery policy, with the attempts that they lead to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use actix_web::{HttpResponse, web};

use super::Control;
use gridhook_api::editions::{EditionView, Editions, RetrySchedule};
use gridhook_event::Timestamp;
use gridhook_policy::{
    edition::{Edition, EndpointKind},
    outcome::{Failure, Outcome, Reason, RequestResult},
    retry::{self, FailedAttempt, Jitter, RetryDecision},
};

/// The editions, and what a simulation of one takes from the settings.
#[derive(Clone, Debug, Default)]
pub struct EditionTables {
    pub by_name: BTreeMap<String, Arc<Edition>>,
    pub response_timeout: Duration,
    /// How long the journal collects outcomes before a write.
    pub outcome_delay: Duration,
    /// Maximum requests in flight for an event subscription.
    pub concurrency: u32,
}

/// `GET /editions`.
pub(super) async fn list_editions(control: web::Data<Control>) -> HttpResponse {
    HttpResponse::Ok().json(Editions {
        default: control.editions.default.clone(),
        editions: control
            .edition_tables
            .by_name
            .iter()
            .map(|(name, edition)| edition_view(name, edition))
            .collect(),
    })
}

pub(crate) fn edition_view(name: &str, edition: &Edition) -> EditionView {
    let kinds = [
        (EndpointKind::Webhook, "webhook"),
        (EndpointKind::Resource, "resource"),
    ];
    EditionView {
        name: name.to_owned(),
        max_delivery_attempts: edition.attempts.default,
        event_time_to_live_in_minutes: edition.time_to_live_minutes.default,
        jitter_share: edition.retry.jitter_share,
        jitter_max_seconds: edition.retry.jitter_max.as_secs_f64(),
        retry_after_max_seconds: edition.retry.retry_after_max.as_secs_f64(),
        suspended_after_failures: edition.probation.after_failures,
        dead_letter_delay_seconds: edition.dead_letter.delay.as_secs_f64(),
        schedules: kinds
            .into_iter()
            .flat_map(|(kind, name)| schedule_views(edition, kind, name))
            .collect(),
    }
}

/// A schedule for each status that the edition names, and the one for all other failures.
fn schedule_views(edition: &Edition, kind: EndpointKind, destination: &str) -> Vec<RetrySchedule> {
    let rules = edition.rules_for(kind);
    let statuses = rules
        .never_retried
        .iter()
        .chain(rules.waits.keys())
        .map(|status| (Some(*status), false));
    let with_dead_letter = rules
        .never_retried_with_dead_letter
        .iter()
        .map(|status| (Some(*status), true));
    let mut all: Vec<(Option<u16>, bool)> = statuses.chain(with_dead_letter).collect();
    all.sort_unstable();
    all.push((None, false));
    let mut schedules = Vec::with_capacity(all.len());
    for (status, with_dead_letter) in all {
        let (attempts, reason) = attempt_waits(edition, kind, status, with_dead_letter);
        schedules.push(RetrySchedule {
            destination: destination.to_owned(),
            status,
            with_dead_letter,
            attempts_seconds: attempts.iter().map(Duration::as_secs_f64).collect(),
            ends_with: reason.to_string(),
        });
    }
    schedules
}

/// The times of all attempts since the first, as the policy decides them, and why the last one is
/// the last.
fn attempt_waits(
    edition: &Edition,
    kind: EndpointKind,
    status: Option<u16>,
    dead_letter: bool,
) -> (Vec<Duration>, Reason) {
    let outcome = status.map_or(Outcome::Failed(Failure::GenericError), Outcome::from_status);
    let answer = RequestResult {
        status,
        ..RequestResult::from_outcome(outcome)
    };
    let terms = edition.rules_for(kind).terms_for(dead_letter);
    let first = Timestamp(0);
    let expires = first.after(Duration::from_secs(
        60 * u64::from(edition.time_to_live_minutes.default),
    ));
    let mut all = vec![Duration::ZERO];
    let mut at = first;
    for number in 1.. {
        let failure = FailedAttempt {
            number,
            first,
            sent: at,
            ended: at,
        };
        at = match retry::judge_failure(
            edition,
            terms,
            edition.attempts.default,
            failure,
            &answer,
            Jitter(0.0),
        ) {
            RetryDecision::Again(next) if next < expires => next,
            RetryDecision::Again(_) => break,
            RetryDecision::Never(reason) => return (all, reason),
        };
        all.push(at.since(first));
    }
    (all, Reason::TimeToLiveExceeded)
}
