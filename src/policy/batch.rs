//! Which events go into one request: what is there now, up to a count and a preferred size; never waiting for more.

use std::collections::VecDeque;

use crate::{
    event::{Event, Timestamp},
    policy::{Item, outcome::Outcome},
};

/// What a subscription wants in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many events.
    pub events_max: u32,
    /// So many bytes, if the events allow: one that is larger goes alone.
    pub bytes_preferred: u64,
}

/// An event that could be sent now.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Which obligation it is.
    pub item: Item,
    /// The event.
    pub event: Event,
    /// How its last attempt ended; [`None`] where there was none.
    pub last: Option<Last>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// How.
    pub outcome: Outcome,
    /// With which status, if there was one.
    pub status: Option<u16>,
    /// When it was made.
    pub tried: Timestamp,
}

/// Takes a batch from the front of `queue`. Its events have been tried equally often, because a request carries one
/// `aeg-delivery-count`, and are of one lane, because a line of the ledger is. Empty only where the queue is.
pub fn take(queue: &mut VecDeque<Ready>, limits: Limits) -> Vec<Ready> {
    let Some(first) = queue.front() else { return Vec::new() };
    let (lane, attempts) = (first.item.lane, first.item.attempts);
    let mut bytes = 0;
    let fit = queue
        .iter()
        .take(limits.events_max.max(1) as usize)
        .take_while(|ready| {
            bytes += ready.event.wire_len() as u64;
            (ready.item.lane, ready.item.attempts) == (lane, attempts) && bytes <= limits.bytes_preferred
        })
        .count();
    queue.drain(..fit.max(1)).collect()
}
