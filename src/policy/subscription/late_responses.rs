//! Successes that arrive after the response timeout. Their events were rescheduled meanwhile, and perhaps sent again.
//!
//! Invariants:
//! - A late success delivers the events that are still pending, wherever they are: on disk, in the window, being
//!   fetched, ready, or in another request in flight, which then no longer carries them. An event that has ended stays
//!   as it ended; the first success counts. With an order by key, the next event still waits for that request.
//! - A late success is settled completely in one write. If the next incarnation receives it again, it finds all of it
//!   done or nothing.
//! - It changes neither the endpoint's health nor its pace or limit: the request already counted as a failure. It ends the time
//!   without a success, after which a subscription may be held.
//! - A late failure never arrives here.
//!
//! Removing a pending record requires its due time. If it is not in memory, because the window is bounded, the disk is
//! asked. An answer that a decision made stale is asked for again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    Subscription,
    lookup::{Lookup, LookupResult},
};
use crate::{
    OutgoingBatch, SendItem,
    record::{LedgerEntry, LedgerEvent, PendingDelivery},
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
}

impl Subscription {
    pub(super) fn on_late(&mut self, request: Arc<OutgoingBatch>, now: Timestamp) {
        if request.endpoint == self.settings.endpoint {
            self.endpoint.succeeded();
        }
        if self.late.responses.iter().all(|known| known.id != request.id) {
            self.late.responses.push_back(request);
        }
        self.settle_late(now);
    }

    /// Takes the disk's answer about pending deliveries.
    pub(super) fn on_pending_read(&mut self, found: &[(Lane, Seq, Option<PendingDelivery>)], now: Timestamp) {
        let Some(result) = self.late.lookup.answer(found) else { return };
        if result == LookupResult::Good
            && let Some(request) = self.late.responses.pop_front()
        {
            let dues =
                found.iter().filter_map(|(lane, seq, pending)| Some(((*lane, *seq), pending.as_ref()?.due))).collect();
            self.settle_late_response(&request, &dues, now);
        }
        self.settle_late(now);
    }

    /// Settles late successes in order, up to the first that needs a lookup.
    fn settle_late(&mut self, now: Timestamp) {
        while let (false, Some(request)) = (self.late.lookup.is_open(), self.late.responses.front()) {
            let keys = request.items.iter().map(SendItem::key);
            let mut unknown: Vec<(Lane, Seq)> = keys.collect();
            unknown.retain(|key| self.is_unknown(*key));
            if !unknown.is_empty() {
                self.late.lookup.put(unknown);
            } else if let Some(request) = self.late.responses.pop_front() {
                self.settle_late_response(&request, &BTreeMap::new(), now);
            }
        }
    }

    /// Whether only the disk knows the state of this delivery.
    fn is_unknown(&mut self, key: (Lane, Seq)) -> bool {
        let is_held_back =
            !key.0.is_job() && self.ordering.as_ref().is_some_and(|ordering| ordering.due_of(key.1).is_some());
        let queue = self.queue(key.0);
        let known = is_held_back
            || queue.engaged().any(|engaged| engaged == key)
            || queue.due.find(key) != WindowEntry::Nothing;
        !known && !self.requests.items().any(|item| item.key() == key)
    }

    fn settle_late_response(
        &mut self,
        request: &OutgoingBatch,
        dues: &BTreeMap<(Lane, Seq), Timestamp>,
        now: Timestamp,
    ) {
        let (mut settled, mut ended) = (Vec::new(), Vec::new());
        for item in &request.items {
            match self.take_back(*item, dues) {
                Some(pending) => {
                    self.deliver(pending);
                    settled.push(item.seq);
                }
                None => ended.push(item.seq),
            }
        }
        self.pending_write.late(request.id);
        let Some(first) = request.items.first() else { return };
        self.count(first.lane, |counters| counters.late += 1);
        for (seqs, settled) in [(settled, true), (ended, false)] {
            if !seqs.is_empty() {
                let entry =
                    LedgerEntry { at: now, runs: super::settle::runs_of(seqs), what: LedgerEvent::Late { settled } };
                self.pending_write.note(first.lane, first.attempts + 1, entry);
            }
        }
    }

    /// Removes a pending delivery from wherever it is, so that it can be settled. [`None`] if it has ended.
    fn take_back(&mut self, item: SendItem, dues: &BTreeMap<(Lane, Seq), Timestamp>) -> Option<SendItem> {
        let key = item.key();
        let order = self.order_key(key);
        if let Some((id, in_flight)) = self.requests.detach_item(key, order) {
            self.pending_write.detach(id, key, order);
            return Some(in_flight);
        }
        let queue = self.queue(item.lane);
        if let Some(found) = queue.take_out(item) {
            return Some(found);
        }
        let due = self.ordering.as_ref().filter(|_| !item.lane.is_job()).and_then(|ordering| ordering.due_of(item.seq));
        if due.is_some() {
            return Some(SendItem { due, ..item });
        }
        let due = match self.queue(item.lane).due.find(key) {
            WindowEntry::Pending(due) => Some(due),
            WindowEntry::Left => None,
            WindowEntry::Nothing => dues.get(&key).copied(),
        };
        due.map(|due| SendItem { due: Some(due), ..item })
    }
}
