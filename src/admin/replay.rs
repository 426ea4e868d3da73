//! Replays: stored events are sent to one event subscription again.

use std::time::Duration;

use actix_web::HttpResponse;
use tracing::info;

use super::{
    AdminError,
    arm::{Call, FoundSubscription},
    model::{CheckResult, parse_instant},
    shares,
};
use crate::{AdminResult, model::refuse_value, operate::counters_view, respond_json};
use gridhook_api::{
    replay::{DryRun, JobProgress, ReplayBody, ReplayView},
    resource::Page,
};
use gridhook_engine::control::registry::{ReplayContent, ReplayPoint, ReplayRange};
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_policy::record::{
    Command, Rate,
    job::{Job, JobCommand, JobKind, JobState},
};

/// Maximum rate limit of a job, in events a second.
const RATE_MAX: f64 = 1e6;

pub(crate) fn replay_range(body: &ReplayBody) -> CheckResult<ReplayRange> {
    // The range is half-open, and the last event of the body is part of it.
    let end = body.to_sequence.map(|last| Seq(last.saturating_add(1)));
    Ok(ReplayRange {
        from: replay_point(
            ("from", body.from.as_deref()),
            ("fromSequence", body.from_sequence.map(Seq)),
        )?,
        to: replay_point(("to", body.to.as_deref()), ("toSequence", end))?,
    })
}

/// A point that is given by one of two members, each with its name.
fn replay_point(
    (time_name, time): (&str, Option<&str>),
    (seq_name, seq): (&str, Option<Seq>),
) -> CheckResult<Option<ReplayPoint>> {
    match (time, seq) {
        (Some(_), Some(_)) => refuse_value(
            time_name,
            format!("and {seq_name} are both given; expected one of them"),
        ),
        (Some(time), None) => Ok(Some(ReplayPoint::Since(parse_instant(time_name, time)?))),
        (None, seq) => Ok(seq.map(ReplayPoint::At)),
    }
}

pub(crate) fn replay_rate(body: &ReplayBody) -> CheckResult<Option<Rate>> {
    match body.events_per_second {
        None => Ok(None),
        Some(rate) if (0.001..=RATE_MAX).contains(&rate) => Ok(Some(Rate::from_per_second(rate))),
        Some(rate) => refuse_value(
            "eventsPerSecond",
            format!("is {rate}; expected 0.001 to {RATE_MAX}"),
        ),
    }
}

pub(crate) fn dry_run(
    ReplayContent {
        from,
        end,
        events,
        matching,
    }: ReplayContent,
) -> DryRun {
    DryRun {
        from_sequence: from.0,
        to_sequence: end.0 - 1,
        stored: events,
        matching,
    }
}

/// The view of a job. `counted` is the number of dead letters of a redrive, if somebody has counted
/// them.
pub(crate) fn replay_view(job: &Job, counted: Option<u64>, now: Timestamp) -> ReplayView {
    let range = match job.kind {
        JobKind::Replay { from, end } => Some((from.0, end.0)),
        JobKind::Redrive { .. } => None,
    };
    let done_events = job.counters.passed;
    let total = range
        .map(|(from, end)| end.saturating_sub(from))
        .or(counted);
    let left = total
        .filter(|_| job.state == JobState::Running)
        .and_then(|total| remaining_time(now.since(job.began), done_events, total));
    ReplayView {
        id: job.lane.0.to_string(),
        kind: job.kind.to_string(),
        state: job.state.to_string(),
        from_sequence: range.map(|(from, _)| from),
        to_sequence: range.map(|(_, end)| end.saturating_sub(1)),
        events_per_second: job.rate.map(Rate::per_second),
        started: job.began.to_string(),
        changed: job.changed.to_string(),
        progress: JobProgress {
            passed: done_events,
            total,
            eta_seconds: left.map(|left| left.as_secs()),
        },
        counters: counters_view(job.counters),
    }
}

/// Time for the rest at the average rate so far.
fn remaining_time(so_far: Duration, passed: u64, total: u64) -> Option<Duration> {
    let left =
        total.saturating_sub(passed) as f64 / Some(passed).filter(|passed| *passed > 0)? as f64;
    Duration::try_from_secs_f64(so_far.as_secs_f64() * left).ok()
}

/// `GET …/replays`.
pub(super) async fn list_replays(call: Call<'_>) -> AdminResult {
    let subscription = call.find_subscription()?;
    let topic = subscription.topic.record().key();
    let registry = &call.control.registry;
    let jobs = registry.read_jobs(&topic, &subscription.name).await?;
    let mut value = Vec::with_capacity(jobs.len());
    for job in &jobs {
        let total = call.control.redrive_total(subscription.key(), job).await;
        value.push(replay_view(job, total, call.control.clock.now()));
    }
    respond_json(&Page::whole(value))
}

/// `GET …/replays/{replayId}`.
pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let id = call.path.name("replayId")?;
    let subscription = call.find_subscription()?;
    let topic = subscription.topic.record().key();
    let registry = &call.control.registry;
    let job = registry
        .read_job(&topic, &subscription.name, parse_lane(id)?)
        .await?;
    let total = call.control.redrive_total(subscription.key(), &job).await;
    respond_json(&replay_view(&job, total, call.control.clock.now()))
}

/// `POST …/replays/{replayId}/pause`, `…/resume` and `…/cancel`.
pub(super) async fn command_job(call: Call<'_>, command: fn(Lane) -> JobCommand) -> AdminResult {
    let id = call.path.name("replayId")?;
    let FoundSubscription {
        topic,
        name: subscription,
        ..
    } = call.find_subscription()?;
    let topic = topic.record().key();
    let command = command(parse_lane(id)?);
    let registry = &call.control.registry;
    registry
        .send_command(&topic, &subscription, Command::Job(command))
        .await?;
    info!(topic, subscription, ?command, "operator command done");
    get(call).await
}

/// The lane of a job, by its id in a path.
fn parse_lane(id: &str) -> AdminResult<Lane> {
    let lane = id.parse().ok().map(Lane).filter(|lane| lane.is_job());
    lane.ok_or_else(|| AdminError::NotFound(format!("There is no replay '{id}'.")))
}

/// `POST …/replays`.
pub(super) async fn start(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let registry = &control.registry;
    let FoundSubscription {
        topic,
        name: subscription,
        ..
    } = call.find_subscription()?;
    let body: ReplayBody = call.read_body()?;
    let topic = topic.record().key();
    let range = replay_range(&body)?;
    let rate = replay_rate(&body)?;
    if body.dry_run {
        let content = registry
            .preview_replay(&topic, &subscription, range)
            .await?;
        return respond_json(&dry_run(content));
    }
    shares::check_new_job(call, &topic, &subscription).await?;
    let job = registry
        .begin_replay(&topic, &subscription, range, rate)
        .await?;
    info!(topic, subscription, job = job.lane.0, "replay started");
    Ok(HttpResponse::Created().json(replay_view(&job, None, control.clock.now())))
}
