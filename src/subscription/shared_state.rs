//! The part of a subscription that outlives its actor: the plan, the requests in flight, and what arrives for the
//! actor.
//!
//! **A result belongs to an attempt, not to an incarnation.** A request is noted here before it is sent, and removed by
//! the journal's thread once its outcome is durable. A new incarnation receives the requests in flight and their
//! results: after a panic, nothing is sent twice.
//!
//! The mailbox of an actor set_task only [`Wake`]s. Their content lies here. A lost wake costs latency, never an event,
//! and the mailbox never grows.

mod chaos;
mod in_flight;
mod late_requests;
mod meter;
mod pull;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
};

use actix::Addr;
use tokio::{sync::oneshot, task::AbortHandle};

use self::{late_requests::LateRequests, meter::SubscriptionMeter, pull::PullQueue};
pub use self::{
    meter::{PHASE_NAMES, SubscriptionMeasures},
    pull::{Received, WaitingClient},
};
use crate::{
    event::{Incarnation, Lane, RequestId, Seq, SubscriptionKey},
    journal::{self, LogSlice},
    policy::{
        Input, OutgoingBatch, SendItem, SubscriptionSettings,
        outcome::RequestResult,
        record::{
            Command, CommandRefused, Cursor, EndpointView, LaneCursor, RecordChange, RedrivePage,
            job::{Job, JobKind},
        },
    },
    subscription::{DeliveryPlan, ReadGrant, SubscriptionActor, Wake},
    telemetry::trace::SpanContext,
};

/// An event that was the current event in this many panics is quarantined.
const DEATHS_MAX: u32 = 3;

/// Maximum number of suspects. Beyond it, the oldest event that is not quarantined is removed.
const SUSPECTS_MAX: usize = 1024;

/// What arrives for a subscription.
#[derive(Debug)]
pub enum SharedStateMessage {
    /// Input for the core.
    Input(Input),
    /// Input for the core, with the grant that it holds until the core has it.
    Read(Input, ReadGrant),
    /// A slice of the log, to be filtered.
    Slice(Lane, Seq, LogSlice, ReadGrant),
    /// The last write is durable, with the commands in it.
    Durable,
    /// A socket is free for the next request.
    Room,
    /// The journal reported an error: this incarnation must end.
    Failed(journal::Error),
}

/// The state of a subscription, for metrics and operators.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionState {
    /// The cursor, without the open events.
    pub cursor: Cursor,
    /// The endpoint, beyond what the cursor says of it.
    pub endpoint: EndpointView,
    /// The first position of the log that the subscription may still read.
    pub low: Seq,
    /// The same without its jobs.
    pub own_low: Seq,
    /// Jobs that have ended, until that is durable.
    pub ending: Vec<Job>,
}

impl SubscriptionState {
    /// How many events of a log that ends at `end` the subscription has not passed, and the first of them.
    pub fn backlog(&self, end: Seq) -> (u64, Option<Seq>) {
        let lanes = || self.cursor.own_lanes();
        let unread = lanes().map(|lane| lane.read).filter(|read| *read < end).min();
        // Sequences are dense within what was written; a gap would make this an upper bound.
        (lanes().map(|lane| lane.end.unwrap_or(end).0.saturating_sub(lane.read.0)).sum(), unread)
    }
}

/// Events that were dead-lettered because they made the actor panic repeatedly.
#[derive(Clone, Debug, Default)]
pub struct QuarantinedEvents {
    /// How many, since the server started.
    pub count: u64,
    /// The newest of them, with position and id, oldest first.
    pub newest: VecDeque<(Seq, String)>,
}

/// How many quarantined events are listed with their ids.
const QUARANTINED_LISTED: usize = 8;

impl QuarantinedEvents {
    fn add(&mut self, seq: Seq, id: String) {
        self.count += 1;
        self.newest.push_back((seq, id));
        if self.newest.len() > QUARANTINED_LISTED {
            self.newest.pop_front();
        }
    }
}

