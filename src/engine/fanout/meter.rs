//! Counters of a topic's publishers and matches, since the process started.
//!
//! The log itself counts the events, across restarts.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use parking_lot::Mutex;

use gridhook_metrics::{Counter, DURATIONS, Histogram, HistogramCounts};

/// The counters of a topic.
#[derive(Debug, Default)]
pub struct TopicMeter {
    unmatched: Counter,
    duplicates: Counter,
    nonconforming: Counter,
    /// Created with the first request.
    latency: OnceLock<Box<Histogram<{ DURATIONS.range_count() }>>>,
    refused: Mutex<BTreeMap<PublishRefusal, u64>>,
}

/// Why a publish request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishRefusal {
    pub status: u16,
    pub code: &'static str,
}

/// A snapshot of the counters.
#[derive(Clone, Debug)]
pub struct PublishCounts {
    /// Events that matched no subscription.
    pub unmatched: u64,
    /// Events that were not stored because they are duplicates.
    pub duplicates: u64,
    /// Events that were stored although their data does not match its schema.
    pub nonconforming: u64,
    pub latency: HistogramCounts,
    pub refused: BTreeMap<PublishRefusal, u64>,
}

impl Default for PublishCounts {
    fn default() -> Self {
        let latency = HistogramCounts::without_values(&DURATIONS);
        Self {
            unmatched: 0,
            duplicates: 0,
            nonconforming: 0,
            latency,
            refused: BTreeMap::new(),
        }
    }
}

impl TopicMeter {
    /// A request was accepted after this time.
    pub fn count_accepted(&self, after: Duration) {
        self.latency
            .get_or_init(|| Box::new(Histogram::new(&DURATIONS)))
            .observe_duration(after);
    }

    pub fn count_refused(&self, why: PublishRefusal) {
        *self.refused.lock().entry(why).or_default() += 1;
    }

    /// Counts events that matched no filter.
    pub fn count_unmatched(&self, events: u64) {
        self.unmatched.add(events);
    }

    /// Counts events that were not stored because they are duplicates.
    pub fn count_duplicates(&self, events: u64) {
        self.duplicates.add(events);
    }

    /// Counts events that were stored although their data does not match its schema. Returns the
    /// count before.
    pub fn count_nonconforming(&self, events: u64) -> u64 {
        let before = self.nonconforming.get();
        self.nonconforming.add(events);
        before
    }

    /// A snapshot of the counters.
    pub fn publish_counts(&self) -> PublishCounts {
        PublishCounts {
            unmatched: self.unmatched.get(),
            duplicates: self.duplicates.get(),
            nonconforming: self.nonconforming.get(),
            latency: self.latency.get().map_or_else(
                || HistogramCounts::without_values(&DURATIONS),
                |latency| latency.counts(),
            ),
            refused: self.refused.lock().clone(),
        }
    }
}
