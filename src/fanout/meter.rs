//! What is counted of a topic's publishers and of what its actor matched, since the process started.
//!
//! How many events it took is no concern of this: the log itself counts them, and goes on with that after a restart.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use crate::metrics::{Counter, DURATIONS, Histogram, HistogramCounts};

/// The counters of a topic.
#[derive(Debug, Default)]
pub struct TopicMeter {
    unmatched: Counter,
    /// Made with the first request: an idle topic has none.
    latency: OnceLock<Box<Histogram>>,
    refused: Mutex<BTreeMap<PublishRefusal, u64>>,
}

/// Why a request was refused, as its publisher was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishRefusal {
    /// The status.
    pub status: u16,
    /// The specific code.
    pub code: &'static str,
}

/// What was counted by now.
#[derive(Clone, Debug)]
pub struct PublishCounts {
    /// Events that nobody subscribes to.
    pub unmatched: u64,
    /// How long the requests took that were accepted.
    pub latency: HistogramCounts,
    /// The requests that were not.
    pub refused: BTreeMap<PublishRefusal, u64>,
}

impl PublishCounts {
    /// Nothing was.
    pub fn none() -> Self {
        Self { unmatched: 0, latency: HistogramCounts::none(&DURATIONS), refused: BTreeMap::new() }
    }
}

impl TopicMeter {
    /// A request was accepted, after so long.
    pub fn accepted(&self, after: Duration) {
        self.latency.get_or_init(|| Box::new(Histogram::new(&DURATIONS))).took(after);
    }

    /// A request was refused.
    pub fn refused(&self, why: PublishRefusal) {
        *self.lock().entry(why).or_default() += 1;
    }

    /// Events were matched by nobody's filter.
    pub(crate) fn unmatched(&self, events: u64) {
        self.unmatched.add(events);
    }

    /// What was counted.
    pub fn publishing(&self) -> PublishCounts {
        PublishCounts {
            unmatched: self.unmatched.get(),
            latency: self.latency.get().map_or_else(|| HistogramCounts::none(&DURATIONS), |latency| latency.counts()),
            refused: self.lock().clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PublishRefusal, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
