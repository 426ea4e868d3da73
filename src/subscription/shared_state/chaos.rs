//! Fault injection. Only called if chaos is switched on.

use std::sync::atomic::Ordering;

use actix::Addr;

use super::SharedState;
use crate::SubscriptionActor;

impl SharedState {
    /// The actor of the current incarnation.
    pub fn actor_address(&self) -> Option<Addr<SubscriptionActor>> {
        self.lock_inner().mailbox.clone()
    }

    /// Makes the actor panic the next `times` times that this event is the current event.
    pub fn poison_event(&self, event_id: &str, times: u32) {
        self.lock_inner().suspects.get_or_insert_default().poison =
            Some(Box::new((event_id.to_owned(), times)));
        self.has_poison.store(true, Ordering::Release);
    }

    /// Removes all faults of this subscription.
    pub fn clear_faults(&self) {
        self.has_poison.store(false, Ordering::Release);
        if let Some(suspects) = &mut self.lock_inner().suspects {
            suspects.poison = None;
        }
        self.doomed.store(0, Ordering::Relaxed);
    }

    /// Aborts the task of a request in flight. False if there is none.
    pub fn kill_delivery(&self) -> bool {
        let inner = self.lock_inner();
        let task = inner
            .requests
            .values()
            .filter(|in_flight| in_flight.result.is_none())
            .find_map(|in_flight| in_flight.task.as_ref());
        task.inspect(|task| task.abort()).is_some()
    }

    /// Makes the task of the next request panic.
    pub fn doom_delivery(&self) {
        self.doomed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this task must panic. Each call that returns true uses up one ordered panic.
    pub fn is_doomed(&self) -> bool {
        // Read first, so that the usual case writes nothing.
        self.doomed.load(Ordering::Relaxed) > 0
            && self
                .doomed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |doomed| {
                    doomed.checked_sub(1)
                })
                .is_ok()
    }
}
