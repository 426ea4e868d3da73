//! Attempts over time, for all subscriptions of a temper together: what the plot shows.

use std::{fmt, time::Duration};

use crate::event::Timestamp;

/// More bins than this are narrower than a panel of the plot can show.
const BINS_MAX: u64 = 300;

/// Widths that people count in.
const WIDTHS: [u64; 12] = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

/// Attempts in each bin of the simulated time.
#[derive(Clone)]
pub(super) struct AttemptSeries {
    start: Timestamp,
    /// How long a bin is.
    pub(super) width: Duration,
    pub(super) bins: Vec<SeriesBin>,
}

/// A bin's attempts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeriesBin {
    pub(super) attempts: u64,
    /// Of these, those that failed.
    pub(super) failed: u64,
}

/// Not bin by bin: that is what the plot is for.
impl fmt::Debug for AttemptSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series({} bins)", self.bins.len())
    }
}

impl AttemptSeries {
    pub(super) fn new(start: Timestamp, span: Duration) -> Self {
        let least = span.as_secs().div_ceil(BINS_MAX);
        let days = least.div_ceil(86_400) * 86_400;
        let width = Duration::from_secs(WIDTHS.into_iter().find(|width| *width >= least).unwrap_or(days));
        let bins = span.as_micros().div_ceil(width.as_micros()) as usize;
        Self { start, width, bins: vec![SeriesBin::default(); bins] }
    }

    pub(super) fn attempted(&mut self, at: Timestamp, events: u64, delivered: bool) {
        let bin = (at.since(self.start).as_micros() / self.width.as_micros()) as usize;
        // The last moment of the simulated time begins no bin of its own.
        if let Some(bin) = self.bins.get_mut(bin) {
            bin.attempts += events;
            bin.failed += if delivered { 0 } else { events };
        }
    }
}
