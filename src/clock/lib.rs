//! The only reader of time. Other crates receive a [`Timestamp`], or pass on that of a [`Clock`].
//!
//! Within a process time never goes back, and never jumps by itself. Retry times, time to live and
//! append times would all follow a jump: a wall clock set forward by an hour would expire an hour
//! of events. The clock therefore follows the monotonic clock, and approaches the wall clock by at
//! most one part in [`Follower::SLEW`] of the time that passes. A wall clock set by more than
//! [`Follower::STEP`] is reported once as a [`ClockStep`]. If an operator confirms a wall clock
//! that is ahead ([`Clock::confirm_wall`]), time goes on from it. If it is behind, the process ends
//! all that holds times of this clock and begins a new one ([`Clock::is_set_back`]).
//!
//! Between processes time may jump. A wall clock that was set cannot be distinguished from a server
//! that was off, unless the machine kept running. The server therefore stores its clock
//! ([`ClockRecord`]), and the next process starts from it ([`begin_reading`]):
//! - A clock never starts earlier than the last one ended, so nothing due waits twice.
//! - A jump ahead by more than [`ClockLimits::jump_max`] pauses expiry
//!   ([`Clock::expiry_is_paused`]): events are delivered, and no event, log, dead letter or
//!   subscription ends by its age. Expiry resumes when an operator confirms the wall clock, or
//!   after [`ClockLimits::expiry_pause_max`] without another jump.
//! - A wall clock that returns to its time before such a jump resumes expiry: the jump was the
//!   mistake.
//!
//! Times that other parties compare, such as those of signatures and tokens, are a [`WallTime`] of
//! [`Clock::wall_time`], which follows the wall clock at once.
//!
//! What it does not do: no time zones, and no timers but the wait of a [`Lease`]. A timer reads the
//! clock when it fires, and finds out whether it was early.

mod beginning;
mod follower;
mod lease;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use gridhook_event::{Timestamp, WallTime};

use self::follower::{LastReading, absolute_distance};
pub use self::{
    beginning::{
        Beginning, ClockJump, ClockLimits, ClockRecord, MachineBoot, OwnerClock, UnconfirmedJump,
        begin_reading,
    },
    follower::Follower,
    lease::Lease,
};

/// A clock. Clones share their time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<ClockSource>);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one clock")]
enum ClockSource {
    System {
        started: Instant,
        follower: Mutex<Follower>,
        seen: LastReading,
        skew: Skew,
        pause: ExpiryPause,
        is_continued: bool,
    },
    Manual {
        at: Mutex<Timestamp>,
        expiry_is_paused: AtomicBool,
    },
}

/// A deliberate error of the wall clock, for chaos tests. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Skew(Arc<AtomicI64>);

impl Skew {
    /// Sets the wall clock ahead by this much, or right again with zero.
    pub fn set_ahead(&self, by: Duration) {
        self.0.store(to_micros(by), Ordering::Relaxed);
    }

    /// Sets the wall clock back by this much.
    pub fn set_behind(&self, by: Duration) {
        self.0.store(-to_micros(by), Ordering::Relaxed);
    }

    fn skewed_time(&self, wall: Timestamp) -> Timestamp {
        match self.0.load(Ordering::Relaxed) {
            0 => wall,
            by if by > 0 => wall.after(Duration::from_micros(by.unsigned_abs())),
            by => wall.before(Duration::from_micros(by.unsigned_abs())),
        }
    }
}

fn to_micros(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}

/// Sets the time of a manual clock, for tests.
#[derive(Debug)]
pub struct ManualClock(Clock);

/// A step of the wall clock: it differs from the time that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// What the wall clock reads now.
    pub wall: Timestamp,
    /// What it would read without the step.
    pub expected: Timestamp,
}

impl Clock {
    /// A wall clock that is behind by more was set back. Less is made up for in twenty minutes, and
    /// the saved clock of a process that was killed is some seconds old.
    pub const SET_BACK_MIN: Duration = Duration::from_secs(60);

    /// The clock of the machine.
    pub fn system() -> Self {
        Self::with_skew(Skew::default())
    }

    /// As [`Clock::system`], with an error of the wall clock for chaos tests.
    pub fn with_skew(skew: Skew) -> Self {
        let follower = Follower::new(skew.skewed_time(wall_now()));
        Self::with_follower(follower, skew, ExpiryPause::default(), false)
    }

