//! Jobs (replays and redrives) next to normal delivery: start, cancel and end.
//!
//! A job sends the events of its lane and its pending deliveries through a queue of its own. It
//! sends when nothing else can be sent, and otherwise in one turn of twenty. Jobs have at most a
//! quarter of the requests in flight and of the pace. Published events are therefore delayed by at
//! most one request per slot that a job occupies.
//!
//! Invariants:
//! - A job's events are counted in the job's counters and in the total of all jobs, and nowhere
//!   else.
//! - Nothing of a job is sent before its start is durable. Otherwise the next incarnation would
//!   find requests in flight in a lane that it does not have.
//! - A job's pending deliveries are bounded; at the bound it passes no more events until some end.
//!   The window therefore holds all of its keys, and a canceled job is taken back from there, a
//!   slice per write.
//! - A job ends when its lane is finished, nothing is pending and its source is exhausted. A
//!   suspended endpoint pauses jobs and never causes one of their events to be given up.

mod rate_limit;
mod scheduling;

use self::rate_limit::RateLimit;
use super::{Subscription, lane_mut, settle::runs_of};
use crate::{
    SendItem,
    lane::LaneReader,
    record::{
        Command, Counters, DueKey, LaneCursor, LedgerEntry, LedgerEvent, Rate, RecordChange,
        job::{JOBS_MAX, Job, JobCommand, JobKind, JobRefused, JobState},
    },
};
use gridhook_event::{Lane, Timestamp};

/// Maximum pending deliveries of a job, apart from those in flight when the bound is reached.
const PENDING_MAX: u64 = 8192;

/// While others have something to send, one turn in this many is a job's.
const TURN: u32 = 20;

/// Number of lanes for jobs.
const LANES: u16 = u16::MAX - Lane::FIRST_JOB.0;

/// The jobs that have not ended.
#[derive(Debug)]
pub(super) struct Jobs {
    list: Vec<RunningJob>,
    begun: u16,
    /// Batches of others since the last batch of a job.
    others: u32,
    /// The lane of that batch.
    last: Lane,
    /// When it was sent.
    left: Timestamp,
}

#[derive(Debug)]
struct RunningJob {
    job: Job,
    beginning: JobStart,
    allowance: Option<RateLimit>,
}

/// How far the start of a job is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStart {
    Unwritten,
    Written,
    Durable,
}

impl RunningJob {
    fn new(job: Job, beginning: JobStart, now: Timestamp) -> Self {
        Self {
            allowance: job.rate.map(|rate| RateLimit::new(rate, now)),
            job,
            beginning,
        }
    }

    fn is_running(&self) -> bool {
        self.job.state == JobState::Running && self.beginning == JobStart::Durable
    }
}

impl Jobs {
    pub(super) fn from_cursor(jobs: &[Job], begun: u16, now: Timestamp) -> Self {
        let list = jobs
            .iter()
            .map(|job| RunningJob::new(job.clone(), JobStart::Durable, now))
            .collect();
        Self {
            list,
            begun,
            others: 0,
            last: Lane::FIRST_JOB,
            left: Timestamp::default(),
        }
    }

    /// The jobs as they are stored in the cursor.
    pub(super) fn to_cursor(&self) -> Vec<Job> {
        self.list
            .iter()
            .map(|running| running.job.clone())
            .collect()
    }

