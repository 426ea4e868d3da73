//! Scheduled events in the order of virtual time. Simultaneous events keep the order in which they
//! were scheduled, so that a run is deterministic.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use crate::endpoint::SimulatedReply;
use gridhook_event::Timestamp;
use gridhook_policy::OutgoingBatch;

#[derive(Debug)]
pub(super) enum ScheduledEvent {
    Published,
    /// An event of the subscription with this number.
    Of(usize, SubscriberEvent),
}

/// A scheduled event of one subscription.
#[derive(Debug)]
pub(super) enum SubscriberEvent {
    Answered(Arc<OutgoingBatch>, SimulatedReply),
    Durable,
    /// The deadline that the state machine returned.
    Tick,
}

#[derive(Debug)]
struct QueueEntry {
    at: Timestamp,
    order: u64,
    what: ScheduledEvent,
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<QueueEntry>>,
    planned: u64,
}

impl EventQueue {
    pub(super) fn schedule(&mut self, at: Timestamp, what: ScheduledEvent) {
        self.planned += 1;
        self.entries.push(Reverse(QueueEntry {
            at,
            order: self.planned,
            what,
        }));
    }

    pub(super) fn next(&mut self) -> Option<(Timestamp, ScheduledEvent)> {
        self.entries
            .pop()
            .map(|Reverse(QueueEntry { at, what, .. })| (at, what))
    }
}

impl QueueEntry {
    fn order_key(&self) -> (Timestamp, u64) {
        (self.at, self.order)
    }
}

impl Ord for QueueEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order_key().cmp(&other.order_key())
    }
}

impl PartialOrd for QueueEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueueEntry {
    fn eq(&self, other: &Self) -> bool {
        self.order_key() == other.order_key()
    }
}

impl Eq for QueueEntry {}
