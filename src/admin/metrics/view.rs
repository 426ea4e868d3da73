//! The metrics of an event subscription as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::figures::{
    SubscriptionCounters, SubscriptionFigures, SubscriptionGauges, ends_by_cause,
};
use crate::merge::{
    FieldRule::{
        Any, Earliest, Fields, FieldsOfEach, First, ItemsBy, Largest, Latest, OfWorstHealth,
        Smallest, Sum, SumOfEach,
    },
    merged_fields,
};
use gridhook_event::Timestamp;
use gridhook_metrics::HistogramCounts;
use gridhook_record::{subscription::SubscriptionRecord, topic::TopicRecord};
use gridhook_subscription::PHASE_NAMES;

/// `GET …/metrics`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SubscriptionMetrics)]
pub(crate) struct MetricsView {
    /// Key of the topic, such as `orders` or `domain:shop`
    topic: String,
    /// Name of the event subscription
    subscription: String,
    /// When the figures were read
    at: String,
    /// Present state of the event subscription
    state: StateView,
    /// Counters of events and requests
    counts: CountersView,
    /// Start of the process, from which durations and restarts are measured
    measured_since: String,
    /// Incarnations and restarts of the actor of the event subscription
    actor: ActorView,
    /// Distributions of durations and sizes
    histograms: HistogramsView,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SubscriptionMetricsState)]
struct StateView {
    /// Whether the endpoint is called, suspended or probed
    health: &'static str,
    /// Whether delivery is held
    held: bool,
    /// Failure that caused the suspension; `null` while healthy
    cause: Option<String>,
    /// When the first of the suspensions in a row began; `null` while healthy
    since: Option<String>,
    /// When a probe may be sent; `null` unless suspended
    until: Option<String>,
    /// Suspensions in a row; each is longer than the one before
    consecutive_suspensions: u32,
    /// Failed requests since the last success
    failures: u32,
    /// Number of events behind the newest one
    backlog: u64,
    /// Age of the oldest event of the backlog, in seconds
    backlog_age_seconds: f64,
    /// Time to live of events, in seconds
    time_to_live_seconds: f64,
    /// Events that were attempted or held back and have not ended
    pending: u64,
    /// Time of the next due event
    next_due: Option<String>,
    /// Number of dead letters that wait for their file
    dead_letters_waiting: u64,
    /// Number of requests in flight
    in_flight: u64,
    /// Number of requests that wait for a late response
    late_requests: u64,
    /// Requests in flight that the adaptive limit allows at present
    concurrency_limit: u64,
    /// Current number of events in a request
    events_per_request: u64,
    /// Maximum requests for each second at present; `null` without a limit or while suspended
    requests_per_second: Option<f64>,
}

/// Counts since the event subscription was created.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SubscriptionMetricsCounts)]
struct CountersView {
    /// Events of the log that the event subscription has read and decided about
    passed: u64,
    /// Number of events that the filter rejected
    filtered: u64,
    /// Passed events that match the filter
    matched: u64,
    /// Events that the endpoint accepted or a client acknowledged
    delivered: u64,
    /// Events that ended because their event subscription was deleted or their job canceled
    canceled: u64,
    /// Number of delivered events of replays and redrives
    replayed: u64,
    /// Requests that succeeded after the response timeout
    late: u64,
    /// Requests to the endpoint by outcome
    attempts: BTreeMap<String, u64>,
    /// Number of dead-lettered events by reason
    dead_lettered: BTreeMap<String, u64>,
    /// Number of dropped events by reason
    dropped: BTreeMap<String, u64>,
    /// Counts of operations by pulling clients, one for each event
    leases: BTreeMap<String, u64>,
    /// Counters of dead letters
    dead_letters: DeadLettersView,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionMetricsDeadLetters)]
struct DeadLettersView {
    /// Number of written dead letters
    written: u64,
    /// Number of dead letters that were lost because the store was unreachable for too long
    lost: u64,
    /// Number of redriven dead letters
    redriven: u64,
    /// Number of purged dead letters
    purged: u64,
    /// Number of dead-letter files
    files: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionMetricsActor)]
struct ActorView {
    /// Number of the current incarnation
    incarnation: u64,
    /// Number of restarts by cause of the end
    restarts: BTreeMap<&'static str, u64>,
    /// Number of events in quarantine, because processing them ended the actor
    quarantined: u64,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SubscriptionMetricsHistograms)]
struct HistogramsView {
    /// Distribution of the response times
    response_seconds: HistogramView,
    /// Distribution of the time before the first attempt
    queue_wait_seconds: HistogramView,
    /// Distribution of the time from publish to delivery
    delivery_seconds: HistogramView,
    /// Distribution of the events in a request
    batch_events: HistogramView,
    /// Phases of a request: dns, connect, tls, first_byte, body.
    phase_seconds: BTreeMap<&'static str, HistogramView>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MetricsHistogram)]
struct HistogramView {
    /// Number of values that were counted
    count: u64,
    /// Sum of the values, in seconds or events as the name of the histogram says
    sum: f64,
    /// Cumulative counts by upper bound; the last bucket, without a bound, has all values
    buckets: Vec<BucketView>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MetricsBucket)]
struct BucketView {
    /// Upper bound of the bucket; missing for the last one
    le: Option<f64>,
    /// Number of values up to the bound
    count: u64,
}

