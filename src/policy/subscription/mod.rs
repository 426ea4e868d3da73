//! The machine of one subscription in one partition: what it has read, what it owes, what is in flight.
//!
//! [`Subscription::absorb`] takes what has happened and says what follows: changes for the journal, and effects for the
//! world. [`Subscription::next_due`] says when to ask again if nothing happens. Nothing else has an opinion.
//!
//! Its rooms: `messages` (what it hears and says), `lane_assignment` (what is sent, beside what, and what goes unsent?), `send` (what
//! is there to send?), `queue` (what of it is owed?), `jobs` (and what once more?), `redrive` (and what of what was given
//! up?), `lease` and `idle` (who pulls, and what does he hold?), `settle` (what came of it?), `lookup` (what does only the
//! disk know?), `excerpt` (what was said?), `late_responses` (what came of it after all?), `pending_write` (what is to
//! be written?).
//!
//! Invariants:
//! - Memory is a view of the records: a machine recovered from what was written, with the flights that have no durable
//!   outcome, goes on where the last one stopped.
//! - Every state that can wait has a deadline: a flight has one, a suspension has one, an owed event has one.
//! - While the endpoint may not be called nothing is attempted and no attempt is consumed; nothing is read but what is given
//!   up: what is too old, and what a subscription wants as dead letters instead of waiting.
//!
//! A request leaves before anything is written, because nothing is promised by it: after a crash the flights are what is
//! repeated. Who pulls is promised that he alone has an event, so that is written first.

mod excerpt;
mod idle;
mod jobs;
mod lane_assignment;
mod late_responses;
mod lease;
mod lookup;
mod messages;
mod pending_write;
mod queue;
mod redrive;
mod send;
mod settle;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use excerpt::ExcerptCache;
use jobs::Jobs;
use lane_assignment::{ExpiryScan, is_sent};
use late_responses::LateResponses;
use lease::Leases;
use lookup::Lookup;
pub use messages::{
    CoreStep, Effect, Input, OutgoingBatch, PullSettings, SendItem, SubscriptionSettings, SubscriptionWrite,
};
use pending_write::PendingWrite;
use queue::SendQueue;

use crate::{
    event::{Lane, RequestId, Seq, Timestamp},
    policy::{
        endpoint::Endpoint,
        lane::LaneReader,
        record::{
            Command, CommandRefused, Counters, Cursor, EndpointView, Health, OutcomeCounts, Traffic,
            lease::RELEASED_FOR,
        },
        retry::{self, Jitter},
        retry_window::RetryWindow,
    },
};

/// The machine.
#[derive(Debug)]
pub struct Subscription {
    settings: SubscriptionSettings,
    endpoint: Endpoint,
    /// The live one first.
    lanes: Vec<LaneReader>,
    aging: ExpiryScan,
    /// Where the log ended when the endpoint was last known to be away: what is below is the backlog of its return.
    away: Seq,
    /// What is owed of what was published.
    own: SendQueue,
    /// What jobs owe.
    replays: SendQueue,
    jobs: Jobs,
    requests: BTreeMap<RequestId, Arc<OutgoingBatch>>,
    next_request: RequestId,
    /// How many requests may be in flight, as far as the process has descriptors for them.
    requests_max: usize,
    /// Whether nothing grows too old at present.
    expiry_held: bool,
    turn: usize,
    end: Seq,
    counters: Counters,
    replayed: Counters,
    counts: OutcomeCounts,
    late: LateResponses,
    leases: Leases,
    excerpts: ExcerptCache,
    began: Seq,
    gathered: PendingWrite,
}

