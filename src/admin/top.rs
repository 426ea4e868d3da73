//! `GET /top`: the figures of all event subscriptions, the most active or the least healthy first, in pages.
//!
//! Rates are measured since the previous request; the first response has none. Counters and states come from shared
//! state: no actor receives a message. The store is read only for the age of the oldest unread events of listed ones.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::{
    AdminError, Control,
    merge::{self, TopPart},
    model::InvalidRequest,
    permissions::Permissions,
    query, tail,
};
use crate::operate::health_view;
use gridhook_api::top::{HealthFilter, SortOrder, TopLine, TopReport};
use gridhook_engine::control::registry::{self, SubscriptionSnapshot, TopicHandle};
use gridhook_event::{PartitionId, SubscriptionKey, Timestamp, chunk::LogTail};
use gridhook_policy::record::{Counters, Health};
use gridhook_publish::OneOfShards;
use gridhook_record::topic::TopicKind;

/// Default number of listed event subscriptions …
pub(super) const TOP: usize = 50;

/// … and the maximum.
const TOP_MAX: usize = 500;

/// Maximum number of event subscriptions before the listed ones.
const SKIP_MAX: usize = 1_000_000;

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
    /// In the order of the registry.
    subscriptions: Vec<SubscriptionRates>,
    window: Option<Duration>,
}

/// Counters, and the rates until then.
#[derive(Clone, Copy, Debug)]
struct SubscriptionRates {
    key: SubscriptionKey,
    counters: Counters,
    rates: Option<TopRates>,
}

impl RateSample {
    /// The figures of a subscription, which is at `position` unless others were created or deleted since. Then an index is
    /// made, once.
    fn find(
        &self,
        position: usize,
        key: SubscriptionKey,
        index: &mut Option<HashMap<SubscriptionKey, usize>>,
    ) -> Option<&SubscriptionRates> {
        let is_it = |one: &&SubscriptionRates| one.key == key;
        self.subscriptions.get(position).filter(is_it).or_else(|| {
            let positions =
                || self.subscriptions.iter().enumerate().map(|(position, one)| (one.key, position)).collect();
            index.get_or_insert_with(positions).get(&key).and_then(|position| self.subscriptions.get(*position))
        })
    }
}

/// The previous measurement, shared by all requests.
#[derive(Debug, Default)]
pub(super) struct RateSamples(Mutex<RateSample>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    #[serde(default)]
    by: SortOrder,
    top: Option<String>,
    skip: Option<String>,
    search: Option<String>,
    topic: Option<String>,
    health: Option<HealthFilter>,
}

struct SubscriptionSample<'a> {
    topic: &'a TopicHandle,
    figures: SubscriptionSnapshot,
    rates: Option<TopRates>,
}

