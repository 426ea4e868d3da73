//! One subscription: the real core, with a disk, a clock and an endpoint that are none.
//!
//! This is the only place that knows what the core says and hears. What it asks for is answered at once, from memory;
//! what it writes is on the disk after the journal's waits; what it sends is answered when the endpoint does.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;

use crate::{
    event::{FlightId, Lane, Seq, Timestamp},
    policy::{
        Effect, Flight, Input, Settings, Subscription, Write,
        due::WINDOW,
        outcome::{Outcome, Reason},
        record::{Change, Cursor, DueKey, Entry, Fetched, LaneCursor, Traffic, What as Said},
        retry::Chance,
    },
    simulate::{
        disk::Disk,
        endpoint::{Endpoint, Reply},
        log::Log,
        queue::{Happening, Queue, What},
        recovery::Watch,
        series::Series,
    },
};

/// One sync of an ordinary disk.
const SYNC: Duration = Duration::from_millis(3);

/// The server's timers are no finer either.
const TIMER_MIN: Duration = Duration::from_millis(1);

/// A subscription.
#[derive(Debug)]
pub(super) struct Subscriber {
    number: usize,
    core: Subscription,
    pub(super) disk: Disk,
    writing: Option<Write>,
    endpoint: Endpoint,
    chance: Rng,
    /// When the tick comes that it waits for; others are stale.
    armed: Option<Timestamp>,
    pub(super) watch: Watch,
    pub(super) tally: Tally,
}

/// What is counted of it beside its own counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    /// Each event of a request is an attempt.
    pub(super) attempts: u64,
    /// Of these, those with an outcome on the disk.
    pub(super) answered: u64,
    /// Of these, those that failed.
    pub(super) failed: u64,
    /// Attempts made while the endpoint was down.
    pub(super) while_down: u64,
    /// From the append to the delivery.
    pub(super) longest_wait: Duration,
    pub(super) given_up: BTreeMap<Reason, u64>,
}

/// What all subscriptions of a temper share.
pub(super) struct World<'a> {
    pub(super) log: &'a Log,
    pub(super) queue: &'a mut Queue,
    pub(super) series: &'a mut Series,
    /// How long the journal lets outcomes wait for company.
    pub(super) outcome_wait: Duration,
}

impl Subscriber {
    pub(super) fn new(number: usize, settings: Settings, endpoint: Endpoint, chance: Rng, now: Timestamp) -> Self {
        let lane = LaneCursor { lane: Lane::LIVE, read: Seq::FIRST, end: None, open: Vec::new(), done: Vec::new() };
        let cursor = Cursor { lanes: vec![lane], ..Cursor::default() };
        Self {
            number,
            core: Subscription::recover(settings, &cursor, Seq::FIRST, Vec::new(), FlightId(1), now),
            disk: Disk { cursor, ..Disk::default() },
            writing: None,
            watch: Watch::new(endpoint.spell(now)),
            endpoint,
            chance,
            armed: None,
            tally: Tally::default(),
        }
    }

    /// Something was published.
    pub(super) fn published(&mut self, now: Timestamp, world: &mut World<'_>) {
        self.absorb(Input::Appended { end: world.log.end() }, now, world);
    }

    /// Something of its own happens.
    pub(super) fn happened(&mut self, happening: Happening, now: Timestamp, world: &mut World<'_>) {
        match happening {
            Happening::Answered(flight, reply) => self.answered(&flight, reply, now, world),
            Happening::Durable => self.durable(now, world),
            Happening::Tick => self.ticked(now, world),
        }
    }

    /// The story ends.
    ///
    /// # Panics
    /// Where its books do not balance: the core is wrong, or this is.
    pub(super) fn end(&mut self, now: Timestamp, log: &Log) {
        self.see(now, log);
        self.disk.check();
        let counters = self.disk.cursor.counters;
        assert_eq!(counters.passed + self.backlog(log.end()), log.events(), "{:?}", self.disk.cursor);
        let given_up = self.tally.given_up.values().sum::<u64>();
        assert_eq!(counters.dead_lettered + counters.dropped, given_up, "{:?}", self.tally);
    }

    /// A request is answered.
    fn answered(&mut self, flight: &Flight, reply: Reply, now: Timestamp, world: &mut World<'_>) {
        self.see(now, world.log);
        if reply.outcome == Outcome::Delivered {
            self.watch.delivered(flight.items.len() as u64, now);
            let first = flight.items.iter().map(|item| item.appended).min().unwrap_or(now);
            self.tally.longest_wait = self.tally.longest_wait.max(now.since(first));
        }
        self.absorb(Input::Finished { flight: flight.id, answer: reply.answer() }, now, world);
    }

    /// The write that was on its way is on the disk.
    fn durable(&mut self, now: Timestamp, world: &mut World<'_>) {
        self.see(now, world.log);
        let write = self.writing.take().expect("a write was on its way");
        for change in &write.changes {
            self.disk.apply(change);
            if let Change::Note { entry, .. } = change {
                self.tally.note(entry);
            }
        }
        // The dead-letter actor has them now.
        self.disk.dead.clear();
        let (disk, end) = (&self.disk, world.log.end());
        self.watch.written(now, || disk.low().unwrap_or(end));
        self.absorb(Input::Durable, now, world);
    }

