//! How the clock follows the monotonic clock and the wall clock.

use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Duration,
};

use super::ClockStep;
use gridhook_event::Timestamp;

/// The last reading of both clocks, for callers who need no new one and no lock.
///
/// Until the next reading they get the earliest time that it could return. Time therefore never
/// goes back, and is at most 12.5 µs behind.
#[derive(Debug, Default)]
pub(super) struct LastReading {
    /// Odd while a reading is stored.
    version: AtomicU64,
    elapsed: AtomicU64,
    reported: AtomicU64,
}

impl LastReading {
    /// How long a reading is used.
    const FRESH: Duration = Duration::from_micros(250);

    /// The time, if the last reading is recent enough.
    pub(super) fn read_recent(&self, elapsed: Duration) -> Option<Timestamp> {
        let version = self.version.load(Ordering::Acquire);
        let at = self.elapsed.load(Ordering::Relaxed);
        let time = self.reported.load(Ordering::Relaxed);
        // The fence orders these loads before the second load of the version, as in
        // `store_reading`.
        fence(Ordering::Acquire);
        if version == 0 || version % 2 == 1 || version != self.version.load(Ordering::Relaxed) {
            return None;
        }
        let age = elapsed.saturating_sub(Duration::from_nanos(at));
        (age < Self::FRESH).then(|| Timestamp(time).after(age - age / Follower::SLEW))
    }

    /// Stores a reading. Callers must be serialized.
    pub(super) fn store_reading(&self, elapsed: Duration, reported: Timestamp) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.elapsed.store(
            u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.reported.store(reported.0, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// The arithmetic of following: the monotonic clock, the wall clock, and the time between them.
#[derive(Clone, Debug)]
pub struct Follower {
    elapsed: Duration,
    wall: Timestamp,
    reported: Timestamp,
    step: Option<ClockStep>,
}

impl Follower {
    /// How fast the clock approaches the wall clock: one part in this many of the time that passes.
    /// An hour of difference takes twenty hours, during which waits are off by at most 5 %, less
    /// than their jitter.
    pub const SLEW: u32 = 20;
    /// A wall clock that differs by more than this from the time that passed was set, not adjusted.
    pub const STEP: Duration = Duration::from_secs(5);

    /// Starts at the wall clock.
    pub fn new(wall: Timestamp) -> Self {
        Self {
            elapsed: Duration::ZERO,
            wall,
            reported: wall,
            step: None,
        }
    }

    /// Starts at the time of an earlier process.
    pub(super) fn from_reported(reported: Timestamp, wall: Timestamp) -> Self {
        Self {
            reported,
            ..Self::new(wall)
        }
    }

    /// The time when `elapsed` has passed on the monotonic clock since the start, and the wall
    /// clock reads `wall`.
    pub fn read_time(&mut self, elapsed: Duration, wall: Timestamp) -> Timestamp {
        let time_passed = elapsed.saturating_sub(self.elapsed);
        let expected_wall = self.wall.after(time_passed);
        if absolute_distance(wall, expected_wall) > Self::STEP {
            self.step = Some(ClockStep {
                wall,
                expected: expected_wall,
            });
        }
        let time = self.reported.after(time_passed);
        let slew = absolute_distance(wall, time).min(time_passed / Self::SLEW);
        // Never backwards: `time_passed` is larger than the slew.
        self.reported = if wall > time {
            time.after(slew)
        } else {
            time.before(slew)
        };
        self.elapsed = self.elapsed.max(elapsed);
        self.wall = wall;
        self.reported
    }

    /// Goes ahead to the wall clock at once, because an operator confirmed it.
    pub fn go_ahead(&mut self, elapsed: Duration, wall: Timestamp) -> Timestamp {
        self.reported = self.read_time(elapsed, wall).max(wall);
        self.reported
    }

    /// The last step seen that was not taken yet.
    pub(super) fn take_step(&mut self) -> Option<ClockStep> {
        self.step.take()
    }

    pub fn last_step(&self) -> Option<ClockStep> {
        self.step
    }
}

pub(super) fn absolute_distance(a: Timestamp, b: Timestamp) -> Duration {
    if a > b { a.since(b) } else { b.since(a) }
}
