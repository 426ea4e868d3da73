//! Events that are not delivered yet: pending deliveries in the order of their due times, and dead
//! letters.

use crate::outcome::{LastOutcome, Reason};
use gridhook_event::{Event, Lane, Seq, Timestamp};

/// The two kinds of pending deliveries, which do not block each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Events of the log as they were published, and their retries.
    Live,
    /// Events that replays and redrives send again.
    Jobs,
}

impl Traffic {
    /// The kind of a lane's events.
    pub fn from_lane(lane: Lane) -> Self {
        if lane.is_job() {
            Self::Jobs
        } else {
            Self::Live
        }
    }
}

/// The due time of a delivery that is held back behind an earlier event of its order key: later
/// than any real time. It is sent once that event has ended.
pub const HELD_BACK: Timestamp = Timestamp(u64::MAX - 1);

/// The due time of a delivery that an operator wants attempted once more: earlier than any other.
/// It has no age, and the maximum number of attempts does not apply.
pub const ASKED: Timestamp = Timestamp(0);

/// The due time of a delivery that would be given up and blocks its order key instead, until an
/// operator decides: later than any real time, and before [`HELD_BACK`].
pub const BLOCKING: Timestamp = Timestamp(u64::MAX - 2);

/// Whether age and the maximum number of attempts do not apply to a delivery that is due at this
/// time. A blocking one is attempted only if the subscription has no order any more: then it is
/// attempted once, like one with [`ASKED`].
pub fn is_exempt(due: Option<Timestamp>) -> bool {
    due == Some(ASKED) || due == Some(BLOCKING)
}

/// The pending record: an event that failed and will be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDelivery {
    /// How often it was sent, including pulls by clients.
    pub attempts: u32,
    /// When the next one is due.
    pub due: Timestamp,
    /// The outcome of the last one.
    pub last: LastOutcome,
    /// The HTTP status of the last one, if there was one.
    pub status: Option<u16>,
    /// When the last one was made.
    pub tried: Timestamp,
    /// Start of the time to live, if it is not the append. In a job: when the job first sent or
    /// added it. For pull delivery: when a client first received it, from which renewals are
    /// limited. Where the schedule counts from the first attempt: when that was sent.
    pub received: Option<Timestamp>,
}

/// The key of a pending delivery in the order of due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct DueKey {
    /// The due time of the pending record.
    pub due: Timestamp,
    pub lane: Lane,
    pub seq: Seq,
}

impl DueKey {
    /// Before all keys due at this time or later.
    pub fn first_at(due: Timestamp) -> Self {
        Self {
            due,
            lane: Lane(0),
            seq: Seq(0),
        }
    }

    /// The next key in order.
    pub fn next(self) -> Self {
        Self {
            seq: self.seq.plus(1),
            ..self
        }
    }
}

/// A pending or open event as stored.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct FetchedPending {
    pub lane: Lane,
    pub seq: Seq,
    /// The pending record; [`None`] if there is none.
    pub pending: Option<PendingDelivery>,
    /// The event's content; [`None`] if the store does not have it.
    pub event: Option<Event>,
}

/// The record of an event that was given up and waits for the dead-letter destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct DeadLetterRecord {
    pub reason: Reason,
    /// How often it was sent; 0 if it expired before the first attempt.
    pub attempts: u32,
    /// The outcome of the last one.
    pub outcome: LastOutcome,
    /// The HTTP status of the last one, if there was one.
    pub status: Option<u16>,
    /// When the journal appended the event.
    pub published: Timestamp,
    /// When the last attempt was made; [`None`] if there was none.
    pub tried: Option<Timestamp>,
    /// When it was given up.
    pub given_up: Timestamp,
}
