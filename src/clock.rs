//! The only reader of time. Everybody else is given a [`Timestamp`], or holds a [`Clock`] and hands its answer on.
//!
//! Within a process time never goes back, and it never jumps: retry times, time to live and the journal's append times
//! would all follow a jump, and an hour that somebody added by mistake would expire an hour of events. So the clock
//! runs on the monotonic one and draws towards the wall clock by [`Follower::SLEW`] of the time that passes. A wall
//! clock that was set by more than [`Follower::STEP`] is told once, as a [`ClockStep`], to whoever asks for it.
//!
//! Between processes time may jump, and nobody can tell a wall clock that was set from a server that was off, unless the
//! machine ran on. So a server notes what its clock told ([`ClockRecord`]), and the next one begins by it ([`begin`]):
//! - a clock never begins earlier than the last one ended, so that nothing that is due waits once more;
//! - a jump ahead by more than [`ClockLimits::jump_max`] holds expiry ([`Clock::holds_expiry`]): events are delivered, and no event,
//!   log, dead letter or subscription ends because of its age, until an operator confirms the wall clock or it has stood
//!   [`ClockLimits::hold_wait`] unchanged;
//! - a wall clock that is back where it was before such a jump ends the hold: the jump was the mistake.
//!
//! What must be right by the world's time, such as the end of a token, asks [`Clock::wall`], which follows at once.
//!
//! Absent on purpose: time zones, sleeping, timers. A timer asks the clock when it fires, and finds out whether it
//! was early.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::event::Timestamp;

/// Tells the time. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Clock(Arc<ClockSource>);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one clock")]
enum ClockSource {
    System { started: Instant, follower: Mutex<Follower>, seen: LastReading, skew: Skew, hold: Hold },
    Manual { at: Mutex<Timestamp>, holds_expiry: AtomicBool },
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
pub struct ManualClock(Clock);

/// The wall clock was set: it stands elsewhere than the time that passed explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
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
        let follower = Follower::new(skew.of(wall()));
        Self::following(follower, skew, Hold::default())
    }

    /// The same, as it goes on after an earlier process; and what is to be told of it.
    pub fn resumed(
        skew: Skew,
        past: Option<&ClockRecord>,
        boot: Option<&str>,
        limits: ClockLimits,
    ) -> (Self, Option<ClockJump>) {
        let wall = skew.of(wall());
        let Beginning { told, jump, held } = begin(past, wall, &MachineBoot::now(boot), limits);
        let follower = Follower { told, ..Follower::new(wall) };
        let hold = Hold { is_held: AtomicBool::new(held.is_some()), held: Mutex::new(held), limits, ..Hold::default() };
        (Self::following(follower, skew, hold), jump)
    }

    fn following(follower: Follower, skew: Skew, hold: Hold) -> Self {
        let (follower, seen) = (Mutex::new(follower), LastReading::default());
        Self(Arc::new(ClockSource::System { started: instant(), follower, seen, skew, hold }))
    }

    /// The wall clock, wherever it stands: for what others have said by their own clocks.
    pub fn wall(&self) -> Timestamp {
        match &*self.0 {
            ClockSource::System { skew, .. } => skew.of(wall()),
            ClockSource::Manual { .. } => self.now(),
        }
    }

    /// Whether nothing may be given up, trimmed or deleted for its age, because the clock may be wrong about it.
    pub fn holds_expiry(&self) -> bool {
        let (started, hold) = match &*self.0 {
            ClockSource::System { started, hold, .. } => (started, hold),
            ClockSource::Manual { holds_expiry, .. } => return holds_expiry.load(Ordering::Relaxed),
        };
        if !hold.is_held.load(Ordering::Relaxed) {
            return false;
        }
        let elapsed = instant().saturating_duration_since(*started);
        let over = hold.lock().as_ref().is_none_or(|held| held.rest <= elapsed);
        // A process that knows its own clock to be wrong by now is no confirmation.
        if !over || distance(self.now(), self.wall()) > hold.limits.jump_max {
            return true;
        }
        hold.end();
        false
    }

    /// An operator says that the wall clock is right: expiry goes on by it, and the next process begins by it.
    pub fn confirm(&self) {
        if let ClockSource::System { hold, .. } = &*self.0 {
            hold.confirmed.store(true, Ordering::Relaxed);
            hold.end();
        }
    }

    /// What the next process is to know; [`None`] of a clock that is not the machine's.
    pub fn past(&self, boot: Option<&str>) -> Option<ClockRecord> {
        let ClockSource::System { started, hold, .. } = &*self.0 else { return None };
        let elapsed = instant().saturating_duration_since(*started);
        let told = if hold.confirmed.load(Ordering::Relaxed) { self.wall() } else { self.now() };
        let rest = |held: &HeldJump| HeldJump { rest: held.rest.saturating_sub(elapsed), ..held.clone() };
        Some(ClockRecord { told, machine: MachineBoot::now(boot), held: hold.lock().as_ref().map(rest) })
    }

    /// A clock that stands still until its hand is moved.
    pub fn manual(at: Timestamp) -> (Self, ManualClock) {
        let clock = Self(Arc::new(ClockSource::Manual { at: Mutex::new(at), holds_expiry: AtomicBool::new(false) }));
        (clock.clone(), ManualClock(clock))
    }

    /// The time: never earlier than any answer before.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            ClockSource::System { started, follower, seen, skew, .. } => {
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
            ClockSource::Manual { at, .. } => *at.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The last step of the wall clock that nobody has asked for yet. The server asks now and then, and logs it.
    pub fn take_step(&self) -> Option<ClockStep> {
        match &*self.0 {
            ClockSource::System { follower, .. } => follower.lock().unwrap_or_else(PoisonError::into_inner).step.take(),
            ClockSource::Manual { .. } => None,
        }
    }
}

