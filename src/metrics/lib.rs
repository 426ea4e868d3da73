//! Counters and histograms, and the formats for collecting them.
//!
//! - [`Counter`] and [`Histogram`] are atomics. Adding takes no lock. A reader may see one of two
//!   related counters updated and the other not yet.
//! - [`ListenerCounters`] are those of an address that the server listens on.
//! - [`history`] keeps the course of counters and gauges in memory.
//! - [`windows`] keeps sums at recorded times, for rates and shares.
//! - [`text`] writes Prometheus' text format and OpenMetrics.
//!
//! What it does not do: it has neither a registry nor names of metrics. Values are collected on
//! request from where they are, most of them from records, which are exact and survive a restart.
//! The counters here start at zero with the process.

mod histogram;
pub mod history;
mod listener;
pub mod text;
pub mod windows;

use std::sync::atomic::{AtomicU64, Ordering};

pub use self::{
    histogram::{BucketScale, DURATIONS, EVENTS, Histogram, HistogramCounts, PHASES, WAITS},
    listener::ListenerCounters,
};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn sub(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
