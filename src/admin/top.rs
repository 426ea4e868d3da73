//! `GET /top`: the figures of all event subscriptions, the most active or the least healthy first,
//! in pages.
//!
//! Rates are those of a recorded window, the same for every reader. Counters and states come from
//! shared state: no actor receives a message. The store is read only for the age of the oldest
//! unread events of listed ones.

use crate::model::refuse_value;
use crate::{AdminResult, respond_json};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use actix_web::{HttpMessage, HttpRequest, web};
use serde::Deserialize;

use super::{
    Control,
    merge::{self, TopPart},
    model::InvalidRequest,
    permissions::Permissions,
    query, tail,
    windows::{SubscriptionWindows, WindowLengths, condition_severity},
};
use crate::operate::health_view;
use gridhook_api::top::{HealthFilter, RateWindow, SortOrder, TopLine, TopReport};
use gridhook_engine::control::registry::{SubscriptionSnapshot, TopicHandle};
use gridhook_event::{PartitionId, SubscriptionKey, Timestamp};
use gridhook_policy::{
    condition::{Condition, WindowOutcomes},
    record::Health,
};
use gridhook_publish::OneOfShards;
use gridhook_record::topic::TopicKind;

/// Default number of listed event subscriptions.
pub(super) const TOP: usize = 50;

/// Maximum number of listed event subscriptions.
const TOP_MAX: usize = 500;

/// Maximum number of event subscriptions before the listed ones.
const SKIP_MAX: usize = 1_000_000;

/// Events and requests a second.
#[derive(Clone, Copy, Debug, Default)]
struct TopRates {
    delivered: f64,
    requests: f64,
    failed: f64,
}

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
    #[serde(default)]
    window: RateWindow,
}

struct SubscriptionSample<'a> {
    topic: &'a TopicHandle,
    figures: SubscriptionSnapshot,
    windows: SubscriptionWindows,
    rates: Option<TopRates>,
    /// The quantiles p50, p95 and p99 of the response times. They are read for listed lines, and
    /// for all lines if these are sorted by a quantile.
    response_times: [Option<f64>; 3],
}

impl SubscriptionSample<'_> {
    fn key(&self) -> SubscriptionKey {
        SubscriptionKey {
            partition: self.topic.partition(),
            subscription: self.figures.number(),
        }
    }

    /// The largest comes first; equal ones are in the order of topics and names.
    fn rank_by(&self, by: SortOrder) -> [f64; 3] {
        let figures = &self.figures;
        let rates = self.rates.unwrap_or_default();
        let backlog = figures.backlog as f64;
        let pending = figures.counters.pending as f64;
        match by {
            SortOrder::Activity => [
                round_figure(rates.delivered + rates.requests),
                figures.in_flight as f64,
                backlog,
            ],
            SortOrder::Health => {
                let bad = 1.0 - self.windows.good_share().unwrap_or(1.0);
                [
                    f64::from(condition_severity(self.windows.verdict.condition)),
                    round_figure(bad),
                    backlog + pending,
                ]
            }
            SortOrder::Backlog => [backlog, pending, 0.0],
            SortOrder::Pending => [pending, backlog, 0.0],
            SortOrder::Failures => [
                round_figure(rates.failed),
                figures.counters.requests_failed as f64,
                0.0,
            ],
            SortOrder::ResponseP50 => self.rank_by_response([0, 1, 2]),
            SortOrder::ResponseP95 => self.rank_by_response([1, 2, 0]),
            SortOrder::ResponseP99 => self.rank_by_response([2, 1, 0]),
            SortOrder::InFlight => [figures.in_flight as f64, round_figure(rates.requests), 0.0],
            SortOrder::DeadLetters => [
                (figures.counters.dead_lettered + figures.counters.dropped) as f64,
                pending,
                0.0,
            ],
            SortOrder::Name => [0.0; 3],
        }
    }

    /// The rank by response times: the quantiles at these positions, in this order.
    fn rank_by_response(&self, order: [usize; 3]) -> [f64; 3] {
        order.map(|position| round_figure(self.response_times[position].unwrap_or_default()))
    }

    fn is_of_topic(&self, partition: PartitionId, domain_topic: Option<&str>) -> bool {
        if self.topic.partition() != partition {
            return false;
        }
        let Some(wanted) = domain_topic else {
            return true;
        };
        let record = self.figures.record();
        let domain_topic = record.filter.domain_topic.as_deref();
        domain_topic.is_some_and(|name| name.eq_ignore_ascii_case(wanted))
    }

    fn is_wanted(&self, query: &TopQuery) -> bool {
        let condition = self.windows.verdict.condition;
        let has_health = query.health.is_none_or(|wanted| match wanted {
            HealthFilter::Healthy => condition == Condition::Healthy,
            HealthFilter::Unhealthy => condition.is_sick(),
            HealthFilter::Failing => condition == Condition::Failing,
            HealthFilter::Suspended => matches!(self.figures.health, Health::Suspended { .. }),
            HealthFilter::Probing => matches!(self.figures.health, Health::Probing { .. }),
            HealthFilter::Held => condition == Condition::Held,
            HealthFilter::Waiting => condition == Condition::Waiting,
            HealthFilter::Slow => condition == Condition::Slow,
            HealthFilter::Idle => condition == Condition::Idle,
        });
        let search = query.search.as_ref();
        has_health && search.is_none_or(|text| self.contains_text(text))
    }

    /// Whether the name or the endpoint contains `text`.
    fn contains_text(&self, text: &str) -> bool {
        let record = self.figures.record();
        // The query of an endpoint may be secret, so it is not searched.
        let address = record.webhook.endpoint_url.split(['?', '#']).next();
        contains(record.name.as_str(), text) || contains(address.unwrap_or_default(), text)
    }
}

