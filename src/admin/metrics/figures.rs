//! The figures of an event subscription, or of several together: counts are added, of ages and
//! states the worst is shown.

use std::{collections::BTreeMap, time::Duration};

use gridhook_dead_letter::totals::DeadLetterTotals;
use gridhook_engine::{
    control::registry::{SubscriptionCensus, TopicHandle},
    fanout::meter::PublishCounts,
    supervision::IncarnationEnds,
};
use gridhook_event::{Timestamp, chunk::RunningTotals};
use gridhook_metrics::HistogramCounts;
use gridhook_policy::{
    outcome::{Failure, Outcome, Reason},
    record::{Counters, Health, HeldBy, OutcomeCounts, lease::StepKind},
};
use gridhook_subscription::SubscriptionMeasures;

/// Reason of events that were counted without a reason, as in a repaired store.
const UNRECORDED: &str = "Unrecorded";

/// Counts that are combined one by one.
pub(crate) trait CombineCounts {
    /// Combines each count with the same count of `other`.
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64);
}

impl CombineCounts for u64 {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        *self = how(*self, *other);
    }
}

impl CombineCounts for HistogramCounts {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        self.merge(other, how);
    }
}

impl<const N: usize> CombineCounts for [HistogramCounts; N] {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        for (to, from) in self.iter_mut().zip(other) {
            to.merge(from, how);
        }
    }
}

impl<K: Ord + Copy> CombineCounts for BTreeMap<K, u64> {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        for (key, count) in other {
            self.entry(*key).or_default().combine_with(count, how);
        }
    }
}

/// Combines all fields of a type.
macro_rules! combine_fields {
    ($($type:ty { $($field:ident),* $(,)? })*) => {
        $(impl CombineCounts for $type {
            fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
                let Self { $($field),* } = self;
                $($field.combine_with(&other.$field, how);)*
            }
        })*
    };
}

combine_fields! {
    Counters {
        passed, filtered, matched, delivered, pending, dead_lettered, dropped, canceled, requests,
        requests_failed, late,
    }
    OutcomeCounts { failed, dead_lettered, dropped, leases }
    IncarnationEnds { panicked, killed, stopped, orphaned }
    SubscriptionMeasures { wait, batch, response, phases, delivery }
    SubscriptionCounters {
        counters, replayed, counts, written, lost, redriven, purged, files, ends, quarantined,
        measured,
    }
    PublishCounts { unmatched, duplicates, nonconforming, latency, refused }
    TopicCounters { events, bytes, publishing, ends }
}

/// Figures that never fall.
#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionCounters {
    pub(super) counters: Counters,
    pub(super) replayed: Counters,
    pub(super) counts: OutcomeCounts,
    /// Dead letters that were written, lost, redriven and purged, and the number of files.
    pub(super) written: u64,
    pub(super) lost: u64,
    pub(super) redriven: u64,
    pub(super) purged: u64,
    pub(super) files: u64,
    pub(super) ends: IncarnationEnds,
    pub(super) quarantined: u64,
    pub(super) measured: SubscriptionMeasures,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TopicCounters {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) publishing: PublishCounts,
    pub(super) ends: IncarnationEnds,
}

impl TopicCounters {
    pub(super) fn from_topic(topic: &TopicHandle) -> Self {
        let RunningTotals {
            count: events,
            bytes,
        } = topic.accepted_totals();
        Self {
            events,
            bytes,
            publishing: topic.meter().publish_counts(),
            ends: topic.supervision_history().incarnation_ends(),
        }
    }
}

