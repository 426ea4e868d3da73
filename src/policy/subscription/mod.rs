//! The state machine of one subscription in one partition: what it has read, what is pending, what
//! is in flight. The actor that runs it is in `gridhook_subscription`.
//!
//! [`Subscription::process_input`] takes an input and returns what follows from it: changes for the
//! journal, and effects for the actor to carry out. [`Subscription::next_due`] returns when to call
//! it again if no input arrives. All delivery decisions are made here.
//!
//! | part | what it holds |
//! | --- | --- |
//! | `messages` | inputs, effects and writes |
//! | `lane_assignment` | which lane sends which positions of the log, what overflows and what expires |
//! | `send` | the selection of the next batch; reading and fetching |
//! | `prepare` | transformations, and what of a batch can be sent |
//! | `resources` | file descriptors and memory for requests |
//! | `queue` | pending deliveries on the way from the disk to a request |
//! | `in_flight` | the requests in flight |
//! | `jobs` | replays and other jobs |
//! | `redrive` | dead letters that are sent again |
//! | `retry_now` | retries that an operator brings forward |
//! | `ordering` | order by key: which events wait for an earlier one of their key |
//! | `blocking` | order by key: events that block their key until an operator decides |
//! | `lease`, `idle` | pull delivery: leases, and due events that no client waits for |
//! | `timers` | when to act if nothing happens before |
//! | `settle` | the consequences of a request's outcome |
//! | `late_responses` | successes that arrive after the response timeout |
//! | `lookup` | questions that only the disk can answer |
//! | `excerpt` | excerpts of responses, for people |
//! | `pending_write` | changes that wait for the next write |
//!
//! Invariants:
//! - Memory is a view of the records. A state machine recovered from its records and from the
//!   requests without a durable outcome continues where the previous one stopped.
//! - Every waiting state has a deadline: a request in flight, a suspension, a pending delivery.
//! - While the endpoint may not be called, no attempt is made and none is consumed. Events are then
//!   read only to be given up: expired ones, and those that the subscription dead-letters instead
//!   of keeping.
//! - A push request leaves before anything is written. After a crash, requests without a durable
//!   outcome are sent again.
//! - A pull client receives an event only after its lease is durable, because the lease promises
//!   exclusive access.
//!
//! What it does not do: it has no timer, no I/O and no event store. It sees events only as long as
//! they are read ahead or in flight.

mod blocking;
mod excerpt;
mod idle;
mod in_flight;
mod jobs;
mod lane_assignment;
mod late_responses;
mod lease;
mod lookup;
mod messages;
mod ordering;
mod pending_write;
mod prepare;
mod queue;
mod redrive;
mod resources;
mod retry_now;
mod send;
mod settle;
mod timers;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use excerpt::ExcerptCache;
use in_flight::InFlight;
use jobs::Jobs;
use lane_assignment::{ExpiryScan, is_own, is_sent};
use late_responses::LateResponses;
use lease::Leases;
use lookup::Lookup;
pub use messages::{
    CoreStep, DetachedEvents, Effect, Input, OutgoingBatch, PullSettings, SendItem,
    SubscriptionSettings, SubscriptionWrite,
};
use ordering::Ordering;
use pending_write::PendingWrite;
use queue::SendQueue;
use retry_now::RetryNow;

use crate::{
    endpoint::Endpoint,
    lane::LaneReader,
    record::{
        BLOCKING, Command, CommandRefused, Counters, Cursor, EndpointView, Health, OutcomeCounts,
        Traffic, lease::RELEASED_FOR,
    },
    retry::{self, Jitter},
    retry_window::RetryWindow,
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};

/// The state machine.
#[derive(Debug)]
pub struct Subscription {
    settings: Arc<SubscriptionSettings>,
    endpoint: Endpoint,
    /// The lane of newly published events comes first.
    lanes: Vec<LaneReader>,
    expiry_scan: ExpiryScan,
    /// The end of the log when the endpoint was last known to be unavailable. Events below it are
    /// the backlog.
    backlog_end: Seq,
    /// Pending deliveries of published events.
    live: SendQueue,
    /// Pending deliveries of jobs, from the first of them on.
    replays: Option<Box<SendQueue>>,
    jobs: Jobs,
    requests: InFlight,
    /// Bytes of bodies that may still be sent.
    bytes_left: usize,
    /// Boxed, as what follows: most subscriptions have none.
    ordering: Option<Box<Ordering>>,
    /// Whether expiry is suspended because the clock is not trusted.
    expiry_paused: bool,
    turn: usize,
    end: Seq,
    counters: Counters,
    replayed: Counters,
    counts: OutcomeCounts,
    late: LateResponses,
    leases: Leases,
    excerpts: ExcerptCache,
    began: Seq,
    pending_write: PendingWrite,
    retry: RetryNow,
    /// Deliveries that commands moved and no answer has reported yet.
    commanded: u64,
    /// Results of earlier incarnations, those that wait for room in a write, and inputs that wait
    /// until the order is recovered.
    postponed: VecDeque<Input>,
}

