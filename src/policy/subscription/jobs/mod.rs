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

use self::rate_limit::RateLimit;
use super::{
    redrive,
    settlement::{Settlement, runs_of},
};
use crate::{
    SendItem,
    lane::LaneReader,
    record::{
        Command, Counters, DueKey, LedgerEntry, LedgerEvent, Rate, RecordChange,
        job::{JOBS_MAX, Job, JobCommand, JobKind, JobRefused, JobState},
    },
};
use gridhook_event::{Lane, Seq, Timestamp};

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
    /// When that batch was sent.
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

    /// Why a job command does not apply in the current state.
    pub(super) fn command_problem(&self, command: JobCommand) -> Option<JobRefused> {
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

    /// The lane of the job that this command would start.
    pub(super) fn next_job(&self, command: Command) -> Option<Lane> {
        match command {
            Command::Job(JobCommand::Start { .. }) => Some(self.next_lane()),
            Command::Job(JobCommand::Pause(_) | JobCommand::Resume(_) | JobCommand::Cancel(_))
            | Command::Hold
            | Command::Resume
            | Command::Probe
            | Command::Release
            | Command::Unblock { .. } => None,
        }
    }

    fn set_state(&mut self, lane: Lane, state: JobState, now: Timestamp) {
        if let Some(job) = self.job_mut(lane) {
            job.state = state;
            job.changed = now;
        }
    }

    /// Adds a job; returns its lane.
    fn add_job(&mut self, kind: JobKind, rate: Option<Rate>, now: Timestamp) -> Lane {
        let lane = self.next_lane();
        self.begun = lane.0 - Lane::FIRST_JOB.0 + 1;
        let job = Job {
            lane,
            kind,
            rate,
            began: now,
            changed: now,
            state: JobState::Running,
            counters: Counters::default(),
        };
        self.list
            .push(RunningJob::new(job, JobStart::Unwritten, now));
        lane
    }

    /// Whether pending deliveries of this lane are taken back because its job is canceled.
    pub(super) fn is_canceling(&self, lane: Lane) -> bool {
        self.find_job(lane)
            .is_some_and(|job| job.state == JobState::Canceling)
    }

    /// When the last batch of a job was sent.
    pub(super) fn last_sent(&self) -> Timestamp {
        self.left
    }

    pub(super) fn running_lanes(&self) -> Vec<Lane> {
        self.lanes(RunningJob::is_running)
    }

    /// The lanes of running jobs, from the one whose turn it is.
    pub(super) fn lanes_in_turn(&self) -> Vec<Lane> {
        let mut lanes = self.running_lanes();
        lanes.sort_unstable();
        let first = lanes.partition_point(|lane| *lane <= self.last);
        lanes.rotate_left(first);
        lanes
    }

    /// The lanes of running jobs that may have more events pending.
    pub(super) fn reading_lanes(&self) -> Vec<Lane> {
        self.lanes(|running| running.is_running() && running.job.counters.pending < PENDING_MAX)
    }

    fn find_rate(&self, lane: Lane) -> Option<&RateLimit> {
        let running = self.list.iter().find(|running| running.job.lane == lane)?;
        running.allowance.as_ref()
    }

    /// When a job's rate limit allows this number of events.
    pub(super) fn rate_opens(&self, lane: Lane, events: u32, now: Timestamp) -> Timestamp {
        self.find_rate(lane)
            .map_or(now, |rate| rate.opens_at(events, now))
    }

    /// How many events a job's rate limit allows now.
    pub(super) fn rate_allows(&self, lane: Lane, now: Timestamp) -> u32 {
        self.find_rate(lane)
            .map_or(u32::MAX, |rate| rate.free_events(now))
    }

    /// Notes that a batch of a job leaves.
    pub(super) fn note_batch(&mut self, lane: Lane, events: usize, now: Timestamp) {
        let running = self
            .list
            .iter_mut()
            .find(|running| running.job.lane == lane);
        if let Some(rate) = running.and_then(|running| running.allowance.as_mut()) {
            rate.take_events(events, now);
        }
        (self.others, self.last, self.left) = (0, lane, now);
    }

    fn canceling_lanes(&self) -> Vec<Lane> {
        self.lanes(|running| running.job.state == JobState::Canceling)
    }

    fn lanes(&self, is_such: impl Fn(&RunningJob) -> bool) -> Vec<Lane> {
        self.list
            .iter()
            .filter(|running| is_such(running))
            .map(|running| running.job.lane)
            .collect()
    }

    /// Removes the jobs that have nothing left to do, apart from those that read these lanes;
    /// returns them as they end.
    fn take_ended(&mut self, lanes: &[Lane], now: Timestamp) -> Vec<Job> {
        let is_over = |job: &Job| job.counters.pending == 0 && !has_more(job);
        let finished_jobs = self.list.extract_if(.., |running| {
            !lanes.contains(&running.job.lane) && is_over(&running.job)
        });
        finished_jobs
            .map(|RunningJob { job, .. }| end_job(job, now))
            .collect()
    }
}