/// Declares gauges, each with the function that makes one figure of those of two event
/// subscriptions.
macro_rules! gauges {
    ($($(#[$comment:meta])* $field:ident: $type:ty => $join:path,)*) => {
        /// Figures of the present state.
        #[derive(Clone, Debug, Default)]
        pub(super) struct SubscriptionGauges {
            $($(#[$comment])* pub(super) $field: $type,)*
        }

        impl SubscriptionGauges {
            fn add(&mut self, other: Self) {
                $(self.$field = $join(std::mem::take(&mut self.$field), other.$field);)*
            }
        }
    };
}

gauges! {
    subscriptions: u64 => sum,
    /// Numbers of event subscriptions by kind of destination.
    destinations: BTreeMap<&'static str, u64> => sum_each,
    suspended: u64 => sum,
    probing: u64 => sum,
    held: u64 => sum,
    held_failing: u64 => sum,
    /// The cause of one of the suspensions, which says nothing about the others.
    cause: Option<Failure> => keep_first,
    since: Option<Timestamp> => least,
    until: Option<Timestamp> => least,
    consecutive_suspensions: u32 => Ord::max,
    failures: u32 => Ord::max,
    backlog: u64 => sum,
    /// The time at which the oldest unread event was published.
    unread_since: Option<Timestamp> => least,
    time_to_live: Option<Duration> => least,
    pending: u64 => sum,
    next_due: Option<Timestamp> => least,
    holding_keys: u64 => sum,
    held_back: u64 => sum,
    blocked_keys: u64 => sum,
    waiting: u64 => sum,
    in_flight: u64 => sum,
    late_requests: u64 => sum,
    concurrency: u64 => sum,
    incarnation: u64 => Ord::max,
}

fn keep_first<T>(one: T, _: T) -> T {
    one
}

fn sum(one: u64, other: u64) -> u64 {
    one + other
}

fn sum_each(
    mut one: BTreeMap<&'static str, u64>,
    other: BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    one.combine_with(&other, u64::saturating_add);
    one
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionFigures {
    pub(super) sums: SubscriptionCounters,
    pub(super) state: SubscriptionGauges,
}

impl SubscriptionFigures {
    /// The figures of one event subscription with its dead-letter totals.
    pub(super) fn from_census(
        census: SubscriptionCensus<'_>,
        dead_letters: &DeadLetterTotals,
    ) -> Self {
        let cursor = census.cursor;
        let dead_lettered = cursor.counters.dead_lettered + cursor.replayed.dead_lettered;
        let order = census.endpoint.order.as_deref();
        let mut state = SubscriptionGauges {
            subscriptions: 1,
            destinations: BTreeMap::from([(census.record.destination_kind(), 1)]),
            held: cursor.held.is_some().into(),
            held_failing: (cursor.held == Some(HeldBy::EndpointFailing)).into(),
            backlog: census.backlog,
            time_to_live: Some(census.time_to_live),
            pending: cursor.counters.pending + cursor.replayed.pending,
            next_due: cursor.next_retry(),
            holding_keys: order.map_or(0, |order| order.keys as u64),
            held_back: order.map_or(0, |order| order.events as u64),
            blocked_keys: order.map_or(0, |order| order.blocked as u64),
            // Totals are written after the cursor and read before it, so the difference is never
            // negative.
            waiting: dead_lettered.saturating_sub(dead_letters.handled_count().unwrap_or_default()),
            in_flight: census.in_flight as u64,
            late_requests: census.late_requests as u64,
            concurrency: census.endpoint.concurrency.into(),
            incarnation: census.incarnation,
            ..SubscriptionGauges::default()
        };
        match cursor.health {
            Health::Healthy { failures } => state.failures = failures,
            Health::Suspended {
                cause,
                since,
                until,
                consecutive_suspensions,
            } => {
                state.suspended = 1;
                state.cause = Some(cause);
                state.since = Some(since);
                state.until = Some(until);
                state.consecutive_suspensions = consecutive_suspensions;
            }
            Health::Probing {
                cause,
                since,
                consecutive_suspensions,
            } => {
                state.probing = 1;
                state.cause = Some(cause);
                state.since = Some(since);
                state.consecutive_suspensions = consecutive_suspensions;
            }
        }
        let sums = SubscriptionCounters {
            counters: cursor.counters,
            replayed: cursor.replayed,
            counts: cursor.counts.clone(),
            written: dead_letters.written,
            lost: dead_letters.lost,
            redriven: dead_letters.redriven,
            purged: dead_letters.purged,
            files: dead_letters.files,
            ends: census.ends,
            quarantined: census.quarantined,
            measured: census.measured.unwrap_or_default(),
        };
        Self { sums, state }
    }

    /// Adds the figures of another.
    pub(super) fn add(&mut self, other: Self) {
        self.sums.combine_with(&other.sums, u64::saturating_add);
        self.state.add(other.state);
    }
}

impl SubscriptionCounters {
    /// Requests by outcome, `Delivered` first.
    pub(super) fn requests_by_outcome(&self) -> Vec<(String, u64)> {
        let requests = self.counters.requests + self.replayed.requests;
        let failed = self.counters.requests_failed + self.replayed.requests_failed;
        // An expired lock counts as a failed request, but the receive that it came from succeeded.
        let expired_locks = self.events_with_step(StepKind::Expired);
        let delivered = (requests + expired_locks).saturating_sub(failed);
        let mut outcomes = vec![(Outcome::Delivered.to_string(), delivered)];
        outcomes.extend(counts_by_name(&self.counts.failed, failed));
        outcomes
    }

    /// Number of events with this lease operation.
    pub(super) fn events_with_step(&self, step: StepKind) -> u64 {
        self.counts.leases.get(&step).copied().unwrap_or_default()
    }

    /// Operations of pulling clients, one for each event; empty if no event was ever received.
    pub(super) fn lease_operations(&self) -> Vec<(String, u64)> {
        if self.counts.leases.is_empty() {
            return Vec::new();
        }
        let rejected = [&self.counts.dead_lettered, &self.counts.dropped]
            .iter()
            .filter_map(|reasons| reasons.get(&Reason::Rejected))
            .sum();
        let steps = StepKind::ALL
            .into_iter()
            .map(|step| (step.to_string(), self.events_with_step(step)));
        steps.chain([("rejected".to_owned(), rejected)]).collect()
    }

    pub(super) fn dead_lettered_by_reason(&self) -> Vec<(String, u64)> {
        counts_by_name(
            &self.counts.dead_lettered,
            self.counters.dead_lettered + self.replayed.dead_lettered,
        )
    }

    pub(super) fn dropped_by_reason(&self) -> Vec<(String, u64)> {
        counts_by_name(
            &self.counts.dropped,
            self.counters.dropped + self.replayed.dropped,
        )
    }
}

impl SubscriptionGauges {
    /// Age of the oldest unread event.
    pub(super) fn unread_age(&self, now: Timestamp) -> Duration {
        self.unread_since
            .map(|since| now.since(since))
            .unwrap_or_default()
    }
}

/// Ends of incarnations by cause.
pub(super) fn ends_by_cause(ends: IncarnationEnds) -> [(&'static str, u64); 4] {
    let IncarnationEnds {
        panicked,
        killed,
        stopped,
        orphaned,
    } = ends;
    [
        ("panicked", panicked),
        ("killed", killed),
        ("stopped", stopped),
        ("orphaned", orphaned),
    ]
}

/// Counts by name; the difference to `total` is `Unrecorded`.
fn counts_by_name<K: ToString>(counts: &BTreeMap<K, u64>, total: u64) -> Vec<(String, u64)> {
    let sum: u64 = counts.values().sum();
    let mut named_counts: Vec<(String, u64)> = counts
        .iter()
        .map(|(key, count)| (key.to_string(), *count))
        .collect();
    if total > sum {
        named_counts.push((UNRECORDED.to_owned(), total - sum));
    }
    named_counts
}
