//! Histograms: how often a value was in which of a few fixed ranges.
//!
//! The ranges are the same for everybody, so that histograms can be added up. Values are whole: microseconds, or events.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Where ranges end.
#[derive(Debug, PartialEq, Eq)]
pub struct BucketScale {
    /// The largest value of each range but the last, which has no end; ascending.
    pub bounds: &'static [u64],
    /// So many of these are one of what is told: a million microseconds are a second.
    pub per_unit: u64,
}

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
const HOUR: u64 = 3_600 * SECOND;

/// How long requests take: from what a machine needs that is beside us to the longest wait for an answer.
pub static DURATIONS: BucketScale = BucketScale {
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

/// How long the parts of requests take: coarser, because there are five of them.
pub static PHASES: BucketScale = BucketScale {
    bounds: &[MILLI / 2, 2 * MILLI, 10 * MILLI, 50 * MILLI, 200 * MILLI, SECOND, 5 * SECOND, 30 * SECOND],
    per_unit: SECOND,
};

/// How long events wait: from nothing to a day, which is Event Grid's own time to live.
pub static WAITS: BucketScale = BucketScale {
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

/// How many events are together.
pub static EVENTS: BucketScale = BucketScale { bounds: &[1, 2, 5, 10, 50, 100, 500, 1_000, 5_000], per_unit: 1 };

/// A histogram that many may add to at once.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static BucketScale,
    ranges: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// With nothing in it.
    pub fn new(scale: &'static BucketScale) -> Self {
        Self { scale, ranges: (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Adds a value.
    pub fn observe(&self, value: u64) {
        let range = self.scale.bounds.partition_point(|bound| *bound < value);
        self.ranges[range].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a time, on a scale of seconds.
    pub fn took(&self, time: Duration) {
        self.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// What is in it by now.
    pub fn counts(&self) -> HistogramCounts {
        let ranges = self.ranges.iter().map(|range| range.load(Ordering::Relaxed)).collect();
        HistogramCounts { scale: self.scale, ranges, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// What is in a histogram, or in several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCounts {
    scale: &'static BucketScale,
    ranges: Vec<u64>,
    sum: u64,
}

impl HistogramCounts {
    /// Nothing.
    pub fn none(scale: &'static BucketScale) -> Self {
        Self { scale, ranges: vec![0; scale.bounds.len() + 1], sum: 0 }
    }

    /// With what is in another of the same scale.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// Each count with that of another of the same scale, by `how`.
    ///
    /// # Panics
    /// Where the scales differ: that is a mistake of the program.
    pub fn merge(&mut self, other: &Self, how: fn(u64, u64) -> u64) {
        assert_eq!(self.scale, other.scale, "histograms of two scales");
        for (to, from) in self.ranges.iter_mut().zip(&other.ranges) {
            *to = how(*to, *from);
        }
        self.sum = how(self.sum, other.sum);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.ranges.iter().sum()
    }

    /// All values together, in the unit that is told.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.scale.per_unit as f64
    }

    /// How many values are no larger than each bound, in the unit that is told; the last bound is none.
    pub fn upto(&self) -> impl Iterator<Item = (Option<f64>, u64)> + '_ {
        let bounds = self.scale.bounds.iter().map(|bound| Some(*bound as f64 / self.scale.per_unit as f64));
        let mut so_far = 0;
        bounds.chain([None]).zip(&self.ranges).map(move |(bound, count)| {
            so_far += count;
            (bound, so_far)
        })
    }
}
