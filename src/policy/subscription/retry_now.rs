//! Retries that an operator brings forward: pending deliveries become due now.
//!
//! Their records are read from the disk, because memory has only keys, and not all of
//! them. Until then nothing is written, so that what was read holds, except for decisions that are
//! in memory only.
//!
//! Invariants:
//! - The new due time is durable before the operator gets a response.
//! - A delivery that is on its way, or that memory has decided about, is left as it is.
//! - Neither a hold nor a wait of the endpoint nor the order by key ends: the delivery leaves as
//!   soon as it may. The attempt counts like any other.
//! - A request names a bounded number of deliveries, which are one write.

use std::collections::HashSet;

use super::settlement::Settlement;
use crate::{
    Effect, SendItem,
    record::{BLOCKING, DueKey, PendingDelivery, RetryRequest},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// A request to retry now.
#[derive(Debug, Default)]
pub(super) enum RetryNow {
    #[default]
    None,
    /// The read has not begun.
    Requested(RetryRequest),
    /// The records are being read.
    Reading(RetryRequest),
}

impl RetryNow {
    /// Whether a retry is not carried out yet.
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether records are being read, and nothing is written meanwhile.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self, Self::Reading(_))
    }

    /// Takes a request, unless there is one.
    pub(super) fn add_request(&mut self, request: RetryRequest) {
        if !self.is_pending() {
            *self = Self::Requested(request);
        }
    }

    /// Reads the records once no write and no other lookup of pending records is in progress, so
    /// that every decision is either in the records or in memory.
    pub(super) fn next_effect(&mut self, settlement: &mut Settlement) -> Option<Effect> {
        if settlement.pending_write.is_writing() || settlement.is_looking_up() {
            return None;
        }
        match std::mem::take(self) {
            Self::Requested(request) => {
                let keys = request.keys.clone();
                *self = Self::Reading(request);
                settlement.pending_write.set_frozen(true);
                Some(Effect::ReadPending(keys))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the request whose records were read, unless these belong to another request.
    fn take_request(
        &mut self,
        records: &[(Lane, Seq, Option<PendingDelivery>)],
    ) -> Option<RetryRequest> {
        let Self::Reading(RetryRequest { keys, .. }) = self else {
            return None;
        };
        let read_keys = records.iter().map(|(lane, seq, _)| (*lane, *seq));
        if !read_keys.eq(keys.iter().copied()) {
            return None;
        }
        match std::mem::take(self) {
            Self::Reading(request) => Some(request),
            Self::None | Self::Requested(_) => None,
        }
    }

    /// Takes the records that were read. A probation may have begun meanwhile in which due events
    /// become dead letters: then the retry is refused. Returns the number of deliveries that it
    /// moved; [`None`] if the records belong to another request.
    pub(super) fn on_pending_read(
        &mut self,
        settlement: &mut Settlement,
        records: &[(Lane, Seq, Option<PendingDelivery>)],
        is_refused: bool,
        now: Timestamp,
    ) -> Option<u64> {
        let request = self.take_request(records)?;
        settlement.pending_write.set_frozen(false);
        settlement.pending_write.write_cursor_now();
        if is_refused {
            return Some(0);
        }
        let engaged_keys: HashSet<(Lane, Seq)> = settlement
            .requests
            .iter_items()
            .map(SendItem::key)
            .chain(settlement.queues.live().iter_engaged_keys())
            .collect();
        let mut moved_count = 0;
        for (lane, seq, pending) in records {
            let Some(pending) = pending else { continue };
            let key = DueKey {
                due: pending.due,
                lane: *lane,
                seq: *seq,
            };
            // Neither held back nor blocking, and not attempted since the operator requested it.
            let is_waiting =
                now < pending.due && pending.due < BLOCKING && pending.tried < request.tried_before;
            if is_waiting
                && !lane.is_job()
                && !engaged_keys.contains(&(*lane, *seq))
                && !settlement.queues.live().window().has_left(key)
            {
                moved_count += 1;
                settlement.move_due_time(*lane, *seq, pending.clone(), now);
            }
        }
        Some(moved_count)
    }
}