/// Whether more events of the job may come than those of its lane.
fn has_more(job: &Job) -> bool {
    match job.kind {
        JobKind::Replay { .. } | JobKind::Redrive { drained: true } => false,
        JobKind::Redrive { drained: false } => job.state != JobState::Canceling,
    }
}

fn end_job(job: Job, now: Timestamp) -> Job {
    let state = match job.state {
        JobState::Canceling | JobState::Canceled => JobState::Canceled,
        JobState::Running | JobState::Paused | JobState::Completed => JobState::Completed,
    };
    Job {
        state,
        changed: now,
        ..job
    }
}

pub(super) fn on_command(settlement: &mut Settlement, command: JobCommand, now: Timestamp) {
    if settlement.jobs.command_problem(command).is_some() {
        return;
    }
    let (lane, state) = match command {
        JobCommand::Start { kind, rate } => return start_job(settlement, kind, rate, now),
        JobCommand::Pause(lane) => (lane, JobState::Paused),
        JobCommand::Resume(lane) => (lane, JobState::Running),
        JobCommand::Cancel(lane) => (lane, JobState::Canceling),
    };
    settlement.jobs.set_state(lane, state, now);
    match state {
        JobState::Paused => drop_ready(settlement, lane),
        JobState::Canceling => cancel_job(settlement, lane, now),
        JobState::Running | JobState::Completed | JobState::Canceled => {}
    }
}

fn start_job(settlement: &mut Settlement, kind: JobKind, rate: Option<Rate>, now: Timestamp) {
    let lane = settlement.jobs.add_job(kind, rate, now);
    match kind {
        JobKind::Replay { from, end } => settlement.log.add_lane(lane, from, end),
        // Its dead letters arrive as [`Input::Redrive`](crate::Input::Redrive).
        JobKind::Redrive { .. } => {}
    }
}

/// Drops ready events of a job. They are read again.
fn drop_ready(settlement: &mut Settlement, lane: Lane) {
    settlement.log.drop_ready(|of| of == lane);
    settlement.queues.drop_ready_jobs(|of| of == lane);
}

/// Sends nothing more of a job. Requests in flight still get their outcome; pending deliveries are
/// taken back in slices.
fn cancel_job(settlement: &mut Settlement, lane: Lane, now: Timestamp) {
    drop_ready(settlement, lane);
    if let Some(reading) = settlement.log.lane_mut(lane) {
        reading.stop();
    }
    cancel_lost(settlement, lane, now);
}

/// Takes back the events of a canceled job that were open at recovery: they have no pending record
/// and no outcome.
fn cancel_lost(settlement: &mut Settlement, lane: Lane, now: Timestamp) {
    let lost = settlement.queues.jobs_mut().withdraw_lane(lane);
    let items = lost
        .into_iter()
        .map(|seq| item_of_job(lane, seq, None, now));
    cancel_deliveries(settlement, items.collect(), now);
}

/// Takes back pending deliveries of canceled jobs, as many as fit into a write.
pub(super) fn take_back_canceled(settlement: &mut Settlement, now: Timestamp) {
    for lane in settlement.jobs.canceling_lanes() {
        let max = settlement.pending_write.limit_give_ups(usize::MAX);
        if max == 0 || settlement.pending_write.is_ahead() {
            return;
        }
        cancel_lost(settlement, lane, now);
        let window = settlement.queues.jobs_mut().window_mut();
        let items = window
            .take_lane(lane, max)
            .into_iter()
            .map(|DueKey { due, lane, seq }| item_of_job(lane, seq, Some(due), now));
        let items = items.collect();
        cancel_deliveries(settlement, items, now);
    }
}

/// A delivery of a job that ends without an attempt.
fn item_of_job(lane: Lane, seq: Seq, due: Option<Timestamp>, now: Timestamp) -> SendItem {
    SendItem {
        lane,
        seq,
        appended: now,
        attempts: 0,
        due,
        since: None,
    }
}

/// Ends these deliveries of a canceled job.
pub(super) fn cancel_deliveries(settlement: &mut Settlement, items: Vec<SendItem>, now: Timestamp) {
    let Some(SendItem { lane, .. }) = items.first().copied() else {
        return;
    };
    let items = redrive::give_back(settlement, lane, items, now);
    let mut items_left = Vec::with_capacity(items.len());
    for item in items {
        if settlement.remove_pending(item) {
            settlement.update_counters(item.lane, |counters| counters.canceled += 1);
            items_left.push(item);
        }
    }
    if items_left.is_empty() {
        return;
    }
    settlement.pending_write.reserve_ended(items_left.len());
    let runs = runs_of(items_left.iter().map(|item| item.seq).collect());
    settlement.pending_write.push_entry(
        lane,
        0,
        LedgerEntry {
            at: now,
            runs,
            what: LedgerEvent::Canceled,
        },
    );
}

/// Removes jobs that have nothing left to do.
pub(super) fn end_jobs(settlement: &mut Settlement, now: Timestamp) {
    if settlement.jobs.is_empty() {
        return;
    }
    let lanes: Vec<Lane> = settlement.log.iter().map(LaneReader::lane).collect();
    for job in settlement.jobs.take_ended(&lanes, now) {
        let change = RecordChange::JobEnded(Box::new(job));
        settlement.pending_write.push_change(change);
    }
}
