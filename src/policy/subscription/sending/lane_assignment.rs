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
//!   ([`Effect::FindPosition`]) one request at a time. No first attempt leaves before the result,
//!   so that no expired event is sent.
//! - Giving up events needs no request, so neither the concurrency limit nor the pace applies. Each
//!   write gives up a bounded number.

use std::time::Duration;

use super::Sending;
use crate::{Effect, record::Health, subscription::settlement::Settlement};
use gridhook_event::{Lane, Seq, Timestamp};

/// Minimum time between checks for expired events while nothing is sent. Each check is a search on
/// disk, and expiry need not be exact to the second.
const LOOK_WAIT: Duration = Duration::from_secs(10);

/// The state of the check for expired events.
#[derive(Debug)]
pub(super) struct ExpiryScan {
    /// Whether to request the position as soon as it is useful.
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
    pub(in crate::subscription) fn for_health(health: Health) -> Self {
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
    pub(in crate::subscription) fn is_steady(&self) -> bool {
        self.was_open && self.was_healthy && !self.wanted
    }

    pub(in crate::subscription) fn restart_scan(&mut self) {
        (self.wanted, self.due) = (true, None);
    }
}

impl Sending {
    /// Whether no lane is about to be assigned.
    pub(in crate::subscription) fn is_steady(&self, settlement: &Settlement) -> bool {
        self.expiry_scan.is_steady() && !self.awaits_lane_assignment(settlement)
    }

    /// Checks for expired events anew.
    pub(in crate::subscription) fn restart_expiry_scan(&mut self) {
        self.expiry_scan.restart_scan();
    }

    /// Notes that the endpoint may be called again, and checks for expired events where that is
    /// useful now.
    pub(in crate::subscription) fn assign_lanes(
        &mut self,
        settlement: &mut Settlement,
        effects: &mut Vec<Effect>,
        now: Timestamp,
    ) {
        let open = self.endpoint.is_open(now);
        self.expiry_scan.wanted |= open && !self.expiry_scan.was_open;
        self.expiry_scan.was_open = open;
        let healthy = matches!(self.endpoint.health(), Health::Healthy { .. });
        let has_recovered = healthy && !self.expiry_scan.was_healthy;
        self.expiry_scan.was_healthy = healthy;
        if has_recovered {
            // The backlog must not precede new events, nor events that arrived since the endpoint
            // became unavailable.
            settlement.split_off_backlog();
        }
        if self.endpoint.is_closed() || !(open || self.ages_unsent(settlement)) {
            return;
        }
        let behind = settlement.log.is_behind();
        if settlement.is_expiry_paused() {
            // A hold has no end time, so the check is repeated.
            let looks = self
                .expiry_scan
                .due
                .filter(|due| *due > now)
                .unwrap_or_else(|| now.after(LOOK_WAIT));
            self.expiry_scan.due = Some(looks).filter(|_| behind && self.ages_unsent(settlement));
            return;
        }
        if !self.ages_unsent(settlement) || !behind {
            self.expiry_scan.due = None;
        } else if self.expiry_scan.due.is_none() {
            // Events appended from now on cannot expire before.
            self.expiry_scan.due = Some(now.after(settlement.settings.time_to_live));
        } else if self.expiry_scan.due.is_some_and(|due| due <= now) {
            self.expiry_scan.restart_scan();
        }
        if !behind {
            self.expiry_scan.wanted = false;
        }
        if self.expiry_scan.wanted && self.expiry_scan.asked.is_none() {
            self.expiry_scan.wanted = false;
            let before = now
                .before(settlement.settings.time_to_live)
                .after(Duration::from_micros(1));
            // Events older than the subscription count as old as the subscription.
            let before = if before > settlement.settings.since {
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
    fn ages_unsent(&self, settlement: &Settlement) -> bool {
        self.endpoint.hold_reason().is_some() || settlement.settings.is_pulled()
    }

    /// When to check for expired events if nothing happens before.
    pub(in crate::subscription) fn next_expiry_scan(
        &self,
        settlement: &Settlement,
    ) -> Option<Timestamp> {
        let is_due =
            self.ages_unsent(settlement) && !self.endpoint.is_closed() && !self.awaits_position();
        self.expiry_scan.due.filter(|_| is_due)
    }

    /// Whether a question to the journal is in progress. Nothing is read meanwhile. Otherwise
    /// pending deliveries would always be ready before new events, and would be every probe.
    pub(in crate::subscription) fn awaits_position(&self) -> bool {
        self.expiry_scan.asked.is_some()
    }

    /// Whether no first attempt may leave now because lanes are not assigned yet.
    pub(in crate::subscription) fn awaits_lane_assignment(&self, settlement: &Settlement) -> bool {
        self.awaits_position() || settlement.pending_write.moves_events()
    }

    /// Takes the position: everything below `at` was appended before `before`.
    pub(in crate::subscription) fn on_position(
        &mut self,
        settlement: &mut Settlement,
        before: Timestamp,
        at: Seq,
        appended: Option<Timestamp>,
        now: Timestamp,
    ) {
        if self.expiry_scan.asked != Some(before) {
            return;
        }
        self.expiry_scan.asked = None;
        settlement.log.extend_to(at);
        let next = appended.map(|appended| settlement.settings.expiry_of(appended));
        self.expiry_scan.due = next.map(|next| next.max(now.after(LOOK_WAIT)));
        self.expiry_scan.again |= !settlement.cut_off(at, Lane::EXPIRY);
    }

    /// Gives up ready events in the lanes that are not sent, and reads on in them.
    pub(in crate::subscription) fn give_up_ranges(
        &self,
        settlement: &mut Settlement,
        effects: &mut Vec<Effect>,
        now: Timestamp,
    ) {
        if self.endpoint.is_closed() {
            return;
        }
        for (lane, reason) in settlement.log.lanes_given_up() {
            settlement.give_up_ready(lane, reason, now);
            let is_empty = settlement
                .log
                .lane(lane)
                .is_some_and(|reader| reader.ready_count() == 0);
            if is_empty && !settlement.pending_write.is_ahead() {
                effects.extend(settlement.log.begin_read(lane));
            }
        }
    }

    /// Removes lanes that have passed everything. Returns whether there were any.
    pub(in crate::subscription) fn drop_finished(&mut self, settlement: &mut Settlement) -> bool {
        let has_finished = settlement.remove_finished_lanes();
        if has_finished {
            let expires = settlement.log.lane(Lane::EXPIRY).is_some();
            self.expiry_scan.wanted |= !expires && std::mem::take(&mut self.expiry_scan.again);
        }
        has_finished
    }
}
