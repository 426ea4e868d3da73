//! The log of the one topic, shared by all subscriptions: eight bytes for an event.
//!
//! Events are alike and match every filter, because the simulation is about when they are delivered and not about what
//! they say. So the time of its append is all that is kept of one.

use bytes::Bytes;

use crate::event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp};

/// The journal reads in slices, too. Several batches, so that a subscription that is behind is not held up.
const SLICE: usize = 256;

/// The log: dense, from [`Seq::FIRST`] on.
#[derive(Debug, Default)]
pub(super) struct SimulatedLog(Vec<Timestamp>);

impl SimulatedLog {
    pub(super) fn append(&mut self, at: Timestamp) {
        self.0.push(at);
    }

    /// The place of the next event.
    pub(super) fn end(&self) -> Seq {
        Seq::FIRST.plus(self.0.len() as u64)
    }

    /// How many events it has.
    pub(super) fn events(&self) -> u64 {
        self.0.len() as u64
    }

    /// The place of the first event that came at `at` or later.
    pub(super) fn at(&self, at: Timestamp) -> Seq {
        Seq::FIRST.plus(self.0.partition_point(|appended| *appended < at) as u64)
    }

    pub(super) fn event(&self, seq: Seq) -> Option<Event> {
        let appended = *self.0.get(usize::try_from(seq.0.checked_sub(Seq::FIRST.0)?).ok()?)?;
        let wire = TextRange { start: 0, len: 2 };
        Some(Event::new(seq, appended, Schema::EventGrid, Bytes::from_static(b"{}"), wire, EventRanges::default()))
    }

    /// A slice from `from` on.
    pub(super) fn read(&self, from: Seq) -> Vec<Event> {
        (from.0..).map_while(|seq| self.event(Seq(seq))).take(SLICE).collect()
    }
}