    /// As [`Clock::with_skew`], continuing after an earlier process. Also returns what an operator
    /// should know about it.
    pub fn resume_after(
        skew: Skew,
        past: Option<&ClockRecord>,
        boot: Option<&str>,
        limits: ClockLimits,
    ) -> (Self, Option<ClockJump>) {
        let wall = skew.skewed_time(wall_now());
        let Beginning {
            reported,
            jump,
            unconfirmed,
        } = begin_reading(past, wall, &MachineBoot::current_boot(boot), limits);
        let follower = Follower::from_reported(reported, wall);
        let pause = ExpiryPause {
            is_paused: AtomicBool::new(unconfirmed.is_some()),
            unconfirmed: Mutex::new(unconfirmed),
            limits,
            ..ExpiryPause::default()
        };
        (
            Self::with_follower(follower, skew, pause, past.is_some()),
            jump,
        )
    }

    fn with_follower(
        follower: Follower,
        skew: Skew,
        pause: ExpiryPause,
        is_continued: bool,
    ) -> Self {
        let follower = Mutex::new(follower);
        let last_reading = LastReading::default();
        Self(Arc::new(ClockSource::System {
            started: monotonic_now(),
            follower,
            seen: last_reading,
            skew,
            pause,
            is_continued,
        }))
    }

    /// The wall clock, for whatever other parties compare.
    pub fn wall_time(&self) -> WallTime {
        match &*self.0 {
            ClockSource::System { skew, .. } => WallTime(skew.skewed_time(wall_now()).0),
            ClockSource::Manual { .. } => WallTime(self.now().0),
        }
    }

    /// The wall time at which this clock read `at`, if the wall clock was not set since.
    pub fn to_wall(&self, at: Timestamp) -> WallTime {
        let age = self.now().since(at);
        WallTime(self.wall_time().to_timestamp().before(age).0)
    }

    /// Whether it continues the clock of an earlier process. Then it begins no earlier than that
    /// one ended, unless a wrong clock was corrected or an operator confirmed the wall clock. If it
    /// continues none, nothing is known about the wall clock.
    pub fn is_continued(&self) -> bool {
        match &*self.0 {
            ClockSource::System { is_continued, .. } => *is_continued,
            ClockSource::Manual { .. } => true,
        }
    }

    /// Whether nothing may be given up, trimmed or deleted by age, because the clock may be wrong.
    pub fn expiry_is_paused(&self) -> bool {
        let (started, pause) = match &*self.0 {
            ClockSource::System { started, pause, .. } => (started, pause),
            ClockSource::Manual {
                expiry_is_paused, ..
            } => return expiry_is_paused.load(Ordering::Relaxed),
        };
        if !pause.is_paused.load(Ordering::Relaxed) {
            return false;
        }
        let elapsed = monotonic_now().saturating_duration_since(*started);
        let over = pause
            .unconfirmed
            .lock()
            .as_ref()
            .is_none_or(|unconfirmed| unconfirmed.rest <= elapsed);
        // The time alone confirms nothing while this process knows its clock to be wrong.
        if !over
            || absolute_distance(self.now(), self.wall_time().to_timestamp())
                > pause.limits.jump_max
        {
            return true;
        }
        pause.end_pause();
        false
    }

    /// Confirms the wall clock on behalf of an operator: expiry resumes by it. Time goes on from it
    /// at once if it is ahead. It cannot go back: if the wall clock is behind, the next clock
    /// starts from it, and [`Clock::is_set_back`] requests that one.
    pub fn confirm_wall(&self) {
        if let ClockSource::System {
            started,
            follower,
            seen,
            skew,
            pause,
            ..
        } = &*self.0
        {
            let mut follower = follower.lock();
            let elapsed = monotonic_now().saturating_duration_since(*started);
            let wall = skew.skewed_time(wall_now());
            let time = follower.go_ahead(elapsed, wall);
            seen.store_reading(elapsed, time);
            let is_set_back = time.since(wall) > Self::SET_BACK_MIN;
            pause.is_set_back.store(is_set_back, Ordering::Release);
            pause.end_pause();
            pause.confirmation.notify_waiters();
        }
    }

