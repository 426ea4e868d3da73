//! What is measured of a subscription's requests, since the process started.
//!
//! It is made with the first request: a subscription that nothing is sent for has none. How often what happened is counted
//! in the records, which are exact and survive a restart; here is how long it took.

use super::Slot;
use crate::{
    metrics::{Counts, DURATIONS, EVENTS, Histogram, PHASES, WAITS},
    policy::{
        Flight, Item,
        outcome::{Answer, Outcome, Phases},
    },
};

/// The parts of a request, in their order.
pub const PHASE_NAMES: [&str; 5] = ["dns", "connect", "tls", "first_byte", "body"];

#[derive(Debug)]
pub(super) struct Meter {
    wait: Histogram,
    batch: Histogram,
    response: Histogram,
    phases: [Histogram; PHASE_NAMES.len()],
    delivery: Histogram,
}

/// What was measured by now.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From when the oldest event of a request could have left (its append, or its due time) to when it did.
    pub wait: Counts,
    /// Events in a request.
    pub batch: Counts,
    /// From the first byte of a request to the last one of the answer.
    pub response: Counts,
    /// The parts of that and of what comes before it, by [`PHASE_NAMES`].
    pub phases: [Counts; PHASE_NAMES.len()],
    /// From the append of a request's oldest event to the success.
    pub delivery: Counts,
}

impl Measured {
    /// Nothing was.
    pub fn none() -> Self {
        Self {
            wait: Counts::none(&WAITS),
            batch: Counts::none(&EVENTS),
            response: Counts::none(&DURATIONS),
            phases: std::array::from_fn(|_| Counts::none(&PHASES)),
            delivery: Counts::none(&WAITS),
        }
    }
}

impl Meter {
    fn new() -> Self {
        Self {
            wait: Histogram::new(&WAITS),
            batch: Histogram::new(&EVENTS),
            response: Histogram::new(&DURATIONS),
            phases: std::array::from_fn(|_| Histogram::new(&PHASES)),
            delivery: Histogram::new(&WAITS),
        }
    }

    /// A request leaves.
    pub(super) fn sent(&self, flight: &Flight) {
        self.batch.observe(flight.events as u64);
        // What a job sends waits for the job, and the job for its turn: that is no lateness.
        let could = |item: &Item| item.due.unwrap_or(item.appended);
        if let Some(first) = flight.items.first().filter(|item| !item.lane.is_job()) {
            self.wait.took(flight.sent.since(could(first)));
        }
    }

    /// A request came back.
    pub(super) fn answered(&self, flight: &Flight, answer: &Answer) {
        if answer.outcome == Outcome::Aborted {
            // We ended it ourselves: it says nothing of the endpoint.
            return;
        }
        self.response.took(answer.latency);
        let Phases { name, connection, tls, first_byte, body } = answer.phases;
        for (phase, took) in self.phases.iter().zip([name, connection, tls, first_byte, body]) {
            if let Some(took) = took {
                phase.took(took.time());
            }
        }
        let oldest = flight.items.first().filter(|item| !item.lane.is_job() && answer.outcome == Outcome::Delivered);
        if let Some(oldest) = oldest {
            self.delivery.took(flight.sent.after(answer.latency).since(oldest.appended));
        }
    }

    fn measured(&self) -> Measured {
        Measured {
            wait: self.wait.counts(),
            batch: self.batch.counts(),
            response: self.response.counts(),
            phases: self.phases.each_ref().map(Histogram::counts),
            delivery: self.delivery.counts(),
        }
    }
}

impl Slot {
    /// What was measured of its requests; [`None`] where none has left since the process started.
    pub fn measured(&self) -> Option<Measured> {
        self.meter.get().map(|meter| meter.measured())
    }

    pub(super) fn meter(&self) -> &Meter {
        self.meter.get_or_init(|| Box::new(Meter::new()))
    }
}
