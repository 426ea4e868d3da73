//! Snapshots of all subscriptions of a topic, for metrics. Sends nothing to actors and reads no disk.

use std::{sync::Arc, time::Duration};

use super::{SubscriptionHandle, TopicHandle};
use crate::{
    control::record::subscription::SubscriptionRecord,
    event::{Seq, SubscriptionId, Timestamp},
    fanout::meter::TopicMeter,
    journal,
    policy::record::{Counters, Cursor, EndpointView, Health, HeldBy, job::Job},
    store::chunk::LogTail,
    subscription::SubscriptionMeasures,
    supervision::IncarnationEnds,
};

/// A snapshot of a subscription.
#[derive(Clone, Debug)]
pub struct SubscriptionCensus {
    /// Its record.
    pub record: Arc<SubscriptionRecord>,
    /// The cursor, without the open events.
    pub cursor: Cursor,
    /// The endpoint, beyond what the cursor says of it.
    pub endpoint: EndpointView,
    /// Events of the log that it has not passed, before its filter.
    pub backlog: u64,
    /// The first of them.
    pub unread: Option<Seq>,
    /// Time to live of events.
    pub time_to_live: Duration,
    /// Requests that are in flight, or answered and not yet durable.
    pub in_flight: usize,
    /// Requests that timed out and may still be answered.
    pub late_requests: usize,
    /// Number of the current incarnation of its actor.
    pub incarnation: u64,
    /// Ended incarnations, by cause.
    pub ends: IncarnationEnds,
    /// Events that were quarantined since the process started.
    pub quarantined: u64,
    /// Durations of its requests; [`None`] if none was sent since the process started.
    pub measured: Option<SubscriptionMeasures>,
}

/// The figures of a subscription that a list of thousands shows.
#[derive(Clone, Debug)]
pub struct SubscriptionSnapshot {
    /// Its handle. The record is read from there by need, because it is in memory of its own, far from the figures.
    child: Arc<SubscriptionHandle>,
    /// Outcomes of published events.
    pub counters: Counters,
    /// The endpoint's health.
    pub health: Health,
    /// Whether it is held, and why.
    pub held: Option<HeldBy>,
    /// When the first pending delivery is due.
    pub next_due: Option<Timestamp>,
    /// Maximum requests in flight.
    pub concurrency: u32,
    /// Events of the log that it has not passed, before its filter.
    pub backlog: u64,
    /// The first of them.
    pub unread: Option<Seq>,
    /// Requests that are in flight, or answered and not yet durable.
    pub in_flight: usize,
}

impl SubscriptionSnapshot {
    /// Its number.
    pub fn number(&self) -> SubscriptionId {
        self.child.number()
    }

    /// The key of its name.
    pub fn name(&self) -> &str {
        self.child.name()
    }

    /// Its record.
    pub fn record(&self) -> Arc<SubscriptionRecord> {
        self.child.shared.record()
    }
}

impl TopicHandle {
    /// Snapshots of all subscriptions, by the key of their records.
    pub fn snapshots(&self) -> Vec<SubscriptionSnapshot> {
        self.snapshots_of(self.children())
    }

    fn snapshots_of(&self, children: Vec<Arc<SubscriptionHandle>>) -> Vec<SubscriptionSnapshot> {
        let end = self.log_end();
        let snapshot = |child: Arc<SubscriptionHandle>| {
            let in_flight = child.shared.in_flight();
            let (backlog, unread, next_due, concurrency, counters, health, held) = child.shared.read_state(|state| {
                let (backlog, unread) = state.backlog(end.unwrap_or(state.low));
                let Cursor { counters, health, held, .. } = state.cursor;
                (backlog, unread, state.cursor.next_retry(), state.endpoint.concurrency, counters, health, held)
            });
            SubscriptionSnapshot { child, counters, health, held, next_due, concurrency, backlog, unread, in_flight }
        };
        children.into_iter().map(snapshot).collect()
    }

    /// The jobs that have not ended, with the record of their subscription.
    pub fn open_jobs(&self) -> Vec<(Arc<SubscriptionRecord>, Job)> {
        let open = |child: &Arc<SubscriptionHandle>| {
            let record = Arc::clone(&child.shared.plan().record);
            let jobs = child.shared.read_state(|state| state.cursor.jobs.clone());
            jobs.into_iter().map(move |job| (Arc::clone(&record), job)).collect::<Vec<_>>()
        };
        self.children().iter().flat_map(open).collect()
    }

    /// Snapshots of all subscriptions with their response times by range since the process started.
    pub fn snapshots_with_response_times(&self) -> Vec<(SubscriptionSnapshot, Vec<u64>)> {
        let children = self.children();
        let times: Vec<_> = children.iter().map(|child| child.shared.response_times()).collect();
        self.snapshots_of(children).into_iter().zip(times).collect()
    }

    /// All subscriptions, by the key of their records.
    pub fn census(&self) -> Vec<SubscriptionCensus> {
        self.children().iter().map(|child| self.counted(child)).collect()
    }

    /// One subscription, by the key of its record in any case.
    pub fn count(&self, name: &str) -> Option<SubscriptionCensus> {
        self.child_named(name).map(|child| self.counted(&child))
    }

    /// Number and bytes of the events that the topic has accepted since it was created.
    pub fn taken(&self) -> LogTail {
        self.journal.end(self.partition()).map(|end| end.running).unwrap_or_default()
    }

    /// Counters of its publishers.
    pub fn meter(&self) -> &TopicMeter {
        &self.meter
    }

    /// When the event at `seq` was appended, or the next one that the log still has.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn appended_at(&self, seq: Seq) -> Result<Option<Timestamp>, journal::Error> {
        // Reads one chunk by a seek.
        let slice = self.journal.reads().log(self.partition(), seq, seq.plus(1), 1).await?;
        Ok(slice.chunks.first().map(|chunk| chunk.appended))
    }

    fn counted(&self, child: &SubscriptionHandle) -> SubscriptionCensus {
        let (shared, plan) = (&child.shared, child.shared.plan());
        let state = shared.state();
        let (backlog, unread) = state.backlog(self.log_end().unwrap_or(state.low));
        SubscriptionCensus {
            record: Arc::clone(&plan.record),
            endpoint: state.endpoint,
            cursor: state.cursor,
            backlog,
            unread,
            time_to_live: plan.settings.time_to_live,
            in_flight: shared.in_flight(),
            late_requests: shared.late_requests(),
            incarnation: child.history.incarnation(),
            ends: child.history.ends(),
            quarantined: shared.quarantined_count(),
            measured: shared.measured(),
        }
    }
}

impl SubscriptionCensus {
    /// Its number.
    pub fn number(&self) -> SubscriptionId {
        self.record.number
    }
}
