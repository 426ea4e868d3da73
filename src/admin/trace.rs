//! `GET …/trace`: the delivery history of an event in every event subscription of its topic,
//! deleted ones included. `sequence` names one event; `id` is searched for, and finds every event
//! that was published with it.
//!
//! Responses are bounded: `continue` is the start of the next page.

use std::sync::Arc;

use super::{arm::Call, explain::event_selector, ledger_line::LineContext, query::Paging};
use crate::{AdminResult, explain::state_view, ledger_line::line_view, respond_json};
use gridhook_api::{
    ledger::LineView,
    trace::{DeliveryHistory, EventView, TraceView, Transformed},
};
use gridhook_engine::{
    control::registry::{EventOccurrence, TraceResult, TraceToken},
    insight::trace::{SubscriptionTrace, TransformedSummary},
};
use gridhook_policy::{
    delivery_history::{DeadLetterState, HistoryEnd},
    explain::{EventState, Explanation},
    filter::FilterResult,
    record::{LedgerEvent, LedgerLine},
};

/// Default number of delivery histories in a response.
const TOP: usize = 100;

pub(crate) fn event_view(
    EventOccurrence {
        seq,
        event,
        published,
        subscriptions,
    }: &EventOccurrence,
) -> EventView {
    EventView {
        shard: None,
        sequence: seq.0,
        id: event.as_ref().map(|event| event.id().into_owned()),
        event_type: event.as_ref().map(|event| event.event_type().into_owned()),
        subject: event.as_ref().map(|event| event.subject().into_owned()),
        published: event.as_ref().map(|event| event.appended.to_string()),
        duplicates: published.map(|published| published.duplicates),
        last_duplicate: published
            .and_then(|published| published.last)
            .map(|last| last.to_string()),
        subscriptions: subscriptions.iter().map(delivery_history_view).collect(),
    }
}

pub(crate) fn delivery_history_view(traced: &SubscriptionTrace) -> DeliveryHistory {
    let SubscriptionTrace {
        subscription_key,
        name,
        domain_topic,
        deleted,
        history,
        filters,
        excerpts,
        explanation,
        transformed,
        cut,
    } = traced;
    let context = LineContext {
        filters: Some(filters),
        excerpts: Some(excerpts),
    };
    let forecast = explanation
        .as_ref()
        .and_then(|explanation| explanation.attempt_forecast.as_ref());
    let next_attempt = forecast
        .and_then(|forecast| forecast.attempts.first())
        .map(|next| next.at.to_string());
    DeliveryHistory {
        subscription: name
            .clone()
            .unwrap_or_else(|| subscription_key.subscription.0.to_string()),
        domain_topic: domain_topic.clone(),
        deleted: *deleted,
        result: history_end_name(&history.verdict).to_owned(),
        text: outcome_sentence(traced, next_attempt.as_deref()),
        lines: history
            .steps
            .iter()
            .enumerate()
            .map(|(at, line)| history_line_view(&history.steps[..at], line, context))
            .collect(),
        truncated: *cut,
        transformed: transformed.as_ref().map(transformed_view),
        now: explanation
            .as_ref()
            .map(|Explanation { state, .. }| state)
            .filter(|state| is_pending(state))
            .map(state_view),
        next_attempt,
    }
}

fn transformed_view(
    TransformedSummary {
        bytes,
        sha256,
        excerpt,
        path_suffix,
    }: &TransformedSummary,
) -> Transformed {
    Transformed {
        bytes: *bytes as u64,
        sha256: sha256.clone(),
        excerpt: excerpt.clone(),
        path_suffix: path_suffix.clone(),
    }
}

/// The time at which the attempt after this one was due; [`None`] if the line is of no attempt.
fn next_attempt(line: &LedgerLine) -> Option<gridhook_event::Timestamp> {
    match line.entry.what {
        LedgerEvent::Attempted { next, .. } => next,
        _ => None,
    }
}

/// A line of a history, with a note if the attempt was made before it was due.
fn history_line_view(
    earlier: &[LedgerLine],
    line: &LedgerLine,
    context: LineContext<'_>,
) -> LineView {
    let mut view = line_view(line, context);
    let mut earlier = earlier.iter().rev().filter(|one| one.lane == line.lane);
    if let LedgerEvent::Attempted { latency, .. } = line.entry.what
        && let Some(due) = earlier.find_map(next_attempt)
        && line.entry.at.before(latency) < due
    {
        view.text.push_str(&format!(
            "; made before its time ({due}), because an operator retried it"
        ));
    }
    view
}

