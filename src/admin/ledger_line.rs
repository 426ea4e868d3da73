//! A line of the ledger as JSON: its parts for programs, and a sentence for people.

use std::collections::BTreeMap;

use super::model::{CheckResult, InvalidRequest};
use gridhook_api::ledger::{LedgerFilter, LedgerResponse, LineView};
use gridhook_escape::count_with_noun;
use gridhook_event::Lane;
use gridhook_policy::{
    filter::FilterResult,
    outcome::{Outcome, Reason},
    record::{
        Excerpt, ExcerptKey, LedgerEntry, LedgerEvent, LedgerLine, SeqRun,
        lease::{LeaseStep, StepKind},
    },
};

/// Records that belong to lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineContext<'a> {
    pub(super) filters: Option<&'a BTreeMap<u32, FilterResult>>,
    pub(super) excerpts: Option<&'a BTreeMap<ExcerptKey, Excerpt>>,
}

pub(crate) fn line_view(line: &LedgerLine, context: LineContext<'_>) -> LineView {
    let LedgerLine {
        lane,
        attempt,
        entry,
    } = line;
    let LedgerEntry {
        at,
        runs,
        what: event,
    } = entry;
    let excerpt = line
        .excerpt_key()
        .and_then(|key| context.excerpts?.get(&key));
    let mut view = LineView {
        at: at.to_string(),
        lane: lane_name(*lane),
        step: step_name(event).to_owned(),
        attempt: Some(*attempt).filter(|attempt| *attempt > 0),
        response: excerpt.map(
            |Excerpt {
                 has_response,
                 content: text,
                 heads,
             }| LedgerResponse {
                by_endpoint: *has_response,
                text: String::from_utf8_lossy(text).into_owned(),
                request_head: shown_head(heads.as_deref().map(|heads| &heads.request)),
                response_head: shown_head(heads.as_deref().map(|heads| &heads.response)),
            },
        ),
        events: entry.event_count(),
        first_sequence: runs.first().map_or(0, |run| run.first.0),
        last_sequence: runs.last().map_or(0, |run| run.end_seq().0 - 1),
        ..LineView::default()
    };
    match event {
        LedgerEvent::Filtered { version } => {
            let result = context.filters.and_then(|filters| filters.get(version));
            view.filter = Some(filter_view(*version, result));
        }
        LedgerEvent::Attempted {
            outcome,
            status,
            latency,
            next,
            excerpt: _,
        } => {
            view.outcome = Some(outcome.to_string());
            view.status = *status;
            view.milliseconds = Some((latency.as_secs_f64() * 1e6).round() / 1e3);
            view.next_attempt = next.map(|next| next.to_string());
        }
        LedgerEvent::GivenUp { reason, .. } => view.reason = Some(reason.to_string()),
        LedgerEvent::Filed { file } => view.file = Some(file.to_string()),
        LedgerEvent::Lost { why } => view.reason = Some(why.to_string()),
        LedgerEvent::Lease(
            LeaseStep::Received { until }
            | LeaseStep::Renewed { until }
            | LeaseStep::Released { until },
        ) => view.next_attempt = Some(until.to_string()),
        LedgerEvent::Late { .. }
        | LedgerEvent::Canceled
        | LedgerEvent::Redriven { .. }
        | LedgerEvent::Lease(LeaseStep::Acknowledged | LeaseStep::Expired) => {}
    }
    view.text = match event {
        LedgerEvent::GivenUp {
            reason: Reason::Missing,
            ..
        } => lost_ranges(entry),
        _ => line_sentence(&view, event),
    };
    view
}

pub(crate) fn line_sentence(view: &LineView, event: &LedgerEvent) -> String {
    let attempt = view.attempt.map_or_else(
        || "an attempt".to_owned(),
        |attempt| format!("attempt {attempt}"),
    );
    match event {
        LedgerEvent::Filtered { .. } => view
            .filter
            .as_ref()
            .map(filter_sentence)
            .unwrap_or_default(),
        LedgerEvent::Attempted {
            outcome, status, ..
        } => {
            let status = status
                .map(|status| format!("{status} "))
                .unwrap_or_default();
            let took = view.milliseconds.unwrap_or_default();
            let next = match &view.next_attempt {
                Some(next) => format!("; next attempt at {next} or later"),
                None => String::new(),
            };
            format!("{attempt}: {status}{outcome} after {took} ms{next}")
        }
        LedgerEvent::GivenUp {
            reason,
            dead_lettered: true,
        } => format!("given up: {reason}; dead-lettered"),
        LedgerEvent::GivenUp {
            reason,
            dead_lettered: false,
        } => format!("given up: {reason}; dropped"),
        LedgerEvent::Late { settled: true } => {
            format!("{attempt}: success after the response timeout, counted as delivered")
        }
        LedgerEvent::Late { settled: false } => {
            format!("{attempt}: success after the event was given up or delivered")
        }
        LedgerEvent::Canceled => "canceled: the subscription was deleted".to_owned(),
        LedgerEvent::Filed { file } => format!("dead letter written: {file}"),
        LedgerEvent::Lost { why } => format!("dead letter lost: {why}"),
        LedgerEvent::Lease(step) => lease_sentence(&attempt, *step),
        LedgerEvent::Redriven { into } => {
            format!("dead letter redriven in {}", lane_name(*into))
        }
    }
}

