//! What there is to tell of a subscription, or of several together.
//!
//! Counts add up; of ages and dates the worst is told. So several subscriptions look like one that is as large as all and
//! as ill as the worst of them.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    control::registry::{SubscriptionCensus, SubscriptionMeasures, TopicHandle},
    dead_letter::totals::DeadLetterTotals,
    event::Timestamp,
    fanout::meter::PublishCounts,
    metrics::HistogramCounts,
    policy::{
        outcome::{Outcome, Reason},
        record::{Counters, Health, OutcomeCounts, Rate, lease::StepKind},
    },
    store::chunk::LogTail,
    supervision::IncarnationEnds,
};

/// Why what was counted before it was counted why: in a store that was mended.
const UNRECORDED: &str = "Unrecorded";

/// Counts that are put together with others, each by itself.
pub(super) trait Merge: Clone + Default {
    /// Each count with the same count of another, by `how`.
    fn merge(&mut self, other: &Self, how: fn(u64, u64) -> u64);
}

/// What is counted, and never falls.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionCounters {
    pub(super) counters: Counters,
    pub(super) replayed: Counters,
    pub(super) counts: OutcomeCounts,
    /// Of the dead letters: in files, lost, sent again or purged before they were in one, and the files.
    pub(super) written: u64,
    pub(super) lost: u64,
    pub(super) redriven: u64,
    pub(super) purged: u64,
    pub(super) files: u64,
    pub(super) ends: IncarnationEnds,
    pub(super) quarantined: u64,
    pub(super) measured: SubscriptionMeasures,
}

impl Default for SubscriptionCounters {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            replayed: Counters::default(),
            counts: OutcomeCounts::default(),
            written: 0,
            lost: 0,
            redriven: 0,
            purged: 0,
            files: 0,
            ends: IncarnationEnds::default(),
            quarantined: 0,
            measured: SubscriptionMeasures::none(),
        }
    }
}

/// What is counted of a topic.
#[derive(Clone, Debug)]
pub(super) struct TopicCounters {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) publishing: PublishCounts,
    pub(super) ends: IncarnationEnds,
}

impl Default for TopicCounters {
    fn default() -> Self {
        Self { events: 0, bytes: 0, publishing: PublishCounts::none(), ends: IncarnationEnds::default() }
    }
}

impl TopicCounters {
    /// Of one.
    pub(super) fn of(topic: &TopicHandle) -> Self {
        let LogTail { count: events, bytes } = topic.taken();
        Self { events, bytes, publishing: topic.meter().publishing(), ends: topic.history().ends() }
    }
}

impl Merge for TopicCounters {
    fn merge(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        self.events = how(self.events, other.events);
        self.bytes = how(self.bytes, other.bytes);
        self.publishing.unmatched = how(self.publishing.unmatched, other.publishing.unmatched);
        self.publishing.latency.merge(&other.publishing.latency, how);
        merge_map(&mut self.publishing.refused, &other.publishing.refused, how);
        merge_ends(&mut self.ends, other.ends, how);
    }
}

/// How it is now.
#[derive(Clone, Debug, Default)]
pub(super) struct SubscriptionGauges {
    /// How many subscriptions these are.
    pub(super) subscriptions: u64,
    pub(super) suspended: u64,
    pub(super) probing: u64,
    pub(super) held: u64,
    pub(super) cause: Option<Outcome>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) consecutive_suspensions: u32,
    pub(super) failures: u32,
    pub(super) backlog: u64,
    /// When the oldest event was taken that is not passed.
    pub(super) unread_since: Option<Timestamp>,
    pub(super) time_to_live: Option<Duration>,
    pub(super) pending: u64,
    pub(super) next_due: Option<Timestamp>,
    pub(super) waiting: u64,
    pub(super) in_flight: u64,
    pub(super) late_requests: u64,
    pub(super) concurrency: u64,
    pub(super) events_max: u64,
    pub(super) rate: Option<f64>,
    pub(super) incarnation: u64,
}

/// Both.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionFigures {
    pub(super) sums: SubscriptionCounters,
    pub(super) state: SubscriptionGauges,
}

