//! Requests: noted before they leave, struck off when what came of them is durable.
//!
//! An answer is for the actor's next input and for every life after it, until it is durable. The first one counts; a late
//! success is a word of its own.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::{Aloft, Report, Slot};
use crate::{
    event::{FlightId, Lane, Life, Seq},
    policy::{Flight, Input, outcome::Answer},
    telemetry::trace::Context,
};

impl Slot {
    /// A request is about to leave. False where a later life has begun: then it must not.
    pub(in crate::subscription) fn depart(&self, life: Life, flight: Arc<Flight>) -> bool {
        let mut inner = self.lock();
        if inner.life != life {
            return false;
        }
        inner.next_flight = inner.next_flight.max(FlightId(flight.id.0 + 1));
        let aloft = Aloft { flight: Arc::clone(&flight), answer: None, task: None, place: None };
        inner.flights.insert(flight.id, Box::new(aloft));
        drop(inner);
        self.meter().sent(&flight);
        true
    }

    /// The task that makes the request.
    pub(in crate::subscription) fn carries(&self, id: FlightId, task: AbortHandle) {
        if let Some(aloft) = self.lock().flights.get_mut(&id) {
            aloft.task = Some(task);
        }
    }

    /// The request's place in a trace, where that is recorded.
    pub(in crate::subscription) fn traces(&self, id: FlightId, place: Context) {
        if let Some(aloft) = self.lock().flights.get_mut(&id) {
            aloft.place = Some(place);
        }
    }

    /// Those of these requests that have a place in a trace.
    pub(in crate::subscription) fn traced(&self, ids: &[FlightId]) -> Vec<(Arc<Flight>, Context)> {
        let inner = self.lock();
        let found = ids.iter().filter_map(|id| inner.flights.get(id));
        found.filter_map(|aloft| Some((Arc::clone(&aloft.flight), aloft.place.clone()?))).collect()
    }

    /// A request came back, or is lost. The first word counts.
    pub(in crate::subscription) fn finished(&self, id: FlightId, answer: Answer) {
        let mut inner = self.lock();
        let Some(aloft) = inner.flights.get_mut(&id).filter(|aloft| aloft.answer.is_none()) else { return };
        self.meter().answered(&aloft.flight, &answer);
        aloft.answer = Some(answer.clone());
        // Its memory goes where it was taken, and not when the outcome is durable.
        aloft.task = None;
        inner.reports.push(Report::Input(Input::Finished { flight: id, answer }));
        inner.wake();
    }

    /// The wait of a request is over, and the request goes on: what comes of it is told by [`Slot::lingered`].
    pub(in crate::subscription) fn lingers(&self, id: FlightId) {
        let mut inner = self.lock();
        let Some(aloft) = inner.flights.get_mut(&id) else { return };
        let (flight, task) = (Arc::clone(&aloft.flight), aloft.task.take());
        let cut = inner.linger.begin(flight, task);
        drop(inner);
        if let Some(cut) = cut {
            cut.abort();
        }
    }

    /// A request lingers no more, and a success came for it or did not.
    pub(in crate::subscription) fn lingered(&self, id: FlightId, taken: bool) {
        let mut inner = self.lock();
        let Some(flight) = inner.linger.end(id).filter(|_| taken) else { return };
        inner.linger.hear(Arc::clone(&flight));
        inner.reports.push(Report::Input(Input::Late { flight }));
        inner.wake();
    }

    /// Durable, written by the life `life`: the outcomes of these flights, these late answers, and that flights carry no
    /// longer what a late answer has settled.
    pub(in crate::subscription) fn landed(
        &self,
        life: Life,
        flights: &[FlightId],
        late: &[FlightId],
        struck: &[(FlightId, (Lane, Seq))],
        settled: &[(Lane, Seq)],
    ) {
        let mut inner = self.lock();
        for of in settled {
            inner.suspects.remove(of);
        }
        for (id, key) in struck {
            if let Some(aloft) = inner.flights.get_mut(id) {
                Arc::make_mut(&mut aloft.flight).items.retain(|item| item.key() != *key);
            }
        }
        for id in flights {
            inner.flights.remove(id);
        }
        for id in late {
            inner.linger.settled(*id);
        }
        inner.achieved |= !flights.is_empty();
        if inner.life == life {
            // A life has one write on its way at a time.
            inner.writing = false;
            inner.state.ending.clear();
            inner.reports.push(Report::Durable);
            inner.wake();
        }
    }
}
