//! The order by key, where events are settled.

use super::Settlement;
use crate::{
    Input, SendItem,
    batch::{LastAttempt, ReadyEvent},
    outcome::{Outcome, Reason},
    record::HELD_BACK,
    subscription::{
        lookup::Lookup,
        ordering::{Ordering, RecoveryInput},
    },
};
use gridhook_event::{Lane, Seq, Timestamp};

impl Settlement {
    /// Takes an input, if it is for the recovery of the order.
    pub(in crate::subscription) fn recover_with(&mut self, input: Input) -> RecoveryInput {
        match self.order.get_mut() {
            Some(ordering) => ordering.recover_with(input, self.settings.order.as_deref()),
            None => RecoveryInput::Other(input),
        }
    }

    /// Ends the recovery of the order once all is read and written.
    pub(in crate::subscription) fn finish_recovery(&mut self) {
        if let Some(ordering) = self.order.get_mut() {
            ordering.finish_recovery(
                &self.requests,
                self.queues.live_mut(),
                &mut self.pending_write,
            );
        }
    }

    /// Holds back an event that left its lane.
    pub(in crate::subscription) fn set_aside(&mut self, ready: ReadyEvent, now: Timestamp) {
        let (Some(ordering), Some(key)) = (self.order.get_mut(), ready.order) else {
            return;
        };
        let SendItem { lane, seq, .. } = ready.item;
        ordering.hold_back(key, lane, seq, Some(HELD_BACK));
        self.defer_event(
            ready.item,
            HELD_BACK,
            LastAttempt::from_client(Outcome::Aborted, now),
        );
    }

    /// An event is to be tried again. Returns true if it is held back instead.
    pub(in crate::subscription) fn is_behind_in_order(&mut self, (lane, seq): (Lane, Seq)) -> bool {
        let Some(ordering) = self.order.get_mut().filter(|_| !lane.is_job()) else {
            return false;
        };
        // Events behind it in its lane can be set aside now.
        self.log.retry_order_keys();
        ordering.hold_back_retry(lane, seq)
    }

    /// An event of a published lane has ended.
    pub(in crate::subscription) fn end_of_turn(&mut self, (lane, seq): (Lane, Seq)) {
        let Some(ordering) = self.order.get_mut().filter(|_| !lane.is_job()) else {
            return;
        };
        if self.requests.is_detached(seq) {
            return;
        }
        if let Some(next) = ordering.end_event(seq) {
            self.queues.live_mut().release_event(next);
        }
        self.log.retry_order_keys();
    }

    /// An event of a published lane ends with the next write, which gives it up.
    pub(in crate::subscription) fn end_of_turn_with_write(&mut self, (lane, seq): (Lane, Seq)) {
        let ends = |_: &&mut Ordering| !lane.is_job() && !self.requests.is_detached(seq);
        if let Some(ordering) = self.order.get_mut().filter(ends) {
            ordering.end_with_write(seq);
        }
    }

    /// The write in progress is durable.
    pub(in crate::subscription) fn release_durable(&mut self) {
        let Some(ordering) = self.order.get_mut() else {
            return;
        };
        if ordering.frees_keys() {
            self.log.retry_order_keys();
        }
        for next in ordering.finish_write() {
            self.queues.live_mut().release_event(next);
        }
    }

    /// Whether an event that is to be given up blocks its key instead. Events that cannot be read
    /// and events that end actors do not: they cannot be attempted again. Nor does an event that
    /// expired before its first attempt: it waited behind another one.
    pub(in crate::subscription) fn blocks_key(&self, item: &SendItem, reason: Reason) -> bool {
        let may_block = match reason {
            Reason::Missing | Reason::Quarantined => false,
            Reason::TimeToLiveExceeded => item.attempts > 0,
            _ => true,
        };
        let is_enabled = self
            .order
            .get()
            .is_some_and(|ordering| ordering.blocking().is_enabled());
        may_block && is_enabled && self.order.key_of(item.key()).is_some()
    }

    /// Parts of the log are given up by the next write. Where events have an order, later ones wait
    /// for that write: an incarnation that does not find it would send the earlier ones after them.
    pub(in crate::subscription) fn order_behind_write(&mut self) {
        if self.order.is_enabled() {
            self.pending_write.move_events();
        }
    }

    /// Whether pending deliveries are being read from the disk, or will be.
    pub(in crate::subscription) fn is_looking_up(&self) -> bool {
        self.late.lookup().is_open() || self.locks.lookup().is_some_and(Lookup::is_open)
    }
}