    pub(super) fn started(&self) -> u16 {
        self.begun
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn counters_mut(&mut self, lane: Lane) -> Option<&mut Counters> {
        self.list
            .iter_mut()
            .find(|running| running.job.lane == lane)
            .map(|running| &mut running.job.counters)
    }

    pub(super) fn find_job(&self, lane: Lane) -> Option<&Job> {
        self.list
            .iter()
            .map(|running| &running.job)
            .find(|job| job.lane == lane)
    }

    pub(super) fn job_mut(&mut self, lane: Lane) -> Option<&mut Job> {
        self.list
            .iter_mut()
            .map(|running| &mut running.job)
            .find(|job| job.lane == lane)
    }

    /// Counts a batch of others.
    pub(super) fn pass_turn(&mut self) {
        self.others = self.others.saturating_add(1);
    }

    /// Whether a job sends before others.
    pub(super) fn has_turn(&self) -> bool {
        self.others >= TURN - 1
    }

    /// Notes that all changes are in the write in progress.
    pub(super) fn begin_write(&mut self) {
        self.change_start(JobStart::Unwritten, JobStart::Written);
    }

    /// Notes that the write in progress is durable.
    pub(super) fn finish_write(&mut self) {
        self.change_start(JobStart::Written, JobStart::Durable);
    }

    fn change_start(&mut self, from: JobStart, to: JobStart) {
        for running in self
            .list
            .iter_mut()
            .filter(|running| running.beginning == from)
        {
            running.beginning = to;
        }
    }

    fn command_problem(&self, command: JobCommand) -> Option<JobRefused> {
        let (lane, wanted) = match command {
            JobCommand::Start { .. } => {
                return (self.list.len() >= JOBS_MAX).then_some(JobRefused::TooMany);
            }
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

    /// A free lane: the one that has been unused for longest.
    fn next_lane(&self) -> Lane {
        let lane = |begun: u16| Lane(begun % LANES + Lane::FIRST_JOB.0);
        let free = |lane: &Lane| self.list.iter().all(|running| running.job.lane != *lane);
        // There are fewer jobs than candidates.
        (0..=JOBS_MAX as u16)
            .map(|by| lane((self.begun % LANES) + by))
            .find(free)
            .unwrap_or(Lane::FIRST_JOB)
    }
}

impl Subscription {
    /// Why a job command does not apply in the current state.
    pub(super) fn refuses_job(&self, command: JobCommand) -> Option<JobRefused> {
        self.jobs.command_problem(command)
    }

    /// The lane of the job that this command would start.
    pub fn next_job(&self, command: Command) -> Option<Lane> {
        match command {
            Command::Job(JobCommand::Start { .. }) => Some(self.jobs.next_lane()),
            Command::Job(JobCommand::Pause(_) | JobCommand::Resume(_) | JobCommand::Cancel(_))
            | Command::Hold
            | Command::Resume
            | Command::Probe
            | Command::Release
            | Command::Unblock { .. } => None,
        }
    }

    pub(super) fn on_job_command(&mut self, command: JobCommand, now: Timestamp) {
        if self.jobs.command_problem(command).is_some() {
            return;
        }
        let (lane, state) = match command {
            JobCommand::Start { kind, rate } => return self.start_job(kind, rate, now),
            JobCommand::Pause(lane) => (lane, JobState::Paused),
            JobCommand::Resume(lane) => (lane, JobState::Running),
            JobCommand::Cancel(lane) => (lane, JobState::Canceling),
        };
        for running in self
            .jobs
            .list
            .iter_mut()
            .filter(|running| running.job.lane == lane)
        {
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
        let state = JobState::Running;
        let counters = Counters::default();
        let job = Job {
            lane,
            kind,
            rate,
            began: now,
            changed: now,
            state,
            counters,
        };
        self.jobs
            .list
            .push(RunningJob::new(job, JobStart::Unwritten, now));
        match kind {
            JobKind::Replay { from, end } => {
                let cursor = LaneCursor::new(lane, from, Some(end));
                self.lanes.push(LaneReader::from_cursor(&cursor));
            }
            // Its dead letters arrive as [`super::Input::Redrive`].
            JobKind::Redrive { .. } => {}
        }
    }

    /// Drops ready events of a job. They are read again.
    fn forget_job(&mut self, lane: Lane) {
        if let Some(reading) = lane_mut(&mut self.lanes, lane) {
            reading.forget_ready();
        }
        if let Some(replays) = &mut self.replays {
            replays.forget_ready(|of| of == lane);
        }
    }

    /// Sends nothing more of a job. Requests in flight still get their outcome; pending deliveries
    /// are taken back in slices.
    fn cancel_job(&mut self, lane: Lane, now: Timestamp) {
        self.forget_job(lane);
        if let Some(reading) = lane_mut(&mut self.lanes, lane) {
            reading.stop();
        }
        let lost = self.job_queue_mut().withdraw_lane(lane);
        let item = |seq| SendItem {
            lane,
            seq,
            appended: now,
            attempts: 0,
            due: None,
            since: None,
        };
        self.cancel_deliveries(lost.into_iter().map(item).collect(), now);
    }

    /// Whether pending deliveries of this lane are taken back because its job is canceled.
    pub(super) fn takes_back(&self, lane: Lane) -> bool {
        let is_so = |job: &Job| job.state == JobState::Canceling;
        self.jobs
            .list
            .iter()
            .any(|running| running.job.lane == lane && is_so(&running.job))
    }

    /// Takes back pending deliveries of canceled jobs, as many as fit into a write.
    pub(super) fn take_back_canceled(&mut self, now: Timestamp) {
        if self.jobs.is_empty() {
            return;
        }
        for lane in self
            .job_lanes(|_| true)
            .into_iter()
            .filter(|lane| self.takes_back(*lane))
            .collect::<Vec<_>>()
        {
            let max = self.pending_write.may_give_up(usize::MAX);
            if max == 0 || self.pending_write.is_ahead() {
                return;
            }
            // Requests in flight when an earlier process ended have no pending record and no
            // outcome.
            let lost = self.job_queue_mut().withdraw_lane(lane);
            let item = |seq| SendItem {
                lane,
                seq,
                appended: now,
                attempts: 0,
                due: None,
                since: None,
            };
            self.cancel_deliveries(lost.into_iter().map(item).collect(), now);
            let keys = self.job_queue_mut().due.take_lane(lane, max);
            let item = |DueKey { due, lane, seq }| SendItem {
                lane,
                seq,
                appended: now,
                attempts: 0,
                due: Some(due),
                since: None,
            };
            self.cancel_deliveries(keys.into_iter().map(item).collect(), now);
        }
    }

    /// Ends these deliveries of a canceled job.
    pub(super) fn cancel_deliveries(&mut self, items: Vec<SendItem>, now: Timestamp) {
        let Some(SendItem { lane, .. }) = items.first().copied() else {
            return;
        };
        let items = self.give_back(lane, items, now);
        let mut items_left = Vec::with_capacity(items.len());
        for item in items {
            if self.remove_pending(item) {
                self.update_counters(item.lane, |counters| counters.canceled += 1);
                items_left.push(item);
            }
        }
        if items_left.is_empty() {
            return;
        }
        self.pending_write.reserve_ended(items_left.len());
        let runs = runs_of(items_left.iter().map(|item| item.seq).collect());
        self.pending_write.push_entry(
            lane,
            0,
            LedgerEntry {
                at: now,
                runs,
                what: LedgerEvent::Canceled,
            },
        );
    }

    fn job_lanes(&self, is_such: impl Fn(&RunningJob) -> bool) -> Vec<Lane> {
        self.jobs
            .list
            .iter()
            .filter(|running| is_such(running))
            .map(|running| running.job.lane)
            .collect()
    }

    /// Removes jobs that have nothing left to do.
    pub(super) fn end_jobs(&mut self, now: Timestamp) {
        if self.jobs.is_empty() {
            return;
        }
        let lanes: Vec<Lane> = self.lanes.iter().map(LaneReader::lane).collect();
        let has_more = |job: &Job| match job.kind {
            JobKind::Replay { .. } | JobKind::Redrive { drained: true } => false,
            JobKind::Redrive { drained: false } => job.state != JobState::Canceling,
        };
        let is_over =
            |job: &Job| job.counters.pending == 0 && !lanes.contains(&job.lane) && !has_more(job);
        let (over, list): (Vec<RunningJob>, Vec<RunningJob>) = std::mem::take(&mut self.jobs.list)
            .into_iter()
            .partition(|running| is_over(&running.job));
        self.jobs.list = list;
        for RunningJob { job, .. } in over {
            let state = match job.state {
                JobState::Canceling | JobState::Canceled => JobState::Canceled,
                JobState::Running | JobState::Paused | JobState::Completed => JobState::Completed,
            };
            self.pending_write
                .push_change(RecordChange::JobEnded(Box::new(Job {
                    state,
                    changed: now,
                    ..job
                })));
        }
    }
}
