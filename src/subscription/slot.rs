//! What outlives an actor: its subscription's plan, the requests on their way, and what arrives for it.
//!
//! **A result belongs to an attempt, not to a life.** A flight is noted here before its request leaves, and struck off,
//! by the journal's thread, when its outcome is durable. A new life is handed the flights and absorbs what arrives for
//! them: a killed actor repeats nothing.
//!
//! The mailbox of an actor carries nothing but [`Wake`]s; what they are about lies here. So a lost wake costs latency and
//! never an event, and the mailbox never grows.

mod chaos;
mod flights;
mod linger;
mod meter;
mod pull;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
};

use actix::Addr;
use tokio::{sync::oneshot, task::AbortHandle};

use crate::{
    event::{FlightId, Lane, Life, Obligor, Seq},
    journal::{self, LogSlice},
    policy::{
        Flight, Input, Item, Settings,
        outcome::Answer,
        record::{
            Change, Command, Cursor, EndpointView, LaneCursor, Senseless, TakenBack,
            job::{Job, JobKind},
        },
    },
    subscription::{Grant, Plan, SubscriptionActor, Wake},
    telemetry::trace::Context,
};

use self::{linger::Linger, meter::Meter, pull::Desk};

pub use self::{
    meter::{Measured, PHASE_NAMES},
    pull::{Received, Waiting},
};

/// An event that was in hand at so many deaths is quarantined.
const DEATHS_MAX: u32 = 3;

/// Of so many events at most it is known at how many deaths they were in hand. Beyond, the oldest that is not quarantined is
/// forgotten.
const SUSPECTS_MAX: usize = 1024;

/// What arrives for a subscription.
#[derive(Debug)]
pub enum Report {
    /// For the core, as it is.
    Input(Input),
    /// For the core, with the room that it takes until the core has it.
    Read(Input, Grant),
    /// A slice of the log, to be filtered.
    Slice(Lane, Seq, LogSlice, Grant),
    /// What was written is durable, this command among it.
    Durable,
    /// A request may leave again, as far as descriptors go.
    Room,
    /// The journal did not do as it was asked: this life must end.
    Failed(journal::Error),
}

/// How a subscription is, for people.
#[derive(Clone, Debug, Default)]
pub struct State {
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

impl State {
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
pub struct Quarantined {
    /// How many, since the server started.
    pub count: u64,
    /// The newest of them: place and id, oldest first.
    pub newest: VecDeque<(Seq, String)>,
}

/// So many quarantined events are told by name.
const QUARANTINED_TOLD: usize = 8;

impl Quarantined {
    fn add(&mut self, seq: Seq, id: String) {
        self.count += 1;
        self.newest.push_back((seq, id));
        if self.newest.len() > QUARANTINED_TOLD {
            self.newest.pop_front();
        }
    }
}

/// Who asked for a command: told when it is durable, or at once why it has no sense.
pub(super) type Reply = oneshot::Sender<Result<Obeyed, Senseless>>;

/// What a command has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obeyed {
    /// The job that it began, if it did.
    pub job: Option<Lane>,
}

/// The slot of one subscription in one partition.
#[derive(Debug)]
pub struct Slot {
    /// Whose it is.
    pub obligor: Obligor,
    inner: Mutex<Inner>,
    /// So many tasks of requests are to panic: asked by each, so not under the lock.
    doomed: AtomicU32,
    /// Likewise, and only there where anything was sent.
    meter: OnceLock<Box<Meter>>,
}

/// An event that was in hand when an actor died.
#[derive(Debug)]
struct Suspect {
    deaths: u32,
    /// Whether it is, or may be, among the events to be retried, of which the cursor knows nothing.
    pending: bool,
}

#[derive(Debug)]
struct Inner {
    plan: Arc<Plan>,
    life: Life,
    mailbox: Option<Addr<SubscriptionActor>>,
    woken: bool,
    end: Seq,
    reports: Vec<Report>,
    commands: Vec<(Command, Reply)>,
    pages: Vec<(Box<TakenBack>, Reply)>,
    desk: Desk,
    /// Whether a write of the actor that runs is on its way.
    writing: bool,
    /// Whether the actor that runs has taken commands and not answered all of them.
    answering: bool,
    /// Boxed: a map keeps room for eleven once it had one.
    flights: BTreeMap<FlightId, Box<Aloft>>,
    next_flight: FlightId,
    linger: Linger,
    in_hand: Option<Item>,
    /// The id of the event in hand, or of the last one: kept, so that noting one makes no string.
    in_hand_id: String,
    suspects: HashMap<(Lane, Seq), Suspect>,
    quarantined: Quarantined,
    state: State,
    poison: Option<(String, u32)>,
    closing: bool,
    achieved: bool,
}

#[derive(Debug)]
struct Aloft {
    flight: Arc<Flight>,
    answer: Option<Answer>,
    task: Option<AbortHandle>,
    /// Its place in a trace, where that is recorded.
    place: Option<Context>,
}

/// What a new life is handed.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) plan: Arc<Plan>,
    pub(super) flights: Vec<Arc<Flight>>,
    pub(super) next_flight: FlightId,
    pub(super) inputs: Vec<Input>,
    /// Whether it is the first since the server started.
    pub(super) is_first: bool,
}

