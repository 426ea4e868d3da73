//! The commands of operators.

use std::fmt;

use crate::{
    order::OrderHash,
    record::job::{JobCommand, JobRefused},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop sending until `Resume`.
    Hold,
    /// End a hold, whatever caused it.
    Resume,
    /// Probe a suspended endpoint now.
    Probe,
    /// Treat a suspended endpoint as healthy.
    Release,
    /// Decide about the events that block their order key.
    Unblock {
        /// The key; [`None`] for all.
        key: Option<OrderHash>,
        /// Whether the event is attempted once more instead of given up.
        retry: bool,
    },
    /// A command about a job.
    Job(JobCommand),
}

/// Pending deliveries that an operator wants retried now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRequest {
    /// The deliveries. Those that are not pending change nothing.
    pub keys: Vec<(Lane, Seq)>,
    /// Only those whose last attempt was made before this time.
    pub tried_before: Timestamp,
}

/// Why a command does not apply in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRefused {
    /// The endpoint is not on probation.
    Healthy,
    /// A probe is in flight.
    Probing,
    /// Nothing is sent or probed until the subscription is resumed.
    Held,
    /// The order of events is being recovered.
    Recovering,
    /// No event blocks the key.
    NotBlocked,
    /// Pull delivery has no retries of its own.
    Pulled,
    /// What is due becomes a dead letter at once.
    DeadLettering,
    /// The job does not exist, or is in another state.
    Job(JobRefused),
}

impl fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => {
                "the endpoint is healthy; only one on probation can be probed or \
                 released"
            }
            Self::Probing => "a probe is in flight; wait for its response, or release the endpoint",
            Self::Held => "the subscription is held; resume it first",
            Self::Recovering => {
                "the order of its events is being read after a start; try again in \
                 a moment"
            }
            Self::Pulled => {
                "clients of pull delivery ask for the events; there is no retry to \
                 bring forward"
            }
            Self::DeadLettering => {
                "the endpoint is on probation after a client error, in which events that are due \
                 become dead letters; release the endpoint first"
            }
            Self::NotBlocked => {
                "no event blocks this key; only a key of ordering with onFailure \
                 block can be blocked"
            }
            Self::Job(refused) => return refused.fmt(f),
        })
    }
}
