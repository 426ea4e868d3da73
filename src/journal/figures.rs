//! Measurements of the journal, for the metrics endpoint.

use gridhook_metrics::HistogramCounts;
use gridhook_store::{
    damage::{DamageSummary, Scrubbed},
    figures::StoreFigures,
};

/// Measurements of the journal since the process started.
#[derive(Clone, Debug)]
pub struct JournalFigures {
    /// Durations of writing and syncing a group.
    pub sync: HistogramCounts,
    /// Numbers of entries that shared a sync.
    pub group: HistogramCounts,
    /// Reads that panicked and returned an error.
    pub read_panics: u64,
    /// Measurements of the store, if it has any.
    pub store: Option<StoreFigures>,
    /// The known damage of the store.
    pub damage: DamageSummary,
    /// The progress of the scrub.
    pub scrubbed: Scrubbed,
}