    /// Whether an operator confirmed a wall clock that is behind by more than
    /// [`Clock::SET_BACK_MIN`]. Only a new clock can follow it.
    pub fn is_set_back(&self) -> bool {
        match &*self.0 {
            ClockSource::System { pause, .. } => pause.is_set_back.load(Ordering::Acquire),
            ClockSource::Manual { .. } => false,
        }
    }

    /// Returns once [`Clock::is_set_back`].
    pub async fn wait_until_set_back(&self) {
        let ClockSource::System { pause, .. } = &*self.0 else {
            return std::future::pending().await;
        };
        loop {
            // Before the look, so that a confirmation after it is not lost.
            let confirmation = pause.confirmation.notified();
            if self.is_set_back() {
                return;
            }
            confirmation.await;
        }
    }

    /// What the next process has to know; [`None`] for a manual clock.
    pub fn to_record(&self, boot: Option<&str>) -> Option<ClockRecord> {
        let ClockSource::System { started, pause, .. } = &*self.0 else {
            return None;
        };
        let elapsed = monotonic_now().saturating_duration_since(*started);
        let time = if self.is_set_back() {
            self.wall_time().to_timestamp()
        } else {
            self.now()
        };
        Some(ClockRecord {
            reported: time,
            machine: MachineBoot::current_boot(boot),
            unconfirmed: pause
                .unconfirmed
                .lock()
                .as_ref()
                .map(|jump| jump.after(elapsed)),
        })
    }

    /// A clock that stands still until a test moves it.
    pub fn new_manual(at: Timestamp) -> (Self, ManualClock) {
        let clock = Self(Arc::new(ClockSource::Manual {
            at: Mutex::new(at),
            expiry_is_paused: AtomicBool::new(false),
        }));
        (clock.clone(), ManualClock(clock))
    }

    /// The time: never earlier than any time returned before.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            ClockSource::System {
                started,
                follower,
                seen,
                skew,
                ..
            } => {
                let elapsed = || monotonic_now().saturating_duration_since(*started);
                if let Some(reported) = seen.read_recent(elapsed()) {
                    return reported;
                }
                let mut follower = follower.lock();
                // Both clocks are read under the lock, so that readings reach the follower in
                // order.
                let elapsed = elapsed();
                let reported = follower.read_time(elapsed, skew.skewed_time(wall_now()));
                seen.store_reading(elapsed, reported);
                reported
            }
            ClockSource::Manual { at, .. } => *at.lock(),
        }
    }

    /// The last step of the wall clock that was not taken yet. The server takes and logs it
    /// periodically.
    pub fn take_step(&self) -> Option<ClockStep> {
        match &*self.0 {
            ClockSource::System { follower, .. } => follower.lock().take_step(),
            ClockSource::Manual { .. } => None,
        }
    }
}

/// The pause of expiry in this process.
#[derive(Debug, Default)]
struct ExpiryPause {
    /// For callers that check it with every event.
    is_paused: AtomicBool,
    unconfirmed: Mutex<Option<UnconfirmedJump>>,
    is_set_back: AtomicBool,
    /// Notified when an operator confirms the wall clock.
    confirmation: Notify,
    limits: ClockLimits,
}

impl ExpiryPause {
    fn end_pause(&self) {
        *self.unconfirmed.lock() = None;
        self.is_paused.store(false, Ordering::Relaxed);
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.set(self.0.now().after(by));
    }

    /// Sets the clock to `to`.
    ///
    /// # Panics
    /// `to` is earlier: programs never see a clock go back.
    pub fn set(&self, to: Timestamp) {
        match &*self.0.0 {
            ClockSource::Manual { at, .. } => {
                let mut at = at.lock();
                assert!(*at <= to, "a clock at {at} cannot be set back to {to}");
                *at = to;
            }
            ClockSource::System { .. } => unreachable!("a ManualClock has a manual clock"),
        }
    }

    pub fn set_expiry_paused(&self, is_paused: bool) {
        match &*self.0.0 {
            ClockSource::Manual {
                expiry_is_paused, ..
            } => expiry_is_paused.store(is_paused, Ordering::Relaxed),
            ClockSource::System { .. } => unreachable!("a ManualClock has a manual clock"),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only reader of the monotonic clock"
)]
fn monotonic_now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only reader of the wall clock"
)]
fn wall_now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::default().after(since)
}
