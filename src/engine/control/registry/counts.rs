//! Snapshots of all subscriptions of a topic, for metrics. Sends nothing to actors and reads no
//! disk.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{SubscriptionHandle, TopicHandle};
use crate::{fanout::meter::TopicMeter, supervision::IncarnationEnds};
use gridhook_event::{Seq, SubscriptionId, Timestamp, chunk::RunningTotals};
use gridhook_journal as journal;
use gridhook_policy::{
    outcome::{Failure, Outcome},
    record::{Counters, Cursor, EndpointView, Health, HeldBy, job::Job, lease::StepKind},
};
use gridhook_record::subscription::SubscriptionRecord;
use gridhook_subscription::SubscriptionMeasures;

/// A subscription at one moment. It borrows the state, so a visit of thousands keeps only what it
/// makes of each.
#[derive(Debug)]
pub struct SubscriptionCensus<'a> {
    pub number: SubscriptionId,
    pub record: &'a SubscriptionRecord,
    /// The cursor, without the open events.
    pub cursor: &'a Cursor,
    /// The state of the endpoint that is not in the cursor.
    pub endpoint: &'a EndpointView,
    /// Number of events of the log that the event subscription has not passed, before its filter.
    pub backlog: u64,
    /// The first event that it has not passed.
    pub unread: Option<Seq>,
    pub time_to_live: Duration,
    /// Requests that are in flight, or ended and not yet durable.
    pub in_flight: usize,
    /// Requests that timed out and may still succeed.
    pub late_requests: usize,
    /// Number of the current incarnation of the subscription's actor.
    pub incarnation: u64,
    pub ends: IncarnationEnds,
    /// Events that were quarantined since the process started.
    pub quarantined: u64,
    /// Durations of the subscription's requests; [`None`] if none was sent since the process
    /// started.
    pub measured: Option<SubscriptionMeasures>,
}

/// Failed requests by what the endpoint did. Other failures, such as a status of 500, are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    /// The endpoint has refused the request, such as with 400 or 404.
    pub refused: u64,
    /// The endpoint has responded 429 or 503.
    pub busy: u64,
    /// There was no connection, or no response in time.
    pub unanswered: u64,
}

impl FailureCounts {
    fn from_reasons(reasons: &BTreeMap<Outcome, u64>) -> Self {
        let mut counts = Self::default();
        for (outcome, count) in reasons {
            let Outcome::Failed(failure) = outcome else {
                continue;
            };
            match failure {
                Failure::NotFound
                | Failure::Unauthorized
                | Failure::BadRequest
                | Failure::PayloadTooLarge
                | Failure::Forbidden => counts.refused += count,
                Failure::Busy => counts.busy += count,
                Failure::TimedOut | Failure::SocketError | Failure::ResolutionError => {
                    counts.unanswered += count;
                }
                Failure::Disabled
                | Failure::Full
                | Failure::SessionQueueNotSupported
                | Failure::InvalidAzureFunctionDestination
                | Failure::GenericError
                | Failure::TransformationFailed
                | Failure::CredentialRefused => {}
            }
        }
        counts
    }
}

/// The figures of a subscription that a list of thousands shows.
#[derive(Clone, Debug)]
pub struct SubscriptionSnapshot {
    /// The handle of the event subscription. The record is read from there by need, because it is
    /// in memory of its own, far from the figures.
    child: Arc<SubscriptionHandle>,
    /// Counts of events by their outcomes.
    pub counters: Counters,
    pub health: Health,
    /// Who holds the event subscription, if it is held.
    pub held: Option<HeldBy>,
    /// The time at which the first pending delivery is due.
    pub next_due: Option<Timestamp>,
    pub concurrency: u32,
    /// Number of events of the log that the event subscription has not passed, before its filter.
    pub backlog: u64,
    /// The first event that it has not passed.
    pub unread: Option<Seq>,
    /// Requests that are in flight, or ended and not yet durable.
    pub in_flight: usize,
    /// Events that clients have received by pulling.
    pub received: u64,
    /// Failed requests by their reasons.
    pub failures: FailureCounts,
}

impl SubscriptionSnapshot {
    /// The figures of `child`, while its log ends at `end`.
    fn from_handle(child: Arc<SubscriptionHandle>, end: Option<Seq>) -> Self {
        let in_flight = child.shared.in_flight();
        child.shared.read_state(|state| {
            let (backlog, unread) = state.count_backlog(end.unwrap_or(state.low));
            let Cursor {
                counters,
                health,
                held,
                ..
            } = state.cursor;
            Self {
                child: Arc::clone(&child),
                counters,
                health,
                held,
                next_due: state.cursor.next_retry(),
                concurrency: state.endpoint.concurrency,
                backlog,
                unread,
                in_flight,
                received: state
                    .cursor
                    .counts
                    .leases
                    .get(&StepKind::Received)
                    .copied()
                    .unwrap_or_default(),
                failures: FailureCounts::from_reasons(&state.cursor.counts.failed),
            }
        })
    }

