//! What is counted and measured beside the work, and how it is written down for those who collect it.
//!
//! - [`Counter`] and [`Histogram`]: atomics that the work adds to. Adding takes no lock and waits for nobody; reading is a
//!   look at what is there, which may be one event behind in one place and not in the other.
//! - [`ListenerCounters`]: what is counted of an address that the server listens on.
//! - [`text`]: families of samples as Prometheus' text and as OpenMetrics.
//!
//! Absent on purpose: a registry, and names. What there is to tell is gathered when somebody asks, from where it stands
//! anyway: most of it in records, which are exact and survive a restart. What stands here begins anew with the process.

mod histogram;
mod listener;
pub mod text;

use std::sync::atomic::{AtomicU64, Ordering};

pub use self::{
    histogram::{BucketScale, DURATIONS, EVENTS, Histogram, HistogramCounts, PHASES, WAITS},
    listener::ListenerCounters,
};

/// Counts up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// So many fewer, of what goes up and down.
    pub fn sub(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }

    /// How many by now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
