//! A lane's position in the log: which events are read and wait to be sent, which were sent and
//! have no outcome.
//!
//! The live lane follows the log. A part that it has not read can be cut off as a lane with an end,
//! to be sent next to live events or to be given up. Each event is in one lane, and stays there
//! once it was sent.
//!
//! Invariants: an event below `read` is passed (filtered, settled or pending) unless it is in
//! flight. Ready events are not passed, so dropping them costs only another read. An event is
//! counted when the lane passes it; filtered events are passed together with the ready event behind
//! them.

use std::{collections::VecDeque, ops::Range};

use crate::{
    SendItem,
    batch::{self, BatchLimits, ReadyEvent, Turn},
    filter::key::FilterKey,
    order::OrderSettings,
    outcome::Reason,
    property::PropertyGroup,
    record::{LaneCursor, OPEN_EVENTS_MAX, SeqSet},
};
use gridhook_event::{Event, Lane, Seq};

/// Room for ready events that a lane keeps when it has none: a server with ten thousand
/// subscriptions has as many lanes, most of which read one event at a time.
const READY_KEPT: usize = 1;

/// Reads the events of a lane ahead of the requests, and tracks which of them have no outcome.
#[derive(Debug)]
pub struct LaneReader {
    lane: Lane,
    end: Option<Seq>,
    /// The next event to read from the log.
    head: Seq,
    /// Matching events that are read and not sent.
    ready: VecDeque<ReadyEvent>,
    /// Bytes of the events in `ready`.
    ready_bytes: usize,
    /// For each event in `ready`, the filtered events directly before it.
    skipped: VecDeque<SeqSet>,
    /// Filtered events after the last ready one.
    recent: SeqSet,
    /// Sent for the first time, without an outcome.
    in_flight: SeqSet,
    in_flight_count: usize,
    /// Events with an outcome that the lane has yet to pass: an earlier incarnation sent them, or
    /// they were in flight in the lane from which this one was cut.
    done: SeqSet,
    /// Whether a read of the log is in progress.
    is_reading: bool,
    /// Whether nothing was read since a part was cut off.
    was_cut: bool,
    /// Whether each ready event waits for an earlier one of its order key.
    is_stalled: bool,
}

/// Why events of `lane` are given up without an attempt; [`None`] if they are sent.
pub fn give_up_reason(lane: Lane) -> Option<Reason> {
    match lane {
        Lane::EXPIRY => Some(Reason::TimeToLiveExceeded),
        Lane::OVERFLOW => Some(Reason::BacklogExceeded),
        Lane(_) => None,
    }
}

impl LaneReader {
    /// Recovers a lane from its record.
    pub fn from_cursor(cursor: &LaneCursor) -> Self {
        Self {
            lane: cursor.lane,
            end: cursor.end,
            head: cursor.read,
            ready: VecDeque::new(),
            ready_bytes: 0,
            skipped: VecDeque::new(),
            recent: SeqSet::default(),
            in_flight: cursor.open.clone(),
            in_flight_count: usize::try_from(cursor.open.event_count()).unwrap_or(usize::MAX),
            done: cursor.done.clone(),
            is_reading: false,
            was_cut: false,
            is_stalled: false,
        }
    }

    /// The number that records and other lanes know it by.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// What the cursor stores of it.
    pub fn cursor(&self) -> LaneCursor {
        let read = self.read();
        LaneCursor {
            lane: self.lane,
            read,
            end: self.end,
            open: self.in_flight.clone(),
            done: self.done_from(read),
        }
    }

    /// The events with an outcome from this position on.
    fn done_from(&self, read: Seq) -> SeqSet {
        self.done.between(read, self.done.end_seq().unwrap_or(read))
    }

    /// Everything below is passed unless it is in flight.
    pub fn read(&self) -> Seq {
        match (self.skipped.front(), self.ready.front()) {
            (Some(skipped), Some(ready)) => skipped.first_seq().unwrap_or(ready.item.seq),
            (Some(_) | None, _) => self.recent.first_seq().unwrap_or(self.head),
        }
    }

