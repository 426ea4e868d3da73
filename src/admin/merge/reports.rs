//! Reports of figures: sums, and the first lines of an order.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::form_urlencoded;

use super::{
    FieldRule, MergedFields, ShardAnswer, fields, fold_answers,
    pages::{parse_instant, top_in},
};
use crate::supervision::sum_ends;
use gridhook_api::{
    clock::ClockView,
    history::{DestinationHistory, HistoryReport},
    jobs::JobsReport,
    store::ProgressLine,
    supervision::SupervisionReport,
    top::{SortOrder, TopLine, TopReport},
};
use gridhook_repair::fsck::CheckReport;

/// The maximum number of lines of `/top` that a shard gives: of a page, and of those before it.
pub(crate) const LINES_MAX: usize = 10_000;

/// The figures of one shard, and the rank of each line.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TopPart {
    pub(crate) report: TopReport,
    /// The sort key of each line, the largest first.
    pub(crate) ranks: Vec<[f64; 3]>,
}

#[derive(Default)]
struct Parameters {
    by: SortOrder,
    top: Option<usize>,
    skip: usize,
}

impl Parameters {
    /// The shards have refused what cannot be read.
    fn read(query: &str) -> Self {
        let mut read = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "by" => {
                    read.by = serde_json::from_value(Value::String(value.into_owned()))
                        .unwrap_or_default()
                }
                "top" => read.top = value.parse().ok(),
                "skip" => read.skip = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        read
    }
}

pub(super) fn merge_top(query: &str, answers: &[ShardAnswer]) -> serde_json::Result<Value> {
    let Parameters { by, top, skip } = Parameters::read(query);
    let (mut all, mut lines): (Option<TopReport>, Vec<_>) = (None, Vec::new());
    for answer in answers {
        let TopPart { mut report, ranks } = answer.read()?;
        lines.extend(ranks.into_iter().zip(std::mem::take(&mut report.top)));
        all = Some(match all.take() {
            None => report,
            Some(all) => fields::TOP.join(all, &report)?,
        });
    }
    let Some(mut all) = all else {
        return Ok(Value::Null);
    };
    let of_shards = lines.len();
    let mut lines = one_for_each(lines)?;
    // Event subscriptions of a spread topic have a line in each shard.
    let same = of_shards - lines.len();
    (all.subscriptions, all.matching) = (
        all.subscriptions.saturating_sub(same),
        all.matching.saturating_sub(same),
    );
    // Equal ones stay in the order of the shards, and within a shard in its own.
    lines.sort_by(|(a, line), (b, other)| match by {
        SortOrder::Name => line.subscription.cmp(&other.subscription),
        SortOrder::Activity
        | SortOrder::Health
        | SortOrder::Backlog
        | SortOrder::Pending
        | SortOrder::Failures
        | SortOrder::InFlight
        | SortOrder::ResponseP50
        | SortOrder::ResponseP95
        | SortOrder::ResponseP99
        | SortOrder::DeadLetters => b
            .iter()
            .zip(a)
            .map(|(b, a)| b.total_cmp(a))
            .fold(Ordering::Equal, Ordering::then),
    });
    let lines = lines.into_iter().map(|(_, line)| line).skip(skip);
    all.top = lines.take(top.unwrap_or(crate::top::TOP)).collect();
    serde_json::to_value(all)
}

/// Adds up the lines of the same event subscription.
fn one_for_each(lines: Vec<([f64; 3], TopLine)>) -> serde_json::Result<Vec<([f64; 3], TopLine)>> {
    let mut index = HashMap::new();
    let mut all = Vec::<([f64; 3], TopLine)>::with_capacity(lines.len());
    for (rank, line) in lines {
        let at = *index
            .entry((line.topic.clone(), line.subscription.clone()))
            .or_insert(all.len());
        match all.get_mut(at) {
            None => all.push((rank, line)),
            Some((known_rank, known)) => {
                known_rank
                    .iter_mut()
                    .zip(rank)
                    .for_each(|(known, more)| *known += more);
                *known = fields::TOP_LINE.join(known.clone(), &line)?;
            }
        }
    }
    Ok(all)
}

fn join_reports<T: DeserializeOwned>(
    fields: &'static MergedFields,
    answers: &[ShardAnswer],
) -> serde_json::Result<T> {
    serde_json::from_value(fold_answers(answers, |all, more| {
        FieldRule::Fields(fields).join_values(all, more);
    })?)
}

pub(super) fn merge_jobs(query: &str, answers: &[ShardAnswer]) -> serde_json::Result<Value> {
    let mut all: JobsReport = join_reports(&fields::JOBS, answers)?;
    all.jobs
        .sort_by_key(|job| Reverse(parse_instant(&job.job.started)));
    all.jobs.truncate(top_in(query, crate::jobs::TOP));
    serde_json::to_value(all)
}

/// Counts are added. Percentiles cannot be: the largest of the shards are reported.
pub(super) fn merge_history(answers: &[ShardAnswer]) -> serde_json::Result<Value> {
    let reports: Vec<HistoryReport> = answers
        .iter()
        .map(ShardAnswer::read)
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
pub(super) fn merge_supervision(query: &str, answers: &[ShardAnswer]) -> serde_json::Result<Value> {
    let mut all: SupervisionReport = join_reports(&fields::SUPERVISION, answers)?;
    all.most_restarted
        .sort_by_key(|actor| Reverse(sum_ends(&actor.incarnations.ends)));
    all.most_restarted
        .truncate(top_in(query, crate::supervision::TOP));
    serde_json::to_value(all)
}

/// The clock that is furthest from that of its machine. Expiry is paused if it is in one shard.
pub(super) fn merge_clocks(answers: &[ShardAnswer]) -> serde_json::Result<Value> {
    let clocks: Vec<ClockView> = answers
        .iter()
        .map(ShardAnswer::read)
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
