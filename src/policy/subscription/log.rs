//! The reading of the log: the lanes, and how far the log goes.
//!
//! Invariants:
//! - There are at most five lanes apart from those of jobs. An expiry lane can be extended by what
//!   follows it; anything else waits until it is finished. An unfinished backlog lane is extended
//!   at the next recovery if nothing was read from the live lane since; otherwise the new events
//!   stay live.
//! - Lanes do not change while the endpoint is healthy and the server runs, nor after an operator's
//!   hold, because nothing failed and order is kept.

use super::{
    ordering::{LANE_WAITING_MAX, WAITING_BYTES},
    pending_write::PendingWrite,
};
use crate::{
    Effect,
    lane::{self, LaneReader},
    outcome::Reason,
    record::{Cursor, LaneCursor, OPEN_EVENTS_MAX, SeqSet},
};
use gridhook_event::{Lane, Seq};

/// Events with an outcome that a lane has yet to pass. With more, because a damaged log has none
/// that can be read, the lane is not read on before it has passed some.
const DONE_READ_MAX: usize = 3 * OPEN_EVENTS_MAX;

#[derive(Debug)]
pub(super) struct LogReading {
    /// The lane of newly published events comes first.
    lanes: Vec<LaneReader>,
    end: Seq,
    /// The end of the log when the endpoint was last known to be unavailable. Events below it are
    /// the backlog.
    backlog_end: Seq,
}

impl LogReading {
    pub(super) fn from_cursor(cursor: &Cursor, end: Seq) -> Self {
        Self {
            lanes: cursor.lanes.iter().map(LaneReader::from_cursor).collect(),
            end,
            backlog_end: end,
        }
    }

    pub(super) fn to_cursor(&self) -> Vec<LaneCursor> {
        self.lanes.iter().map(LaneReader::cursor).collect()
    }

    pub(super) fn end(&self) -> Seq {
        self.end
    }

    /// Notes that the log goes at least so far.
    pub(super) fn extend_to(&mut self, end: Seq) {
        self.end = self.end.max(end);
    }

    /// Notes that the endpoint is unavailable now.
    pub(super) fn mark_backlog_end(&mut self) {
        self.backlog_end = self.end;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LaneReader> {
        self.lanes.iter()
    }

    pub(super) fn lane(&self, lane: Lane) -> Option<&LaneReader> {
        self.lanes.iter().find(|reader| reader.lane() == lane)
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> Option<&mut LaneReader> {
        self.lanes.iter_mut().find(|reader| reader.lane() == lane)
    }

    /// Adds the lane of a job.
    pub(super) fn add_lane(&mut self, lane: Lane, read: Seq, end: Seq) {
        let cursor = LaneCursor::new(lane, read, Some(end));
        self.lanes.push(LaneReader::from_cursor(&cursor));
    }

    /// Bytes of events that are read and not sent.
    pub(super) fn ready_bytes(&self) -> usize {
        self.lanes.iter().map(LaneReader::ready_bytes).sum()
    }

    /// Whether any event that is to be sent is unread, apart from jobs.
    pub(super) fn is_behind(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| is_own(lane.lane()) && lane.is_behind(self.end))
    }

    /// Whether a lane of these has unsent events.
    pub(super) fn is_any_behind(&self, lanes: &[Lane]) -> bool {
        self.lanes
            .iter()
            .any(|lane| lanes.contains(&lane.lane()) && lane.is_behind(self.end))
    }

    /// Whether events are ready, fewer than `events_max` and `bytes_max`, and a lane is about to
    /// read more. `only` is the only one that may read.
    pub(super) fn is_short_of(
        &self,
        events_max: usize,
        bytes_max: u64,
        only: Option<Lane>,
    ) -> bool {
        let mut ready_count = 0;
        let mut ready_bytes = 0;
        let mut has_more = false;
        for lane in self.lanes.iter().filter(|lane| may_read(lane, only)) {
            ready_count += lane.ready_count();
            ready_bytes += lane.ready_bytes() as u64;
            has_more |= lane.is_unread(self.end) && has_room(lane, events_max);
        }
        has_more && (1..events_max).contains(&ready_count) && ready_bytes < bytes_max
    }

    /// The lane with the oldest unsent events, apart from jobs: the only one that may send if
    /// events have an order.
    pub(super) fn oldest_lane(&self) -> Option<Lane> {
        self.lanes
            .iter()
            .filter(|lane| !lane.lane().is_job() && lane.is_behind(self.end))
            .min_by_key(|lane| lane.read())
            .map(LaneReader::lane)
    }

    /// The first such lane with something to send.
    pub(super) fn find_sendable(&self, is_such: impl Fn(&LaneReader) -> bool) -> Option<Lane> {
        self.lanes
            .iter()
            .find(|lane| lane.has_sendable() && is_such(lane))
            .map(LaneReader::lane)
    }

    /// Whether the lane's next events were published since the endpoint was last known to be
    /// unavailable.
    pub(super) fn is_fresh(&self, lane: &LaneReader) -> bool {
        lane.read() >= self.backlog_end
    }

    /// The end of the backlog: no later event was published while the endpoint was known to be
    /// unavailable.
    pub(super) fn backlog_end(&self) -> Seq {
        self.backlog_end
    }

    /// Whether any event is ready and may be sent for the first time, apart from jobs.
    pub(super) fn is_ready(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| !lane.lane().is_job() && lane.has_sendable() && self.open_room(lane) > 0)
    }