impl SubscriptionFigures {
    /// Of one subscription, with the account of its dead letters.
    pub(super) fn of(counted: &SubscriptionCensus, account: &DeadLetterTotals) -> Self {
        let cursor = &counted.cursor;
        let put_aside = cursor.counters.dead_lettered + cursor.replayed.dead_lettered;
        let mut state = SubscriptionGauges {
            subscriptions: 1,
            held: cursor.held.is_some().into(),
            backlog: counted.backlog,
            time_to_live: Some(counted.time_to_live),
            pending: cursor.counters.pending + cursor.replayed.pending,
            next_due: cursor.next_due,
            // The account is written after the dead letters were counted, and read before that is.
            waiting: put_aside.saturating_sub(account.dealt_with().unwrap_or_default()),
            in_flight: counted.in_flight as u64,
            late_requests: counted.late_requests as u64,
            concurrency: counted.endpoint.concurrency.into(),
            events_max: counted.endpoint.events_max.into(),
            rate: counted.endpoint.rate.map(Rate::per_second),
            incarnation: counted.incarnation,
            ..SubscriptionGauges::default()
        };
        match cursor.health {
            Health::Healthy { failures } => state.failures = failures,
            Health::Suspended { cause, since, until, consecutive_suspensions: strikes } => {
                state.suspended = 1;
                (state.cause, state.since, state.until, state.consecutive_suspensions) =
                    (Some(cause), Some(since), Some(until), strikes);
            }
            Health::Probing { cause, since, consecutive_suspensions: strikes } => {
                state.probing = 1;
                (state.cause, state.since, state.consecutive_suspensions) = (Some(cause), Some(since), strikes);
            }
        }
        let sums = SubscriptionCounters {
            counters: cursor.counters,
            replayed: cursor.replayed,
            counts: cursor.counts.clone(),
            written: account.written,
            lost: account.lost,
            redriven: account.redriven,
            purged: account.purged,
            files: account.files,
            ends: counted.ends,
            quarantined: counted.quarantined,
            measured: counted.measured.clone().unwrap_or_else(SubscriptionMeasures::none),
        };
        Self { sums, state }
    }

    /// Of none.
    pub(super) fn none() -> Self {
        Self { sums: SubscriptionCounters::default(), state: SubscriptionGauges::default() }
    }

    /// With those of another.
    pub(super) fn add(&mut self, other: &Self) {
        self.sums.merge(&other.sums, u64::saturating_add);
        self.state.add(&other.state);
    }
}

impl SubscriptionGauges {
    fn add(&mut self, other: &Self) {
        let earlier = |one: Option<Timestamp>, other: Option<Timestamp>| one.into_iter().chain(other).min();
        self.subscriptions += other.subscriptions;
        self.suspended += other.suspended;
        self.probing += other.probing;
        self.held += other.held;
        self.since = earlier(self.since, other.since);
        self.until = earlier(self.until, other.until);
        self.consecutive_suspensions = self.consecutive_suspensions.max(other.consecutive_suspensions);
        self.failures = self.failures.max(other.failures);
        self.backlog += other.backlog;
        self.unread_since = earlier(self.unread_since, other.unread_since);
        self.time_to_live = self.time_to_live.into_iter().chain(other.time_to_live).min();
        self.pending += other.pending;
        self.next_due = earlier(self.next_due, other.next_due);
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.late_requests += other.late_requests;
        self.concurrency += other.concurrency;
        self.events_max = self.events_max.max(other.events_max);
        self.rate = self.rate.into_iter().chain(other.rate).reduce(|one, other| one + other);
        self.incarnation = self.incarnation.max(other.incarnation);
    }
}

impl Merge for SubscriptionCounters {
    fn merge(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        merge_counters(&mut self.counters, &other.counters, how);
        merge_counters(&mut self.replayed, &other.replayed, how);
        merge_map(&mut self.counts.failed, &other.counts.failed, how);
        merge_map(&mut self.counts.dead_lettered, &other.counts.dead_lettered, how);
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
        let (to, from) = (&mut self.measured, &other.measured);
        for (to, from) in [
            (&mut to.wait, &from.wait),
            (&mut to.batch, &from.batch),
            (&mut to.response, &from.response),
            (&mut to.delivery, &from.delivery),
        ] {
            to.merge(from, how);
        }
        to.phases.iter_mut().zip(&from.phases).for_each(|(to, from): (&mut HistogramCounts, _)| to.merge(from, how));
    }
}