/// What arrived since the last time.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) end: Seq,
    pub(super) reports: Vec<Report>,
    pub(super) commands: Vec<(Command, Reply)>,
    pub(super) pages: Vec<(Box<TakenBack>, Reply)>,
    /// Of clients that pull.
    pub(super) pulls: VecDeque<Input>,
}

impl Slot {
    /// The slot of a subscription whose cursor is known.
    pub fn new(obligor: Obligor, plan: Arc<Plan>, cursor: Cursor, end: Seq) -> Self {
        let Settings { concurrency_max: concurrency, batch, .. } = plan.settings;
        // Before its first life: what it may do at most.
        let endpoint = EndpointView { concurrency, events_max: batch.events_max, ..EndpointView::default() };
        let inner = Inner {
            plan,
            life: Life(0),
            mailbox: None,
            woken: false,
            end,
            reports: Vec::new(),
            commands: Vec::new(),
            pages: Vec::new(),
            desk: Desk::default(),
            writing: false,
            answering: false,
            flights: BTreeMap::new(),
            next_flight: FlightId(1),
            linger: Linger::default(),
            in_hand: None,
            in_hand_id: String::new(),
            suspects: HashMap::new(),
            quarantined: Quarantined::default(),
            state: State {
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
        Self { obligor, inner: Mutex::new(inner), doomed: AtomicU32::new(0), meter: OnceLock::new() }
    }

    /// How it is served.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.lock().plan)
    }

    /// Serves it otherwise from its next life on.
    pub fn set_plan(&self, plan: Arc<Plan>) {
        self.lock().plan = plan;
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Up to where its live lane has passed the log; [`None`] where it has none yet.
    pub fn live_read(&self) -> Option<Seq> {
        let inner = self.lock();
        inner.state.cursor.lanes.iter().find(|lane| lane.lane == Lane::LIVE).map(|lane| lane.read)
    }

    /// How many requests are on their way, or back and not durable.
    pub fn in_flight(&self) -> usize {
        self.lock().flights.len()
    }

    /// The requests on their way, or back and not durable.
    pub fn flights(&self) -> Vec<Arc<Flight>> {
        self.lock().flights.values().map(|aloft| Arc::clone(&aloft.flight)).collect()
    }

    /// What was put aside because it killed again and again.
    pub fn quarantined(&self) -> Quarantined {
        self.lock().quarantined.clone()
    }

    /// How many events that was.
    pub fn quarantined_count(&self) -> u64 {
        self.lock().quarantined.count
    }

    /// How many requests may be answered yet though their wait is over.
    pub fn lingering(&self) -> usize {
        self.lock().linger.len()
    }

    /// Whether it has nothing to do, with the log ending at `end`.
    pub fn is_idle(&self, end: Seq) -> bool {
        let inner = self.lock();
        inner.flights.is_empty()
            && inner.linger.heard().next().is_none()
            // Of a command that is being written, nobody but the actor knows who waits for the answer.
            && !inner.writing
            && !inner.answering
            && inner.commands.is_empty()
            && inner.pages.is_empty()
            && inner.desk.is_idle()
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

    /// Something arrives that was asked for by the life `life`; later ones have no use for it.
    pub fn report(&self, life: Life, report: Report) {
        let mut inner = self.lock();
        if inner.life == life {
            inner.reports.push(report);
            inner.wake();
        }
    }

    /// The topic's backlog is too large: what is unread below `below` shall go. Nothing comes of it where no life runs.
    pub fn overflow(&self, below: Seq) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(Report::Input(Input::Overflow { below }));
            inner.wake();
        }
    }

    /// Others need the memory: what was read and is not sent shall be forgotten.
    pub fn let_go(&self) {
        let mut inner = self.lock();
        if inner.mailbox.is_some() {
            inner.reports.push(Report::Input(Input::LetGo));
            inner.wake();
        }
    }

    /// An operator asks for something; the answer comes when it is durable, or at once where it has no sense.
    pub fn command(&self, command: Command) -> oneshot::Receiver<Result<Obeyed, Senseless>> {
        let (reply, answer) = oneshot::channel();
        let mut inner = self.lock();
        inner.commands.push((command, reply));
        inner.wake();
        answer
    }

    /// Dead letters are to be sent again by one of its redrives: the answer comes when they are owed, durably, or at once
    /// where there is no such redrive, or it does not run.
    pub fn take_back(&self, page: TakenBack) -> oneshot::Receiver<Result<Obeyed, Senseless>> {
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
    pub(super) fn begin(&self, life: Life, end: Seq) -> Handed {
        let mut inner = self.lock();
        let is_first = inner.life == Life(0);
        inner.life = life;
        inner.mailbox = None;
        inner.woken = false;
        inner.end = inner.end.max(end);
        inner.reports.clear();
        inner.writing = false;
        inner.answering = false;
        inner.desk.begin();
        inner.state.ending.clear();
        let killer = inner.in_hand.take();
        // First of all, before any other input makes the new life take the killer in hand.
        let quarantined = killer.filter(|item| inner.has_killed_enough((item.lane, item.seq)));
        if let Some(item) = quarantined {
            let id = inner.in_hand_id.clone();
            inner.quarantined.add(item.seq, id);
        }
        let answered = inner.flights.values().filter_map(|aloft| {
            let answer = aloft.answer.clone()?;
            Some(Input::Finished { flight: aloft.flight.id, answer })
        });
        let late = inner.linger.heard().map(|flight| Input::Late { flight: Arc::clone(flight) });
        let inputs = quarantined.map(Input::Quarantine).into_iter().chain(answered).chain(late).collect();
        Handed {
            plan: Arc::clone(&inner.plan),
            flights: inner.flights.values().map(|aloft| Arc::clone(&aloft.flight)).collect(),
            next_flight: inner.next_flight,
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
        match inner.in_hand {
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
            Some(_) | None => inner.in_hand = None,
        }
    }

    /// Whether an outcome became durable since this was asked last.
    pub fn take_achieved(&self) -> bool {
        std::mem::take(&mut self.lock().achieved)
    }

    /// Notes the event in hand: if the actor dies now, that is the suspect.
    pub(super) fn take_in_hand(&self, item: Item, event_id: &str) {
        let mut inner = self.lock();
        inner.in_hand = Some(item);
        inner.in_hand_id.clear();
        inner.in_hand_id.push_str(event_id);
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

    /// A write begins; answers which suspects are settled once it is durable ([`Slot::landed`]).
    pub(super) fn writes(&self, changes: &[Change]) -> Vec<(Lane, Seq)> {
        let mut inner = self.lock();
        inner.writing = true;
        if inner.suspects.is_empty() {
            return Vec::new();
        }
        for change in changes {
            let (of, is_pending) = match change {
                Change::Owe { lane, seq, .. } => ((*lane, *seq), true),
                Change::Settle { lane, seq, .. } | Change::PutAside { lane, seq, .. } => ((*lane, *seq), false),
                _ => continue,
            };
            inner.suspects.entry(of).and_modify(|suspect| suspect.pending = is_pending);
        }
        let cursor = changes.iter().rev().find_map(|change| match change {
            Change::Cursor(cursor) => Some(cursor),
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
        self.lock().in_hand = None;
    }

    /// What arrived since the last time.
    pub(super) fn take(&self) -> Taken {
        let mut inner = self.lock();
        inner.woken = false;
        inner.answering |= !inner.commands.is_empty() || !inner.pages.is_empty();
        Taken {
            end: inner.end,
            reports: std::mem::take(&mut inner.reports),
            commands: std::mem::take(&mut inner.commands),
            pages: std::mem::take(&mut inner.pages),
            pulls: inner.desk.take(),
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
        let (jobs, tally) = (cursor.jobs.clone(), cursor.tally.clone());
        let cursor = Cursor { lanes, sifted: Vec::new(), jobs, tally, ..*cursor };
        let ending = std::mem::take(&mut inner.state.ending);
        inner.state = State { low, own_low, endpoint, cursor, ending };
    }

    /// A job has ended, which is on its way to the disk.
    pub(super) fn job_ends(&self, job: &Job) {
        self.lock().state.ending.push(job.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
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
