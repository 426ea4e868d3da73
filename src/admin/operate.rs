//! What operators ask of a subscription that Azure has no word for: how it is, and whether it sends.

use actix_web::HttpResponse;
use serde::Serialize;
use tracing::info;

use super::{
    Control, Error,
    arm::{no_subscription, path::TopicPath, topic},
};
use crate::{
    event::Timestamp,
    policy::record::{Command, Counters, Health},
    topic::registry::{self, Status},
};

/// How a subscription is, as it is told.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    topic: String,
    subscription: String,
    held: bool,
    health: HealthView,
    counters: CountersView,
    backlog: u64,
    oldest_unread: Option<String>,
    oldest_unread_age_seconds: Option<u64>,
    next_due: Option<String>,
    next_probe: Option<String>,
    in_flight: usize,
    lingering: usize,
    limits: LimitsView,
    actor: ActorView,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum HealthView {
    Healthy { failures: u32 },
    Suspended { cause: String, since: String, until: String, strikes: u32 },
    Probing { cause: String, since: String, strikes: u32 },
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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

/// Within which limits it sends at present.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitsView {
    concurrency: u32,
    events_per_batch: u32,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ActorView {
    life: u64,
    restarts: u64,
    last_cause: Option<String>,
}

impl View {
    /// What is told of `status`.
    pub fn new(topic: &str, subscription: &str, status: &Status, now: Timestamp) -> Self {
        let Status { cursor, backlog, in_flight, lingering, oldest_unread, limits, life, restarts, last_cause } =
            status;
        let next_probe = match cursor.health {
            Health::Suspended { until, .. } => Some(until),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        };
        Self {
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            held: cursor.held,
            health: HealthView::new(cursor.health),
            counters: CountersView::new(cursor.counters),
            backlog: *backlog,
            oldest_unread: oldest_unread.map(|appended| appended.to_string()),
            oldest_unread_age_seconds: oldest_unread.map(|appended| now.since(appended).as_secs()),
            next_due: cursor.next_due.map(|due| due.to_string()),
            next_probe: next_probe.map(|until| until.to_string()),
            in_flight: *in_flight,
            lingering: *lingering,
            limits: LimitsView { concurrency: limits.concurrency_max, events_per_batch: limits.batch_max },
            actor: ActorView { life: *life, restarts: *restarts, last_cause: last_cause.clone() },
        }
    }
}

impl HealthView {
    fn new(health: Health) -> Self {
        match health {
            Health::Healthy { failures } => Self::Healthy { failures },
            Health::Suspended { cause, since, until, strikes } => Self::Suspended {
                cause: cause.to_string(),
                since: since.to_string(),
                until: until.to_string(),
                strikes,
            },
            Health::Probing { cause, since, strikes } => {
                Self::Probing { cause: cause.to_string(), since: since.to_string(), strikes }
            }
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

/// `GET …/status`.
pub(super) async fn status(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let status = topic.status(name).await.map_err(registry::Error::from)?.ok_or_else(|| no_subscription(path, name))?;
    let view = View::new(topic.record().name.as_str(), subscription.name.as_str(), &status, control.clock.now());
    Ok(HttpResponse::Ok().json(view))
}

/// `POST …/hold`: nothing is sent until `resume`. What is in flight is finished; durable when answered.
pub(super) async fn hold(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    command(control, path, name, Command::Hold).await
}

/// `POST …/resume`.
pub(super) async fn resume(control: &Control, path: &TopicPath, name: &str) -> Result<HttpResponse, Error> {
    command(control, path, name, Command::Resume).await
}

async fn command(control: &Control, path: &TopicPath, name: &str, command: Command) -> Result<HttpResponse, Error> {
    topic(control, path)?.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    control.registry.command(&path.name, name, command).await?;
    info!(topic = path.name, subscription = name, ?command, "operator's command done");
    status(control, path, name).await
}
