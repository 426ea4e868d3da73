//! What is measured of a subscription's requests, since the process started.
//!
//! It is made with the first request: a subscription that nothing is sent for has none. How often what happened is counted
//! in the records, which are exact and survive a restart; here is how long it took.

use super::SharedState;
use crate::{
    metrics::{DURATIONS, EVENTS, Histogram, HistogramCounts, PHASES, WAITS},
    policy::{
        OutgoingBatch, SendItem,
        outcome::{Outcome, RequestPhases, RequestResult},
    },
};

/// The parts of a request, in their order.
pub const PHASE_NAMES: [&str; 5] = ["dns", "connect", "tls", "first_byte", "body"];

#[derive(Debug)]
pub(super) struct SubscriptionMeter {
    wait: Histogram,
    batch: Histogram,
    response: Histogram,
    phases: [Histogram; PHASE_NAMES.len()],
    delivery: Histogram,
}

/// What was measured by now.
#[derive(Clone, Debug)]
pub struct SubscriptionMeasures {
    /// From when the oldest event of a request could have left (its append, or its due time) to when it did.
    pub wait: HistogramCounts,
    /// Events in a request.
    pub batch: HistogramCounts,
    /// From the first byte of a request to the last one of the answer.
    pub response: HistogramCounts,
    /// The parts of that and of what comes before it, by [`PHASE_NAMES`].
    pub phases: [HistogramCounts; PHASE_NAMES.len()],
    /// From the append of a request's oldest event to the success.
    pub delivery: HistogramCounts,
}

impl SubscriptionMeasures {
    /// Nothing was.
    pub fn none() -> Self {
        Self {
            wait: HistogramCounts::none(&WAITS),
            batch: HistogramCounts::none(&EVENTS),
            response: HistogramCounts::none(&DURATIONS),
            phases: std::array::from_fn(|_| HistogramCounts::none(&PHASES)),
            delivery: HistogramCounts::none(&WAITS),
        }
    }
}

impl SubscriptionMeter {
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
    pub(super) fn sent(&self, request: &OutgoingBatch) {
        self.batch.observe(request.events as u64);
        // What a job sends waits for the job, and the job for its turn: that is no lateness.
        let could = |item: &SendItem| item.due.unwrap_or(item.appended);
        if let Some(first) = request.items.first().filter(|item| !item.lane.is_job()) {
            self.wait.took(request.sent.since(could(first)));
        }
    }

    /// A request came back.
    pub(super) fn on_response(&self, request: &OutgoingBatch, answer: &RequestResult) {
        if answer.outcome == Outcome::Aborted {
            // We ended it ourselves: it says nothing of the endpoint.
            return;
        }
        self.response.took(answer.latency);
        let RequestPhases { name, connection, tls, first_byte, body } = answer.phases;
        for (phase, took) in self.phases.iter().zip([name, connection, tls, first_byte, body]) {
            if let Some(took) = took {
                phase.took(took.time());
            }
        }
        let oldest = request.items.first().filter(|item| !item.lane.is_job() && answer.outcome == Outcome::Delivered);
        if let Some(oldest) = oldest {
            self.delivery.took(request.sent.after(answer.latency).since(oldest.appended));
        }
    }

    fn measured(&self) -> SubscriptionMeasures {
        SubscriptionMeasures {
            wait: self.wait.counts(),
            batch: self.batch.counts(),
            response: self.response.counts(),
            phases: self.phases.each_ref().map(Histogram::counts),
            delivery: self.delivery.counts(),
        }
    }
}

impl SharedState {
    /// What was measured of its requests; [`None`] where none has left since the process started.
    pub fn measured(&self) -> Option<SubscriptionMeasures> {
        self.meter.get().map(|meter| meter.measured())
    }

    pub(super) fn meter(&self) -> &SubscriptionMeter {
        self.meter.get_or_init(|| Box::new(SubscriptionMeter::new()))
    }
}
