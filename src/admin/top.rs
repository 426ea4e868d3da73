//! `GET /top`: the figures of all event subscriptions, the most active or the least healthy first.
//!
//! Rates are measured since the previous request; the first response has none. Counters and states come from shared
//! state: no actor receives a message. The store is read only for the age of the oldest unread events of listed ones.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::{AdminError, Control, model::InvalidRequest};
use crate::{
    api::{
        status::HealthView,
        top::{TopLine, TopReport},
    },
    control::registry::{self, SubscriptionCensus, TopicHandle},
    event::{SubscriptionKey, Timestamp},
    policy::record::{Counters, Health},
};

/// Default number of listed event subscriptions …
const TOP: usize = 50;

/// … and the maximum.
const TOP_MAX: usize = 500;

/// Minimum time between two measurements; an earlier request repeats the previous rates.
const WINDOW_MIN: Duration = Duration::from_millis(500);

/// Maximum time between two measurements; older ones give no rates.
const STALE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
struct TopRates {
    delivered: f64,
    requests: f64,
    failed: f64,
}

/// The previous measurement.
#[derive(Debug, Default)]
struct RateSample {
    at: Timestamp,
    counters: HashMap<SubscriptionKey, Counters>,
    rates: HashMap<SubscriptionKey, TopRates>,
    window: Option<Duration>,
}

/// The previous measurement, shared by all requests.
#[derive(Debug, Default)]
pub(super) struct RateSamples(Mutex<RateSample>);

/// Order of the event subscriptions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SortOrder {
    #[default]
    Activity,
    Health,
    Backlog,
    Pending,
    Failures,
    InFlight,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    #[serde(default)]
    by: SortOrder,
    top: Option<String>,
}

struct SubscriptionSample {
    topic: Arc<TopicHandle>,
    subscription_key: SubscriptionKey,
    figures: SubscriptionCensus,
    rates: Option<TopRates>,
}

impl SubscriptionSample {
    /// The largest comes first.
    fn rank(&self, by: SortOrder) -> [f64; 3] {
        let (figures, rates) = (&self.figures, self.rates.unwrap_or_default());
        let cursor = &figures.cursor;
        let (backlog, pending) = (figures.backlog as f64, cursor.counters.pending as f64);
        match by {
            SortOrder::Activity => [rates.delivered + rates.requests, figures.in_flight as f64, backlog],
            SortOrder::Health => {
                let state = match cursor.health {
                    Health::Suspended { consecutive_suspensions, .. }
                    | Health::Probing { consecutive_suspensions, .. } => 1e6 + f64::from(consecutive_suspensions),
                    Health::Healthy { .. } if cursor.held.is_some() => 1e5,
                    Health::Healthy { failures } => f64::from(failures),
                };
                [state, rates.failed, backlog + pending]
            }
            SortOrder::Backlog => [backlog, pending, 0.0],
            SortOrder::Pending => [pending, backlog, 0.0],
            SortOrder::Failures => [rates.failed, cursor.counters.requests_failed as f64, 0.0],
            SortOrder::InFlight => [figures.in_flight as f64, rates.requests, 0.0],
        }
    }
}

/// `GET /top`.
pub(super) async fn report(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let wrong = |error: &dyn std::fmt::Display| {
        let allowed = "allowed are top, and by: activity, health, backlog, pending, failures or inFlight";
        InvalidRequest::new("the query", format!("cannot be read: {error}; {allowed}"))
    };
    let TopQuery { by, top } =
        web::Query::<TopQuery>::from_query(request.query_string()).map_err(|error| wrong(&error))?.into_inner();
    let top = match &top {
        None => TOP,
        Some(given) => given.parse().ok().filter(|top| (1..=TOP_MAX).contains(top)).ok_or_else(|| {
            InvalidRequest::new("top", format!("is \"{given}\"; allowed are 1 to {TOP_MAX} event subscriptions"))
        })?,
    };
    let now = control.clock.now();
    let mut all: Vec<SubscriptionSample> = control.registry.topics().iter().flat_map(all_of).collect();
    let window = control.samples.rate(&mut all, now);
    let mut report = TopReport::of(&all, window, now);
    let order = |one: &SubscriptionSample, other: &SubscriptionSample| {
        let (a, b) = (one.rank(by), other.rank(by));
        let ranks = b.iter().zip(&a).map(|(b, a)| b.total_cmp(a));
        ranks
            .fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            .then_with(|| one.figures.record.key().cmp(&other.figures.record.key()))
    };
    if all.len() > top {
        all.select_nth_unstable_by(top - 1, order);
        all.truncate(top);
    }
    all.sort_unstable_by(order);
    for one in &all {
        report.top.push(one.to_line(now).await?);
    }
    Ok(HttpResponse::Ok().json(report))
}

