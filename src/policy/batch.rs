//! Which events go into one request: what is there now, up to a count and a preferred size; never waiting for more.

use std::collections::VecDeque;

use crate::{
    event::{Event, Schema, Timestamp},
    policy::{SendItem, outcome::Outcome, property::PropertyGroup},
};

/// What a subscription wants in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// At most so many events.
    pub events_max: u32,
    /// So many bytes of the request's body, if the events allow: one that is larger goes alone.
    pub bytes_preferred: u64,
    /// The schema that events are sent in: their size is measured in it.
    pub schema: Schema,
}

/// When an endpoint returns, fewer unread events than this, or than four batches, are no backlog: they are sent before
/// anybody could tell the difference.
const BACKLOG_MIN: u32 = 256;

impl BatchLimits {
    /// So many unread events at least are a backlog.
    pub fn backlog_min(self) -> u32 {
        BACKLOG_MIN.max(self.events_max.saturating_mul(4))
    }
}

/// An event that could be sent now.
#[derive(Clone, Debug)]
pub struct ReadyEvent {
    /// Which obligation it is.
    pub item: SendItem,
    /// The event.
    pub event: Event,
    /// How its last attempt ended; [`None`] where there was none.
    pub last: Option<LastAttempt>,
    /// Whom it shares a request with.
    pub group: PropertyGroup,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// How.
    pub outcome: Outcome,
    /// With which status, if there was one.
    pub status: Option<u16>,
    /// When it was made.
    pub tried: Timestamp,
}

/// So far a batch is looked for: events of another group in between wait for their own.
const LOOK_AHEAD: usize = 1024;

/// The places in `queue` of the events of the next batch, ascending. They have been tried equally often, because a request
/// carries one `aeg-delivery-count`; are of one lane, because a line of the ledger is; and of one group, because a request
/// has one set of headers. The first is at the front, so that nobody waits for ever. Empty only where the queue is.
pub fn pick(queue: &VecDeque<ReadyEvent>, limits: BatchLimits) -> Vec<usize> {
    let Some(first) = queue.front() else { return Vec::new() };
    let (lane, attempts) = (first.item.lane, first.item.attempts);
    let events_max = limits.events_max.max(1) as usize;
    if events_max == 1 {
        return vec![0];
    }
    // The brackets of the array; each event has a comma or takes the place of one.
    let mut bytes = 1;
    let mut places: Vec<usize> = queue
        .iter()
        .enumerate()
        .take(LOOK_AHEAD.max(events_max))
        .take_while(|(_, ready)| (ready.item.lane, ready.item.attempts) == (lane, attempts))
        .filter(|(_, ready)| ready.group == first.group)
        .take(events_max)
        .take_while(|(_, ready)| {
            // Without a bound nothing need be converted to be measured.
            limits.bytes_preferred == u64::MAX || {
                bytes += ready.event.delivered_len(limits.schema) as u64 + 1;
                bytes <= limits.bytes_preferred
            }
        })
        .map(|(place, _)| place)
        .collect();
    if places.is_empty() {
        places.push(0);
    }
    places
}

/// Takes the events at these places, which are ascending.
pub fn remove(queue: &mut VecDeque<ReadyEvent>, places: &[usize]) -> Vec<ReadyEvent> {
    let Some(last) = places.last() else { return Vec::new() };
    let (mut taken, mut left) = (Vec::with_capacity(places.len()), Vec::new());
    for (place, ready) in queue.drain(..=*last).enumerate() {
        let list = if places.get(taken.len()) == Some(&place) { &mut taken } else { &mut left };
        list.push(ready);
    }
    for ready in left.into_iter().rev() {
        queue.push_front(ready);
    }
    taken
}

/// Takes the next batch.
pub fn take(queue: &mut VecDeque<ReadyEvent>, limits: BatchLimits) -> Vec<ReadyEvent> {
    let places = pick(queue, limits);
    remove(queue, &places)
}
