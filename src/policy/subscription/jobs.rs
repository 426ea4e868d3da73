//! Jobs beside the work of the day: when one may send, how one begins, and how one ends.
//!
//! A job sends what its lane has, and what it owes, through a queue of its own. It has a turn where nobody else has anything
//! to send, and one in twenty where somebody has; at most a quarter of the requests on their way, and of the pace, are jobs'.
//! So what is published is not delayed by more than a request for each place that a job has.
//!
//! Invariants:
//! - A job's events are counted in its own counters and in the column of all jobs, and nowhere else.
//! - Nothing of a job leaves before its beginning is durable: a later life would find it in flight in a lane that it does not
//!   have.
//! - A job owes a bounded number of events: then it passes no more until some have ended. So the window has all of its keys,
//!   and a job that is canceled is taken back from there, each write a slice.
//! - A job has ended when it has no lane, owes nothing and has no more to put in. A suspended endpoint stops jobs as it stops
//!   everything, and is never a reason to give one of their events up.

use super::{Subscription, lane_mut, settle::covers};
use crate::{
    event::{Lane, Timestamp},
    policy::{
        Effect, Flight, Item,
        batch::{self, Limits, Ready},
        lane::Reading,
        record::job::{JOBS_MAX, Job, JobCommand, JobKind, JobRefused, JobState},
        record::{Change, Command, Counters, DueKey, Entry, LaneCursor, Rate, Traffic, What},
    },
};
use std::time::Duration;

/// So many events of a job are owed at the most, but for those that were on their way when it came to that.
const PENDING_MAX: u64 = 8192;

/// Where others have something to send, one turn in so many is a job's.
const TURN: u32 = 20;

/// So many lanes there are for jobs.
const LANES: u16 = u16::MAX - Lane::FIRST_JOB.0;

/// So much of a job's rate can gather while it does not send: less would make small batches of large ones.
const BURST: Duration = Duration::from_millis(250);

/// The jobs that have not ended.
#[derive(Debug)]
pub(super) struct Jobs {
    list: Vec<Running>,
    begun: u16,
    /// Batches of others since the last one of a job.
    others: u32,
    /// Whose that was.
    last: Lane,
    /// When it left.
    left: Timestamp,
}

#[derive(Debug)]
struct Running {
    job: Job,
    beginning: Beginning,
    allowance: Option<Allowance>,
}

/// Where the beginning of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Gathered,
    Written,
    Durable,
}

/// What a job's own rate leaves it.
#[derive(Debug)]
struct Allowance {
    rate: f64,
    events: f64,
    filled: Timestamp,
}

impl Allowance {
    fn new(rate: Rate, now: Timestamp) -> Self {
        // A rate of nothing at all would stall for ever.
        Self { rate: rate.max(Rate(1)).per_second(), events: 1.0, filled: now }
    }

    fn most(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(1.0)
    }

    fn events(&self, now: Timestamp) -> f64 {
        (self.events + self.rate * now.since(self.filled).as_secs_f64()).min(self.most())
    }

    /// When so many events may leave: as many as it can ever allow at once, if that is fewer.
    fn opens(&self, events: u32, now: Timestamp) -> Timestamp {
        let lacking = f64::from(events).min(self.most()) - self.events(now) - 1e-6;
        if lacking <= 0.0 {
            now
        } else {
            now.after(Duration::from_secs_f64(lacking / self.rate)).after(Duration::from_micros(1))
        }
    }

    fn take(&mut self, events: usize, now: Timestamp) {
        self.events = self.events(now) - events as f64;
        self.filled = self.filled.max(now);
    }
}

impl Running {
    fn new(job: Job, beginning: Beginning, now: Timestamp) -> Self {
        Self { allowance: job.rate.map(|rate| Allowance::new(rate, now)), job, beginning }
    }

    fn runs(&self) -> bool {
        self.job.state == JobState::Running && self.beginning == Beginning::Durable
    }
}

impl Jobs {
    pub(super) fn recover(jobs: &[Job], begun: u16, now: Timestamp) -> Self {
        let list = jobs.iter().map(|job| Running::new(job.clone(), Beginning::Durable, now)).collect();
        Self { list, begun, others: 0, last: Lane::FIRST_JOB, left: Timestamp::default() }
    }

    /// As they are to be written down.
    pub(super) fn cursors(&self) -> Vec<Job> {
        self.list.iter().map(|running| running.job.clone()).collect()
    }

