//! What is going to happen, in the order of virtual time. What happens at the same moment keeps the order in which it was
//! planned, so that a story is told the same way each time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    sync::Arc,
};

use crate::{event::Timestamp, policy::Flight, simulate::endpoint::Reply};

/// What is going to happen.
#[derive(Debug)]
pub(super) enum What {
    /// An event is published.
    Published,
    /// Something of the subscription of that number.
    Of(usize, Happening),
}

/// What happens to a subscription by itself.
#[derive(Debug)]
pub(super) enum Happening {
    /// A request is answered.
    Answered(Arc<Flight>, Reply),
    /// A write is on the disk.
    Durable,
    /// It wanted to be asked.
    Tick,
}

#[derive(Debug)]
struct Entry {
    at: Timestamp,
    order: u64,
    what: What,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

impl Queue {
    pub(super) fn plan(&mut self, at: Timestamp, what: What) {
        self.planned += 1;
        self.entries.push(Reverse(Entry { at, order: self.planned, what }));
    }

    pub(super) fn next(&mut self) -> Option<(Timestamp, What)> {
        self.entries.pop().map(|Reverse(Entry { at, what, .. })| (at, what))
    }
}

impl Entry {
    fn key(&self) -> (Timestamp, u64) {
        (self.at, self.order)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}
