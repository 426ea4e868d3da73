//! The state machine of one subscription in one partition: what it has read, what is pending, what
//! is in flight. The actor that runs it is in `gridhook_subscription`.
//!
//! [`Subscription::process_input`] takes an input and returns what follows from it: changes for the
//! journal, and effects for the actor to carry out. [`Subscription::next_due`] returns when to call
//! it again if no input arrives. All delivery decisions are made here.
//!
//! | part | what it owns |
//! | --- | --- |
//! | `settlement` | the state of events, by the components below, and their transitions |
//! | `log` | the lanes: how far the log is read |
//! | `queues`, `queue`, `idle` | pending deliveries on the way from the disk to a request |
//! | `in_flight` | the requests in flight, and resources for others |
//! | `ordering`, `blocking` | order by key: which events wait, and which block their key |
//! | `jobs` | replays and redrives |
//! | `totals` | counters |
//! | `pending_write` | changes that wait for the next write |
//! | `late_responses`, `locks` | late successes, and locks of pull clients, as far as they are not
//! settled |
//! | `excerpt` | excerpts of responses, for people |
//! | `sending` | the endpoint: what leaves next, what is read ahead, and why nothing leaves |
//! | `clients` | pull clients that wait |
//! | `claims`, `redrive`, `retry_now` | what clients and operators have done with events |
//! | `lookup` | lookups of what is only on disk |
//! | `recovery` | the state machine from its records |
//! | `messages` | inputs, effects and writes |
//!
//! The fields of each part are private to it.
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
mod claims;
mod clients;
mod excerpt;
mod idle;
mod in_flight;
mod jobs;
mod late_responses;
mod locks;
mod log;
mod lookup;
mod messages;
mod ordering;
mod pending_write;
mod queue;
mod queues;
mod recovery;
mod redrive;
mod retry_now;
mod sending;
mod settlement;
mod totals;

use std::{collections::VecDeque, sync::Arc};

use clients::PullClients;
use lookup::Lookup;
pub use messages::{
    CoreStep, DetachedEvents, Effect, Input, OutgoingBatch, PullSettings, SendItem,
    SubscriptionSettings, SubscriptionWrite,
};
use ordering::RecoveryInput;
use retry_now::RetryNow;
pub use sending::blocked::Blocked;
use sending::{Sending, reading};
use settlement::Settlement;

use crate::{
    record::{Command, CommandRefused, Cursor, EndpointView, Health, PendingDelivery},
    retry::Jitter,
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};