impl SubscriptionSample<'_> {
    fn key(&self) -> SubscriptionKey {
        SubscriptionKey { partition: self.topic.partition(), subscription: self.figures.number() }
    }

    /// The largest comes first; equal ones are in the order of topics and names.
    fn rank(&self, by: SortOrder) -> [f64; 3] {
        let (figures, rates) = (&self.figures, self.rates.unwrap_or_default());
        let (backlog, pending) = (figures.backlog as f64, figures.counters.pending as f64);
        match by {
            SortOrder::Activity => [rates.delivered + rates.requests, figures.in_flight as f64, backlog],
            SortOrder::Health => {
                let state = match figures.health {
                    Health::Suspended { consecutive_suspensions, .. }
                    | Health::Probing { consecutive_suspensions, .. } => 1e6 + f64::from(consecutive_suspensions),
                    Health::Healthy { .. } if figures.held.is_some() => 1e5,
                    Health::Healthy { failures } => f64::from(failures),
                };
                [state, rates.failed, backlog + pending]
            }
            SortOrder::Backlog => [backlog, pending, 0.0],
            SortOrder::Pending => [pending, backlog, 0.0],
            SortOrder::Failures => [rates.failed, figures.counters.requests_failed as f64, 0.0],
            SortOrder::InFlight => [figures.in_flight as f64, rates.requests, 0.0],
            SortOrder::DeadLetters => {
                [(figures.counters.dead_lettered + figures.counters.dropped) as f64, pending, 0.0]
            }
            SortOrder::Name => [0.0; 3],
        }
    }

    fn is_wanted(&self, query: &TopQuery) -> bool {
        let SubscriptionSnapshot { health, held, .. } = &self.figures;
        let has_health = query.health.is_none_or(|wanted| match (wanted, health) {
            (HealthFilter::Held, _) => held.is_some(),
            (HealthFilter::Healthy, Health::Healthy { .. }) => held.is_none(),
            (HealthFilter::Unhealthy, Health::Healthy { .. }) => held.is_some(),
            (HealthFilter::Suspended, Health::Suspended { .. })
            | (HealthFilter::Probing, Health::Probing { .. })
            | (HealthFilter::Unhealthy, Health::Suspended { .. } | Health::Probing { .. }) => true,
            _ => false,
        });
        // The query of an endpoint may be secret, so it is not searched.
        let is_found = |text: &String| {
            let record = self.figures.record();
            let address = || record.webhook.endpoint_url.split(['?', '#']).next().unwrap_or_default();
            contains(record.name.as_str(), text) || contains(address(), text)
        };
        has_health && query.search.as_ref().is_none_or(is_found)
    }
}

/// Whether `text` contains `part`, which is in lower case.
pub(super) fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

/// `GET /top`.
pub(super) async fn report(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let query = TopQuery::read(request.query_string())?;
    let (mut top, mut skip) = (query.page_size()?, query.offset()?);
    let is_part = request.extensions().contains::<OneOfShards>();
    if is_part {
        // Those before the page are among the first ones of all shards, but not of each.
        (top, skip) = (top + skip, 0);
        if top > merge::LINES_MAX {
            let problem =
                format!("is too large; allowed is a page within the first {} lines of a cluster", merge::LINES_MAX);
            return Err(InvalidRequest::new("skip", problem).into());
        }
    }
    let now = control.clock.now();
    let topics = control.registry.topics();
    let mut all = Vec::new();
    for topic in &topics {
        all.extend(topic.snapshots().map(|figures| SubscriptionSample { topic, figures, rates: None }));
    }
    let window = control.samples.rate(&mut all, now);
    let permissions = Permissions::of(&request)?;
    if !permissions.sees_everything() {
        all.retain(|one| permissions.sees(&control, &one.topic.record(), &one.figures.record()));
    }
    let mut report = top_report(&all, window, now);
    if let Some(topic) = &query.topic {
        let (partition, domain_topic) = tail::topic_of(&control, &permissions, topic)?;
        let is_of = |one: &SubscriptionSample<'_>| {
            let is_of_domain_topic = |wanted: &str| {
                let record = one.figures.record();
                record.filter.domain_topic.as_deref().is_some_and(|of| of.eq_ignore_ascii_case(wanted))
            };
            one.topic.partition() == partition && domain_topic.as_deref().is_none_or(is_of_domain_topic)
        };
        all.retain(is_of);
    }
    all.retain(|one| one.is_wanted(&query));
    report.matching = all.len();
    let mut ranks = Vec::new();
    for position in page(&all, query.by, skip, top) {
        report.top.push(all[position].to_line(now).await?);
        ranks.push(all[position].rank(query.by));
    }
    if is_part {
        return Ok(HttpResponse::Ok().json(TopPart { report, ranks }));
    }
    Ok(HttpResponse::Ok().json(report))
}

