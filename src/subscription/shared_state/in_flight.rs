//! Requests: noted before they leave, struck off when what came of them is durable.
//!
//! An answer is for the actor's next input and for every life after it, until it is durable. The first one counts; a late
//! success is a word of its own.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::{InFlightRequest, SharedState, SharedStateMessage};
use crate::{
    event::{Incarnation, Lane, RequestId, Seq},
    policy::{Input, OutgoingBatch, outcome::RequestResult},
    telemetry::trace::SpanContext,
};

impl SharedState {
    /// A request is about to leave. False where a later life has begun: then it must not.
    pub(in crate::subscription) fn depart(&self, life: Incarnation, request: Arc<OutgoingBatch>) -> bool {
        let mut inner = self.lock();
        if inner.incarnation != life {
            return false;
        }
        inner.next_request = inner.next_request.max(RequestId(request.id.0 + 1));
        let in_flight = InFlightRequest { request: Arc::clone(&request), answer: None, task: None, place: None };
        inner.requests.insert(request.id, Box::new(in_flight));
        drop(inner);
        self.meter().sent(&request);
        true
    }

    /// The task that makes the request.
    pub(in crate::subscription) fn carries(&self, id: RequestId, task: AbortHandle) {
        if let Some(in_flight) = self.lock().requests.get_mut(&id) {
            in_flight.task = Some(task);
        }
    }

    /// The request's place in a trace, where that is recorded.
    pub(in crate::subscription) fn traces(&self, id: RequestId, place: SpanContext) {
        if let Some(in_flight) = self.lock().requests.get_mut(&id) {
            in_flight.place = Some(place);
        }
    }

    /// Those of these requests that have a place in a trace.
    pub(in crate::subscription) fn traced(&self, ids: &[RequestId]) -> Vec<(Arc<OutgoingBatch>, SpanContext)> {
        let inner = self.lock();
        let found = ids.iter().filter_map(|id| inner.requests.get(id));
        found.filter_map(|in_flight| Some((Arc::clone(&in_flight.request), in_flight.place.clone()?))).collect()
    }

    /// A request came back, or is lost. The first word counts.
    pub(in crate::subscription) fn finished(&self, id: RequestId, answer: RequestResult) {
        let mut inner = self.lock();
        let Some(in_flight) = inner.requests.get_mut(&id).filter(|in_flight| in_flight.answer.is_none()) else {
            return;
        };
        self.meter().on_response(&in_flight.request, &answer);
        in_flight.answer = Some(answer.clone());
        // Its memory goes where it was taken, and not when the outcome is durable.
        in_flight.task = None;
        inner.reports.push(SharedStateMessage::Input(Input::Finished { request: id, answer }));
        inner.wake();
    }

    /// The wait of a request is over, and the request goes on: what comes of it is told by [`SharedState::lingered`].
    pub(in crate::subscription) fn mark_late(&self, id: RequestId) {
        let mut inner = self.lock();
        let Some(in_flight) = inner.requests.get_mut(&id) else { return };
        let (request, task) = (Arc::clone(&in_flight.request), in_flight.task.take());
        let cut = inner.linger.begin(request, task);
        drop(inner);
        if let Some(cut) = cut {
            cut.abort();
        }
    }

    /// A request lingers no more, and a success came for it or did not.
    pub(in crate::subscription) fn lingered(&self, id: RequestId, taken: bool) {
        let mut inner = self.lock();
        let Some(request) = inner.linger.end(id).filter(|_| taken) else { return };
        inner.linger.late_success(Arc::clone(&request));
        inner.reports.push(SharedStateMessage::Input(Input::Late { request }));
        inner.wake();
    }

    /// Durable, written by the life `life`: the outcomes of these flights, these late answers, and that flights carry no
    /// longer what a late answer has settled.
    pub(in crate::subscription) fn landed(
        &self,
        life: Incarnation,
        requests: &[RequestId],
        late: &[RequestId],
        struck: &[(RequestId, (Lane, Seq))],
        settled: &[(Lane, Seq)],
    ) {
        let mut inner = self.lock();
        for of in settled {
            inner.suspects.remove(of);
        }
        for (id, key) in struck {
            if let Some(in_flight) = inner.requests.get_mut(id) {
                Arc::make_mut(&mut in_flight.request).items.retain(|item| item.key() != *key);
            }
        }
        for id in requests {
            inner.requests.remove(id);
        }
        for id in late {
            inner.linger.settled(*id);
        }
        inner.achieved |= !requests.is_empty();
        if inner.incarnation == life {
            // A life has one write on its way at a time.
            inner.writing = false;
            inner.state.ending.clear();
            inner.reports.push(SharedStateMessage::Durable);
            inner.wake();
        }
    }
}
