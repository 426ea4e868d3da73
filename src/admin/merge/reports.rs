//! Reports of figures: sums, and the first lines of an order.

use std::{cmp::Reverse, collections::HashMap};

use actix_web::web;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ShardResponse,
    fields::{self, FieldRule, MergedFields},
    fold_responses,
    pages::{parse_instant, top_in},
};
use crate::{
    supervision::total_ends,
    top::{compare_ranks, has_health},
};
use gridhook_api::{
    clock::ClockView,
    history::{DestinationHistory, HistoryReport},
    jobs::JobsReport,
    status::HealthView,
    store::ProgressLine,
    supervision::SupervisionReport,
    top::{HealthFilter, SortOrder, TopLine, TopReport},
};
use gridhook_repair::fsck::CheckReport;

/// The last line of `/top` that a page of a cluster can have: each shard sends as many lines.
pub(crate) const LINES_MAX: usize = 10_000;

/// The figures of one shard.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TopPart {
    /// The report, in whose numbers of event subscriptions those of spread topics are missing.
    pub(crate) report: TopReport,
    /// The page of the shard, and all event subscriptions of spread topics.
    pub(crate) lines: Vec<PartLine>,
}

/// A line of one shard.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PartLine {
    pub(crate) line: TopLine,
    /// The sort key: a larger one is listed earlier.
    pub(crate) rank: [f64; 3],
    /// Whether other shards have parts of its figures.
    pub(crate) is_spread: bool,
    /// Whether the search and the topic of the request let it through.
    pub(crate) is_matching: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parameters {
    by: SortOrder,
    health: Option<HealthFilter>,
    top: Option<usize>,
    skip: usize,
}

pub(super) fn merge_top(query: &str, responses: &[ShardResponse]) -> serde_json::Result<Value> {
    // The shards have refused what cannot be read.
    let Parameters {
        by,
        health,
        top,
        skip,
    } = web::Query::from_query(query)
        .map(web::Query::into_inner)
        .unwrap_or_default();
    let mut reports = None::<TopReport>;
    let mut lines = Vec::new();
    for response in responses {
        let part: TopPart = response.read()?;
        lines.extend(part.lines);
        reports = Some(match reports.take() {
            None => part.report,
            Some(all) => fields::TOP.join(all, &part.report)?,
        });
    }
    let Some(mut all) = reports else {
        return Ok(Value::Null);
    };
    let mut listed = Vec::new();
    for part in join_lines(lines, by)? {
        if part.is_spread {
            let is_listed = part.is_matching
                && health.is_none_or(|wanted| {
                    has_health(wanted, &part.line.condition.state, &part.line.health)
                });
            count_line(&mut all, &part.line);
            if !is_listed {
                continue;
            }
            all.matching += 1;
        }
        listed.push(part);
    }
    // Equal ones stay in the order of the shards, and within a shard in its own.
    listed.sort_by(|a, b| match by {
        SortOrder::Name => a.line.subscription.cmp(&b.line.subscription),
        _ => compare_ranks(&a.rank, &b.rank),
    });
    let page = listed
        .into_iter()
        .skip(skip)
        .take(top.unwrap_or(crate::top::TOP));
    all.top = page.map(|part| part.line).collect();
    serde_json::to_value(all)
}

/// Counts an event subscription of a spread topic.
fn count_line(report: &mut TopReport, line: &TopLine) {
    let is_suspended = !matches!(line.health, HealthView::Healthy { .. });
    let condition = line.condition.state.clone();
    report.subscriptions += 1;
    report.suspended += usize::from(is_suspended);
    report.held += usize::from(line.held_by.is_some());
    *report.conditions.entry(condition).or_default() += 1;
}

/// Merges the lines of the same event subscription.
fn join_lines(parts: Vec<PartLine>, by: SortOrder) -> serde_json::Result<Vec<PartLine>> {
    let mut index = HashMap::new();
    let mut all = Vec::<PartLine>::with_capacity(parts.len());
    for part in parts {
        let key = (part.line.topic.clone(), part.line.subscription.clone());
        let position = *index.entry(key).or_insert(all.len());
        match all.get_mut(position) {
            None => all.push(part),
            Some(known) => {
                join_ranks(&mut known.rank, part.rank, by);
                known.line = fields::TOP_LINE.join(known.line.clone(), &part.line)?;
            }
        }
    }
    Ok(all)
}

/// Merges the ranks of the parts of an event subscription as their lines are merged.
fn join_ranks(known: &mut [f64; 3], more: [f64; 3], by: SortOrder) {
    match by {
        SortOrder::ResponseP50 | SortOrder::ResponseP95 | SortOrder::ResponseP99 => {
            *known = std::array::from_fn(|at| known[at].max(more[at]));
        }
        SortOrder::Health => {
            // The worst condition, and the sum of what waits.
            let waiting = known[2] + more[2];
            if compare_ranks(&more, known).is_lt() {
                *known = more;
            }
            known[2] = waiting;
        }
        _ => *known = std::array::from_fn(|at| known[at] + more[at]),
    }
}

pub(super) fn join_reports<T: DeserializeOwned>(
    fields: &'static MergedFields,
    responses: &[ShardResponse],
) -> serde_json::Result<T> {
    serde_json::from_value(fold_responses(responses, |all, more| {
        FieldRule::Fields(fields).join_values(all, more);
    })?)
}

pub(super) fn merge_jobs(query: &str, responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let mut all: JobsReport = join_reports(&fields::JOBS, responses)?;
    all.jobs
        .sort_by_key(|job| Reverse(parse_instant(&job.job.started)));
    all.jobs.truncate(top_in(query, crate::jobs::TOP));
    serde_json::to_value(all)
}

