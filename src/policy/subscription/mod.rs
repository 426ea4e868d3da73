//! The machine of one subscription in one partition: what it has read, what it owes, what is in flight.
//!
//! [`Subscription::absorb`] takes what has happened and says what follows: changes for the journal, and effects for the
//! world. [`Subscription::next_due`] says when to ask again if nothing happens. Nothing else has an opinion.
//!
//! Its rooms: `words` (what it hears and says), `divide` (what is sent, beside what, and what goes unsent?), `send` (what
//! is there to send?), `queue` (what of it is owed?), `jobs` (and what once more?), `redrive` (and what of what was given
//! up?), `lease` and `idle` (who pulls, and what does he hold?), `settle` (what came of it?), `question` (what does only the
//! disk know?), `excerpt` (what was said?), `late` (what came of it after all?), `gather` (what is to
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

mod divide;
mod excerpt;
mod gather;
mod idle;
mod jobs;
mod late;
mod lease;
mod question;
mod queue;
mod redrive;
mod send;
mod settle;
mod words;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    event::{FlightId, Lane, Seq, Timestamp},
    policy::{
        due::Window,
        endpoint::Endpoint,
        lane::Reading,
        record::{Command, Counters, Cursor, EndpointView, Health, Senseless, Tally, Traffic, lease::RELEASED_FOR},
        retry::{self, Chance},
    },
};

use divide::{Aging, is_sent};
use excerpt::Excerpts;
use gather::Gathered;
use jobs::Jobs;
use late::Late;
use lease::Leases;
use question::Question;
use queue::Queue;
pub use words::{Effect, Flight, Input, Item, Pull, Settings, Step, Write};

/// The machine.
#[derive(Debug)]
pub struct Subscription {
    settings: Settings,
    endpoint: Endpoint,
    /// The live one first.
    lanes: Vec<Reading>,
    aging: Aging,
    /// Where the log ended when the endpoint was last known to be away: what is below is the backlog of its return.
    away: Seq,
    /// What is owed of what was published.
    own: Queue,
    /// What jobs owe.
    replays: Queue,
    jobs: Jobs,
    flights: BTreeMap<FlightId, Arc<Flight>>,
    next_flight: FlightId,
    /// How many requests may be in flight, as far as the process has descriptors for them.
    flights_max: usize,
    /// Whether nothing grows too old at present.
    expiry_held: bool,
    turn: usize,
    end: Seq,
    counters: Counters,
    replayed: Counters,
    tally: Tally,
    late: Late,
    leases: Leases,
    excerpts: Excerpts,
    began: Seq,
    gathered: Gathered,
}

impl Subscription {
    /// The machine as it was written down: `flights` have left and have no durable outcome, whichever life sent them.
    pub fn recover(
        settings: Settings,
        cursor: &Cursor,
        end: Seq,
        flights: Vec<Arc<Flight>>,
        next_flight: FlightId,
        now: Timestamp,
    ) -> Self {
        let mut lanes: Vec<Reading> = cursor.lanes.iter().map(Reading::recover).collect();
        let aloft: HashSet<(Lane, Seq)> = flights.iter().flat_map(|flight| &flight.items).map(Item::key).collect();
        let open = lanes.iter().flat_map(|lane| lane.open().iter().map(|seq| (lane.lane(), *seq)));
        let lost: Vec<(Lane, Seq)> = open.filter(|key| !aloft.contains(key)).collect();
        let lost_of = |of| lost.iter().copied().filter(move |(lane, _)| Traffic::of(*lane) == of);
        // A first attempt that left in an earlier life, after its last write, is open although the cursor does not say so.
        for item in flights.iter().flat_map(|flight| &flight.items).filter(|item| item.due.is_none()) {
            if let Some(lane) = lane_mut(&mut lanes, item.lane) {
                lane.adopt(item.seq);
            }
        }
        let left = flights.iter().map(|flight| (flight.id, flight.sent));
        let longest_wait = match settings.pull {
            None => retry::longest_wait(&settings.edition, settings.destination),
            Some(pull) => RELEASED_FOR.max(pull.lock),
        };
        let due = match settings.pull {
            None => Window::recover(cursor.next_due, longest_wait),
            // What is leased is bounded, and what is due is looked at whoever waits.
            Some(_) => Window::recover_roomy(cursor.next_due, longest_wait),
        };
        // Without a job nothing of theirs is owed.
        let jobs_due = cursor.next_due.filter(|_| !cursor.jobs.is_empty());
        Self {
            endpoint: Endpoint::recover(&settings, cursor, left, now),
            aging: Aging::recover(cursor.health),
            away: end,
            settings,
            lanes,
            own: Queue::new(due, lost_of(Traffic::Own)),
            replays: Queue::new(Window::recover_roomy(jobs_due, longest_wait), lost_of(Traffic::Jobs)),
            jobs: Jobs::recover(&cursor.jobs, cursor.jobs_begun, now),
            flights: flights.into_iter().map(|flight| (flight.id, flight)).collect(),
            next_flight,
            flights_max: usize::MAX,
            expiry_held: false,
            turn: 0,
            end,
            counters: cursor.counters,
            replayed: cursor.replayed,
            tally: cursor.tally.clone(),
            late: Late::default(),
            leases: Leases::default(),
            excerpts: Excerpts::default(),
            began: cursor.began,
            gathered: Gathered::recover(&cursor.sifted),
        }
    }

