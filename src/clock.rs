//! The only reader of time. Everybody else is given a [`Timestamp`], or holds a [`Clock`] and hands its answer on.
//!
//! Within a process time never goes back, and it never jumps: retry times, time to live and the journal's append times
//! would all follow a jump, and an hour that somebody added by mistake would expire an hour of events. So the clock
//! runs on the monotonic one and draws towards the wall clock by [`Follower::SLEW`] of the time that passes. A wall
//! clock that was set by more than [`Follower::STEP`] is told once, as a [`Step`], to whoever asks for it.
//!
//! Absent on purpose: time zones, sleeping, timers. A timer asks the clock when it fires, and finds out whether it
//! was early.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant, SystemTime},
};

use crate::event::Timestamp;

/// Tells the time. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Source>);

#[derive(Debug)]
enum Source {
    System { started: Instant, follower: Mutex<Follower>, seen: Seen, skew: Skew },
    Manual(Mutex<Timestamp>),
}

/// By how much the wall clock is told wrong, on purpose: for chaos. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Skew(Arc<AtomicI64>);

impl Skew {
    /// From now on the wall clock is told so much later, or right again.
    pub fn ahead(&self, by: Duration) {
        self.0.store(micros(by), Ordering::Relaxed);
    }

    /// From now on it is told so much earlier.
    pub fn behind(&self, by: Duration) {
        self.0.store(-micros(by), Ordering::Relaxed);
    }

    fn of(&self, wall: Timestamp) -> Timestamp {
        match self.0.load(Ordering::Relaxed) {
            0 => wall,
            by if by > 0 => wall.after(Duration::from_micros(by.unsigned_abs())),
            by => wall.before(Duration::from_micros(by.unsigned_abs())),
        }
    }
}

fn micros(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}

/// Sets the clock of a test.
#[derive(Debug)]
pub struct Hand(Clock);

/// The wall clock was set: it stands elsewhere than the time that passed explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the wall clock says now.
    pub wall: Timestamp,
    /// What it would say if it had not been set.
    pub expected: Timestamp,
}

impl Clock {
    /// The clock of the machine.
    pub fn system() -> Self {
        Self::skewed(Skew::default())
    }

    /// The same, with a wall clock that `skew` can tell wrong.
    pub fn skewed(skew: Skew) -> Self {
        let follower = Mutex::new(Follower::new(skew.of(wall())));
        Self(Arc::new(Source::System { started: instant(), follower, seen: Seen::default(), skew }))
    }

    /// A clock that stands still until its hand is moved.
    pub fn manual(at: Timestamp) -> (Self, Hand) {
        let clock = Self(Arc::new(Source::Manual(Mutex::new(at))));
        (clock.clone(), Hand(clock))
    }

    /// The time: never earlier than any answer before.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Source::System { started, follower, seen, skew } => {
                let elapsed = || instant().saturating_duration_since(*started);
                if let Some(told) = seen.since(elapsed()) {
                    return told;
                }
                let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
                // Both are read under the lock, so that readings come to the follower in their order.
                let elapsed = elapsed();
                let told = follower.observe(elapsed, skew.of(wall()));
                seen.note(elapsed, told);
                told
            }
            Source::Manual(at) => *at.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The last step of the wall clock that nobody has asked for yet. The server asks now and then, and logs it.
    pub fn take_step(&self) -> Option<Step> {
        match &*self.0 {
            Source::System { follower, .. } => follower.lock().unwrap_or_else(PoisonError::into_inner).step.take(),
            Source::Manual(_) => None,
        }
    }
}

/// The last look at both clocks, for readers who need not look again so soon, and need no lock for it.
///
/// Until the next look they are told the least that it could tell. So nobody is told an earlier time after it, and
/// everybody at most 12.5 µs too little.
#[derive(Debug, Default)]
struct Seen {
    /// Odd while a look is noted.
    version: AtomicU64,
    elapsed: AtomicU64,
    told: AtomicU64,
}

impl Seen {
    /// For how long a look is good.
    const FRESH: Duration = Duration::from_micros(250);

    /// The time, where the last look is fresh.
    fn since(&self, elapsed: Duration) -> Option<Timestamp> {
        let version = self.version.load(Ordering::Acquire);
        let (at, told) = (self.elapsed.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed));
        // What was read stands before the second look at the version, as it does in `note`.
        fence(Ordering::Acquire);
        if version == 0 || version % 2 == 1 || version != self.version.load(Ordering::Relaxed) {
            return None;
        }
        let passed = elapsed.saturating_sub(Duration::from_nanos(at));
        (passed < Self::FRESH).then(|| Timestamp(told).after(passed - passed / Follower::SLEW))
    }

    /// To be called by one at a time.
    fn note(&self, elapsed: Duration, told: Timestamp) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.elapsed.store(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.told.store(told.0, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

impl Hand {
    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.set(self.0.now().after(by));
    }

    /// Moves the clock on to `to`.
    ///
    /// # Panics
    /// Where `to` is earlier: a clock that goes back is not one that the program can meet.
    pub fn set(&self, to: Timestamp) {
        match &*self.0.0 {
            Source::Manual(at) => {
                let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(*at <= to, "a clock at {at} cannot be set back to {to}");
                *at = to;
            }
            Source::System { .. } => unreachable!("a hand is made with a manual clock"),
        }
    }
}

/// The arithmetic of following: what passed on the monotonic clock, what the wall clock says, and the time between.
#[derive(Clone, Debug)]
pub struct Follower {
    elapsed: Duration,
    wall: Timestamp,
    told: Timestamp,
    step: Option<Step>,
}

impl Follower {
    /// How fast the clock draws towards the wall clock: one part in so many of the time that passes. An hour takes
    /// twenty, and a wait is at most 5 % off meanwhile, less than its jitter.
    pub const SLEW: u32 = 20;
    /// A wall clock that moved by more than this against the time that passed was set, not adjusted.
    pub const STEP: Duration = Duration::from_secs(5);

    /// Begins where the wall clock stands.
    pub fn new(wall: Timestamp) -> Self {
        Self { elapsed: Duration::ZERO, wall, told: wall, step: None }
    }

    /// The time, where `elapsed` has passed on the monotonic clock since the beginning and the wall clock says `wall`.
    pub fn observe(&mut self, elapsed: Duration, wall: Timestamp) -> Timestamp {
        let passed = elapsed.saturating_sub(self.elapsed);
        let expected = self.wall.after(passed);
        if distance(wall, expected) > Self::STEP {
            self.step = Some(Step { wall, expected });
        }
        let told = self.told.after(passed);
        let slew = distance(wall, told).min(passed / Self::SLEW);
        // Never back: `passed` is more than any slew that is taken from it.
        self.told = if wall > told { told.after(slew) } else { told.before(slew) };
        self.elapsed = self.elapsed.max(elapsed);
        self.wall = wall;
        self.told
    }

    /// The last step seen.
    pub fn step(&self) -> Option<Step> {
        self.step
    }
}

fn distance(a: Timestamp, b: Timestamp) -> Duration {
    if a > b { a.since(b) } else { b.since(a) }
}

#[expect(clippy::disallowed_methods, reason = "the only reader of the monotonic clock")]
fn instant() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the only reader of the wall clock")]
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::default().after(since)
}
