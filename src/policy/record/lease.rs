//! The words of leases: what a client that pulls holds, what it says of it, and what the ledger keeps.

use std::{fmt, time::Duration};

use crate::event::{Lane, Seq, Timestamp};

/// Renewals end so long after an event was first received.
pub const RENEWED_FOR: Duration = Duration::from_secs(60 * 60);

/// The longest that a release puts an event off.
pub const RELEASED_FOR: Duration = Duration::from_secs(60 * 60);

/// A client that waits for events, in the order of their coming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveId(pub u64);

/// What a client holds: an attempt at an event. Good while that attempt has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// For which lane.
    pub lane: Lane,
    /// Which event.
    pub seq: Seq,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// When the journal took the event.
    pub appended: Timestamp,
}

impl Lease {
    /// Which obligation of its subscription it is of.
    pub fn key(&self) -> (Lane, Seq) {
        (self.lane, self.seq)
    }
}

/// What a client says of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// It is done.
    Acknowledge,
    /// It is for another one, after so long.
    Release(Duration),
    /// Nobody will ever process it.
    Reject,
    /// It takes longer.
    Renew,
    /// The server's own: its client never had it. It is for another one, and it was no attempt.
    TakeBack,
}

/// A client's word about what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClaim {
    /// Which: the answer names it.
    pub id: u64,
    /// The word.
    pub verb: LeaseAction,
    /// About these.
    pub leases: Vec<Lease>,
}

/// What became of a word about one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseResult {
    /// It is so.
    Done,
    /// The lease is over: the lock has expired, or it was said before.
    Lost,
    /// The event was first received too long ago for another renewal.
    TooOld,
}

/// What the ledger says of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// A client received it, and has it until then.
    Received {
        /// Then.
        until: Timestamp,
    },
    /// It has it for longer.
    Renewed {
        /// Until then.
        until: Timestamp,
    },
    /// It has processed it.
    Acknowledged,
    /// It gave it back.
    Released {
        /// Nobody receives it before.
        until: Timestamp,
    },
    /// It said nothing before the lock expired.
    Expired,
}

impl LeaseStep {
    /// Which step it is.
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

/// A step without what it says beside: what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepKind {
    /// A client received it.
    Received,
    /// It has it for longer.
    Renewed,
    /// It has processed it.
    Acknowledged,
    /// It gave it back.
    Released,
    /// It said nothing before the lock expired.
    Expired,
}

impl StepKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Received, Self::Renewed, Self::Acknowledged, Self::Released, Self::Expired];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Renewed => "renewed",
            Self::Acknowledged => "acknowledged",
            Self::Released => "released",
            Self::Expired => "lockExpired",
        }
    }

    /// The byte that stands for it on disk.
    pub fn byte(self) -> u8 {
        match self {
            Self::Received => 1,
            Self::Renewed => 2,
            Self::Acknowledged => 3,
            Self::Released => 4,
            Self::Expired => 5,
        }
    }

    /// The step that `byte` stands for.
    pub fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte)
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
