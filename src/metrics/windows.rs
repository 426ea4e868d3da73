//! Sums of many scopes at recorded times, for figures over windows that are the same for every
//! reader.
//!
//! The times are shared by all scopes. A figure of a window is the present sum minus the sum at the
//! newest time that is at least as long ago as the window, or at the oldest recorded time.
//!
//! Invariant: a scope whose sums have not changed since it was first recorded has no memory for
//! them; one that only ever had the default sums has none at all.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

/// How long a window is, and how often its sums are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Length in seconds.
    pub length: u64,
    /// Seconds between two recorded times.
    pub spacing: u64,
}

impl WindowRule {
    /// Recorded times that are kept: one of them is as old as the window.
    const fn recorded_times(self) -> usize {
        (self.length / self.spacing) as usize + 1
    }
}

/// A minute, an hour and a day.
pub const WINDOWS: [WindowRule; 3] = [
    WindowRule {
        length: 60,
        spacing: 10,
    },
    WindowRule {
        length: 3_600,
        spacing: 900,
    },
    WindowRule {
        length: 86_400,
        spacing: 21_600,
    },
];

/// Sums that may wrap: only their differences are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrappingSums<const N: usize>([u32; N]);

impl<const N: usize> Default for WrappingSums<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> WrappingSums<N> {
    pub fn new(sums: [u64; N]) -> Self {
        Self(sums.map(|sum| sum as u32))
    }

    /// By how much each sum has risen since `before`.
    pub fn rises_since(self, before: Self) -> [u32; N] {
        std::array::from_fn(|at| self.0[at].wrapping_sub(before.0[at]))
    }
}

/// The recorded times of one window, newest at `count - 1`, modulo their number.
#[derive(Debug)]
struct Times {
    rule: WindowRule,
    seconds: Box<[u64]>,
    count: usize,
    /// The first place of the window among those of a scope.
    first: usize,
}

#[derive(Debug)]
struct ScopeWindows<V> {
    /// The sums when it was first recorded.
    base: V,
    sums: Option<Box<[V]>>,
    is_current: bool,
}

/// The recorded sums of scopes of type `K`.
#[derive(Debug)]
pub struct Windows<K, V> {
    times: Vec<Times>,
    scopes: HashMap<K, ScopeWindows<V>>,
}

/// What was recorded of a scope.
#[derive(Clone, Copy, Debug)]
pub struct RecordedSums<'a, V>(Option<(V, Option<&'a [V]>)>);

impl<V: Copy + Default> RecordedSums<'_, V> {
    /// The sums at the beginning of a window.
    pub fn sums_at(&self, start: WindowStart) -> V {
        let Some((base, sums)) = self.0 else {
            return V::default();
        };
        sums.map_or(base, |sums| sums[start.place])
    }
}

/// The beginning of a window at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowStart {
    /// When it was recorded, in seconds.
    pub seconds: u64,
    place: usize,
}

impl<K: Hash + Eq, V: Copy + Default + PartialEq> Windows<K, V> {
    /// Windows with these rules, without a recorded time.
    pub fn new(rules: &[WindowRule]) -> Self {
        let mut first = 0;
        let times = rules.iter().map(|rule| {
            let times = Times {
                rule: *rule,
                seconds: vec![0; rule.recorded_times()].into(),
                count: 0,
                first,
            };
            first += rule.recorded_times();
            times
        });
        Self {
            times: times.collect(),
            scopes: HashMap::new(),
        }
    }

    /// Whether a window needs the sums of this time.
    pub fn is_due(&self, seconds: u64) -> bool {
        self.times.iter().any(|times| times.is_due(seconds))
    }

    /// Records the sums of all scopes at a time. Scopes without sums are forgotten. Those that were
    /// created since the last recorded time had none before.
    pub fn record_sums(&mut self, seconds: u64, sums: impl IntoIterator<Item = (K, V)>) {
        let is_first = self.times.iter().all(|times| times.count == 0);
        let places: Vec<usize> = self
            .times
            .iter_mut()
            .filter_map(|times| times.begin_time(seconds))
            .collect();
        let all = self.times.iter().map(|times| times.seconds.len()).sum();
        self.scopes
            .values_mut()
            .for_each(|scope| scope.is_current = false);
        for (key, sum) in sums {
            let scope = match self.scopes.entry(key) {
                Entry::Occupied(scope) => scope.into_mut(),
                Entry::Vacant(_) if sum == V::default() => continue,
                Entry::Vacant(entry) => entry.insert(ScopeWindows {
                    base: if is_first { sum } else { V::default() },
                    sums: None,
                    is_current: true,
                }),
            };
            scope.is_current = true;
            if scope.sums.is_none() && scope.base == sum {
                continue;
            }
            let own = scope
                .sums
                .get_or_insert_with(|| vec![scope.base; all].into());
            places.iter().for_each(|place| own[*place] = sum);
        }
        self.scopes.retain(|_, scope| scope.is_current);
    }

    /// The beginning of each window; [`None`] before anything was recorded.
    pub fn window_starts(&self, seconds: u64) -> Vec<Option<WindowStart>> {
        self.times
            .iter()
            .map(|times| times.start(seconds))
            .collect()
    }

    pub fn recorded_sums(&self, scope: &K) -> RecordedSums<'_, V> {
        RecordedSums(
            self.scopes
                .get(scope)
                .map(|scope| (scope.base, scope.sums.as_deref())),
        )
    }
}

impl Times {
    fn newest(&self) -> Option<u64> {
        let last = self.count.checked_sub(1)?;
        Some(self.seconds[last % self.seconds.len()])
    }

    fn is_due(&self, seconds: u64) -> bool {
        self.newest()
            .is_none_or(|newest| seconds < newest || seconds - newest >= self.rule.spacing)
    }

    /// Begins a time if it is due. Returns the place of its sums.
    fn begin_time(&mut self, seconds: u64) -> Option<usize> {
        if !self.is_due(seconds) {
            return None;
        }
        // The clock was set back: what was recorded is of no known time.
        if self.newest().is_some_and(|newest| seconds < newest) {
            self.count = 0;
        }
        let index = self.count % self.seconds.len();
        self.seconds[index] = seconds;
        self.count += 1;
        Some(self.first + index)
    }

    fn start(&self, seconds: u64) -> Option<WindowStart> {
        let len = self.count.min(self.seconds.len());
        let mut oldest = None;
        for number in (self.count - len..self.count).rev() {
            let index = number % self.seconds.len();
            let start = WindowStart {
                seconds: self.seconds[index],
                place: self.first + index,
            };
            oldest = Some(start);
            if seconds.saturating_sub(start.seconds) >= self.rule.length {
                break;
            }
        }
        oldest
    }
}
