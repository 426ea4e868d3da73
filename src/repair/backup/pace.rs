//! Limits checks and copies next to a server's traffic to half of the time.

use std::{thread, time::Duration};

use gridhook_clock::Clock;
use gridhook_event::Timestamp;

/// The time of work before a pause: too short to delay traffic noticeably, and longer than the
/// overhead of a sleep.
const WORK: Duration = Duration::from_millis(5);

/// The maximum pause, after a single slow read of a busy disk.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Pauses for as long as the work took.
pub(super) struct CopyPace {
    clock: Clock,
    since: Timestamp,
}

impl CopyPace {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            since: clock.now(),
        }
    }

    /// Call after each piece of work.
    pub(super) fn pause_after_work(&mut self) {
        let work_time = self.clock.now().since(self.since);
        if work_time >= WORK {
            thread::sleep(work_time.min(PAUSE_MAX));
            self.since = self.clock.now();
        }
    }
}
