//! A core with a disk, a clock and a scripted endpoint: each step is a line.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use gridhook::{
    event::{
        Event, Lane, RequestId, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        Effect, Input, OutgoingBatch, SendItem, Subscription, SubscriptionSettings,
        filter::Filter,
        outcome::{Outcome, RequestResult},
        record::{
            BLOCKING, Command, Cursor, FetchedPending, HELD_BACK, LaneCursor, LedgerEntry,
            LedgerEvent, RecordChange, Traffic, WriteUrgency,
        },
        retry::Jitter,
        retry_window,
    },
    simulate::SimulatedStore,
};

use super::sealed;

/// Far from the epoch.
pub(super) const START: Timestamp = Timestamp(1_000_000_000_000);

/// How the endpoint handles a request: it responds after this time, or never.
pub(super) type Endpoint = Box<dyn FnMut(&OutgoingBatch) -> Option<(Duration, RequestResult)>>;

pub(super) struct Driver {
    pub(super) core: Subscription,
    pub(super) settings: SubscriptionSettings,
    pub(super) now: Timestamp,
    pub(super) disk: SimulatedStore,
    /// The actions, each with its time.
    pub(super) lines: Vec<String>,
    /// How often the log, the due keys or events were asked for.
    pub(super) reads: u32,
    /// The number of events of the log that are read at once.
    pub(super) slice_max: u64,
    /// The lines of the ledger, in order.
    pub(super) ledger: Vec<(Lane, LedgerEntry)>,
    /// Which events were sent, in order.
    pub(super) order: Vec<(Lane, Seq)>,
    /// The process dies after this number of further writes.
    pub(super) writes_left: u32,
    /// Whether a write is durable that nothing waited for.
    written: bool,
    /// How many writes something waited for.
    pub(super) awaited: u32,
    pub(super) jitter: f64,
    /// When each request left.
    pub(super) left: Vec<Timestamp>,
    /// Added to the time of each response.
    latency: Duration,
    /// Whether the disk is looked over after each write, and lines are kept.
    thorough: bool,
    log: Vec<Event>,
    filter: Filter,
    endpoint: Endpoint,
    in_flight: VecDeque<(Timestamp, RequestId, RequestResult)>,
    /// When each dead letter is due.
    pub(super) aside: Vec<Timestamp>,
    /// Results of reads of pending deliveries that arrive later.
    pub(super) held_back: Option<VecDeque<Input>>,
    /// Every request that left, as the slot has it.
    pub(super) sent: BTreeMap<RequestId, Arc<OutgoingBatch>>,
    inputs: VecDeque<Input>,
    /// Whether a bare connection is made, and when they were tried.
    pub(super) reach: Box<dyn FnMut() -> bool>,
    pub(super) connects: Vec<Timestamp>,
    /// Deliveries that commands moved.
    pub(super) moved_by_commands: u64,
    /// How soon each write was to be durable.
    pub(super) urgencies: Vec<WriteUrgency>,
    /// The most changes of one write.
    pub(super) largest_write: usize,
}

/// A response with this status, without a delay.
pub(super) fn status(status: u16) -> RequestResult {
    RequestResult {
        status: Some(status),
        ..RequestResult::from_outcome(Outcome::from_status(status))
    }
}

/// An endpoint that gives these responses at once, and then the last one for ever.
pub(super) fn answers(script: Vec<RequestResult>) -> Endpoint {
    let mut turn = 0;
    Box::new(move |_| {
        turn += 1;
        Some((Duration::ZERO, script[turn.min(script.len()) - 1].clone()))
    })
}

