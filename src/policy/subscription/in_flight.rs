//! The requests in flight.
//!
//! Invariant: a number is never used twice, and a request ends once.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use crate::{DetachedEvents, OutgoingBatch, SendItem, SubscriptionSettings, order::OrderHash};
use gridhook_event::{Lane, RequestId, RequestMap, Seq, Timestamp};

/// A request, and between which events those that it was sent with are. They are consecutive in
/// most requests, so that few are searched for an event.
#[derive(Debug)]
struct TrackedRequest {
    request: Arc<OutgoingBatch>,
    bounds: Option<EventBounds>,
}

/// The first and the last event of a request.
type EventBounds = ((Lane, Seq), (Lane, Seq));

#[derive(Debug)]
pub(super) struct InFlight {
    requests: RequestMap<TrackedRequest>,
    /// Events that requests carry although they have ended, with the number of these requests.
    /// Mostly there are none.
    #[expect(
        clippy::box_collection,
        reason = "most subscriptions have none, and there are many subscriptions"
    )]
    detached_keys: Option<Box<HashMap<Seq, usize>>>,
    next: RequestId,
    /// The maximum number of requests, for lack of file descriptors.
    max: usize,
    /// Bytes of bodies that may still be sent, for lack of memory.
    bytes_left: usize,
    /// Requests that ended with the inputs being absorbed.
    ended: usize,
    /// Whether the concurrency limit was reached before these inputs.
    was_at_limit: bool,
}

impl InFlight {
    pub(super) fn from_requests(requests: Vec<Arc<OutgoingBatch>>, next: RequestId) -> Self {
        let mut in_flight = Self {
            requests: RequestMap::default(),
            detached_keys: None,
            next,
            max: usize::MAX,
            bytes_left: usize::MAX,
            ended: 0,
            was_at_limit: false,
        };
        for request in requests {
            in_flight.note_detached(&request.detached_keys);
            in_flight.insert(request);
        }
        in_flight
    }

    fn insert(&mut self, request: Arc<OutgoingBatch>) {
        let bounds = bounds_of(&request.items);
        self.requests
            .insert(request.id, TrackedRequest { request, bounds });
    }

    fn note_detached(&mut self, events: &[(Seq, OrderHash)]) {
        for (seq, _) in events {
            *self
                .detached_keys
                .get_or_insert_default()
                .entry(*seq)
                .or_default() += 1;
        }
    }

    /// Limits the number of requests, and what is sent next to this many bytes of bodies. The last
    /// request may exceed it.
    pub(super) fn set_limits(&mut self, max: usize, bytes_max: usize) {
        (self.max, self.bytes_left) = (max, bytes_max);
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.bytes_left > 0
    }

    pub(super) fn take_bytes(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.max
    }

    pub(super) fn count_open(&self) -> usize {
        self.requests.len()
    }

    /// Inputs that arrived together follow.
    pub(super) fn begin_inputs(&mut self, limit: usize) {
        (self.ended, self.was_at_limit) = (0, self.requests.len() >= limit);
    }

    /// How many requests were in flight when this one ended, including it. If the limit was
    /// reached, those that ended with it count as replaced: one by one, each would have been
    /// followed by the next, and by one more for which it raised the limit.
    pub(super) fn count_with_ended(&self) -> usize {
        let replacements = if self.was_at_limit {
            2 * self.ended.saturating_sub(1)
        } else {
            0
        };
        self.requests.len() + 1 + replacements
    }

    /// The number of requests of jobs.
    pub(super) fn count_of_jobs(&self) -> usize {
        let is_job =
            |request: &OutgoingBatch| request.items.first().is_some_and(|item| item.lane.is_job());
        self.iter_requests()
            .filter(|request| is_job(request))
            .count()
    }

    fn iter_requests(&self) -> impl Iterator<Item = &OutgoingBatch> {
        self.requests.values().map(|in_flight| &*in_flight.request)
    }

    /// The items of all requests.
    pub(super) fn iter_items(&self) -> impl Iterator<Item = &SendItem> {
        self.iter_requests().flat_map(|request| &request.items)
    }

    /// The oldest request and its deadline.
    pub(super) fn oldest(&self) -> Option<(RequestId, Timestamp)> {
        self.requests
            .first()
            .map(|in_flight| (in_flight.request.id, in_flight.request.deadline))
    }

    pub(super) fn begin_request(
        &mut self,
        items: Vec<SendItem>,
        settings: &SubscriptionSettings,
        now: Timestamp,
    ) -> Arc<OutgoingBatch> {
        let id = self.next;
        self.next = RequestId(id.0 + 1);
        let request = Arc::new(OutgoingBatch {
            id,
            endpoint: settings.endpoint,
            events: items.len(),
            items,
            detached_keys: Vec::new(),
            sent: now,
            deadline: now.after(settings.request_timeout),
        });
        self.insert(Arc::clone(&request));
        request
    }

    /// Ends a request; [`None`] if it has ended already.
    pub(super) fn end_request(&mut self, id: RequestId) -> Option<Arc<OutgoingBatch>> {
        let TrackedRequest { request, .. } = self.requests.remove(id)?;
        if let Some(detached_keys) = &mut self.detached_keys {
            for (seq, _) in &request.detached_keys {
                if let Entry::Occupied(mut requests) = detached_keys.entry(*seq) {
                    *requests.get_mut() -= 1;
                    if *requests.get() == 0 {
                        requests.remove();
                    }
                }
            }
        }
        self.ended += 1;
        Some(request)
    }

    /// The requests that carry any of these events, with those events.
    pub(super) fn find_carriers(
        &self,
        events: &HashSet<(Lane, Seq)>,
    ) -> Vec<(RequestId, Vec<SendItem>)> {
        let (Some(first), Some(last)) = (events.iter().min(), events.iter().max()) else {
            return Vec::new();
        };
        let mut carriers = Vec::new();
        for TrackedRequest { request, bounds } in self.requests.values() {
            if bounds.is_none_or(|(from, upto)| *last < from || upto < *first) {
                continue;
            }
            let mut items = request.items.clone();
            items.retain(|item| events.contains(&item.key()));
            if !items.is_empty() {
                carriers.push((request.id, items));
            }
        }
        carriers
    }

    /// Removes events that have ended from the request that carries them. Their order keys wait for
    /// the request.
    pub(super) fn detach_events(&mut self, id: RequestId, events: &DetachedEvents) {
        let Some(TrackedRequest { request, .. }) = self.requests.get_mut(id) else {
            return;
        };
        let before = request.detached_keys.len();
        Arc::make_mut(request).detach_events(events);
        let detached_keys = request.detached_keys[before..].to_vec();
        self.note_detached(&detached_keys);
    }

    /// Whether a request carries an event that has ended.
    pub(super) fn is_detached(&self, seq: Seq) -> bool {
        self.detached_keys
            .as_ref()
            .is_some_and(|detached_keys| detached_keys.contains_key(&seq))
    }

    /// Removes an event from the request that carries it.
    pub(super) fn remove_item(&mut self, key: (Lane, Seq)) -> Option<(RequestId, SendItem)> {
        self.requests
            .iter_mut()
            .find_map(|(id, TrackedRequest { request, .. })| {
                let index = request.items.iter().position(|item| item.key() == key)?;
                Some((id, Arc::make_mut(request).items.remove(index)))
            })
    }
}

fn bounds_of(items: &[SendItem]) -> Option<EventBounds> {
    let keys = || items.iter().map(SendItem::key);
    keys().min().zip(keys().max())
}
