//! When the state machine must act again if no input arrives.
//!
//! Invariant: where only an input can change something (the outcome of a request, an answer of the
//! disk), no time is returned, because that input wakes the state machine.

use super::Subscription;
use crate::record::{BLOCKING, Health};
use gridhook_event::Timestamp;

impl Subscription {
    /// When to absorb an [`Input::Tick`](crate::Input::Tick) if nothing else happens before.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_recovering() {
            return None;
        }
        // The results that wait for room in a write are absorbed first.
        let request = self
            .requests
            .oldest()
            .filter(|_| self.postponed.is_empty())
            .map(|(_, deadline)| deadline);
        [
            request,
            self.pending_write.next_wake(),
            self.next_expiry_scan(),
            self.next_work(now),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When something can be sent that cannot be sent now. Where only the concurrency limit blocks,
    /// the next outcome wakes the state machine.
    fn next_work(&self, now: Timestamp) -> Option<Timestamp> {
        if self.endpoint.is_shut() {
            return None;
        }
        if let Health::Probing { .. } = self.endpoint.health() {
            return None;
        }
        match self.endpoint.opens_at().filter(|opens| *opens > now) {
            Some(until) => {
                let probe = self.next_send_if_open(now).map(|work| work.max(until));
                let dead_lettering = self
                    .next_due_key(now)
                    .filter(|_| self.is_dead_lettering(now));
                probe
                    .into_iter()
                    .chain(self.next_connection_attempt(now))
                    .chain(dead_lettering)
                    .min()
            }
            // Ready events wait for the pace or for a request to finish.
            None => {
                let pace_opening = self.endpoint.pace_opens(self.requests.count_open(), now);
                // Retries leave also while lanes are assigned.
                let is_ready = !self.live.ready_events().is_empty()
                    || self.is_ready() && !self.awaits_lane_assignment();
                let paced_send = pace_opening
                    .filter(|_| is_ready && self.may_request() && !self.pending_write.is_ahead());
                paced_send
                    .into_iter()
                    .chain(self.next_due_key(now))
                    .chain(self.next_of_jobs(now))
                    .min()
            }
        }
    }

    /// When there is something to send, if the endpoint may be called.
    fn next_send_if_open(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = self.is_behind() || self.live.has_immediate_work();
        let work = if waits {
            Some(now)
        } else {
            self.live.first_due()
        };
        work.into_iter().chain(self.wait_of_jobs(now)).min()
    }

    /// When to try a bare connection: the endpoint is suspended and there is something to send.
    pub(super) fn next_connection_attempt(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self
            .endpoint
            .next_connection_attempt()
            .filter(|_| self.endpoint.opens_at().is_some_and(|until| until > now))?;
        self.next_send_if_open(now).map(|work| work.max(due))
    }

    /// When to fetch the next pending delivery. Deliveries due now are being fetched already, or
    /// wait for room.
    fn next_due_key(&self, now: Timestamp) -> Option<Timestamp> {
        let is_blocked =
            self.fetches_enough() || self.pending_write.is_ahead() || self.awaits_position();
        let expiry = self
            .live
            .first_idle_expiry()
            .filter(|_| !self.expiry_paused);
        self.live
            .due
            .next_wake(now)
            .into_iter()
            .chain(expiry)
            .min()
            .filter(|_| !is_blocked)
    }

    /// When the first pending delivery is due, wherever it is.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        let in_flight = self.requests.iter_items().filter_map(|item| item.due);
        let blocking = self
            .ordering
            .as_ref()
            .filter(|ordering| ordering.may_hold_back())
            .map(|_| BLOCKING);
        let pending = self.live.first_due().into_iter().chain(
            self.replays
                .as_ref()
                .and_then(|replays| replays.first_due()),
        );
        pending.chain(in_flight).chain(blocking).min()
    }
}
