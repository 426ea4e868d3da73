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

mod allowance;
mod scheduling;

use self::allowance::Allowance;
use super::{Subscription, lane_mut, settle::covers};
use crate::{
    event::{Lane, Timestamp},
    policy::{
        SendItem,
        lane::LaneReader,
        record::{
            Command, Counters, DueKey, LaneCursor, LedgerEntry, LedgerEvent, Rate, RecordChange,
            job::{JOBS_MAX, Job, JobCommand, JobKind, JobRefused, JobState},
        },
    },
};

/// So many events of a job are owed at the most, but for those that were on their way when it came to that.
const PENDING_MAX: u64 = 8192;

/// Where others have something to send, one turn in so many is a job's.
const TURN: u32 = 20;

/// So many lanes there are for jobs.
const LANES: u16 = u16::MAX - Lane::FIRST_JOB.0;

/// The jobs that have not ended.
#[derive(Debug)]
pub(super) struct Jobs {
    list: Vec<RunningJob>,
    begun: u16,
    /// Batches of others since the last one of a job.
    others: u32,
    /// Whose that was.
    last: Lane,
    /// When it left.
    left: Timestamp,
}

#[derive(Debug)]
struct RunningJob {
    job: Job,
    beginning: JobStart,
    allowance: Option<Allowance>,
}

/// Where the beginning of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStart {
    Gathered,
    Written,
    Durable,
}

impl RunningJob {
    fn new(job: Job, beginning: JobStart, now: Timestamp) -> Self {
        Self { allowance: job.rate.map(|rate| Allowance::new(rate, now)), job, beginning }
    }

    fn runs(&self) -> bool {
        self.job.state == JobState::Running && self.beginning == JobStart::Durable
    }
}

impl Jobs {
    pub(super) fn recover(jobs: &[Job], begun: u16, now: Timestamp) -> Self {
        let list = jobs.iter().map(|job| RunningJob::new(job.clone(), JobStart::Durable, now)).collect();
        Self { list, begun, others: 0, last: Lane::FIRST_JOB, left: Timestamp::default() }
    }

    /// As they are to be written down.
    pub(super) fn cursors(&self) -> Vec<Job> {
        self.list.iter().map(|running| running.job.clone()).collect()
    }

    pub(super) fn started(&self) -> u16 {
        self.begun
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn counters_mut(&mut self, lane: Lane) -> Option<&mut Counters> {
        self.list.iter_mut().find(|running| running.job.lane == lane).map(|running| &mut running.job.counters)
    }

    pub(super) fn job(&self, lane: Lane) -> Option<&Job> {
        self.list.iter().map(|running| &running.job).find(|job| job.lane == lane)
    }

    pub(super) fn job_mut(&mut self, lane: Lane) -> Option<&mut Job> {
        self.list.iter_mut().map(|running| &mut running.job).find(|job| job.lane == lane)
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
        self.step(JobStart::Gathered, JobStart::Written);
    }

    /// All that was on its way is on the disk.
    pub(super) fn durable(&mut self) {
        self.step(JobStart::Written, JobStart::Durable);
    }

    fn step(&mut self, from: JobStart, to: JobStart) {
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
        self.jobs.list.push(RunningJob::new(job, JobStart::Gathered, now));
        match kind {
            JobKind::Replay { from, end } => {
                let cursor = LaneCursor { lane, read: from, end: Some(end), open: Vec::new(), done: Vec::new() };
                self.lanes.push(LaneReader::recover(&cursor));
            }
            // Its dead letters come by themselves.
            JobKind::Redrive { .. } => {}
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
        let item = |seq| SendItem { lane, seq, appended: now, attempts: 0, due: None, since: None };
        self.cancel(lost.into_iter().map(item).collect(), now);
    }

    /// Whether what this lane owes is taken back, because its job is canceled.
    pub(super) fn takes_back(&self, lane: Lane) -> bool {
        let is_so = |job: &Job| job.state == JobState::Canceling;
        self.jobs.list.iter().any(|running| running.job.lane == lane && is_so(&running.job))
    }

    /// Takes back what canceled jobs owe, as much as a write may have.
    pub(super) fn take_back_canceled(&mut self, now: Timestamp) {
        for lane in self.job_lanes(|_| true).into_iter().filter(|lane| self.takes_back(*lane)).collect::<Vec<_>>() {
            let max = self.gathered.may_give_up();
            if max == 0 || self.gathered.is_ahead() {
                return;
            }
            // What was on its way when an earlier process ended is owed by nobody, and is in no flight.
            let lost = self.replays.withdraw(lane);
            let item = |seq| SendItem { lane, seq, appended: now, attempts: 0, due: None, since: None };
            self.cancel(lost.into_iter().map(item).collect(), now);
            let keys = self.replays.due.take_lane(lane, max);
            let item = |DueKey { due, lane, seq }| SendItem {
                lane,
                seq,
                appended: now,
                attempts: 0,
                due: Some(due),
                since: None,
            };
            self.cancel(keys.into_iter().map(item).collect(), now);
        }
    }

    /// These obligations of a job end with it.
    pub(super) fn cancel(&mut self, items: Vec<SendItem>, now: Timestamp) {
        let Some(SendItem { lane, .. }) = items.first().copied() else { return };
        let items = self.give_back(lane, items, now);
        let mut canceled = Vec::with_capacity(items.len());
        for item in items {
            if self.leave(item) {
                self.count(item.lane, |counters| counters.canceled += 1);
                canceled.push(item);
            }
        }
        if canceled.is_empty() {
            return;
        }
        self.gathered.spend(canceled.len());
        let covers = covers(canceled.iter().map(|item| item.seq).collect());
        self.gathered.note(lane, 0, LedgerEntry { at: now, covers, what: LedgerEvent::Canceled });
    }

    fn job_lanes(&self, is_such: impl Fn(&RunningJob) -> bool) -> Vec<Lane> {
        self.jobs.list.iter().filter(|running| is_such(running)).map(|running| running.job.lane).collect()
    }

    /// Those that have nothing left to do are no more.
    pub(super) fn end_jobs(&mut self, now: Timestamp) {
        let lanes: Vec<Lane> = self.lanes.iter().map(LaneReader::lane).collect();
        let has_more = |job: &Job| match job.kind {
            JobKind::Replay { .. } | JobKind::Redrive { drained: true } => false,
            JobKind::Redrive { drained: false } => job.state != JobState::Canceling,
        };
        let is_over = |job: &Job| job.counters.pending == 0 && !lanes.contains(&job.lane) && !has_more(job);
        let (over, list): (Vec<RunningJob>, Vec<RunningJob>) =
            std::mem::take(&mut self.jobs.list).into_iter().partition(|running| is_over(&running.job));
        self.jobs.list = list;
        for RunningJob { job, .. } in over {
            let state = match job.state {
                JobState::Canceling | JobState::Canceled => JobState::Canceled,
                JobState::Running | JobState::Paused | JobState::Completed => JobState::Completed,
            };
            self.gathered.change(RecordChange::JobEnded(Box::new(Job { state, changed: now, ..job })));
        }
    }
}
