//! Leases of pull delivery: the locks of clients, their claims, and the steps in the ledger.

use std::{fmt, time::Duration};

use gridhook_event::{Lane, Seq, Timestamp};

/// Locks can be renewed for this long after an event was first received.
pub const RENEWED_FOR: Duration = Duration::from_secs(60 * 60);

/// Maximum delay of a release.
pub const RELEASED_FOR: Duration = Duration::from_secs(60 * 60);

/// A waiting client; ids are in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveId(pub u64);

/// A client's lock: one attempt at an event, valid while that attempt holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct Lease {
    pub lane: Lane,
    pub seq: Seq,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
    /// When the journal appended the event.
    pub appended: Timestamp,
}

impl Lease {
    /// The pending delivery that it locks.
    pub fn key(&self) -> (Lane, Seq) {
        (self.lane, self.seq)
    }
}

/// What a client does with its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// The client has processed the event: it is delivered.
    Acknowledge,
    /// Give the event back, to be received again after this delay.
    Release(Duration),
    /// The event can never be processed.
    Reject,
    /// Hold the lock for longer.
    Renew,
    /// Used by the server if the response did not reach the client: give the event back, and do not
    /// count the attempt.
    Return,
}

/// A claim of a client about its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClaim {
    /// The claim's number, which its results name.
    pub id: u64,
    /// What the client wants of all its locks.
    pub action: LeaseAction,
    /// In the order of the request, and of the results.
    pub leases: Vec<Lease>,
}

/// The result of a claim for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseResult {
    /// The lock was valid, and the action is durable.
    Done,
    /// The lock is lost: it expired or was settled before.
    Lost,
    /// The event was first received too long ago to renew the lock.
    TooOld,
}

/// A step of pull delivery in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// A client received it, with a new lock.
    Received {
        /// When the lock expires unless it is renewed.
        until: Timestamp,
    },
    /// The lock was extended before it expired.
    Renewed {
        /// When the lock expires unless it is renewed again.
        until: Timestamp,
    },
    /// The client processed it: it is delivered.
    Acknowledged,
    /// The client gave it back.
    Released {
        /// When it can be received again.
        until: Timestamp,
    },
    /// No client settled it in time: it can be received again.
    Expired,
}

impl LeaseStep {
    /// The kind of the step.
    pub fn kind(self) -> StepKind {
        match self {
            Self::Received { .. } => StepKind::Received,
            Self::Renewed { .. } => StepKind::Renewed,
            Self::Acknowledged => StepKind::Acknowledged,
            Self::Released { .. } => StepKind::Released,
            Self::Expired => StepKind::Expired,
        }
    }
}

/// The kind of a step, by which steps are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the kinds are those of `LeaseStep`")]
pub enum StepKind {
    Received,
    Renewed,
    Acknowledged,
    Released,
    Expired,
}

impl StepKind {
    /// In the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::Received,
        Self::Renewed,
        Self::Acknowledged,
        Self::Released,
        Self::Expired,
    ];

    /// The name in metrics and histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Renewed => "renewed",
            Self::Acknowledged => "acknowledged",
            Self::Released => "released",
            Self::Expired => "lockExpired",
        }
    }

    /// The byte stored for it.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Received => 1,
            Self::Renewed => 2,
            Self::Acknowledged => 3,
            Self::Released => 4,
            Self::Expired => 5,
        }
    }

    /// The kind of a stored byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_byte() == byte)
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