/// Receives the result once the command is durable, or at once the reason for its refusal.
pub(super) type CommandReply = oneshot::Sender<Result<CommandResult, CommandRefused>>;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The job that the command began.
    pub job: Option<Lane>,
}

/// The shared state of one subscription in one partition.
#[derive(Debug)]
pub struct SharedState {
    /// The subscription.
    pub subscription_key: SubscriptionKey,
    inner: Mutex<SharedInner>,
    /// Number of delivery tasks that must panic (chaos). Every task reads it, so it is not under the lock.
    doomed: AtomicU32,
    /// Created with the first request.
    meter: OnceLock<Box<SubscriptionMeter>>,
}

/// An event that was the current event when an actor panicked.
#[derive(Debug)]
struct Suspect {
    deaths: u32,
    /// Whether the event is, or may be, pending. The cursor does not contain pending events.
    pending: bool,
}

#[derive(Debug)]
struct SharedInner {
    plan: Arc<DeliveryPlan>,
    incarnation: Incarnation,
    mailbox: Option<Addr<SubscriptionActor>>,
    woken: bool,
    end: Seq,
    reports: Vec<SharedStateMessage>,
    commands: Vec<(Command, CommandReply)>,
    pages: Vec<(Box<RedrivePage>, CommandReply)>,
    queue: PullQueue,
    /// Whether a write of the current incarnation is in the journal.
    writing: bool,
    /// Whether the current incarnation has taken commands and not answered all of them.
    answering: bool,
    /// Boxed: a map that ever had an entry keeps room for eleven.
    requests: BTreeMap<RequestId, Box<InFlightRequest>>,
    next_request: RequestId,
    late_requests: LateRequests,
    current_event: Option<SendItem>,
    /// The id of the current event or of the previous one. The buffer is reused, so that noting an event allocates
    /// nothing.
    current_event_id: String,
    suspects: HashMap<(Lane, Seq), Suspect>,
    quarantined: QuarantinedEvents,
    state: SubscriptionState,
    poison: Option<(String, u32)>,
    closing: bool,
    progressed: bool,
}

#[derive(Debug)]
struct InFlightRequest {
    request: Arc<OutgoingBatch>,
    answer: Option<RequestResult>,
    task: Option<AbortHandle>,
    /// The span of the attempt, if it is recorded.
    place: Option<SpanContext>,
}

/// What a new incarnation receives.
#[derive(Debug)]
pub(super) struct HandedOver {
    pub(super) plan: Arc<DeliveryPlan>,
    pub(super) requests: Vec<Arc<OutgoingBatch>>,
    pub(super) next_request: RequestId,
    pub(super) inputs: Vec<Input>,
    /// Whether it is the first incarnation since the server started.
    pub(super) is_first: bool,
}

/// What arrived since the last wake.
#[derive(Debug)]
pub(super) struct TakenMessages {
    pub(super) end: Seq,
    pub(super) reports: Vec<SharedStateMessage>,
    pub(super) commands: Vec<(Command, CommandReply)>,
    pub(super) pages: Vec<(Box<RedrivePage>, CommandReply)>,
    /// From clients that pull.
    pub(super) pulls: VecDeque<Input>,
}

impl SharedState {
    /// The shared state of a subscription with this cursor.
    pub fn new(subscription_key: SubscriptionKey, plan: Arc<DeliveryPlan>, cursor: Cursor, end: Seq) -> Self {
        let SubscriptionSettings { concurrency_max: concurrency, batch, .. } = plan.settings;
        // Until the first incarnation runs, these are the limits of the plan.
        let endpoint = EndpointView { concurrency, events_max: batch.events_max, ..EndpointView::default() };
        let inner = SharedInner {
            plan,
            incarnation: Incarnation(0),
            mailbox: None,
            woken: false,
            end,
            reports: Vec::new(),
            commands: Vec::new(),
            pages: Vec::new(),
            queue: PullQueue::default(),
            writing: false,
            answering: false,
            requests: BTreeMap::new(),
            next_request: RequestId(1),
            late_requests: LateRequests::default(),
            current_event: None,
            current_event_id: String::new(),
            suspects: HashMap::new(),
            quarantined: QuarantinedEvents::default(),
            state: SubscriptionState {
                low: cursor.low().unwrap_or(end),
                own_low: cursor.own_low().unwrap_or(end),
                endpoint,
                cursor,
                ending: Vec::new(),
            },
            poison: None,
            closing: false,
            progressed: false,
        };
        Self { subscription_key, inner: Mutex::new(inner), doomed: AtomicU32::new(0), meter: OnceLock::new() }
    }

