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
//! bounded, the disk is read. A result that a decision made stale is read again.
//!
//! A request may have thousands of events. All of them are searched for together, so that the cost
//! does not grow with the square of their number.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::{
    lookup::{Lookup, LookupResult},
    settlement::{Settlement, runs_of},
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
    pub(super) fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    pub(super) fn lookup_mut(&mut self) -> &mut Lookup {
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

    /// Adds a success, unless it is known.
    pub(super) fn add_response(&mut self, request: Arc<OutgoingBatch>) {
        if self
            .responses
            .iter()
            .all(|response| response.id != request.id)
        {
            self.responses.push_back(request);
        }
    }
}

/// Takes the pending records that were read.
pub(super) fn on_pending_read(
    settlement: &mut Settlement,
    records: &[(Lane, Seq, Option<PendingDelivery>)],
    now: Timestamp,
) {
    let late = &mut settlement.late;
    let Some(result) = late.lookup.take_result(records) else {
        return;
    };
    if result == LookupResult::Valid
        && let Some(request) = late.responses.front().cloned()
    {
        let read_keys: HashSet<(Lane, Seq)> =
            records.iter().map(|(lane, seq, _)| (*lane, *seq)).collect();
        // An event that was in memory may meanwhile be on disk only. All are then looked up again.
        if find_unknown(settlement, &request)
            .iter()
            .all(|key| read_keys.contains(key))
        {
            let dues = records
                .iter()
                .filter_map(|(lane, seq, pending)| Some(((*lane, *seq), pending.as_ref()?.due)));
            settlement.late.responses.pop_front();
            settle_response(settlement, &request, &dues.collect(), now);
        }
    }
    settle_responses(settlement, now);
}

/// Settles late successes in order, up to the first that needs a lookup, or room in a write.
pub(super) fn settle_responses(settlement: &mut Settlement, now: Timestamp) {
    while !settlement.late.lookup.is_open()
        && !settlement.pending_write.is_full()
        && let Some(request) = settlement.late.responses.front().cloned()
    {
        let unknown_keys = find_unknown(settlement, &request);
        if !unknown_keys.is_empty() {
            settlement.late.lookup.set_keys(unknown_keys);
        } else {
            settlement.late.responses.pop_front();
            settle_response(settlement, &request, &HashMap::new(), now);
        }
    }
}

/// The events of a request of which only the disk knows the state.
fn find_unknown(settlement: &mut Settlement, request: &OutgoingBatch) -> Vec<(Lane, Seq)> {
    let keys: HashSet<(Lane, Seq)> = request.items.iter().map(SendItem::key).collect();
    let in_flight = settlement.requests.find_carriers(&keys);
    let mut known_keys: HashSet<(Lane, Seq)> = in_flight
        .iter()
        .flat_map(|(_, items)| items)
        .map(SendItem::key)
        .collect();
    let Some(first) = request.items.first() else {
        return Vec::new();
    };
    known_keys.extend(
        settlement
            .queues
            .lane_queue_mut(first.lane)
            .iter_engaged_keys()
            .filter(|engaged| keys.contains(engaged)),
    );
    let mut unknown_keys: Vec<(Lane, Seq)> = request.items.iter().map(SendItem::key).collect();
    unknown_keys.retain(|key| !known_keys.contains(key) && is_unknown(settlement, *key));
    unknown_keys
}

/// Whether neither the order nor the window has the state of this delivery.
fn is_unknown(settlement: &mut Settlement, key: (Lane, Seq)) -> bool {
    settlement.order.due_of(key).is_none()
        && settlement.queues.find_pending(key) == WindowEntry::Nothing
}

fn settle_response(
    settlement: &mut Settlement,
    request: &OutgoingBatch,
    dues: &HashMap<(Lane, Seq), Timestamp>,
    now: Timestamp,
) {
    let mut active = reclaim_active(settlement, &request.items);
    let mut settled_seqs = Vec::new();
    let mut ended_seqs = Vec::new();
    for item in &request.items {
        match active
            .remove(&item.key())
            .or_else(|| reclaim_waiting(settlement, *item, dues))
        {
            Some(pending) => {
                settlement.mark_delivered(pending);
                settled_seqs.push(item.seq);
            }
            None => ended_seqs.push(item.seq),
        }
    }
    settlement.pending_write.settle_late_response(request.id);
    let Some(first) = request.items.first() else {
        return;
    };
    settlement.update_counters(first.lane, |counters| counters.late += 1);
    for (seqs, settled) in [(settled_seqs, true), (ended_seqs, false)] {
        if !seqs.is_empty() {
            let entry = LedgerEntry {
                at: now,
                runs: runs_of(seqs),
                what: LedgerEvent::Late { settled },
            };
            settlement
                .pending_write
                .push_entry(first.lane, first.attempts + 1, entry);
        }
    }
}

/// Removes those of these deliveries that are in requests, ready or being fetched, so that they can
/// be settled.
fn reclaim_active(
    settlement: &mut Settlement,
    items: &[SendItem],
) -> HashMap<(Lane, Seq), SendItem> {
    let Some(first) = items.first() else {
        return HashMap::new();
    };
    let keys: HashSet<(Lane, Seq)> = items.iter().map(SendItem::key).collect();
    let mut active: HashMap<(Lane, Seq), SendItem> = HashMap::new();
    for (id, in_flight) in settlement.requests.find_carriers(&keys) {
        let events = in_flight
            .iter()
            .map(|item| (item.key(), settlement.order.key_of(item.key())))
            .collect();
        settlement.requests.detach_events(id, &events);
        settlement.pending_write.detach_events(id, events);
        active.extend(in_flight.into_iter().map(|item| (item.key(), item)));
    }
    let queue = settlement.queues.lane_queue_mut(first.lane);
    active.extend(
        queue
            .take_out(items)
            .into_iter()
            .map(|item| (item.key(), item)),
    );
    active
}

/// Removes a delivery that waits, so that it can be settled. The end of an earlier event of its
/// order key may have released it just now. [`None`] if it has ended.
fn reclaim_waiting(
    settlement: &mut Settlement,
    item: SendItem,
    dues: &HashMap<(Lane, Seq), Timestamp>,
) -> Option<SendItem> {
    let key = item.key();
    let queue = settlement.queues.lane_queue_mut(item.lane);
    if queue.take_released(key) {
        return Some(SendItem {
            due: Some(HELD_BACK),
            ..item
        });
    }
    let due = settlement.order.due_of(key);
    if due.is_some() {
        return Some(SendItem { due, ..item });
    }
    let due = match settlement.queues.find_pending(key) {
        WindowEntry::Pending(due) => Some(due),
        WindowEntry::Left => None,
        WindowEntry::Nothing => dues.get(&key).copied(),
    };
    due.map(|due| SendItem {
        due: Some(due),
        ..item
    })
}