/// Maximum number of listed ranges of lost events.
const RANGES_MAX: usize = 20;

/// The ranges of lost events.
fn lost_ranges(entry: &LedgerEntry) -> String {
    let range = |run: &SeqRun| format!("{} to {}", run.first.0, run.end_seq().0 - 1);
    let ranges: Vec<String> = entry.runs.iter().take(RANGES_MAX).map(range).collect();
    let more = if entry.runs.len() > RANGES_MAX {
        ", and more"
    } else {
        ""
    };
    let events = count_with_noun(entry.event_count(), "event");
    format!(
        "lost to damage of the store: {events}, sequences {}{more}",
        ranges.join(", ")
    )
}

fn lease_sentence(attempt: &str, step: LeaseStep) -> String {
    match step {
        LeaseStep::Received { until } => {
            format!("{attempt}: received by a client, locked until {until}")
        }
        LeaseStep::Renewed { until } => format!("{attempt}: lock renewed until {until}"),
        LeaseStep::Acknowledged => format!("{attempt}: acknowledged"),
        LeaseStep::Released { until } => format!("{attempt}: released; available again at {until}"),
        LeaseStep::Expired => format!("{attempt}: the lock expired"),
    }
}

pub(crate) fn filter_view(version: u32, result: Option<&FilterResult>) -> LedgerFilter {
    match result {
        Some(FilterResult::Stopped { clause, why, seen }) => LedgerFilter {
            version,
            stopped_by: Some(clause.clone()),
            reason: Some((*why).to_owned()),
            value: seen.clone(),
        },
        Some(FilterResult::Match) | None => LedgerFilter {
            version,
            stopped_by: None,
            reason: None,
            value: None,
        },
    }
}

pub(crate) fn filter_sentence(view: &LedgerFilter) -> String {
    let reason = format!("filtered out by version {} of the filter", view.version);
    match (&view.stopped_by, &view.reason, &view.value) {
        (Some(clause), Some(why), Some(seen)) => format!("{reason}: {clause}: {why}: {seen}"),
        (Some(clause), Some(why), None) => format!("{reason}: {clause}: {why}"),
        _ => reason,
    }
}

/// The head of a request or a response, unless it is empty.
fn shown_head(head: Option<&String>) -> Option<String> {
    head.filter(|head| !head.is_empty()).cloned()
}

/// The name of a lane.
fn lane_name(lane: Lane) -> String {
    match lane {
        Lane::LIVE => "live".to_owned(),
        Lane::BACKLOG => "backlog".to_owned(),
        Lane::EXPIRY => "expiry".to_owned(),
        Lane::OVERFLOW => "overflow".to_owned(),
        Lane::RECENT => "recent".to_owned(),
        Lane(number) => format!("job {number}"),
    }
}

/// The steps other than those of leases, as lines have them and requests name them.
const STEPS: [&str; 12] = [
    "filtered",
    "delivered",
    "deferred",
    "undeliverable",
    "expired",
    "deadLettered",
    "dropped",
    "late",
    "canceled",
    "written",
    "lost",
    "redriven",
];

pub(super) fn step_name(event: &LedgerEvent) -> &'static str {
    match event {
        LedgerEvent::Filtered { .. } => "filtered",
        LedgerEvent::Attempted {
            outcome: Outcome::Delivered,
            ..
        } => "delivered",
        LedgerEvent::Attempted { next: Some(_), .. } => "deferred",
        LedgerEvent::Attempted { next: None, .. } => "undeliverable",
        LedgerEvent::GivenUp {
            reason: Reason::TimeToLiveExceeded,
            ..
        } => "expired",
        LedgerEvent::GivenUp {
            dead_lettered: true,
            ..
        } => "deadLettered",
        LedgerEvent::GivenUp {
            dead_lettered: false,
            ..
        } => "dropped",
        LedgerEvent::Late { .. } => "late",
        LedgerEvent::Canceled => "canceled",
        LedgerEvent::Filed { .. } => "written",
        LedgerEvent::Lost { .. } => "lost",
        LedgerEvent::Redriven { .. } => "redriven",
        LedgerEvent::Lease(step) => step.kind().name(),
    }
}

/// `outcome` of a request: the name of a step, an outcome or a reason.
#[derive(Clone, Debug)]
pub(super) struct OutcomeFilter(String);

impl OutcomeFilter {
    pub(super) fn read(given: &str) -> CheckResult<Self> {
        let lease_steps = StepKind::ALL.map(StepKind::name);
        let mut names: Vec<String> = STEPS
            .into_iter()
            .chain(lease_steps)
            .map(str::to_owned)
            .collect();
        let outcomes = Outcome::all().map(|outcome| outcome.to_string());
        for name in outcomes.chain(Reason::all().map(|reason| reason.to_string())) {
            // A failed transformation is an outcome and a reason.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        InvalidRequest::find_known("outcome", given, names).map(Self)
    }

    /// Whether a line has the step, the outcome or the reason.
    pub(super) fn matches_event(&self, event: &LedgerEvent) -> bool {
        let Self(wanted) = self;
        step_name(event) == wanted
            || match event {
                LedgerEvent::Attempted { outcome, .. } => outcome.to_string() == *wanted,
                LedgerEvent::GivenUp { reason, .. } => reason.to_string() == *wanted,
                _ => false,
            }
    }
}