impl Subscription {
    /// Recovers the state machine from its records. `requests` were sent, by any incarnation, and
    /// have no durable outcome.
    pub fn from_records(
        settings: impl Into<Arc<SubscriptionSettings>>,
        cursor: &Cursor,
        end: Seq,
        requests: Vec<Arc<OutgoingBatch>>,
        next_request: RequestId,
        now: Timestamp,
    ) -> Self {
        let settings: Arc<SubscriptionSettings> = settings.into();
        let mut lanes: Vec<LaneReader> = cursor.lanes.iter().map(LaneReader::from_cursor).collect();
        let in_flight: HashSet<(Lane, Seq)> = requests
            .iter()
            .flat_map(|request| &request.items)
            .map(SendItem::key)
            .collect();
        let open = lanes
            .iter()
            .flat_map(|lane| lane.in_flight().iter().map(|seq| (lane.lane(), seq)));
        let lost: Vec<(Lane, Seq)> = open.filter(|key| !in_flight.contains(key)).collect();
        let lost_of = |of| {
            lost.iter()
                .copied()
                .filter(move |(lane, _)| Traffic::from_lane(*lane) == of)
        };
        // A first attempt sent after the previous incarnation's last write is open, although the
        // cursor does not include it.
        for item in requests
            .iter()
            .flat_map(|request| &request.items)
            .filter(|item| item.due.is_none())
        {
            if let Some(lane) = lane_mut(&mut lanes, item.lane) {
                lane.note_in_flight(item.seq);
            }
        }
        let of_endpoint = requests
            .iter()
            .filter(|request| request.endpoint == settings.endpoint);
        let left = of_endpoint.map(|request| (request.id, request.sent));
        let longest_wait = match settings.pull {
            None => retry::longest_wait(&settings.edition, settings.destination),
            Some(pull) => RELEASED_FOR.max(pull.lock),
        };
        let ordering = settings.order.as_ref().map(|order| {
            let open = requests
                .iter()
                .flat_map(|request| &request.items)
                .map(SendItem::key);
            let open = open
                .chain(lost.iter().copied())
                .filter(|(lane, _)| !lane.is_job());
            let detached_keys = requests
                .iter()
                .flat_map(|request| request.detached_keys.iter().copied());
            let one_of_a_key = settings.pull.is_some() || order.one_of_a_key;
            Box::new(Ordering::from_settings(
                order,
                one_of_a_key,
                open,
                detached_keys,
                cursor.next_due.is_some(),
            ))
        });
        // An event that is held back is not in the window, unless the order was removed.
        let next_due = cursor
            .next_due
            .filter(|due| ordering.is_none() || *due < BLOCKING);
        let due = match settings.pull {
            None => RetryWindow::from_first_due(next_due, longest_wait),
            // The number of leased events is bounded, and due events are examined even if no client
            // waits.
            Some(_) => RetryWindow::recover_roomy(next_due, longest_wait),
        };
        // Without a job no job delivery is pending.
        let jobs_due = next_due.filter(|_| !cursor.jobs.is_empty());
        let lost_by_jobs: Vec<(Lane, Seq)> = lost_of(Traffic::Jobs).collect();
        let has_replays = jobs_due.is_some() || !lost_by_jobs.is_empty();
        let replays = has_replays
            .then(|| Box::new(SendQueue::for_jobs(jobs_due, longest_wait, lost_by_jobs)));
        let is_ordered = ordering.is_some();
        Self {
            endpoint: Endpoint::from_cursor(&settings, cursor, left, now),
            expiry_scan: ExpiryScan::for_health(cursor.health),
            backlog_end: end,
            settings,
            lanes,
            live: SendQueue::new(due, lost_of(Traffic::Live), is_ordered),
            replays,
            jobs: Jobs::from_cursor(&cursor.jobs, cursor.jobs_begun, now),
            requests: InFlight::from_requests(requests, next_request),
            bytes_left: usize::MAX,
            ordering,
            expiry_paused: false,
            turn: 0,
            end,
            counters: cursor.counters,
            replayed: cursor.replayed,
            counts: cursor.counts.clone(),
            late: LateResponses::default(),
            leases: Leases::default(),
            excerpts: ExcerptCache::default(),
            began: cursor.began,
            pending_write: PendingWrite::from_filtered(&cursor.filtered_out),
            retry: RetryNow::None,
            commanded: 0,
            postponed: VecDeque::new(),
        }
    }