merged_fields! { STATE: StateView = StateView {
    health: OfWorstHealth, held: Any, cause: OfWorstHealth, since: OfWorstHealth, until: OfWorstHealth,
    consecutive_suspensions: Largest,
    failures: Largest, backlog: Sum, backlog_age_seconds: Largest, time_to_live_seconds: Smallest,
    pending: Sum, next_due: Earliest,
    dead_letters_waiting: Sum, in_flight: Sum, late_requests: Sum, concurrency_limit: Sum, events_per_request: Largest,
    requests_per_second: Sum,
} }

merged_fields! { DEAD_LETTERS: DeadLettersView = DeadLettersView {
    written: Sum, lost: Sum, redriven: Sum, purged: Sum, files: Sum,
} }

merged_fields! { COUNTS: CountersView = CountersView {
    passed: Sum, filtered: Sum, matched: Sum, delivered: Sum, canceled: Sum, replayed: Sum,
    late: Sum, attempts: SumOfEach,
    dead_lettered: SumOfEach, dropped: SumOfEach, leases: SumOfEach, dead_letters: Fields(&DEAD_LETTERS),
} }

merged_fields! { ACTOR: ActorView = ActorView { incarnation: Largest, restarts: SumOfEach, quarantined: Sum } }

merged_fields! { BUCKET: BucketView = BucketView { le: First, count: Sum } }

merged_fields! { HISTOGRAM: HistogramView = HistogramView { count: Sum, sum: Sum, buckets: ItemsBy("le", &BUCKET) } }

merged_fields! { HISTOGRAMS: HistogramsView = HistogramsView {
    response_seconds: Fields(&HISTOGRAM), queue_wait_seconds: Fields(&HISTOGRAM), delivery_seconds: Fields(&HISTOGRAM),
    batch_events: Fields(&HISTOGRAM), phase_seconds: FieldsOfEach(&HISTOGRAM),
} }

merged_fields! { METRICS: MetricsView = MetricsView {
    topic: First, subscription: First, at: Latest, state: Fields(&STATE),
    counts: Fields(&COUNTS), measured_since: Earliest, actor: Fields(&ACTOR), histograms: Fields(&HISTOGRAMS),
} }

impl MetricsView {
    pub(super) fn new(
        topic: &TopicRecord,
        subscription: &SubscriptionRecord,
        figures: &SubscriptionFigures,
        started: Timestamp,
        now: Timestamp,
    ) -> Self {
        let SubscriptionFigures { sums, state } = figures;
        let durations = &sums.measured;
        let phases = PHASE_NAMES
            .into_iter()
            .zip(durations.phases.iter().map(HistogramView::new));
        Self {
            topic: topic.key(),
            subscription: subscription.key(),
            at: now.to_string(),
            state: StateView::new(state, now),
            counts: CountersView::new(sums),
            measured_since: started.to_string(),
            actor: ActorView {
                incarnation: state.incarnation,
                restarts: ends_by_cause(sums.ends).into_iter().collect(),
                quarantined: sums.quarantined,
            },
            histograms: HistogramsView {
                response_seconds: HistogramView::new(&durations.response),
                queue_wait_seconds: HistogramView::new(&durations.wait),
                delivery_seconds: HistogramView::new(&durations.delivery),
                batch_events: HistogramView::new(&durations.batch),
                phase_seconds: phases.collect(),
            },
        }
    }
}

impl StateView {
    fn new(state: &SubscriptionGauges, now: Timestamp) -> Self {
        let date = |at: Option<Timestamp>| at.map(|at| at.to_string());
        Self {
            health: state.health_name(),
            held: state.held > 0,
            cause: state.cause.map(|cause| cause.to_string()),
            since: date(state.since),
            until: date(state.until),
            consecutive_suspensions: state.consecutive_suspensions,
            failures: state.failures,
            backlog: state.backlog,
            backlog_age_seconds: state.unread_age(now).as_secs_f64(),
            time_to_live_seconds: state.time_to_live.unwrap_or_default().as_secs_f64(),
            pending: state.pending,
            next_due: date(state.next_due),
            dead_letters_waiting: state.waiting,
            in_flight: state.in_flight,
            late_requests: state.late_requests,
            concurrency_limit: state.concurrency,
            events_per_request: state.events_max,
            requests_per_second: state.rate,
        }
    }
}

impl CountersView {
    fn new(sums: &SubscriptionCounters) -> Self {
        Self {
            passed: sums.counters.passed,
            filtered: sums.counters.filtered,
            matched: sums.counters.matched,
            delivered: sums.counters.delivered,
            canceled: sums.counters.canceled,
            replayed: sums.replayed.delivered,
            late: sums.counters.late + sums.replayed.late,
            attempts: sums.requests_by_outcome().into_iter().collect(),
            dead_lettered: sums.dead_lettered_by_reason().into_iter().collect(),
            dropped: sums.dropped_by_reason().into_iter().collect(),
            leases: sums.lease_operations().into_iter().collect(),
            dead_letters: DeadLettersView {
                written: sums.written,
                lost: sums.lost,
                redriven: sums.redriven,
                purged: sums.purged,
                files: sums.files,
            },
        }
    }
}

impl HistogramView {
    fn new(counts: &HistogramCounts) -> Self {
        let buckets = counts
            .cumulative_counts()
            .map(|(le, count)| BucketView { le, count })
            .collect();
        Self {
            count: counts.count(),
            sum: counts.sum(),
            buckets,
        }
    }
}
