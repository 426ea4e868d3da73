//! Durations and batch sizes of a subscription's requests since the process started.
//!
//! Created with the first request. Counters are in the records, which are exact and survive a
//! restart.

use std::sync::OnceLock;

use super::SharedState;
use gridhook_metrics::{DURATIONS, EVENTS, Histogram, HistogramCounts, PHASES, WAITS};
use gridhook_policy::{
    OutgoingBatch, SendItem,
    outcome::{Elapsed, Outcome, RequestPhases, RequestResult},
};

/// The phases of a request, in order.
pub const PHASE_NAMES: [&str; 5] = ["dns", "connect", "tls", "first_byte", "body"];

/// The number of phases, from the first, that open a connection.
const OPENING: usize = 3;

#[derive(Debug)]
pub(super) struct SubscriptionMeter {
    wait: Histogram<{ WAITS.range_count() }>,
    batch: Histogram<{ EVENTS.range_count() }>,
    response: Histogram<{ DURATIONS.range_count() }>,
    /// The phases of opening a connection. Created with the first: subscriptions with the same
    /// endpoint share them.
    opening: OnceLock<Box<[PhaseHistogram; OPENING]>>,
    /// The phases of each request.
    exchange: [PhaseHistogram; PHASE_NAMES.len() - OPENING],
    delivery: Histogram<{ WAITS.range_count() }>,
}

type PhaseHistogram = Histogram<{ PHASES.range_count() }>;

/// A snapshot of the histograms.
#[derive(Clone, Debug)]
pub struct SubscriptionMeasures {
    /// Time from when the oldest event of a request could be sent (its append, or its due time)
    /// until it was sent.
    pub wait: HistogramCounts,
    /// Number of events of a request.
    pub batch: HistogramCounts,
    /// Time from the first byte of a request to the last byte of the response.
    pub response: HistogramCounts,
    /// The phases of the request, by [`PHASE_NAMES`].
    pub phases: [HistogramCounts; PHASE_NAMES.len()],
    /// Time from the append of a request's oldest event to its success.
    pub delivery: HistogramCounts,
}

impl Default for SubscriptionMeasures {
    fn default() -> Self {
        Self {
            wait: HistogramCounts::without_values(&WAITS),
            batch: HistogramCounts::without_values(&EVENTS),
            response: HistogramCounts::without_values(&DURATIONS),
            phases: std::array::from_fn(|_| HistogramCounts::without_values(&PHASES)),
            delivery: HistogramCounts::without_values(&WAITS),
        }
    }
}

impl SubscriptionMeter {
    fn new() -> Self {
        Self {
            wait: Histogram::new(&WAITS),
            batch: Histogram::new(&EVENTS),
            response: Histogram::new(&DURATIONS),
            opening: OnceLock::new(),
            exchange: std::array::from_fn(|_| Histogram::new(&PHASES)),
            delivery: Histogram::new(&WAITS),
        }
    }

    pub(super) fn record_sent(&self, request: &OutgoingBatch) {
        self.batch.observe(request.events as u64);
        // An event of a job waits for its job by design, so it is not late.
        let could = |item: &SendItem| item.due.unwrap_or(item.appended);
        if let Some(first) = request.items.first().filter(|item| !item.lane.is_job()) {
            self.wait.observe_duration(request.sent.since(could(first)));
        }
    }

    pub(super) fn on_response(&self, request: &OutgoingBatch, result: &RequestResult) {
        if result.outcome == Outcome::Aborted {
            // gridhook aborted it: it says nothing about the endpoint.
            return;
        }
        self.response.observe_duration(result.latency);
        let RequestPhases {
            name,
            connection,
            tls,
            first_byte,
            body,
        } = result.phases;
        let opening_times = [name, connection, tls];
        if opening_times.iter().any(Option::is_some) {
            let opening = self
                .opening
                .get_or_init(|| Box::new(std::array::from_fn(|_| Histogram::new(&PHASES))));
            observe_phases(opening, opening_times);
        }
        observe_phases(&self.exchange, [first_byte, body]);
        let oldest = request
            .items
            .first()
            .filter(|item| !item.lane.is_job() && result.outcome == Outcome::Delivered);
        if let Some(oldest) = oldest {
            self.delivery
                .observe_duration(request.sent.after(result.latency).since(oldest.appended));
        }
    }

    fn read_measures(&self) -> SubscriptionMeasures {
        let no_counts = || HistogramCounts::without_values(&PHASES);
        let [dns, connect, tls] = match self.opening.get() {
            Some(opening) => opening.each_ref().map(Histogram::counts),
            None => [no_counts(), no_counts(), no_counts()],
        };
        let [first_byte, body] = self.exchange.each_ref().map(Histogram::counts);
        SubscriptionMeasures {
            wait: self.wait.counts(),
            batch: self.batch.counts(),
            response: self.response.counts(),
            phases: [dns, connect, tls, first_byte, body],
            delivery: self.delivery.counts(),
        }
    }
}

fn observe_phases<const N: usize>(histograms: &[PhaseHistogram; N], took: [Option<Elapsed>; N]) {
    for (histogram, took) in histograms.iter().zip(took) {
        if let Some(took) = took {
            histogram.observe_duration(took.to_duration());
        }
    }
}

impl SharedState {
    /// The measurements; [`None`] if no request was sent since the process started.
    pub fn read_measures(&self) -> Option<SubscriptionMeasures> {
        self.meter.get().map(|meter| meter.read_measures())
    }

    /// The number of responses by range of response times; empty if no request was sent since the
    /// process started.
    pub fn response_times(&self) -> Vec<u64> {
        self.meter
            .get()
            .map(|meter| meter.response.counts().ranges().to_vec())
            .unwrap_or_default()
    }

    pub(super) fn meter(&self) -> &SubscriptionMeter {
        self.meter
            .get_or_init(|| Box::new(SubscriptionMeter::new()))
    }
}