    /// Takes the results that earlier incarnations received and that are not durable. They are
    /// absorbed before a deadline passes and before anything is sent: what an earlier incarnation
    /// sent may rely on them.
    pub fn inherit_results(&mut self, results: Vec<Input>) {
        self.postponed.extend(results);
    }

    /// Notes the new end of the log. If nothing but a read of the live lane would follow, begins it
    /// and returns its start: the answer may be absorbed together with other inputs, in place of
    /// [`Input::Appended`].
    pub fn read_on(&mut self, end: Seq, now: Timestamp) -> Option<Seq> {
        self.end = self.end.max(end);
        let is_plain =
            self.ordering.is_none() && self.settings.pull.is_none() && self.jobs.is_empty();
        let is_steady = self.expiry_scan.is_steady()
            && !self.awaits_lane_assignment()
            && self.postponed.is_empty();
        let may_read =
            is_plain && is_steady && self.endpoint.is_open(now) && !self.pending_write.is_ahead();
        match &mut self.lanes[..] {
            [lane]
                if may_read
                    && lane.lane() == Lane::LIVE
                    && lane.end().is_none()
                    && lane.ready() == 0 =>
            {
                lane.next_read(self.end).map(|(from, _)| from)
            }
            _ => None,
        }
    }

    /// Processes one input.
    pub fn process_input(&mut self, input: Input, now: Timestamp, jitter: Jitter) -> CoreStep {
        self.absorb_all([(input, jitter)], now)
    }

    /// Processes inputs that arrived together, in order, and decides once what follows. Without
    /// inputs it acts as at a tick.
    pub fn absorb_all(
        &mut self,
        inputs: impl IntoIterator<Item = (Input, Jitter)>,
        now: Timestamp,
    ) -> CoreStep {
        let mut effects = Vec::new();
        let mut jitter = Jitter(0.0);
        self.requests
            .begin_inputs(self.endpoint.concurrency_limit() as usize);
        for (input, drawn) in inputs {
            jitter = drawn;
            match self.recovers_order(input) {
                Some(input) if input.is_result() && self.postpones_results() => {
                    self.postponed.push_back(input)
                }
                Some(input) => self.on_input(input, &mut effects, now, jitter),
                None => {}
            }
        }
        self.finish_recovery();
        if self.is_recovering() {
            self.ask_for_order(&mut effects);
            return CoreStep {
                write: self.write(now),
                effects,
            };
        }
        while !self.pending_write.is_full()
            && let Some(postponed) = self.postponed.pop_front()
        {
            self.on_input(postponed, &mut effects, now, jitter);
        }
        self.settle_late(now);
        if self.postponed.is_empty() {
            self.fail_overdue_requests(now, jitter);
        }
        self.settle_claims(now);
        self.carry_out_decisions(now);
        self.fill_pipeline(&mut effects, now);
        if self
            .next_connection_attempt(now)
            .is_some_and(|due| due <= now)
        {
            self.endpoint.begin_connection_attempt();
            effects.push(Effect::Connect);
        }
        effects.extend(self.ask_for_retry());
        if !self.is_retry_asked() {
            effects.extend(self.late.lookup().next_effect());
            effects.extend(self.leases.lookup().and_then(Lookup::next_effect));
        }
        CoreStep {
            write: self.write(now),
            effects,
        }
    }