    pub(super) fn begun(&self) -> u16 {
        self.begun
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn counters_mut(&mut self, lane: Lane) -> Option<&mut Counters> {
        self.list.iter_mut().find(|running| running.job.lane == lane).map(|running| &mut running.job.counters)
    }

    /// Others have sent.
    pub(super) fn pass_turn(&mut self) {
        self.others = self.others.saturating_add(1);
    }

    /// Whether a job is to send before others.
    pub(super) fn has_turn(&self) -> bool {
        self.others >= TURN - 1
    }

    /// All that was decided is on its way to the disk.
    pub(super) fn written(&mut self) {
        self.step(Beginning::Gathered, Beginning::Written);
    }

    /// All that was on its way is on the disk.
    pub(super) fn durable(&mut self) {
        self.step(Beginning::Written, Beginning::Durable);
    }

    fn step(&mut self, from: Beginning, to: Beginning) {
        for running in self.list.iter_mut().filter(|running| running.beginning == from) {
            running.beginning = to;
        }
    }

    fn refuses(&self, command: JobCommand) -> Option<JobRefused> {
        let (lane, wanted) = match command {
            JobCommand::Start { .. } => return (self.list.len() >= JOBS_MAX).then_some(JobRefused::TooMany),
            JobCommand::Pause(lane) => (lane, &[JobState::Running][..]),
            JobCommand::Resume(lane) => (lane, &[JobState::Paused][..]),
            JobCommand::Cancel(lane) => (lane, &[JobState::Running, JobState::Paused][..]),
        };
        match self.list.iter().find(|running| running.job.lane == lane) {
            None => Some(JobRefused::Unknown(lane)),
            Some(running) if wanted.contains(&running.job.state) => None,
            Some(running) => Some(JobRefused::Is(lane, running.job.state)),
        }
    }

    /// A lane that no job has, and that none had for as long as the numbers allow.
    fn next_lane(&self) -> Lane {
        let lane = |begun: u16| Lane(begun % LANES + Lane::FIRST_JOB.0);
        let free = |lane: &Lane| self.list.iter().all(|running| running.job.lane != *lane);
        // Fewer are taken than are looked at.
        (0..=JOBS_MAX as u16).map(|by| lane((self.begun % LANES) + by)).find(free).unwrap_or(Lane::FIRST_JOB)
    }
}

impl Subscription {
    /// Why a command about a job has no sense as things are.
    pub(super) fn refuses_job(&self, command: JobCommand) -> Option<JobRefused> {
        self.jobs.refuses(command)
    }

    /// The lane of the job that this command would begin.
    pub fn next_job(&self, command: Command) -> Option<Lane> {
        match command {
            Command::Job(JobCommand::Start { .. }) => Some(self.jobs.next_lane()),
            Command::Job(JobCommand::Pause(_) | JobCommand::Resume(_) | JobCommand::Cancel(_))
            | Command::Hold
            | Command::Resume
            | Command::Probe
            | Command::Release => None,
        }
    }

    pub(super) fn on_job_command(&mut self, command: JobCommand, now: Timestamp) {
        if self.jobs.refuses(command).is_some() {
            return;
        }
        let (lane, state) = match command {
            JobCommand::Start { kind, rate } => return self.start_job(kind, rate, now),
            JobCommand::Pause(lane) => (lane, JobState::Paused),
            JobCommand::Resume(lane) => (lane, JobState::Running),
            JobCommand::Cancel(lane) => (lane, JobState::Canceling),
        };
        for running in self.jobs.list.iter_mut().filter(|running| running.job.lane == lane) {
            running.job.state = state;
            running.job.changed = now;
        }
        match state {
            JobState::Paused => self.forget_job(lane),
            JobState::Canceling => self.cancel_job(lane, now),
            JobState::Running | JobState::Completed | JobState::Canceled => {}
        }
    }

    fn start_job(&mut self, kind: JobKind, rate: Option<Rate>, now: Timestamp) {
        let lane = self.jobs.next_lane();
        self.jobs.begun = lane.0 - Lane::FIRST_JOB.0 + 1;
        let (state, counters) = (JobState::Running, Counters::default());
        let job = Job { lane, kind, rate, began: now, changed: now, state, counters };
        self.jobs.list.push(Running::new(job, Beginning::Gathered, now));
        match kind {
            JobKind::Replay { from, end } => {
                let cursor = LaneCursor { lane, read: from, end: Some(end), open: Vec::new(), done: Vec::new() };
                self.lanes.push(Reading::recover(&cursor));
            }
        }
    }

    /// What is ready of a job is forgotten: it will be read again.
    fn forget_job(&mut self, lane: Lane) {
        if let Some(reading) = lane_mut(&mut self.lanes, lane) {
            reading.forget_ready();
        }
        self.replays.forget_ready(|of| of == lane);
    }

    /// Nothing more of a job leaves. What is on its way has its outcome yet; what is owed is taken back bit by bit.
    fn cancel_job(&mut self, lane: Lane, now: Timestamp) {
        self.forget_job(lane);
        if let Some(reading) = lane_mut(&mut self.lanes, lane) {
            reading.stop();
        }
        let lost = self.replays.withdraw(lane);
        let item = |seq| Item { lane, seq, appended: now, attempts: 0, due: None, since: None };
        self.cancel(lost.into_iter().map(item).collect(), now);
    }