/// How far a wall clock is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockLimits {
    /// A jump between two processes that is larger is told, and holds expiry.
    pub jump_max: Duration,
    /// How long expiry is held where nobody confirms the wall clock.
    pub hold_wait: Duration,
}

/// Where a process ran, and for how long the machine had been on by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineBoot {
    /// Which start of the machine it was, where the system says.
    pub boot: Option<String>,
    /// How long ago that was, time asleep included.
    pub up: Duration,
}

impl MachineBoot {
    fn now(boot: Option<&str>) -> Self {
        // Where the system does not say, no two starts are taken for the same one.
        let told = std::fs::read_to_string("/proc/uptime").ok();
        let up = told.and_then(|told| told.split(' ').next()?.parse().ok());
        let up = up.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self { boot: boot.filter(|_| up.is_some()).map(str::to_owned), up: up.unwrap_or_default() }
    }

    /// How long it is since `then`, where the machine ran on.
    fn since(&self, then: &Self) -> Option<Duration> {
        let same = self.boot.is_some() && self.boot == then.boot;
        same.then(|| self.up.checked_sub(then.up)).flatten()
    }
}

/// What an earlier process knew of time, as it was written down last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRecord {
    /// What its clock told.
    pub told: Timestamp,
    /// Where it ran.
    pub machine: MachineBoot,
    /// Why expiry was held, if it was.
    pub held: Option<HeldJump>,
}

/// A jump ahead that nobody has confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJump {
    /// What the clock told before it …
    pub before: Timestamp,
    /// … and where.
    pub machine: MachineBoot,
    /// How long expiry is held yet, if nobody confirms the wall clock.
    pub rest: Duration,
}

/// How a process begins to tell time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// With what.
    pub told: Timestamp,
    /// What an operator should know.
    pub jump: Option<ClockJump>,
    /// Whether expiry is held, and why.
    pub held: Option<HeldJump>,
}

/// The wall clock is elsewhere than an earlier process leads to expect, by more than [`ClockLimits::jump_max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// Later by so much: it was set, or the server was off for so long. Expiry is held.
    Ahead(Duration),
    /// Earlier by so much: the clock goes on from where it was, and draws towards the wall clock.
    Behind(Duration),
    /// It is back where it was before the jump that expiry was held for.
    Undone,
}

/// Begins after an earlier process, if there was one, with the wall clock at `wall`.
pub fn begin(past: Option<&ClockRecord>, wall: Timestamp, here: &MachineBoot, limits: ClockLimits) -> Beginning {
    let Some(ClockRecord { told, machine, held }) = past else {
        return Beginning { told: wall, jump: None, held: None };
    };
    let expected = |told: &Timestamp, then: &MachineBoot| told.after(here.since(then).unwrap_or_default());
    if let Some(HeldJump { before, machine, .. }) = held
        && distance(wall, expected(before, machine)) <= limits.jump_max
    {
        return Beginning { told: wall, jump: Some(ClockJump::Undone), held: None };
    }
    let expected = expected(told, machine);
    if wall < expected {
        let behind = expected.since(wall);
        let jump = (behind > limits.jump_max).then_some(ClockJump::Behind(behind));
        return Beginning { told: expected, jump, held: held.clone() };
    }
    let ahead = wall.since(expected);
    if ahead <= limits.jump_max {
        return Beginning { told: wall, jump: None, held: held.clone() };
    }
    // The first of several jumps is the one to be undone.
    let (before, machine) = match held {
        Some(HeldJump { before, machine, .. }) => (*before, machine.clone()),
        None => (expected, here.clone()),
    };
    let held = Some(HeldJump { before, machine, rest: limits.hold_wait });
    Beginning { told: wall, jump: Some(ClockJump::Ahead(ahead)), held }
}

/// Whether expiry is held in this process.
#[derive(Debug, Default)]
struct Hold {
    /// For whoever asks with every event.
    is_held: AtomicBool,
    held: Mutex<Option<HeldJump>>,
    confirmed: AtomicBool,
    limits: ClockLimits,
}

impl Hold {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<HeldJump>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        *self.lock() = None;
        self.is_held.store(false, Ordering::Relaxed);
    }
}

/// The last look at both clocks, for readers who need not look again so soon, and need no lock for it.
///
/// Until the next look they are told the least that it could tell. So nobody is told an earlier time after it, and
/// everybody at most 12.5 µs too little.
#[derive(Debug, Default)]
struct LastReading {
    /// Odd while a look is noted.
    version: AtomicU64,
    elapsed: AtomicU64,
    told: AtomicU64,
}

impl LastReading {
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

impl ManualClock {
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
            ClockSource::Manual { at, .. } => {
                let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(*at <= to, "a clock at {at} cannot be set back to {to}");
                *at = to;
            }
            ClockSource::System { .. } => unreachable!("a hand is made with a manual clock"),
        }
    }

    /// From now on the clock holds expiry, or no longer.
    pub fn hold_expiry(&self, held: bool) {
        match &*self.0.0 {
            ClockSource::Manual { holds_expiry, .. } => holds_expiry.store(held, Ordering::Relaxed),
            ClockSource::System { .. } => unreachable!("a hand is made with a manual clock"),
        }
    }
}

/// The arithmetic of following: what passed on the monotonic clock, what the wall clock says, and the time between.
#[derive(Clone, Debug)]
pub struct Follower {
    elapsed: Duration,
    wall: Timestamp,
    told: Timestamp,
    step: Option<ClockStep>,
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
            self.step = Some(ClockStep { wall, expected });
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
    pub fn step(&self) -> Option<ClockStep> {
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