/// Whether `text` contains `part`, which is in lower case.
pub(super) fn contains(text: &str, part: &str) -> bool {
    let text = text.as_bytes();
    let part = part.as_bytes();
    part.is_empty()
        || text
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
}

/// `GET /top`.
pub(super) async fn get_top(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let query = TopQuery::read(request.query_string())?;
    let mut top = query.page_size()?;
    let mut skip = query.parse_offset()?;
    let is_part = request.extensions().contains::<OneOfShards>();
    if is_part {
        // Lines before the page are among the first ones of all shards, but not of each.
        (top, skip) = (top + skip, 0);
        if top > merge::LINES_MAX {
            let problem = format!(
                "is too large; expected a page within the first {} lines of a cluster",
                merge::LINES_MAX
            );
            return refuse_value("skip", problem);
        }
    }
    let now = control.clock.now();
    let topics = control.registry.list_topics();
    let (mut all, lengths) = read_samples(&control, &topics, &query, now);
    let permissions = Permissions::from_request(&request)?;
    if !permissions.sees_everything() {
        all.retain(|one| {
            permissions.sees_subscription(&control, &one.topic.record(), &one.figures.record())
        });
    }
    let mut report = top_report(&all, &query, lengths[query.window as usize], now);
    if let Some(topic) = &query.topic {
        let (partition, domain_topic) = tail::topic_of(&control, &permissions, topic)?;
        all.retain(|one| one.is_of_topic(partition, domain_topic.as_deref()));
    }
    all.retain(|one| one.is_wanted(&query));
    report.matching = all.len();
    let mut ranks = Vec::new();
    let positions = select_page(&all, query.by, skip, top);
    read_response_times(&control, positions.iter().copied(), &mut all, now);
    for position in positions {
        report.top.push(all[position].to_line(&lengths, now).await?);
        ranks.push(all[position].rank_by(query.by));
    }
    if is_part {
        return respond_json(&TopPart { report, ranks });
    }
    respond_json(&report)
}

/// All event subscriptions, and the lengths of the windows.
fn read_samples<'a>(
    control: &Control,
    topics: &'a [Arc<TopicHandle>],
    query: &TopQuery,
    now: Timestamp,
) -> (Vec<SubscriptionSample<'a>>, WindowLengths) {
    let windows = control.windows.view_at(now);
    let length = windows.window_length(query.window as usize);
    let mut all = Vec::new();
    for topic in topics {
        for figures in topic.snapshots() {
            let key = SubscriptionKey {
                partition: topic.partition(),
                subscription: figures.number(),
            };
            let of_windows = windows.window_figures(key, &figures);
            let outcomes = of_windows.windows[query.window as usize].outcomes;
            let rates = length.map(|length| TopRates::per_second(outcomes, length));
            all.push(SubscriptionSample {
                topic,
                figures,
                windows: of_windows,
                rates,
                response_times: [None; 3],
            });
        }
    }
    let lengths = windows.reported_lengths();
    drop(windows);
    if query.by.is_by_response() {
        read_response_times(control, 0..all.len(), &mut all, now);
    }
    (all, lengths)
}

