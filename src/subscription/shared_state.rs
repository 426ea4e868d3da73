//! The part of a subscription that outlives its actor: the plan, the requests in flight, and what
//! arrives for the actor.
//!
//! **A result belongs to an attempt, not to an incarnation.** A request is noted here before it is
//! sent, and removed by the journal's thread once its outcome is durable. A new incarnation
//! receives the requests in flight and their results: after a panic, nothing is sent twice.
//!
//! Messages for the actor are kept here; a wake carries none. A lost wake costs latency, never
//! an event.

mod chaos;
mod commands;
mod in_flight;
mod late_requests;
mod meter;
mod pull;
mod suspects;
mod view;

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
    task::Waker,
};

use actix::Addr;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

pub(super) use self::commands::{ActorRequest, WrittenCommands};
use self::{
    commands::CommandQueue, late_requests::LateRequests, meter::SubscriptionMeter, pull::PullQueue,
    suspects::Suspects,
};
pub use self::{
    commands::CommandResult,
    meter::{PHASE_NAMES, SubscriptionMeasures},
    pull::{Received, WaitingClient},
    suspects::QuarantinedEvents,
    view::SubscriptionState,
};
use crate::{DeliveryPlan, ReadGrant, SubscriptionActor};
use gridhook_event::{Incarnation, Lane, RequestId, RequestMap, Seq, SubscriptionKey};
use gridhook_journal as journal;
use gridhook_journal::LogSlice;
use gridhook_policy::{
    Input, OutgoingBatch, SubscriptionSettings,
    endpoint::limit_of_new,
    outcome::RequestResult,
    record::{Cursor, EndpointView, RecordChange},
};
use gridhook_record::subscription::SubscriptionRecord;
use gridhook_telemetry::trace::SpanContext;

/// A message for the actor of a subscription.
#[derive(Debug)]
pub enum SharedStateMessage {
    Input(Input),
    /// Input for the core, with the grant that it holds until the core has it.
    Read(Input, ReadGrant),
    /// Input for the core whose events are transformed, with the grant that it holds until the core
    /// has it.
    Transformed(Input, Option<ReadGrant>),
    /// A slice of the log, to be filtered.
    Slice(Lane, Seq, LogSlice, ReadGrant),
    /// A socket is free for the next request.
    SocketFree,
    /// Memory is free for the body of the next request.
    MemoryFree,
    /// The actor's timer is due.
    Timer,
    /// The journal reported an error: this incarnation must end.
    Failed(journal::Error),
}

/// The shared state of one subscription in one partition.
#[derive(Debug)]
pub struct SharedState {
    pub subscription_key: SubscriptionKey,
    inner: Mutex<SharedInner>,
    view: Mutex<SubscriptionState>,
    /// Number of delivery tasks that must panic (chaos). Every task reads it, so it is not under
    /// the lock.
    doomed: AtomicU32,
    /// Whether there is an event that the actor must panic on (chaos). Read for each request.
    has_poison: AtomicBool,
    /// Created with the first request.
    meter: OnceLock<Box<SubscriptionMeter>>,
}

#[derive(Debug)]
struct SharedInner {
    plan: Arc<DeliveryPlan>,
    incarnation: Incarnation,
    /// While the actor runs; for faults that are injected.
    mailbox: Option<Addr<SubscriptionActor>>,
    waker: Option<Waker>,
    /// Whether the actor was woken and has not begun the turn.
    is_woken: bool,
    end: Seq,
    reports: Vec<SharedStateMessage>,
    commands: CommandQueue,
    /// Created with the first client that pulls. Boxed, as the late requests and the suspects: most
    /// subscriptions have none.
    queue: Option<Box<PullQueue>>,
    /// Whether a write of the current incarnation is in the journal.
    is_writing: bool,
    /// Whether a write is durable and the actor does not know it.
    is_written: bool,
    /// Whether the actor is to be woken when the write is durable.
    awaits_write: bool,
    /// Boxed: the map keeps room for several.
    requests: RequestMap<Box<InFlightRequest>>,
    next_request: RequestId,
    late_requests: Option<Box<LateRequests>>,
    suspects: Option<Box<Suspects>>,
    is_closing: bool,
    is_deleted: bool,
    has_progressed: bool,
    /// Whether the plan has another endpoint than that of the incarnation.
    is_moved: bool,
}

