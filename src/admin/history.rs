//! `GET /history`: the course of the figures of the server, and of the topics and event
//! subscriptions that have series of their own in `/metrics`.
//!
//! It is written to a file every ten minutes and when the server stops, and continues after a
//! restart. It costs one walk through the figures of all event subscriptions in five seconds, so a
//! server without a dashboard has none. The sums of windows are recorded in any case.

use std::{
    cmp::Reverse,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    iter,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use actix_web::{HttpRequest, web};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;

use super::{AdminError, Control, query, session, topic_filter::find_topic_by_id};
use crate::{AdminResult, metrics::LEAD, model::refuse_value, respond_json};
use gridhook_api::history::{DestinationHistory, HistoryReport};
use gridhook_engine::control::registry::SubscriptionSnapshot;
use gridhook_event::{PartitionId, SubscriptionId, SubscriptionKey, Timestamp};
use gridhook_metrics::history::{History, RESOLUTIONS, Sample, Step};

/// Maximum numbers of topics and event subscriptions with a history, whatever the limits of metrics
/// are.
const TOPICS_MAX: usize = 100;
const SUBSCRIPTIONS_MAX: usize = 200;

/// Budget of the memory for the history, of the server's own, too.
const BYTES: usize = 7_000_000;

const _: () = assert!(
    History::<Scope>::memory_bytes(1 + TOPICS_MAX + SUBSCRIPTIONS_MAX) <= BYTES,
    "the history is too large"
);

/// How long after the end of a step it is recorded, so that a late timer does not skip a step.
const LAG: Duration = Duration::from_millis(200);

/// The file in the data folder.
pub const FILE: &str = "history";

/// Number of samples between two writes of the file: those of ten minutes.
const SAVE_EVERY: u32 = 120;

/// Maximum number of destinations with a course of their own in a report.
const DESTINATIONS: usize = 4;

// Positions of the counters of a sample.
const PUBLISHED: usize = 0;
const DELIVERED: usize = 1;
const FAILED_REQUESTS: usize = 2;
const GIVEN_UP: usize = 3;
const REFUSED_REQUESTS: usize = 4;
const BUSY_REQUESTS: usize = 5;
const UNANSWERED_REQUESTS: usize = 6;

// Positions of the gauges of a sample.
const BACKLOG: usize = 0;
const PENDING: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    Server,
    Topic(PartitionId),
    Subscription(SubscriptionKey),
}

struct RankedSample {
    /// The recent activity of the scope.
    score: f64,
    scope: Scope,
    sample: Sample,
}

/// The recorded history, and what is recorded next.
#[derive(Default)]
pub(super) struct Recorder(Mutex<RecorderState>);

#[derive(Default)]
struct RecorderState {
    history: History<Scope>,
    file: Option<PathBuf>,
}

impl Scope {
    /// The number of the scope in the file.
    fn number(&self) -> u64 {
        match self {
            Self::Server => 0,
            Self::Topic(partition) => (u64::from(partition.0) + 1) << 32,
            Self::Subscription(key) => {
                let topic = Self::Topic(key.partition).number();
                topic | (u64::from(key.subscription.0) + 1) & u64::from(u32::MAX)
            }
        }
    }