    /// Whether what this lane owes is taken back, because its job is canceled.
    pub(super) fn takes_back(&self, lane: Lane) -> bool {
        let is_so = |job: &Job| job.state == JobState::Canceling && job.kind.is_taken_back();
        self.jobs.list.iter().any(|running| running.job.lane == lane && is_so(&running.job))
    }

    /// Takes back what canceled jobs owe, as much as a write may have.
    pub(super) fn take_back_canceled(&mut self, now: Timestamp) {
        for lane in self.job_lanes(|_| true).into_iter().filter(|lane| self.takes_back(*lane)).collect::<Vec<_>>() {
            let max = self.gathered.may_give_up();
            if max == 0 || self.gathered.is_ahead() {
                return;
            }
            let keys = self.replays.due.take_lane(lane, max);
            let item =
                |DueKey { due, lane, seq }| Item { lane, seq, appended: now, attempts: 0, due: Some(due), since: None };
            self.cancel(keys.into_iter().map(item).collect(), now);
        }
    }

    /// These obligations of a job end with it.
    pub(super) fn cancel(&mut self, items: Vec<Item>, now: Timestamp) {
        let mut canceled = Vec::with_capacity(items.len());
        for item in items {
            if self.leave(item) {
                self.count(item.lane, |counters| counters.canceled += 1);
                canceled.push(item);
            }
        }
        let Some(Item { lane, .. }) = canceled.first().copied() else { return };
        self.gathered.spend(canceled.len());
        let covers = covers(canceled.iter().map(|item| item.seq).collect());
        self.gathered.note(lane, 0, Entry { at: now, covers, what: What::Canceled });
    }

    fn job_lanes(&self, is_such: impl Fn(&Running) -> bool) -> Vec<Lane> {
        self.jobs.list.iter().filter(|running| is_such(running)).map(|running| running.job.lane).collect()
    }

    /// How many requests of jobs are on their way.
    fn job_flights(&self) -> usize {
        let is_job = |flight: &Flight| flight.items.first().is_some_and(|item| item.lane.is_job());
        self.flights.values().filter(|flight| is_job(flight)).count()
    }

    /// From when on a job's request may leave, as far as the endpoint is concerned; [`None`] where only an answer can bring
    /// a place.
    fn spares_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        self.endpoint.spares(self.job_flights(), self.jobs.left, now)
    }

    /// What a job could send at once, before its rate is asked.
    fn job_ready(&self, lane: Lane) -> u32 {
        let retries = self.replays.retries.iter().filter(|ready| ready.item.lane == lane).count();
        let fresh = self.lanes.iter().find(|reading| reading.lane() == lane).map_or(0, Reading::ready);
        let ready = if retries > 0 { retries } else { fresh };
        u32::try_from(ready).unwrap_or(u32::MAX).min(self.endpoint.batch_max())
    }

    /// The next batch of a job, each in its turn; empty where none may send, or has anything to.
    pub(super) fn next_job_batch(&mut self, now: Timestamp) -> Vec<Ready> {
        if self.jobs.is_empty() || self.is_dividing() || self.spares_jobs(now).is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut lanes = self.job_lanes(Running::runs);
        lanes.sort_unstable();
        let first = lanes.partition_point(|lane| *lane <= self.jobs.last);
        lanes.rotate_left(first);
        for lane in lanes {
            let ready = self.job_ready(lane);
            let Some(place) = self.jobs.list.iter().position(|running| running.job.lane == lane) else { continue };
            let allowance = self.jobs.list[place].allowance.as_ref();
            if ready == 0 || allowance.is_some_and(|allowance| allowance.opens(ready, now) > now) {
                continue;
            }
            let allowed = allowance.map_or(u32::MAX, |allowance| (allowance.events(now) + 1e-6) as u32);
            let events_max = self.endpoint.batch_max().min(allowed.max(1));
            let batch = self.take_of_job(lane, Limits { events_max, ..self.settings.batch }, now);
            if let Some(allowance) = &mut self.jobs.list[place].allowance {
                allowance.take(batch.len(), now);
            }
            (self.jobs.others, self.jobs.last, self.jobs.left) = (0, lane, now);
            return batch;
        }
        Vec::new()
    }

    /// What was tried before goes first: it is bounded, and holds its job up.
    fn take_of_job(&mut self, lane: Lane, limits: Limits, now: Timestamp) -> Vec<Ready> {
        let retries = std::mem::take(&mut self.replays.retries);
        let (mut own, others) =
            retries.into_iter().partition::<std::collections::VecDeque<_>, _>(|ready| ready.item.lane == lane);
        let batch = batch::take(&mut own, limits);
        self.replays.retries = others;
        self.replays.retries.extend(own);
        match self.lanes.iter().position(|reading| reading.lane() == lane) {
            Some(place) if batch.is_empty() => self.take(place, limits, now),
            Some(_) | None => batch,
        }
    }

