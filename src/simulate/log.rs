//! The log of the topic, shared by all subscriptions: eight bytes per event.
//!
//! All events are alike and match every filter, because the simulation is about delivery times.
//! Only the time of the append is stored.

use bytes::Bytes;

use gridhook_event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp};

/// Events per read, like the journal's slices: several batches, so that a subscription can catch
/// up.
const SLICE: usize = 256;

/// The log, without gaps from [`Seq::FIRST`] on.
#[derive(Debug, Default)]
pub(super) struct SimulatedLog(Vec<Timestamp>);

impl SimulatedLog {
    pub(super) fn append_event(&mut self, at: Timestamp) {
        self.0.push(at);
    }

    /// The position of the next event.
    pub(super) fn end_seq(&self) -> Seq {
        Seq::FIRST.plus(self.0.len() as u64)
    }

    pub(super) fn event_count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The position of the first event appended at `at` or later.
    pub(super) fn seq_at(&self, at: Timestamp) -> Seq {
        Seq::FIRST.plus(self.0.partition_point(|appended| *appended < at) as u64)
    }

    pub(super) fn find_event(&self, seq: Seq) -> Option<Event> {
        let append_time = *self
            .0
            .get(usize::try_from(seq.0.checked_sub(Seq::FIRST.0)?).ok()?)?;
        let wire = TextRange { start: 0, len: 2 };
        Some(Event::new(
            seq,
            append_time,
            Schema::EventGrid,
            Bytes::from_static(b"{}"),
            wire,
            EventRanges::default(),
        ))
    }

    /// A slice from `from` on.
    pub(super) fn read(&self, from: Seq) -> Vec<Event> {
        (from.0..)
            .map_while(|seq| self.find_event(Seq(seq)))
            .take(SLICE)
            .collect()
    }
}