    fn from_number(number: u64) -> Self {
        let partition = (number >> 32) as u32;
        let subscription = number as u32;
        match (partition.checked_sub(1), subscription.checked_sub(1)) {
            (None, _) => Self::Server,
            (Some(partition), None) => Self::Topic(PartitionId(partition)),
            (Some(partition), Some(subscription)) => Self::Subscription(SubscriptionKey {
                partition: PartitionId(partition),
                subscription: SubscriptionId(subscription),
            }),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum HistoryRange {
    #[default]
    #[serde(rename = "10m")]
    TenMinutes,
    #[serde(rename = "3h")]
    ThreeHours,
    #[serde(rename = "24h")]
    Day,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    #[serde(default)]
    range: HistoryRange,
    topic: Option<String>,
    subscription: Option<String>,
    #[serde(default)]
    destinations: bool,
}

/// Records the figures until the process ends.
pub async fn record_history(control: web::Data<Control>) {
    for sample in 1_u32.. {
        control.record_figures();
        if sample.is_multiple_of(SAVE_EVERY) {
            let saved = web::Data::clone(&control);
            // An error means that the server ends.
            web::block(move || saved.save_history()).await.ok();
        }
        let now = control.clock.now().since(Timestamp(0));
        let (length, _) = RESOLUTIONS[0];
        let rest = length as f64 - now.as_secs_f64() % length as f64;
        tokio::time::sleep(Duration::from_secs_f64(rest) + LAG).await;
    }
}

impl Control {
    /// Continues the history of a file, and writes it there.
    #[must_use]
    pub fn with_history_file(self, path: PathBuf) -> Self {
        let mut state = self.history.lock();
        match fs::read(&path) {
            Ok(bytes) => {
                let scopes_max = 1 + TOPICS_MAX + SUBSCRIPTIONS_MAX;
                let restored = state
                    .history
                    .restore(&bytes, scopes_max, Scope::from_number);
                if restored.is_none() {
                    tracing::warn!(path = %path.display(), "the saved history cannot be read");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the saved history cannot be read");
            }
        }
        state.file = Some(path);
        drop(state);
        self
    }

    /// Writes the history to its file. Blocks.
    pub fn save_history(&self) {
        let state = self.history.lock();
        let Some(path) = &state.file else {
            return;
        };
        let bytes = state.history.encode(Scope::number);
        let path = path.clone();
        drop(state);
        if let Err(error) = write_file(&path, &bytes) {
            tracing::warn!(%error, path = %path.display(), "the history cannot be saved");
        }
    }

    /// Adds the present figures to the windows, and to the history if there is a dashboard, which
    /// alone reads it.
    pub fn record_figures(&self) {
        self.windows
            .record_sums(&self.registry.list_topics(), self.clock.now());
        if self.has_dashboard {
            self.sample_history();
        }
    }

    /// Adds the present figures to the history.
    fn sample_history(&self) {
        let now = self.clock.now();
        let topics = self.registry.list_topics();
        let selection = self.exposition.select_series(&topics, now);
        let mut server = Sample::default();
        let mut topic_samples = Vec::new();
        let mut subscription_samples = Vec::new();
        for topic in &topics {
            let mut topic_score = 0.0;
            let mut of_topic = Sample::default();
            of_topic.counters[PUBLISHED] = topic.accepted_totals().count;
            for snapshot in topic.snapshots() {
                let key = SubscriptionKey {
                    partition: topic.partition(),
                    subscription: snapshot.number(),
                };
                let sample = sample_of(&snapshot);
                // Published events are counted by the topic.
                add(&mut of_topic, &sample, DELIVERED);
                let score = selection.score(key);
                topic_score += score;
                if selection.is_named(key) {
                    let scope = Scope::Subscription(key);
                    subscription_samples.push(RankedSample {
                        score,
                        scope,
                        sample,
                    });
                }
            }
            add(&mut server, &of_topic, PUBLISHED);
            if selection.is_topic_named(topic.partition()) {
                topic_samples.push(RankedSample {
                    score: topic_score,
                    scope: Scope::Topic(topic.partition()),
                    sample: of_topic,
                });
            }
        }
        drop(selection);
        let history = &mut self.history.lock().history;
        keep_most_active(&mut topic_samples, TOPICS_MAX, history);
        keep_most_active(&mut subscription_samples, SUBSCRIPTIONS_MAX, history);
        let named = topic_samples.into_iter().chain(subscription_samples);
        let samples = iter::once((Scope::Server, server))
            .chain(named.map(|ranked| (ranked.scope, ranked.sample)));
        let seconds = now.since(Timestamp(0)).as_secs();
        history.add_samples(seconds, samples);
    }
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.0.lock()
    }
}

/// Removes the samples of the least active scopes. A scope with a history loses it only to one that
/// is twice as active.
fn keep_most_active(samples: &mut Vec<RankedSample>, count: usize, history: &History<Scope>) {
    if samples.len() <= count {
        return;
    }
    let has_history = |ranked: &RankedSample| history.contains(&ranked.scope);
    for ranked in &mut *samples {
        if has_history(ranked) {
            ranked.score *= LEAD;
        }
    }
    // Of those without any activity, as all are at first, the ones with a history come first.
    samples.sort_by(|one, other| {
        let scores = other.score.total_cmp(&one.score);
        scores.then_with(|| has_history(other).cmp(&has_history(one)))
    });
    samples.truncate(count);
}

/// Replaces the file. After a crash of the machine it may be cut off, and is ignored then.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(bytes)?;
    fs::rename(&draft, path)
}

fn sample_of(snapshot: &SubscriptionSnapshot) -> Sample {
    let counters = &snapshot.counters;
    let mut sample = Sample::default();
    // Also what it has not read, as while its endpoint is suspended.
    sample.counters[PUBLISHED] = counters.passed + snapshot.backlog;
    sample.counters[DELIVERED] = counters.delivered;
    sample.counters[FAILED_REQUESTS] = counters.requests_failed;
    sample.counters[GIVEN_UP] = counters.dead_lettered + counters.dropped;
    sample.counters[REFUSED_REQUESTS] = snapshot.failures.refused;
    sample.counters[BUSY_REQUESTS] = snapshot.failures.busy;
    sample.counters[UNANSWERED_REQUESTS] = snapshot.failures.unanswered;
    sample.gauges[BACKLOG] = snapshot.backlog;
    sample.gauges[PENDING] = counters.pending;
    sample
        .responses
        .iter_mut()
        .zip(snapshot.response_times())
        .for_each(|(to, count)| *to = count);
    sample
}

/// Adds the counters from `first` on, the gauges and the responses.
fn add(to: &mut Sample, more: &Sample, first: usize) {
    to.counters
        .iter_mut()
        .zip(more.counters)
        .skip(first)
        .for_each(|(to, more)| *to += more);
    to.gauges
        .iter_mut()
        .zip(more.gauges)
        .for_each(|(to, more)| *to += more);
    to.responses
        .iter_mut()
        .zip(more.responses)
        .for_each(|(to, more)| *to += more);
}

/// `GET /history`.
pub(super) async fn get_history(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    session::find_sessions(&control, &request)?;
    let HistoryQuery {
        range,
        topic,
        subscription,
        destinations,
    } = query::read(
        request.query_string(),
        "topic, subscription, destinations, or range: 10m, 3h or 24h",
    )?;
    let scope = parse_scope(&control, topic.as_deref(), subscription)?;
    let resolution = range as usize;
    let state = control.history.lock();
    let found = state.history.read_steps(&scope, resolution);
    let is_recorded = found.is_some();
    let (from, steps) = found.unwrap_or_default();
    let destinations = if destinations {
        busiest_destinations(&control, &state.history, &scope, resolution)
    } else {
        Vec::new()
    };
    drop(state);
    let column =
        |of: fn(&Step) -> Option<u32>| steps.iter().map(|step| of(step.as_ref()?)).collect();
    let millis = |at: usize| {
        let value = |step: &Option<Step>| Some(f64::from(step.as_ref()?.percentiles[at]?) / 1e3);
        steps.iter().map(value).collect()
    };
    respond_json(&HistoryReport {
        recorded: is_recorded,
        since: control.exposition.started().to_string(),
        from: Timestamp(0).after(Duration::from_secs(from)).to_string(),
        step_seconds: RESOLUTIONS[resolution].0,
        published: column(|step| Some(step.counters[PUBLISHED])),
        delivered: column(|step| Some(step.counters[DELIVERED])),
        failed_requests: column(|step| Some(step.counters[FAILED_REQUESTS])),
        given_up: column(|step| Some(step.counters[GIVEN_UP])),
        refused_requests: column(|step| Some(step.counters[REFUSED_REQUESTS])),
        busy_requests: column(|step| Some(step.counters[BUSY_REQUESTS])),
        unanswered_requests: column(|step| Some(step.counters[UNANSWERED_REQUESTS])),
        destinations,
        backlog: column(|step| Some(step.gauges[BACKLOG])),
        pending: column(|step| Some(step.gauges[PENDING])),
        response_p50_milliseconds: millis(0),
        response_p99_milliseconds: millis(1),
    })
}

/// The event subscriptions of a scope that delivered most in the period, the first one most.
fn busiest_destinations(
    control: &Control,
    history: &History<Scope>,
    scope: &Scope,
    resolution: usize,
) -> Vec<DestinationHistory> {
    let mut destinations = Vec::new();
    for one in history.scopes() {
        let Scope::Subscription(key) = one else {
            continue;
        };
        let is_inside = match scope {
            Scope::Server => true,
            Scope::Topic(partition) => key.partition == *partition,
            Scope::Subscription(own) => key == own,
        };
        if !is_inside {
            continue;
        }
        let Some((_, steps)) = history.read_steps(one, resolution) else {
            continue;
        };
        let delivered: Vec<Option<u32>> = steps
            .iter()
            .map(|step| step.as_ref().map(|step| step.counters[DELIVERED]))
            .collect();
        let sum: u64 = delivered
            .iter()
            .flatten()
            .map(|count| u64::from(*count))
            .sum();
        destinations.push((Reverse(sum), *key, delivered));
    }
    destinations.sort_by_key(|(sum, key, _)| (*sum, *key));
    destinations.truncate(DESTINATIONS);
    let mut named = Vec::new();
    for (_, key, delivered) in destinations {
        let Some(topic) = control.registry.topic_of_partition(key.partition) else {
            continue;
        };
        let Some(record) = topic.subscription_record(key.subscription) else {
            continue;
        };
        named.push(DestinationHistory {
            topic: topic
                .record()
                .resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            delivered,
        });
    }
    named
}

fn parse_scope(
    control: &Control,
    topic: Option<&str>,
    subscription: Option<String>,
) -> AdminResult<Scope> {
    let Some(id) = topic else {
        return match subscription {
            None => Ok(Scope::Server),
            Some(_) => refuse_value("subscription", "needs its topic"),
        };
    };
    let (topic, path) = find_topic_by_id(control, id)?;
    let partition = topic.partition();
    let domain_topic = path.domain_topic;
    let Some(name) = subscription else {
        return match domain_topic {
            None => Ok(Scope::Topic(partition)),
            Some(_) => {
                let why = "is a domain topic, which has no history of its own; expected topics \
                    and domains";
                refuse_value("topic", why)
            }
        };
    };
    let name = domain_topic.map_or(name.clone(), |domain_topic| {
        format!("{domain_topic}/{name}")
    });
    let missing = || AdminError::NotFound(format!("The topic has no event subscription '{name}'."));
    let subscription = topic.find_subscription(&name).ok_or_else(missing)?.number;
    Ok(Scope::Subscription(SubscriptionKey {
        partition,
        subscription,
    }))
}
