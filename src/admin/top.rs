//! `GET /top`: the figures of all event subscriptions, the most active or the least healthy first,
//! in pages.
//!
//! Rates are those of a recorded window, the same for every reader. Counters and states come from
//! shared state: no actor receives a message. The store is read only for the age of the oldest
//! unread events of listed ones.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use actix_web::{HttpMessage, HttpRequest, web};
use serde::Deserialize;

use super::{
    Control,
    merge::{self, PartLine, TopPart},
    permissions::Permissions,
    query,
    topic_filter::TopicFilter,
    windows::{
        SubscriptionWindows, WindowLengths, WindowsView, condition_severity, list_snapshots,
    },
};
use crate::{AdminResult, model::refuse_value, operate::health_view, respond_json};
use gridhook_api::{
    status::HealthView,
    top::{HealthFilter, RateWindow, SortOrder, TopLine, TopReport},
};
use gridhook_engine::control::registry::{SubscriptionSnapshot, TopicHandle};
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_policy::{
    condition::{Condition, WindowOutcomes},
    record::Health,
};
use gridhook_publish::OneOfShards;

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

/// What a request asks for.
struct TopRequest {
    by: SortOrder,
    window: usize,
    health: Option<HealthFilter>,
    /// In lower case.
    search: Option<String>,
    topic: Option<TopicFilter>,
    skip: usize,
    top: usize,
    /// Whether the response is merged with those of other shards.
    is_part: bool,
}

struct SubscriptionSample<'a> {
    topic: &'a TopicHandle,
    key: SubscriptionKey,
    snapshot: SubscriptionSnapshot,
    windows: SubscriptionWindows,
    rates: Option<TopRates>,
    /// The quantiles p50, p95 and p99 of the response times. They are read for listed lines, and
    /// for all lines if these are sorted by a quantile.
    response_times: [Option<f64>; 3],
    /// Whether other shards have parts of its figures, in a response that is merged with theirs.
    is_spread: bool,
}

