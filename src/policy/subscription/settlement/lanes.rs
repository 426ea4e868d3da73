//! What leaves the lanes and changes them, with the records of it.

use std::ops::Range;

use super::Settlement;
use crate::{
    batch::{BatchLimits, ReadyEvent, Turn},
    lane::LaneReader,
    outcome::Reason,
    record::LedgerEvent,
    subscription::{
        log::{is_own, is_sent},
        ordering::{LANE_WAITING_MAX, WAITING_BYTES},
    },
};
use gridhook_event::{Event, Lane, Seq, Timestamp};

impl Settlement {
    /// Takes a slice of the log. Events that are given up are not transformed, keep their order and
    /// form no batches.
    pub(in crate::subscription) fn add_read(
        &mut self,
        lane: Lane,
        range: Range<Seq>,
        total: u64,
        events: Vec<Event>,
    ) {
        let events = if is_sent(lane) {
            self.settings.transform_events(events)
        } else {
            events
        };
        let grouping = if is_sent(lane) {
            &self.settings.grouping[..]
        } else {
            &[]
        };
        let order = self.settings.order.as_deref().filter(|_| is_own(lane));
        if let Some(lane) = self.log.lane_mut(lane) {
            lane.add_read(range, total, events, grouping, order);
        }
    }

    /// Takes a batch from a lane, which passes the filtered events before it.
    pub(in crate::subscription) fn take_batch(
        &mut self,
        name: Lane,
        limits: BatchLimits,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        let lane = self.log.lane(name);
        let room = lane.map_or(0, |lane| self.log.open_room(lane));
        let events_max = limits.events_max.min(room);
        let Some(lane) = self.log.lane_mut(name).filter(|_| events_max > 0) else {
            return Vec::new();
        };
        let limits = BatchLimits {
            events_max,
            ..limits
        };
        let (batch, aside) = match self.order.get() {
            Some(ordering) if is_own(name) => {
                let is_crowded =
                    lane.ready_count() >= LANE_WAITING_MAX || lane.ready_bytes() >= WAITING_BYTES;
                lane.take_batch(limits, ordering.turn_for(is_crowded))
            }
            Some(_) | None => lane.take_batch(limits, |_| Turn::Go),
        };
        let skip_count = lane.drain_skipped(batch.len() + aside.len());
        self.count_skipped(name, skip_count, now);
        if let Some(ordering) = self.order.get_mut() {
            for (ready, key) in batch.iter().filter_map(|ready| Some((ready, ready.order?))) {
                ordering.mark_in_flight(ready.item.seq, key);
            }
        }
        for ready in aside {
            self.set_aside(ready, now);
        }
        batch
    }

    /// Gives up ready events of a lane that is not sent, as many as the next write takes.
    pub(in crate::subscription) fn give_up_ready(
        &mut self,
        lane: Lane,
        reason: Reason,
        now: Timestamp,
    ) {
        let ready_count = self.log.lane(lane).map_or(0, LaneReader::ready_count);
        let events_max = self.pending_write.limit_give_ups(ready_count);
        if events_max == 0 {
            return;
        }
        let mut seqs = Vec::with_capacity(events_max);
        let limits = BatchLimits {
            events_max: u32::try_from(events_max).unwrap_or(u32::MAX),
            bytes_preferred: u64::MAX,
            ..self.settings.batch
        };
        for ready in self.take_batch(lane, limits, now) {
            if self.end_undelivered(ready.item, reason, None, now) {
                seqs.push(ready.item.seq);
            }
        }
        let why = LedgerEvent::GivenUp {
            reason,
            dead_lettered: self.is_dead_lettered(reason),
        };
        self.pending_write.give_up(lane, why, seqs);
    }

    /// Passes filtered events before which no event is ready.
    pub(in crate::subscription) fn pass_skipped(&mut self, now: Timestamp) {
        for (lane, skipped, passes_done) in self.log.pass_skipped() {
            self.count_skipped(lane, skipped, now);
            if passes_done {
                self.pending_write.write_cursor_soon();
            }
        }
    }

    /// The only lane that may send if events have an order.
    pub(in crate::subscription) fn only_lane(&self) -> Option<Lane> {
        self.order.get()?;
        self.log.oldest_lane()
    }

    /// Drops ready events while the endpoint is suspended. They are read again when it may be
    /// called.
    pub(in crate::subscription) fn drop_ready(&mut self) {
        self.log.drop_ready(is_own);
        self.queues.live_mut().drop_ready(|_| true);
    }

    /// Drops ready events of jobs while the endpoint is suspended.
    pub(in crate::subscription) fn drop_ready_jobs(&mut self) {
        self.log.drop_ready(Lane::is_job);
        self.queues.drop_ready_jobs(|_| true);
    }

    pub(in crate::subscription) fn release_memory(&mut self) {
        self.log.release_memory();
        self.queues.release_memory();
    }

    /// Cuts off the unread events below `below` as lane `into`. Returns false if not all of them
    /// could be cut off.
    pub(in crate::subscription) fn cut_off(&mut self, below: Seq, into: Lane) -> bool {
        let cut_off = self.log.cut_off(below, into, &mut self.pending_write);
        if cut_off.is_any {
            self.order_behind_write();
        }
        cut_off.is_all
    }

    /// The topic's backlog exceeds its limit: unread events below `below` are dropped.
    pub(in crate::subscription) fn drop_overflow(&mut self, below: Seq) {
        // What cannot be cut off now is cut off later, while the backlog is too large. Where
        // events have an order, first attempts wait until a cut is durable and given up, and for a
        // read. Cuts before that could delay them without end.
        if self.order.is_enabled()
            && (self.pending_write.moves_events() || self.log.iter().any(delays_overflow))
        {
            return;
        }
        self.cut_off(below.min(self.log.end()), Lane::OVERFLOW);
    }

    /// Makes unread events the backlog, if they are so many. With an order by key, new events of a
    /// key follow those of the backlog.
    pub(in crate::subscription) fn split_off_backlog(&mut self) {
        if !self.order.is_enabled() {
            let least = u64::from(self.settings.backlog_min.max(1));
            self.log.split_off_backlog(least, &mut self.pending_write);
        }
    }

    /// Removes lanes that have passed everything. Returns whether there were any.
    pub(in crate::subscription) fn remove_finished_lanes(&mut self) -> bool {
        let lanes = self.log.remove_finished();
        let has_finished = !lanes.is_empty();
        for lane in lanes {
            self.pending_write.close_lane(lane);
            self.pending_write.write_cursor_soon();
        }
        has_finished
    }
}

/// Whether what is cut off of the log waits for this lane.
fn delays_overflow(lane: &LaneReader) -> bool {
    lane.lane() == Lane::OVERFLOW || lane.is_reading_anew()
}
