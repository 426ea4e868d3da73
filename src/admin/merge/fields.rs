//! How each field of a response is merged from those of several shards.
//!
//! Each type of response has a table. [`merged_fields`] does not compile if a field of the type has
//! no rule, so that no figure is added by accident.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::pages::parse_instant;
use gridhook_api::{
    chaos::{ChaosReport, InjectionCounters, ResponseCount},
    dead_letters::{PageView, PurgedView, RedriveStartedView},
    filter_test::FilterTestReport,
    jobs::JobsReport,
    ledger::LedgerPageView,
    replay::{DryRun, JobProgress, ReplayView},
    resource::Page,
    retry::RetriedView,
    status::{CountersView, OrderStatusView, PaceView, SubscriptionStatusView, TopicStatusView},
    supervision::{EndsView, IncarnationsView, QuarantinedView, RecoveryView, SupervisionReport},
    top::{TopLine, TopReport},
    trace::TraceView,
    transform_test::TransformTestReport,
};

/// The rules of the fields of a type, by the name of the field in Rust.
#[derive(Debug)]
pub(super) struct MergedFields(&'static [(&'static str, FieldRule)]);

/// How a field is merged. A part that has no value changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldRule {
    /// The value of the first part: all have the same, or it is of one shard.
    First,
    /// The sum of the numbers.
    Sum,
    /// The sum of the numbers of each key of a map.
    SumOfEach,
    /// The largest number: that of the part that is furthest behind.
    Largest,
    Smallest,
    Earliest,
    Latest,
    /// True if any part is true.
    Any,
    /// The value of the part with the worst `health`, a text or an object with its state.
    OfWorstHealth,
    /// `running` as long as one part runs.
    JobState,
    /// The ids of all parts.
    JobIds,
    /// The items of all parts.
    Items,
    Fields(&'static MergedFields),
    /// The object with the largest number of this key.
    LargestBy(&'static str),
}

/// A table of the fields of a type.
macro_rules! merged_fields {
    ($table:ident: $type:ty = $pattern:ident { $($field:ident: $rule:expr),* $(,)? }) => {
        pub(super) static $table: MergedFields =
            MergedFields(&[$((stringify!($field), $rule)),*]);
        // Every field of the type is in the table.
        const _: fn($type) = |$pattern { $($field: _),* }| {};
    };
}

use FieldRule::{
    Any, Earliest, Fields, First, Items, JobIds, JobState, Largest, LargestBy, Latest,
    OfWorstHealth, Smallest, Sum, SumOfEach,
};

merged_fields! { COUNTERS: CountersView = CountersView {
    passed: Sum, filtered: Sum, matched: Sum, delivered: Sum, pending: Sum, dead_lettered: Sum,
    dropped: Sum, canceled: Sum,
    requests: Sum, requests_failed: Sum, late: Sum,
} }

merged_fields! { ENDS: EndsView = EndsView { panicked: Sum, killed: Sum, stopped: Sum, orphaned: Sum } }

merged_fields! { RECOVERY: RecoveryView = RecoveryView {
    count: Sum, last: Largest, p50: Largest, p99: Largest, longest: Largest,
} }

merged_fields! { QUARANTINED: QuarantinedView = QuarantinedView { count: Sum, newest: Items } }

merged_fields! { INCARNATIONS: IncarnationsView = IncarnationsView {
    incarnation: Largest, restarts: Sum, ends: Fields(&ENDS), last_cause: First, last_end: Latest,
    recovery: Fields(&RECOVERY), quarantined: Fields(&QUARANTINED),
} }

merged_fields! { ORDER: OrderStatusView = OrderStatusView {
    holding_keys: Sum, blocked_keys: Sum, first_blocking_sequence: Smallest, held_back_events: Sum, ordered_events: Sum,
    ordered_events_max: Sum,
} }

merged_fields! { PACE: PaceView = PaceView {
    rate: Sum, healthy_rate: Sum, concurrency: Sum, events_per_request: Largest, max_requests_per_second: First,
    response_timeout_in_seconds: First,
} }

merged_fields! { SUBSCRIPTION_STATUS: SubscriptionStatusView = SubscriptionStatusView {
    topic: First, domain_topic: First, subscription: First, held_by: First, health: OfWorstHealth,
    condition: LargestBy("severity"), endpoint: Fields(&PACE),
    counters: Fields(&COUNTERS), replayed: Fields(&COUNTERS), jobs: Items, backlog: Sum, oldest_unread: Earliest,
    oldest_unread_age_seconds: Largest, next_due: Earliest, order: Fields(&ORDER), in_flight: Sum, late_requests: Sum,
    actor: Fields(&INCARNATIONS),
} }

merged_fields! { TOPIC_STATUS: TopicStatusView = TopicStatusView {
    topic: First, full: Any, largest_backlog: LargestBy("bytes"), duplicate_events: Sum,
    subscriptions: First, published: Sum,
    published_bytes: Sum, unmatched: Sum, published_per_second: Sum, bytes_per_second: Sum, log_from_sequence: Smallest,
    log_before_sequence: Largest, log_from: Earliest, actor: Fields(&INCARNATIONS),
} }

merged_fields! { TRACE: TraceView = TraceView {
    topic: First, now: Latest, log_from_sequence: Smallest, log_before_sequence: Largest,
    events: Items, r#continue: First,
} }

merged_fields! { LEDGER: LedgerPageView = LedgerPageView {
    subscription: First, from: First, to: First, oldest: Earliest, lines: Items, r#continue: First,
} }

merged_fields! { FILTER_TEST: FilterTestReport = FilterTestReport { tested: Sum, matched: Sum, results: Items } }

merged_fields! { TRANSFORM_TEST: TransformTestReport = TransformTestReport {
    tested: Sum, failed: Sum, results: Items,
} }

merged_fields! { DEAD_LETTERS: PageView = PageView { value: Items, problems: Items, next_link: First } }

merged_fields! { PURGED: PurgedView = PurgedView { dead_letters: Sum, dry_run: First, problems: Items, next: First } }

merged_fields! { REDRIVE_STARTED: RedriveStartedView = RedriveStartedView { job: First } }

merged_fields! { PROGRESS: JobProgress = JobProgress { passed: Sum, total: Sum, eta_seconds: Largest } }

merged_fields! { REPLAY: ReplayView = ReplayView {
    id: JobIds, kind: First, state: JobState, from_sequence: First, to_sequence: First, events_per_second: Sum,
    started: Earliest, changed: Latest, progress: Fields(&PROGRESS), counters: Fields(&COUNTERS),
} }

merged_fields! { REPLAYS: Page<ReplayView> = Page { value: Items, next_link: First } }

merged_fields! { REPLAY_DRY_RUN: DryRun = DryRun {
    from_sequence: First, to_sequence: First, stored: Sum, matching: Sum,
} }

merged_fields! { RETRIED: RetriedView = RetriedView { events: Sum, next: First, waits_until: Latest } }

merged_fields! { RESPONSES: ResponseCount = ResponseCount { responses: Sum, events: Sum } }

merged_fields! { INJECTIONS: InjectionCounters = InjectionCounters {
    subscriptions_killed: Sum, topics_killed: Sum, dead_letters_killed: Sum,
    deliveries_killed: Sum, events_poisoned: Sum,
    actors_stalled: Sum, journal_stalls: Sum, clock_steps: Sum, writes_stalled: Sum, writes_failed: Sum,
    responses_dropped: Fields(&RESPONSES), responses_delayed: Fields(&RESPONSES),
    responses_corrupted: Fields(&RESPONSES),
} }

// Percentiles cannot be added: the largest of the shards is reported.
merged_fields! { TOP_LINE: TopLine = TopLine {
    topic: First, subscription: First, endpoint: First, held_by: First, health: OfWorstHealth,
    condition: LargestBy("severity"), delivered_per_second: Sum, requests_per_second: Sum, failed_per_second: Sum,
    success_share: Smallest, response_p50_milliseconds: Largest, response_p95_milliseconds: Largest,
    response_p99_milliseconds: Largest, backlog: Sum, oldest_unread_age_seconds: Largest, pending: Sum,
    next_due: Earliest, in_flight: Sum, concurrency: Sum, delivered: Sum, dead_lettered: Sum, dropped: Sum,
} }

merged_fields! { TOP: TopReport = TopReport {
    now: First, window_seconds: First, subscriptions: Sum, suspended: Sum, held: Sum, conditions: SumOfEach,
    in_flight: Sum, backlog: Sum, pending: Sum, dead_lettered: Sum, dropped: Sum, delivered_per_second: Sum,
    failed_per_second: Sum, given_up_in_window: Sum, matching: Sum, top: First, missing_shards: First,
} }

merged_fields! { JOBS: JobsReport = JobsReport { now: Latest, open: Sum, jobs: Items } }

merged_fields! { SUPERVISION: SupervisionReport = SupervisionReport {
    actors: Sum, ended: Sum, ends: Fields(&ENDS), quarantined: Sum, recovery: Fields(&RECOVERY), most_restarted: Items,
} }

merged_fields! { CHAOS: ChaosReport = ChaosReport { active: Items, injected: Fields(&INJECTIONS) } }

impl MergedFields {
    /// Merges a part of the type of this table.
    ///
    /// # Errors
    /// A field is not what its type has.
    pub(super) fn join<T: Serialize + DeserializeOwned>(
        &self,
        all: T,
        more: &T,
    ) -> serde_json::Result<T> {
        let mut merged = serde_json::to_value(all)?;
        if let (Value::Object(merged), Value::Object(more)) =
            (&mut merged, serde_json::to_value(more)?)
        {
            join_fields(&[self], merged, more);
        }
        serde_json::from_value(merged)
    }

    fn find_rule(&self, key: &str) -> Option<FieldRule> {
        self.0
            .iter()
            .find(|(field, _)| is_name_of(field, key))
            .map(|(_, rule)| *rule)
    }
}

/// Merges the fields of a part by these tables, in which a field has the same rule wherever it
/// occurs. Shards of another version may have fields that no table has.
pub(super) fn join_fields(
    tables: &[&MergedFields],
    all: &mut Map<String, Value>,
    more: Map<String, Value>,
) {
    let is_worse = health_severity(more.get("health")) > health_severity(all.get("health"));
    for (key, value) in more {
        let rule = tables.iter().find_map(|table| table.find_rule(&key));
        let known = all.entry(key).or_insert(Value::Null);
        match rule.unwrap_or(First) {
            OfWorstHealth if is_worse => *known = value,
            rule => rule.join_values(known, value),
        }
    }
}

/// Whether a field of a type, such as `log_from`, has this key in JSON: `logFrom`, or `log_from` in
/// types that do not rename.
fn is_name_of(field: &str, key: &str) -> bool {
    let mut field = field.trim_start_matches("r#").chars();
    for c in key.chars() {
        let is_same = match field.next() {
            Some('_') if c.is_ascii_uppercase() => field.next() == Some(c.to_ascii_lowercase()),
            Some(of_field) => of_field == c,
            None => false,
        };
        if !is_same {
            return false;
        }
    }
    field.next().is_none()
}

impl FieldRule {
    /// Merges the value of a part.
    pub(super) fn join_values(self, all: &mut Value, more: Value) {
        if more.is_null() {
            return;
        }
        if all.is_null() {
            *all = more;
            return;
        }
        match self {
            Self::First | Self::OfWorstHealth => {}
            Self::Sum => add(all, &more),
            Self::SumOfEach => add_entries(all, more),
            Self::Largest => replace_if(more.as_f64() > all.as_f64(), all, more),
            Self::Smallest => replace_if(more.as_f64() < all.as_f64(), all, more),
            Self::Earliest => replace_if(instant_of(&more) < instant_of(all), all, more),
            Self::Latest => replace_if(instant_of(&more) > instant_of(all), all, more),
            Self::Any => replace_if(more == true, all, more),
            Self::JobState => replace_if(more == "running", all, more),
            Self::LargestBy(key) => {
                replace_if(more[key].as_f64() > all[key].as_f64(), all, more);
            }
            Self::JobIds => *all = format!("{},{}", text_of(all), text_of(&more)).into(),
            Self::Items => {
                if let Value::Array(all) = all {
                    all.extend(items_of(&more));
                }
            }
            Self::Fields(fields) => {
                if let (Value::Object(all), Value::Object(more)) = (all, more) {
                    join_fields(&[fields], all, more);
                }
            }
        }
    }
}

fn replace_if(is_better: bool, all: &mut Value, more: Value) {
    if is_better {
        *all = more;
    }
}

fn add(all: &mut Value, more: &Value) {
    if let (Some(a), Some(b)) = (all.as_u64(), more.as_u64()) {
        *all = a.saturating_add(b).into();
    } else if let (Some(a), Some(b)) = (all.as_f64(), more.as_f64()) {
        *all = json!(a + b);
    }
}

fn add_entries(all: &mut Value, more: Value) {
    let (Value::Object(all), Value::Object(more)) = (all, more) else {
        return;
    };
    for (key, value) in more {
        match all.get_mut(&key) {
            Some(known) => add(known, &value),
            None => drop(all.insert(key, value)),
        }
    }
}

fn items_of(list: &Value) -> impl Iterator<Item = Value> {
    list.as_array().into_iter().flatten().cloned()
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn instant_of(value: &Value) -> Option<jiff::Timestamp> {
    parse_instant(text_of(value))
}

/// The severity of a health, then its number of failures or suspensions.
fn health_severity(health: Option<&Value>) -> (u8, Option<u64>) {
    let Some(health) = health else {
        return (0, None);
    };
    let rank = match health.as_str().or_else(|| health.get("state")?.as_str()) {
        Some("suspended") => 2,
        Some("probing") => 1,
        Some(_) | None => 0,
    };
    let count = health
        .get("failures")
        .or_else(|| health.get("consecutiveSuspensions"));
    (rank, count.and_then(Value::as_u64))
}
