//! Operations on topics and event subscriptions that Azure does not have: `status`, `hold`,
//! `resume`, `probe`, `release` and `unblock`.

use std::{num::NonZeroU32, ops::Range};

use tracing::info;

use super::arm::{Call, FoundSubscription};
use crate::{AdminResult, respond_json, supervision::incarnations_view};
use gridhook_api::{
    status::{
        CountersView, HealthView, OrderStatusView, PaceView, StatusJob, SubscriptionStatusView,
        TopicBacklog, TopicStatusView, UnblockRequest,
    },
    top::ConditionView,
};
use gridhook_engine::control::registry::SubscriptionStatus;
use gridhook_event::Timestamp;
use gridhook_policy::{
    order::OrderHash,
    record::{Command, Counters, EndpointView, Health, OrderView, Rate, job::Job},
};
use gridhook_record::subscription::{SubscriptionRecord, Webhook};

pub(crate) fn job_status_view(job: &Job) -> StatusJob {
    StatusJob {
        job: job.lane.0,
        kind: job.kind.to_string(),
        state: job.state.to_string(),
        rate: job.rate.map(Rate::per_second),
        started: job.began.to_string(),
        changed: job.changed.to_string(),
        counters: counters_view(job.counters),
    }
}

fn subscription_status_view(
    topic: &str,
    subscription: &SubscriptionRecord,
    status: &SubscriptionStatus,
    condition: ConditionView,
    now: Timestamp,
) -> SubscriptionStatusView {
    let SubscriptionStatus {
        cursor,
        endpoint,
        backlog,
        in_flight,
        late_requests,
        oldest_unread,
        supervision,
        quarantined,
    } = status;
    SubscriptionStatusView {
        topic: topic.to_owned(),
        domain_topic: subscription.filter.domain_topic.clone(),
        subscription: subscription.name.to_string(),
        held_by: cursor.held.map(|held| held.to_string()),
        health: health_view(cursor.health),
        condition,
        endpoint: pace_view(endpoint, &subscription.webhook),
        counters: counters_view(cursor.counters),
        replayed: (cursor.jobs_begun > 0).then(|| counters_view(cursor.replayed)),
        jobs: cursor.jobs.iter().map(job_status_view).collect(),
        backlog: *backlog,
        oldest_unread: oldest_unread.map(|appended| appended.to_string()),
        oldest_unread_age_seconds: oldest_unread.map(|appended| now.since(appended).as_secs()),
        next_due: cursor.next_retry().map(|due| due.to_string()),
        order: endpoint.order.as_deref().map(order_status_view),
        in_flight: *in_flight,
        late_requests: *late_requests,
        actor: incarnations_view(supervision, Some(quarantined)),
    }
}

pub(crate) fn health_view(health: Health) -> HealthView {
    match health {
        Health::Healthy { failures } => HealthView::Healthy { failures },
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => HealthView::Suspended {
            cause: cause.to_string(),
            since: since.to_string(),
            next_probe: until.to_string(),
            consecutive_suspensions,
        },
        Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => HealthView::Probing {
            cause: cause.to_string(),
            since: since.to_string(),
            consecutive_suspensions,
        },
    }
}

pub(crate) fn pace_view(endpoint: &EndpointView, webhook: &Webhook) -> PaceView {
    let EndpointView {
        rate,
        healthy_rate,
        concurrency,
        events_max,
        order: _,
    } = *endpoint;
    PaceView {
        rate: rate.map(Rate::per_second),
        healthy_rate: healthy_rate.map(Rate::per_second),
        concurrency,
        events_per_request: events_max,
        max_requests_per_second: webhook.max_requests_per_second.map(NonZeroU32::get),
        response_timeout_in_seconds: webhook.response_timeout_in_seconds.map(NonZeroU32::get),
    }
}

