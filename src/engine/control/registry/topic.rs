//! The part of a topic that outlives its actor: its record, its subscriptions and its inbox.
//!
//! Messages for the actor are put into the inbox, whether the actor runs or not, and wake it. The
//! first message starts the actor.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use actix::Addr;
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;

use super::{Error, domain};
use crate::{
    control::catalogue::Catalogue,
    fanout::{TopicActor, meter::TopicMeter},
    insight::event_finder::{EventSelector, ExplainResult, explain_event},
    supervision::{Lifeline, LifelineWatch, Supervision, SupervisionHistory},
};
use gridhook_event::{
    Name, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp, chunk::Chunk,
};
use gridhook_journal as journal;
use gridhook_journal::{CrowdedPartition, Journal};
use gridhook_policy::record::{Cursor, DueKey, EndpointView, Traffic};
use gridhook_record::{proposal::Proposal, subscription::SubscriptionRecord, topic::TopicRecord};
use gridhook_subscription::{
    DeliveryPlan, QuarantinedEvents, SharedState,
    recent_events::{RecentBudget, RecentEvents},
};

/// Maximum memory of chunks in the inbox of a topic's actor. Subscriptions read the rest from the
/// log.
const INBOX_BYTES: usize = 8 * 1024 * 1024;

/// The state of a subscription, for operators.
#[derive(Clone, Debug)]
pub struct SubscriptionStatus {
    /// The cursor, without the open events.
    pub cursor: Cursor,
    /// The state of the endpoint that is not in the cursor.
    pub endpoint: EndpointView,
    /// Events of the log that it has not passed, before its filter.
    pub backlog: u64,
    /// Requests that are in flight, or ended and not yet durable.
    pub in_flight: usize,
    /// Requests that timed out and may still succeed.
    pub late_requests: usize,
    /// The time at which the oldest event of the backlog was appended; [`None`] if the backlog is
    /// empty.
    pub oldest_unread: Option<Timestamp>,
    pub supervision: Supervision,
    pub quarantined: QuarantinedEvents,
}

#[derive(Debug)]
pub struct SubscriptionHandle {
    /// The key of the name, by which a list of thousands is sorted.
    name: Box<str>,
    /// The state that outlives the subscription's actor.
    pub shared: Arc<SharedState>,
    pub history: SupervisionHistory,
    /// The number that chooses the arbiter of the subscription's actor.
    host: u32,
    served: Mutex<Option<Arc<DeliveryPlan>>>,
}

impl SubscriptionHandle {
    fn new(shared: SharedState, host: u32) -> Self {
        let name = shared.record().name.key().into();
        let history = SupervisionHistory::default();
        Self {
            name,
            shared: Arc::new(shared),
            history,
            host,
            served: Mutex::new(None),
        }
    }

    /// The number that chooses the arbiter of its actor, the same for all incarnations. The first
    /// subscription of a topic is on the arbiter of the topic's actor, so that an event wakes one
    /// thread; the others are spread over all.
    pub fn host_number(&self) -> u32 {
        self.host
    }

    /// The key of the subscription's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn number(&self) -> SubscriptionId {
        self.shared.subscription_key.subscription
    }

    /// Whether the running actor was built for another plan.
    pub fn is_outdated(&self) -> bool {
        let record_in_service = self.served.lock();
        !record_in_service
            .as_ref()
            .is_some_and(|served| Arc::ptr_eq(served, &self.shared.plan()))
    }

    /// Notes that an actor is built for the current plan.
    pub fn note_served_plan(&self) {
        *self.served.lock() = Some(self.shared.plan());
    }
}

/// An existing topic or domain.
pub struct TopicHandle {
    partition: PartitionId,
    record: RwLock<Arc<TopicRecord>>,
    catalogue: RwLock<Option<Arc<Catalogue>>>,
    /// The subscriptions by the key of their records.
    children: RwLock<BTreeMap<String, Arc<SubscriptionHandle>>>,
    /// The proposals by the key of their subscriptions' records.
    pub(super) proposals: RwLock<BTreeMap<String, Arc<Proposal>>>,
    pub(super) domain_topics: RwLock<domain::DomainTopics>,
    recent: Arc<RecentEvents>,
    pub(super) journal: Journal,
    inbox: Mutex<TopicInbox>,
    history: SupervisionHistory,
    pub(super) meter: TopicMeter,
    running: AtomicBool,
    starts: mpsc::UnboundedSender<Arc<TopicHandle>>,
    lifeline: Lifeline,
}