/// Counts are added. Percentiles cannot be: the largest of the shards are reported.
pub(super) fn merge_history(responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let reports: Vec<HistoryReport> = responses
        .iter()
        .map(ShardResponse::read)
        .collect::<Result<_, _>>()?;
    let mut recorded: Vec<(i64, &HistoryReport)> = Vec::new();
    for report in reports.iter().filter(|report| report.recorded) {
        recorded.extend(parse_instant(&report.from).map(|from| (from.as_second(), report)));
    }
    let Some(first) = recorded.iter().min_by_key(|(from, _)| *from).copied() else {
        return reports
            .first()
            .map(serde_json::to_value)
            .transpose()
            .map(Option::unwrap_or_default);
    };
    let step = i64::try_from(first.1.step_seconds).unwrap_or(1).max(1);
    let offset = |from: i64| usize::try_from((from - first.0) / step).unwrap_or(0);
    let reports = || {
        recorded
            .iter()
            .map(|(from, report)| (offset(*from), *report))
    };
    let counts = |of: fn(&HistoryReport) -> &[Option<u32>]| {
        let columns = reports().map(|(offset, report)| (offset, of(report)));
        join_columns(columns, u32::saturating_add)
    };
    let times = |of: fn(&HistoryReport) -> &[Option<f64>]| {
        let columns = reports().map(|(offset, report)| (offset, of(report)));
        join_columns(columns, f64::max)
    };
    let since = recorded
        .iter()
        .map(|(_, report)| &report.since)
        .min()
        .cloned()
        .unwrap_or_default();
    serde_json::to_value(HistoryReport {
        recorded: true,
        since,
        from: first.1.from.clone(),
        step_seconds: first.1.step_seconds,
        published: counts(|report| &report.published),
        delivered: counts(|report| &report.delivered),
        failed_requests: counts(|report| &report.failed_requests),
        given_up: counts(|report| &report.given_up),
        refused_requests: counts(|report| &report.refused_requests),
        busy_requests: counts(|report| &report.busy_requests),
        unanswered_requests: counts(|report| &report.unanswered_requests),
        destinations: join_destinations(&recorded, offset),
        backlog: counts(|report| &report.backlog),
        pending: counts(|report| &report.pending),
        response_p50_milliseconds: times(|report| &report.response_p50_milliseconds),
        response_p99_milliseconds: times(|report| &report.response_p99_milliseconds),
    })
}

/// The destinations of all shards: the reader chooses among them.
fn join_destinations(
    recorded: &[(i64, &HistoryReport)],
    offset: impl Fn(i64) -> usize,
) -> Vec<DestinationHistory> {
    let mut destinations = Vec::new();
    for (from, report) in recorded {
        for mut destination in report.destinations.iter().cloned() {
            destination.delivered.splice(..0, vec![None; offset(*from)]);
            destinations.push(destination);
        }
    }
    destinations
}

/// Columns that begin at different steps as one. A step is a gap if it is one in all of them.
fn join_columns<'a, T: Copy + 'a>(
    columns: impl Iterator<Item = (usize, &'a [Option<T>])>,
    join: fn(T, T) -> T,
) -> Vec<Option<T>> {
    let mut all: Vec<Option<T>> = Vec::new();
    for (offset, column) in columns {
        if all.len() < offset + column.len() {
            all.resize(offset + column.len(), None);
        }
        for (to, value) in all[offset..].iter_mut().zip(column) {
            *to = match (*to, *value) {
                (Some(a), Some(b)) => Some(join(a, b)),
                (a, b) => a.or(b),
            };
        }
    }
    all
}

/// Counts are added, and the slowest recoveries reported.
pub(super) fn merge_supervision(
    query: &str,
    responses: &[ShardResponse],
) -> serde_json::Result<Value> {
    let mut all: SupervisionReport = join_reports(&fields::SUPERVISION, responses)?;
    all.most_restarted
        .sort_by_key(|actor| Reverse(total_ends(&actor.incarnations.ends)));
    all.most_restarted
        .truncate(top_in(query, crate::supervision::TOP));
    serde_json::to_value(all)
}

/// The clock that is furthest from that of its machine. Expiry is paused if it is in one shard.
pub(super) fn merge_clocks(responses: &[ShardResponse]) -> serde_json::Result<Value> {
    let clocks: Vec<ClockView> = responses
        .iter()
        .map(ShardResponse::read)
        .collect::<Result<_, _>>()?;
    let expiry_paused = clocks.iter().any(|clock| clock.expiry_paused);
    let ahead = |clock: &ClockView| clock.wall_clock_ahead_seconds.abs();
    let furthest = clocks
        .into_iter()
        .reduce(|a, b| if ahead(&b) > ahead(&a) { b } else { a });
    furthest
        .map(|clock| {
            serde_json::to_value(ClockView {
                expiry_paused,
                ..clock
            })
        })
        .transpose()
        .map(Option::unwrap_or_default)
}

/// Adds a line of what a shard reports of a check or a backup: findings name their shard, and each
/// shard has a backup of its own.
///
/// # Errors
/// If the report is not that of a check.
pub fn add_work(
    all: &mut ProgressLine,
    shard: usize,
    line: ProgressLine,
) -> serde_json::Result<()> {
    // Each field by name: a new one does not compile without a rule. Progress is that of a moment.
    let ProgressLine {
        progress: _,
        report,
        backup,
        backups,
        error,
    } = line;
    if let Some(report) = report {
        let mut sum: CheckReport = all
            .report
            .take()
            .map(serde_json::from_value)
            .transpose()?
            .unwrap_or_default();
        sum.add_shard(shard, serde_json::from_value(report)?);
        all.report = Some(serde_json::to_value(sum)?);
    }
    all.backups.extend(backup.into_iter().chain(backups));
    all.error = all.error.take().or(error);
    Ok(())
}