impl Driver {
    pub(super) fn new(settings: SubscriptionSettings, endpoint: Endpoint) -> Self {
        let lane = LaneCursor::new(Lane::LIVE, Seq::FIRST, None);
        let cursor = Cursor {
            lanes: vec![lane],
            ..Cursor::default()
        };
        let core = Subscription::from_records(
            settings.clone(),
            &cursor,
            Seq::FIRST,
            Vec::new(),
            RequestId(1),
            START,
        );
        Self {
            core,
            settings,
            now: START,
            disk: SimulatedStore {
                cursor,
                ..SimulatedStore::default()
            },
            lines: Vec::new(),
            reads: 0,
            slice_max: 1000,
            ledger: Vec::new(),
            order: Vec::new(),
            writes_left: u32::MAX,
            written: false,
            awaited: 0,
            jitter: 0.0,
            left: Vec::new(),
            latency: Duration::ZERO,
            thorough: true,
            log: Vec::new(),
            filter: Filter {
                subject_begins_with: "yes".to_owned(),
                ..Filter::default()
            },
            endpoint,
            in_flight: VecDeque::new(),
            aside: Vec::new(),
            held_back: None,
            sent: BTreeMap::new(),
            inputs: VecDeque::new(),
            reach: Box::new(|| false),
            connects: Vec::new(),
            moved_by_commands: 0,
            urgencies: Vec::new(),
            largest_write: 0,
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
        self.in_flight.clear();
    }

    /// A new process begins with the state on disk.
    pub(super) fn restart(&mut self, settings: SubscriptionSettings) {
        let end = Seq(self.log.len() as u64 + 1);
        // Numbers of requests begin anew in a process; here they go on, so that none is met twice.
        let next = RequestId(self.left.len() as u64 + 1);
        self.written = false;
        self.core = Subscription::from_records(
            settings,
            &self.disk.cursor,
            end,
            Vec::new(),
            next,
            self.now,
        );
        self.absorb(Input::Tick);
    }

    pub(super) fn publish(&mut self, events: &[(&str, usize)]) {
        for chunk in sealed(events) {
            let first = Seq(self.log.len() as u64 + 1);
            let chunk = Chunk::decode(
                first,
                chunk.stamp_record(self.now, RunningTotals::default()),
            )
            .expect("a sound chunk");
            self.log
                .extend(chunk.decode_events().expect("sound events"));
        }
        self.absorb(Input::Appended {
            end: Seq(self.log.len() as u64 + 1),
        });
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
            if std::mem::take(&mut self.written) {
                self.core.end_write();
            }
            let step = self
                .core
                .process_input(input, self.now, Jitter(self.jitter));
            if let Some(write) = step.write {
                for change in &write.changes {
                    self.disk.apply_change(change);
                    self.tell(change);
                }
                if self.thorough {
                    self.disk.check_counters();
                }
                for (id, events) in &write.detached {
                    let request = self.sent.get_mut(id).expect("it was sent");
                    Arc::make_mut(request).detach_events(events);
                }
                self.moved_by_commands += write.moved_by_commands.unwrap_or_default();
                self.urgencies.push(write.urgency);
                self.largest_write = self.largest_write.max(write.changes.len());
                self.writes_left -= 1;
                // As late as the actor learns it.
                self.written = !self.core.waits_for_write();
                if !self.written {
                    self.awaited += 1;
                    self.inputs.push_back(Input::Durable);
                }
            }
            for effect in step.effects {
                self.perform(effect);
            }
        }
    }

    /// Nothing that is due waits for a wake of something else: where neither the timer nor the end
    /// of a write wakes the actor, another turn changes nothing.
    fn check_rest(&mut self) {
        if std::mem::take(&mut self.written) {
            self.core.end_write();
        }
        if self
            .core
            .next_due(self.now)
            .is_none_or(|due| due > self.now)
        {
            let step = self.core.process_inputs([], self.now);
            assert!(
                step.write.is_none() && step.effects.is_empty(),
                "this had no wake: {step:?}"
            );
        }
    }

    /// The process dies, and finds what was on the disk.
    pub(super) fn crash(&mut self) {
        self.in_flight.clear();
        self.inputs.clear();
        self.written = false;
        self.writes_left = u32::MAX;
        let end = Seq(self.log.len() as u64 + 1);
        let next_flight = RequestId(1);
        self.core = Subscription::from_records(
            self.settings.clone(),
            &self.disk.cursor,
            end,
            Vec::new(),
            next_flight,
            self.now,
        );
        self.absorb(Input::Tick);
    }

    /// The events that lines of the ledger in this lane say this of, in order.
    pub(super) fn noted(&self, lane: Lane, what: LedgerEvent) -> Vec<u64> {
        let lines = self
            .ledger
            .iter()
            .filter(|(of, entry)| *of == lane && entry.what == what);
        lines
            .flat_map(|(_, entry)| &entry.runs)
            .flat_map(|run| run.iter_seqs())
            .map(|seq| seq.0)
            .collect()
    }

