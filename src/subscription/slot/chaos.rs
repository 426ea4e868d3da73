//! What breaks on purpose: only where chaos is switched on does anybody call this.

use actix::Addr;

use super::Slot;
use crate::subscription::SubscriptionActor;

impl Slot {
    /// The actor of the life that runs.
    pub fn mailbox(&self) -> Option<Addr<SubscriptionActor>> {
        self.lock().mailbox.clone()
    }

    /// The actor panics the next `times` times that it takes this event in hand.
    pub fn poison(&self, event_id: &str, times: u32) {
        self.lock().poison = Some((event_id.to_owned(), times));
    }

    /// Kills the task of a request that is on its way. False where there is none.
    pub fn kill_delivery(&self) -> bool {
        let inner = self.lock();
        let task = inner.flights.values().filter(|aloft| aloft.answer.is_none()).find_map(|aloft| aloft.task.as_ref());
        task.inspect(|task| task.abort()).is_some()
    }

    /// The task of the next request panics.
    pub fn doom_delivery(&self) {
        self.lock().doomed_deliveries += 1;
    }

    /// Whether this task is to panic.
    pub(in crate::subscription) fn is_doomed(&self) -> bool {
        let mut inner = self.lock();
        let doomed = inner.doomed_deliveries > 0;
        inner.doomed_deliveries = inner.doomed_deliveries.saturating_sub(1);
        doomed
    }
}
