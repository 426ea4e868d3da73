//! What outlives an actor: its subscription's plan, the requests on their way, and what arrives for it.
//!
//! **A result belongs to an attempt, not to a life.** A flight is noted here before its request leaves, and struck off,
//! by the journal's thread, when its outcome is durable. A new life is handed the flights and absorbs what arrives for
//! them: a killed actor repeats nothing.
//!
//! The mailbox of an actor carries nothing but [`Wake`]s; what they are about lies here. So a lost wake costs latency and
//! never an event, and the mailbox never grows.

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

/// An event that was in hand at so many deaths is quarantined.
const DEATHS_MAX: u32 = 3;

/// Of so many events at most it is known at how many deaths they were in hand. Beyond, the oldest that is not quarantined is
/// forgotten.
const SUSPECTS_MAX: usize = 1024;

/// What arrives for a subscription.
#[derive(Debug)]
pub enum SharedStateMessage {
    /// For the core, as it is.
    Input(Input),
    /// For the core, with the room that it takes until the core has it.
    Read(Input, ReadGrant),
    /// A slice of the log, to be filtered.
    Slice(Lane, Seq, LogSlice, ReadGrant),
    /// What was written is durable, this command among it.
    Durable,
    /// A request may leave again, as far as descriptors go.
    Room,
    /// The journal did not do as it was asked: this life must end.
    Failed(journal::Error),
}

/// How a subscription is, for people.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionState {
    /// Its cursor, without the open events.
    pub cursor: Cursor,
    /// Its endpoint, beside what the cursor says of it.
    pub endpoint: EndpointView,
    /// The first event that it may still ask for.
    pub low: Seq,
    /// The same without its jobs.
    pub own_low: Seq,
    /// Jobs that have ended, until that can be read.
    pub ending: Vec<Job>,
}

impl SubscriptionState {
    /// How many events of the log it has not passed, with the log ending at `end`, and the first of them.
    pub fn backlog(&self, end: Seq) -> (u64, Option<Seq>) {
        let lanes = || self.cursor.own_lanes();
        let unread = lanes().map(|lane| lane.read).filter(|read| *read < end).min();
        // Sequences are dense within what was written; a gap would make this an upper bound.
        (lanes().map(|lane| lane.end.unwrap_or(end).0.saturating_sub(lane.read.0)).sum(), unread)
    }
}

/// Events that were put aside because they killed their actor again and again.
#[derive(Clone, Debug, Default)]
pub struct QuarantinedEvents {
    /// How many, since the server started.
    pub count: u64,
    /// The newest of them: place and id, oldest first.
    pub newest: VecDeque<(Seq, String)>,
}

/// So many quarantined events are told by name.
const QUARANTINED_TOLD: usize = 8;

impl QuarantinedEvents {
    fn add(&mut self, seq: Seq, id: String) {
        self.count += 1;
        self.newest.push_back((seq, id));
        if self.newest.len() > QUARANTINED_TOLD {
            self.newest.pop_front();
        }
    }
}

/// Who asked for a command: told when it is durable, or at once why it has no sense.
pub(super) type CommandReply = oneshot::Sender<Result<CommandResult, CommandRefused>>;

/// What a command has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The job that it began, if it did.
    pub job: Option<Lane>,
}

/// The slot of one subscription in one partition.
#[derive(Debug)]
pub struct SharedState {
    /// Whose it is.
    pub subscription_key: SubscriptionKey,
    inner: Mutex<SharedInner>,
    /// So many tasks of requests are to panic: asked by each, so not under the lock.
    doomed: AtomicU32,
    /// Likewise, and only there where anything was sent.
    meter: OnceLock<Box<SubscriptionMeter>>,
}

/// An event that was in hand when an actor died.
#[derive(Debug)]
struct Suspect {
    deaths: u32,
    /// Whether it is, or may be, among the events to be retried, of which the cursor knows nothing.
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
    /// Whether a write of the actor that runs is on its way.
    writing: bool,
    /// Whether the actor that runs has taken commands and not answered all of them.
    answering: bool,
    /// Boxed: a map keeps room for eleven once it had one.
    requests: BTreeMap<RequestId, Box<InFlightRequest>>,
    next_request: RequestId,
    linger: LateRequests,
    current_event: Option<SendItem>,
    /// The id of the event in hand, or of the last one: kept, so that noting one makes no string.
    current_event_id: String,
    suspects: HashMap<(Lane, Seq), Suspect>,
    quarantined: QuarantinedEvents,
    state: SubscriptionState,
    poison: Option<(String, u32)>,
    closing: bool,
    achieved: bool,
}

#[derive(Debug)]
struct InFlightRequest {
    request: Arc<OutgoingBatch>,
    answer: Option<RequestResult>,
    task: Option<AbortHandle>,
    /// Its place in a trace, where that is recorded.
    place: Option<SpanContext>,
}

