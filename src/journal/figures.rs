//! Measurements of the journal, for the metrics endpoint.

use crate::{
    metrics::HistogramCounts,
    store::{
        damage::{DamageSummary, Scrubbed},
        figures::StoreFigures,
    },
};

/// The journal, since the process started.
#[derive(Clone, Debug)]
pub struct JournalFigures {
    /// How long it took to write a group and to sync it.
    pub sync: HistogramCounts,
    /// How many entries shared a sync.
    pub group: HistogramCounts,
    /// Reads that panicked, and were answered with an error.
    pub read_panics: u64,
    /// What the store says of itself; [`None`] for one that says nothing.
    pub store: Option<StoreFigures>,
    /// What of the store cannot be read.
    pub damage: DamageSummary,
    /// How far the scrub is.
    pub scrubbed: Scrubbed,
}