    fn on_input(
        &mut self,
        input: Input,
        effects: &mut Vec<Effect>,
        now: Timestamp,
        jitter: Jitter,
    ) {
        match input {
            Input::Appended { end } => self.end = self.end.max(end),
            Input::Read {
                lane,
                from,
                upto,
                total,
                events,
            } => {
                // Events that are given up are not transformed.
                let events = if is_sent(lane) {
                    self.transform_all(events)
                } else {
                    events
                };
                self.note_log_read();
                // Events that are given up keep their order and form no batches.
                let grouping = if is_sent(lane) {
                    &self.settings.grouping[..]
                } else {
                    &[]
                };
                if let Some(lane) = lane_mut(&mut self.lanes, lane) {
                    let order = self
                        .settings
                        .order
                        .as_deref()
                        .filter(|_| is_own(lane.lane()));
                    lane.add_read(from..upto, total, events, grouping, order);
                }
            }
            Input::Unreadable { lane, from, upto } => {
                self.note_log_read();
                self.on_unreadable(lane, from, upto);
            }
            Input::Position {
                before,
                at,
                appended,
            } => self.on_position(before, at, appended, now),
            Input::Overflow { below } => self.on_overflow(below),
            Input::ReleaseMemory => self.release_memory(),
            Input::DueRead { of, keys, all } => self.on_due_read(of, &keys, all),
            Input::Fetched(fetched) => self.on_fetched(fetched, now),
            Input::Finished { request, answer } => self.on_finished(request, &answer, now, jitter),
            Input::Late { request } => self.on_late(request, now),
            Input::PendingRead(found) => {
                if !self.on_retry_read(&found, now) {
                    self.on_pending_read(&found, now);
                    self.on_leases_read(&found, now);
                }
            }
            Input::Connected(reached) => {
                self.endpoint
                    .record_connection_attempt(reached, now, jitter);
                if !reached {
                    self.backlog_end = self.end;
                }
            }
            Input::Receive(client, events_max) => self.on_receive(client, events_max),
            Input::Withdraw(client) => self.on_withdraw(client),
            Input::Claim(claim) => self.on_claim(claim),
            Input::Tick => {}
            Input::Durable => {
                self.pending_write.finish_write();
                self.live.due.finish_write();
                if let Some(replays) = &mut self.replays {
                    replays.due.finish_write();
                }
                self.jobs.finish_write();
                effects.extend(self.leases.finish_write());
                self.release_durable();
            }
            Input::Command(command) => self.on_command(command, now),
            Input::Retry(request) => self.on_retry(request, now),
            Input::Redrive(page) => self.redrive_dead_letters(*page, now),
            Input::Quarantine(item) => self.on_quarantine(item, now, jitter),
        }
    }

    /// Whether something waits for the end of the write in progress. If not,
    /// [`Subscription::end_write`] may be called when the next input arrives, instead of
    /// [`Input::Durable`].
    pub fn waits_for_write(&self) -> bool {
        self.pending_write.is_awaited() || self.pending_write.is_writing() && self.follows_writes()
    }

    /// Whether something follows from the end of each write.
    fn follows_writes(&self) -> bool {
        let has_others = !self.jobs.is_empty() || self.is_retrying();
        has_others || self.is_pulled() || self.ordering.is_some() || self.postpones_results()
    }

    /// Whether results wait for room in a write.
    fn postpones_results(&self) -> bool {
        self.pending_write.is_full() || !self.postponed.is_empty() || self.late.waits_for_room()
    }

    /// Notes that the write in progress is durable, where nothing waits for it.
    pub fn end_write(&mut self) {
        self.pending_write.finish_write();
    }

    /// Notes that the server has started. Nothing is in flight: a suspended endpoint is probed at
    /// once, and the backlog of the downtime does not precede new events.
    pub fn start(&mut self, now: Timestamp) {
        self.probe_at_once(now);
        self.backlog_end = self.end;
        if let Health::Healthy { .. } = self.endpoint.health() {
            self.split_off_backlog();
        }
    }

    /// Makes the probe of a suspended endpoint due: nothing is known of the endpoint as it is now.
    pub fn probe_at_once(&mut self, now: Timestamp) {
        self.endpoint.start(now);
    }

    /// Sends nothing more. Outcomes of requests in flight are still absorbed.
    pub fn close(&mut self) {
        self.endpoint.close();
    }

    /// Pauses or resumes expiry. A clock that is not trusted must not expire events.
    pub fn pause_expiry(&mut self, paused: bool) {
        if self.expiry_paused && !paused {
            self.expiry_scan.restart_scan();
        }
        self.expiry_paused = paused;
    }

    /// Sends nothing before `until`: the endpoint requested that of another subscription. The same
    /// value counts once, so that an operator can end the wait.
    pub fn delay_until(&mut self, until: Option<Timestamp>, now: Timestamp) {
        if self.endpoint.delay_until(until, now) {
            self.pending_write.write_cursor_now();
        }
    }

    /// The end of the wait that the endpoint requested since the last call. It concerns every
    /// subscription of the endpoint.
    pub fn take_requested_wait(&mut self) -> Option<Timestamp> {
        self.endpoint.take_requested_wait()
    }

