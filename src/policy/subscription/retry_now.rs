//! Retries that an operator brings forward: pending deliveries become due now.
//!
//! The disk is asked for their records, because memory has only keys, and not all of them. Until it
//! answers nothing is written. What it says therefore holds, except for decisions that are in
//! memory only.
//!
//! Invariants:
//! - The new due time is durable before the operator is answered.
//! - A delivery that is on its way, or about which memory has decided, is left as it is.
//! - Neither a hold nor a wait of the endpoint nor the order by key ends: the delivery leaves as
//!   soon as it may. The attempt counts like any other.
//! - A request names a bounded number of deliveries, which are one write.

use std::collections::HashSet;

use super::Subscription;
use crate::{
    Effect, SendItem,
    record::{BLOCKING, CommandRefused, DueKey, PendingDelivery, RetryRequest},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// A request to retry now.
#[derive(Debug, Default)]
pub(super) enum RetryNow {
    #[default]
    None,
    /// The disk is not asked yet.
    Wanted(RetryRequest),
    /// The disk is asked.
    Asked(RetryRequest),
}

impl Subscription {
    /// Why no pending delivery can be retried now.
    pub fn refuses_retry(&self, now: Timestamp) -> Option<CommandRefused> {
        if self.is_pulled() {
            return Some(CommandRefused::Pulled);
        }
        if self.is_recovering() {
            // It may hold back what would be brought forward.
            return Some(CommandRefused::Recovering);
        }
        if self.endpoint.hold_reason().is_some() {
            return Some(CommandRefused::Held);
        }
        // What is due then is given up.
        self.is_dead_lettering(now)
            .then_some(CommandRefused::DeadLettering)
    }

    /// Whether a retry is not carried out yet.
    pub(super) fn is_retrying(&self) -> bool {
        !matches!(self.retry, RetryNow::None)
    }

    pub(super) fn on_retry(&mut self, request: RetryRequest, now: Timestamp) {
        if self.refuses_retry(now).is_none() && !self.is_retrying() {
            self.retry = RetryNow::Wanted(request);
        }
    }

    /// Asks the disk once no write and no other question about pending records is in progress.
    /// Memory tells what is decided and not written.
    pub(super) fn ask_for_retry(&mut self) -> Option<Effect> {
        let is_asking = self.late.lookup().is_open()
            || self.leases.lookup().is_some_and(|lookup| lookup.is_open());
        if self.pending_write.is_writing() || is_asking {
            return None;
        }
        match std::mem::take(&mut self.retry) {
            RetryNow::Wanted(request) => {
                let keys = request.keys.clone();
                self.retry = RetryNow::Asked(request);
                self.pending_write.set_frozen(true);
                Some(Effect::ReadPending(keys))
            }
            other => {
                self.retry = other;
                None
            }
        }
    }

    /// Whether the disk is asked, and nothing is written meanwhile.
    pub(super) fn is_retry_asked(&self) -> bool {
        matches!(self.retry, RetryNow::Asked(_))
    }

    /// Takes the disk's answer. Returns false if it belongs to another question.
    pub(super) fn on_retry_read(
        &mut self,
        found: &[(Lane, Seq, Option<PendingDelivery>)],
        now: Timestamp,
    ) -> bool {
        let RetryNow::Asked(RetryRequest { keys, tried_before }) = &self.retry else {
            return false;
        };
        if !found
            .iter()
            .map(|(lane, seq, _)| (*lane, *seq))
            .eq(keys.iter().copied())
        {
            return false;
        }
        let tried_before = *tried_before;
        self.retry = RetryNow::None;
        self.pending_write.set_frozen(false);
        self.pending_write.write_cursor_now();
        let engaged_keys: HashSet<(Lane, Seq)> = self
            .requests
            .iter_items()
            .map(SendItem::key)
            .chain(self.live.iter_engaged_keys())
            .collect();
        // A probation may have begun meanwhile in which due events become dead letters.
        let is_refused = self.refuses_retry(now).is_some();
        for (lane, seq, pending) in found {
            let lane = *lane;
            let seq = *seq;
            let may_move = |pending: &&PendingDelivery| {
                let key = DueKey {
                    due: pending.due,
                    lane,
                    seq,
                };
                // Neither held back nor blocking, and not attempted since the operator asked.
                let waits = !is_refused
                    && now < pending.due
                    && pending.due < BLOCKING
                    && pending.tried < tried_before;
                waits
                    && !lane.is_job()
                    && !engaged_keys.contains(&(lane, seq))
                    && !self.live.due.has_left(key)
            };
            if let Some(pending) = pending.as_ref().filter(may_move) {
                self.commanded += 1;
                self.move_due_time(lane, seq, pending.clone(), now);
            }
        }
        true
    }
}