impl SubscriptionSample<'_> {
    /// The sort key in this order, the most significant number first; a larger one is listed
    /// earlier. Orders by fewer numbers have zeroes behind them.
    fn rank_by(&self, by: SortOrder) -> [f64; 3] {
        let snapshot = &self.snapshot;
        let rates = self.rates.unwrap_or_default();
        let backlog = snapshot.backlog as f64;
        let pending = snapshot.counters.pending as f64;
        match by {
            SortOrder::Activity => [
                round_figure(rates.delivered + rates.requests),
                snapshot.in_flight as f64,
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
                snapshot.counters.requests_failed as f64,
                0.0,
            ],
            SortOrder::ResponseP50 => self.rank_by_response([0, 1, 2]),
            SortOrder::ResponseP95 => self.rank_by_response([1, 2, 0]),
            SortOrder::ResponseP99 => self.rank_by_response([2, 1, 0]),
            SortOrder::InFlight => [snapshot.in_flight as f64, round_figure(rates.requests), 0.0],
            SortOrder::DeadLetters => [
                (snapshot.counters.dead_lettered + snapshot.counters.dropped) as f64,
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

    /// Whether the name or the endpoint contains `text`.
    fn contains_text(&self, text: &str) -> bool {
        let record = self.snapshot.record();
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

/// Whether event subscriptions of this condition and health are wanted.
pub(crate) fn has_health(wanted: HealthFilter, condition: &str, health: &HealthView) -> bool {
    let is = |one: Condition| condition == one.name();
    match wanted {
        HealthFilter::Unhealthy => !is(Condition::Healthy) && !is(Condition::Idle),
        HealthFilter::Suspended => matches!(health, HealthView::Suspended { .. }),
        HealthFilter::Probing => matches!(health, HealthView::Probing { .. }),
        HealthFilter::Healthy => is(Condition::Healthy),
        HealthFilter::Failing => is(Condition::Failing),
        HealthFilter::Held => is(Condition::Held),
        HealthFilter::Waiting => is(Condition::Waiting),
        HealthFilter::Slow => is(Condition::Slow),
        HealthFilter::Idle => is(Condition::Idle),
    }
}

/// `GET /top`.
pub(super) async fn get_top(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let permissions = Permissions::from_request(&request)?;
    let wanted = TopRequest::read(&request, &control, &permissions)?;
    let now = control.clock.now();
    let topics = control.registry.list_topics();
    let (mut report, samples, lengths) = read_page(&control, &topics, &wanted, &permissions, now);
    let mut lines = Vec::with_capacity(samples.len());
    for sample in samples {
        let line = sample.read_line(&lengths, now).await?;
        lines.push(PartLine {
            line,
            rank: sample.rank_by(wanted.by),
            is_spread: sample.is_spread,
            is_matching: wanted.is_matching(&sample),
        });
    }
    if wanted.is_part {
        return respond_json(&TopPart { report, lines });
    }
    report.top = lines.into_iter().map(|line| line.line).collect();
    respond_json(&report)
}

/// The figures of all event subscriptions that the caller sees, the listed ones of the page, and
/// the lengths of the windows. A part has all event subscriptions of spread topics behind its page:
/// only with the figures of all shards can they be counted, filtered and sorted.
fn read_page<'a>(
    control: &Control,
    topics: &'a [Arc<TopicHandle>],
    wanted: &TopRequest,
    permissions: &Permissions,
    now: Timestamp,
) -> (TopReport, Vec<SubscriptionSample<'a>>, WindowLengths) {
    let windows = control.windows.view_at(now);
    let mut all = read_samples(&windows, topics, wanted);
    if !permissions.sees_everything() {
        all.retain(|sample| {
            let record = sample.snapshot.record();
            permissions.sees_subscription(control, &sample.topic.record(), &record)
        });
    }
    if wanted.by.is_by_response() {
        read_response_times(&windows, &mut all);
    }
    let lengths = windows.reported_lengths();
    let mut report = top_report(&all, wanted.window, lengths[wanted.window], now);
    let (spread, mut own): (Vec<_>, Vec<_>) = all.into_iter().partition(|sample| sample.is_spread);
    own.retain(|sample| wanted.is_matching(sample) && wanted.has_health(sample));
    report.matching = own.len();
    let mut listed = select_page(own, wanted);
    listed.extend(spread);
    if !wanted.by.is_by_response() {
        read_response_times(&windows, &mut listed);
    }
    (report, listed, lengths)
}

fn read_samples<'a>(
    windows: &WindowsView<'_>,
    topics: &'a [Arc<TopicHandle>],
    wanted: &TopRequest,
) -> Vec<SubscriptionSample<'a>> {
    let length = windows.window_length(wanted.window);
    let mut samples = Vec::new();
    for topic in topics {
        let is_spread = wanted.is_part && topic.record().is_spread();
        for (key, snapshot) in list_snapshots(topic) {
            let figures = windows.window_figures(key, &snapshot);
            let outcomes = figures.windows[wanted.window].outcomes;
            samples.push(SubscriptionSample {
                topic,
                key,
                snapshot,
                windows: figures,
                rates: length.map(|length| TopRates::per_second(outcomes, length)),
                response_times: [None; 3],
                is_spread,
            });
        }
    }
    samples
}

fn read_response_times(windows: &WindowsView<'_>, samples: &mut [SubscriptionSample<'_>]) {
    for sample in samples {
        sample.response_times = windows.response_times(sample.key, &sample.snapshot);
    }
}

impl Control {
    /// The number of event subscriptions by condition.
    pub(super) fn condition_counts(&self, now: Timestamp) -> BTreeMap<String, usize> {
        let windows = self.windows.view_at(now);
        let topics = self.registry.list_topics();
        let snapshots = topics.iter().flat_map(|topic| list_snapshots(topic));
        count_conditions(
            snapshots
                .map(|(key, snapshot)| windows.window_figures(key, &snapshot).verdict.condition),
        )
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

/// The order of two ranks, the larger one first.
pub(crate) fn compare_ranks(a: &[f64; 3], b: &[f64; 3]) -> Ordering {
    b.iter()
        .zip(a)
        .map(|(b, a)| b.total_cmp(a))
        .fold(Ordering::Equal, Ordering::then)
}

/// The page in the order of the request. Ranks are computed once for each event subscription, and
/// only the page is sorted: there are thousands.
fn select_page<'a>(
    samples: Vec<SubscriptionSample<'a>>,
    wanted: &TopRequest,
) -> Vec<SubscriptionSample<'a>> {
    let TopRequest { by, skip, top, .. } = *wanted;
    if skip >= samples.len() {
        return Vec::new();
    }
    let sort_key = |sample: &SubscriptionSample<'_>| {
        let is_by_name = by == SortOrder::Name;
        (
            sample.rank_by(by),
            is_by_name.then(|| sample.snapshot.name().to_owned()),
        )
    };
    let mut ranks: Vec<_> = samples.iter().map(sort_key).zip(0..).collect();
    let order = |(a, at): &(([f64; 3], Option<String>), usize),
                 (b, other): &(([f64; 3], Option<String>), usize)| {
        compare_ranks(&a.0, &b.0)
            .then_with(|| a.1.cmp(&b.1))
            .then(at.cmp(other))
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
    let mut samples: Vec<_> = samples.into_iter().map(Some).collect();
    ranks
        .into_iter()
        .filter_map(|(_, position)| samples[position].take())
        .collect()
}