    /// How many more events a lane may send for the first time. Those of the live lane are done in
    /// another lane once a part of the log is cut off, so that events which are done there count,
    /// too.
    pub(super) fn open_room(&self, lane: &LaneReader) -> u32 {
        let others = self
            .lanes
            .iter()
            .filter(|other| lane.lane() == Lane::LIVE && other.lane() != Lane::LIVE);
        lane.open_room(others.map(LaneReader::done_count).sum())
    }

    /// Whether a lane waits because of events that have an outcome and are not passed.
    pub(super) fn is_any_full(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| lane.done_count() >= DONE_READ_MAX || self.open_room(lane) == 0)
    }

    /// An order key may be free again.
    pub(super) fn retry_order_keys(&mut self) {
        self.lanes.iter_mut().for_each(LaneReader::retry_order_keys);
    }

    // --- reading ---

    /// Begins a read of the live lane, if that is the only lane and has nothing ready. Returns its
    /// start.
    pub(super) fn begin_plain_read(&mut self) -> Option<Seq> {
        let [lane] = &mut self.lanes[..] else {
            return None;
        };
        let is_plain = lane.lane() == Lane::LIVE && lane.end().is_none() && lane.ready_count() == 0;
        if !is_plain {
            return None;
        }
        lane.next_read(self.end).map(|(from, _)| from)
    }

    /// Begins the next read of a lane.
    pub(super) fn begin_read(&mut self, lane: Lane) -> Option<Effect> {
        let log_end = self.end;
        let (from, end) = self.lane_mut(lane)?.next_read(log_end)?;
        Some(Effect::ReadLog { lane, from, end })
    }

    /// Begins the next read of each lane, apart from jobs, whose events are sent and that has room
    /// for more, which is for batches of this size. `only` is the only one that may read. A probe
    /// takes the oldest event, so that the backlog stays contiguous.
    pub(super) fn begin_reads(
        &mut self,
        batch: usize,
        only: Option<Lane>,
        probes: bool,
        effects: &mut Vec<Effect>,
    ) {
        let is_old = |lane: &LaneReader| {
            lane.lane() != Lane::LIVE && is_own(lane.lane()) && lane.is_behind(self.end)
        };
        let skips_live = probes && self.lanes.iter().any(is_old);
        for reader in &mut self.lanes {
            let lane = reader.lane();
            let reads = may_read(reader, only)
                && has_room(reader, batch)
                && !(skips_live && lane == Lane::LIVE);
            if reads && let Some((from, end)) = reader.next_read(self.end) {
                effects.push(Effect::ReadLog { lane, from, end });
            }
        }
    }

    /// The lanes whose events are given up, and why. Mostly there are none.
    pub(super) fn lanes_given_up(&self) -> Vec<(Lane, Reason)> {
        let lanes = self.lanes.iter().map(LaneReader::lane);
        lanes
            .filter_map(|lane| Some((lane, lane::give_up_reason(lane)?)))
            .collect()
    }

    /// Drops ready events of such lanes. They are read again.
    pub(super) fn drop_ready(&mut self, is_such: impl Fn(Lane) -> bool) {
        self.lanes
            .iter_mut()
            .filter(|lane| is_such(lane.lane()))
            .for_each(LaneReader::drop_ready);
    }

    /// Drops all ready events. Reads in progress of lanes without ready events continue.
    pub(super) fn release_memory(&mut self) {
        self.lanes
            .iter_mut()
            .filter(|lane| lane.ready_count() > 0)
            .for_each(LaneReader::drop_ready);
    }

    /// Passes filtered events before which no event is ready: for each lane, which these are, and
    /// whether events that have an outcome are passed, too.
    pub(super) fn pass_skipped(&mut self) -> Vec<(Lane, SeqSet, bool)> {
        let passes = self.lanes.iter_mut().map(|lane| {
            let (skipped, passes_done) = lane.pass_skipped();
            (lane.lane(), skipped, passes_done)
        });
        passes
            .filter(|(_, skipped, passes_done)| *passes_done || !skipped.is_empty())
            .collect()
    }

    // --- parts of the log that change their lane ---

    /// Cuts off the unread events below `below` as lane `into`. Returns whether any and whether all
    /// of them were cut off.
    pub(super) fn cut_off(
        &mut self,
        below: Seq,
        into: Lane,
        pending_write: &mut PendingWrite,
    ) -> CutOff {
        let mut cut_off = CutOff {
            is_any: false,
            is_all: true,
        };
        let mut read_positions: Vec<(Seq, Lane)> = self
            .lanes
            .iter()
            .filter(|lane| is_own(lane.lane()))
            .map(|lane| (lane.read(), lane.lane()))
            .collect();
        read_positions.sort_unstable();
        for (read, from) in read_positions {
            let follows = self.lane(into).map(|lane| lane.end() == Some(read));
            let Some(lane) = self.lane_mut(from) else {
                continue;
            };
            if read >= below || lane.end().is_some_and(|end| end <= read) {
                continue;
            }
            if follows == Some(false) {
                cut_off.is_all = false;
                continue;
            }
            // What follows in the lane is behind a gap.
            pending_write.close_lane(from);
            let part = lane.split_unread(below, into);
            self.append_part(part);
            pending_write.write_cursor_soon();
            cut_off.is_any = true;
        }
        cut_off
    }

    /// Divides the unread events of the live lane, if they are so many: those below the backlog's
    /// end go to the backlog lane, the others to the recent lane. Events published from now on wait
    /// for neither.
    pub(super) fn split_off_backlog(&mut self, least: u64, pending_write: &mut PendingWrite) {
        let log_end = self.end;
        let backlog_end = self.backlog_end.min(log_end);
        let follows = self.lane(Lane::BACKLOG).map(LaneReader::end);
        let has_recent = self.lane(Lane::RECENT).is_some();
        let Some(live) = self.lane_mut(Lane::LIVE) else {
            return;
        };
        if log_end.0.saturating_sub(live.read().0) < least
            || follows.is_some_and(|end| end != Some(live.read()))
        {
            return;
        }
        let backlog =
            (live.read() < backlog_end).then(|| live.split_unread(backlog_end, Lane::BACKLOG));
        let recent = (!has_recent && live.is_unread(log_end))
            .then(|| live.split_unread(log_end, Lane::RECENT));
        pending_write.close_lane(Lane::LIVE);
        if let Some(backlog) = backlog {
            self.append_part(backlog);
        }
        if let Some(recent) = recent {
            // Directly behind the live lane, before the backlog.
            self.lanes.insert(1, recent);
        }
        pending_write.move_events();
    }

    /// Appends a part that was cut off to its lane.
    fn append_part(&mut self, part: LaneReader) {
        match self.lane_mut(part.lane()) {
            Some(lane) => lane.extend(part),
            None => self.lanes.push(part),
        }
    }

    /// Removes lanes that have passed everything; returns them.
    pub(super) fn remove_finished(&mut self) -> Vec<Lane> {
        self.lanes
            .extract_if(.., |lane| lane.is_finished())
            .map(|lane| lane.lane())
            .collect()
    }
}

/// What of a part of the log could be cut off.
pub(super) struct CutOff {
    pub(super) is_any: bool,
    pub(super) is_all: bool,
}

/// Whether a lane reads events that are sent, apart from jobs.
fn may_read(lane: &LaneReader, only: Option<Lane>) -> bool {
    is_own(lane.lane()) && only.is_none_or(|only| lane.lane() == only)
}

/// Whether a lane reads on for batches of this size. Events of keys in flight must not hide those
/// of other keys.
fn has_room(lane: &LaneReader, batch: usize) -> bool {
    let is_low = lane.ready_count() < batch
        || lane.is_stalled()
            && lane.ready_count() < LANE_WAITING_MAX
            && lane.ready_bytes() < WAITING_BYTES;
    is_low && lane.done_count() < DONE_READ_MAX
}

/// Whether the events of `lane` are sent.
pub(super) fn is_sent(lane: Lane) -> bool {
    lane::give_up_reason(lane).is_none()
}

/// Whether they are sent, and not for a job.
pub(super) fn is_own(lane: Lane) -> bool {
    is_sent(lane) && !lane.is_job()
}