#[derive(Debug)]
struct InFlightRequest {
    request: Arc<OutgoingBatch>,
    result: Option<RequestResult>,
    task: Option<AbortHandle>,
    /// The span of the attempt, if it is recorded.
    span: Option<SpanContext>,
}

/// State that a new incarnation of the actor takes over.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) plan: Arc<DeliveryPlan>,
    pub(super) requests: Vec<Arc<OutgoingBatch>>,
    pub(super) next_request: RequestId,
    pub(super) inputs: Vec<Input>,
    /// Whether the incarnation is the first one since the server started.
    pub(super) is_first: bool,
    /// Whether the plan has another endpoint than before.
    pub(super) is_moved: bool,
}

/// Everything that arrived since the last wake.
#[derive(Debug)]
pub(super) struct ArrivedMessages {
    pub(super) end: Seq,
    /// Whether the last write is durable, with the commands in it.
    pub(super) is_written: bool,
    pub(super) is_closing: bool,
    pub(super) has_requests: bool,
    pub(super) reports: Vec<SharedStateMessage>,
    pub(super) pulls: VecDeque<Input>,
}

impl SharedState {
    /// The shared state of a subscription with this cursor.
    pub fn new(
        subscription_key: SubscriptionKey,
        plan: Arc<DeliveryPlan>,
        cursor: Cursor,
        end: Seq,
    ) -> Self {
        let SubscriptionSettings {
            concurrency_max,
            batch,
            ..
        } = *plan.settings;
        if let (Some(wait), Some(until)) = (
            &plan.retry_after,
            cursor.pace.wait_of(plan.settings.endpoint),
        ) {
            wait.extend(until);
        }
        // Until the first incarnation runs, these are the limits for a new endpoint.
        let concurrency = limit_of_new(concurrency_max);
        let endpoint = EndpointView {
            concurrency,
            events_max: batch.events_max,
            ..EndpointView::default()
        };
        let inner = SharedInner {
            plan,
            incarnation: Incarnation(0),
            mailbox: None,
            waker: None,
            is_woken: false,
            end,
            reports: Vec::new(),
            commands: CommandQueue::default(),
            queue: None,
            is_writing: false,
            is_written: false,
            awaits_write: false,
            requests: RequestMap::default(),
            next_request: RequestId(1),
            late_requests: None,
            suspects: None,
            is_closing: false,
            is_deleted: false,
            has_progressed: false,
            is_moved: false,
        };
        let view = Mutex::new(SubscriptionState::new(cursor, endpoint, end));
        let doomed = AtomicU32::new(0);
        let has_poison = AtomicBool::new(false);
        Self {
            subscription_key,
            inner: Mutex::new(inner),
            view,
            doomed,
            has_poison,
            meter: OnceLock::new(),
        }
    }

    pub fn plan(&self) -> Arc<DeliveryPlan> {
        Arc::clone(&self.lock_inner().plan)
    }

    /// The record of the current plan.
    pub fn record(&self) -> Arc<SubscriptionRecord> {
        Arc::clone(&self.lock_inner().plan.record)
    }

    /// Replaces the plan. The next incarnation uses it, and probes another endpoint at once.
    pub fn set_plan(&self, plan: Arc<DeliveryPlan>) {
        let mut inner = self.lock_inner();
        inner.is_moved |= inner.plan.settings.endpoint != plan.settings.endpoint;
        inner.plan = plan;
    }

    /// Number of requests that are in flight, or ended and not yet durable.
    pub fn in_flight(&self) -> usize {
        self.lock_inner().requests.len()
    }

    /// The requests that are in flight, or ended and not yet durable.
    pub fn requests_in_flight(&self) -> Vec<Arc<OutgoingBatch>> {
        self.lock_inner()
            .requests
            .values()
            .map(|in_flight| Arc::clone(&in_flight.request))
            .collect()
    }

