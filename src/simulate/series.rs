//! Attempts over time, summed over all subscriptions of an endpoint model, for the plot.

use std::{fmt, time::Duration};

use gridhook_event::Timestamp;

/// Maximum number of bins: more would be narrower than the plot can show.
const BINS_MAX: u64 = 300;

/// Bin widths in seconds, in units that people use.
const WIDTHS: [u64; 12] = [
    10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200,
];

/// Attempts in each bin of the simulated time.
#[derive(Clone)]
pub(super) struct AttemptSeries {
    start: Timestamp,
    /// The width of a bin.
    pub(super) width: Duration,
    pub(super) bins: Vec<SeriesBin>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeriesBin {
    pub(super) attempts: u64,
    /// Of these, failed attempts.
    pub(super) failed: u64,
}

/// Omits the bins, which the plot shows.
impl fmt::Debug for AttemptSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series({} bins)", self.bins.len())
    }
}

impl AttemptSeries {
    pub(super) fn new(start: Timestamp, span: Duration) -> Self {
        let least = span.as_secs().div_ceil(BINS_MAX);
        let days = least.div_ceil(86_400) * 86_400;
        let width = Duration::from_secs(
            WIDTHS
                .into_iter()
                .find(|width| *width >= least)
                .unwrap_or(days),
        );
        let bins = span.as_micros().div_ceil(width.as_micros()) as usize;
        Self {
            start,
            width,
            bins: vec![SeriesBin::default(); bins],
        }
    }

    pub(super) fn record_attempt(&mut self, at: Timestamp, events: u64, delivered: bool) {
        let bin = (at.since(self.start).as_micros() / self.width.as_micros()) as usize;
        // The last moment of the simulated time starts no bin of its own.
        if let Some(bin) = self.bins.get_mut(bin) {
            bin.attempts += events;
            bin.failed += if delivered { 0 } else { events };
        }
    }
}