    /// Goes on until nothing is to be done before `until`.
    pub(super) fn run_until(&mut self, until: Timestamp) {
        let mut idle = 0;
        loop {
            self.check_rest();
            let response = self.in_flight.iter().map(|(at, _, _)| *at).min();
            let next = [response, self.core.next_due(self.now)]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            idle = if next <= self.now { idle + 1 } else { 0 };
            if self.thorough {
                assert!(
                    idle < 10_000,
                    "it spins at {}: {:?}",
                    self.since_start(),
                    self.core
                );
            }
            assert!(idle < 1_000_000, "it spins at {}", self.since_start());
            self.now = self.now.max(next);
            match self
                .in_flight
                .iter()
                .position(|(at, _, _)| *at <= self.now)
                .and_then(|place| self.in_flight.remove(place))
            {
                Some((_, request, result)) => self.absorb(Input::Finished { request, result }),
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

    fn tell(&mut self, change: &RecordChange) {
        if let RecordChange::DeadLetter { due, .. } = change {
            self.aside.push(*due);
        }
        let RecordChange::Note { lane, entry, .. } = change else {
            return;
        };
        self.ledger.push((*lane, entry.clone()));
        let line = match &entry.what {
            LedgerEvent::GivenUp { reason, .. } => {
                let events = entry.event_count();
                if events > 1 {
                    format!("{reason}×{events}")
                } else {
                    reason.to_string()
                }
            }
            LedgerEvent::Late { settled: true } => "late".to_owned(),
            LedgerEvent::Late { settled: false } => "late for nothing".to_owned(),
            LedgerEvent::Filtered { .. }
            | LedgerEvent::Attempted { .. }
            | LedgerEvent::Lease(_)
            | LedgerEvent::Canceled
            | LedgerEvent::Filed { .. }
            | LedgerEvent::Lost { .. }
            | LedgerEvent::Redriven { .. } => return,
        };
        self.lines.push(format!("{} {line}", self.since_start()));
    }

    /// A new incarnation begins with the shared state.
    pub(super) fn revive(&mut self) {
        let settings = self.settings.clone();
        let end = self.end();
        let next = RequestId(self.sent.len() as u64 + 1);
        let requests = self
            .in_flight
            .iter()
            .map(|(_, id, _)| Arc::clone(&self.sent[id]))
            .collect();
        self.core =
            Subscription::from_records(settings, &self.disk.cursor, end, requests, next, self.now);
    }

    /// A request that timed out succeeds late.
    pub(super) fn late(&mut self, request: u64) {
        let request = Arc::clone(&self.sent[&RequestId(request)]);
        self.absorb(Input::Late { request });
    }

    fn perform(&mut self, effect: Effect) {
        let input = match effect {
            Effect::HandOver { .. } | Effect::ReportResults { .. } => {
                return self.lines.push("handed out".to_owned());
            }
            Effect::Connect => {
                self.connects.push(self.now);
                return self.inputs.push_back(Input::Connected((self.reach)()));
            }
            Effect::Send { request, events } => {
                let may_leave = |due| due <= self.now || due == HELD_BACK || due == BLOCKING;
                assert!(
                    request
                        .items
                        .iter()
                        .all(|item| item.due.is_none_or(may_leave)),
                    "early"
                );
                assert_eq!(request.items.len(), events.len());
                self.order.extend(request.items.iter().map(SendItem::key));
                let response = (self.endpoint)(&request);
                self.sent.insert(request.id, Arc::clone(&request));
                let mark = match &response {
                    Some((_, response)) if response.outcome == Outcome::Delivered => "ok",
                    Some(_) => "x",
                    None => "?",
                };
                let batch = if request.items.len() > 1 {
                    format!("×{}", request.items.len())
                } else {
                    String::new()
                };
                self.left.push(self.now);
                if self.thorough {
                    self.lines
                        .push(format!("{} {mark}{batch}", self.since_start()));
                }
                let latency = self.latency;
                self.in_flight.extend(response.map(|(after, response)| {
                    (self.now.after(after + latency), request.id, response)
                }));
                return;
            }
            Effect::ReadLog { lane, from, end } => {
                let upto = end
                    .unwrap_or(Seq(self.log.len() as u64 + 1))
                    .min(from.plus(self.slice_max));
                let slice = &self.log[from.0 as usize - 1..upto.0 as usize - 1];
                let events = slice
                    .iter()
                    .filter(|event| self.filter.matches(event))
                    .cloned()
                    .collect();
                Input::Read {
                    lane,
                    from,
                    upto,
                    total: slice.len() as u64,
                    events,
                }
            }
            Effect::FindPosition { before } => {
                let at = self.log.partition_point(|event| event.appended < before);
                let appended = self.log.get(at).map(|event| event.appended);
                Input::Position {
                    before,
                    at: Seq(at as u64 + 1),
                    appended,
                }
            }
            Effect::ReadDue { traffic, from } => {
                let mut keys = self
                    .disk
                    .due
                    .range(from..)
                    .filter(|key| Traffic::from_lane(key.lane) == traffic)
                    .copied();
                let first: Vec<_> = keys.by_ref().take(retry_window::WINDOW).collect();
                Input::DueRead {
                    traffic,
                    keys: first,
                    all: keys.next().is_none(),
                }
            }
            Effect::Fetch(keys) => {
                Input::Fetched(keys.into_iter().map(|key| self.fetch(key)).collect())
            }
            Effect::ReadPending(keys) => {
                let pending =
                    |(lane, seq)| (lane, seq, self.disk.pending.get(&(lane, seq)).cloned());
                let response = Input::PendingRead(keys.into_iter().map(pending).collect());
                match &mut self.held_back {
                    Some(held_back) => return held_back.push_back(response),
                    None => response,
                }
            }
        };
        self.reads += 1;
        self.inputs.push_back(input);
    }

    fn fetch(&self, (lane, seq): (Lane, Seq)) -> FetchedPending {
        let event = self.log.get(seq.0 as usize - 1).cloned();
        FetchedPending {
            lane,
            seq,
            pending: self.disk.pending.get(&(lane, seq)).cloned(),
            event,
        }
    }
}