    /// Number of requests that have timed out and may still succeed.
    pub fn late_requests(&self) -> usize {
        self.lock_inner()
            .late_requests
            .as_ref()
            .map_or(0, |late| late.len())
    }

    /// Whether the subscription has nothing to do while the log ends at `end`.
    pub fn is_idle(&self, end: Seq) -> bool {
        let inner = self.lock_inner();
        inner.requests.is_empty()
            && inner
                .late_requests
                .as_ref()
                .is_none_or(|late| late.iter_successes().next().is_none())
            && !inner.is_writing
            && inner.commands.is_empty()
            && inner.queue.as_ref().is_none_or(|queue| queue.is_idle())
            && self.lock_view().is_idle(end)
    }

    pub fn has_requests(&self) -> bool {
        let inner = self.lock_inner();
        !inner.commands.is_empty() || inner.queue.as_ref().is_some_and(|queue| !queue.is_idle())
    }

    /// Notes the new end of the log. False if it is not new.
    pub fn set_log_end(&self, end: Seq) -> bool {
        let mut inner = self.lock_inner();
        if end <= inner.end {
            return false;
        }
        inner.end = end;
        self.wake_actor(inner);
        true
    }

    /// Reports a result that `incarnation` requested. Later incarnations do not need it.
    pub fn report_result(&self, incarnation: Incarnation, report: SharedStateMessage) {
        let mut inner = self.lock_inner();
        if inner.incarnation == incarnation {
            inner.reports.push(report);
            self.wake_actor(inner);
        }
    }

    /// Drops unread events below `below` because the topic's backlog is too large. Has no effect
    /// while no actor runs.
    pub fn drop_unread(&self, below: Seq) {
        let mut inner = self.lock_inner();
        if inner.mailbox.is_some() {
            inner
                .reports
                .push(SharedStateMessage::Input(Input::Overflow { below }));
            self.wake_actor(inner);
        }
    }

    /// Makes the actor drop events that it has read and not sent: others need the memory.
    pub fn drop_read_events(&self) {
        let mut inner = self.lock_inner();
        if inner.mailbox.is_some() {
            inner
                .reports
                .push(SharedStateMessage::Input(Input::ReleaseMemory));
            self.wake_actor(inner);
        }
    }

    /// Stops sending: the server stops.
    pub fn close(&self) {
        let mut inner = self.lock_inner();
        inner.is_closing = true;
        self.wake_actor(inner);
    }

    /// Ends the waits of clients and operators: the subscription was deleted, and no actor replies
    /// any more. Later requests end at once.
    pub fn end_waits(&self) {
        let mut inner = self.lock_inner();
        inner.is_deleted = true;
        // Dropping the senders of the replies ends the waits.
        let clients = inner.queue.take();
        let requests = std::mem::take(&mut inner.commands);
        drop(inner);
        drop(clients);
        drop(requests);
    }

    pub fn is_deleted(&self) -> bool {
        self.lock_inner().is_deleted
    }

    // --- incarnations ---

    /// Begins a new incarnation, which alone may write from now on.
    pub(super) fn begin_incarnation(&self, incarnation: Incarnation, end: Seq) -> Handover {
        let mut inner = self.lock_inner();
        let is_first = inner.incarnation == Incarnation(0);
        inner.incarnation = incarnation;
        inner.mailbox = None;
        inner.waker = None;
        // The first turn follows its start.
        inner.is_woken = true;
        inner.end = inner.end.max(end);
        inner.reports.clear();
        inner.is_writing = false;
        inner.is_written = false;
        inner.awaits_write = false;
        inner.commands.begin_incarnation();
        inner
            .queue
            .iter_mut()
            .for_each(|queue| queue.begin_incarnation());
        self.lock_view().ending.clear();
        // The first input, before any other makes the new incarnation process the poison event.
        let event_to_quarantine = inner
            .suspects
            .as_mut()
            .and_then(|suspects| suspects.begin_incarnation());
        let results = inner.requests.values().filter_map(|in_flight| {
            let result = in_flight.result.clone()?;
            Some(Input::Finished {
                request: in_flight.request.id,
                result,
            })
        });
        let late = inner
            .late_requests
            .iter()
            .flat_map(|late| late.iter_successes())
            .map(|request| Input::Late {
                request: Arc::clone(request),
            });
        let inputs = event_to_quarantine
            .map(Input::Quarantine)
            .into_iter()
            .chain(results)
            .chain(late)
            .collect();
        Handover {
            plan: Arc::clone(&inner.plan),
            requests: inner
                .requests
                .values()
                .map(|in_flight| Arc::clone(&in_flight.request))
                .collect(),
            next_request: inner.next_request,
            inputs,
            is_first,
            is_moved: std::mem::take(&mut inner.is_moved),
        }
    }

