//! A machine with a disk, a clock and an endpoint that does as it is told: what it does is written down as a line.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use gridhook::{
    event::{Event, FlightId, Lane, Seq, Timestamp},
    journal::chunk::{Chunk, Running},
    policy::{
        Effect, Flight, Input, Item, Settings, Subscription, due,
        filter::Filter,
        outcome::{Answer, Outcome},
        record::{Change, Command, Cursor, Entry, Fetched, LaneCursor, Traffic, What},
        retry::Chance,
    },
    simulate::Disk,
};

use super::sealed;

/// Far from the epoch.
pub(super) const START: Timestamp = Timestamp(1_000_000_000_000);

/// What the endpoint does with a request: answers after so long, or never.
pub(super) type Endpoint = Box<dyn FnMut(&Flight) -> Option<(Duration, Answer)>>;

pub(super) struct Driver {
    pub(super) core: Subscription,
    settings: Settings,
    pub(super) now: Timestamp,
    pub(super) disk: Disk,
    /// What happened, each with its time.
    pub(super) lines: Vec<String>,
    /// How often the log, the due keys or events were asked for.
    pub(super) reads: u32,
    /// So many events of the log are read at once.
    pub(super) slice_max: u64,
    /// The lines of the ledger, in order.
    pub(super) ledger: Vec<(Lane, Entry)>,
    /// Which events were sent, in order.
    pub(super) order: Vec<(Lane, Seq)>,
    /// The process dies behind so many more writes.
    pub(super) writes_left: u32,
    pub(super) chance: f64,
    /// When each request left.
    pub(super) left: Vec<Timestamp>,
    /// So much longer each answer takes.
    latency: Duration,
    /// Whether the disk is looked over after each write, and lines are kept.
    thorough: bool,
    log: Vec<Event>,
    filter: Filter,
    endpoint: Endpoint,
    aloft: VecDeque<(Timestamp, FlightId, Answer)>,
    /// When each dead letter is due.
    pub(super) aside: Vec<Timestamp>,
    /// Answers about what is owed, where they are to come later.
    pub(super) held_back: Option<VecDeque<Input>>,
    /// Every request that left, as the slot has it.
    pub(super) sent: BTreeMap<FlightId, Arc<Flight>>,
    inputs: VecDeque<Input>,
    /// Whether a bare connection is made, and when they were tried.
    pub(super) reach: Box<dyn FnMut() -> bool>,
    pub(super) connects: Vec<Timestamp>,
}

/// An answer at once.
pub(super) fn status(status: u16) -> Answer {
    Answer { status: Some(status), ..Answer::bare(Outcome::of_status(status)) }
}

/// An endpoint that gives these answers at once, and then the last one for ever.
pub(super) fn answers(script: Vec<Answer>) -> Endpoint {
    let mut turn = 0;
    Box::new(move |_| {
        turn += 1;
        Some((Duration::ZERO, script[turn.min(script.len()) - 1].clone()))
    })
}

impl Driver {
    pub(super) fn new(settings: Settings, endpoint: Endpoint) -> Self {
        let lane = LaneCursor { lane: Lane::LIVE, read: Seq::FIRST, end: None, open: Vec::new(), done: Vec::new() };
        let cursor = Cursor { lanes: vec![lane], ..Cursor::default() };
        let core = Subscription::recover(settings.clone(), &cursor, Seq::FIRST, Vec::new(), FlightId(1), START);
        Self {
            core,
            settings,
            now: START,
            disk: Disk { cursor, ..Disk::default() },
            lines: Vec::new(),
            reads: 0,
            slice_max: 1000,
            ledger: Vec::new(),
            order: Vec::new(),
            writes_left: u32::MAX,
            chance: 0.0,
            left: Vec::new(),
            latency: Duration::ZERO,
            thorough: true,
            log: Vec::new(),
            filter: Filter { subject_begins_with: "yes".to_owned(), ..Filter::default() },
            endpoint,
            aloft: VecDeque::new(),
            aside: Vec::new(),
            held_back: None,
            sent: BTreeMap::new(),
            inputs: VecDeque::new(),
            reach: Box::new(|| false),
            connects: Vec::new(),
        }
    }

    /// So much stands on the disk that looking it over after each write would take hours.
    pub(super) fn is_large(&mut self) {
        self.thorough = false;
    }

    /// The endpoint takes so much longer from now on.
    pub(super) fn slow_down(&mut self, by: Duration) {
        self.latency = by;
    }

    /// Time passes while no process runs.
    pub(super) fn run_off(&mut self, wait: Duration) {
        self.now = self.now.after(wait);
        self.aloft.clear();
    }