    /// The lane's end; [`None`] if it follows the log.
    pub fn end(&self) -> Option<Seq> {
        self.end
    }

    /// Whether it has passed everything.
    pub fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.read() >= end) && self.in_flight.is_empty()
    }

    /// How many matching events are read and not sent.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Whether a ready event may be sent, as far as is known.
    pub fn has_sendable(&self) -> bool {
        !self.is_stalled && !self.ready.is_empty()
    }

    /// Whether each ready event waits for an earlier one of its order key.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Notes that an order key may be free again.
    pub fn retry_order_keys(&mut self) {
        self.is_stalled = false;
    }

    /// The bytes of the events that are read and not sent.
    pub fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// The slice to read next, if the lane has more before `end` and no read is in progress. The
    /// second value is the lane's end, if it has one.
    pub fn next_read(&mut self, end: Seq) -> Option<(Seq, Option<Seq>)> {
        if self.is_reading || !self.is_unread(end) {
            return None;
        }
        self.is_reading = true;
        Some((self.head, self.end))
    }

    /// Whether the log has more for this lane before `end`.
    pub fn is_behind(&self, end: Seq) -> bool {
        !self.ready.is_empty() || self.is_unread(end)
    }

    /// Whether the first read since a part was cut off is in progress.
    pub fn is_reading_anew(&self) -> bool {
        self.is_reading && self.was_cut
    }

    /// Whether the log has events before `end` that this lane has not read.
    pub fn is_unread(&self, end: Seq) -> bool {
        self.head < self.end.map_or(end, |lane_end| lane_end.min(end))
    }

    /// Takes the result of a read from `from`: everything up to `upto`, of which `events` match.
    /// `total` counts all. The result of a canceled read is ignored. `grouping` lists the keys that
    /// separate batches, `order` the key that orders events.
    pub fn add_read(
        &mut self,
        Range {
            start: from,
            end: upto,
        }: Range<Seq>,
        total: u64,
        events: Vec<Event>,
        grouping: &[FilterKey],
        order: Option<&OrderSettings>,
    ) {
        if !self.is_reading || from != self.head {
            return;
        }
        self.is_reading = false;
        self.was_cut = false;
        self.is_stalled = false;
        if self.ready.is_empty() {
            // Usually all are sent before more are read, so room for others would never be used.
            self.ready.reserve_exact(events.len());
            self.skipped.reserve_exact(events.len());
        }
        let mut next = from;
        let mut others = total.saturating_sub(events.len() as u64);
        for event in events {
            // Positions may have gaps: the number between two matching events is bounded by their
            // distance and by what is left.
            let skipped_count = event.seq.0.saturating_sub(next.0).min(others);
            others -= skipped_count;
            self.recent.push(next, skipped_count);
            next = event.seq.plus(1);
            if self.in_flight.contains(event.seq) || self.done.contains(event.seq) {
                continue;
            }
            let item = SendItem {
                lane: self.lane,
                seq: event.seq,
                appended: event.appended,
                attempts: 0,
                due: None,
                since: None,
            };
            self.skipped.push_back(std::mem::take(&mut self.recent));
            let group = PropertyGroup::from_event(grouping, &event);
            let order = order.and_then(|order| order.hash(&event));
            self.ready_bytes += event.memory_len();
            self.ready.push_back(ReadyEvent {
                item,
                event,
                last: None,
                group,
                order,
            });
        }
        self.recent.push(next, others);
        self.head = upto;
    }

    /// Takes the result of a read: nothing from `from` to `upto` can be read. Returns the events
    /// that are lost. They count as done, so that a later incarnation which reads them again passes
    /// them.
    pub fn skip_unreadable(&mut self, from: Seq, upto: Seq) -> SeqSet {
        let mut missing = SeqSet::default();
        if !self.is_reading || from != self.head {
            return missing;
        }
        self.is_reading = false;
        self.was_cut = false;
        for seq in (from.0..upto.0).map(Seq) {
            if !self.in_flight.contains(seq) && self.done.insert(seq) {
                missing.push(seq, 1);
            }
        }
        self.head = upto;
        self.done = self.done_from(self.read());
        missing
    }

    /// Filtered events that are passed because no ready event precedes them. The second value is
    /// whether events that have an outcome are passed too: nothing else writes the cursor for them.
    pub fn pass_skipped(&mut self) -> (SeqSet, bool) {
        let skipped_runs = std::mem::take(self.skipped.front_mut().unwrap_or(&mut self.recent));
        let read = self.read();
        let passes_done = self.done.first_seq().is_some_and(|first| first < read);
        if passes_done {
            self.done = self.done_from(read);
        }
        (skipped_runs, passes_done)
    }

    /// Takes the next batch among the events whose turn it is, and the events to set aside. All are
    /// in flight from now on.
    pub fn take_batch(
        &mut self,
        limits: BatchLimits,
        mut turn: impl FnMut(&ReadyEvent) -> Turn,
    ) -> (Vec<ReadyEvent>, Vec<ReadyEvent>) {
        // With one event in a request it is nearly always the first.
        let mut first_turn = None;
        if limits.events_max <= 1
            && let Some(ready) = self
                .ready
                .pop_front_if(|ready| *first_turn.insert(turn(ready)) == Turn::Go)
        {
            self.is_stalled = false;
            self.mark_in_flight(&ready);
            self.release_room();
            return (vec![ready], Vec::new());
        }
        // A turn counts what it decides, so that it is called once for each event.
        let turn = |ready: &ReadyEvent| first_turn.take().unwrap_or_else(|| turn(ready));
        let (batch_indexes, aside_indexes) = batch::pick_in_turn(&self.ready, limits, turn);
        self.is_stalled = batch_indexes.is_empty() && aside_indexes.is_empty();
        let mut indexes: Vec<usize> = batch_indexes
            .iter()
            .chain(&aside_indexes)
            .copied()
            .collect();
        indexes.sort_unstable();
        self.leave_skipped(&indexes);
        let events = batch::remove(&mut self.ready, &indexes);
        for event in &events {
            self.mark_in_flight(event);
        }
        self.release_room();
        let mut batch = Vec::with_capacity(batch_indexes.len());
        let mut aside = Vec::with_capacity(aside_indexes.len());
        for (index, event) in indexes.into_iter().zip(events) {
            if batch_indexes.binary_search(&index).is_ok() {
                batch.push(event);
            } else {
                aside.push(event);
            }
        }
        (batch, aside)
    }

    /// Notes that an event is in flight, and no longer ready.
    fn mark_in_flight(&mut self, ready: &ReadyEvent) {
        self.ready_bytes -= ready.event.memory_len();
        self.insert_in_flight(ready.item.seq);
    }

    fn insert_in_flight(&mut self, seq: Seq) {
        self.in_flight_count += usize::from(self.in_flight.insert(seq));
    }

    /// Releases the memory for ready events if there are none, and it is more than a lane keeps.
    fn release_room(&mut self) {
        if self.ready.is_empty() && self.ready.capacity() > READY_KEPT {
            self.ready = VecDeque::new();
        }
    }

    /// An event taken from behind others leaves its filtered events to the next ready one, so that
    /// events are passed in order.
    fn leave_skipped(&mut self, indexes: &[usize]) {
        let in_order = indexes
            .iter()
            .zip(0..)
            .take_while(|(index, expected)| **index == *expected)
            .count();
        for index in indexes[in_order..].iter().rev() {
            let Some(mut skipped_runs) = self.skipped.remove(*index) else {
                continue;
            };
            let next = self.skipped.get_mut(*index).unwrap_or(&mut self.recent);
            skipped_runs.append_later(std::mem::take(next));
            *next = skipped_runs;
        }
        for _ in in_order..indexes.len() {
            self.skipped.push_front(SeqSet::default());
        }
    }

    /// The filtered events before the events of the batch just taken.
    pub fn drain_skipped(&mut self, batch: usize) -> SeqSet {
        let mut skipped_runs = SeqSet::default();
        for skipped in self.skipped.drain(..batch) {
            skipped_runs.append_later(skipped);
        }
        if self.skipped.is_empty() && self.skipped.capacity() > READY_KEPT {
            self.skipped = VecDeque::new();
        }
        skipped_runs
    }

    /// Cuts off the unread part below `upto` as the lane `lane`. Events in flight stay here.
    #[must_use]
    pub fn split_unread(&mut self, upto: Seq, lane: Lane) -> Self {
        self.drop_ready();
        self.was_cut = true;
        let upto = self.end.map_or(upto, |end| end.min(upto)).max(self.head);
        let later = self.done.split_off(upto);
        let mut settled_seqs = std::mem::replace(&mut self.done, later);
        let head = std::mem::replace(&mut self.head, upto);
        settled_seqs.add_all(self.in_flight.between(head, upto));
        Self {
            lane,
            end: Some(upto),
            head,
            ready: VecDeque::new(),
            ready_bytes: 0,
            skipped: VecDeque::new(),
            recent: SeqSet::default(),
            in_flight: SeqSet::default(),
            in_flight_count: 0,
            done: settled_seqs,
            is_reading: false,
            was_cut: false,
            is_stalled: false,
        }
    }

    /// Ends the lane here. Events in flight still get their outcome.
    pub fn stop(&mut self) {
        self.drop_ready();
        self.end = Some(self.head);
    }

    /// Extends the lane by a part that was cut off directly behind it.
    pub fn extend(&mut self, next: Self) {
        assert_eq!(
            self.end,
            Some(next.head),
            "lane {:?} is extended by what does not follow it",
            self.lane
        );
        self.end = next.end;
        self.done.add_all(next.done);
    }

    /// Notes an event in flight that this lane did not send: an earlier incarnation sent it, or
    /// nothing will. An event with an outcome stays as it is.
    pub fn note_in_flight(&mut self, seq: Seq) {
        self.drop_ready();
        if seq >= self.read() && !self.done.contains(seq) {
            self.insert_in_flight(seq);
        }
    }

    /// Notes the outcome of an event in flight. Returns false if it is not in flight: its outcome
    /// has been counted.
    pub fn mark_ended(&mut self, seq: Seq) -> bool {
        let was_in_flight = self.in_flight.remove(seq);
        self.in_flight_count -= usize::from(was_in_flight);
        if was_in_flight && seq >= self.read() {
            self.done.insert(seq);
        }
        was_in_flight
    }

    /// How many more events it may send for the first time, beside `others` that count like its
    /// own.
    pub fn open_room(&self, others: usize) -> u32 {
        u32::try_from(OPEN_EVENTS_MAX.saturating_sub(self.in_flight_count + others))
            .unwrap_or(u32::MAX)
    }

    /// The number of events with an outcome that it has yet to pass.
    pub fn done_count(&self) -> usize {
        usize::try_from(self.done.event_count()).unwrap_or(usize::MAX)
    }

    /// Events in a request without an outcome.
    pub fn in_flight(&self) -> &SeqSet {
        &self.in_flight
    }

    /// Drops the ready events: they will be read again. A read in progress is canceled.
    pub fn drop_ready(&mut self) {
        self.head = self.read();
        self.ready.clear();
        self.ready_bytes = 0;
        self.skipped.clear();
        self.recent = SeqSet::default();
        self.is_reading = false;
        self.is_stalled = false;
    }
}
