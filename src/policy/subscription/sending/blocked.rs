//! Why nothing leaves now.

use super::Sending;
use crate::{
    endpoint::Unavailable,
    subscription::{clients::PullClients, settlement::Settlement},
};
use gridhook_event::Timestamp;

/// Why no request leaves, and no client of a pulled subscription receives events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The endpoint may not be called.
    Endpoint(Unavailable),
    /// The pace or the limit of requests at once is reached.
    Limit,
    /// No file descriptor is free.
    Descriptors,
    /// No memory for bodies is free.
    Memory,
    /// Where events have an order, a late success is settled first: an earlier incarnation may have
    /// sent later events of a key after it.
    LateSuccess,
    /// No client of a pulled subscription waits.
    NoReceiver,
    /// The log is read before the first waiting client is served.
    Read,
    /// So much is unwritten that a write is awaited.
    Write,
    /// The order of the events is being recovered.
    Recovery,
}

impl Sending {
    /// Why nothing leaves now; [`None`] if what is ready may leave.
    pub(in crate::subscription) fn blocked(
        &self,
        settlement: &Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Option<Blocked> {
        let reason = if settlement.settings.is_pulled() {
            self.blocks_clients(settlement, clients)
        } else {
            self.blocks_requests(settlement, now)
        };
        let is_ahead = settlement.pending_write.is_ahead();
        reason
            .or_else(|| {
                settlement
                    .order
                    .is_recovering()
                    .then_some(Blocked::Recovery)
            })
            .or_else(|| is_ahead.then_some(Blocked::Write))
    }

    fn blocks_clients(&self, settlement: &Settlement, clients: &PullClients) -> Option<Blocked> {
        let batch_max = self.batch_max(settlement, clients);
        if let Some(shut) = self.endpoint.shut() {
            Some(Blocked::Endpoint(shut))
        } else if !clients.is_wanted() {
            Some(Blocked::NoReceiver)
        } else if clients.reads_log_first(settlement, batch_max) {
            Some(Blocked::Read)
        } else {
            None
        }
    }

    fn blocks_requests(&self, settlement: &Settlement, now: Timestamp) -> Option<Blocked> {
        let requests = &settlement.requests;
        if let Some(unavailable) = self.endpoint.unavailable(now) {
            Some(Blocked::Endpoint(unavailable))
        } else if self
            .endpoint
            .free_requests(requests.count_open(), self.next_age(settlement), now)
            == 0
        {
            Some(Blocked::Limit)
        } else {
            lacks_resources(settlement)
        }
    }
}

/// What is missing for another request, whose release wakes the subscription; a pull client needs
/// nothing.
pub(super) fn lacks_resources(settlement: &Settlement) -> Option<Blocked> {
    let requests = &settlement.requests;
    if settlement.settings.is_pulled() {
        None
    } else if !requests.has_room() {
        Some(Blocked::Descriptors)
    } else if !requests.has_bytes() {
        Some(Blocked::Memory)
    } else if settlement.order.is_enabled() && settlement.late.is_any_unsettled() {
        Some(Blocked::LateSuccess)
    } else {
        None
    }
}