    pub fn number(&self) -> SubscriptionId {
        self.child.number()
    }

    /// The key of the subscription's name.
    pub fn name(&self) -> &str {
        self.child.name()
    }

    pub fn record(&self) -> Arc<SubscriptionRecord> {
        self.child.shared.record()
    }

    /// Whether clients pull from the subscription and none waits for events.
    pub fn lacks_client(&self) -> bool {
        self.child.shared.plan().settings.pull.is_some() && self.child.shared.waiting_clients() == 0
    }

    /// The number of responses by range of response times; empty if no request was sent since the
    /// process started.
    pub fn response_times(&self) -> Vec<u64> {
        self.child.shared.response_times()
    }
}

impl TopicHandle {
    /// Snapshots of all subscriptions, by the key of their records, each taken when the iterator
    /// comes to it.
    pub fn snapshots(&self) -> impl Iterator<Item = SubscriptionSnapshot> {
        let end = self.log_end();
        self.list_children()
            .into_iter()
            .map(move |child| SubscriptionSnapshot::from_handle(child, end))
    }

    /// The jobs that have not ended, with the record of their subscription.
    pub fn open_jobs(&self) -> Vec<(Arc<SubscriptionRecord>, Job)> {
        let mut open_jobs = Vec::new();
        for child in self.list_children() {
            let record = Arc::clone(&child.shared.plan().record);
            let jobs = child.shared.read_state(|state| state.cursor.jobs.clone());
            open_jobs.extend(jobs.into_iter().map(|job| (Arc::clone(&record), job)));
        }
        open_jobs
    }

    /// The snapshot of one subscription, by the key of its record in any case.
    pub fn snapshot(&self, name: &str) -> Option<SubscriptionSnapshot> {
        self.find_child_named(name)
            .map(|child| SubscriptionSnapshot::from_handle(child, self.log_end()))
    }

    /// Visits all subscriptions, by the key of their records.
    pub fn visit_subscriptions(&self, mut visit: impl FnMut(SubscriptionCensus<'_>)) {
        self.list_children()
            .iter()
            .for_each(|child| self.visit_counted(child, &mut visit));
    }

    /// Calls `visit` with one subscription, found by the key of its record in any case.
    pub fn visit_subscription<T>(
        &self,
        name: &str,
        visit: impl FnOnce(SubscriptionCensus<'_>) -> T,
    ) -> Option<T> {
        self.find_child_named(name)
            .map(|child| self.visit_counted(&child, visit))
    }

    /// Visits the number, the cursor and the backlog of each subscription.
    pub fn visit_cursors(&self, mut visit: impl FnMut(SubscriptionId, &Cursor, u64)) {
        let end = self.log_end();
        for child in self.list_children() {
            child.shared.read_state(|state| {
                let (backlog, _) = state.count_backlog(end.unwrap_or(state.low));
                visit(child.number(), &state.cursor, backlog);
            });
        }
    }

    /// Number and bytes of the events that the topic has accepted since it was created.
    pub fn accepted_totals(&self) -> RunningTotals {
        self.journal
            .log_end(self.partition())
            .map(|end| end.running)
            .unwrap_or_default()
    }

    pub fn meter(&self) -> &TopicMeter {
        &self.meter
    }

    /// The time at which the event at `seq` was appended, or the next one that the log still has.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn appended_at(&self, seq: Seq) -> Result<Option<Timestamp>, journal::Error> {
        // Reads one chunk by a seek.
        let slice = self
            .journal
            .reader_pool()
            .read_log(self.partition(), seq, seq.plus(1), 1)
            .await?;
        Ok(slice.chunks.first().map(|chunk| chunk.appended))
    }

    fn visit_counted<T>(
        &self,
        child: &SubscriptionHandle,
        visit: impl FnOnce(SubscriptionCensus<'_>) -> T,
    ) -> T {
        let shared = &child.shared;
        let plan = child.shared.plan();
        let end = self.log_end();
        // Everything that has a lock of its own is read before the state is locked.
        let in_flight = shared.in_flight();
        let late_requests = shared.late_requests();
        let quarantined = shared.quarantined_count();
        let incarnation = child.history.incarnation_number();
        let ends = child.history.incarnation_ends();
        let measured = shared.read_measures();
        shared.read_state(|state| {
            let (backlog, unread) = state.count_backlog(end.unwrap_or(state.low));
            visit(SubscriptionCensus {
                number: child.number(),
                record: &plan.record,
                cursor: &state.cursor,
                endpoint: &state.endpoint,
                backlog,
                unread,
                time_to_live: plan.settings.time_to_live,
                in_flight,
                late_requests,
                incarnation,
                ends,
                quarantined,
                measured,
            })
        })
    }
}