    /// Sets the address of the new incarnation's actor, which now runs.
    pub(super) fn set_mailbox(&self, mailbox: Addr<SubscriptionActor>) {
        self.lock_inner().mailbox = Some(mailbox);
    }

    /// The actor of `incarnation` has ended. Its waker would keep the memory of its task.
    pub(super) fn on_actor_dropped(&self, incarnation: Incarnation) {
        let mut inner = self.lock_inner();
        if inner.incarnation == incarnation {
            let handles = (inner.mailbox.take(), inner.waker.take());
            drop(inner);
            drop(handles);
        }
    }

    /// The last incarnation ended. Only a panic that chaos did not cause makes its current event a
    /// suspect, and drops the commands that it had taken.
    pub fn on_incarnation_end(&self, panicked: bool) {
        let mut inner = self.lock_inner();
        inner
            .suspects
            .iter_mut()
            .for_each(|suspects| suspects.on_incarnation_end(panicked));
        if panicked {
            inner.commands.drop_taken();
        }
    }

    /// Whether an outcome became durable since the last call.
    pub fn take_progress(&self) -> bool {
        std::mem::take(&mut self.lock_inner().has_progressed)
    }

    /// Begins a write. Returns the commands whose result it makes durable (`moved_by_commands`), and the
    /// suspects that are settled once it is durable ([`SharedState::on_durable`]).
    pub(super) fn begin_write(
        &self,
        changes: &[RecordChange],
        moved_by_commands: Option<u64>,
    ) -> (WrittenCommands, Vec<(Lane, Seq)>) {
        let mut inner = self.lock_inner();
        inner.is_writing = true;
        inner.awaits_write = false;
        let settled_keys = inner
            .suspects
            .as_mut()
            .map(|suspects| suspects.begin_write(changes))
            .unwrap_or_default();
        (inner.commands.begin_write(moved_by_commands), settled_keys)
    }

    /// Wakes the actor when the write is durable. Without this call it learns that at its next
    /// wake.
    pub(super) fn await_write(&self) {
        let mut inner = self.lock_inner();
        inner.awaits_write = true;
        if inner.is_written {
            self.wake_actor(inner);
        }
    }

    /// Takes what arrived since the last wake; [`None`] if the actor was not woken. From now on
    /// this waker wakes it.
    pub(super) fn take_messages(&self, waker: &Waker) -> Option<ArrivedMessages> {
        let mut inner = self.lock_inner();
        inner
            .waker
            .get_or_insert_with(|| waker.clone())
            .clone_from(waker);
        if !std::mem::take(&mut inner.is_woken) {
            return None;
        }
        Some(ArrivedMessages {
            end: inner.end,
            is_written: std::mem::take(&mut inner.is_written),
            is_closing: inner.is_closing,
            has_requests: !inner.commands.is_empty(),
            reports: std::mem::take(&mut inner.reports),
            pulls: inner
                .queue
                .as_mut()
                .map(|queue| queue.take_inputs())
                .unwrap_or_default(),
        })
    }

    fn lock_inner(&self) -> MutexGuard<'_, SharedInner> {
        self.inner.lock()
    }

    /// Wakes the actor, after the unlock: the woken thread locks at once.
    fn wake_actor(&self, mut inner: MutexGuard<'_, SharedInner>) {
        let waker = if inner.is_woken {
            None
        } else {
            inner.waker.clone()
        };
        inner.is_woken |= waker.is_some();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