    /// The current plan.
    pub fn plan(&self) -> Arc<DeliveryPlan> {
        Arc::clone(&self.lock().plan)
    }

    /// Replaces the plan. The next incarnation uses it.
    pub fn set_plan(&self, plan: Arc<DeliveryPlan>) {
        self.lock().plan = plan;
    }

    /// The current state.
    pub fn state(&self) -> SubscriptionState {
        self.lock().state.clone()
    }

    /// The end of what the live lane has read; [`None`] before it exists.
    pub fn live_read(&self) -> Option<Seq> {
        let inner = self.lock();
        inner.state.cursor.lanes.iter().find(|lane| lane.lane == Lane::LIVE).map(|lane| lane.read)
    }

    /// How many requests are in flight, or answered and not yet durable.
    pub fn in_flight(&self) -> usize {
        self.lock().requests.len()
    }

    /// The requests that are in flight, or answered and not yet durable.
    pub fn requests_in_flight(&self) -> Vec<Arc<OutgoingBatch>> {
        self.lock().requests.values().map(|in_flight| Arc::clone(&in_flight.request)).collect()
    }

    /// The events that were quarantined.
    pub fn quarantined(&self) -> QuarantinedEvents {
        self.lock().quarantined.clone()
    }

    /// How many events were quarantined.
    pub fn quarantined_count(&self) -> u64 {
        self.lock().quarantined.count
    }

    /// How many requests have timed out and may still be answered.
    pub fn late_requests(&self) -> usize {
        self.lock().late_requests.len()
    }

    /// Whether the subscription has nothing to do while the log ends at `end`.
    pub fn is_idle(&self, end: Seq) -> bool {
        let inner = self.lock();
        inner.requests.is_empty()
            && inner.late_requests.late_successes().next().is_none()
            // Only the actor knows the replies of commands that are being written.
            && !inner.writing
            && !inner.answering
            && inner.commands.is_empty()
            && inner.pages.is_empty()
            && inner.queue.is_idle()
            && inner.state.low >= end
            && inner.state.cursor.jobs.is_empty()
            && inner.state.cursor.next_due.is_none()
    }

    /// Notes the new end of the log. False if it is not new.
    pub fn appended(&self, end: Seq) -> bool {
        let mut inner = self.lock();
        if end <= inner.end {
            return false;
        }
        inner.end = end;
        inner.wake();
        true
    }

    /// Reports a result that `incarnation` requested. Later incarnations do not need it.
    pub fn report(&self, incarnation: Incarnation, report: SharedStateMessage) {
        let mut inner = self.lock();
        if inner.incarnation == incarnation {
            inner.reports.push(report);
            inner.wake();
        }
    }

