//! Jobs: what an operator lets a subscription have once more, beside what is published.
//!
//! A job has a lane of its own, whose number is the job's. A replay's lane is a range of the log; other jobs put single
//! obligations into theirs. While it runs a job is part of its subscription's cursor, so that what became of its events and
//! how far it has come are one write; when it has ended it is a record of its own, kept for reading.

use std::fmt;

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::record::{Counters, Rate},
};

/// So many jobs of a subscription run or wait at once, at the most.
pub const JOBS_MAX: usize = 8;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its lane, and its number among the jobs of its subscription.
    pub lane: Lane,
    /// What it does.
    pub kind: JobKind,
    /// So many events in a second at the most, the repeated attempts counted; [`None`] for no bound of its own.
    pub rate: Option<Rate>,
    /// When it began.
    pub began: Timestamp,
    /// When its state changed last.
    pub changed: Timestamp,
    /// Whether it goes on.
    pub state: JobState,
    /// What became of the events that it passed. The same equations hold as for a subscription's.
    pub counters: Counters,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Sends a part of the log once more.
    Replay {
        /// From here …
        from: Seq,
        /// … to before here.
        end: Seq,
    },
    /// Sends dead letters again, which are put into its lane a page at a time.
    Redrive {
        /// Whether there are no more to come.
        drained: bool,
    },
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replay { .. } => "replay",
            Self::Redrive { .. } => "redrive",
        })
    }
}

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It does.
    Running,
    /// It waits for a word.
    Paused,
    /// It does not: what it owes is taken back.
    Canceling,
    /// All that it passed has ended.
    Completed,
    /// It was ended before.
    Canceled,
}

impl JobState {
    /// Whether nothing more will come of it.
    pub fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Canceled => true,
            Self::Running | Self::Paused | Self::Canceling => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Canceling => "canceling",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
        })
    }
}

/// What an operator asks of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// A new one begins.
    Start {
        /// What it does.
        kind: JobKind,
        /// At which rate.
        rate: Option<Rate>,
    },
    /// It sends nothing for now.
    Pause(Lane),
    /// It goes on.
    Resume(Lane),
    /// It ends; what has been delivered stays delivered.
    Cancel(Lane),
}

/// Why that has no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRefused {
    /// As many run or wait as may.
    TooMany,
    /// No such job runs or waits.
    Unknown(Lane),
    /// It is in this state.
    Is(Lane, JobState),
}

impl fmt::Display for JobRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(
                f,
                "{JOBS_MAX} jobs of this event subscription run or are paused, and more than that are not allowed; \
                 wait for one, or cancel one"
            ),
            Self::Unknown(Lane(job)) => write!(f, "the job {job} does not run and is not paused"),
            Self::Is(Lane(job), state) => write!(f, "the job {job} is {state}"),
        }
    }
}
