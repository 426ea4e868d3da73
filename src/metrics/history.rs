//! A history of counters and gauges in memory, in three resolutions, as charts need it.
//!
//! Each scope has a ring of points for each resolution. A ring has its full size from the
//! beginning, so the memory is known: about 20 KB for each scope. A moment that was not sampled is
//! a gap. [`History::encode`] and [`History::restore`] take the points, but not the step that has
//! not ended, to the next process.
//!
//! Invariant: a counter that falls, because one of those that it sums up was deleted, loses at most
//! the steps since the last sample.

use std::{collections::HashMap, hash::Hash};

use super::histogram::DURATIONS;

/// Seconds of a step and number of points, for each resolution.
pub const RESOLUTIONS: [(u64, usize); 3] = [(5, 120), (60, 180), (600, 144)];

/// Number of counters in a sample.
pub const COUNTERS: usize = 7;

/// Number of gauges in a sample.
pub const GAUGES: usize = 2;

/// Number of ranges of the response times.
pub const RANGES: usize = DURATIONS.bounds.len() + 1;

/// Version of the bytes of [`History::encode`].
const VERSION: u64 = 1;

/// The first sample of a process may have some scopes only. Rings that the second one does not use,
/// either, are dropped.
const RESTORING_SAMPLES: u8 = 2;

/// A point that was not sampled.
const GAP: Point = Point {
    values: [u32::MAX; COUNTERS + GAUGES + 2],
};

/// The figures of a scope at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub counters: [u64; COUNTERS],
    /// Gauges, of which a point has the maximum.
    pub gauges: [u64; GAUGES],
    /// Number of responses by range of [`DURATIONS`], counted since the process started.
    pub responses: [u64; RANGES],
}

/// The figures of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// By how much each counter rose.
    pub counters: [u32; COUNTERS],
    /// The maximum of each gauge.
    pub gauges: [u32; GAUGES],
    /// The median and the 99th percentile of response times in microseconds; [`None`] without
    /// responses.
    pub percentiles: [Option<u32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    values: [u32; COUNTERS + GAUGES + 2],
}

/// A ring of points for each resolution.
type Rings = [Box<[Point]>; RESOLUTIONS.len()];

/// The rings of a scope.
struct Track {
    rings: Rings,
    last: Sample,
    /// Sums that never fall.
    total: Sample,
    /// The sums at the beginning of the current step, and the maxima of the gauges since then.
    begun: [Sample; RESOLUTIONS.len()],
    is_current: bool,
}

/// The history of scopes of type `K`.
pub struct History<K> {
    tracks: HashMap<K, Track>,
    /// Number of the current step of each resolution, counted from the epoch; [`None`] before the
    /// first sample.
    steps: Option<[u64; RESOLUTIONS.len()]>,
    restored: Option<RestoredRings<K>>,
}

/// The rings of an earlier process that no sample has used yet.
struct RestoredRings<K> {
    /// The steps that had not ended.
    steps: [u64; RESOLUTIONS.len()],
    rings: HashMap<K, Rings>,
    samples_left: u8,
}

impl<K> Default for History<K> {
    fn default() -> Self {
        Self {
            tracks: HashMap::new(),
            steps: None,
            restored: None,
        }
    }
}

impl<K> History<K> {
    /// Memory of a history with this number of scopes: their rings, and the table of the map, which
    /// grows in powers of two.
    pub const fn memory_bytes(scopes: usize) -> usize {
        let mut points = 0;
        let mut resolution = 0;
        while resolution < RESOLUTIONS.len() {
            points += RESOLUTIONS[resolution].1;
            resolution += 1;
        }
        scopes * points * size_of::<Point>()
            + (scopes * 8 / 7 + 1).next_power_of_two() * (size_of::<(K, Track)>() + 1)
    }
}

impl<K: Hash + Eq> History<K> {
    /// Adds the samples of one moment. Scopes without a sample are forgotten.
    pub fn add_samples(&mut self, seconds: u64, samples: impl IntoIterator<Item = (K, Sample)>) {
        let steps = RESOLUTIONS.map(|(length, _)| seconds / length);
        let before = self.steps.replace(steps).unwrap_or(steps);
        self.tracks
            .values_mut()
            .for_each(|track| track.is_current = false);
        for (scope, sample) in samples {
            if let Some(track) = self.tracks.get_mut(&scope) {
                track.add(sample);
                for resolution in 0..RESOLUTIONS.len() {
                    track.end_steps(resolution, before[resolution], steps[resolution]);
                }
            } else {
                let mut track = Track::new(sample);
                if let Some(restored) = &mut self.restored {
                    track.rings = restored.take_rings(&scope, &steps).unwrap_or(track.rings);
                }
                self.tracks.insert(scope, track);
            }
        }
        self.restored = self.restored.take().and_then(RestoredRings::after_sample);
        self.tracks.retain(|_, track| track.is_current);
    }

