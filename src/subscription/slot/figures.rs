//! A subscription's figures at a moment: little, because they are asked of all subscriptions at once.

use super::{Slot, State};
use crate::{
    event::Seq,
    policy::record::{Counters, EndpointView, Health, Held},
};

/// What is told of many subscriptions at once.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// What became of its events.
    pub counters: Counters,
    /// How its endpoint is.
    pub health: Health,
    /// Who holds it, if anybody does.
    pub held: Option<Held>,
    /// Within which limits its endpoint is called.
    pub endpoint: EndpointView,
    /// Requests on their way, or back and not durable.
    pub in_flight: usize,
    /// Events of the log that it has not passed, before its filter.
    pub backlog: u64,
    /// The first of them.
    pub unread: Option<Seq>,
}

impl State {
    /// How many events of the log it has not passed, with the log ending at `end`, and the first of them.
    pub fn backlog(&self, end: Seq) -> (u64, Option<Seq>) {
        let lanes = || self.cursor.own_lanes();
        let unread = lanes().map(|lane| lane.read).filter(|read| *read < end).min();
        // Sequences are dense within what was written; a gap would make this an upper bound.
        (lanes().map(|lane| lane.end.unwrap_or(end).0.saturating_sub(lane.read.0)).sum(), unread)
    }
}

impl Slot {
    /// Its figures, with the log ending at `end`.
    pub fn figures(&self, end: Seq) -> Figures {
        let inner = self.lock();
        let cursor = &inner.state.cursor;
        let (backlog, unread) = inner.state.backlog(end);
        Figures {
            counters: cursor.counters,
            health: cursor.health,
            held: cursor.held,
            endpoint: inner.state.endpoint,
            in_flight: inner.flights.len(),
            backlog,
            unread,
        }
    }
}