/// The positions of a page in an order: `top` after the first `skip`. Ranks are computed once for each, and only the page is
/// sorted: there are thousands.
fn page(all: &[SubscriptionSample<'_>], by: SortOrder, skip: usize, top: usize) -> Vec<usize> {
    if skip >= all.len() {
        return Vec::new();
    }
    if by == SortOrder::Name {
        return page_by_name(all, skip, top);
    }
    let mut ranks: Vec<([f64; 3], usize)> = all.iter().map(|one| one.rank(by)).zip(0..).collect();
    let order = |(a, at): &([f64; 3], usize), (b, other): &([f64; 3], usize)| {
        let ranks = b.iter().zip(a).map(|(b, a)| b.total_cmp(a)).fold(Ordering::Equal, Ordering::then);
        ranks.then(at.cmp(other))
    };
    if skip > 0 {
        ranks.select_nth_unstable_by(skip - 1, order);
        ranks.drain(..skip);
    }
    if ranks.len() > top {
        ranks.select_nth_unstable_by(top - 1, order);
        ranks.truncate(top);
    }
    ranks.sort_unstable_by(order);
    ranks.into_iter().map(|(_, position)| position).collect()
}

/// The positions of a page by name. Those of a topic are in this order already, except for a domain, whose keys begin with a topic.
/// They are merged from the nearer end.
fn page_by_name(all: &[SubscriptionSample<'_>], skip: usize, top: usize) -> Vec<usize> {
    let name = |position: usize| all[position].figures.name();
    let (mut runs, mut end) = (Vec::new(), 0);
    for run in all.chunk_by(|a, b| std::ptr::eq(a.topic, b.topic)) {
        let mut positions: Vec<usize> = (end..end + run.len()).collect();
        end += run.len();
        if run[0].topic.record().kind() == TopicKind::Domain {
            positions.sort_by(|a, b| name(*a).cmp(name(*b)));
        }
        runs.push(positions.into_iter());
    }
    let is_from_end = skip > end / 2;
    let count = if is_from_end { end - skip } else { (skip + top).min(end) };
    let (all_runs, mut found) = (0..runs.len(), Vec::with_capacity(count));
    let mut next = |run: usize| {
        let position = if is_from_end { runs[run].next_back() } else { runs[run].next() }?;
        Some((name(position), position, run))
    };
    let mut heads: BTreeSet<(&str, usize, usize)> = all_runs.filter_map(&mut next).collect();
    while found.len() < count {
        let head = if is_from_end { heads.pop_last() } else { heads.pop_first() };
        let Some((_, position, run)) = head else { break };
        found.push(position);
        heads.extend(next(run));
    }
    if is_from_end {
        found.reverse();
        found.truncate(top);
        return found;
    }
    found.split_off(skip)
}

impl TopQuery {
    fn read(query: &str) -> Result<Self, InvalidRequest> {
        let query: Self = query::read(
            query,
            "top, skip, search, topic, health: healthy, unhealthy, suspended, probing or held, and by: activity, health, \
             backlog, pending, failures, inFlight, deadLetters or name",
        )?;
        Ok(Self { search: query.search.map(|search| search.to_ascii_lowercase()), ..query })
    }

    fn page_size(&self) -> Result<usize, InvalidRequest> {
        query::number("top", self.top.as_deref(), TOP, 1..=TOP_MAX, "event subscriptions")
    }

    fn offset(&self) -> Result<usize, InvalidRequest> {
        query::number("skip", self.skip.as_deref(), 0, 0..=SKIP_MAX, "event subscriptions")
    }
}

impl SubscriptionSample<'_> {
    async fn to_line(&self, now: Timestamp) -> Result<TopLine, AdminError> {
        let SubscriptionSnapshot { counters, health, held, next_due, concurrency, backlog, unread, in_flight, .. } =
            &self.figures;
        let record = self.figures.record();
        let oldest = match unread {
            Some(seq) => self.topic.appended_at(*seq).await.map_err(registry::Error::from)?,
            None => None,
        };
        let rates = self.rates;
        let success = rates.filter(|rates| rates.requests > 0.0).map(|rates| 1.0 - rates.failed / rates.requests);
        Ok(TopLine {
            topic: self.topic.record().resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            endpoint: (!record.is_pulled()).then(|| record.webhook.base_url()),
            held_by: held.map(|held| held.to_string()),
            health: health_view(*health),
            delivered_per_second: rates.map(|rates| rates.delivered),
            requests_per_second: rates.map(|rates| rates.requests),
            failed_per_second: rates.map(|rates| rates.failed),
            success_share: success,
            backlog: *backlog,
            oldest_unread_age_seconds: oldest.map(|at| now.since(at).as_secs()),
            pending: counters.pending,
            next_due: next_due.map(|due| due.to_string()),
            in_flight: *in_flight,
            concurrency: *concurrency,
            delivered: counters.delivered,
            dead_lettered: counters.dead_lettered,
            dropped: counters.dropped,
        })
    }
}

fn top_report(all: &[SubscriptionSample<'_>], window: Option<Duration>, now: Timestamp) -> TopReport {
    let is_suspended = |one: &&SubscriptionSample<'_>| !matches!(one.figures.health, Health::Healthy { .. });
    let rate = |of: fn(TopRates) -> f64| window.map(|_| all.iter().filter_map(|one| one.rates).map(of).sum());
    TopReport {
        now: now.to_string(),
        window_seconds: window.map(|window| window.as_secs_f64()),
        subscriptions: all.len(),
        suspended: all.iter().filter(is_suspended).count(),
        held: all.iter().filter(|one| one.figures.held.is_some()).count(),
        in_flight: all.iter().map(|one| one.figures.in_flight).sum(),
        backlog: all.iter().map(|one| one.figures.backlog).sum(),
        pending: all.iter().map(|one| one.figures.counters.pending).sum(),
        dead_lettered: all.iter().map(|one| one.figures.counters.dead_lettered).sum(),
        dropped: all.iter().map(|one| one.figures.counters.dropped).sum(),
        delivered_per_second: rate(|rates| rates.delivered),
        failed_per_second: rate(|rates| rates.failed),
        matching: 0,
        top: Vec::new(),
        missing_shards: Vec::new(),
    }
}

impl RateSamples {
    /// Sets the rates and stores this measurement. Returns the time that the rates cover, if there are any.
    fn rate(&self, all: &mut [SubscriptionSample<'_>], now: Timestamp) -> Option<Duration> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.since(last.at);
        let (is_due, is_known) = (since >= WINDOW_MIN, since <= STALE);
        let mut subscriptions = Vec::with_capacity(if is_due { all.len() } else { 0 });
        let mut index = None;
        for (position, one) in all.iter_mut().enumerate() {
            let (key, counters) = (one.key(), one.figures.counters);
            one.rates = match last.find(position, key, &mut index) {
                Some(before) if !is_due => before.rates,
                Some(before) if is_known => Some(TopRates::between(&before.counters, &counters, since)),
                Some(_) | None => None,
            };
            if is_due {
                subscriptions.push(SubscriptionRates { key, counters, rates: one.rates });
            }
        }
        if is_due {
            *last = RateSample { at: now, subscriptions, window: is_known.then_some(since) };
        }
        last.window
    }
}

/// The previous figures of topics.
#[derive(Debug, Default)]
pub(super) struct TopicRates(Mutex<HashMap<PartitionId, TopicSample>>);

#[derive(Clone, Copy, Debug)]
struct TopicSample {
    at: Timestamp,
    taken: LogTail,
    rates: Option<(f64, f64)>,
}

impl TopicRates {
    /// Events and bytes a second since the previous measurement, if there was one lately.
    pub(super) fn rate(&self, topic: PartitionId, taken: LogTail, now: Timestamp) -> Option<(f64, f64)> {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.retain(|_, sample| now.since(sample.at) <= STALE);
        let sample = samples.entry(topic).or_insert(TopicSample { at: now, taken, rates: None });
        let since = now.since(sample.at);
        if since >= WINDOW_MIN {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / since.as_secs_f64();
            let rates = (rate(taken.count, sample.taken.count), rate(taken.bytes, sample.taken.bytes));
            *sample = TopicSample { at: now, taken, rates: Some(rates) };
        }
        sample.rates
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