    /// The steps of a scope in one of [`RESOLUTIONS`], oldest first, and the time in seconds at
    /// which the first begins. The step that has not ended is missing. [`None`] if the scope has no
    /// history.
    pub fn read_steps(&self, scope: &K, resolution: usize) -> Option<(u64, Vec<Option<Step>>)> {
        let (length, points) = RESOLUTIONS[resolution];
        let track = self.tracks.get(scope)?;
        let current = self.steps?[resolution];
        let first = current.saturating_sub(points as u64);
        let step = |number: u64| track.rings[resolution][index(number, points)].to_step();
        Some((first * length, (first..current).map(step).collect()))
    }

    /// Whether a scope has a history, of this process or of an earlier one.
    pub fn contains(&self, scope: &K) -> bool {
        let restored = self.restored.as_ref();
        self.tracks.contains_key(scope)
            || restored.is_some_and(|restored| restored.rings.contains_key(scope))
    }

    /// The scopes that have a history.
    pub fn scopes(&self) -> impl Iterator<Item = &K> {
        self.tracks.keys()
    }

    /// The points of all scopes as bytes; `number` tells a scope from all others.
    pub fn encode(&self, number: impl Fn(&K) -> u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, VERSION);
        for step in self.steps.unwrap_or_default() {
            put_number(&mut bytes, step);
        }
        put_number(&mut bytes, self.tracks.len() as u64);
        for (scope, track) in &self.tracks {
            put_number(&mut bytes, number(scope));
            for point in track.rings.iter().flatten() {
                point.encode(&mut bytes);
            }
        }
        bytes
    }

    /// Takes over the points that an earlier process has encoded, of at most `scopes_max` scopes.
    /// [`None`] if the bytes are no history; nothing is taken over then.
    pub fn restore(
        &mut self,
        mut bytes: &[u8],
        scopes_max: usize,
        scope: impl Fn(u64) -> K,
    ) -> Option<()> {
        if take_number(&mut bytes)? != VERSION {
            return None;
        }
        let mut steps = [0; RESOLUTIONS.len()];
        for step in &mut steps {
            *step = take_number(&mut bytes)?;
        }
        let count = usize::try_from(take_number(&mut bytes)?).ok()?;
        let mut rings = HashMap::new();
        for _ in 0..count.min(scopes_max) {
            let scope = scope(take_number(&mut bytes)?);
            let mut of_scope = empty_rings();
            for point in of_scope.iter_mut().flatten() {
                *point = Point::decode(&mut bytes)?;
            }
            rings.insert(scope, of_scope);
        }
        self.restored = Some(RestoredRings {
            steps,
            rings,
            samples_left: RESTORING_SAMPLES,
        });
        Some(())
    }
}

impl<K: Hash + Eq> RestoredRings<K> {
    /// The rings of a scope, with gaps since they were recorded.
    fn take_rings(&mut self, scope: &K, now: &[u64; RESOLUTIONS.len()]) -> Option<Rings> {
        let mut rings = self.rings.remove(scope)?;
        for ((ring, saved), now) in rings.iter_mut().zip(self.steps).zip(now) {
            // The clock was set back: the points are of a time that has not come.
            if saved > *now {
                return None;
            }
            let points = ring.len();
            for number in (saved..*now).rev().take(points) {
                ring[index(number, points)] = GAP;
            }
        }
        Some(rings)
    }

    fn after_sample(self) -> Option<Self> {
        let samples_left = self.samples_left.checked_sub(1).filter(|left| *left > 0)?;
        Some(Self {
            samples_left,
            ..self
        })
    }
}

fn empty_rings() -> Rings {
    RESOLUTIONS.map(|(_, points)| vec![GAP; points].into_boxed_slice())
}