/// Everything that decides about one event subscription in one partition.
#[derive(Debug)]
pub struct Subscription {
    settlement: Settlement,
    sending: Sending,
    clients: PullClients,
    retry: RetryNow,
    /// Deliveries that commands moved and no result has reported yet.
    moved_by_commands: u64,
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
        let settings = settings.into();
        let endpoint = recovery::recover_endpoint(&settings, cursor, &requests, now);
        Self {
            settlement: recovery::recover_settlement(
                settings,
                cursor,
                end,
                requests,
                next_request,
                now,
            ),
            sending: Sending::new(endpoint, cursor.health),
            clients: PullClients::default(),
            retry: RetryNow::None,
            moved_by_commands: 0,
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
    /// and returns its start: the events may be absorbed together with other inputs, in place of
    /// [`Input::Appended`].
    pub fn read_on(&mut self, end: Seq, now: Timestamp) -> Option<Seq> {
        let settlement = &mut self.settlement;
        settlement.log.extend_to(end);
        let is_plain = !settlement.order.is_enabled()
            && !settlement.settings.is_pulled()
            && settlement.jobs.is_empty();
        let is_steady = self.sending.is_steady(settlement) && self.postponed.is_empty();
        let may_read = is_plain
            && is_steady
            && self.sending.endpoint().is_open(now)
            && !settlement.pending_write.is_ahead();
        if may_read {
            settlement.log.begin_plain_read()
        } else {
            None
        }
    }

    /// [`Subscription::process_inputs`] with one input.
    pub fn process_input(&mut self, input: Input, now: Timestamp, jitter: Jitter) -> CoreStep {
        self.process_inputs([(input, jitter)], now)
    }

    /// Processes inputs that arrived together, in order, and decides once what follows. Without
    /// inputs it acts as at a tick.
    pub fn process_inputs(
        &mut self,
        inputs: impl IntoIterator<Item = (Input, Jitter)>,
        now: Timestamp,
    ) -> CoreStep {
        let mut effects = Vec::new();
        let mut jitter = Jitter(0.0);
        let limit = self.sending.endpoint().concurrency_limit();
        self.settlement.requests.begin_inputs(limit as usize);
        for (input, input_jitter) in inputs {
            jitter = input_jitter;
            match self.settlement.recover_with(input) {
                RecoveryInput::Absorbed => {}
                RecoveryInput::Postponed(input) => self.postponed.push_back(input),
                RecoveryInput::Other(input) if input.is_result() && self.postpones_results() => {
                    self.postponed.push_back(input)
                }
                RecoveryInput::Other(input) => self.on_input(input, &mut effects, now, jitter),
            }
        }
        self.settlement.finish_recovery();
        if let Some(ordering) = self.settlement.order.get_mut()
            && ordering.is_recovering()
        {
            effects.extend(ordering.next_recovery_effect());
        } else {
            self.decide_next(&mut effects, now, jitter);
        }
        CoreStep {
            write: self.next_write(now),
            effects,
        }
    }

    /// Decides what follows from all that is known.
    fn decide_next(&mut self, effects: &mut Vec<Effect>, now: Timestamp, jitter: Jitter) {
        while !self.settlement.pending_write.is_full()
            && let Some(postponed) = self.postponed.pop_front()
        {
            self.on_input(postponed, effects, now, jitter);
        }
        let settlement = &mut self.settlement;
        late_responses::settle_responses(settlement, now);
        if self.postponed.is_empty() {
            self.sending.fail_overdue_requests(settlement, now, jitter);
        }
        claims::settle_claims(&mut self.clients, settlement, now);
        self.moved_by_commands += blocking::carry_out_decisions(settlement, now);
        self.sending
            .fill_pipeline(settlement, &mut self.clients, effects, now);
        effects.extend(self.sending.begin_connection_attempt(settlement, now));
        effects.extend(self.retry.next_effect(settlement));
        if !self.retry.is_reading() {
            effects.extend(settlement.late.lookup_mut().next_effect());
            let locks = &mut settlement.locks;
            effects.extend(locks.lookup_mut().and_then(Lookup::next_effect));
        }
    }

    fn on_input(
        &mut self,
        input: Input,
        effects: &mut Vec<Effect>,
        now: Timestamp,
        jitter: Jitter,
    ) {
        let settlement = &mut self.settlement;
        match input {
            Input::Appended { end } => settlement.log.extend_to(end),
            Input::Read {
                lane,
                from,
                upto,
                total,
                events,
            } => {
                self.note_log_read(events.len(), total);
                self.settlement.add_read(lane, from..upto, total, events);
            }
            Input::Unreadable { lane, from, upto } => {
                self.note_log_read(0, upto.0.saturating_sub(from.0));
                self.settlement.on_unreadable(lane, from, upto);
            }
            Input::Position {
                before,
                at,
                appended,
            } => self
                .sending
                .on_position(settlement, before, at, appended, now),
            Input::Overflow { below } => settlement.drop_overflow(below),
            Input::ReleaseMemory => settlement.release_memory(),
            Input::DueRead { traffic, keys, all } => {
                reading::on_due_read(settlement, traffic, &keys, all)
            }
            Input::Fetched(fetched) => reading::on_fetched(settlement, &self.clients, fetched, now),
            Input::Finished { request, result } => self
                .sending
                .on_finished(settlement, request, &result, now, jitter),
            Input::Late { request } => self.sending.on_late(settlement, request, now),
            Input::PendingRead(records) => self.on_pending_read(&records, now),
            Input::Connected(is_reachable) => {
                self.sending
                    .on_connection_attempt(settlement, is_reachable, now, jitter)
            }
            Input::Receive(client, events_max) if settlement.settings.is_pulled() => {
                self.clients.add_client(client, events_max)
            }
            Input::Receive(client, _) => {
                self.clients.refuse_client(client);
                settlement.pending_write.write_cursor_now();
            }
            Input::Withdraw(client) => self.clients.remove_client(client),
            Input::Claim(claim) => self.clients.add_claim(claim),
            Input::Tick => {}
            Input::Durable => {
                settlement.finish_write();
                effects.extend(self.clients.finish_write());
            }
            Input::Command(command) => self.on_command(command, now),
            Input::Retry(request) => {
                if self.refuses_retry(now).is_none() {
                    self.retry.add_request(request);
                }
            }
            Input::Redrive(page) => redrive::redrive_dead_letters(settlement, *page, now),
            Input::Quarantine(item) => self.sending.on_quarantine(settlement, item, now, jitter),
        }
    }

    fn on_pending_read(
        &mut self,
        records: &[(Lane, Seq, Option<PendingDelivery>)],
        now: Timestamp,
    ) {
        let is_refused = self.refuses_retry(now).is_some();
        let settlement = &mut self.settlement;
        let moved_count = self
            .retry
            .on_pending_read(settlement, records, is_refused, now);
        if let Some(moved_count) = moved_count {
            self.moved_by_commands += moved_count;
        } else {
            late_responses::on_pending_read(settlement, records, now);
            claims::on_leases_read(&mut self.clients, settlement, records, now);
        }
    }

    fn note_log_read(&mut self, matching: usize, total: u64) {
        if self.settlement.settings.is_pulled() {
            self.clients.note_log_read(matching, total);
        }
    }

    /// Why nothing leaves now; [`None`] if what is ready may leave.
    pub fn blocked(&self, now: Timestamp) -> Option<Blocked> {
        self.sending.blocked(&self.settlement, &self.clients, now)
    }

    /// When to absorb an [`Input::Tick`] if nothing else happens before.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let settlement = &self.settlement;
        if settlement.order.is_recovering() {
            return None;
        }
        // The results that wait for room in a write are absorbed first.
        let request = settlement
            .requests
            .oldest()
            .filter(|_| self.postponed.is_empty())
            .map(|(_, deadline)| deadline);
        [
            request,
            settlement.pending_write.next_wake(),
            self.sending.next_expiry_scan(settlement),
            self.sending.next_work(settlement, &self.clients, now),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Limits the requests in flight to `requests_max`, for lack of file descriptors, and what is
    /// sent next to `bytes_max` bytes of bodies, for lack of memory. All subscriptions share both.
    /// The caller says what is free before each turn, and ticks a subscription that is
    /// [blocked](Subscription::blocked) by one of them once some is released.
    pub fn limit_resources(&mut self, requests_max: usize, bytes_max: usize) {
        self.settlement.requests.set_limits(requests_max, bytes_max);
    }

    /// Whether something waits for the end of the write in progress. If not,
    /// [`Subscription::end_write`] may be called when the next input arrives, instead of
    /// [`Input::Durable`].
    pub fn waits_for_write(&self) -> bool {
        let pending_write = &self.settlement.pending_write;
        pending_write.is_awaited() || pending_write.is_writing() && self.follows_writes()
    }

    /// Whether something follows from the end of each write.
    fn follows_writes(&self) -> bool {
        let settlement = &self.settlement;
        !settlement.jobs.is_empty()
            || self.retry.is_pending()
            || settlement.settings.is_pulled()
            || settlement.order.is_enabled()
            || self.postpones_results()
    }

    /// Whether results wait for room in a write.
    fn postpones_results(&self) -> bool {
        self.settlement.pending_write.is_full()
            || !self.postponed.is_empty()
            || self.settlement.late.waits_for_room()
    }

    /// Notes that the write in progress is durable, where nothing waits for it.
    pub fn end_write(&mut self) {
        self.settlement.pending_write.finish_write();
    }

    /// Notes that the server has started. Nothing is in flight: a suspended endpoint is probed at
    /// once, and the backlog of the downtime does not precede new events.
    pub fn start(&mut self, now: Timestamp) {
        self.probe_at_once(now);
        self.settlement.log.mark_backlog_end();
        if let Health::Healthy { .. } = self.sending.endpoint().health() {
            self.settlement.split_off_backlog();
        }
    }

    /// Makes the probe of a suspended endpoint due: nothing is known of the endpoint as it is now.
    pub fn probe_at_once(&mut self, now: Timestamp) {
        self.sending.endpoint_mut().start(now);
    }

    /// Sends nothing more. Outcomes of requests in flight are still absorbed.
    pub fn close(&mut self) {
        self.sending.endpoint_mut().close();
    }

    /// Pauses or resumes expiry. A clock that is not trusted must not expire events.
    pub fn set_expiry_paused(&mut self, is_paused: bool) {
        if self.settlement.set_expiry_paused(is_paused) {
            self.sending.restart_expiry_scan();
        }
    }

    /// Sends nothing before `until`: the endpoint requested that of another subscription. The same
    /// value counts once, so that an operator can end the wait.
    pub fn delay_until(&mut self, until: Option<Timestamp>, now: Timestamp) {
        if self.sending.endpoint_mut().delay_until(until, now) {
            self.settlement.pending_write.write_cursor_now();
        }
    }

    /// The end of the wait that the endpoint requested since the last call. It concerns every
    /// subscription of the endpoint.
    pub fn take_requested_wait(&mut self) -> Option<Timestamp> {
        self.sending.endpoint_mut().take_requested_wait()
    }

    /// The cursor as it would be written now.
    pub fn cursor(&self) -> Cursor {
        let endpoint = self.sending.endpoint();
        Cursor {
            health: endpoint.health(),
            pace: endpoint.pace(),
            held: endpoint.hold_reason(),
            ..self.settlement.to_cursor()
        }
    }

    /// The endpoint's state, for people.
    pub fn view_endpoint(&self, now: Timestamp) -> EndpointView {
        let ordering = self.settlement.order.get();
        EndpointView {
            order: ordering.map(|ordering| Box::new(ordering.view_order())),
            ..self.sending.endpoint().view(now)
        }
    }

    /// Why a command does not apply in the current state.
    pub fn command_problem(&self, command: Command) -> Option<CommandRefused> {
        match command {
            Command::Job(command) => {
                let problem = self.settlement.jobs.command_problem(command);
                problem.map(CommandRefused::Job)
            }
            Command::Unblock { .. } if self.settlement.order.is_recovering() => {
                Some(CommandRefused::Recovering)
            }
            Command::Unblock { key, .. } => {
                let ordering = self.settlement.order.get();
                let is_any =
                    ordering.is_some_and(|ordering| !ordering.blocking_events(key).is_empty());
                (!is_any).then_some(CommandRefused::NotBlocked)
            }
            Command::Hold | Command::Resume | Command::Probe | Command::Release => {
                self.sending.endpoint().command_problem(command)
            }
        }
    }

    /// Why no pending delivery can be retried now.
    pub fn refuses_retry(&self, now: Timestamp) -> Option<CommandRefused> {
        if self.settlement.settings.is_pulled() {
            Some(CommandRefused::Pulled)
        } else if self.settlement.order.is_recovering() {
            // It may hold back what would be brought forward.
            Some(CommandRefused::Recovering)
        } else if self.sending.endpoint().hold_reason().is_some() {
            Some(CommandRefused::Held)
        } else if self.sending.is_dead_lettering(&self.settlement, now) {
            // What is due then is given up.
            Some(CommandRefused::DeadLettering)
        } else {
            None
        }
    }

    /// Why this redrive cannot take a page of dead letters.
    pub fn refuses_dead_letters(&self, lane: Lane) -> Option<CommandRefused> {
        self.settlement.jobs.refuses_dead_letters(lane)
    }

    /// The lane of the job that this command would start.
    pub fn next_job(&self, command: Command) -> Option<Lane> {
        self.settlement.jobs.next_job(command)
    }

    /// Whether a command is not carried out completely, or no write contains what it moved. The
    /// next one waits, so that each result has its own number of deliveries.
    pub fn is_deciding(&self) -> bool {
        self.is_carrying_out() || self.moved_by_commands > 0
    }

    fn is_carrying_out(&self) -> bool {
        blocking::is_unblocking(&self.settlement) || self.retry.is_pending()
    }

    /// Bytes of events that are read and not sent.
    pub fn read_ahead_bytes(&self) -> usize {
        self.settlement.log.ready_bytes() + self.settlement.queues.ready_bytes()
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.settlement.requests.count_open()
    }

    fn on_command(&mut self, command: Command, now: Timestamp) {
        let settlement = &mut self.settlement;
        match command {
            Command::Job(command) => jobs::on_command(settlement, command, now),
            Command::Unblock { key, retry } => {
                if let Some(ordering) = settlement.order.get_mut() {
                    ordering.decide_blocked_keys(key, retry);
                }
            }
            Command::Hold | Command::Resume | Command::Probe | Command::Release => {
                self.sending.endpoint_mut().on_command(command, now);
                self.sending.restart_expiry_scan();
            }
        }
        settlement.pending_write.write_cursor_now();
    }

    /// The next write; none while the previous one is not durable.
    fn next_write(&mut self, now: Timestamp) -> Option<SubscriptionWrite> {
        if !self.settlement.pending_write.is_due(now) {
            return None;
        }
        let cursor = Box::new(self.cursor());
        self.settlement.begin_write();
        self.clients.begin_write();
        let moved_count =
            (!self.is_carrying_out()).then(|| std::mem::take(&mut self.moved_by_commands));
        let has_followers = self.follows_writes();
        let pending_write = &mut self.settlement.pending_write;
        Some(pending_write.begin_write(cursor, moved_count, has_followers, now))
    }
}
