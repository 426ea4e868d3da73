//! What leaves a lane or the log without a request: batches on their way to a request, filtered
//! events, and events that expired or cannot be transformed.

use std::{collections::HashSet, sync::Arc};

use super::Settlement;
use crate::{
    OutgoingBatch, PullSettings, SendItem,
    batch::ReadyEvent,
    endpoint::EventAge,
    order::OrderHash,
    outcome::Reason,
    record::{SeqSet, is_exempt},
    subscription::log::is_own,
};
use gridhook_event::{Lane, Timestamp, Transformation};

impl Settlement {
    /// Begins a request with these events, whose bodies have this size.
    pub(in crate::subscription) fn begin_request(
        &mut self,
        items: Vec<SendItem>,
        bytes: usize,
        now: Timestamp,
    ) -> Arc<OutgoingBatch> {
        self.requests.take_bytes(bytes);
        self.requests.begin_request(items, &self.settings, now)
    }

    /// How many more events may be received for the first time.
    pub(in crate::subscription) fn free_leases(&self) -> u32 {
        let Some(PullSettings { leases_max, .. }) = self.settings.pull else {
            return u32::MAX;
        };
        let held_back = self
            .order
            .get()
            .map_or(0, |ordering| ordering.count_waiting() as u64);
        let lease_count = self.totals.pending().saturating_sub(held_back);
        u32::try_from(u64::from(leases_max).saturating_sub(lease_count)).unwrap_or(u32::MAX)
    }

    /// Whether any event is ready, apart from jobs.
    pub(in crate::subscription) fn is_any_ready(&self) -> bool {
        !self.queues.live().ready_events().is_empty() || self.log.is_ready()
    }

    /// Whether these events came while the endpoint was unavailable.
    pub(in crate::subscription) fn age_of(&self, batch: &[ReadyEvent]) -> EventAge {
        let is_fresh = |ready: &ReadyEvent| {
            ready.item.due.is_none()
                && is_own(ready.item.lane)
                && ready.item.seq >= self.log.backlog_end()
        };
        if batch.first().is_some_and(is_fresh) {
            EventAge::Fresh
        } else {
            EventAge::Old
        }
    }

    /// Whether enough is fetched or ready that no more is fetched now.
    pub(in crate::subscription) fn fetches_enough(&self) -> bool {
        self.queues.live().is_fetching()
            || self.queues.live().ready_events().len() >= self.settings.batch.events_max as usize
    }

    pub(super) fn count_skipped(&mut self, lane: Lane, skipped: SeqSet, now: Timestamp) {
        if skipped.is_empty() {
            return;
        }
        let events = skipped.event_count();
        self.update_counters(lane, |counters| {
            (counters.passed, counters.filtered) =
                (counters.passed + events, counters.filtered + events)
        });
        self.pending_write
            .skip_filtered(lane, self.settings.version, &skipped, now);
    }

    pub(in crate::subscription) fn is_expired(&self, ready: &ReadyEvent, now: Timestamp) -> bool {
        let SendItem {
            lane,
            appended,
            since,
            due,
            ..
        } = ready.item;
        match (since, lane.is_job()) {
            _ if self.is_expiry_paused || is_exempt(due) => false,
            (Some(since), true) => since.after(self.settings.time_to_live) <= now,
            // Its time to live starts when a job sends it.
            (None, true) => false,
            (_, false) => self.settings.expiry_of(appended) <= now,
        }
    }

    /// Gives up the events of a batch that expired or cannot be transformed; returns the others.
    /// The later ones of the same order key are held back: the key may be blocked, and no write has
    /// the end of the event.
    pub(in crate::subscription) fn prepare_batch(
        &mut self,
        batch: Vec<ReadyEvent>,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        if self.settings.transform.is_none()
            && !batch.iter().any(|ready| self.is_expired(ready, now))
        {
            return batch;
        }
        let mut given_up: HashSet<OrderHash> = HashSet::new();
        let mut items = Vec::with_capacity(batch.len());
        for ready in batch {
            if self.is_expired(&ready, now) {
                given_up.extend(ready.order);
                self.give_up(ready.item, Reason::TimeToLiveExceeded, ready.last, now);
            } else if ready.order.is_some_and(|key| given_up.contains(&key)) {
                self.set_aside(ready, now);
            } else if let Some(Transformation::Failed(reason)) = ready.event.transformation() {
                given_up.extend(ready.order);
                self.fail_transformation(ready.item, reason.clone(), now);
            } else {
                items.push(ready);
            }
        }
        items
    }
}
