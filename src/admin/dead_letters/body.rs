//! Reads bodies and makes views of the operations on dead letters.

use crate::model::{CheckResult, InvalidRequest, parse_instant};
use gridhook_api::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterProblem};
use gridhook_dead_letter::browse::{
    BrowseProblem, DeadLetterId, DeadLetterQuery, DeadLetterStage, FoundDeadLetter,
};
use gridhook_event::Timestamp;
use gridhook_policy::outcome::Reason;

pub(crate) fn dead_letter_query(
    filter: &DeadLetterFilter,
    under: &str,
) -> CheckResult<DeadLetterQuery> {
    let target = |key: &str| format!("{under}{key}");
    let stage = match filter.stage.as_deref() {
        None => None,
        Some("waiting") => Some(DeadLetterStage::Waiting),
        Some("written") => Some(DeadLetterStage::Written),
        Some(other) => {
            let expected = "waiting or written";
            return Err(InvalidRequest::unexpected(target("stage"), other, expected));
        }
    };
    Ok(DeadLetterQuery {
        stage,
        from: parse_time(&target("from"), filter.from.as_deref())?,
        to: parse_time(&target("to"), filter.to.as_deref())?,
        reason: filter
            .reason
            .as_deref()
            .map(|given| known_reason(&target("reason"), given))
            .transpose()?,
        id: filter.id.clone(),
        keys: None,
    })
}

fn parse_time(target: &str, given: Option<&str>) -> CheckResult<Option<Timestamp>> {
    given.map(|given| parse_instant(target, given)).transpose()
}

pub(crate) fn is_empty_filter(filter: &DeadLetterFilter) -> bool {
    let DeadLetterFilter {
        stage,
        from,
        to,
        reason,
        id,
    } = filter;
    [stage, from, to, reason, id]
        .into_iter()
        .all(Option::is_none)
}

pub(super) fn known_reason(target: &str, given: &str) -> CheckResult<String> {
    InvalidRequest::find_known(
        target,
        given,
        Reason::all().map(|reason| reason.to_string()).collect(),
    )
}

pub(crate) fn dead_letter_view(found: &FoundDeadLetter) -> DeadLetter {
    let letter = &found.dead_letter;
    let result = &found.dead_letter.result;
    let (stage, file_due, file, index) = match &found.key {
        DeadLetterId::Waiting(key) => ("waiting", Some(key.due.to_string()), None, None),
        DeadLetterId::Written { file, index } => {
            ("written", None, Some(file.clone()), Some(*index))
        }
    };
    DeadLetter {
        key: found.key.to_string(),
        stage: stage.to_owned(),
        id: letter.id.clone(),
        event_type: letter.event_type.clone(),
        subject: letter.subject.clone(),
        dead_letter_reason: result.reason.clone(),
        delivery_attempts: result.attempts,
        last_delivery_outcome: result.outcome.clone(),
        last_http_status_code: result.status,
        publish_time: result.published.map(|at| at.to_string()),
        last_delivery_attempt_time: result.tried.map(|at| at.to_string()),
        file_due,
        file,
        index,
    }
}

pub(super) fn problem_views(problems: Vec<BrowseProblem>) -> Vec<DeadLetterProblem> {
    problems
        .into_iter()
        .map(|BrowseProblem { at, why }| DeadLetterProblem {
            path: at,
            reason: why,
        })
        .collect()
}
