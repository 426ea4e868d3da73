//! What is going to happen, in the order of virtual time. What happens at the same moment keeps the order in which it was
//! planned, so that a story is told the same way each time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use crate::{event::Timestamp, policy::OutgoingBatch, simulate::endpoint::SimulatedReply};

/// What is going to happen.
#[derive(Debug)]
pub(super) enum ScheduledEvent {
    /// An event is published.
    Published,
    /// Something of the subscription of that number.
    Of(usize, SubscriberEvent),
}

/// What happens to a subscription by itself.
#[derive(Debug)]
pub(super) enum SubscriberEvent {
    /// A request is answered.
    Answered(Arc<OutgoingBatch>, SimulatedReply),
    /// A write is on the disk.
    Durable,
    /// It wanted to be asked.
    Tick,
}

#[derive(Debug)]
struct QueueEntry {
    at: Timestamp,
    order: u64,
    what: ScheduledEvent,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<QueueEntry>>,
    planned: u64,
}

impl EventQueue {
    pub(super) fn plan(&mut self, at: Timestamp, what: ScheduledEvent) {
        self.planned += 1;
        self.entries.push(Reverse(QueueEntry { at, order: self.planned, what }));
    }

    pub(super) fn next(&mut self) -> Option<(Timestamp, ScheduledEvent)> {
        self.entries.pop().map(|Reverse(QueueEntry { at, what, .. })| (at, what))
    }
}

impl QueueEntry {
    fn key(&self) -> (Timestamp, u64) {
        (self.at, self.order)
    }
}

impl Ord for QueueEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for QueueEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueueEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueueEntry {}