impl TopRequest {
    fn read(
        request: &HttpRequest,
        control: &Control,
        permissions: &Permissions,
    ) -> AdminResult<Self> {
        let query: TopQuery = query::read(
            request.query_string(),
            "top, skip, search, topic, window: 1m, 1h or 24h, health: healthy, unhealthy, failing, \
             suspended, probing, held, waiting, slow or idle, or by: activity, health, backlog, \
             pending, failures, inFlight, deadLetters, responseP50, responseP95, responseP99 or name",
        )?;
        let items = "event subscriptions";
        let top = query::parse_number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, items)?;
        let skip = query::parse_number("skip", query.skip.as_deref(), 0, 0..=SKIP_MAX, items)?;
        let topic = query
            .topic
            .as_deref()
            .map(|id| TopicFilter::find(control, permissions, id));
        let request = Self {
            by: query.by,
            window: query.window as usize,
            health: query.health,
            search: query.search.map(|search| search.to_ascii_lowercase()),
            topic: topic.transpose()?,
            skip,
            top,
            is_part: request.extensions().contains::<OneOfShards>(),
        };
        if request.is_part {
            return request.into_part();
        }
        Ok(request)
    }

    /// The request for a part: lines before the page are among the first ones of all shards, but
    /// not of each.
    fn into_part(self) -> AdminResult<Self> {
        let top = self.top + self.skip;
        if top > merge::LINES_MAX {
            let problem = format!(
                "is too large; expected a page within the first {} lines of a cluster",
                merge::LINES_MAX
            );
            return refuse_value("skip", problem);
        }
        Ok(Self {
            top,
            skip: 0,
            ..self
        })
    }

    /// Whether the search and the topic let an event subscription through.
    fn is_matching(&self, sample: &SubscriptionSample<'_>) -> bool {
        let is_of_topic = self.topic.as_ref().is_none_or(|topic| {
            let record = sample.snapshot.record();
            topic.contains(sample.key.partition, record.filter.domain_topic.as_deref())
        });
        let search = self.search.as_ref();
        is_of_topic && search.is_none_or(|text| sample.contains_text(text))
    }

    fn has_health(&self, sample: &SubscriptionSample<'_>) -> bool {
        self.health.is_none_or(|wanted| {
            let condition = sample.windows.verdict.condition.name();
            has_health(wanted, condition, &health_view(sample.snapshot.health))
        })
    }
}

impl SubscriptionSample<'_> {
    /// The line of the response. Reads the log for the age of the oldest unread event.
    async fn read_line(&self, lengths: &WindowLengths, now: Timestamp) -> AdminResult<TopLine> {
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
        } = &self.snapshot;
        let record = self.snapshot.record();
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
    window: usize,
    length: Option<f64>,
    now: Timestamp,
) -> TopReport {
    let sum = |figure: fn(&SubscriptionSnapshot) -> u64| {
        all.iter().map(|sample| figure(&sample.snapshot)).sum()
    };
    let rate = |figure: fn(TopRates) -> f64| {
        let rates = all.iter().filter_map(|sample| sample.rates);
        length.map(|_| rates.map(figure).sum())
    };
    let given_up = |sample: &SubscriptionSample<'_>| {
        u64::from(sample.windows.windows[window].outcomes.given_up)
    };
    // Others are counted when the parts are merged: every shard has them.
    let counted = || all.iter().filter(|sample| !sample.is_spread);
    let is_suspended = |sample: &&SubscriptionSample<'_>| {
        !matches!(sample.snapshot.health, Health::Healthy { .. })
    };
    let is_held = |sample: &&SubscriptionSample<'_>| sample.snapshot.held.is_some();
    TopReport {
        now: now.to_string(),
        window_seconds: length,
        subscriptions: counted().count(),
        suspended: counted().filter(is_suspended).count(),
        held: counted().filter(is_held).count(),
        conditions: count_conditions(counted().map(|sample| sample.windows.verdict.condition)),
        in_flight: all.iter().map(|sample| sample.snapshot.in_flight).sum(),
        backlog: sum(|snapshot| snapshot.backlog),
        pending: sum(|snapshot| snapshot.counters.pending),
        dead_lettered: sum(|snapshot| snapshot.counters.dead_lettered),
        dropped: sum(|snapshot| snapshot.counters.dropped),
        delivered_per_second: rate(|rates| rates.delivered),
        failed_per_second: rate(|rates| rates.failed),
        given_up_in_window: all.iter().map(given_up).sum(),
        matching: 0,
        top: Vec::new(),
        missing_shards: Vec::new(),
    }
}

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