    /// It wanted to be asked at `now`, unless it changed its mind.
    fn ticked(&mut self, now: Timestamp, world: &mut World<'_>) {
        if self.armed != Some(now) {
            return;
        }
        self.armed = None;
        if self.core.next_due(now).is_some_and(|due| due <= now) {
            self.absorb(Input::Tick, now, world);
        } else {
            self.arm(now, world.queue);
        }
    }

    /// How many events it has not passed, of those that the log has.
    pub(super) fn backlog(&self, end: Seq) -> u64 {
        let unread = self.disk.cursor.lanes.iter().map(|lane| {
            let unread = lane.end.unwrap_or(end).0.saturating_sub(lane.read.0);
            unread + lane.open.len() as u64 - lane.done.len() as u64
        });
        unread.sum()
    }

    fn see(&mut self, now: Timestamp, log: &Log) {
        let disk = &self.disk;
        self.watch.see(now, &self.endpoint, log, || disk.low().unwrap_or(log.end()));
    }

    fn absorb(&mut self, input: Input, now: Timestamp, world: &mut World<'_>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let step = self.core.absorb(input, now, Chance(self.chance.f64()));
            if let Some(write) = step.write {
                let wait = if write.urgent { SYNC } else { SYNC + world.outcome_wait };
                world.queue.plan(now.after(wait), What::Of(self.number, Happening::Durable));
                assert!(self.writing.replace(write).is_none(), "one write is on its way at a time");
            }
            for effect in step.effects {
                inputs.extend(self.perform(effect, now, world));
            }
        }
        self.arm(now, world.queue);
    }

    /// Does what the core says. What can be answered at once is.
    fn perform(&mut self, effect: Effect, now: Timestamp, world: &mut World<'_>) -> Option<Input> {
        match effect {
            Effect::Send { flight, events: _ } => {
                self.send(flight, now, world);
                None
            }
            Effect::Connect => Some(Input::Connected(self.endpoint.spell(now).up)),
            // No subscriber is one that pulls.
            Effect::Hand { .. } | Effect::Tell { .. } => None,
            Effect::FindPosition { before } => {
                let at = world.log.at(before);
                Some(Input::Position { before, at, appended: world.log.event(at).map(|event| event.appended) })
            }
            Effect::ReadLog { lane, from, end } => {
                let mut events = world.log.read(from);
                events.retain(|event| end.is_none_or(|end| event.seq < end));
                let total = events.len() as u64;
                Some(Input::Read { lane, from, upto: from.plus(total), total, events })
            }
            Effect::ReadDue { of, from } => {
                let keys = self.disk.due.range(from..).filter(|key| Traffic::of(key.lane) == of);
                let keys: Vec<DueKey> = keys.take(WINDOW).copied().collect();
                let all = keys.len() < WINDOW;
                Some(Input::DueRead { of, keys, all })
            }
            Effect::ReadOwed(keys) => {
                let owed = |(lane, seq)| (lane, seq, self.disk.owed.get(&(lane, seq)).cloned());
                Some(Input::OwedRead(keys.into_iter().map(owed).collect()))
            }
            Effect::Fetch(keys) => {
                let fetch = |(lane, seq)| Fetched {
                    lane,
                    seq,
                    owed: self.disk.owed.get(&(lane, seq)).cloned(),
                    event: world.log.event(seq),
                };
                Some(Input::Fetched(keys.into_iter().map(fetch).collect()))
            }
        }
    }

    fn send(&mut self, flight: Arc<Flight>, now: Timestamp, world: &mut World<'_>) {
        self.see(now, world.log);
        let events = flight.items.len();
        let up = self.watch.sent(events as u64, now);
        let reply = self.endpoint.answer(&flight.items, now, &mut self.chance);
        world.series.attempted(now, events as u64, reply.outcome == Outcome::Delivered);
        self.tally.requests += 1;
        self.tally.attempts += events as u64;
        self.tally.while_down += if up { 0 } else { events as u64 };
        world.queue.plan(now.after(reply.latency), What::Of(self.number, Happening::Answered(flight, reply)));
    }

    /// A tick that comes too early only asks when the next is due: so there is seldom more than one in the queue.
    fn arm(&mut self, now: Timestamp, queue: &mut Queue) {
        let Some(due) = self.core.next_due(now).map(|due| due.max(now.after(TIMER_MIN))) else { return };
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            queue.plan(due, What::Of(self.number, Happening::Tick));
        }
    }
}

impl Tally {
    /// A line of the ledger.
    fn note(&mut self, entry: &Entry) {
        let events = entry.covers.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        match entry.what {
            Said::Attempted { outcome, .. } => {
                self.answered += events;
                self.failed += if outcome == Outcome::Delivered { 0 } else { events };
            }
            Said::GivenUp { reason, .. } => *self.given_up.entry(reason).or_default() += events,
            Said::Filtered { .. }
            | Said::Late { .. }
            | Said::Canceled
            | Said::Filed { .. }
            | Said::Lost { .. }
            | Said::Lease(_)
            | Said::Redriven { .. } => {}
        }
    }
}