fn is_pending(state: &EventState) -> bool {
    !matches!(
        state,
        EventState::Filtered | EventState::Passed | EventState::Unpublished
    )
}

fn history_end_name(end: &HistoryEnd) -> &'static str {
    match end {
        HistoryEnd::Delivered { .. } => "delivered",
        HistoryEnd::Filtered { .. } => "filtered",
        HistoryEnd::GivenUp {
            then: DeadLetterState::Dropped,
            ..
        } => "dropped",
        HistoryEnd::GivenUp {
            then: DeadLetterState::Waits,
            ..
        } => "deadLetterWaiting",
        HistoryEnd::GivenUp {
            then: DeadLetterState::Filed(_),
            ..
        } => "deadLettered",
        HistoryEnd::GivenUp {
            then: DeadLetterState::Lost(_),
            ..
        } => "deadLetterLost",
        HistoryEnd::Canceled => "canceled",
        HistoryEnd::Pending => "pending",
        HistoryEnd::Unread => "unread",
        HistoryEnd::Before => "beforeSubscription",
        HistoryEnd::Unpublished => "notPublished",
        HistoryEnd::Unknown { .. } => "unknown",
    }
}

fn outcome_sentence(traced: &SubscriptionTrace, next_attempt: Option<&str>) -> String {
    match &traced.history.verdict {
        HistoryEnd::Delivered {
            at,
            attempt,
            late: false,
        } => format!("delivered at attempt {attempt}, {at}"),
        HistoryEnd::Delivered {
            at,
            attempt,
            late: true,
        } => {
            format!("delivered at attempt {attempt} by a late response, {at}")
        }
        HistoryEnd::Filtered { version } => match traced.filters.get(version) {
            Some(FilterResult::Stopped { clause, .. }) => {
                format!("filtered by {clause} of version {version}")
            }
            Some(FilterResult::Match) | None => format!("filtered by version {version}"),
        },
        HistoryEnd::GivenUp { reason, then } => match then {
            DeadLetterState::Dropped => {
                format!("dropped: {reason}; there is no dead-letter destination")
            }
            DeadLetterState::Waits => {
                format!("given up: {reason}; waits to be written as a dead letter")
            }
            DeadLetterState::Filed(file) => format!("given up: {reason}; dead letter in {file}"),
            DeadLetterState::Lost(why) => format!("given up: {reason}; dead letter lost: {why}"),
        },
        HistoryEnd::Canceled => "canceled: the event subscription was deleted".to_owned(),
        HistoryEnd::Pending => {
            match (
                next_attempt,
                traced
                    .explanation
                    .as_ref()
                    .map(|explanation| &explanation.state),
            ) {
                (Some(at), _) => format!("pending, next attempt at {at} or later"),
                (None, Some(EventState::Locked { until, .. })) => {
                    format!("pending, locked by a client until {until}")
                }
                (None, Some(EventState::Released { until, .. })) => {
                    format!("pending, released until {until}")
                }
                (None, Some(EventState::Available { .. })) => {
                    "pending, available to clients".to_owned()
                }
                (None, _) => "pending".to_owned(),
            }
        }
        HistoryEnd::Unread => "not read yet".to_owned(),
        HistoryEnd::Before => "published before the event subscription was created".to_owned(),
        HistoryEnd::Unpublished => "not published yet".to_owned(),
        HistoryEnd::Unknown {
            ledger_from: Some(from),
        } => {
            format!("unknown: the ledger of this event subscription begins at {from}")
        }
        HistoryEnd::Unknown { ledger_from: None } => {
            "unknown: the ledger has nothing of this event subscription".to_owned()
        }
    }
}

/// `GET …/trace?id=…` or `?sequence=…`.
pub(super) async fn trace_event(call: Call<'_>) -> AdminResult {
    let query = call.request()?.query_string();
    let Paging { from, top, rest } = Paging::<TraceToken>::read(query, TOP)?;
    let selector = event_selector(&rest)?;
    let topic = call.find_topic()?;
    let now = call.control.clock.now();
    let topic_handle = Arc::clone(&topic);
    let trace = |_| async move { topic_handle.trace_event(&selector, from, top, now).await };
    let result = call.compute(trace).await?;
    let TraceResult {
        occurrences,
        log,
        next,
    } = result?;
    respond_json(&TraceView {
        topic: topic.record().name.to_string(),
        now: now.to_string(),
        log_from_sequence: log.start.0,
        log_before_sequence: log.end.0,
        events: occurrences.iter().map(event_view).collect(),
        r#continue: next.map(|next| next.to_string()),
    })
}
