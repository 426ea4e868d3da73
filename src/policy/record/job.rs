//! Jobs: replays and redrives that operators start for a subscription.
//!
//! A job has a lane of its own, whose number is the job's. The lane of a replay is a range of the
//! log; a redrive adds dead letters to its lane. A job that runs is part of its subscription's
//! cursor, so that its progress and its outcomes are one write. When it has ended it becomes a
//! record of its own, kept for reading.

use std::fmt;

use crate::record::{Counters, Rate};
use gridhook_event::{Lane, Seq, Timestamp};

/// Maximum jobs of a subscription that run or are paused.
pub const JOBS_MAX: usize = 8;

/// Events that are sent again, beside the live ones.
#[expect(missing_docs, reason = "the fields are named after their types")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its lane, whose number identifies it within the subscription.
    pub lane: Lane,
    /// Which events it sends.
    pub kind: JobKind,
    /// Maximum events per second, including retries; [`None`] for no limit of its own.
    pub rate: Option<Rate>,
    /// When the command started it.
    pub began: Timestamp,
    /// When its state last changed.
    pub changed: Timestamp,
    pub state: JobState,
    /// Outcomes of the events that it passed. The same equations hold as for a subscription.
    pub counters: Counters,
}

/// The kind of a job.
#[expect(missing_docs, reason = "the fields are named after their types")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Sends a part of the log again.
    Replay {
        from: Seq,
        /// The event after the last one.
        end: Seq,
    },
    /// Sends dead letters again, which are added a page at a time.
    Redrive {
        /// Whether all pages are added.
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

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It sends as far as its rate and share allow.
    Running,
    /// It was paused by an operator.
    Paused,
    /// It was canceled, and its pending deliveries are being taken back.
    Canceling,
    /// All its events have ended.
    Completed,
    /// It was canceled, and nothing of it is pending.
    Canceled,
}

impl JobState {
    /// Whether this state is final.
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

/// A command about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum JobCommand {
    /// Start a job in a lane of its own.
    Start {
        kind: JobKind,
        /// Maximum events per second; [`None`] for no limit of its own.
        rate: Option<Rate>,
    },
    /// Nothing of it is sent until `Resume`; what is in flight ends.
    Pause(Lane),
    /// Send again what it has left.
    Resume(Lane),
    /// Cancel it. Delivered events stay delivered.
    Cancel(Lane),
}

/// Why a job command does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRefused {
    /// The maximum of jobs is reached.
    TooMany,
    /// No such job runs or is paused.
    Unknown(Lane),
    /// The job is in this state.
    Is(Lane, JobState),
}

impl fmt::Display for JobRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(
                f,
                "{JOBS_MAX} jobs of this event subscription run or are paused, and more than that \
                 are not allowed; wait for one, or cancel one"
            ),
            Self::Unknown(Lane(job)) => write!(f, "the job {job} does not run and is not paused"),
            Self::Is(Lane(job), state) => write!(f, "the job {job} is {state}"),
        }
    }
}