impl Subscription {
    /// The machine as it was written down: `requests` have left and have no durable outcome, whichever life sent them.
    pub fn recover(
        settings: SubscriptionSettings,
        cursor: &Cursor,
        end: Seq,
        requests: Vec<Arc<OutgoingBatch>>,
        next_request: RequestId,
        now: Timestamp,
    ) -> Self {
        let mut lanes: Vec<LaneReader> = cursor.lanes.iter().map(LaneReader::recover).collect();
        let in_flight: HashSet<(Lane, Seq)> =
            requests.iter().flat_map(|request| &request.items).map(SendItem::key).collect();
        let open = lanes.iter().flat_map(|lane| lane.open().iter().map(|seq| (lane.lane(), *seq)));
        let lost: Vec<(Lane, Seq)> = open.filter(|key| !in_flight.contains(key)).collect();
        let lost_of = |of| lost.iter().copied().filter(move |(lane, _)| Traffic::of(*lane) == of);
        // A first attempt that left in an earlier life, after its last write, is open although the cursor does not say so.
        for item in requests.iter().flat_map(|request| &request.items).filter(|item| item.due.is_none()) {
            if let Some(lane) = lane_mut(&mut lanes, item.lane) {
                lane.adopt(item.seq);
            }
        }
        let left = requests.iter().map(|request| (request.id, request.sent));
        let longest_wait = match settings.pull {
            None => retry::longest_wait(&settings.edition, settings.destination),
            Some(pull) => RELEASED_FOR.max(pull.lock),
        };
        let due = match settings.pull {
            None => RetryWindow::recover(cursor.next_due, longest_wait),
            // What is leased is bounded, and what is due is looked at whoever waits.
            Some(_) => RetryWindow::recover_roomy(cursor.next_due, longest_wait),
        };
        // Without a job nothing of theirs is owed.
        let jobs_due = cursor.next_due.filter(|_| !cursor.jobs.is_empty());
        Self {
            endpoint: Endpoint::recover(&settings, cursor, left, now),
            aging: ExpiryScan::recover(cursor.health),
            away: end,
            settings,
            lanes,
            own: SendQueue::new(due, lost_of(Traffic::Own)),
            replays: SendQueue::new(RetryWindow::recover_roomy(jobs_due, longest_wait), lost_of(Traffic::Jobs)),
            jobs: Jobs::recover(&cursor.jobs, cursor.jobs_begun, now),
            requests: requests.into_iter().map(|request| (request.id, request)).collect(),
            next_request,
            requests_max: usize::MAX,
            expiry_held: false,
            turn: 0,
            end,
            counters: cursor.counters,
            replayed: cursor.replayed,
            counts: cursor.counts.clone(),
            late: LateResponses::default(),
            leases: Leases::default(),
            excerpts: ExcerptCache::default(),
            began: cursor.began,
            gathered: PendingWrite::recover(&cursor.filtered_out),
        }
    }

    /// Takes what has happened.
    pub fn absorb(&mut self, input: Input, now: Timestamp, jitter: Jitter) -> CoreStep {
        let mut effects = Vec::new();
        match input {
            Input::Appended { end } => self.end = self.end.max(end),
            Input::Read { lane, from, upto, total, events } => {
                // What is given up is given up in order, and in no batch.
                let grouping = if is_sent(lane) { &self.settings.grouping[..] } else { &[] };
                self.leases.looked();
                if let Some(lane) = lane_mut(&mut self.lanes, lane) {
                    lane.answer(from, upto, total, events, grouping);
                }
            }
            Input::Unreadable { lane, from, upto } => {
                self.leases.looked();
                self.on_unreadable(lane, from, upto);
            }
            Input::Position { before, at, appended } => self.on_position(before, at, appended, now),
            Input::Overflow { below } => self.on_overflow(below),
            Input::LetGo => self.let_go(),
            Input::DueRead { of, keys, all } => self.on_due_read(of, &keys, all),
            Input::Fetched(fetched) => self.on_fetched(fetched, now),
            Input::Finished { request, answer } => self.on_finished(request, &answer, now, jitter),
            Input::Late { request } => self.on_late(request, now),
            Input::PendingRead(found) => {
                self.on_pending_read(&found, now);
                self.on_leases_read(&found, now);
            }
            Input::Connected(reached) => {
                self.endpoint.connected(reached, now, jitter);
                if !reached {
                    self.away = self.end;
                }
            }
            Input::Receive(who, events_max) => self.on_receive(who, events_max),
            Input::Withdraw(who) => self.on_withdraw(who),
            Input::Claim(claim) => self.on_claim(claim),
            Input::Tick => {}
            Input::Durable => {
                self.gathered.durable();
                self.own.due.durable();
                self.replays.due.durable();
                self.jobs.durable();
                effects = self.leases.durable();
            }
            Input::Command(command) => self.on_command(command, now),
            Input::TakeBack(page) => self.redrive_dead_letters(*page, now),
            Input::Quarantine(item) => self.on_quarantine(item, now, jitter),
        }
        self.fail_overdue_requests(now, jitter);
        self.settle_claims(now);
        self.pump(&mut effects, now);
        if self.connects(now).is_some_and(|due| due <= now) {
            self.endpoint.connecting();
            effects.push(Effect::Connect);
        }
        effects.extend([self.late.lookup(), self.leases.lookup()].into_iter().filter_map(Lookup::next_effect));
        CoreStep { write: self.write(now), effects }
    }

