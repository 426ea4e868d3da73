//! The commands of operators.

use std::fmt;

use crate::policy::record::job::{JobCommand, JobRefused};

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop sending.
    Hold,
    /// Resume sending.
    Resume,
    /// Probe a suspended endpoint now.
    Probe,
    /// Treat a suspended endpoint as healthy.
    Release,
    /// A command about a job.
    Job(JobCommand),
}

/// Why a command does not apply in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRefused {
    /// The endpoint is not on probation.
    Healthy,
    /// A probe is in flight.
    Probing,
    /// The subscription is held.
    Held,
    /// The job refuses it.
    Job(JobRefused),
}

impl fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "the endpoint is healthy; only one on probation can be probed or released",
            Self::Probing => "a probe is on its way; wait for its answer, or release the endpoint",
            Self::Held => "the subscription is held; resume it first",
            Self::Job(refused) => return refused.fmt(f),
        })
    }
}