/// What a new life is handed.
#[derive(Debug)]
pub(super) struct HandedOver {
    pub(super) plan: Arc<DeliveryPlan>,
    pub(super) requests: Vec<Arc<OutgoingBatch>>,
    pub(super) next_request: RequestId,
    pub(super) inputs: Vec<Input>,
    /// Whether it is the first since the server started.
    pub(super) is_first: bool,
}

/// What arrived since the last time.
#[derive(Debug)]
pub(super) struct TakenMessages {
    pub(super) end: Seq,
    pub(super) reports: Vec<SharedStateMessage>,
    pub(super) commands: Vec<(Command, CommandReply)>,
    pub(super) pages: Vec<(Box<RedrivePage>, CommandReply)>,
    /// Of clients that pull.
    pub(super) pulls: VecDeque<Input>,
}

impl SharedState {
    /// The slot of a subscription whose cursor is known.
    pub fn new(subscription_key: SubscriptionKey, plan: Arc<DeliveryPlan>, cursor: Cursor, end: Seq) -> Self {
        let SubscriptionSettings { concurrency_max: concurrency, batch, .. } = plan.settings;
        // Before its first life: what it may do at most.
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
            linger: LateRequests::default(),
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
            achieved: false,
        };
        Self { subscription_key, inner: Mutex::new(inner), doomed: AtomicU32::new(0), meter: OnceLock::new() }
    }

    /// How it is served.
    pub fn plan(&self) -> Arc<DeliveryPlan> {
        Arc::clone(&self.lock().plan)
    }

    /// Serves it otherwise from its next life on.
    pub fn set_plan(&self, plan: Arc<DeliveryPlan>) {
        self.lock().plan = plan;
    }

    /// How it is.
    pub fn state(&self) -> SubscriptionState {
        self.lock().state.clone()
    }

    /// Up to where its live lane has passed the log; [`None`] where it has none yet.
    pub fn live_read(&self) -> Option<Seq> {
        let inner = self.lock();
        inner.state.cursor.lanes.iter().find(|lane| lane.lane == Lane::LIVE).map(|lane| lane.read)
    }

    /// How many requests are on their way, or back and not durable.
    pub fn in_flight(&self) -> usize {
        self.lock().requests.len()
    }

    /// The requests on their way, or back and not durable.
    pub fn requests_in_flight(&self) -> Vec<Arc<OutgoingBatch>> {
        self.lock().requests.values().map(|in_flight| Arc::clone(&in_flight.request)).collect()
    }

    /// What was put aside because it killed again and again.
    pub fn quarantined(&self) -> QuarantinedEvents {
        self.lock().quarantined.clone()
    }

    /// How many events that was.
    pub fn quarantined_count(&self) -> u64 {
        self.lock().quarantined.count
    }

    /// How many requests may be answered yet though their wait is over.
    pub fn late_requests(&self) -> usize {
        self.lock().linger.len()
    }

    /// Whether it has nothing to do, with the log ending at `end`.
    pub fn is_idle(&self, end: Seq) -> bool {
        let inner = self.lock();
        inner.requests.is_empty()
            && inner.linger.late_successes().next().is_none()
            // Of a command that is being written, nobody but the actor knows who waits for the answer.
            && !inner.writing
            && !inner.answering
            && inner.commands.is_empty()
            && inner.pages.is_empty()
            && inner.queue.is_idle()
            && inner.state.low >= end
            && inner.state.cursor.jobs.is_empty()
            && inner.state.cursor.next_due.is_none()
    }

    /// The log ends at `end` by now. False where it was known.
    pub fn appended(&self, end: Seq) -> bool {
        let mut inner = self.lock();
        if end <= inner.end {
            return false;
        }
        inner.end = end;
        inner.wake();
        true
    }

    /// Something arrives that was asked for by the life `incarnation`; later ones have no use for it.
    pub fn report(&self, life: Incarnation, report: SharedStateMessage) {
        let mut inner = self.lock();
        if inner.incarnation == life {
            inner.reports.push(report);
            inner.wake();
        }
    }

    /// The topic's backlog is too large: what is unread below `below` shall go. Nothing comes of it where no life runs.
    pub fn overflow(&self, below: Seq) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(SharedStateMessage::Input(Input::Overflow { below }));
            inner.wake();
        }
    }

    /// Others need the memory: what was read and is not sent shall be forgotten.
    pub fn let_go(&self) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(SharedStateMessage::Input(Input::LetGo));
            inner.wake();
        }
    }

    /// An operator asks for something; the answer comes when it is durable, or at once where it has no sense.
    pub fn command(&self, command: Command) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        inner.commands.push((command, reply));
        inner.wake();
        answer
    }

    /// Dead letters are to be sent again by one of its redrives: the answer comes when they are owed, durably, or at once
    /// where there is no such redrive, or it does not run.
    pub fn take_back(&self, page: RedrivePage) -> oneshot::Receiver<Result<CommandResult, CommandRefused>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        inner.pages.push((Box::new(page), reply));
        inner.wake();
        answer
    }

    /// What the job with this lane does, while it goes on.
    pub fn job_kind(&self, lane: Lane) -> Option<JobKind> {
        self.lock().state.cursor.jobs.iter().find(|job| job.lane == lane).map(|job| job.kind)
    }

    /// Nothing new shall leave: the server stops.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        inner.wake();
    }

    /// Whether nothing new shall leave.
    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    // --- lives ---

    /// A new life begins, with the right to write.
    pub(super) fn begin(&self, life: Incarnation, end: Seq) -> HandedOver {
        let mut inner = self.lock();
        let is_first = inner.incarnation == Incarnation(0);
        inner.incarnation = life;
        inner.mailbox = None;
        inner.woken = false;
        inner.end = inner.end.max(end);
        inner.reports.clear();
        inner.writing = false;
        inner.answering = false;
        inner.queue.begin();
        inner.state.ending.clear();
        let killer = inner.current_event.take();
        // First of all, before any other input makes the new life take the killer in hand.
        let quarantined = killer.filter(|item| inner.has_killed_enough((item.lane, item.seq)));
        if let Some(item) = quarantined {
            let id = inner.current_event_id.clone();
            inner.quarantined.add(item.seq, id);
        }
        let answered = inner.requests.values().filter_map(|in_flight| {
            let answer = in_flight.answer.clone()?;
            Some(Input::Finished { request: in_flight.request.id, answer })
        });
        let late = inner.linger.late_successes().map(|request| Input::Late { request: Arc::clone(request) });
        let inputs = quarantined.map(Input::Quarantine).into_iter().chain(answered).chain(late).collect();
        HandedOver {
            plan: Arc::clone(&inner.plan),
            requests: inner.requests.values().map(|in_flight| Arc::clone(&in_flight.request)).collect(),
            next_request: inner.next_request,
            inputs,
            is_first,
        }
    }

    /// The new life can be woken from now on.
    pub(super) fn live(&self, mailbox: Addr<SubscriptionActor>) {
        let mut inner = self.lock();
        inner.mailbox = Some(mailbox);
        inner.wake();
    }

    /// The last life ended by a panic. What it had in hand is under suspicion, unless somebody killed it on purpose.
    pub fn died(&self, on_purpose: bool) {
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

    /// Whether an outcome became durable since this was asked last.
    pub fn take_achieved(&self) -> bool {
        std::mem::take(&mut self.lock().achieved)
    }

    /// Notes the event in hand: if the actor dies now, that is the suspect.
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

    /// The events of a lane that have killed as often as they may: mostly none.
    pub(super) fn killers(&self, lane: Lane) -> Vec<Seq> {
        let inner = self.lock();
        let killers = inner.suspects.iter().filter(|((of, _), suspect)| *of == lane && suspect.deaths >= DEATHS_MAX);
        killers.map(|((_, seq), _)| *seq).collect()
    }

    /// How many events that were in hand when an actor died are not settled yet.
    pub fn suspects(&self) -> usize {
        self.lock().suspects.len()
    }

    /// All commands that were taken are answered.
    pub(super) fn answered(&self) {
        self.lock().answering = false;
    }

    /// A write begins; answers which suspects are settled once it is durable ([`SharedState::landed`]).
    pub(super) fn writes(&self, changes: &[RecordChange]) -> Vec<(Lane, Seq)> {
        let mut inner = self.lock();
        inner.writing = true;
        if inner.suspects.is_empty() {
            return Vec::new();
        }
        for change in changes {
            let (of, is_pending) = match change {
                RecordChange::Defer { lane, seq, .. } => ((*lane, *seq), true),
                RecordChange::Settle { lane, seq, .. } | RecordChange::PutAside { lane, seq, .. } => {
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
        // What is not passed is read again, though it was put aside.
        let is_passed = |cursor: &Cursor, of: &(Lane, Seq)| match cursor.lanes.iter().find(|lane| lane.lane == of.0) {
            Some(lane) => of.1 < lane.read && lane.open.binary_search(&of.1).is_err(),
            None => true,
        };
        let suspects = inner.suspects.iter();
        let settled =
            suspects.filter(|(of, suspect)| !suspect.pending && cursor.is_some_and(|cursor| is_passed(cursor, of)));
        settled.map(|(of, _)| *of).collect()
    }

    /// No event is in hand.
    pub(super) fn put_down(&self) {
        self.lock().current_event = None;
    }

    /// What arrived since the last time.
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

    /// How it is by now.
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

    /// A job has ended, which is on its way to the disk.
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