    /// The server has started, so that nothing is in flight: an endpoint that was left alone is probed at once, and what
    /// gathered while it was down does not stand before what comes from now on.
    pub fn start(&mut self, now: Timestamp) {
        self.endpoint.start(now);
        self.away = self.end;
        if let Health::Healthy { .. } = self.endpoint.health() {
            self.part_with_backlog();
        }
    }

    /// Lets nothing leave any more: what comes back is still absorbed.
    pub fn close(&mut self) {
        self.endpoint.close();
    }

    /// From now on no more than `most` requests are in flight: the process has no descriptors for more.
    pub fn limit_requests(&mut self, most: usize) {
        self.requests_max = most;
    }

    /// From now on no event is given up for its age, or events are again: the clock cannot be trusted to tell ages, or can.
    pub fn hold_expiry(&mut self, held: bool) {
        if self.expiry_held && !held {
            self.aging.renew();
        }
        self.expiry_held = held;
    }

    /// Whether a request could leave now if there was room for it: then to be asked again once there is.
    pub fn waits_for_room(&self, now: Timestamp) -> bool {
        !self.may_add_request() && !self.is_pulled() && self.endpoint.places(self.requests.len(), now) > 0
    }

    fn may_add_request(&self) -> bool {
        self.requests.len() < self.requests_max
    }