    /// Asks for what jobs could send next.
    pub(super) fn ask_for_jobs(&mut self, effects: &mut Vec<Effect>, is_open: bool, now: Timestamp) {
        if self.jobs.is_empty() || self.endpoint.is_closed() {
            return;
        }
        if let Some(from) = self.replays.due.ask(now) {
            effects.push(Effect::ReadDue { of: Traffic::Jobs, from });
        }
        if !is_open || self.gathered.is_ahead() || self.is_dividing() {
            return;
        }
        let batch = self.settings.batch.events_max as usize;
        for lane in self.job_lanes(|running| running.runs() && running.job.counters.pending < PENDING_MAX) {
            let Some(reading) = lane_mut(&mut self.lanes, lane).filter(|reading| reading.ready() < batch) else {
                continue;
            };
            if let Some((from, end)) = reading.ask(self.end) {
                effects.push(Effect::ReadLog { lane, from, end });
            }
        }
        let wanted = self.fetchable_jobs();
        let fetch = self.replays.fetch(now, batch, |lane| wanted.contains(&lane));
        if !fetch.is_empty() {
            effects.push(Effect::Fetch(fetch));
        }
    }

    /// The jobs that have nothing fetched and could send it.
    fn fetchable_jobs(&self) -> Vec<Lane> {
        let has_ready = |lane| self.replays.retries.iter().any(|ready| ready.item.lane == lane);
        self.job_lanes(|running| running.runs() && !has_ready(running.job.lane))
    }

    /// When a job could send, or should ask, if nothing happens before. Where a place or an answer is wanting, that brings it.
    pub(super) fn next_of_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        if self.jobs.is_empty() || self.gathered.is_ahead() || self.is_dividing() {
            return None;
        }
        let place = match self.endpoint.places(self.flights.len(), now) {
            0 => self.endpoint.paces(self.flights.len(), now),
            1.. => Some(now),
        };
        let sends = place.zip(self.spares_jobs(now)).and_then(|(place, spare)| {
            let opens = self.jobs.list.iter().filter(|running| running.runs()).filter_map(|running| {
                let ready = self.job_ready(running.job.lane);
                let opens = running.allowance.as_ref().map_or(now, |allowance| allowance.opens(ready, now));
                (ready > 0).then_some(opens)
            });
            opens.min().map(|opens| opens.max(place).max(spare))
        });
        sends.into_iter().chain(self.next_job_key(now)).min()
    }

    fn next_job_key(&self, now: Timestamp) -> Option<Timestamp> {
        let wanted = self.fetchable_jobs();
        let idle = self.replays.fetching.is_empty() && !wanted.is_empty();
        idle.then(|| self.replays.due.wakes_of(now, |lane| wanted.contains(&lane))).flatten()
    }

    /// Whether a job has anything to send, or when it falls due: an endpoint that is left alone for now is probed for it, if
    /// for nothing else.
    pub(super) fn wait_of_jobs(&self, now: Timestamp) -> Option<Timestamp> {
        let running = self.job_lanes(Running::runs);
        let behind = |lane: &Reading| running.contains(&lane.lane()) && lane.is_behind(self.end);
        let waits = self.lanes.iter().any(behind)
            || self.replays.lost.iter().any(|(lane, _)| running.contains(lane))
            || self.replays.retries.iter().any(|ready| running.contains(&ready.item.lane));
        if waits { Some(now) } else { self.replays.due.wakes_of(now, |lane| running.contains(&lane)) }
    }

    /// What jobs have ready is of no use while the endpoint is left alone.
    pub(super) fn forget_ready_jobs(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.lane().is_job()) {
            lane.forget_ready();
        }
        self.replays.forget_ready(|_| true);
    }

    /// Those that have nothing left to do are no more.
    pub(super) fn end_jobs(&mut self, now: Timestamp) {
        let lanes: Vec<Lane> = self.lanes.iter().map(Reading::lane).collect();
        let is_over = |job: &Job| job.counters.pending == 0 && !lanes.contains(&job.lane);
        let (over, list): (Vec<Running>, Vec<Running>) =
            std::mem::take(&mut self.jobs.list).into_iter().partition(|running| is_over(&running.job));
        self.jobs.list = list;
        for Running { job, .. } in over {
            let state = match job.state {
                JobState::Canceling | JobState::Canceled => JobState::Canceled,
                JobState::Running | JobState::Paused | JobState::Completed => JobState::Completed,
            };
            self.gathered.change(Change::JobEnded(Box::new(Job { state, changed: now, ..job })));
        }
    }
}
