//! Events about the server itself, from the place where something happens to the system topic.
//!
//! Nobody waits for them: an event that finds the queue full is dropped and counted. `server`
//! publishes what is in the queue.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use gridhook_clock::Clock;
use gridhook_event::{PartitionId, WallTime};
use gridhook_record::{audit::AuditRecord, subscription::SubscriptionRecord, topic::TopicRecord};

/// Maximum number of events that wait to be published.
const WAITING_MAX: usize = 1024;

/// An event about the server.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemEvent {
    pub id: String,
    pub event_type: &'static str,
    /// The resource that the event is about.
    pub subject: String,
    pub at: WallTime,
    pub data: Value,
    /// The partition of the topic whose event subscription it is about.
    pub partition: Option<PartitionId>,
}

/// The sender of the queue, and its counters.
#[derive(Debug)]
pub struct SystemEvents {
    clock: Clock,
    queue: mpsc::Sender<SystemEvent>,
    published: AtomicU64,
    dropped: AtomicU64,
}

impl SystemEvents {
    /// An empty queue, and its receiver.
    pub fn new(clock: Clock) -> (Arc<Self>, mpsc::Receiver<SystemEvent>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        (
            Arc::new(Self {
                clock,
                queue,
                published: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
            }),
            waiting,
        )
    }

    /// The time of an event that happens now.
    pub fn wall_time(&self) -> WallTime {
        self.clock.wall_time()
    }

    /// Puts an event into the queue.
    pub fn report_event(
        &self,
        event_type: &'static str,
        subject: String,
        partition: Option<PartitionId>,
        data: Value,
    ) {
        let id = Uuid::new_v4().to_string();
        let at = self.wall_time();
        if self
            .queue
            .try_send(SystemEvent {
                id,
                event_type,
                subject,
                at,
                data,
                partition,
            })
            .is_err()
        {
            self.count_event(false);
        }
    }

    /// Reports what happened to an event subscription of a topic; `data` gets its
    /// `eventSubscriptionId`.
    pub fn report_subscription(
        &self,
        event_type: &'static str,
        topic: &TopicRecord,
        subscription: &SubscriptionRecord,
        mut data: Value,
    ) {
        let owner = topic.resource_id_of(subscription.filter.domain_topic.as_deref());
        let id = format!("{owner}/eventSubscriptions/{}", subscription.name);
        data["eventSubscriptionId"] = json!(id);
        self.report_event(event_type, id, topic.partitions.first().copied(), data);
    }

    /// Reports what an operator did.
    pub(super) fn report_operation(&self, record: &AuditRecord) {
        let AuditRecord {
            operator,
            identity_type,
            from,
            method,
            path,
            status,
            request_id,
            ..
        } = record;
        let data = json!({
            "operator": operator, "identityType": identity_type, "from": from, "method": method, "path": path,
            "status": status, "requestId": request_id,
        });
        self.report_event("Gridhook.OperatorAction", path.clone(), None, data);
    }

    /// Counts an event that was published, or dropped.
    pub fn count_event(&self, is_published: bool) {
        let counter = if is_published {
            &self.published
        } else {
            &self.dropped
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn event_counts(&self) -> [(&'static str, u64); 2] {
        [("published", &self.published), ("dropped", &self.dropped)]
            .map(|(result, counter)| (result, counter.load(Ordering::Relaxed)))
    }
}