    /// When to absorb a [`Input::Tick`] if nothing else happens before.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let request = self.requests.values().next().map(|request| request.deadline);
        [request, self.gathered.wakes(), self.ages(), self.next_work(now)].into_iter().flatten().min()
    }

    /// The cursor as it would be written down now.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            lanes: self.lanes.iter().map(LaneReader::cursor).collect(),
            health: self.endpoint.health(),
            pace: self.endpoint.pace(),
            held: self.endpoint.held(),
            counters: self.counters,
            replayed: self.replayed,
            jobs: self.jobs.cursors(),
            jobs_begun: self.jobs.started(),
            next_due: self.first_due(),
            filtered_out: self.gathered.filtered_out().to_vec(),
            began: self.began,
            counts: self.counts.clone(),
        }
    }

    /// How the endpoint is, for people.
    pub fn endpoint(&self, now: Timestamp) -> EndpointView {
        self.endpoint.view(now)
    }

    /// Why a command has no sense as it is.
    pub fn refuses(&self, command: Command) -> Option<CommandRefused> {
        match command {
            Command::Job(command) => self.refuses_job(command).map(CommandRefused::Job),
            Command::Hold | Command::Resume | Command::Probe | Command::Release => self.endpoint.refuses(command),
        }
    }

    /// How many bytes of events it has read and not sent.
    pub fn kept_bytes(&self) -> usize {
        self.lanes.iter().map(LaneReader::ready_bytes).sum::<usize>()
            + self.own.ready_bytes()
            + self.replays.ready_bytes()
    }

    /// How many requests are on their way.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// When something may be sent that cannot be sent now. Where only a free place is wanting, an answer will bring it.
    fn next_work(&self, now: Timestamp) -> Option<Timestamp> {
        if self.endpoint.is_shut() {
            return None;
        }
        if let Health::Probing { .. } = self.endpoint.health() {
            return None;
        }
        match self.endpoint.opens().filter(|opens| *opens > now) {
            Some(until) => {
                let probe = self.work(now).map(|work| work.max(until));
                let condemned = self.next_due_key(now).filter(|_| self.is_condemned(now));
                probe.into_iter().chain(self.connects(now)).chain(condemned).min()
            }
            // What is ready waits for its pace, or for a free place.
            None => {
                let paced = self.endpoint.paces(self.requests.len(), now);
                let paced = paced.filter(|_| {
                    self.may_add_request() && self.is_ready() && !self.gathered.is_ahead() && !self.is_dividing()
                });
                paced.into_iter().chain(self.next_due_key(now)).chain(self.next_of_jobs(now)).min()
            }
        }
    }

    /// From when on there is something to send, if the endpoint may be called.
    fn work(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = self.is_behind() || !self.own.lost.is_empty() || !self.own.retries.is_empty();
        let work = if waits { Some(now) } else { self.own.first_due() };
        work.into_iter().chain(self.wait_of_jobs(now)).min()
    }

    /// When a bare connection is to be tried: where the endpoint is left alone and there is something to send.
    fn connects(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.endpoint.connects().filter(|_| self.endpoint.opens().is_some_and(|until| until > now))?;
        self.work(now).map(|work| work.max(due))
    }

    /// When the next owed event is to be asked for. What is due now has been asked for, or waits for a free place.
    fn next_due_key(&self, now: Timestamp) -> Option<Timestamp> {
        let blocked = self.fetches_enough() || self.gathered.is_ahead() || self.is_looking();
        let death = self.own.idle.first_death().filter(|_| !self.expiry_held);
        self.own.due.wakes(now).into_iter().chain(death).min().filter(|_| !blocked)
    }

    /// When the first owed event falls due, wherever it is by now.
    fn first_due(&self) -> Option<Timestamp> {
        let in_flight = self.in_flight_items().filter_map(|item| item.due);
        self.own.first_due().into_iter().chain(self.replays.first_due()).chain(in_flight).min()
    }

    /// What is in flight.
    fn in_flight_items(&self) -> impl Iterator<Item = &SendItem> {
        self.requests.values().flat_map(|request| &request.items)
    }

    /// The way that what is owed in this lane takes.
    fn queue(&mut self, lane: Lane) -> &mut SendQueue {
        match Traffic::of(lane) {
            Traffic::Own => &mut self.own,
            Traffic::Jobs => &mut self.replays,
        }
    }

    /// Counts what became of an event, or of a request, of this lane: jobs have a column of their own, and each has one.
    fn count(&mut self, lane: Lane, count: impl Fn(&mut Counters)) {
        match Traffic::of(lane) {
            Traffic::Own => count(&mut self.counters),
            Traffic::Jobs => {
                count(&mut self.replayed);
                self.jobs.counters_mut(lane).into_iter().for_each(count);
            }
        }
    }

    fn on_command(&mut self, command: Command, now: Timestamp) {
        if let Command::Job(command) = command {
            self.on_job_command(command, now);
        } else {
            self.endpoint.on_command(command, now);
            self.aging.renew();
        }
        self.gathered.cursor_now();
    }

    /// What is to be written now; nothing while the last write is on its way.
    fn write(&mut self, now: Timestamp) -> Option<SubscriptionWrite> {
        if !self.gathered.is_due(now) {
            return None;
        }
        let cursor = self.cursor();
        self.own.due.written();
        self.replays.due.written();
        self.jobs.written();
        self.leases.written();
        Some(self.gathered.take(cursor, now))
    }
}

fn lane_mut(lanes: &mut [LaneReader], lane: Lane) -> Option<&mut LaneReader> {
    lanes.iter_mut().find(|reading| reading.lane() == lane)
}
