//! Whoever looks or copies beside a server's traffic works half of the time at most.

use std::{thread, time::Duration};

use crate::{clock::Clock, event::Timestamp};

/// So long is worked before a rest: shorter than anybody notices, longer than a sleep takes to be asked for.
const SPELL: Duration = Duration::from_millis(5);

/// A single slow read, of a disk that others keep busy, asks for no longer rest than this.
const REST_MAX: Duration = Duration::from_millis(100);

/// Rests for as long as it worked.
pub(super) struct CopyPace {
    clock: Clock,
    since: Timestamp,
}

impl CopyPace {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), since: clock.now() }
    }

    /// A piece of work is done.
    pub(super) fn rest(&mut self) {
        let worked = self.clock.now().since(self.since);
        if worked >= SPELL {
            thread::sleep(worked.min(REST_MAX));
            self.since = self.clock.now();
        }
    }
}