fn all_of(topic: &Arc<TopicHandle>) -> Vec<SubscriptionSample> {
    let one = |figures: SubscriptionCensus| {
        let subscription_key = SubscriptionKey { partition: topic.partition(), subscription: figures.number() };
        SubscriptionSample { topic: Arc::clone(topic), subscription_key, figures, rates: None }
    };
    topic.census().into_iter().map(one).collect()
}

impl SubscriptionSample {
    async fn to_line(&self, now: Timestamp) -> Result<TopLine, AdminError> {
        let SubscriptionCensus { record, cursor, endpoint, backlog, unread, in_flight, .. } = &self.figures;
        let counters = cursor.counters;
        let oldest = match unread {
            Some(seq) => self.topic.appended_at(*seq).await.map_err(registry::Error::from)?,
            None => None,
        };
        let rates = self.rates;
        let success = rates.filter(|rates| rates.requests > 0.0).map(|rates| 1.0 - rates.failed / rates.requests);
        Ok(TopLine {
            topic: self.topic.record().resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            held_by: cursor.held.map(|held| held.to_string()),
            health: HealthView::new(cursor.health),
            delivered_per_second: rates.map(|rates| rates.delivered),
            requests_per_second: rates.map(|rates| rates.requests),
            failed_per_second: rates.map(|rates| rates.failed),
            success_share: success,
            backlog: *backlog,
            oldest_unread_age_seconds: oldest.map(|at| now.since(at).as_secs()),
            pending: counters.pending,
            in_flight: *in_flight,
            concurrency: endpoint.concurrency,
            delivered: counters.delivered,
            dead_lettered: counters.dead_lettered,
            dropped: counters.dropped,
        })
    }
}

impl TopReport {
    fn of(all: &[SubscriptionSample], window: Option<Duration>, now: Timestamp) -> Self {
        let is_suspended = |one: &&SubscriptionSample| !matches!(one.figures.cursor.health, Health::Healthy { .. });
        let rate = |of: fn(TopRates) -> f64| window.map(|_| all.iter().filter_map(|one| one.rates).map(of).sum());
        Self {
            now: now.to_string(),
            window_seconds: window.map(|window| window.as_secs_f64()),
            subscriptions: all.len(),
            suspended: all.iter().filter(is_suspended).count(),
            held: all.iter().filter(|one| one.figures.cursor.held.is_some()).count(),
            in_flight: all.iter().map(|one| one.figures.in_flight).sum(),
            backlog: all.iter().map(|one| one.figures.backlog).sum(),
            pending: all.iter().map(|one| one.figures.cursor.counters.pending).sum(),
            delivered_per_second: rate(|rates| rates.delivered),
            failed_per_second: rate(|rates| rates.failed),
            top: Vec::new(),
        }
    }
}

impl RateSamples {
    /// Sets the rates and stores this measurement. Returns the time that the rates cover, if there are any.
    fn rate(&self, all: &mut [SubscriptionSample], now: Timestamp) -> Option<Duration> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.since(last.at);
        if since >= WINDOW_MIN {
            let is_known = since <= STALE;
            let rated = |one: &SubscriptionSample| {
                let before = last.counters.get(&one.subscription_key)?;
                Some((one.subscription_key, TopRates::between(before, &one.figures.cursor.counters, since)))
            };
            let rates = if is_known { all.iter().filter_map(rated).collect() } else { HashMap::new() };
            let counters = all.iter().map(|one| (one.subscription_key, one.figures.cursor.counters)).collect();
            *last = RateSample { at: now, counters, rates, window: is_known.then_some(since) };
        }
        for one in all {
            one.rates = last.rates.get(&one.subscription_key).copied();
        }
        last.window
    }
}

impl TopRates {
    fn between(before: &Counters, now: &Counters, over: Duration) -> Self {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / over.as_secs_f64();
        Self {
            delivered: rate(before.delivered, now.delivered),
            requests: rate(before.requests, now.requests),
            failed: rate(before.requests_failed, now.requests_failed),
        }
    }
}
