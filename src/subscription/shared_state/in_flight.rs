//! Requests in flight: noted before they are sent, removed once their outcome is durable.
//!
//! Until then, every incarnation receives the result as an input. The first result counts. A late
//! success is an input of its own.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::{InFlightRequest, SharedState, SharedStateMessage};
use gridhook_event::{Incarnation, Lane, RequestId, Seq};
use gridhook_policy::{DetachedEvents, Input, OutgoingBatch, outcome::RequestResult};
use gridhook_telemetry::trace::SpanContext;

impl SharedState {
    /// Notes a request that is about to be sent. False if a later incarnation has begun: then it
    /// must not be sent.
    pub fn begin_request(&self, incarnation: Incarnation, request: Arc<OutgoingBatch>) -> bool {
        let mut inner = self.lock_inner();
        if inner.incarnation != incarnation {
            return false;
        }
        inner.next_request = inner.next_request.max(RequestId(request.id.0 + 1));
        let in_flight = InFlightRequest {
            request: Arc::clone(&request),
            result: None,
            task: None,
            span: None,
        };
        inner.requests.insert(request.id, Box::new(in_flight));
        drop(inner);
        self.meter().record_sent(&request);
        true
    }

    pub fn set_task(&self, id: RequestId, task: AbortHandle) {
        if let Some(in_flight) = self.lock_inner().requests.get_mut(id) {
            in_flight.task = Some(task);
        }
    }

    /// Sets the span of the attempt.
    pub fn set_span(&self, id: RequestId, span: SpanContext) {
        if let Some(in_flight) = self.lock_inner().requests.get_mut(id) {
            in_flight.span = Some(span);
        }
    }

    /// The requests of these ids that have a span.
    pub fn traced_requests(&self, ids: &[RequestId]) -> Vec<(Arc<OutgoingBatch>, SpanContext)> {
        let inner = self.lock_inner();
        let requests = ids.iter().filter_map(|id| inner.requests.get(*id));
        requests
            .filter_map(|in_flight| Some((Arc::clone(&in_flight.request), in_flight.span.clone()?)))
            .collect()
    }

    /// Notes the result of a request. Only the first call for a request counts.
    pub fn record_result(&self, id: RequestId, result: RequestResult) {
        let mut inner = self.lock_inner();
        let Some(in_flight) = inner
            .requests
            .get_mut(id)
            .filter(|in_flight| in_flight.result.is_none())
        else {
            return;
        };
        self.meter().on_response(&in_flight.request, &result);
        in_flight.result = Some(result.clone());
        // Frees the task's memory now, not when the outcome is durable.
        in_flight.task = None;
        inner
            .reports
            .push(SharedStateMessage::Input(Input::Finished {
                request: id,
                result,
            }));
        self.wake_actor(inner);
    }

    /// A request timed out and waits for a late response. [`SharedState::end_late`] reports its
    /// end.
    pub fn mark_late(&self, id: RequestId) {
        let mut inner = self.lock_inner();
        let Some(in_flight) = inner.requests.get_mut(id) else {
            return;
        };
        let request = Arc::clone(&in_flight.request);
        let task = in_flight.task.take();
        let excess_task = inner
            .late_requests
            .get_or_insert_default()
            .add_request(request, task);
        drop(inner);
        if let Some(task) = excess_task {
            task.abort();
        }
    }

    /// Notes that the wait for a late response ended, and whether a success arrived.
    pub fn end_late(&self, id: RequestId, has_succeeded: bool) {
        let mut inner = self.lock_inner();
        let Some(late) = &mut inner.late_requests else {
            return;
        };
        let Some(request) = late.remove_request(id).filter(|_| has_succeeded) else {
            return;
        };
        late.add_success(Arc::clone(&request));
        inner
            .reports
            .push(SharedStateMessage::Input(Input::Late { request }));
        self.wake_actor(inner);
    }

    /// A write of `incarnation` is durable: outcomes of requests, late successes (`late`), and
    /// items that a late success settled and that other requests no longer carry (`detached`).
    pub fn on_durable(
        &self,
        incarnation: Incarnation,
        requests: &[RequestId],
        late: &[RequestId],
        detached: &[(RequestId, DetachedEvents)],
        settled: &[(Lane, Seq)],
    ) {
        let mut inner = self.lock_inner();
        if let Some(suspects) = &mut inner.suspects {
            suspects.settle_suspects(settled);
        }
        for (id, events) in detached {
            if let Some(in_flight) = inner.requests.get_mut(*id) {
                Arc::make_mut(&mut in_flight.request).detach_events(events);
            }
        }
        for id in requests {
            inner.requests.remove(*id);
        }
        if let Some(late_requests) = &mut inner.late_requests {
            for id in late {
                late_requests.remove_success(*id);
            }
        }
        inner.has_progressed |= !requests.is_empty();
        if inner.incarnation == incarnation {
            // An incarnation has one write in the journal at a time.
            inner.is_writing = false;
            self.lock_view().ending.clear();
            inner.is_written = true;
            if inner.awaits_write {
                self.wake_actor(inner);
            }
        }
    }
}
