//! What breaks on purpose: only where chaos is switched on does anybody call this.

use std::sync::atomic::Ordering;

use actix::Addr;

use super::SharedState;
use crate::subscription::SubscriptionActor;

impl SharedState {
    /// The actor of the life that runs.
    pub fn mailbox(&self) -> Option<Addr<SubscriptionActor>> {
        self.lock().mailbox.clone()
    }

    /// The actor panics the next `times` times that it takes this event in hand.
    pub fn poison(&self, event_id: &str, times: u32) {
        self.lock().poison = Some((event_id.to_owned(), times));
    }

    /// No event is poisoned any more, and no task of a request is to panic.
    pub fn clear_faults(&self) {
        self.lock().poison = None;
        self.doomed.store(0, Ordering::Relaxed);
    }

    /// Kills the task of a request that is on its way. False where there is none.
    pub fn kill_delivery(&self) -> bool {
        let inner = self.lock();
        let task = inner
            .requests
            .values()
            .filter(|in_flight| in_flight.answer.is_none())
            .find_map(|in_flight| in_flight.task.as_ref());
        task.inspect(|task| task.abort()).is_some()
    }

    /// The task of the next request panics.
    pub fn doom_delivery(&self) {
        self.doomed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this task is to panic.
    pub(in crate::subscription) fn is_doomed(&self) -> bool {
        // Read first: a write that changes nothing would still be one.
        self.doomed.load(Ordering::Relaxed) > 0
            && self.doomed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |doomed| doomed.checked_sub(1)).is_ok()
    }
}