    /// Drops unread events below `below` because the topic's backlog is too large. Has no effect while no actor runs.
    pub fn overflow(&self, below: Seq) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(SharedStateMessage::Input(Input::Overflow { below }));
            inner.wake();
        }
    }

    /// Makes the actor drop events that it has read and not sent: others need the memory.
    pub fn drop_read_events(&self) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(SharedStateMessage::Input(Input::ReleaseMemory));
            inner.wake();
        }
    }

    /// Passes an operator's command to the actor. The answer arrives once the command is durable, or at once if it is
    /// refused.
    pub fn command(&self, command: Command) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        inner.commands.push((command, reply));
        inner.wake();
        answer
    }

    /// Passes dead letters to one of the subscription's redrive jobs. The answer arrives once they are durably pending,
    /// or at once if there is no such job or it does not run.
    pub fn take_back(&self, page: RedrivePage) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        inner.pages.push((Box::new(page), reply));
        inner.wake();
        answer
    }

    /// The kind of the running job with this lane.
    pub fn job_kind(&self, lane: Lane) -> Option<JobKind> {
        self.lock().state.cursor.jobs.iter().find(|job| job.lane == lane).map(|job| job.kind)
    }

    /// Stops sending: the server stops.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        inner.wake();
    }

    /// Whether sending has stopped.
    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    // --- incarnations ---

    /// Begins a new incarnation, which alone may write from now on.
    pub(super) fn begin(&self, incarnation: Incarnation, end: Seq) -> HandedOver {
        let mut inner = self.lock();
        let is_first = inner.incarnation == Incarnation(0);
        inner.incarnation = incarnation;
        inner.mailbox = None;
        inner.woken = false;
        inner.end = inner.end.max(end);
        inner.reports.clear();
        inner.writing = false;
        inner.answering = false;
        inner.queue.begin();
        inner.state.ending.clear();
        let suspect = inner.current_event.take();
        // The first input, before any other makes the new incarnation process the poison event.
        let quarantined = suspect.filter(|item| inner.has_killed_enough((item.lane, item.seq)));
        if let Some(item) = quarantined {
            let id = inner.current_event_id.clone();
            inner.quarantined.add(item.seq, id);
        }
        let answered = inner.requests.values().filter_map(|in_flight| {
            let answer = in_flight.answer.clone()?;
            Some(Input::Finished { request: in_flight.request.id, answer })
        });
        let late = inner.late_requests.late_successes().map(|request| Input::Late { request: Arc::clone(request) });
        let inputs = quarantined.map(Input::Quarantine).into_iter().chain(answered).chain(late).collect();
        HandedOver {
            plan: Arc::clone(&inner.plan),
            requests: inner.requests.values().map(|in_flight| Arc::clone(&in_flight.request)).collect(),
            next_request: inner.next_request,
            inputs,
            is_first,
        }
    }

    /// From now on the new incarnation can be woken.
    pub(super) fn set_mailbox(&self, mailbox: Addr<SubscriptionActor>) {
        let mut inner = self.lock();
        inner.mailbox = Some(mailbox);
        inner.wake();
    }

    /// The last incarnation panicked. Its current event becomes a suspect, unless chaos caused the panic.
    pub fn on_panic(&self, on_purpose: bool) {
        let mut inner = self.lock();
        inner.mailbox = None;
        match inner.current_event {
            Some(item) if !on_purpose => {
                let of = (item.lane, item.seq);
                if inner.suspects.len() >= SUSPECTS_MAX && !inner.suspects.contains_key(&of) {
                    let least = inner.suspects.iter().min_by_key(|(of, suspect)| (suspect.deaths >= DEATHS_MAX, of.1));
                    if let Some(least) = least.map(|(of, _)| *of) {
                        inner.suspects.remove(&least);
                    }
                }
                let suspect = inner.suspects.entry(of).or_insert(Suspect { deaths: 0, pending: false });
                suspect.deaths += 1;
                suspect.pending |= item.due.is_some();
            }
            Some(_) | None => inner.current_event = None,
        }
    }

    /// Whether an outcome became durable since the last call.
    pub fn take_progress(&self) -> bool {
        std::mem::take(&mut self.lock().progressed)
    }

    /// Notes the current event: if the actor panics now, this event is the suspect.
    pub(super) fn set_current_event(&self, item: SendItem, event_id: &str) {
        let mut inner = self.lock();
        inner.current_event = Some(item);
        inner.current_event_id.clear();
        inner.current_event_id.push_str(event_id);
        if let Some((poisoned, times)) = &mut inner.poison
            && *poisoned == event_id
            && *times > 0
        {
            *times -= 1;
            drop(inner);
            panic!("poisoned by chaos: event {event_id}");
        }
    }

    /// The quarantined events of a lane. Usually empty.
    pub(super) fn quarantined_seqs(&self, lane: Lane) -> Vec<Seq> {
        let inner = self.lock();
        let quarantined_seqs =
            inner.suspects.iter().filter(|((of, _), suspect)| *of == lane && suspect.deaths >= DEATHS_MAX);
        quarantined_seqs.map(|((_, seq), _)| *seq).collect()
    }

    /// How many suspects are not settled yet.
    pub fn suspects(&self) -> usize {
        self.lock().suspects.len()
    }

    /// All taken commands are answered.
    pub(super) fn mark_answered(&self) {
        self.lock().answering = false;
    }

    /// Begins a write. Returns the suspects that are settled once it is durable ([`SharedState::on_durable`]).
    pub(super) fn begin_write(&self, changes: &[RecordChange]) -> Vec<(Lane, Seq)> {
        let mut inner = self.lock();
        inner.writing = true;
        if inner.suspects.is_empty() {
            return Vec::new();
        }
        for change in changes {
            let (of, is_pending) = match change {
                RecordChange::Defer { lane, seq, .. } => ((*lane, *seq), true),
                RecordChange::Settle { lane, seq, .. } | RecordChange::DeadLetter { lane, seq, .. } => {
                    ((*lane, *seq), false)
                }
                _ => continue,
            };
            inner.suspects.entry(of).and_modify(|suspect| suspect.pending = is_pending);
        }
        let cursor = changes.iter().rev().find_map(|change| match change {
            RecordChange::Cursor(cursor) => Some(cursor),
            _ => None,
        });
        // Events that the cursor has not passed are read again, even dead-lettered ones.
        let is_passed = |cursor: &Cursor, of: &(Lane, Seq)| match cursor.lanes.iter().find(|lane| lane.lane == of.0) {
            Some(lane) => of.1 < lane.read && lane.open.binary_search(&of.1).is_err(),
            None => true,
        };
        let suspects = inner.suspects.iter();
        let settled =
            suspects.filter(|(of, suspect)| !suspect.pending && cursor.is_some_and(|cursor| is_passed(cursor, of)));
        settled.map(|(of, _)| *of).collect()
    }

    /// Clears the current event.
    pub(super) fn clear_current_event(&self) {
        self.lock().current_event = None;
    }

    /// Takes what arrived since the last wake.
    pub(super) fn take(&self) -> TakenMessages {
        let mut inner = self.lock();
        inner.woken = false;
        inner.answering |= !inner.commands.is_empty() || !inner.pages.is_empty();
        TakenMessages {
            end: inner.end,
            reports: std::mem::take(&mut inner.reports),
            commands: std::mem::take(&mut inner.commands),
            pages: std::mem::take(&mut inner.pages),
            pulls: inner.queue.take(),
        }
    }

    /// Sets the state from the cursor and the endpoint.
    pub(super) fn set_state(&self, cursor: &Cursor, endpoint: EndpointView) {
        let bare = |lane: &LaneCursor| LaneCursor {
            lane: lane.lane,
            read: lane.read,
            end: lane.end,
            open: Vec::new(),
            done: Vec::new(),
        };
        let lanes = cursor.lanes.iter().map(bare).collect();
        let mut inner = self.lock();
        let (low, own_low) = (cursor.low().unwrap_or(inner.end), cursor.own_low().unwrap_or(inner.end));
        let (jobs, counts) = (cursor.jobs.clone(), cursor.counts.clone());
        let cursor = Cursor { lanes, filtered_out: Vec::new(), jobs, counts, ..*cursor };
        let ending = std::mem::take(&mut inner.state.ending);
        inner.state = SubscriptionState { low, own_low, endpoint, cursor, ending };
    }

    /// Notes a job whose end is being written.
    pub(super) fn job_ends(&self, job: &Job) {
        self.lock().state.ending.push(job.clone());
    }

    fn lock(&self) -> MutexGuard<'_, SharedInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedInner {
    fn has_killed_enough(&self, of: (Lane, Seq)) -> bool {
        self.suspects.get(&of).is_some_and(|suspect| suspect.deaths >= DEATHS_MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "at most one wake is in the mailbox: `woken` says so")]
    fn wake(&mut self) {
        if let Some(mailbox) = &self.mailbox
            && !self.woken
        {
            self.woken = true;
            mailbox.do_send(Wake);
        }
    }
}
