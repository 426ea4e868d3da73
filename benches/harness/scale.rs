//! How much a bench measures.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How much a bench measures.
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// The number of times that a pair of floor and figure is measured.
    pub(crate) runs: usize,
    /// The duration of each measurement.
    pub(crate) time: Duration,
    /// The number of publishers at a time.
    pub(crate) connections: usize,
    /// The number of subscriptions that an event is fanned out to.
    pub(crate) fan_out: u64,
    /// The number of events that are fanned out in a run.
    pub(crate) fanned: u64,
    /// Topics that share a load.
    pub(crate) topics: usize,
    /// Subscriptions of a topic that do not match its events.
    pub(crate) unmatched: usize,
    /// Topics of the bench of many subscriptions, each with as many subscriptions.
    pub(crate) square: usize,
    /// Events behind a suspended subscription.
    pub(crate) backlog: u64,
    /// Events in a retry queue.
    pub(crate) retries: u64,
    /// Events whose return is timed.
    pub(crate) probes: u64,
    /// Clients that wait for events that never come.
    pub(crate) polls: usize,
    /// The end of each axis of the plots, in powers of ten: topics, subscriptions, backlog, retry
    /// queue.
    pub(crate) growth: [u32; 4],
    /// The folder for tables.
    pub(crate) results: PathBuf,
    /// The folder for plots.
    pub(crate) plots: PathBuf,
}

impl Scale {
    /// Finds the scale with this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name {
            "full" => Ok(Self::full()),
            "quick" => Ok(Self::quick()),
            "smoke" => Ok(Self::smoke()),
            _ => Err(format!(
                "there is no scale {name:?}; there are full, quick and smoke"
            )),
        }
    }

    /// The scale for which the budgets are meant.
    fn full() -> Self {
        Self {
            name: "full",
            runs: 5,
            time: Duration::from_secs(4),
            connections: 64,
            fan_out: 100,
            fanned: 1_000,
            topics: 1_000,
            unmatched: 1_000,
            square: 100,
            backlog: 10_000_000,
            retries: 1_000_000,
            probes: 2_000,
            polls: 10_000,
            growth: [3, 3, 7, 6],
            results: Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench"),
            plots: Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/plots"),
        }
    }

    /// The scale for somebody who changes something and measures again.
    fn quick() -> Self {
        let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-quick");
        Self {
            name: "quick",
            runs: 3,
            time: Duration::from_secs(2),
            fanned: 500,
            square: 30,
            backlog: 1_000_000,
            retries: 100_000,
            growth: [2, 2, 6, 5],
            plots: results.clone(),
            results,
            ..Self::full()
        }
    }

    /// Just enough to have everything done once.
    fn smoke() -> Self {
        let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-smoke");
        Self {
            name: "smoke",
            runs: 1,
            time: Duration::from_millis(200),
            connections: 4,
            fan_out: 3,
            fanned: 5,
            topics: 3,
            unmatched: 3,
            square: 2,
            backlog: 1_000,
            retries: 200,
            probes: 5,
            polls: 50,
            growth: [1, 1, 2, 2],
            plots: results.clone(),
            results,
        }
    }
}
