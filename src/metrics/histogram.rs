//! Histograms with fixed buckets.
//!
//! All histograms of a scale have the same buckets, so they can be added. Values are integers:
//! microseconds, or events.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The buckets of a histogram.
#[derive(Debug, PartialEq, Eq)]
pub struct BucketScale {
    /// The upper bound of each bucket except the last, which has none; ascending.
    pub bounds: &'static [u64],
    /// Values per reported unit: a million microseconds per second.
    pub per_unit: u64,
}

impl BucketScale {
    /// The number of ranges: one for each bound, and one behind the last.
    pub const fn range_count(&self) -> usize {
        self.bounds.len() + 1
    }
}

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
const HOUR: u64 = 3_600 * SECOND;

/// Durations of requests: from a neighbouring machine's latency to the longest response timeout.
pub const DURATIONS: BucketScale = BucketScale {
    bounds: &[
        MILLI,
        5 * MILLI / 2,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        5 * SECOND / 2,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
    ],
    per_unit: SECOND,
};

/// Durations of a request's phases: fewer buckets, because there are five phases.
pub const PHASES: BucketScale = BucketScale {
    bounds: &[
        MILLI / 2,
        2 * MILLI,
        10 * MILLI,
        50 * MILLI,
        200 * MILLI,
        SECOND,
        5 * SECOND,
        30 * SECOND,
    ],
    per_unit: SECOND,
};

/// Wait times of events: up to a day, Event Grid's default time to live.
pub const WAITS: BucketScale = BucketScale {
    bounds: &[
        MILLI,
        10 * MILLI,
        100 * MILLI,
        SECOND,
        10 * SECOND,
        60 * SECOND,
        600 * SECOND,
        HOUR,
        6 * HOUR,
        24 * HOUR,
    ],
    per_unit: SECOND,
};

/// Numbers of events in a batch.
pub const EVENTS: BucketScale = BucketScale {
    bounds: &[1, 2, 5, 10, 50, 100, 500, 1_000, 5_000],
    per_unit: 1,
};

/// A histogram for concurrent use, with as many ranges as its scale. It has no allocation of its
/// own: a subscription has nine, and each request changes several of them.
#[derive(Debug)]
pub struct Histogram<const RANGES: usize> {
    scale: &'static BucketScale,
    ranges: [AtomicU64; RANGES],
    sum: AtomicU64,
}

impl<const RANGES: usize> Histogram<RANGES> {
    /// An empty histogram.
    ///
    /// # Panics
    /// The scale has another number of ranges.
    pub fn new(scale: &'static BucketScale) -> Self {
        assert_eq!(
            scale.range_count(),
            RANGES,
            "a histogram has the ranges of its scale"
        );
        Self {
            scale,
            ranges: [const { AtomicU64::new(0) }; RANGES],
            sum: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, value: u64) {
        let range = self.scale.bounds.partition_point(|bound| *bound < value);
        self.ranges[range].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration to a histogram of seconds.
    pub fn observe_duration(&self, time: Duration) {
        self.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn counts(&self) -> HistogramCounts {
        let ranges = self
            .ranges
            .iter()
            .map(|range| range.load(Ordering::Relaxed))
            .collect();
        HistogramCounts {
            scale: self.scale,
            ranges,
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// The counts of one or several histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCounts {
    scale: &'static BucketScale,
    ranges: Vec<u64>,
    sum: u64,
}

impl HistogramCounts {
    pub fn without_values(scale: &'static BucketScale) -> Self {
        Self {
            scale,
            ranges: vec![0; scale.bounds.len() + 1],
            sum: 0,
        }
    }

    /// Adds the counts of another histogram of the same scale.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// Combines each count with that of another histogram of the same scale.
    ///
    /// # Panics
    /// The scales differ.
    pub fn merge(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        assert_eq!(self.scale, other.scale, "histograms of two scales");
        for (to, from) in self.ranges.iter_mut().zip(&other.ranges) {
            *to = how(*to, *from);
        }
        self.sum = how(self.sum, other.sum);
    }

    /// The number of values in each range.
    pub fn ranges(&self) -> &[u64] {
        &self.ranges
    }

    pub fn count(&self) -> u64 {
        self.ranges.iter().sum()
    }

    /// Sum of all values, in the reported unit.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.scale.per_unit as f64
    }

    /// The number of values up to each bound, in the reported unit. The last bound is [`None`].
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (Option<f64>, u64)> + '_ {
        let bounds = self
            .scale
            .bounds
            .iter()
            .map(|bound| Some(*bound as f64 / self.scale.per_unit as f64));
        let mut so_far = 0;
        bounds
            .chain([None])
            .zip(&self.ranges)
            .map(move |(bound, count)| {
                so_far += count;
                (bound, so_far)
            })
    }
}
