//! Assigns parts of the log to lanes, and gives up events without an attempt where they expire or
//! overflow.
//!
//! When an endpoint may be called again, expired events are cut off into the expiry lane. When it
//! recovers from a suspension, the events of that time become the backlog lane, and the live lane
//! continues behind them. Events that accumulated before the server started are a backlog as well.
//! While a subscription is held, or no pull client comes, a timer triggers the same check for
//! expired events.
//!
//! Invariants:
//! - Only the journal knows the age of a position of the log. The state machine asks for it
//!   ([`Effect::FindPosition`]) one question at a time. No first attempt leaves before the answer,
//!   so that no expired event is sent.
//! - There are at most four lanes apart from those of jobs, which this module does not touch. An
//!   expiry lane can be extended by what follows it; anything else waits until it is finished. An
//!   unfinished backlog lane is extended at the next recovery if nothing was read from the live
//!   lane since; otherwise the new events stay live.
//! - Lanes do not change while the endpoint is healthy and the server runs, nor after an operator's
//!   hold, because nothing failed and order is kept.
//! - Giving up events needs no request, so neither the concurrency limit nor the pace applies. Each
//!   write gives up a bounded number.

use std::time::Duration;

use super::{Subscription, lane_mut};
use crate::{
    Effect,
    batch::BatchLimits,
    lane::{self, LaneReader},
    record::{Health, LedgerEvent},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Minimum time between checks for expired events while nothing is sent. Each check is a search on
/// disk, and expiry need not be exact to the second.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// The state of the check for expired events.
#[derive(Debug)]
pub(super) struct ExpiryScan {
    /// Whether to ask the journal as soon as the answer is useful.
    wanted: bool,
    /// The question in progress: when events that are not expired were appended, at the earliest.
    asked: Option<Timestamp>,
    /// When to ask next while nothing is sent.
    due: Option<Timestamp>,
    /// Whether more events expired than the expiry lane could take.
    again: bool,
    was_open: bool,
    was_healthy: bool,
}

impl ExpiryScan {
    /// Nothing is known yet.
    pub(super) fn for_health(health: Health) -> Self {
        let was_healthy = matches!(health, Health::Healthy { .. });
        Self {
            wanted: true,
            asked: None,
            due: None,
            again: false,
            was_open: false,
            was_healthy,
        }
    }

    /// Whether the endpoint was healthy and open at the last check, and no other check is wanted.
    pub(super) fn is_steady(&self) -> bool {
        self.was_open && self.was_healthy && !self.wanted
    }

    /// Starts a new check.
    pub(super) fn restart_scan(&mut self) {
        (self.wanted, self.due) = (true, None);
    }
}

impl Subscription {
    /// Notes that the endpoint may be called again, and checks for expired events where that is
    /// useful now.
    pub(super) fn assign_lanes(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        let open = self.endpoint.is_open(now);
        self.expiry_scan.wanted |= open && !self.expiry_scan.was_open;
        self.expiry_scan.was_open = open;
        let healthy = matches!(self.endpoint.health(), Health::Healthy { .. });
        let has_recovered = healthy && !self.expiry_scan.was_healthy;
        self.expiry_scan.was_healthy = healthy;
        if has_recovered {
            self.split_off_backlog();
        }
        if self.endpoint.is_closed() || !(open || self.ages_unsent()) {
            return;
        }
        let behind = self.is_behind();
        if self.expiry_paused {
            // A hold has no end time, so the check is repeated.
            let looks = self
                .expiry_scan
                .due
                .filter(|due| *due > now)
                .unwrap_or_else(|| now.after(LOOK_WAIT));
            self.expiry_scan.due = Some(looks).filter(|_| behind && self.ages_unsent());
            return;
        }
        if !self.ages_unsent() || !behind {
            self.expiry_scan.due = None;
        } else if self.expiry_scan.due.is_none() {
            // Events appended from now on cannot expire before.
            self.expiry_scan.due = Some(now.after(self.settings.time_to_live));
        } else if self.expiry_scan.due.is_some_and(|due| due <= now) {
            self.expiry_scan.restart_scan();
        }
        if !behind {
            self.expiry_scan.wanted = false;
        }
        if self.expiry_scan.wanted && self.expiry_scan.asked.is_none() {
            self.expiry_scan.wanted = false;
            let before = now
                .before(self.settings.time_to_live)
                .after(Duration::from_micros(1));
            // Events older than the subscription count as old as the subscription.
            let before = if before > self.settings.since {
                before
            } else {
                Timestamp::default()
            };
            self.expiry_scan.asked = Some(before);
            effects.push(Effect::FindPosition { before });
        }
    }

    /// Whether events may expire without being noticed, because nothing is sent or no pull client
    /// asks.
    fn ages_unsent(&self) -> bool {
        self.endpoint.hold_reason().is_some() || self.is_pulled()
    }

    /// When to check for expired events if nothing happens before.
    pub(super) fn next_expiry_scan(&self) -> Option<Timestamp> {
        self.expiry_scan.due.filter(|_| {
            self.ages_unsent() && !self.endpoint.is_closed() && self.expiry_scan.asked.is_none()
        })
    }

    /// Whether a question to the journal is in progress. Nothing is read meanwhile. Otherwise
    /// pending deliveries would always be ready before new events, and would be every probe.
    pub(super) fn awaits_position(&self) -> bool {
        self.expiry_scan.asked.is_some()
    }

    /// Whether no first attempt may leave now because lanes are not assigned yet.
    pub(super) fn awaits_lane_assignment(&self) -> bool {
        self.awaits_position() || self.pending_write.moves_events()
    }

    /// Takes the journal's answer: everything below `at` was appended before `before`.
    pub(super) fn on_position(
        &mut self,
        before: Timestamp,
        at: Seq,
        appended: Option<Timestamp>,
        now: Timestamp,
    ) {
        if self.expiry_scan.asked != Some(before) {
            return;
        }
        self.expiry_scan.asked = None;
        self.end = self.end.max(at);
        let next = appended.map(|appended| self.settings.expiry_of(appended));
        self.expiry_scan.due = next.map(|next| next.max(now.after(LOOK_WAIT)));
        self.expiry_scan.again |= !self.cut_off(at, Lane::EXPIRY);
    }

    /// The topic's backlog exceeds its limit: unread events below `below` are dropped.
    pub(super) fn on_overflow(&mut self, below: Seq) {
        // What cannot be cut off now is asked for again while the backlog is too large. Where
        // events have an order, first attempts wait until a cut is durable and given up, and for a
        // read. Cuts before that could delay them without end.
        let delays = |lane: &LaneReader| lane.lane() == Lane::OVERFLOW || lane.is_reading_anew();
        if self.ordering.is_some()
            && (self.pending_write.moves_events() || self.lanes.iter().any(delays))
        {
            return;
        }
        self.cut_off(below.min(self.end), Lane::OVERFLOW);
    }

    /// Cuts off the unread events below `below` as lane `into`. Returns false if not all of them
    /// could be cut off.
    fn cut_off(&mut self, below: Seq, into: Lane) -> bool {
        let mut all = true;
        let mut read_positions: Vec<(Seq, Lane)> = self
            .lanes
            .iter()
            .filter(|lane| is_own(lane.lane()))
            .map(|lane| (lane.read(), lane.lane()))
            .collect();
        read_positions.sort_unstable();
        for (read, from) in read_positions {
            let follows = lane_mut(&mut self.lanes, into).map(|lane| lane.end() == Some(read));
            let Some(lane) = lane_mut(&mut self.lanes, from) else {
                continue;
            };
            if read >= below || lane.end().is_some_and(|end| end <= read) {
                continue;
            }
            if follows == Some(false) {
                all = false;
                continue;
            }
            // What follows in the lane is behind a gap.
            self.pending_write.close_lane(from);
            let cut = lane.split_unread(below, into);
            match lane_mut(&mut self.lanes, into) {
                Some(lane) => lane.extend(cut),
                None => self.lanes.push(cut),
            }
            self.pending_write.write_cursor_soon();
            self.order_behind_write();
        }
        all
    }

    /// Parts of the log are given up by the next write. Where events have an order, later ones wait
    /// for that write: an incarnation that does not find it would send the earlier ones after them.
    pub(super) fn order_behind_write(&mut self) {
        if self.ordering.is_some() {
            self.pending_write.move_events();
        }
    }

    /// The endpoint recovered: the backlog must not precede new events, nor events that arrived
    /// since it became unavailable.
    pub(super) fn split_off_backlog(&mut self) {
        let least = u64::from(self.settings.backlog_min.max(1));
        let follows = lane_mut(&mut self.lanes, Lane::BACKLOG).map(|lane| lane.end());
        // New events of a key follow those of the backlog.
        let Some(live) = lane_mut(&mut self.lanes, Lane::LIVE).filter(|_| self.ordering.is_none())
        else {
            return;
        };
        let end = self.backlog_end.min(self.end);
        if end.0.saturating_sub(live.read().0) < least
            || follows.is_some_and(|end| end != Some(live.read()))
        {
            return;
        }
        let cut = live.split_unread(end, Lane::BACKLOG);
        self.pending_write.close_lane(Lane::LIVE);
        match lane_mut(&mut self.lanes, Lane::BACKLOG) {
            Some(backlog) => backlog.extend(cut),
            None => self.lanes.push(cut),
        }
        self.pending_write.move_events();
    }

    /// Gives up ready events in the lanes that are not sent, and reads on in them.
    pub(super) fn give_up_ranges(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        if self.endpoint.is_closed() {
            return;
        }
        for index in 0..self.lanes.len() {
            let name = self.lanes[index].lane();
            let Some(reason) = lane::gives_up(name) else {
                continue;
            };
            let events_max = self.pending_write.may_give_up(self.lanes[index].ready());
            if events_max > 0 {
                let mut seqs = Vec::with_capacity(events_max);
                let events_max = u32::try_from(events_max).unwrap_or(u32::MAX);
                let limits = BatchLimits {
                    events_max,
                    bytes_preferred: u64::MAX,
                    ..self.settings.batch
                };
                for ready in self.take_batch(index, limits, now) {
                    if self.end_undelivered(ready.item, reason, None, now) {
                        seqs.push(ready.item.seq);
                    }
                }
                let why = LedgerEvent::GivenUp {
                    reason,
                    dead_lettered: self.dead_letters(reason),
                };
                self.pending_write.give_up(name, why, seqs);
            }
            let lane = &mut self.lanes[index];
            if lane.ready() == 0
                && !self.pending_write.is_ahead()
                && let Some((from, end)) = lane.next_read(self.end)
            {
                effects.push(Effect::ReadLog {
                    lane: name,
                    from,
                    end,
                });
            }
        }
    }

    /// Removes lanes that have passed everything. Returns whether there were any.
    pub(super) fn drop_finished(&mut self) -> bool {
        let lanes: Vec<Lane> = self
            .lanes
            .iter()
            .filter(|lane| lane.is_finished())
            .map(LaneReader::lane)
            .collect();
        if lanes.is_empty() {
            return false;
        }
        self.lanes.retain(|lane| !lane.is_finished());
        lanes
            .into_iter()
            .for_each(|lane| self.pending_write.close_lane(lane));
        self.pending_write.write_cursor_soon();
        let expires = self.lanes.iter().any(|lane| lane.lane() == Lane::EXPIRY);
        self.expiry_scan.wanted |= !expires && std::mem::take(&mut self.expiry_scan.again);
        true
    }

    /// Whether any event that is to be sent is unread, apart from jobs.
    pub(super) fn is_behind(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| is_own(lane.lane()) && lane.is_behind(self.end))
    }
}

/// Whether the events of `lane` are sent.
pub(super) fn is_sent(lane: Lane) -> bool {
    lane::gives_up(lane).is_none()
}

/// Whether they are sent, and not for a job.
pub(super) fn is_own(lane: Lane) -> bool {
    is_sent(lane) && !lane.is_job()
}