/// Appends a number in groups of seven bits, the lowest first.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl Track {
    fn new(sample: Sample) -> Self {
        Self {
            rings: empty_rings(),
            last: sample,
            total: Sample::default(),
            begun: [Sample {
                gauges: sample.gauges,
                ..Sample::default()
            }; RESOLUTIONS.len()],
            is_current: true,
        }
    }

    fn add(&mut self, sample: Sample) {
        add_rises(
            &mut self.total.counters,
            &sample.counters,
            &self.last.counters,
        );
        add_rises(
            &mut self.total.responses,
            &sample.responses,
            &self.last.responses,
        );
        for begun in &mut self.begun {
            begun
                .gauges
                .iter_mut()
                .zip(sample.gauges)
                .for_each(|(most, now)| *most = now.max(*most));
        }
        (self.last, self.is_current) = (sample, true);
    }

    /// Ends the steps before `now`. `before` is the step of the previous sample.
    fn end_steps(&mut self, resolution: usize, before: u64, now: u64) {
        if before == now {
            return;
        }
        let ring = &mut self.rings[resolution];
        let begun = &mut self.begun[resolution];
        let points = ring.len();
        // After a step of the clock, in either direction, what was not sampled is a gap.
        let missing_steps = if now > before {
            before + 1..now
        } else {
            now.saturating_sub(points as u64)..now
        };
        for number in missing_steps.rev().take(points) {
            ring[index(number, points)] = GAP;
        }
        if now > before {
            ring[index(before, points)] = Point::between_samples(begun, &self.total);
        }
        *begun = Sample {
            gauges: self.last.gauges,
            ..self.total
        };
    }
}

/// Adds what has risen since the last sample.
fn add_rises(total: &mut [u64], now: &[u64], last: &[u64]) {
    for ((total, now), last) in total.iter_mut().zip(now).zip(last) {
        *total += now.saturating_sub(*last);
    }
}

fn index(step: u64, points: usize) -> usize {
    (step % points as u64) as usize
}

fn saturate(value: u64) -> u32 {
    // The largest value is the mark of a gap.
    u32::try_from(value).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

impl Point {
    /// Appends 0 for a gap, or 1 and the values.
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self != GAP));
        for value in self.values.iter().filter(|_| *self != GAP) {
            put_number(bytes, u64::from(*value));
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        if take_number(bytes)? == 0 {
            return Some(GAP);
        }
        let mut point = GAP;
        for value in &mut point.values {
            *value = u32::try_from(take_number(bytes)?).ok()?;
        }
        Some(point)
    }

    fn between_samples(begun: &Sample, end: &Sample) -> Self {
        let mut responses = end.responses;
        responses
            .iter_mut()
            .zip(begun.responses)
            .for_each(|(count, before)| *count -= before);
        let counters = end
            .counters
            .iter()
            .zip(begun.counters)
            .map(|(end, begun)| saturate(end - begun));
        let percentiles =
            [0.5, 0.99].map(|share| estimate_quantile(&responses, share).unwrap_or(u32::MAX));
        let mut values = counters
            .chain(begun.gauges.map(saturate))
            .chain(percentiles);
        Self {
            values: std::array::from_fn(|_| values.next().unwrap_or_default()),
        }
    }

    fn to_step(self) -> Option<Step> {
        let (counters, rest) = self.values.split_first_chunk()?;
        let (gauges, rest) = rest.split_first_chunk()?;
        let percentile = |value: u32| (value != u32::MAX).then_some(value);
        let step = Step {
            counters: *counters,
            gauges: *gauges,
            percentiles: [percentile(rest[0]), percentile(rest[1])],
        };
        (self != GAP).then_some(step)
    }
}

/// The value below which this share of the responses was, in microseconds; interpolated within its
/// range.
pub fn estimate_quantile(responses: &[u64; RANGES], share: f64) -> Option<u32> {
    let all: u64 = responses.iter().sum();
    let rank = share * all as f64;
    let mut before = 0;
    for (range, count) in responses
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
    {
        if (before + count) as f64 >= rank {
            let low = if range == 0 {
                0
            } else {
                DURATIONS.bounds[range - 1]
            };
            // The last range has no upper bound.
            let high = DURATIONS.bounds.get(range).copied().unwrap_or(low);
            let part = (rank - before as f64) / *count as f64;
            return Some(saturate(low + (part * (high - low) as f64) as u64));
        }
        before += count;
    }
    None
}