#[derive(Default)]
struct TopicInbox {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    changed: bool,
    check_is_due: bool,
    woken: bool,
    waker: Option<Waker>,
    /// The address of the actor, for injected faults.
    mailbox: Option<Addr<TopicActor>>,
}

/// A message for a topic's actor.
pub enum TopicMessage {
    Changed,
    /// The periodic check is due.
    CheckDue,
    /// The next chunk of the log. Earlier chunks may be missing.
    Chunk(Chunk),
}

impl TopicHandle {
    /// Makes a topic without subscriptions. The handle is sent to `starts` when the topic's actor
    /// must be started.
    pub(super) fn new(
        record: Arc<TopicRecord>,
        budget: Arc<RecentBudget>,
        journal: Journal,
        starts: mpsc::UnboundedSender<Arc<Self>>,
    ) -> Result<Self, Error> {
        let Some(partition) = record.partitions.first().copied() else {
            return Err(Error::Unreadable {
                name: record.name.to_string(),
                reason: "it has no partition".to_owned(),
            });
        };
        if record.is_spread() {
            journal.divide_backlog(partition, record.partition_count);
        }
        Ok(Self {
            partition,
            catalogue: RwLock::new(Catalogue::from_topic(&record).map(Arc::new)),
            record: RwLock::new(record),
            children: RwLock::default(),
            proposals: RwLock::default(),
            domain_topics: RwLock::default(),
            recent: Arc::new(RecentEvents::new(budget)),
            journal,
            inbox: Mutex::default(),
            history: SupervisionHistory::default(),
            meter: TopicMeter::default(),
            running: AtomicBool::new(false),
            starts,
            lifeline: Lifeline::new(),
        })
    }

    pub fn record(&self) -> Arc<TopicRecord> {
        Arc::clone(&self.record.read())
    }

    /// The compiled event types; [`None`] if the topic validates no event.
    pub fn catalogue(&self) -> Option<Arc<Catalogue>> {
        self.catalogue.read().clone()
    }

    pub(super) fn set_record(&self, record: Arc<TopicRecord>) {
        let before = self.record();
        if record.ingress.schema_validation != before.ingress.schema_validation
            || record.azure_properties.event_type_info != before.azure_properties.event_type_info
        {
            let catalogue = Catalogue::from_topic(&record).map(Arc::new);
            *self.catalogue.write() = catalogue;
        }
        *self.record.write() = record;
    }

    /// The partition of the topic's log.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The key of the event subscription with this number.
    pub fn subscription_key(&self, subscription: SubscriptionId) -> SubscriptionKey {
        SubscriptionKey {
            partition: self.partition,
            subscription,
        }
    }

    /// The sequence of the next event in the topic's log.
    pub(super) fn log_end(&self) -> Option<Seq> {
        Some(self.journal.log_end(self.partition)?.next)
    }

    /// The subscriptions in the order of their names.
    pub fn list_subscriptions(&self) -> Vec<Arc<SubscriptionRecord>> {
        self.list_children()
            .iter()
            .map(|child| Arc::clone(&child.shared.plan().record))
            .collect()
    }

    pub fn subscription_count(&self) -> usize {
        self.children.read().len()
    }

    /// Finds a subscription by the key of its record in any case.
    pub fn find_subscription(&self, name: &str) -> Option<Arc<SubscriptionRecord>> {
        Some(Arc::clone(
            &self.find_child_named(name)?.shared.plan().record,
        ))
    }

    /// How the subscription with this key is delivered.
    pub fn delivery_plan(&self, name: &str) -> Option<Arc<DeliveryPlan>> {
        Some(self.find_child_named(name)?.shared.plan())
    }

    pub fn subscription_record(&self, number: SubscriptionId) -> Option<Arc<SubscriptionRecord>> {
        Some(Arc::clone(&self.find_child(number)?.shared.plan().record))
    }

    pub fn subscription_name(&self, number: SubscriptionId) -> Option<Name> {
        Some(self.find_child(number)?.shared.plan().record.name.clone())
    }

    /// The partition, if its backlog is at its limit, or close to it.
    pub fn crowded_partition(&self) -> Option<CrowdedPartition> {
        self.journal.crowded_partition(self.partition)
    }