    /// Takes what has happened.
    pub fn absorb(&mut self, input: Input, now: Timestamp, chance: Chance) -> Step {
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
            Input::Finished { flight, answer } => self.on_finished(flight, &answer, now, chance),
            Input::Late { flight } => self.on_late(flight, now),
            Input::OwedRead(found) => {
                self.on_owed_read(&found, now);
                self.on_leases_read(&found, now);
            }
            Input::Connected(reached) => {
                self.endpoint.connected(reached, now, chance);
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
            Input::TakeBack(page) => self.take_letters_back(*page, now),
            Input::Quarantine(item) => self.on_quarantine(item, now, chance),
        }
        self.lose_overdue_flights(now, chance);
        self.settle_claims(now);
        self.pump(&mut effects, now);
        if self.connects(now).is_some_and(|due| due <= now) {
            self.endpoint.connecting();
            effects.push(Effect::Connect);
        }
        effects.extend([self.late.question(), self.leases.question()].into_iter().filter_map(Question::ask));
        Step { write: self.write(now), effects }
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
    pub fn limit_flights(&mut self, most: usize) {
        self.flights_max = most;
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
        !self.may_add_flight() && !self.is_pulled() && self.endpoint.places(self.flights.len(), now) > 0
    }

    fn may_add_flight(&self) -> bool {
        self.flights.len() < self.flights_max
    }

    /// When to absorb a [`Input::Tick`] if nothing else happens before.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let flight = self.flights.values().next().map(|flight| flight.deadline);
        [flight, self.gathered.wakes(), self.ages(), self.next_work(now)].into_iter().flatten().min()
    }

    /// The cursor as it would be written down now.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            lanes: self.lanes.iter().map(Reading::cursor).collect(),
            health: self.endpoint.health(),
            pace: self.endpoint.pace(),
            held: self.endpoint.held(),
            counters: self.counters,
            replayed: self.replayed,
            jobs: self.jobs.cursors(),
            jobs_begun: self.jobs.begun(),
            next_due: self.first_due(),
            sifted: self.gathered.sifted().to_vec(),
            began: self.began,
            tally: self.tally.clone(),
        }
    }

    /// How the endpoint is, for people.
    pub fn endpoint(&self, now: Timestamp) -> EndpointView {
        self.endpoint.view(now)
    }

    /// Why a command has no sense as it is.
    pub fn refuses(&self, command: Command) -> Option<Senseless> {
        match command {
            Command::Job(command) => self.refuses_job(command).map(Senseless::Job),
            Command::Hold | Command::Resume | Command::Probe | Command::Release => self.endpoint.refuses(command),
        }
    }

    /// How many bytes of events it has read and not sent.
    pub fn kept_bytes(&self) -> usize {
        self.lanes.iter().map(Reading::ready_bytes).sum::<usize>() + self.own.ready_bytes() + self.replays.ready_bytes()
    }

    /// How many requests are on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
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
                let paced = self.endpoint.paces(self.flights.len(), now);
                let paced = paced.filter(|_| {
                    self.may_add_flight() && self.is_ready() && !self.gathered.is_ahead() && !self.is_dividing()
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
        let aloft = self.aloft().filter_map(|item| item.due);
        self.own.first_due().into_iter().chain(self.replays.first_due()).chain(aloft).min()
    }

    /// What is in flight.
    fn aloft(&self) -> impl Iterator<Item = &Item> {
        self.flights.values().flat_map(|flight| &flight.items)
    }

    /// The way that what is owed in this lane takes.
    fn queue(&mut self, lane: Lane) -> &mut Queue {
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
            self.endpoint.obey(command, now);
            self.aging.renew();
        }
        self.gathered.cursor_now();
    }

    /// What is to be written now; nothing while the last write is on its way.
    fn write(&mut self, now: Timestamp) -> Option<Write> {
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

fn lane_mut(lanes: &mut [Reading], lane: Lane) -> Option<&mut Reading> {
    lanes.iter_mut().find(|reading| reading.lane() == lane)
}