impl Control {
    /// The number of event subscriptions by condition.
    pub(super) fn condition_counts(&self, now: Timestamp) -> BTreeMap<String, usize> {
        let windows = self.windows.view_at(now);
        let topics = self.registry.list_topics();
        let all = topics.iter().flat_map(|topic| {
            topic
                .snapshots()
                .map(move |snapshot| (topic.partition(), snapshot))
        });
        count_conditions(all.map(|(partition, snapshot)| {
            let key = SubscriptionKey {
                partition,
                subscription: snapshot.number(),
            };
            windows.window_figures(key, &snapshot).verdict.condition
        }))
    }
}

/// Reads the response times of the event subscriptions at these positions.
fn read_response_times(
    control: &Control,
    positions: impl Iterator<Item = usize>,
    all: &mut [SubscriptionSample<'_>],
    now: Timestamp,
) {
    let windows = control.windows.view_at(now);
    for position in positions {
        let one = &mut all[position];
        one.response_times = windows.response_times(one.key(), &one.figures);
    }
}

/// A figure with two digits: a smaller difference does not change the order, so that rows do not
/// change places all the time.
fn round_figure(figure: f64) -> f64 {
    if figure <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powf(figure.log10().floor() - 1.0);
    (figure / unit).round() * unit
}

/// The positions of a page in an order: `top` after the first `skip`. Ranks are computed once for
/// each, and only the page is sorted: there are thousands.
fn select_page(
    all: &[SubscriptionSample<'_>],
    by: SortOrder,
    skip: usize,
    top: usize,
) -> Vec<usize> {
    if skip >= all.len() {
        return Vec::new();
    }
    if by == SortOrder::Name {
        return page_by_name(all, skip, top);
    }
    let mut ranks: Vec<([f64; 3], usize)> =
        all.iter().map(|one| one.rank_by(by)).zip(0..).collect();
    let order = |(a, at): &([f64; 3], usize), (b, other): &([f64; 3], usize)| {
        let ranks = b
            .iter()
            .zip(a)
            .map(|(b, a)| b.total_cmp(a))
            .fold(Ordering::Equal, Ordering::then);
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

/// The positions of a page by name. Those of a topic are in this order already, except for a
/// domain, whose keys begin with a topic. They are merged from the nearer end.
fn page_by_name(all: &[SubscriptionSample<'_>], skip: usize, top: usize) -> Vec<usize> {
    let name = |position: usize| all[position].figures.name();
    let mut runs = Vec::new();
    let mut end = 0;
    for run in all.chunk_by(|a, b| std::ptr::eq(a.topic, b.topic)) {
        let mut positions: Vec<usize> = (end..end + run.len()).collect();
        end += run.len();
        if run[0].topic.record().kind() == TopicKind::Domain {
            positions.sort_by(|a, b| name(*a).cmp(name(*b)));
        }
        runs.push(positions.into_iter());
    }
    let is_from_end = skip > end / 2;
    let count = if is_from_end {
        end - skip
    } else {
        (skip + top).min(end)
    };
    let all_runs = 0..runs.len();
    let mut found = Vec::with_capacity(count);
    let mut next = |run: usize| {
        let position = if is_from_end {
            runs[run].next_back()
        } else {
            runs[run].next()
        }?;
        Some((name(position), position, run))
    };
    let mut heads: BTreeSet<(&str, usize, usize)> = all_runs.filter_map(&mut next).collect();
    while found.len() < count {
        let head = if is_from_end {
            heads.pop_last()
        } else {
            heads.pop_first()
        };
        let Some((_, position, run)) = head else {
            break;
        };
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
            "top, skip, search, topic, window: 1m, 1h or 24h, health: healthy, unhealthy, failing, \
             suspended, probing, held, waiting, slow or idle, or by: activity, health, backlog, \
             pending, failures, inFlight, deadLetters, responseP50, responseP95, responseP99 or name",
        )?;
        Ok(Self {
            search: query.search.map(|search| search.to_ascii_lowercase()),
            ..query
        })
    }

    fn page_size(&self) -> Result<usize, InvalidRequest> {
        query::parse_number(
            "top",
            self.top.as_deref(),
            TOP,
            1..=TOP_MAX,
            "event subscriptions",
        )
    }

    fn parse_offset(&self) -> Result<usize, InvalidRequest> {
        query::parse_number(
            "skip",
            self.skip.as_deref(),
            0,
            0..=SKIP_MAX,
            "event subscriptions",
        )
    }
}

impl SubscriptionSample<'_> {
    async fn to_line(&self, lengths: &WindowLengths, now: Timestamp) -> AdminResult<TopLine> {
        let SubscriptionSnapshot {
            counters,
            health,
            held,
            next_due,
            concurrency,
            backlog,
            unread,
            in_flight,
            ..
        } = &self.figures;
        let record = self.figures.record();
        let oldest = match unread {
            Some(seq) => self.topic.appended_at(*seq).await?,
            None => None,
        };
        let rates = self.rates;
        let success = rates
            .filter(|rates| rates.requests > 0.0)
            .map(|rates| 1.0 - rates.failed / rates.requests);
        Ok(TopLine {
            topic: self
                .topic
                .record()
                .resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            endpoint: (!record.is_pulled()).then(|| record.webhook.base_url()),
            held_by: held.map(|held| held.to_string()),
            health: health_view(*health),
            condition: self.windows.condition_view(lengths),
            delivered_per_second: rates.map(|rates| rates.delivered),
            requests_per_second: rates.map(|rates| rates.requests),
            failed_per_second: rates.map(|rates| rates.failed),
            success_share: success,
            response_p50_milliseconds: self.response_times[0],
            response_p95_milliseconds: self.response_times[1],
            response_p99_milliseconds: self.response_times[2],
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

fn top_report(
    all: &[SubscriptionSample<'_>],
    query: &TopQuery,
    length: Option<f64>,
    now: Timestamp,
) -> TopReport {
    let is_suspended =
        |one: &&SubscriptionSample<'_>| !matches!(one.figures.health, Health::Healthy { .. });
    let rate = |of: fn(TopRates) -> f64| {
        length.map(|_| all.iter().filter_map(|one| one.rates).map(of).sum())
    };
    let given_up =
        |one: &SubscriptionSample<'_>| one.windows.windows[query.window as usize].outcomes.given_up;
    TopReport {
        now: now.to_string(),
        window_seconds: length,
        subscriptions: all.len(),
        suspended: all.iter().filter(is_suspended).count(),
        held: all.iter().filter(|one| one.figures.held.is_some()).count(),
        conditions: count_conditions(all.iter().map(|one| one.windows.verdict.condition)),
        in_flight: all.iter().map(|one| one.figures.in_flight).sum(),
        backlog: all.iter().map(|one| one.figures.backlog).sum(),
        pending: all.iter().map(|one| one.figures.counters.pending).sum(),
        dead_lettered: all
            .iter()
            .map(|one| one.figures.counters.dead_lettered)
            .sum(),
        dropped: all.iter().map(|one| one.figures.counters.dropped).sum(),
        delivered_per_second: rate(|rates| rates.delivered),
        failed_per_second: rate(|rates| rates.failed),
        given_up_in_window: all.iter().map(given_up).map(u64::from).sum(),
        matching: 0,
        top: Vec::new(),
        missing_shards: Vec::new(),
    }
}

/// Number of event subscriptions by condition.
fn count_conditions(all: impl Iterator<Item = Condition>) -> BTreeMap<String, usize> {
    let mut counts = [0; Condition::ALL.len()];
    all.for_each(|condition| counts[condition as usize] += 1);
    Condition::ALL
        .iter()
        .map(Condition::to_string)
        .zip(counts)
        .collect()
}

impl TopRates {
    fn per_second(outcomes: WindowOutcomes, seconds: f64) -> Self {
        Self {
            delivered: f64::from(outcomes.delivered) / seconds,
            requests: f64::from(outcomes.requests) / seconds,
            failed: f64::from(outcomes.failed) / seconds,
        }
    }
}