    /// The state of one subscription of the topic.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn read_status(
        &self,
        name: &str,
    ) -> Result<Option<SubscriptionStatus>, journal::Error> {
        let Some(child) = self.find_child_named(name) else {
            return Ok(None);
        };
        let state = child.shared.current_state();
        let (backlog, unread) = state.count_backlog(self.log_end().unwrap_or(state.low));
        let oldest_unread = match unread {
            Some(sequence) => self.appended_at(sequence).await?,
            None => None,
        };
        Ok(Some(SubscriptionStatus {
            backlog,
            cursor: state.cursor,
            endpoint: state.endpoint,
            in_flight: child.shared.in_flight(),
            late_requests: child.shared.late_requests(),
            oldest_unread,
            supervision: child.history.read_state(),
            quarantined: child.shared.quarantined_events(),
        }))
    }

    /// Supervision and quarantined events of its subscriptions, by the key of their records.
    pub fn list_supervised(&self) -> Vec<(String, Supervision, QuarantinedEvents)> {
        let mut supervised = Vec::new();
        for child in self.list_children() {
            let name = child.shared.plan().record.key();
            let supervision = child.history.read_state();
            supervised.push((name, supervision, child.shared.quarantined_events()));
        }
        supervised
    }

    /// Explains why an event waits for a subscription. [`None`] if the subscription does not exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn explain_event(
        &self,
        name: &str,
        selector: EventSelector,
        now: Timestamp,
    ) -> Result<Option<ExplainResult>, journal::Error> {
        let Some(child) = self.find_child_named(name) else {
            return Ok(None);
        };
        let end = self.log_end().ok_or(journal::Error::Unknown)?;
        explain_event(
            &child.shared,
            self.journal.reader_pool(),
            selector,
            end,
            now,
        )
        .await
        .map(Some)
    }

    /// Pending deliveries of a subscription in the order of their due times, and whether these are
    /// all. [`None`] if the subscription does not exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn pending_from(
        &self,
        name: &str,
        from: DueKey,
        max: usize,
    ) -> Result<Option<(Vec<DueKey>, bool)>, journal::Error> {
        let Some(child) = self.find_child_named(name) else {
            return Ok(None);
        };
        self.journal
            .reader_pool()
            .read_due(child.shared.subscription_key, Traffic::Live, from, max)
            .await
            .map(Some)
    }

    pub fn supervision_history(&self) -> &SupervisionHistory {
        &self.history
    }

    /// A watch on the lifeline of the topic's actor.
    pub fn watch_lifeline(&self) -> LifelineWatch {
        self.lifeline.new_watch()
    }

    pub fn recent_events(&self) -> &Arc<RecentEvents> {
        &self.recent
    }

    pub fn list_children(&self) -> Vec<Arc<SubscriptionHandle>> {
        self.children.read().values().cloned().collect()
    }

    pub fn find_child(&self, number: SubscriptionId) -> Option<Arc<SubscriptionHandle>> {
        let children = self.children.read();
        children
            .values()
            .find(|child| child.number() == number)
            .cloned()
    }

    /// The shared state of one subscription, by the key of its record in any case.
    pub fn find_shared_state(&self, name: &str) -> Option<Arc<SharedState>> {
        Some(Arc::clone(&self.find_child_named(name)?.shared))
    }

    /// Starts the actor of a subscription if it does not run.
    pub fn ensure_actor(self: &Arc<Self>, shared: &SharedState) {
        if shared.has_no_actor() {
            self.notify_changed();
        }
    }

    pub(super) fn find_child_named(&self, name: &str) -> Option<Arc<SubscriptionHandle>> {
        let children = self.children.read();
        children.get(&name.to_ascii_lowercase()).cloned()
    }

    pub(super) fn add_child(&self, plan: Arc<DeliveryPlan>, cursor: Option<Cursor>) {
        let key = plan.record.key();
        let subscription_key = SubscriptionKey {
            partition: self.partition,
            subscription: plan.record.number,
        };
        let end = match &cursor {
            Some(_) => self.log_end().unwrap_or(Seq::FIRST),
            // The cursor could not be read. Until its actor runs, the subscription counts as
            // behind, so that the actor is started and reads it.
            None => Seq::FIRST,
        };
        let state = SharedState::new(subscription_key, plan, cursor.unwrap_or_default(), end);
        let mut children = self.children.write();
        // Wraps around beyond any number of arbiters.
        let host = self.partition.0.wrapping_add(children.len() as u32);
        children.insert(key, Arc::new(SubscriptionHandle::new(state, host)));
    }

    /// Removes a deleted subscription.
    pub(super) fn remove_child(&self, name: &str) {
        let child = self.children.write().remove(&name.to_ascii_lowercase());
        if let Some(child) = child {
            child.shared.end_waits();
        }
    }

    /// Stops everything: the topic was deleted.
    pub(super) fn stop_all(&self) {
        let children = std::mem::take(&mut *self.children.write());
        for child in children.values() {
            child.shared.end_waits();
        }
        self.proposals.write().clear();
        self.lifeline.end_children();
    }

    /// Sets the address of the actor that now runs.
    pub fn set_mailbox(&self, mailbox: Addr<TopicActor>) {
        let mut inbox = self.inbox.lock();
        inbox.mailbox = Some(mailbox);
        inbox.check_is_due = false;
    }

    /// Takes the next message. If there is none, the next one wakes the actor with this waker.
    pub fn take_message(&self, waker: &Waker) -> Option<TopicMessage> {
        let mut inbox = self.inbox.lock();
        if std::mem::take(&mut inbox.changed) {
            return Some(TopicMessage::Changed);
        }
        if std::mem::take(&mut inbox.check_is_due) {
            return Some(TopicMessage::CheckDue);
        }
        let chunk = inbox.chunks.pop_front();
        match &chunk {
            Some(chunk) => inbox.bytes -= chunk.memory_bytes(),
            None => {
                inbox.woken = false;
                inbox
                    .waker
                    .get_or_insert_with(|| waker.clone())
                    .clone_from(waker);
            }
        }
        chunk.map(TopicMessage::Chunk)
    }

    /// Notes that the actor's periodic check is due.
    pub fn note_check_due(&self) {
        let mut inbox = self.inbox.lock();
        inbox.check_is_due = true;
        let wake = inbox.take_wake();
        drop(inbox);
        wake.send_wake();
    }

    /// Marks the actor as stopped. Returns false if a message has arrived, so that it must go on.
    pub fn try_retire(&self) -> bool {
        let mut inbox = self.inbox.lock();
        if inbox.changed || !inbox.chunks.is_empty() {
            return false;
        }
        inbox.mailbox = None;
        inbox.waker = None;
        // Under the lock, so that a later message starts a new actor.
        self.running.store(false, Ordering::Release);
        true
    }

    /// The address of the running actor.
    pub(super) fn actor_address(&self) -> Option<Addr<TopicActor>> {
        self.inbox.lock().mailbox.clone()
    }

    pub(super) fn add_chunks(self: &Arc<Self>, chunks: Vec<Chunk>) {
        let mut inbox = self.inbox.lock();
        for chunk in chunks {
            inbox.bytes += chunk.memory_bytes();
            inbox.chunks.push_back(chunk);
        }
        while inbox.bytes > INBOX_BYTES {
            let Some(oldest) = inbox.chunks.pop_front() else {
                break;
            };
            inbox.bytes -= oldest.memory_bytes();
        }
        let wake = inbox.take_wake();
        drop(inbox);
        wake.send_wake();
        self.ensure_running();
    }

    /// Notes that the subscriptions were changed.
    pub(super) fn notify_changed(self: &Arc<Self>) {
        let mut inbox = self.inbox.lock();
        inbox.changed = true;
        let wake = inbox.take_wake();
        drop(inbox);
        wake.send_wake();
        self.ensure_running();
    }

    pub(super) fn ensure_running(self: &Arc<Self>) {
        if !self.running.swap(true, Ordering::AcqRel) {
            // Fails only if the server stops.
            self.starts.send(Arc::clone(self)).ok();
        }
    }
}

impl TopicInbox {
    fn take_wake(&mut self) -> PendingWake {
        let waker = if self.woken { None } else { self.waker.clone() };
        self.woken |= waker.is_some();
        PendingWake(waker)
    }
}

/// A wake to be sent after the inbox is unlocked, because the woken thread locks it at once.
#[must_use]
struct PendingWake(Option<Waker>);

impl PendingWake {
    fn send_wake(self) {
        if let Some(waker) = self.0 {
            waker.wake();
        }
    }
}
