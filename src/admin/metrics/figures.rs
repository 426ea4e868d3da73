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
    record::{Counters, Health, HeldBy, OutcomeCounts, Rate, lease::StepKind},
};
use gridhook_subscription::SubscriptionMeasures;

/// Reason of events that were counted without a reason, as in a repaired store.
const UNRECORDED: &str = "Unrecorded";

/// Counts that are combined field by field.
pub(super) trait CombineCounts: Clone + Default {
    /// Combines each count with the same count of `other`.
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64);
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

impl CombineCounts for TopicCounters {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        self.events = how(self.events, other.events);
        self.bytes = how(self.bytes, other.bytes);
        self.publishing.unmatched = how(self.publishing.unmatched, other.publishing.unmatched);
        self.publishing.duplicates = how(self.publishing.duplicates, other.publishing.duplicates);
        self.publishing.nonconforming = how(
            self.publishing.nonconforming,
            other.publishing.nonconforming,
        );
        self.publishing
            .latency
            .merge(&other.publishing.latency, how);
        merge_map(&mut self.publishing.refused, &other.publishing.refused, how);
        merge_ends(&mut self.ends, other.ends, how);
    }
}

/// Figures of the present state.
#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionGauges {
    pub(super) subscriptions: u64,
    /// Numbers of event subscriptions by kind of destination.
    pub(super) destinations: BTreeMap<&'static str, u64>,
    pub(super) suspended: u64,
    pub(super) probing: u64,
    pub(super) held: u64,
    pub(super) held_failing: u64,
    pub(super) cause: Option<Failure>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) consecutive_suspensions: u32,
    pub(super) failures: u32,
    pub(super) backlog: u64,
    /// The time at which the oldest unread event was published.
    pub(super) unread_since: Option<Timestamp>,
    pub(super) time_to_live: Option<Duration>,
    pub(super) pending: u64,
    pub(super) next_due: Option<Timestamp>,
    pub(super) holding_keys: u64,
    pub(super) held_back: u64,
    pub(super) blocked_keys: u64,
    pub(super) waiting: u64,
    pub(super) in_flight: u64,
    pub(super) late_requests: u64,
    pub(super) concurrency: u64,
    pub(super) events_max: u64,
    pub(super) rate: Option<f64>,
    pub(super) incarnation: u64,
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
            events_max: census.endpoint.events_max.into(),
            rate: census.endpoint.rate.map(Rate::per_second),
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
    pub(super) fn add(&mut self, other: &Self) {
        self.sums.combine_with(&other.sums, u64::saturating_add);
        self.state.add(&other.state);
    }
}

impl SubscriptionGauges {
    fn add(&mut self, other: &Self) {
        let earlier =
            |one: Option<Timestamp>, other: Option<Timestamp>| one.into_iter().chain(other).min();
        self.subscriptions += other.subscriptions;
        merge_map(
            &mut self.destinations,
            &other.destinations,
            u64::saturating_add,
        );
        self.suspended += other.suspended;
        self.probing += other.probing;
        self.held += other.held;
        self.held_failing += other.held_failing;
        self.since = earlier(self.since, other.since);
        self.until = earlier(self.until, other.until);
        self.consecutive_suspensions = self
            .consecutive_suspensions
            .max(other.consecutive_suspensions);
        self.failures = self.failures.max(other.failures);
        self.backlog += other.backlog;
        self.unread_since = earlier(self.unread_since, other.unread_since);
        self.time_to_live = self
            .time_to_live
            .into_iter()
            .chain(other.time_to_live)
            .min();
        self.pending += other.pending;
        self.next_due = earlier(self.next_due, other.next_due);
        self.holding_keys += other.holding_keys;
        self.held_back += other.held_back;
        self.blocked_keys += other.blocked_keys;
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.late_requests += other.late_requests;
        self.concurrency += other.concurrency;
        self.events_max = self.events_max.max(other.events_max);
        self.rate = self
            .rate
            .into_iter()
            .chain(other.rate)
            .reduce(|one, other| one + other);
        self.incarnation = self.incarnation.max(other.incarnation);
    }
}

impl CombineCounts for SubscriptionCounters {
    fn combine_with(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        merge_counters(&mut self.counters, &other.counters, how);
        merge_counters(&mut self.replayed, &other.replayed, how);
        merge_map(&mut self.counts.failed, &other.counts.failed, how);
        merge_map(
            &mut self.counts.dead_lettered,
            &other.counts.dead_lettered,
            how,
        );
        merge_map(&mut self.counts.dropped, &other.counts.dropped, how);
        merge_map(&mut self.counts.leases, &other.counts.leases, how);
        for (to, from) in [
            (&mut self.written, other.written),
            (&mut self.lost, other.lost),
            (&mut self.redriven, other.redriven),
            (&mut self.purged, other.purged),
            (&mut self.files, other.files),
            (&mut self.quarantined, other.quarantined),
        ] {
            *to = how(*to, from);
        }
        merge_ends(&mut self.ends, other.ends, how);
        let to = &mut self.measured;
        let from = &other.measured;
        for (to, from) in [
            (&mut to.wait, &from.wait),
            (&mut to.batch, &from.batch),
            (&mut to.response, &from.response),
            (&mut to.delivery, &from.delivery),
        ] {
            to.merge(from, how);
        }
        to.phases
            .iter_mut()
            .zip(&from.phases)
            .for_each(|(to, from): (&mut HistogramCounts, _)| to.merge(from, how));
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

    pub(super) fn health_name(&self) -> &'static str {
        match (self.suspended, self.probing) {
            (0, 0) => "healthy",
            (0, _) => "probing",
            _ => "suspended",
        }
    }
}

fn merge_counters(to: &mut Counters, from: &Counters, how: fn(u64, u64) -> u64) {
    *to = Counters {
        passed: how(to.passed, from.passed),
        filtered: how(to.filtered, from.filtered),
        matched: how(to.matched, from.matched),
        delivered: how(to.delivered, from.delivered),
        // A gauge, see SubscriptionGauges.
        pending: 0,
        dead_lettered: how(to.dead_lettered, from.dead_lettered),
        dropped: how(to.dropped, from.dropped),
        canceled: how(to.canceled, from.canceled),
        requests: how(to.requests, from.requests),
        requests_failed: how(to.requests_failed, from.requests_failed),
        late: how(to.late, from.late),
    };
}

pub(crate) fn merge_ends(
    to: &mut IncarnationEnds,
    from: IncarnationEnds,
    how: fn(u64, u64) -> u64,
) {
    *to = IncarnationEnds {
        panicked: how(to.panicked, from.panicked),
        killed: how(to.killed, from.killed),
        stopped: how(to.stopped, from.stopped),
        orphaned: how(to.orphaned, from.orphaned),
    };
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

fn merge_map<K: Ord + Copy>(
    to: &mut BTreeMap<K, u64>,
    from: &BTreeMap<K, u64>,
    how: fn(u64, u64) -> u64,
) {
    for (key, count) in from {
        let to = to.entry(*key).or_default();
        *to = how(*to, *count);
    }
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