pub(crate) fn order_status_view(order: &OrderView) -> OrderStatusView {
    OrderStatusView {
        holding_keys: order.keys,
        blocked_keys: order.blocked,
        first_blocking_sequence: order.first_blocking.map(|seq| seq.0),
        held_back_events: order.events,
        ordered_events: order.tracked,
        ordered_events_max: order.tracked_max,
    }
}

pub(crate) fn counters_view(counters: Counters) -> CountersView {
    CountersView {
        passed: counters.passed,
        filtered: counters.filtered,
        matched: counters.matched,
        delivered: counters.delivered,
        pending: counters.pending,
        dead_lettered: counters.dead_lettered,
        dropped: counters.dropped,
        canceled: counters.canceled,
        requests: counters.requests,
        requests_failed: counters.requests_failed,
        late: counters.late,
    }
}

/// `GET …/status` of a topic.
pub(super) async fn topic_status(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let topic = call.find_topic()?;
    let backlog = topic.crowded_partition();
    let Range { start: from, end } = topic.log_range().await?;
    let oldest = if from < end {
        topic.appended_at(from).await?
    } else {
        None
    };
    let totals = topic.accepted_totals();
    let rates = control
        .windows
        .view_at(control.clock.now())
        .topic_rates(topic.partition(), totals);
    let view = TopicStatusView {
        topic: topic.record().name.to_string(),
        subscriptions: topic.subscription_count(),
        published: totals.count,
        published_bytes: totals.bytes,
        unmatched: topic.meter().publish_counts().unmatched,
        published_per_second: rates.map(|(events, _)| events),
        bytes_per_second: rates.map(|(_, bytes)| bytes),
        log_from_sequence: from.0,
        log_before_sequence: end.0,
        log_from: oldest.map(|oldest| oldest.to_string()),
        full: backlog.is_some_and(|backlog| backlog.is_full),
        largest_backlog: backlog.map(|backlog| {
            let name = topic
                .subscription_name(backlog.laggard)
                .map(|name| name.to_string());
            TopicBacklog {
                subscription: name.unwrap_or_else(|| backlog.laggard.0.to_string()),
                bytes: backlog.bytes,
            }
        }),
        duplicate_events: topic.meter().publish_counts().duplicates,
        actor: incarnations_view(&topic.supervision_history().read_state(), None),
    };
    respond_json(&view)
}

/// `GET …/status`.
pub(super) async fn status(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let FoundSubscription {
        topic,
        name,
        record,
    } = call.find_subscription()?;
    let missing = || call.no_subscription();
    let status = topic.read_status(&name).await?.ok_or_else(missing)?;
    let now = control.clock.now();
    let snapshot = topic.snapshot(&name).ok_or_else(missing)?;
    let key = topic.subscription_key(snapshot.number());
    let windows = control.windows.view_at(now);
    let condition = windows
        .window_figures(key, &snapshot)
        .condition_view(&windows.reported_lengths());
    drop(windows);
    let view = subscription_status_view(
        topic.record().name.as_str(),
        &record,
        &status,
        condition,
        now,
    );
    respond_json(&view)
}

/// `POST …/unblock`.
pub(super) async fn unblock(call: Call<'_>) -> AdminResult {
    let UnblockRequest { key, retry } = call.read_body()?;
    let key = key.as_deref().map(OrderHash::hash_value);
    send_command(call, Command::Unblock { key, retry }).await
}

/// `POST …/hold`, `…/resume`, `…/probe` and `…/release`. The response has the new status, after the
/// command is durable. Requests in flight are completed.
pub(super) async fn send_command(call: Call<'_>, command: Command) -> AdminResult {
    let FoundSubscription {
        topic,
        name: subscription,
        ..
    } = call.find_subscription()?;
    let topic = topic.record().key();
    let registry = &call.control.registry;
    registry
        .send_command(&topic, &subscription, command)
        .await?;
    info!(topic, subscription, ?command, "operator command done");
    status(call).await
}