impl SubscriptionCounters {
    /// Requests, by how they ended: `Delivered` is one of these.
    pub(super) fn attempts(&self) -> Vec<(String, u64)> {
        let (all, failed) = (
            self.counters.requests + self.replayed.requests,
            self.counters.requests_failed + self.replayed.requests_failed,
        );
        // A lock that expired is one event's, and the request that it came with was answered.
        let all = all + self.stepped(StepKind::Expired);
        let mut attempts = vec![(Outcome::Delivered.to_string(), all.saturating_sub(failed))];
        attempts.extend(by_name(&self.counts.failed, failed));
        attempts
    }

    /// How many events went this step.
    pub(super) fn stepped(&self, step: StepKind) -> u64 {
        self.counts.leases.get(&step).copied().unwrap_or_default()
    }

    /// What clients that pull did, by what, each counted for one event; nothing where nobody ever received any.
    pub(super) fn leases(&self) -> Vec<(String, u64)> {
        if self.counts.leases.is_empty() {
            return Vec::new();
        }
        let rejected = [&self.counts.dead_lettered, &self.counts.dropped];
        let rejected = rejected.iter().filter_map(|reasons| reasons.get(&Reason::Rejected)).sum();
        let steps = StepKind::ALL.into_iter().map(|step| (step.to_string(), self.stepped(step)));
        steps.chain([("rejected".to_owned(), rejected)]).collect()
    }

    /// Events that were put aside, by why.
    pub(super) fn dead_lettered(&self) -> Vec<(String, u64)> {
        by_name(&self.counts.dead_lettered, self.counters.dead_lettered + self.replayed.dead_lettered)
    }

    /// Events that were given up without a place, by why.
    pub(super) fn dropped(&self) -> Vec<(String, u64)> {
        by_name(&self.counts.dropped, self.counters.dropped + self.replayed.dropped)
    }
}

impl SubscriptionGauges {
    /// How old the oldest event is that is not passed.
    pub(super) fn unread_age(&self, now: Timestamp) -> Duration {
        self.unread_since.map(|since| now.since(since)).unwrap_or_default()
    }

    /// Its health in a word.
    pub(super) fn health(&self) -> &'static str {
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
        // It goes up and down: of several, see the state.
        pending: 0,
        dead_lettered: how(to.dead_lettered, from.dead_lettered),
        dropped: how(to.dropped, from.dropped),
        canceled: how(to.canceled, from.canceled),
        requests: how(to.requests, from.requests),
        requests_failed: how(to.requests_failed, from.requests_failed),
        late: how(to.late, from.late),
    };
}

fn merge_ends(to: &mut IncarnationEnds, from: IncarnationEnds, how: fn(u64, u64) -> u64) {
    *to = IncarnationEnds {
        panicked: how(to.panicked, from.panicked),
        killed: how(to.killed, from.killed),
        stopped: how(to.stopped, from.stopped),
        orphaned: how(to.orphaned, from.orphaned),
    };
}

/// How often lives ended, by how.
pub(super) fn by_end(ends: IncarnationEnds) -> [(&'static str, u64); 4] {
    let IncarnationEnds { panicked, killed, stopped, orphaned } = ends;
    [("panicked", panicked), ("killed", killed), ("stopped", stopped), ("orphaned", orphaned)]
}

fn merge_map<K: Ord + Copy>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>, how: fn(u64, u64) -> u64) {
    for (key, count) in from {
        let to = to.entry(*key).or_default();
        *to = how(*to, *count);
    }
}

/// A name for each of them, and one for what is missing to `all`.
fn by_name<K: ToString>(known: &BTreeMap<K, u64>, all: u64) -> Vec<(String, u64)> {
    let sum: u64 = known.values().sum();
    let mut named: Vec<(String, u64)> = known.iter().map(|(key, count)| (key.to_string(), *count)).collect();
    if all > sum {
        named.push((UNRECORDED.to_owned(), all - sum));
    }
    named
}

/// Whose fault a failure is, as Azure's metrics sort them: the client's is what will not go away by waiting.
pub(super) fn error_type(outcome: &str) -> &'static str {
    let client = [
        Outcome::NotFound,
        Outcome::Unauthorized,
        Outcome::BadRequest,
        Outcome::PayloadTooLarge,
        Outcome::Forbidden,
        Outcome::Disabled,
    ];
    if client.iter().any(|known| known.to_string() == outcome) { "ClientError" } else { "ServerError" }
}
