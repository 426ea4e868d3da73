//! Successes that arrive after the response timeout. Their events were rescheduled meanwhile, and
//! perhaps sent again.
//!
//! Invariants:
//! - A late success delivers the events that are still pending, wherever they are: on disk, in the
//!   window, being fetched, ready, or in another request in flight, which then no longer carries
//!   them. An event that has ended stays as it ended; the first success counts. With an order by
//!   key, the next event still waits for that request.
//! - A late success is settled completely in one write. If the next incarnation receives it again,
//!   it finds all of it done or nothing.
//! - It changes neither the endpoint's health nor its pace or limit: the request already counted as
//!   a failure. It ends the time without a success, after which a subscription may be held.
//! - A late failure never arrives here.
//!
//! Removing a pending record requires its due time. If it is not in memory, because the window is
//! bounded, the disk is asked. An answer that a decision made stale is asked for again.
//!
//! A response may have thousands of events. All of them are searched for together, so that the cost
//! does not grow with the square of their number.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::{
    Subscription,
    lookup::{Lookup, LookupResult},
};
use crate::{
    OutgoingBatch, SendItem,
    record::{HELD_BACK, LedgerEntry, LedgerEvent, PendingDelivery},
    retry_window::WindowEntry,
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Late successes that are not settled yet, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct LateResponses {
    responses: VecDeque<Arc<OutgoingBatch>>,
    lookup: Lookup,
}

impl LateResponses {
    /// The lookup in progress.
    pub(super) fn lookup(&mut self) -> &mut Lookup {
        &mut self.lookup
    }

    /// Whether any success is not settled.
    pub(super) fn is_any_unsettled(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Whether successes wait for room in a write, and not for the disk.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.lookup.is_open() && !self.responses.is_empty()
    }
}

impl Subscription {
    pub(super) fn on_late(&mut self, request: Arc<OutgoingBatch>, now: Timestamp) {
        if request.endpoint == self.settings.endpoint {
            self.endpoint.record_success();
        }
        if self
            .late
            .responses
            .iter()
            .all(|known| known.id != request.id)
        {
            self.late.responses.push_back(request);
        }
        self.settle_late(now);
    }

    /// Takes the disk's answer about pending deliveries.
    pub(super) fn on_pending_read(
        &mut self,
        found: &[(Lane, Seq, Option<PendingDelivery>)],
        now: Timestamp,
    ) {
        let Some(result) = self.late.lookup.take_result(found) else {
            return;
        };
        if result == LookupResult::Good
            && let Some(request) = self.late.responses.front().cloned()
        {
            let answered_keys: HashSet<(Lane, Seq)> =
                found.iter().map(|(lane, seq, _)| (*lane, *seq)).collect();
            // An event that memory knew may meanwhile be on disk only. All are then asked for
            // again.
            if self
                .find_unknown(&request)
                .iter()
                .all(|key| answered_keys.contains(key))
            {
                let dues = found.iter().filter_map(|(lane, seq, pending)| {
                    Some(((*lane, *seq), pending.as_ref()?.due))
                });
                self.late.responses.pop_front();
                self.settle_late_response(&request, &dues.collect(), now);
            }
        }
        self.settle_late(now);
    }

    /// Settles late successes in order, up to the first that needs a lookup, or room in a write.
    pub(super) fn settle_late(&mut self, now: Timestamp) {
        while !self.late.lookup.is_open()
            && !self.pending_write.is_full()
            && let Some(request) = self.late.responses.front().cloned()
        {
            let unknown_keys = self.find_unknown(&request);
            if !unknown_keys.is_empty() {
                self.late.lookup.set_keys(unknown_keys);
            } else {
                self.late.responses.pop_front();
                self.settle_late_response(&request, &HashMap::new(), now);
            }
        }
    }

    /// The events of a request of which only the disk knows the state.
    fn find_unknown(&mut self, request: &OutgoingBatch) -> Vec<(Lane, Seq)> {
        let keys: HashSet<(Lane, Seq)> = request.items.iter().map(SendItem::key).collect();
        let in_flight = self.requests.find_carriers(&keys);
        let mut known_keys: HashSet<(Lane, Seq)> = in_flight
            .iter()
            .flat_map(|(_, items)| items)
            .map(SendItem::key)
            .collect();
        let Some(first) = request.items.first() else {
            return Vec::new();
        };
        known_keys.extend(
            self.queue_mut(first.lane)
                .iter_engaged_keys()
                .filter(|engaged| keys.contains(engaged)),
        );
        let mut unknown_keys: Vec<(Lane, Seq)> = request.items.iter().map(SendItem::key).collect();
        unknown_keys.retain(|key| !known_keys.contains(key) && self.is_unknown(*key));
        unknown_keys
    }

    /// Whether neither the order nor the window knows the state of this delivery.
    fn is_unknown(&mut self, key: (Lane, Seq)) -> bool {
        let is_held_back = !key.0.is_job()
            && self
                .ordering
                .as_ref()
                .is_some_and(|ordering| ordering.due_of(key.1).is_some());
        !is_held_back && self.queue_mut(key.0).due.find_pending(key) == WindowEntry::Nothing
    }

    fn settle_late_response(
        &mut self,
        request: &OutgoingBatch,
        dues: &HashMap<(Lane, Seq), Timestamp>,
        now: Timestamp,
    ) {
        let mut active = self.take_back(&request.items);
        let mut settled = Vec::new();
        let mut ended = Vec::new();
        for item in &request.items {
            match active
                .remove(&item.key())
                .or_else(|| self.take_back_waiting(*item, dues))
            {
                Some(pending) => {
                    self.mark_delivered(pending);
                    settled.push(item.seq);
                }
                None => ended.push(item.seq),
            }
        }
        self.pending_write.settle_late_response(request.id);
        let Some(first) = request.items.first() else {
            return;
        };
        self.update_counters(first.lane, |counters| counters.late += 1);
        for (seqs, settled) in [(settled, true), (ended, false)] {
            if !seqs.is_empty() {
                let entry = LedgerEntry {
                    at: now,
                    runs: super::settle::runs_of(seqs),
                    what: LedgerEvent::Late { settled },
                };
                self.pending_write
                    .push_entry(first.lane, first.attempts + 1, entry);
            }
        }
    }

    /// Removes those of these deliveries that are in requests, ready or being fetched, so that they
    /// can be settled.
    fn take_back(&mut self, items: &[SendItem]) -> HashMap<(Lane, Seq), SendItem> {
        let Some(first) = items.first() else {
            return HashMap::new();
        };
        let keys: HashSet<(Lane, Seq)> = items.iter().map(SendItem::key).collect();
        let mut active: HashMap<(Lane, Seq), SendItem> = HashMap::new();
        for (id, in_flight) in self.requests.find_carriers(&keys) {
            let events = in_flight
                .iter()
                .map(|item| (item.key(), self.order_key(item.key())))
                .collect();
            self.requests.detach_events(id, &events);
            self.pending_write.detach_events(id, events);
            active.extend(in_flight.into_iter().map(|item| (item.key(), item)));
        }
        active.extend(
            self.queue_mut(first.lane)
                .take_out(items)
                .into_iter()
                .map(|item| (item.key(), item)),
        );
        active
    }

    /// The same for one that waits. The end of an earlier event of its order key may have released
    /// it just now. [`None`] if it has ended.
    fn take_back_waiting(
        &mut self,
        item: SendItem,
        dues: &HashMap<(Lane, Seq), Timestamp>,
    ) -> Option<SendItem> {
        let key = item.key();
        if self.queue_mut(item.lane).take_released(key) {
            return Some(SendItem {
                due: Some(HELD_BACK),
                ..item
            });
        }
        let due = self
            .ordering
            .as_ref()
            .filter(|_| !item.lane.is_job())
            .and_then(|ordering| ordering.due_of(item.seq));
        if due.is_some() {
            return Some(SendItem { due, ..item });
        }
        let due = match self.queue_mut(item.lane).due.find_pending(key) {
            WindowEntry::Pending(due) => Some(due),
            WindowEntry::Left => None,
            WindowEntry::Nothing => dues.get(&key).copied(),
        };
        due.map(|due| SendItem {
            due: Some(due),
            ..item
        })
    }
}
