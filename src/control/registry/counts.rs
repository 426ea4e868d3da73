//! How all subscriptions of a topic are, in one look: for those who count. It asks no actor and reads no disk.

use std::{sync::Arc, time::Duration};

use super::{SubscriptionHandle, TopicHandle};
use crate::{
    control::record::subscription::SubscriptionRecord,
    event::{Seq, SubscriptionId, Timestamp},
    fanout::meter::TopicMeter,
    journal,
    policy::record::{Cursor, EndpointView},
    store::chunk::LogTail,
    subscription::SubscriptionMeasures,
    supervision::IncarnationEnds,
};

/// A subscription, as it is now.
#[derive(Clone, Debug)]
pub struct SubscriptionCensus {
    /// As it was set up.
    pub record: Arc<SubscriptionRecord>,
    /// Its cursor, without the open events.
    pub cursor: Cursor,
    /// Its endpoint, beside what the cursor says of it.
    pub endpoint: EndpointView,
    /// Events of the log that it has not passed, before its filter.
    pub backlog: u64,
    /// The first of them.
    pub unread: Option<Seq>,
    /// How old an event may become before it is given up.
    pub time_to_live: Duration,
    /// Requests on their way, or back and not durable.
    pub in_flight: usize,
    /// Requests that may be answered yet though their wait is over.
    pub late_requests: usize,
    /// The number of the life that its actor is in.
    pub incarnation: u64,
    /// How its lives ended.
    pub ends: IncarnationEnds,
    /// Events that were put aside for killing it, since the process started.
    pub quarantined: u64,
    /// How long its requests took; [`None`] where none has left since the process started.
    pub measured: Option<SubscriptionMeasures>,
}

impl TopicHandle {
    /// All of its subscriptions, by the key of their records.
    pub fn census(&self) -> Vec<SubscriptionCensus> {
        self.children().iter().map(|child| self.counted(child)).collect()
    }

    /// One of them, by the key of its record in any case.
    pub fn count(&self, name: &str) -> Option<SubscriptionCensus> {
        self.child_named(name).map(|child| self.counted(&child))
    }

    /// How many events, and how many bytes of them, it has taken since it was made.
    pub fn taken(&self) -> LogTail {
        self.journal.end(self.partition()).map(|end| end.running).unwrap_or_default()
    }

    /// What is counted of its publishers.
    pub fn meter(&self) -> &TopicMeter {
        &self.meter
    }

    /// When the journal took the event at `seq`, or the next one that the log still has.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub async fn appended_at(&self, seq: Seq) -> Result<Option<Timestamp>, journal::Error> {
        // One chunk, found by a seek.
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