    /// A new process begins with what is on the disk.
    pub(super) fn restart(&mut self, settings: Settings) {
        let end = Seq(self.log.len() as u64 + 1);
        // Numbers of flights begin anew in a process; here they go on, so that none is met twice.
        let next = FlightId(self.left.len() as u64 + 1);
        self.core = Subscription::recover(settings, &self.disk.cursor, end, Vec::new(), next, self.now);
        self.absorb(Input::Tick);
    }

    pub(super) fn publish(&mut self, events: &[(&str, usize)]) {
        for chunk in sealed(events) {
            let first = Seq(self.log.len() as u64 + 1);
            let chunk = Chunk::decode(first, chunk.stamp(self.now, Running::default())).expect("a sound chunk");
            self.log.extend(chunk.events().expect("sound events"));
        }
        self.absorb(Input::Appended { end: Seq(self.log.len() as u64 + 1) });
    }

    pub(super) fn command(&mut self, command: Command) {
        self.absorb(Input::Command(command));
    }

    /// Absorbs, and does at once all that follows.
    pub(super) fn absorb(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            if self.writes_left == 0 {
                return self.crash();
            }
            let step = self.core.absorb(input, self.now, Chance(self.chance));
            if let Some(write) = step.write {
                for change in &write.changes {
                    self.disk.apply(change);
                    self.tell(change);
                }
                if self.thorough {
                    self.disk.check();
                }
                for (id, key) in &write.struck {
                    let flight = self.sent.get_mut(id).expect("it was sent");
                    Arc::make_mut(flight).items.retain(|item| item.key() != *key);
                }
                self.writes_left -= 1;
                self.inputs.push_back(Input::Durable);
            }
            for effect in step.effects {
                self.perform(effect);
            }
        }
    }

    /// The process dies, and finds what was on the disk.
    pub(super) fn crash(&mut self) {
        self.aloft.clear();
        self.inputs.clear();
        self.writes_left = u32::MAX;
        let (end, next_flight) = (Seq(self.log.len() as u64 + 1), FlightId(1));
        self.core =
            Subscription::recover(self.settings.clone(), &self.disk.cursor, end, Vec::new(), next_flight, self.now);
        self.absorb(Input::Tick);
    }

    /// The events that lines of the ledger in this lane say this of, in order.
    pub(super) fn noted(&self, lane: Lane, what: What) -> Vec<u64> {
        let lines = self.ledger.iter().filter(|(of, entry)| *of == lane && entry.what == what);
        let runs = lines.flat_map(|(_, entry)| &entry.covers);
        runs.flat_map(|(first, count)| first.0..first.0 + u64::from(*count)).collect()
    }

    /// Goes on until nothing is to be done before `until`.
    pub(super) fn run_until(&mut self, until: Timestamp) {
        let mut idle = 0;
        loop {
            let answer = self.aloft.iter().map(|(at, _, _)| *at).min();
            let next = [answer, self.core.next_due(self.now)].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            idle = if next <= self.now { idle + 1 } else { 0 };
            if self.thorough {
                assert!(idle < 10_000, "it spins at {}: {:?}", self.since_start(), self.core);
            }
            assert!(idle < 1_000_000, "it spins at {}", self.since_start());
            self.now = self.now.max(next);
            match self.aloft.iter().position(|(at, _, _)| *at <= self.now).and_then(|place| self.aloft.remove(place)) {
                Some((_, flight, answer)) => self.absorb(Input::Finished { flight, answer }),
                None => self.absorb(Input::Tick),
            }
        }
        if until != Timestamp::NEVER {
            self.now = self.now.max(until);
        }
    }

    /// Goes on until nothing is to be done at all.
    pub(super) fn run(&mut self) -> String {
        self.run_until(Timestamp::NEVER);
        self.lines.join(" · ")
    }

    pub(super) fn run_for(&mut self, wait: Duration) -> String {
        self.run_until(self.now.after(wait));
        self.lines.join(" · ")
    }

    /// Where the log ends.
    pub(super) fn end(&self) -> Seq {
        Seq(self.log.len() as u64 + 1)
    }

    /// When an event was appended, and whether the filter lets it through.
    pub(super) fn matches(&self, seq: Seq) -> Option<(Timestamp, bool)> {
        let event = self.log.get(seq.0 as usize - 1)?;
        Some((event.appended, self.filter.matches(event)))
    }

    fn since_start(&self) -> String {
        humantime::format_duration(self.now.since(START)).to_string()
    }

    fn tell(&mut self, change: &Change) {
        if let Change::PutAside { due, .. } = change {
            self.aside.push(*due);
        }
        let Change::Note { lane, entry, .. } = change else { return };
        self.ledger.push((*lane, entry.clone()));
        let line = match &entry.what {
            What::GivenUp { reason, .. } => {
                let events: u32 = entry.covers.iter().map(|(_, count)| count).sum();
                if events > 1 { format!("{reason}×{events}") } else { reason.to_string() }
            }
            What::Late { settled: true } => "late".to_owned(),
            What::Late { settled: false } => "late for nothing".to_owned(),
            What::Filtered { .. }
            | What::Attempted { .. }
            | What::Lease(_)
            | What::Canceled
            | What::Filed { .. }
            | What::Lost { .. }
            | What::Redriven { .. } => return,
        };
        self.lines.push(format!("{} {line}", self.since_start()));
    }

    /// A new life begins, and is handed what the slot has.
    pub(super) fn revive(&mut self) {
        let settings = self.settings.clone();
        let end = self.end();
        let next = FlightId(self.sent.len() as u64 + 1);
        let flights = self.aloft.iter().map(|(_, id, _)| Arc::clone(&self.sent[id])).collect();
        self.core = Subscription::recover(settings, &self.disk.cursor, end, flights, next, self.now);
    }

    /// A request that timed out is answered with success after all.
    pub(super) fn late(&mut self, flight: u64) {
        let flight = Arc::clone(&self.sent[&FlightId(flight)]);
        self.absorb(Input::Late { flight });
    }

    fn perform(&mut self, effect: Effect) {
        let input = match effect {
            Effect::Hand { .. } | Effect::Tell { .. } => return self.lines.push("handed out".to_owned()),
            Effect::Connect => {
                self.connects.push(self.now);
                return self.inputs.push_back(Input::Connected((self.reach)()));
            }
            Effect::Send { flight, events } => {
                assert!(flight.items.iter().all(|item| item.due.is_none_or(|due| due <= self.now)), "early");
                assert_eq!(flight.items.len(), events.len());
                self.order.extend(flight.items.iter().map(Item::key));
                let answer = (self.endpoint)(&flight);
                self.sent.insert(flight.id, Arc::clone(&flight));
                let mark = match &answer {
                    Some((_, answer)) if answer.outcome == Outcome::Delivered => "ok",
                    Some(_) => "x",
                    None => "?",
                };
                let batch = if flight.items.len() > 1 { format!("×{}", flight.items.len()) } else { String::new() };
                self.left.push(self.now);
                if self.thorough {
                    self.lines.push(format!("{} {mark}{batch}", self.since_start()));
                }
                let latency = self.latency;
                self.aloft.extend(answer.map(|(after, answer)| (self.now.after(after + latency), flight.id, answer)));
                return;
            }
            Effect::ReadLog { lane, from, end } => {
                let upto = end.unwrap_or(Seq(self.log.len() as u64 + 1)).min(from.plus(self.slice_max));
                let slice = &self.log[from.0 as usize - 1..upto.0 as usize - 1];
                let events = slice.iter().filter(|event| self.filter.matches(event)).cloned().collect();
                Input::Read { lane, from, upto, total: slice.len() as u64, events }
            }
            Effect::FindPosition { before } => {
                let at = self.log.partition_point(|event| event.appended < before);
                let appended = self.log.get(at).map(|event| event.appended);
                Input::Position { before, at: Seq(at as u64 + 1), appended }
            }
            Effect::ReadDue { of, from } => {
                let mut keys = self.disk.due.range(from..).filter(|key| Traffic::of(key.lane) == of).copied();
                let first: Vec<_> = keys.by_ref().take(due::WINDOW).collect();
                Input::DueRead { of, keys: first, all: keys.next().is_none() }
            }
            Effect::Fetch(keys) => Input::Fetched(keys.into_iter().map(|key| self.fetch(key)).collect()),
            Effect::ReadOwed(keys) => {
                let owed = |(lane, seq)| (lane, seq, self.disk.owed.get(&(lane, seq)).cloned());
                let answer = Input::OwedRead(keys.into_iter().map(owed).collect());
                match &mut self.held_back {
                    Some(held_back) => return held_back.push_back(answer),
                    None => answer,
                }
            }
        };
        self.reads += 1;
        self.inputs.push_back(input);
    }

    fn fetch(&self, (lane, seq): (Lane, Seq)) -> Fetched {
        let event = self.log.get(seq.0 as usize - 1).cloned();
        Fetched { lane, seq, owed: self.disk.owed.get(&(lane, seq)).cloned(), event }
    }
}
