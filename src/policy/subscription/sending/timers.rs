//! When the state machine must act again if no input arrives.
//!
//! Invariant: where only an input can change something (the outcome of a request, a result of the
//! disk), no time is returned, because that input wakes the state machine.

use super::{Sending, blocked::lacks_resources};
use crate::{
    endpoint::Unavailable,
    subscription::{clients::PullClients, settlement::Settlement},
};
use gridhook_event::Timestamp;

impl Sending {
    /// When something can be sent that cannot be sent now. Where only the concurrency limit blocks,
    /// the next outcome wakes the state machine.
    pub(in crate::subscription) fn next_work(
        &self,
        settlement: &Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Option<Timestamp> {
        match self.endpoint.unavailable(now) {
            Some(Unavailable::Closed | Unavailable::Held { .. } | Unavailable::Probing { .. }) => {
                None
            }
            Some(Unavailable::RequestedWait { .. } | Unavailable::Suspended { .. }) => {
                self.next_work_after_wait(settlement, now)
            }
            None => self.next_work_of_open(settlement, clients, now),
        }
    }

    /// When there is something to do while the endpoint is not called.
    fn next_work_after_wait(&self, settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
        let until = self.endpoint.opens_at()?;
        let probe = self
            .next_send_if_open(settlement, now)
            .map(|work| work.max(until));
        let dead_lettering = self
            .next_due_key(settlement, now)
            .filter(|_| self.is_dead_lettering(settlement, now));
        probe
            .into_iter()
            .chain(self.next_connection_attempt(settlement, now))
            .chain(dead_lettering)
            .min()
    }

    /// Ready events wait for the pace or for a request to finish.
    fn next_work_of_open(
        &self,
        settlement: &Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let pace_opening = self.endpoint.pace_opens(
            settlement.requests.count_open(),
            self.next_age(settlement),
            now,
        );
        // Retries leave also while lanes are assigned.
        let is_ready = !settlement.queues.live().ready_events().is_empty()
            || settlement.is_any_ready() && !self.awaits_lane_assignment(settlement);
        let may_leave =
            lacks_resources(settlement).is_none() && !settlement.pending_write.is_ahead();
        pace_opening
            .filter(|_| is_ready && may_leave)
            .into_iter()
            .chain(self.next_due_key(settlement, now))
            .chain(self.next_of_jobs(settlement, clients, now))
            .min()
    }

    /// When there is something to send, if the endpoint may be called.
    fn next_send_if_open(&self, settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
        let live = settlement.queues.live();
        let waits = settlement.log.is_behind() || live.has_immediate_work();
        let work = if waits { Some(now) } else { live.first_due() };
        work.into_iter()
            .chain(self.wait_of_jobs(settlement, now))
            .min()
    }

    /// When to try a bare connection: the endpoint is suspended and there is something to send.
    pub(in crate::subscription) fn next_connection_attempt(
        &self,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due = self
            .endpoint
            .next_connection_attempt()
            .filter(|_| self.endpoint.opens_at().is_some_and(|until| until > now))?;
        self.next_send_if_open(settlement, now)
            .map(|work| work.max(due))
    }

    /// When to fetch the next pending delivery. Deliveries due now are being fetched already, or
    /// wait for room.
    fn next_due_key(&self, settlement: &Settlement, now: Timestamp) -> Option<Timestamp> {
        let is_blocked = settlement.fetches_enough()
            || settlement.pending_write.is_ahead()
            || self.awaits_position();
        let live = settlement.queues.live();
        let expiry = live
            .first_idle_expiry()
            .filter(|_| !settlement.is_expiry_paused());
        live.window()
            .next_wake(now)
            .into_iter()
            .chain(expiry)
            .min()
            .filter(|_| !is_blocked)
    }
}
