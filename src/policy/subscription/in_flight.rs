//! The requests in flight.
//!
//! Invariant: a number is never used twice, and a request ends once.

use std::sync::Arc;

use crate::{OutgoingBatch, SendItem, SubscriptionSettings, order::OrderHash};
use gridhook_event::{Lane, RequestId, RequestMap, Seq, Timestamp};

/// The requests.
#[derive(Debug)]
pub(super) struct InFlight {
    requests: RequestMap<Arc<OutgoingBatch>>,
    next: RequestId,
    /// The maximum number of requests, for lack of file descriptors.
    max: usize,
    /// Requests that ended with the inputs being absorbed.
    ended: usize,
    /// Whether the concurrency limit was reached before these inputs.
    was_at_limit: bool,
}

impl InFlight {
    pub(super) fn recover(requests: Vec<Arc<OutgoingBatch>>, next: RequestId) -> Self {
        let mut known = RequestMap::default();
        requests.into_iter().for_each(|request| known.insert(request.id, request));
        Self { requests: known, next, max: usize::MAX, ended: 0, was_at_limit: false }
    }

    pub(super) fn limit(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.max
    }

    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    /// Inputs that arrived together follow.
    pub(super) fn begin_inputs(&mut self, limit: usize) {
        (self.ended, self.was_at_limit) = (0, self.requests.len() >= limit);
    }

    /// How many requests were in flight when this one ended, including it. If the limit was reached, those that ended with
    /// it count as replaced: one by one, each would have been followed by the next, and by one more for which it raised the
    /// limit.
    pub(super) fn count_with_ended(&self) -> usize {
        let replaced = if self.was_at_limit { 2 * self.ended.saturating_sub(1) } else { 0 };
        self.requests.len() + 1 + replaced
    }

    /// The number of requests of jobs.
    pub(super) fn count_of_jobs(&self) -> usize {
        let is_job = |request: &OutgoingBatch| request.items.first().is_some_and(|item| item.lane.is_job());
        self.requests.values().filter(|request| is_job(request)).count()
    }

    /// The items of all requests.
    pub(super) fn items(&self) -> impl Iterator<Item = &SendItem> {
        self.requests.values().flat_map(|request| &request.items)
    }

    /// The oldest request and its deadline.
    pub(super) fn oldest(&self) -> Option<(RequestId, Timestamp)> {
        self.requests.first().map(|request| (request.id, request.deadline))
    }

    /// Starts a request.
    pub(super) fn begin(
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
            lingering: Vec::new(),
            sent: now,
            deadline: now.after(settings.request_timeout),
        });
        self.requests.insert(id, Arc::clone(&request));
        request
    }

    /// Ends a request; [`None`] if it has ended already.
    pub(super) fn end(&mut self, id: RequestId) -> Option<Arc<OutgoingBatch>> {
        let ended = self.requests.remove(id)?;
        self.ended += 1;
        Some(ended)
    }

    /// Removes an event that has ended from the request that carries it. Its order key waits for the request.
    pub(super) fn detach_item(&mut self, key: (Lane, Seq), order: Option<OrderHash>) -> Option<(RequestId, SendItem)> {
        let (id, request) =
            self.requests.iter_mut().find(|(_, request)| request.items.iter().any(|item| item.key() == key))?;
        Some((id, Arc::make_mut(request).detach(key, order)?))
    }

    /// Whether a request carries an event that has ended.
    pub(super) fn lingers(&self, seq: Seq) -> bool {
        self.requests.values().flat_map(|request| &request.lingering).any(|(lingering, _)| *lingering == seq)
    }

    /// Removes an event from the request that carries it.
    pub(super) fn remove_item(&mut self, key: (Lane, Seq)) -> Option<(RequestId, SendItem)> {
        self.requests.iter_mut().find_map(|(id, request)| {
            let index = request.items.iter().position(|item| item.key() == key)?;
            Some((id, Arc::make_mut(request).items.remove(index)))
        })
    }
}
