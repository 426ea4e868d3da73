//! Selects the events of a request: those available now, up to a number and a preferred size. A
//! batch never waits for more events.

use std::collections::VecDeque;

use crate::{
    SendItem, order::OrderHash, outcome::LastOutcome, property::PropertyGroup,
    record::PendingDelivery,
};
use gridhook_event::{Event, Schema, Timestamp};

/// What ends a request before the queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of events in it; 0 counts as 1.
    pub events_max: u32,
    /// Preferred size of the request body in bytes. A larger event is sent alone.
    pub bytes_preferred: u64,
    /// The delivery schema, in which the size is measured.
    pub schema: Schema,
}

/// Minimum unread events that count as a backlog when an endpoint recovers, unless four batches are
/// more. Fewer are sent so soon that the difference is not visible.
const BACKLOG_MIN: u32 = 256;

impl BatchLimits {
    /// Minimum unread events that count as a backlog.
    pub fn backlog_min(self) -> u32 {
        BACKLOG_MIN.max(self.events_max.saturating_mul(4))
    }
}

/// An event that could be sent now.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct ReadyEvent {
    /// Which delivery it is, and how often it was attempted.
    pub item: SendItem,
    pub event: Event,
    /// The outcome of its last attempt; [`None`] before the first.
    pub last: Option<LastAttempt>,
    /// Events of other groups are not in the same request.
    pub group: PropertyGroup,
    /// Its order key; [`None`] if nothing orders it.
    pub order: Option<OrderHash>,
}

/// Whether an event may be sent now.
#[expect(missing_docs, reason = "`Go` says it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Go,
    /// It waits for an earlier event of its key, which is in flight.
    Wait,
    /// It waits for long: an earlier event of its key failed. It makes room for events of other
    /// keys.
    SetAside,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct LastAttempt {
    pub outcome: LastOutcome,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// When the attempt was made.
    pub tried: Timestamp,
}

impl LastAttempt {
    /// An attempt of pull delivery, where no HTTP status says how it ended.
    pub(super) fn from_client(outcome: impl Into<LastOutcome>, tried: Timestamp) -> Self {
        Self {
            outcome: outcome.into(),
            status: None,
            tried,
        }
    }
}

impl From<&PendingDelivery> for LastAttempt {
    fn from(pending: &PendingDelivery) -> Self {
        Self {
            outcome: pending.last,
            status: pending.status,
            tried: pending.tried,
        }
    }
}

/// How far a batch looks ahead past events of other groups.
const LOOK_AHEAD: usize = 1024;

/// The indexes in `queue` of the next batch, ascending. Its events have the same number of
/// attempts, because a request has one `aeg-delivery-count`. They are of one lane, because a ledger
/// entry is, and of one group, because a request has one set of headers. The first event is always
/// included, so that none waits forever. Empty only if the queue is.
pub fn pick_batch(queue: &VecDeque<ReadyEvent>, limits: BatchLimits) -> Vec<usize> {
    pick_in_turn(queue, limits, |_| Turn::Go).0
}

/// As [`pick_batch`], among the events for which `turn` is [`Turn::Go`]. Also returns the indexes
/// of those that `turn` sets aside, up to the last event that was looked at.
pub fn pick_in_turn(
    queue: &VecDeque<ReadyEvent>,
    limits: BatchLimits,
    mut turn: impl FnMut(&ReadyEvent) -> Turn,
) -> (Vec<usize>, Vec<usize>) {
    let events_max = limits.events_max.max(1) as usize;
    let (mut indexes, mut aside): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut first: Option<&ReadyEvent> = None;
    let mut left_out: Vec<OrderHash> = Vec::new();
    // The brackets of the array. Each event counts a comma; the last comma stands for the second
    // bracket.
    let mut bytes = 1;
    for (index, ready) in queue.iter().enumerate().take(LOOK_AHEAD.max(events_max)) {
        match turn(ready) {
            Turn::Go => {}
            Turn::Wait => continue,
            Turn::SetAside => {
                aside.push(index);
                continue;
            }
        }
        let first = *first.get_or_insert(ready);
        if (ready.item.lane, ready.item.attempts) != (first.item.lane, first.item.attempts) {
            break;
        }
        if ready.group != first.group || ready.order.is_some_and(|key| left_out.contains(&key)) {
            // Nothing behind it in the order of its key is in this request.
            left_out.extend(ready.order);
            continue;
        }
        // Without a limit no event is converted to measure it.
        if limits.bytes_preferred != u64::MAX && events_max > 1 {
            bytes += ready.event.delivered_len(limits.schema) as u64 + 1;
            if bytes > limits.bytes_preferred && !indexes.is_empty() {
                break;
            }
        }
        indexes.push(index);
        if indexes.len() == events_max {
            break;
        }
    }
    (indexes, aside)
}

/// Removes the events at these ascending indexes.
pub fn remove(queue: &mut VecDeque<ReadyEvent>, indexes: &[usize]) -> Vec<ReadyEvent> {
    let Some(last) = indexes.last() else {
        return Vec::new();
    };
    let mut taken = Vec::with_capacity(indexes.len());
    let mut left = Vec::new();
    for (index, ready) in queue.drain(..=*last).enumerate() {
        let list = if indexes.get(taken.len()) == Some(&index) {
            &mut taken
        } else {
            &mut left
        };
        list.push(ready);
    }
    for ready in left.into_iter().rev() {
        queue.push_front(ready);
    }
    taken
}

/// Removes the events of the next request from the queue; empty if the queue is.
pub fn take_batch(queue: &mut VecDeque<ReadyEvent>, limits: BatchLimits) -> Vec<ReadyEvent> {
    let indexes = pick_batch(queue, limits);
    remove(queue, &indexes)
}
