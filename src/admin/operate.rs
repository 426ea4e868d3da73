//! Operations on topics and event subscriptions that Azure does not have: `status`, `hold`, `resume`, `probe` and `release`.

use actix_web::HttpResponse;
use serde::Serialize;
use tracing::info;
use utoipa::ToSchema;

use super::{
    AdminError, Control,
    arm::{no_subscription, path::TopicPath, topic},
    supervision::IncarnationsView,
};
use crate::{
    control::{
        record::subscription::SubscriptionRecord,
        registry::{self, SubscriptionStatus},
    },
    event::Timestamp,
    policy::record::{Command, Counters, EndpointView, Health, Rate, job::Job},
};

/// The status of an event subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Status)]
pub struct SubscriptionStatusView {
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_topic: Option<String>,
    subscription: String,
    held_by: Option<String>,
    health: HealthView,
    endpoint: PaceView,
    counters: CountersView,
    /// Counters of events that jobs sent again; they are not in `counters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<CountersView>,
    /// Jobs that have not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobView>,
    backlog: u64,
    oldest_unread: Option<String>,
    oldest_unread_age_seconds: Option<u64>,
    next_due: Option<String>,
    in_flight: usize,
    late_requests: usize,
    actor: IncarnationsView,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
#[schema(as = StatusHealth)]
pub(super) enum HealthView {
    Healthy {
        failures: u32,
    },
    #[serde(rename_all = "camelCase")]
    Suspended {
        cause: String,
        since: String,
        next_probe: String,
        consecutive_suspensions: u32,
    },
    #[serde(rename_all = "camelCase")]
    Probing {
        cause: String,
        since: String,
        consecutive_suspensions: u32,
    },
}

/// Present limits of requests to the endpoint. Rates are in requests a second.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusEndpoint)]
struct PaceView {
    rate: Option<f64>,
    healthy_rate: Option<f64>,
    concurrency: u32,
    events_per_request: u32,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusCounters)]
struct CountersView {
    passed: u64,
    filtered: u64,
    matched: u64,
    delivered: u64,
    pending: u64,
    dead_lettered: u64,
    dropped: u64,
    canceled: u64,
    requests: u64,
    requests_failed: u64,
    late: u64,
}

/// A replay or a redrive, and its progress.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StatusJob)]
struct JobView {
    job: u16,
    kind: String,
    state: String,
    rate: Option<f64>,
    started: String,
    changed: String,
    counters: CountersView,
}

impl JobView {
    fn new(job: &Job) -> Self {
        Self {
            job: job.lane.0,
            kind: job.kind.to_string(),
            state: job.state.to_string(),
            rate: job.rate.map(Rate::per_second),
            started: job.began.to_string(),
            changed: job.changed.to_string(),
            counters: CountersView::new(job.counters),
        }
    }
}

/// The status of a topic.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicStatus)]
pub struct TopicStatusView {
    topic: String,
    /// Whether publishes are refused because the backlog has reached `journal.backlog_max`.
    full: bool,
    /// Largest backlog, if it has reached `journal.backlog_max` or is close to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_backlog: Option<BacklogView>,
    /// Incarnations of the topic's own actor.
    actor: IncarnationsView,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TopicBacklog)]
struct BacklogView {
    subscription: String,
    bytes: u64,
}

impl SubscriptionStatusView {
    /// The view of `status`.
    pub fn new(topic: &str, subscription: &SubscriptionRecord, status: &SubscriptionStatus, now: Timestamp) -> Self {
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
        Self {
            topic: topic.to_owned(),
            domain_topic: subscription.filter.domain_topic.clone(),
            subscription: subscription.name.to_string(),
            held_by: cursor.held.map(|held| held.to_string()),
            health: HealthView::new(cursor.health),
            endpoint: PaceView::new(*endpoint),
            counters: CountersView::new(cursor.counters),
            replayed: (cursor.jobs_begun > 0).then(|| CountersView::new(cursor.replayed)),
            jobs: cursor.jobs.iter().map(JobView::new).collect(),
            backlog: *backlog,
            oldest_unread: oldest_unread.map(|appended| appended.to_string()),
            oldest_unread_age_seconds: oldest_unread.map(|appended| now.since(appended).as_secs()),
            next_due: cursor.next_due.map(|due| due.to_string()),
            in_flight: *in_flight,
            late_requests: *late_requests,
            actor: IncarnationsView::new(supervision, Some(quarantined)),
        }
    }
}

impl HealthView {
    pub(super) fn new(health: Health) -> Self {
        match health {
            Health::Healthy { failures } => Self::Healthy { failures },
            Health::Suspended { cause, since, until, consecutive_suspensions } => Self::Suspended {
                cause: cause.to_string(),
                since: since.to_string(),
                next_probe: until.to_string(),
                consecutive_suspensions,
            },
            Health::Probing { cause, since, consecutive_suspensions } => {
                Self::Probing { cause: cause.to_string(), since: since.to_string(), consecutive_suspensions }
            }
        }
    }
}

impl PaceView {
    fn new(endpoint: EndpointView) -> Self {
        let EndpointView { rate, healthy_rate, concurrency, events_max } = endpoint;
        Self {
            rate: rate.map(Rate::per_second),
            healthy_rate: healthy_rate.map(Rate::per_second),
            concurrency,
            events_per_request: events_max,
        }
    }
}

impl CountersView {
    fn new(counters: Counters) -> Self {
        let Counters {
            passed,
            filtered,
            matched,
            delivered,
            pending,
            dead_lettered,
            dropped,
            canceled,
            requests,
            requests_failed,
            late,
        } = counters;
        Self {
            passed,
            filtered,
            matched,
            delivered,
            pending,
            dead_lettered,
            dropped,
            canceled,
            requests,
            requests_failed,
            late,
        }
    }
}

/// `GET …/status` of a topic.
pub(super) fn topic_status(control: &Control, path: &TopicPath) -> Result<HttpResponse, AdminError> {
    let topic = topic(control, path)?;
    let backlog = topic.crowd();
    let view = TopicStatusView {
        topic: topic.record().name.to_string(),
        full: backlog.is_some_and(|backlog| backlog.is_full),
        largest_backlog: backlog.map(|backlog| {
            let name = topic.subscription_name(backlog.laggard).map(|name| name.to_string());
            BacklogView { subscription: name.unwrap_or_else(|| backlog.laggard.0.to_string()), bytes: backlog.bytes }
        }),
        actor: IncarnationsView::new(&topic.history().supervision(), None),
    };
    Ok(HttpResponse::Ok().json(view))
}

/// `GET …/status`.
pub(super) async fn status(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, AdminError> {
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let status = topic.status(name).await.map_err(registry::Error::from)?.ok_or_else(|| no_subscription(path, name))?;
    let view = SubscriptionStatusView::new(topic.record().name.as_str(), &subscription, &status, control.clock.now());
    Ok(HttpResponse::Ok().json(view))
}

/// `POST …/hold`, `…/resume`, `…/probe` and `…/release`. The response has the new status, after the command is durable.
/// Requests in flight are completed.
pub(super) async fn command(
    control: &Control,
    path: &TopicPath,
    name: &str,
    command: Command,
) -> Result<HttpResponse, AdminError> {
    topic(control, path)?.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    control.registry.command(&path.key(), name, command).await?;
    info!(topic = path.key(), subscription = name, ?command, "operator command done");
    status(control, path, name).await
}