    /// The cursor as it would be written now.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            lanes: self.lanes.iter().map(LaneReader::cursor).collect(),
            health: self.endpoint.health(),
            pace: self.endpoint.pace(),
            held: self.endpoint.hold_reason(),
            counters: self.counters,
            replayed: self.replayed,
            jobs: self.jobs.to_cursor(),
            jobs_begun: self.jobs.started(),
            next_due: self.first_due(),
            filtered_out: self.pending_write.filtered_out().to_vec(),
            began: self.began,
            counts: self.counts.clone(),
        }
    }

    /// The endpoint's state, for people.
    pub fn view_endpoint(&self, now: Timestamp) -> EndpointView {
        EndpointView {
            order: self
                .ordering
                .as_deref()
                .map(|ordering| Box::new(ordering.view_order())),
            ..self.endpoint.view(now)
        }
    }

    /// Why a command does not apply in the current state.
    pub fn command_problem(&self, command: Command) -> Option<CommandRefused> {
        match command {
            Command::Job(command) => self.refuses_job(command).map(CommandRefused::Job),
            Command::Unblock { key, .. } => self.refuses_unblock(key),
            Command::Hold | Command::Resume | Command::Probe | Command::Release => {
                self.endpoint.command_problem(command)
            }
        }
    }

    /// Whether a command is not carried out completely, or no write contains what it moved. The
    /// next one waits, so that each is answered with its own number of deliveries.
    pub fn is_deciding(&self) -> bool {
        self.is_carrying_out() || self.commanded > 0
    }

    fn is_carrying_out(&self) -> bool {
        self.is_unblocking() || self.is_retrying()
    }

    /// Bytes of events that are read and not sent.
    pub fn read_ahead_bytes(&self) -> usize {
        self.lanes
            .iter()
            .map(LaneReader::ready_bytes)
            .sum::<usize>()
            + self.live.ready_bytes()
            + self
                .replays
                .as_ref()
                .map_or(0, |replays| replays.ready_bytes())
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.count_open()
    }

    /// The queue of this lane's pending deliveries.
    fn queue_mut(&mut self, lane: Lane) -> &mut SendQueue {
        match Traffic::from_lane(lane) {
            Traffic::Live => &mut self.live,
            Traffic::Jobs => self.job_queue_mut(),
        }
    }

    /// The queue of the pending deliveries of jobs.
    fn job_queue_mut(&mut self) -> &mut SendQueue {
        let longest_wait = self.live.due.wait_max();
        self.replays
            .get_or_insert_with(|| Box::new(SendQueue::for_jobs(None, longest_wait, Vec::new())))
    }

    /// Counts an outcome of an event or a request of this lane. Jobs have counters of their own, in
    /// total and for each job.
    fn update_counters(&mut self, lane: Lane, count: impl Fn(&mut Counters)) {
        match Traffic::from_lane(lane) {
            Traffic::Live => count(&mut self.counters),
            Traffic::Jobs => {
                count(&mut self.replayed);
                self.jobs.counters_mut(lane).into_iter().for_each(count);
            }
        }
    }

    fn on_command(&mut self, command: Command, now: Timestamp) {
        match command {
            Command::Job(command) => self.on_job_command(command, now),
            Command::Unblock { key, retry } => self.decide_blocked_keys(key, retry),
            Command::Hold | Command::Resume | Command::Probe | Command::Release => {
                self.endpoint.on_command(command, now);
                self.expiry_scan.restart_scan();
            }
        }
        self.pending_write.write_cursor_now();
    }

    /// The next write; none while the previous one is not durable.
    fn write(&mut self, now: Timestamp) -> Option<SubscriptionWrite> {
        if !self.pending_write.is_due(now) {
            return None;
        }
        let cursor = Box::new(self.cursor());
        self.live.due.begin_write();
        if let Some(replays) = &mut self.replays {
            replays.due.begin_write();
        }
        if let Some(ordering) = &mut self.ordering {
            ordering.begin_write();
        }
        self.jobs.begin_write();
        self.leases.begin_write();
        let command_count = (!self.is_carrying_out()).then(|| std::mem::take(&mut self.commanded));
        let follows = self.follows_writes();
        Some(
            self.pending_write
                .begin_write(cursor, command_count, follows, now),
        )
    }
}

fn lane_mut(lanes: &mut [LaneReader], lane: Lane) -> Option<&mut LaneReader> {
    lanes.iter_mut().find(|reading| reading.lane() == lane)
}
